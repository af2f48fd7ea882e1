//! Building graphs node by node.
//!
//! Arguments of a kernel node are copied when it is added. A child graph is
//! copied node by node, with an empty node in its place behind them.

use std::sync::Arc;

use super::code::Code;
use super::event::EVENTS;
use super::ffi::{In, Out, Outcome, plain};
use super::function;
use super::graph::{EXECS, GRAPHS, Graph, Node, ordered};
use super::guard::entries;
use super::handles::{Handle, fresh};
use super::launch::{Launch, Shape};
use super::memcpy::Copy3d;
use super::transfer::Fill;
use super::work::Work;

/// `CUDA_KERNEL_NODE_PARAMS`, the part that both versions share.
#[repr(C)]
#[derive(Clone, Copy)]
struct KernelParams {
    function: Handle,
    grid: [u32; 3],
    block: [u32; 3],
    shared: u32,
    values: u64,
    extra: u64,
}

/// The second version adds a `CUkernel`, used where `function` is null.
#[repr(C)]
#[derive(Clone, Copy)]
struct KernelParams2 {
    common: KernelParams,
    kernel: Handle,
    context: Handle,
}

#[repr(C)]
#[derive(Clone, Copy)]
struct MemsetParams {
    to: u64,
    pitch: usize,
    value: u32,
    element: u32,
    width: usize,
    height: usize,
}

#[repr(C)]
#[derive(Clone, Copy)]
struct HostParams {
    function: u64,
    data: u64,
}
plain!(KernelParams, KernelParams2, MemsetParams, HostParams);

impl KernelParams {
    fn work(&self) -> Result<Work, Code> {
        let shape = Shape {
            grid: self.grid,
            block: self.block,
            shared: self.shared,
            cooperative: false,
        };
        let values = In(self.values as *const u64);
        let extra = In(self.extra as *const u64);
        let launch = Launch::new(function::find(self.function)?, shape, values, extra)?;
        Ok(Work::Launch(Arc::new(launch)))
    }
}

impl KernelParams2 {
    fn work(&self) -> Result<Work, Code> {
        let mut common = self.common;
        if common.function == 0 {
            common.function = self.kernel;
        }
        common.work()
    }
}

impl MemsetParams {
    fn work(&self) -> Result<Work, Code> {
        let pattern = self.value.to_le_bytes();
        let pattern = match self.element {
            1 | 2 | 4 => pattern[..self.element as usize].to_vec(),
            _ => return Err(Code::INVALID_VALUE),
        };
        Ok(Work::Fill(Fill {
            to: self.to,
            pattern,
            width: self.width as u64,
            height: self.height.max(1) as u64,
            pitch: self.pitch as u64,
        }))
    }
}

/// Where a new node goes, as every call that adds one says it.
struct Place {
    out: Out<Handle>,
    graph: Handle,
    after: In<Handle>,
    count: usize,
}

impl Place {
    fn read(&self) -> Result<(Arc<Graph>, Vec<Handle>), Code> {
        let graph = GRAPHS.get(self.graph)?;
        let after = self.after.all(self.count)?;
        match graph.holds(&after) {
            true => Ok((graph, after)),
            false => Err(Code::INVALID_VALUE),
        }
    }

    fn add(&self, work: Work) -> Outcome {
        let (graph, after) = self.read()?;
        if self.out.is_null() {
            return Err(Code::INVALID_VALUE);
        }
        self.out.set(graph.add(work, after))
    }

    fn add_child(&self, child: Handle) -> Outcome {
        let (graph, after) = self.read()?;
        let child = GRAPHS.get(child)?;
        if Arc::ptr_eq(&graph, &child) {
            return Err(Code::INVALID_VALUE);
        }
        let copies = copy_nodes(&ordered(&child.nodes())?, &after);
        let all = copies.iter().map(|node| node.handle).collect::<Vec<_>>();
        graph.nodes().extend(copies);
        let last = if all.is_empty() { after } else { all };
        self.out.set(graph.add(Work::Nothing, last))
    }
}

/// Copies under new handles; the roots wait for `after`.
pub fn copy_nodes(nodes: &[Node], after: &[Handle]) -> Vec<Node> {
    let renamed: Vec<(Handle, Handle)> = nodes.iter().map(|node| (node.handle, fresh())).collect();
    let rename = |old: &Handle| {
        renamed
            .iter()
            .find(|(known, _)| known == old)
            .map(|pair| pair.1)
    };
    let copy = |node: &Node| Node {
        handle: rename(&node.handle).unwrap_or_default(),
        after: match node.after.is_empty() {
            true => after.to_vec(),
            false => node.after.iter().filter_map(rename).collect(),
        },
        ..node.clone()
    };
    nodes.iter().map(copy).collect()
}

fn event_work(event: Handle) -> Result<Work, Code> {
    Ok(Work::RecordEvent(EVENTS.get(event)?))
}

/// The graph that holds `node`.
pub fn graph_of(node: Handle) -> Result<Arc<Graph>, Code> {
    let holds = |graph: &Arc<Graph>| graph.nodes().iter().any(|known| known.handle == node);
    GRAPHS
        .all()
        .into_iter()
        .find(holds)
        .ok_or(Code::INVALID_VALUE)
}

