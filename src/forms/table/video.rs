//! Video instructions: scalar with byte and half-word selectors, and SIMD.

use super::Table;

pub(super) fn lines(t: &mut Table) {
    let two = "a:b32 b:b32 -> d:b32";
    let three = "a:b32 b:b32 c:b32 -> d:b32";
    t.line(
        "video",
        "{vadd,vsub,vabsdiff,vmin,vmax}{,.sat}.s32.s32.s32 d, a, b",
        two,
    );
    t.line(
        "video",
        "{vadd,vsub,vabsdiff,vmin,vmax}.s32.u32.s32.sat d.h0, a.b1, b.h1, c",
        three,
    )
    .suffix(".merge");
    t.line(
        "video",
        "{vadd,vsub,vmin}{.s32,.u32}.s32.s32.sat d.b2, a.h1, b.b2, c",
        three,
    )
    .suffix(".merge");
    t.line(
        "video",
        "{vadd,vsub,vmin,vmax}.u32.u32.s32.add d, a.b0, b.b3, c",
        three,
    )
    .suffix(".add");
    t.line("video", "{vshl,vshr}.u32.u32.u32.{clamp,wrap} d, a, b", two);
    t.line("video", "vmad.s32.s32.s32{,.sat} d, a.h0, b.h1, c", three);
    t.line("video", "vset.s32.u32.{eq,ne,lt,le,gt,ge} d, a, b", two);
    t.line(
        "video",
        "{vadd2,vsub2,vavrg2,vabsdiff2,vmin2,vmax2}{.s32.s32.s32,.u32.u32.u32} d, a, b, c",
        three,
    );
    t.line(
        "video",
        "{vadd4,vsub4,vavrg4,vabsdiff4,vmin4,vmax4}{.s32.s32.s32,.u32.u32.u32} d, a, b, c",
        three,
    );
    t.line(
        "video",
        "{vadd2,vsub2,vadd4,vsub4}{.s32.s32.s32,.u32.u32.u32,.s32.u32.s32,.u32.s32.s32}.sat d, a, b, c",
        three,
    );
    t.line(
        "video",
        "{vabsdiff2,vabsdiff4}.u32.u32.u32.add d, a, b, c",
        three,
    );
    t.line(
        "video",
        "{vset2,vset4}.u32.u32.{eq,lt,ge} d, a, b, c",
        three,
    );
}
