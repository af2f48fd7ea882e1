//! Branches, predication and calls under divergence.

use super::Table;

const DOUBLE: &str = ".func (.param .b32 r) double(.param .b32 x)
{
    .reg .b32 v;
    ld.param.b32 v, [x];
    add.u32 v, v, v;
    st.param.b32 [r], v;
    ret;
}
";
const TRIPLE: &str = ".func (.param .b32 r) triple(.param .b32 x)
{
    .reg .b32 v, w;
    ld.param.b32 v, [x];
    mul.lo.u32 w, v, 3;
    st.param.b32 [r], w;
    ret;
}
";

pub(super) fn lines(t: &mut Table) {
    t.line(
        "control",
        "setp.lt.s32 p, a, b; mov.u32 d, 7; @p mov.u32 d, a; @!p add.u32 d, d, b",
        "a:s32 b:s32 -> d:u32 | p:pred",
    )
    .named("guard");
    t.line(
        "control",
        "setp.lt.s32 p, a, b; @p bra LESS; sub.s32 d, a, b; bra.uni DONE; LESS:; sub.s32 d, b, a; DONE:",
        "a:s32 b:s32 -> d:u32 | p:pred",
    )
    .named("bra.divergent");
    t.line(
        "control",
        "and.b32 k, a, 15; mov.u32 d, 1; LOOP:; mad.lo.u32 d, d, 3, b; sub.u32 k, k, 1; setp.gt.s32 p, k, 0; @p bra LOOP",
        "a:u32 b:u32 -> d:u32 | k:b32 p:pred",
    )
    .named("loop.divergent");
    t.line(
        "control",
        "and.b32 k, a, 3; TARGETS: .branchtargets CASE0, CASE1, CASE2, CASE3; brx.idx k, TARGETS; CASE0:; mov.u32 d, b; bra.uni DONE; CASE1:; not.b32 d, b; bra.uni DONE; CASE2:; add.u32 d, b, 100; bra.uni DONE; CASE3:; mul.lo.u32 d, b, b; DONE:",
        "a:u32 b:u32 -> d:u32 | k:b32",
    )
    .named("brx.idx");
    t.line(
        "control",
        "{; .param .b32 x; .param .b32 r; st.param.b32 [x], a; call.uni (r), double, (x); ld.param.b32 d, [r]; }",
        "a:u32 -> d:u32",
    )
    .named("call.direct")
    .prelude(DOUBLE);
    t.line(
        "control",
        "setp.lt.s32 p, a, 0; mov.u32 d, a; @p bra SKIP; {; .param .b32 x; .param .b32 r; st.param.b32 [x], a; call (r), double, (x); ld.param.b32 d, [r]; }; SKIP:",
        "a:s32 -> d:u32 | p:pred",
    )
    .named("call.divergent")
    .prelude(DOUBLE);
    t.line(
        "control",
        "and.b32 k, a, 1; setp.eq.u32 p, k, 0; mov.u64 f, double; mov.u64 g, triple; selp.b64 f, f, g, p; SHAPE: .callprototype (.param .b32 _) _ (.param .b32 _); {; .param .b32 x; .param .b32 r; st.param.b32 [x], b; call (r), f, (x), SHAPE; ld.param.b32 d, [r]; }",
        "a:u32 b:u32 -> d:u32 | k:b32 p:pred f:b64 g:b64",
    )
    .named("call.indirect")
    .prelude(&format!("{DOUBLE}{TRIPLE}"));
    t.line(
        "control",
        "and.b32 k, a, 7; {; .param .b32 x; .param .b32 r; st.param.b32 [x], k; call (r), factorial, (x); ld.param.b32 d, [r]; }",
        "a:u32 -> d:u32 | k:b32",
    )
    .named("call.recursive")
    .prelude(
        ".func (.param .b32 r) factorial(.param .b32 x)
{
    .reg .b32 v, w;
    .reg .pred p;
    ld.param.b32 v, [x];
    setp.le.u32 p, v, 1;
    mov.u32 w, 1;
    @p bra DONE;
    {
    .param .b32 y;
    .param .b32 s;
    sub.u32 w, v, 1;
    st.param.b32 [y], w;
    call (s), factorial, (y);
    ld.param.b32 w, [s];
    }
    mul.lo.u32 w, w, v;
DONE:
    st.param.b32 [r], w;
    ret;
}
",
    );
    t.line(
        "control",
        "mov.u32 d, 5; st.global.b32 [dst], d; setp.lt.s32 p, a, 0; @p exit; mov.u32 d, 6",
        "a:s32 -> d:u32 | p:pred",
    )
    .named("exit.divergent");
    mov(t);
}

fn mov(t: &mut Table) {
    for ty in [
        "b16", "u16", "s16", "b32", "u32", "s32", "f32", "b64", "u64", "s64", "f64",
    ] {
        t.line(
            "control",
            &format!("mov.{ty} d, a"),
            &format!("a:{ty} -> d:{ty}"),
        );
    }
    t.line(
        "control",
        "setp.lt.s32 p, a, b; mov.pred q, p; selp.u32 d, 1, 0, q; mov.pred q, 1; xor.pred q, q, p; selp.u32 e, 1, 0, q; mov.pred q, 0; xor.pred q, q, p; selp.u32 f, 1, 0, q",
        "a:s32 b:s32 -> d:u32 e:u32 f:u32 | p:pred q:pred",
    )
    .named("mov.pred");
    t.line("control", "mov.b32 d, {a, b}", "a:b16 b:b16 -> d:b32")
        .named("mov.b32.pack");
    t.line("control", "mov.b32 {d, e}, a", "a:b32 -> d:b16 e:b16")
        .named("mov.b32.unpack");
    t.line("control", "mov.b64 d, {a, b}", "a:b32 b:b32 -> d:b64")
        .named("mov.b64.pack");
    t.line("control", "mov.b64 {d, e}, a", "a:b64 -> d:b32 e:b32")
        .named("mov.b64.unpack");
    t.line(
        "control",
        "mov.b64 d, {a, b, c, e}",
        "a:b16 b:b16 c:b16 e:b16 -> d:b64",
    )
    .named("mov.b64.pack4");
    t.line(
        "control",
        "mov.b64 {d, e, f, g}, a",
        "a:b64 -> d:b16 e:b16 f:b16 g:b16",
    )
    .named("mov.b64.unpack4");
}
