//! Looking at graphs and changing their edges.

use std::sync::Arc;

use super::code::Code;
use super::ffi::{In, Out, Outcome};
use super::graph::{EXECS, GRAPHS, Graph, Node, ordered};
use super::graph_nodes::graph_of;
use super::guard::entries;
use super::handles::Handle;
use super::work::Work;

/// `CUgraphEdgeData` is eight bytes; zeros mean a plain edge.
type EdgeData = Out<u64>;
const NO_EDGE_DATA: EdgeData = Out(std::ptr::null_mut());

/// Fills a client's array, or tells its length where there is no array.
fn list(found: &[Handle], out: Out<Handle>, count: Out<usize>) -> Outcome {
    if out.is_null() {
        return count.set(found.len());
    }
    let room = count.get()?;
    for at in 0..room {
        // Room beyond the end is filled with null.
        out.element(at).set(found.get(at).copied().unwrap_or(0))?;
    }
    count.set(found.len().min(room))
}

fn nodes(graph: Handle, out: Out<Handle>, count: Out<usize>, roots: bool) -> Outcome {
    let graph = GRAPHS.get(graph)?;
    let wanted = |node: &&Node| !roots || node.after.is_empty();
    let found: Vec<Handle> = graph
        .nodes()
        .iter()
        .filter(wanted)
        .map(|n| n.handle)
        .collect();
    list(&found, out, count)
}

fn dependencies(node: Handle, out: Out<Handle>, count: Out<usize>) -> Outcome {
    let graph = graph_of(node)?;
    let nodes = graph.nodes();
    let found = nodes.iter().find(|known| known.handle == node);
    list(found.map_or(&[], |node| &node.after), out, count)
}

fn dependents(node: Handle, out: Out<Handle>, count: Out<usize>) -> Outcome {
    let graph = graph_of(node)?;
    let nodes = graph.nodes();
    let later = nodes.iter().filter(|known| known.after.contains(&node));
    let found: Vec<Handle> = later.map(|node| node.handle).collect();
    list(&found, out, count)
}

fn edges(
    graph: Handle,
    from: Out<Handle>,
    to: Out<Handle>,
    data: EdgeData,
    count: Out<usize>,
) -> Outcome {
    let graph = GRAPHS.get(graph)?;
    let mut sources = Vec::new();
    let mut targets = Vec::new();
    for node in graph.nodes().iter() {
        sources.extend(&node.after);
        targets.extend(node.after.iter().map(|_| node.handle));
    }
    if from.is_null() || to.is_null() {
        return count.set(sources.len());
    }
    let room = count.get()?;
    list(&sources, from, count)?;
    count.set(room)?;
    if !data.is_null() {
        (0..room.min(sources.len())).try_for_each(|at| data.element(at).set(0))?;
    }
    list(&targets, to, count)
}

/// Adds or removes `count` edges.
fn change_edges(
    graph: Handle,
    from: In<Handle>,
    to: In<Handle>,
    count: usize,
    add: bool,
) -> Outcome {
    let graph = GRAPHS.get(graph)?;
    let (from, to) = (from.all(count)?, to.all(count)?);
    let mut nodes = graph.nodes();
    let mut changed = nodes.clone();
    for (source, target) in from.iter().zip(&to) {
        if !changed.iter().any(|node| node.handle == *source) {
            return Err(Code::INVALID_VALUE);
        }
        let node = changed.iter_mut().find(|node| node.handle == *target);
        let node = node.ok_or(Code::INVALID_VALUE)?;
        let present = node.after.contains(source);
        if present == add {
            return Err(Code::INVALID_VALUE);
        }
        match add {
            true => node.after.push(*source),
            false => node.after.retain(|known| known != source),
        }
    }
    // A cycle could never be launched.
    ordered(&changed)?;
    *nodes = changed;
    Ok(())
}

fn destroy_node(node: Handle) -> Outcome {
    let graph = graph_of(node)?;
    let mut nodes = graph.nodes();
    nodes.retain(|known| known.handle != node);
    for known in nodes.iter_mut() {
        known.after.retain(|handle| *handle != node);
    }
    Ok(())
}

/// `CUgraphNodeType`
fn kind(work: &Work) -> u32 {
    match work {
        Work::Launch(_) => 0,
        Work::Transfer(_) => 1,
        Work::Fill(_) => 2,
        Work::HostFunction { .. } | Work::Callback(_) => 3,
        Work::Nothing | Work::Stamp(_) => 5,
        Work::RecordEvent(_) => 7,
        Work::Free(_) => 11,
        Work::WriteValue { .. } => 12,
    }
}

