//! Shuffles, votes, matches and warp reductions, with full and partial masks.

use super::Table;

pub(super) fn lines(t: &mut Table) {
    shuffles(t);
    votes(t);
    matches(t);
    reductions(t);
}

fn shuffles(t: &mut Table) {
    // `c` holds clamp and segment mask, drawn from the widths 32, 16, 8, 4, 2.
    t.line(
        "warp",
        "shfl.sync.{up,down,bfly,idx}.b32 d|p, a, b, c, 0xffffffff; selp.u32 e, 1, 0, p",
        "a:b32 b:u32/lane c:u32/segment -> d:b32 e:u32 | p:pred",
    )
    .inputs("random 512");
    t.line(
        "warp",
        "shfl.sync.{up,down,bfly,idx}.b32 d, a, b, c, 0xffffffff",
        "a:b32 b:u32/lane c:u32/segment -> d:b32",
    )
    .inputs("random 256")
    .suffix(".plain");
    // The lower half only; sources stay in it, as reading a lane that does not
    // take part is undefined.
    t.line(
        "warp",
        "mov.u32 d, a; setp.lt.u32 q, lane, 16; @q shfl.sync.idx.b32 d|p, a, b, 0x1f, 0xffff",
        "a:b32 b:u32/halflane -> d:b32 | p:pred q:pred",
    )
    .named("shfl.sync.idx.b32.partial")
    .inputs("random 256");
    t.line(
        "warp",
        "mov.u32 d, a; and.b32 k, lane, 1; setp.eq.u32 q, k, 0; @q bra EVEN; shfl.sync.bfly.b32 d, a, 2, 0x1f, 0xaaaaaaaa; bra.uni DONE; EVEN:; shfl.sync.bfly.b32 d, a, 4, 0x1f, 0x55555555; DONE:",
        "a:b32 -> d:b32 | k:b32 q:pred",
    )
    .named("shfl.sync.bfly.b32.divergent")
    .inputs("random 256");
}

fn votes(t: &mut Table) {
    let sig = "a:u32/bit -> d:u32 | p:pred q:pred";
    for op in ["all", "any", "uni"] {
        t.line(
            "warp",
            &format!(
                "setp.ne.u32 p, a, 0; vote.sync.{op}.pred q, p, 0xffffffff; selp.u32 d, 1, 0, q"
            ),
            "a:u32/warpbit -> d:u32 | p:pred q:pred",
        )
        .named(&format!("vote.sync.{op}.pred"))
        .inputs("random 512");
    }
    t.line(
        "warp",
        "setp.ne.u32 p, a, 0; vote.sync.ballot.b32 d, p, 0xffffffff",
        sig,
    )
    .named("vote.sync.ballot.b32")
    .inputs("random 256");
    t.line(
        "warp",
        "setp.ne.u32 p, a, 0; mov.u32 d, 0; setp.gt.u32 q, lane, 20; @q vote.sync.ballot.b32 d, p, 0xffe00000",
        sig,
    )
    .named("vote.sync.ballot.b32.partial")
    .inputs("random 256");
    t.line(
        "warp",
        "setp.ne.u32 p, a, 0; vote.sync.ballot.b32 d, !p, 0xffffffff",
        sig,
    )
    .named("vote.sync.ballot.b32.not")
    .inputs("random 256");
    t.line("warp", "activemask.b32 d", "a:b32 -> d:b32")
        .inputs("random 64");
}

fn matches(t: &mut Table) {
    for ty in ["b32", "b64"] {
        t.line(
            "warp",
            &format!("match.any.sync.{ty} d, a, 0xffffffff"),
            &format!("a:{ty}/few -> d:b32"),
        )
        .inputs("random 256");
        t.line(
            "warp",
            &format!("match.all.sync.{ty} d|p, a, 0xffffffff; selp.u32 e, 1, 0, p"),
            &format!("a:{ty}/warpbit -> d:b32 e:u32 | p:pred"),
        )
        .inputs("random 512");
    }
    t.line(
        "warp",
        "mov.u32 d, 0; setp.lt.u32 q, lane, 9; @q match.any.sync.b32 d, a, 0x1ff",
        "a:b32/few -> d:b32 | q:pred",
    )
    .named("match.any.sync.b32.partial")
    .inputs("random 256");
}

fn reductions(t: &mut Table) {
    for ty in ["u32", "s32"] {
        t.line(
            "warp",
            &format!("redux.sync.{{add,min,max}}.{ty} d, a, 0xffffffff"),
            &format!("a:{ty} -> d:{ty}"),
        )
        .inputs("random 512")
        .sm(80);
    }
    t.line(
        "warp",
        "redux.sync.{and,or,xor}.b32 d, a, 0xffffffff",
        "a:b32/sparse -> d:b32",
    )
    .inputs("random 512")
    .sm(80);
    t.line(
        "warp",
        "mov.u32 d, 0; and.b32 k, lane, 3; setp.eq.u32 q, k, 1; @q redux.sync.add.u32 d, a, 0x22222222",
        "a:u32 -> d:u32 | k:b32 q:pred",
    )
    .named("redux.sync.add.u32.partial")
    .inputs("random 256")
    .sm(80);
}
