//! Barriers, asynchronous copies, address spaces and special registers.

use super::Table;

pub(super) fn lines(t: &mut Table) {
    barriers(t);
    async_copies(t);
    async_barriers(t);
    addresses(t);
    special_registers(t);
}

fn exchange(t: &mut Table, name: &str, barrier: &str) {
    t.line(
        "block",
        &format!(".shared .align 4 .b8 tile[256]; mov.u32 base, tile; mad.lo.u32 at, tid, 4, base; st.shared.b32 [at], a; {barrier}; xor.b32 at, tid, 33; mad.lo.u32 at, at, 4, base; ld.shared.b32 d, [at]"),
        "a:b32 -> d:b32 | at:b32 base:b32",
    )
    .named(name)
    .inputs("random 256");
}

fn barriers(t: &mut Table) {
    exchange(t, "bar.sync", "bar.sync 0");
    exchange(t, "bar.sync.count", "bar.sync 3, 64");
    exchange(t, "bar.sync.register", "mov.u32 at, 5; bar.sync at");
    exchange(t, "barrier.sync", "barrier.sync 1");
    exchange(t, "barrier.sync.aligned", "barrier.sync.aligned 2, 64");
    exchange(t, "barrier.cta.sync", "barrier.cta.sync 7");
    t.line(
        "block",
        "setp.ne.u32 p, a, 0; bar.red.popc.u32 d, 0, p; bar.red.and.pred q, 1, p; selp.u32 e, 1, 0, q; bar.red.or.pred q, 2, 64, p; selp.u32 f, 1, 0, q",
        "a:u32/warpbit -> d:u32 e:u32 f:u32 | p:pred q:pred",
    )
    .named("bar.red")
    .inputs("random 1024");
    t.line(
        "block",
        "setp.ne.u32 p, a, 0; bar.red.popc.u32 d, 0, !p",
        "a:u32/bit -> d:u32 | p:pred",
    )
    .named("bar.red.popc.not")
    .inputs("random 256");
    // The first warp produces and only arrives, the second waits.
    t.line(
        "block",
        ".shared .align 4 .b8 tile[256]; mov.u32 base, tile; mad.lo.u32 at, tid, 4, base; setp.lt.u32 p, tid, 32; @p st.shared.b32 [at], a; @p bar.arrive 1, 64; mov.u32 d, a; @!p bar.sync 1, 64; @!p ld.shared.b32 d, [at+-128]",
        "a:b32 -> d:b32 | at:b32 base:b32 p:pred",
    )
    .named("bar.arrive")
    .inputs("random 256");
    t.line(
        "block",
        ".shared .align 4 .b8 tile[256]; mov.u32 base, tile; mad.lo.u32 at, tid, 4, base; st.shared.b32 [at], a; bar.warp.sync 0xffffffff; xor.b32 at, tid, 5; mad.lo.u32 at, at, 4, base; ld.shared.b32 d, [at]",
        "a:b32 -> d:b32 | at:b32 base:b32",
    )
    .named("bar.warp.sync")
    .inputs("random 256");
}