/// Replaces what a node does.
fn set_work(node: Handle, work: Work) -> Outcome {
    let graph = graph_of(node)?;
    for known in graph
        .nodes()
        .iter_mut()
        .filter(|known| known.handle == node)
    {
        known.work = work.clone();
    }
    Ok(())
}

fn set_exec_work(exec: Handle, node: Handle, work: Work) -> Outcome {
    let exec = EXECS.get(exec)?;
    let mut nodes = exec.nodes();
    let known = nodes.iter_mut().find(|known| known.handle == node);
    known.ok_or(Code::INVALID_VALUE)?.work = work;
    Ok(())
}

fn set_enabled(exec: Handle, node: Handle, enabled: u32) -> Outcome {
    let exec = EXECS.get(exec)?;
    let mut nodes = exec.nodes();
    let known = nodes.iter_mut().find(|known| known.handle == node);
    known.ok_or(Code::INVALID_VALUE)?.enabled = enabled != 0;
    Ok(())
}

fn get_enabled(exec: Handle, node: Handle, out: Out<u32>) -> Outcome {
    let exec = EXECS.get(exec)?;
    let nodes = exec.nodes();
    let known = nodes.iter().find(|known| known.handle == node);
    out.set(u32::from(known.ok_or(Code::INVALID_VALUE)?.enabled))
}

entries! {
    cuGraphAddKernelNode(
        out: Out<Handle>, graph: Handle, after: In<Handle>, count: usize, params: In<KernelParams>,
    ) => Place { out, graph, after, count }.add(params.get()?.work()?);
    cuGraphAddKernelNode_v2(
        out: Out<Handle>, graph: Handle, after: In<Handle>, count: usize, params: In<KernelParams2>,
    ) => Place { out, graph, after, count }.add(params.get()?.work()?);
    cuGraphAddMemcpyNode(
        out: Out<Handle>, graph: Handle, after: In<Handle>, count: usize, copy: In<Copy3d>,
        _context: Handle,
    ) => Place { out, graph, after, count }.add(Work::Transfer(copy.get()?.transfer()?));
    cuGraphAddMemsetNode(
        out: Out<Handle>, graph: Handle, after: In<Handle>, count: usize, params: In<MemsetParams>,
        _context: Handle,
    ) => Place { out, graph, after, count }.add(params.get()?.work()?);
    cuGraphAddHostNode(
        out: Out<Handle>, graph: Handle, after: In<Handle>, count: usize, params: In<HostParams>,
    ) => {
        let HostParams { function, data } = params.get()?;
        if function == 0 {
            return Err(Code::INVALID_VALUE);
        }
        Place { out, graph, after, count }.add(Work::HostFunction { function, data })
    };
    cuGraphAddEmptyNode(out: Out<Handle>, graph: Handle, after: In<Handle>, count: usize) =>
        Place { out, graph, after, count }.add(Work::Nothing);
    cuGraphAddChildGraphNode(
        out: Out<Handle>, graph: Handle, after: In<Handle>, count: usize, child: Handle,
    ) => Place { out, graph, after, count }.add_child(child);
    cuGraphAddEventRecordNode(
        out: Out<Handle>, graph: Handle, after: In<Handle>, count: usize, event: Handle,
    ) => Place { out, graph, after, count }.add(event_work(event)?);
    // Work before the launch is done when the graph runs: nothing to wait for.
    cuGraphAddEventWaitNode(
        out: Out<Handle>, graph: Handle, after: In<Handle>, count: usize, event: Handle,
    ) => {
        EVENTS.get(event)?;
        Place { out, graph, after, count }.add(Work::Nothing)
    };
    cuGraphKernelNodeSetParams(node: Handle, params: In<KernelParams>) =>
        set_work(node, params.get()?.work()?);
    cuGraphKernelNodeSetParams_v2(node: Handle, params: In<KernelParams2>) =>
        set_work(node, params.get()?.work()?);
    cuGraphMemcpyNodeSetParams(node: Handle, copy: In<Copy3d>) =>
        set_work(node, Work::Transfer(copy.get()?.transfer()?));
    cuGraphMemsetNodeSetParams(node: Handle, params: In<MemsetParams>) =>
        set_work(node, params.get()?.work()?);
    cuGraphExecKernelNodeSetParams(exec: Handle, node: Handle, params: In<KernelParams>) =>
        set_exec_work(exec, node, params.get()?.work()?);
    cuGraphExecKernelNodeSetParams_v2(exec: Handle, node: Handle, params: In<KernelParams2>) =>
        set_exec_work(exec, node, params.get()?.work()?);
    cuGraphExecMemcpyNodeSetParams(exec: Handle, node: Handle, copy: In<Copy3d>, _c: Handle) =>
        set_exec_work(exec, node, Work::Transfer(copy.get()?.transfer()?));
    cuGraphExecMemsetNodeSetParams(
        exec: Handle, node: Handle, params: In<MemsetParams>, _context: Handle,
    ) => set_exec_work(exec, node, params.get()?.work()?);
    cuGraphNodeSetEnabled(exec: Handle, node: Handle, enabled: u32) =>
        set_enabled(exec, node, enabled);
    cuGraphNodeGetEnabled(exec: Handle, node: Handle, out: Out<u32>) =>
        get_enabled(exec, node, out);
}
