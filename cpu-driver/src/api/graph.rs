//! Graphs: operations with explicit edges, captured or built, and launched as
//! one.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::code::Code;
use super::context::current;
use super::driver::driver;
use super::ffi::{In, Out, Outcome};
use super::guard::entries;
use super::handles::{Handle, Registry, fresh};
use super::scheduler::Step;
use super::stream::{per_thread, resolve};
use super::work::Work;

#[derive(Clone)]
pub struct Node {
    pub handle: Handle,
    pub work: Work,
    /// Nodes of the same graph that come first.
    pub after: Vec<Handle>,
    pub enabled: bool,
}

pub struct Graph {
    pub handle: Handle,
    nodes: Mutex<Vec<Node>>,
}

/// A graph that was made ready; later changes of the graph do not reach it.
pub struct Exec {
    pub handle: Handle,
    nodes: Mutex<Vec<Node>>,
    flags: u64,
}

pub static GRAPHS: Registry<Graph> = Registry::new();
pub static EXECS: Registry<Exec> = Registry::new();

impl Graph {
    pub fn new() -> Arc<Graph> {
        Arc::new(Graph {
            handle: fresh(),
            nodes: Mutex::new(Vec::new()),
        })
    }

    pub fn nodes(&self) -> MutexGuard<'_, Vec<Node>> {
        self.nodes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn add(&self, work: Work, after: Vec<Handle>) -> Handle {
        let handle = fresh();
        self.nodes().push(Node {
            handle,
            work,
            after,
            enabled: true,
        });
        handle
    }

    pub fn holds(&self, handles: &[Handle]) -> bool {
        let nodes = self.nodes();
        let known = |handle: &Handle| nodes.iter().any(|node| node.handle == *handle);
        handles.iter().all(known)
    }

    /// True where every node of `wanted` is one of `tail` or comes before one.
    pub fn reaches(&self, tail: &[Handle], wanted: &[Handle]) -> bool {
        let nodes = self.nodes();
        let mut seen = Vec::new();
        let mut open = tail.to_vec();
        while let Some(handle) = open.pop() {
            if seen.contains(&handle) {
                continue;
            }
            seen.push(handle);
            let node = nodes.iter().find(|node| node.handle == handle);
            open.extend(node.iter().flat_map(|node| &node.after));
        }
        wanted.iter().all(|handle| seen.contains(handle))
    }
}

impl Exec {
    pub fn nodes(&self) -> MutexGuard<'_, Vec<Node>> {
        self.nodes.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Orders nodes so that each comes behind those it waits for.
///
/// # Errors
/// `INVALID_VALUE` for a cycle or a missing node.
pub fn ordered(nodes: &[Node]) -> Result<Vec<Node>, Code> {
    let mut done: Vec<Node> = Vec::with_capacity(nodes.len());
    let mut placed = std::collections::BTreeSet::new();
    let mut open: Vec<&Node> = nodes.iter().collect();
    while !open.is_empty() {
        let before = done.len();
        let mut blocked = Vec::new();
        for node in open {
            if node.after.iter().all(|handle| placed.contains(handle)) {
                placed.insert(node.handle);
                done.push(node.clone());
            } else {
                blocked.push(node);
            }
        }
        if done.len() == before {
            return Err(Code::INVALID_VALUE);
        }
        open = blocked;
    }
    Ok(done)
}

fn instantiate(out: Out<Handle>, graph: Handle, flags: u64) -> Outcome {
    current()?;
    // Device launch (4) is not possible here; auto-free (1), upload (2) and
    // node priority (8) change nothing.
    if flags & !15 != 0 || flags & 5 == 5 {
        return Err(Code::INVALID_VALUE);
    }
    if flags & 4 != 0 {
        return Err(Code::NOT_SUPPORTED);
    }
    let graph = GRAPHS.get(graph)?;
    let nodes = ordered(&graph.nodes())?;
    let exec = Arc::new(Exec {
        handle: fresh(),
        nodes: Mutex::new(nodes),
        flags,
    });
    out.set(exec.handle)?;
    EXECS.insert(exec.handle, exec);
    Ok(())
}

/// The steps of one launch; edges become positions.
pub fn steps(nodes: &[Node]) -> Vec<Step> {
    let position = |handle: &Handle| nodes.iter().position(|node| node.handle == *handle);
    let step = |node: &Node| Step {
        work: match node.enabled {
            true => node.work.clone(),
            false => Work::Nothing,
        },
        after: node.after.iter().filter_map(position).collect(),
    };
    nodes.iter().map(step).collect()
}

fn launch(exec: Handle, stream: Handle) -> Outcome {
    let exec = EXECS.get(exec)?;
    let stream = resolve(stream)?;
    let nodes = exec.nodes();
    if super::capture::mark(&stream).is_some() {
        // Launched while capturing: the nodes join the outer graph one by one.
        return nodes
            .iter()
            .try_for_each(|node| stream.enqueue(node.work.clone()));
    }
    driver()?.scheduler.submit(&stream, &[], steps(&nodes));
    Ok(())
}

fn with_params(out: Out<Handle>, graph: Handle, params: In<u64>) -> Outcome {
    instantiate(out, graph, params.get()?)
}

fn upload(exec: Handle, stream: Handle) -> Outcome {
    EXECS.get(exec)?;
    resolve(stream).map(drop)
}

entries! {
    cuGraphCreate(out: Out<Handle>, _flags: u32) => {
        driver()?;
        let graph = Graph::new();
        out.set(graph.handle)?;
        GRAPHS.insert(graph.handle, graph);
        Ok(())
    };
    cuGraphDestroy(graph: Handle) => GRAPHS.remove(graph).map(drop);
    // The log arguments of the older forms are left empty.
    cuGraphInstantiate(
        out: Out<Handle>, graph: Handle, node: Out<Handle>, _log: u64, _room: usize,
    ) => {
        node.set_if_wanted(0)?;
        instantiate(out, graph, 0)
    };
    cuGraphInstantiate_v2(
        out: Out<Handle>, graph: Handle, node: Out<Handle>, _log: u64, _room: usize,
    ) => {
        node.set_if_wanted(0)?;
        instantiate(out, graph, 0)
    };
    cuGraphInstantiateWithFlags(out: Out<Handle>, graph: Handle, flags: u64) =>
        instantiate(out, graph, flags);
    cuGraphInstantiateWithParams(out: Out<Handle>, graph: Handle, params: In<u64>) =>
        with_params(out, graph, params);
    cuGraphInstantiateWithParams_ptsz(out: Out<Handle>, graph: Handle, params: In<u64>) =>
        with_params(out, graph, params);
    cuGraphExecDestroy(exec: Handle) => EXECS.remove(exec).map(drop);
    cuGraphExecGetFlags(exec: Handle, out: Out<u64>) => out.set(EXECS.get(exec)?.flags);
    cuGraphLaunch(exec: Handle, stream: Handle) => launch(exec, stream);
    cuGraphLaunch_ptsz(exec: Handle, stream: Handle) => launch(exec, per_thread(stream));
    cuGraphUpload(exec: Handle, stream: Handle) => upload(exec, stream);
    cuGraphUpload_ptsz(exec: Handle, stream: Handle) => upload(exec, per_thread(stream));
}