fn async_copies(t: &mut Table) {
    let tile = ".shared .align 16 .b8 tile[1024]; mov.u32 base, tile; mad.lo.u32 at, tid, 16, base; mov.b32 z, -1; st.shared.v4.b32 [at], {z, z, z, z}";
    let wait = "cp.async.commit_group; cp.async.wait_group 0";
    let read = "ld.shared.v2.b64 {d, e}, [at]";
    let sig = "a:b64 b:b64 -> d:b64 e:b64 | at:b32 base:b32 z:b32";
    for (name, copy, wait) in [
        (
            "cp.async.ca.4",
            "cp.async.ca.shared.global [at], [src], 4",
            wait,
        ),
        (
            "cp.async.ca.8",
            "cp.async.ca.shared.global [at], [src], 8",
            wait,
        ),
        (
            "cp.async.ca.16",
            "cp.async.ca.shared.global [at], [src], 16",
            wait,
        ),
        (
            "cp.async.cg.16",
            "cp.async.cg.shared.global [at], [src], 16",
            wait,
        ),
        (
            "cp.async.cg.L2_128B.16",
            "cp.async.cg.shared.global.L2::128B [at], [src], 16",
            wait,
        ),
        (
            "cp.async.cta.cg.16",
            "cp.async.cg.shared::cta.global [at], [src], 16",
            wait,
        ),
        (
            "cp.async.wait_all",
            "cp.async.ca.shared.global [at], [src], 16",
            "cp.async.wait_all",
        ),
    ] {
        t.line("block", &format!("{tile}; {copy}; {wait}; {read}"), sig)
            .named(name)
            .inputs("random 128")
            .sm(80);
    }
    // Bytes past the source size become zeros.
    t.line(
        "block",
        &format!(
            "{tile}; and.b32 c, c, 15; cp.async.cg.shared.global [at], [src], 16, c; {wait}; {read}"
        ),
        "a:b64 b:b64 c:b32 x:b32 -> d:b64 e:b64 | at:b32 base:b32 z:b32",
    )
    .named("cp.async.cg.16.source_size")
    .inputs("random 256")
    .sm(80);
    t.line(
        "block",
        &format!("{tile}; setp.ne.u32 p, c, 0; cp.async.ca.shared.global [at], [src], 8, p; {wait}; {read}"),
        "a:b64 b:b64 c:b32/bit x:b32 -> d:b64 e:b64 | at:b32 base:b32 z:b32 p:pred",
    )
    .named("cp.async.ca.8.ignore_source")
    .inputs("random 128")
    .sm(80);
}

fn async_barriers(t: &mut Table) {
    let init = ".shared .align 8 .b64 bar; setp.eq.u32 p, tid, 0; @p mbarrier.init.shared.b64 [bar], 64; bar.sync 0";
    t.line(
        "block",
        &format!("{init}; mbarrier.arrive.shared.b64 s, [bar]; WAIT:; mbarrier.test_wait.shared.b64 q, [bar], s; @!q bra WAIT; mov.u32 d, a"),
        "a:b32 -> d:b32 | s:b64 p:pred q:pred",
    )
    .named("mbarrier.test_wait")
    .inputs("random 64")
    .sm(80);
    t.line(
        "block",
        &format!("{init}; mbarrier.arrive.shared.b64 _, [bar]; WAIT:; mbarrier.try_wait.parity.shared.b64 q, [bar], 0; @!q bra WAIT; mov.u32 d, a"),
        "a:b32 -> d:b32 | p:pred q:pred",
    )
    .named("mbarrier.try_wait.parity")
    .inputs("random 64")
    .sm(90);
    clusters(t);
}

/// A launch without clusters is one of clusters of one block.
fn clusters(t: &mut Table) {
    let tile = ".shared .align 4 .b8 tile[256]; mov.u32 base, tile; mad.lo.u32 at, tid, 4, base; st.shared.b32 [at], a";
    let read = "xor.b32 at, tid, 33; mad.lo.u32 at, at, 4, base; ld.shared.b32 d, [at]";
    t.line(
        "block",
        &format!("{tile}; barrier.cluster.arrive.release.aligned; barrier.cluster.wait.acquire.aligned; {read}"),
        "a:b32 -> d:b32 | at:b32 base:b32",
    )
    .named("barrier.cluster")
    .inputs("random 256")
    .sm(90);
    let init = ".shared .align 8 .b64 bar; mov.u32 own, bar; setp.eq.u32 p, tid, 0; @p mbarrier.init.shared::cta.b64 [own], 64; @p fence.mbarrier_init.release.cluster; bar.sync 0";
    let wait = "WAIT:; mbarrier.try_wait.parity.shared::cta.b64 q, [own], 0; @!q bra WAIT";
    t.line(
        "block",
        &format!("{tile}; {init}; mov.u32 remote, 0; mapa.shared::cluster.u32 remote, own, remote; mbarrier.arrive.shared::cluster.b64 _, [remote]; {wait}; {read}"),
        "a:b32 -> d:b32 | at:b32 base:b32 own:b32 remote:b32 p:pred q:pred",
    )
    .named("mbarrier.arrive.cluster")
    .inputs("random 256")
    .sm(90);
    // The first thread also announces no bytes: the phase ends by arrivals.
    t.line(
        "block",
        &format!("{tile}; {init}; @p mbarrier.arrive.expect_tx.shared::cta.b64 _, [own], 0; @!p mbarrier.arrive.shared::cta.b64 _, [own]; {wait}; {read}"),
        "a:b32 -> d:b32 | at:b32 base:b32 own:b32 p:pred q:pred",
    )
    .named("mbarrier.arrive.expect_tx")
    .inputs("random 256")
    .sm(90);
}

