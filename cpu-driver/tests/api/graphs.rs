//! Captured and built graphs.

use super::support::*;

#[test]
fn captured_work_runs_at_launch_and_not_before() {
    let _context = Context::new();
    let stream = stream(1);
    let device = upload(&[0; 8]);
    ok(cuStreamBeginCapture_v2(stream, 1));
    ok(cuMemsetD32Async(device, 7, 2, stream));
    let graph = made(|out| cuStreamEndCapture(stream, out));
    ok(cuStreamSynchronize(stream));
    assert_eq!(download(device, 8), [0; 8]);
    let exec = made(|out| cuGraphInstantiateWithFlags(out, graph, 0));
    for _ in 0..3 {
        ok(cuMemsetD8_v2(device, 0, 8));
        ok(cuGraphLaunch(exec, stream));
        ok(cuStreamSynchronize(stream));
        assert_eq!(download(device, 8), [7, 0, 0, 0, 7, 0, 0, 0]);
    }
    ok(cuGraphExecDestroy(exec));
    ok(cuGraphDestroy(graph));
    assert_eq!(cuGraphLaunch(exec, stream), INVALID_HANDLE);
}

#[test]
fn a_second_stream_joins_a_capture_by_an_event_and_must_be_joined_back() {
    for joined in [true, false] {
        let _context = Context::new();
        let (origin, branch) = (stream(1), stream(1));
        let (fork, join) = (
            made(|out| cuEventCreate(out, 2)),
            made(|out| cuEventCreate(out, 2)),
        );
        let device = upload(&[0; 8]);
        ok(cuStreamBeginCapture_v2(origin, 1));
        ok(cuMemsetD32Async(device, 1, 1, origin));
        ok(cuEventRecord(fork, origin));
        ok(cuStreamWaitEvent(branch, fork, 0));
        ok(cuMemsetD32Async(device + 4, 2, 1, branch));
        ok(cuEventRecord(join, branch));
        if joined {
            ok(cuStreamWaitEvent(origin, join, 0));
        }
        let mut graph = 0;
        let code = cuStreamEndCapture(origin, &mut graph);
        if !joined {
            assert_eq!(code, 904);
            continue;
        }
        ok(code);
        let mut count = 0;
        ok(cuGraphGetNodes(graph, std::ptr::null_mut(), &mut count));
        assert_eq!(count, 2);
        let exec = made(|out| cuGraphInstantiateWithFlags(out, graph, 0));
        ok(cuGraphLaunch(exec, branch));
        ok(cuStreamSynchronize(branch));
        assert_eq!(download(device, 8), [1, 0, 0, 0, 2, 0, 0, 0]);
    }
}

#[test]
fn waiting_for_a_capturing_stream_spoils_the_capture() {
    let _context = Context::new();
    let stream = stream(1);
    ok(cuStreamBeginCapture_v2(stream, 1));
    assert_eq!(cuStreamSynchronize(stream), 900);
    let mut graph = 1;
    assert_eq!(cuStreamEndCapture(stream, &mut graph), 901);
    assert_eq!(graph, 0);
    ok(cuStreamSynchronize(stream));
}

#[test]
fn edges_order_the_nodes_of_a_built_graph_and_cycles_are_refused() {
    let _context = Context::new();
    let device = upload(&[0; 4]);
    let graph = made(|out| cuGraphCreate(out, 0));
    let node = |value| {
        let params = MemsetNode {
            to: device,
            pitch: 0,
            value,
            element: 4,
            width: 1,
            height: 1,
        };
        made(|out| cuGraphAddMemsetNode(out, graph, std::ptr::null(), 0, &params, 0))
    };
    // Added last, runs first.
    let (late, early) = (node(2), node(1));
    ok(cuGraphAddDependencies(graph, &early, &late, 1));
    assert_eq!(
        cuGraphAddDependencies(graph, &late, &early, 1),
        INVALID_VALUE
    );
    let exec = made(|out| cuGraphInstantiateWithFlags(out, graph, 0));
    ok(cuGraphLaunch(exec, 0));
    assert_eq!(download(device, 4), [2, 0, 0, 0]);
}