fn node_type(node: Handle, out: Out<u32>) -> Outcome {
    let graph = graph_of(node)?;
    let nodes = graph.nodes();
    let found = nodes.iter().find(|known| known.handle == node);
    out.set(kind(&found.ok_or(Code::INVALID_VALUE)?.work))
}

fn clone_graph(out: Out<Handle>, original: Handle) -> Outcome {
    let original = GRAPHS.get(original)?;
    let copy = Graph::new();
    *copy.nodes() = super::graph_nodes::copy_nodes(&ordered(&original.nodes())?, &[]);
    out.set(copy.handle)?;
    GRAPHS.insert(copy.handle, copy);
    Ok(())
}

/// Takes over another graph of the same shape; false where it differs.
fn update(exec: Handle, graph: Handle) -> Result<bool, Code> {
    let exec = EXECS.get(exec)?;
    let graph: Arc<Graph> = GRAPHS.get(graph)?;
    let fresh = ordered(&graph.nodes())?;
    let mut nodes = exec.nodes();
    let same = nodes.len() == fresh.len()
        && nodes.iter().zip(&fresh).all(|(old, new)| {
            kind(&old.work) == kind(&new.work) && old.after.len() == new.after.len()
        });
    if same {
        *nodes = fresh;
    }
    Ok(same)
}

/// `CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED`
const TOPOLOGY_CHANGED: u32 = 2;

fn update_and_tell(exec: Handle, graph: Handle, result: Out<u32>) -> Outcome {
    match update(exec, graph)? {
        true => result.set_if_wanted(0),
        false => {
            result.set_if_wanted(TOPOLOGY_CHANGED)?;
            Err(Code::GRAPH_EXEC_UPDATE_FAILURE)
        }
    }
}

entries! {
    cuGraphGetNodes(graph: Handle, out: Out<Handle>, count: Out<usize>) =>
        nodes(graph, out, count, false);
    cuGraphGetRootNodes(graph: Handle, out: Out<Handle>, count: Out<usize>) =>
        nodes(graph, out, count, true);
    cuGraphGetEdges(graph: Handle, from: Out<Handle>, to: Out<Handle>, count: Out<usize>) =>
        edges(graph, from, to, NO_EDGE_DATA, count);
    cuGraphGetEdges_v2(
        graph: Handle, from: Out<Handle>, to: Out<Handle>, data: EdgeData, count: Out<usize>,
    ) => edges(graph, from, to, data, count);
    cuGraphNodeGetDependencies(node: Handle, out: Out<Handle>, count: Out<usize>) =>
        dependencies(node, out, count);
    cuGraphNodeGetDependencies_v2(
        node: Handle, out: Out<Handle>, _data: EdgeData, count: Out<usize>,
    ) => dependencies(node, out, count);
    cuGraphNodeGetDependentNodes(node: Handle, out: Out<Handle>, count: Out<usize>) =>
        dependents(node, out, count);
    cuGraphNodeGetDependentNodes_v2(
        node: Handle, out: Out<Handle>, _data: EdgeData, count: Out<usize>,
    ) => dependents(node, out, count);
    cuGraphAddDependencies(graph: Handle, from: In<Handle>, to: In<Handle>, count: usize) =>
        change_edges(graph, from, to, count, true);
    cuGraphAddDependencies_v2(
        graph: Handle, from: In<Handle>, to: In<Handle>, _data: u64, count: usize,
    ) => change_edges(graph, from, to, count, true);
    cuGraphRemoveDependencies(graph: Handle, from: In<Handle>, to: In<Handle>, count: usize) =>
        change_edges(graph, from, to, count, false);
    cuGraphRemoveDependencies_v2(
        graph: Handle, from: In<Handle>, to: In<Handle>, _data: u64, count: usize,
    ) => change_edges(graph, from, to, count, false);
    cuGraphDestroyNode(node: Handle) => destroy_node(node);
    cuGraphNodeGetType(node: Handle, out: Out<u32>) => node_type(node, out);
    cuGraphClone(out: Out<Handle>, original: Handle) => clone_graph(out, original);
    cuGraphExecUpdate(exec: Handle, graph: Handle, node: Out<Handle>, result: Out<u32>) => {
        node.set_if_wanted(0)?;
        update_and_tell(exec, graph, result)
    };
    // The result's first field is the verdict; the nodes behind it stay zero.
    cuGraphExecUpdate_v2(exec: Handle, graph: Handle, info: Out<u64>) => {
        (0..3).try_for_each(|field| info.element(field).set(0))?;
        update_and_tell(exec, graph, Out(info.0.cast::<u32>()))
    };
}