fn addresses(t: &mut Table) {
    for space in ["global", "shared", "local", "const"] {
        t.line(
            "block",
            &format!(".shared .align 8 .b8 tile[64]; .local .align 8 .b8 depot[64]; cvta.global.u64 x, src; isspacep.{space} p, x; selp.u32 d, 1, 0, p; mov.u64 x, tile; cvta.shared.u64 x, x; isspacep.{space} p, x; selp.u32 e, 1, 0, p; mov.u64 x, depot; cvta.local.u64 x, x; isspacep.{space} p, x; selp.u32 f, 1, 0, p; mov.u64 x, table; cvta.const.u64 x, x; isspacep.{space} p, x; selp.u32 g, 1, 0, p"),
            "a:b32 -> d:u32 e:u32 f:u32 g:u32 | x:b64 p:pred",
        )
        .named(&format!("isspacep.{space}"))
        .prelude(".const .align 8 .b8 table[8] = {1, 2, 3, 4, 5, 6, 7, 8};\n")
        .inputs("random 64");
    }
    for space in ["shared", "local"] {
        let decl = if space == "shared" {
            ".shared"
        } else {
            ".local"
        };
        t.line(
            "block",
            &format!("{decl} .align 8 .b8 area[64]; mov.u64 x, area; cvta.{space}.u64 y, x; cvta.to.{space}.u64 z, y; sub.u64 d, z, x; st.{space}.b32 [area+12], 77; ld.b32 e, [y+12]"),
            "a:b32 -> d:u64 e:u32 | x:b64 y:b64 z:b64",
        )
        .named(&format!("cvta.to.{space}"))
        .inputs("random 64");
    }
    t.line(
        "block",
        "mov.u64 x, table; cvta.const.u64 x, x; and.b32 a, a, 7; cvt.u64.u32 y, a; add.u64 x, x, y; ld.u8 d, [x]",
        "a:b32 -> d:b32 | x:b64 y:b64",
    )
    .named("cvta.const")
    .prelude(".const .align 8 .b8 table[8] = {1, 2, 3, 4, 5, 6, 7, 8};\n");
}

fn special_registers(t: &mut Table) {
    for register in [
        "tid.x",
        "tid.y",
        "tid.z",
        "ntid.x",
        "ntid.y",
        "ntid.z",
        "ctaid.x",
        "ctaid.y",
        "ctaid.z",
        "nctaid.x",
        "nctaid.y",
        "nctaid.z",
        "laneid",
        "lanemask_eq",
        "lanemask_le",
        "lanemask_lt",
        "lanemask_ge",
        "lanemask_gt",
        "dynamic_smem_size",
    ] {
        t.line(
            "block",
            &format!("mov.u32 d, %{register}"),
            "a:b32 -> d:u32",
        )
        .named(&format!("special.{register}"))
        .inputs("random 128");
    }
}
