//! setp, set, selp and slct.

use super::Table;

const ORDERED: &str = "{eq,ne,lt,le,gt,ge}";
const FLOAT: &str = "{eq,ne,lt,le,gt,ge,equ,neu,ltu,leu,gtu,geu,num,nan}";

pub(super) fn lines(t: &mut Table) {
    predicates(t);
    combined(t);
    set(t);
    select(t);
}

fn setp(t: &mut Table, ops: &str, ty: &str, sm: u32) {
    t.line(
        "compare",
        &format!("setp.{ops}.{ty} p, a, b; selp.u32 d, 1, 0, p"),
        &format!(
            "a:{} b:{0} -> d:u32 | p:pred",
            ty.trim_start_matches("ftz.")
        ),
    )
    .sm(sm);
}

fn predicates(t: &mut Table) {
    for ty in ["s16", "s32", "s64"] {
        setp(t, ORDERED, ty, 75);
    }
    for ty in ["u16", "u32", "u64"] {
        setp(t, "{eq,ne,lt,le,gt,ge,lo,ls,hi,hs}", ty, 75);
    }
    for ty in ["b16", "b32", "b64"] {
        setp(t, "{eq,ne}", ty, 75);
    }
    for ty in ["f32", "ftz.f32", "f64", "f16"] {
        setp(t, FLOAT, ty, 75);
    }
    setp(t, FLOAT, "bf16", 90);
    for (ty, sm) in [("f16x2", 75), ("bf16x2", 90)] {
        t.line(
            "compare",
            &format!("setp.{FLOAT}.{ty} p|q, a, b; selp.u32 d, 1, 0, p; selp.u32 e, 1, 0, q"),
            &format!("a:{ty} b:{ty} -> d:u32 e:u32 | p:pred q:pred"),
        )
        .sm(sm);
    }
}

fn combined(t: &mut Table) {
    for (op, ty) in [("lt", "s32"), ("hi", "u32"), ("geu", "f32"), ("ne", "f64")] {
        for join in ["and", "or", "xor"] {
            t.line(
                "compare",
                &format!(
                    "setp.ne.u32 r, c, 0; setp.{op}.{join}.{ty} p|q, a, b, r; selp.u32 d, 1, 0, p; selp.u32 e, 1, 0, q"
                ),
                &format!("a:{ty} b:{ty} c:u32/bit -> d:u32 e:u32 | p:pred q:pred r:pred"),
            )
            .named(&format!("setp.{op}.{join}.{ty}"));
        }
    }
    t.line(
        "compare",
        "setp.ne.u32 r, c, 0; setp.gt.and.s32 p, a, b, !r; selp.u32 d, 1, 0, p",
        "a:s32 b:s32 c:u32/bit -> d:u32 | p:pred r:pred",
    )
    .named("setp.gt.and.not.s32");
}

fn set(t: &mut Table) {
    for (op, ty) in [
        ("lt", "s32"),
        ("hs", "u32"),
        ("eq", "s64"),
        ("gt", "u16"),
        ("ltu", "f32"),
        ("num", "f32"),
        ("nan", "f64"),
        ("le", "f64"),
    ] {
        for out in ["u32", "s32", "f32"] {
            t.line(
                "compare",
                &format!("set.{op}.{out}.{ty} d, a, b"),
                &format!("a:{ty} b:{ty} -> d:{out}"),
            );
        }
    }
    t.line(
        "compare",
        "set.{lt,geu}.ftz.f32.f32 d, a, b",
        "a:f32 b:f32 -> d:f32",
    );
    t.line(
        "compare",
        "setp.ne.u32 p, c, 0; set.lt.xor.u32.f32 d, a, b, p",
        "a:f32 b:f32 c:u32/bit -> d:u32 | p:pred",
    )
    .named("set.lt.xor.u32.f32");
    t.line(
        "compare",
        "set.{eq,ltu,gt,nan}.{f16,u16}.f16 d, a, b",
        "a:f16 b:f16 -> d:b16",
    );
    t.line(
        "compare",
        "set.{eq,ltu,gt,nan}.f16x2.f16x2 d, a, b",
        "a:f16x2 b:f16x2 -> d:b32",
    );
    t.line(
        "compare",
        "set.{eq,ltu}.{bf16,u16}.bf16 d, a, b",
        "a:bf16 b:bf16 -> d:b16",
    )
    .sm(90);
    t.line(
        "compare",
        "set.{eq,ltu}.bf16x2.bf16x2 d, a, b",
        "a:bf16x2 b:bf16x2 -> d:b32",
    )
    .sm(90);
}

fn select(t: &mut Table) {
    for ty in [
        "b16", "b32", "b64", "u16", "s16", "u32", "s32", "u64", "s64", "f32", "f64",
    ] {
        t.line(
            "compare",
            &format!("setp.ne.u32 p, c, 0; selp.{ty} d, a, b, p"),
            &format!("a:{ty} b:{ty} c:u32/bit -> d:{ty} | p:pred"),
        )
        .named(&format!("selp.{ty}"));
        t.line(
            "compare",
            &format!("slct.{ty}.s32 d, a, b, c"),
            &format!("a:{ty} b:{ty} c:s32 -> d:{ty}"),
        );
        t.line(
            "compare",
            &format!("slct{{,.ftz}}.{ty}.f32 d, a, b, c"),
            &format!("a:{ty} b:{ty} c:f32 -> d:{ty}"),
        );
    }
}
