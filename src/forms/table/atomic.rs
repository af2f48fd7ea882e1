//! atom and red. Every thread owns its cell, so the result has no order;
//! the `contended` forms add from all threads and compare the sum.

use super::Table;

/// (operation, type, least sm)
const OPERATIONS: [(&str, &str, u32); 30] = [
    ("add", "u32", 75),
    ("add", "s32", 75),
    ("add", "u64", 75),
    ("add", "f32", 75),
    ("add", "f64", 75),
    ("add.noftz", "f16", 75),
    ("add.noftz", "f16x2", 75),
    ("add.noftz", "bf16", 90),
    ("add.noftz", "bf16x2", 90),
    ("min", "u32", 75),
    ("min", "s32", 75),
    ("min", "u64", 75),
    ("min", "s64", 75),
    ("max", "u32", 75),
    ("max", "s32", 75),
    ("max", "u64", 75),
    ("max", "s64", 75),
    ("inc", "u32", 75),
    ("dec", "u32", 75),
    ("and", "b32", 75),
    ("and", "b64", 75),
    ("or", "b32", 75),
    ("or", "b64", 75),
    ("xor", "b32", 75),
    ("xor", "b64", 75),
    ("exch", "b32", 75),
    ("exch", "b64", 75),
    ("cas", "b16", 75),
    ("cas", "b32", 75),
    ("cas", "b64", 75),
];

pub(super) fn lines(t: &mut Table) {
    for (op, ty, sm) in OPERATIONS {
        global(t, op, ty, sm);
        shared(t, op, ty, sm);
        if !matches!(op, "exch" | "cas") {
            reduction(t, op, ty, sm);
        }
    }
    orders(t);
    contended(t);
}

fn operands(op: &str, ty: &str) -> (String, String) {
    match op {
        "cas" => (format!("a:{ty}/few b:{ty}/few c:{ty}"), "b, c".to_owned()),
        _ => (format!("a:{ty} b:{ty}"), "b".to_owned()),
    }
}

fn bits(ty: &str) -> &'static str {
    match ty {
        "f16" | "bf16" | "b16" => "b16",
        "u64" | "s64" | "b64" | "f64" => "b64",
        _ => "b32",
    }
}

fn global(t: &mut Table, op: &str, ty: &str, sm: u32) {
    let (inputs, values) = operands(op, ty);
    let cell = bits(ty);
    t.line(
        "atomic",
        &format!("st.global.{cell} [dst+8], a; atom.global.{op}.{ty} d, [dst+8], {values}; ld.global.{cell} e, [dst+8]"),
        &format!("{inputs} -> d:{ty} e:{ty}"),
    )
    .named(&format!("atom.global.{op}.{ty}"))
    .sm(sm);
}

fn shared(t: &mut Table, op: &str, ty: &str, sm: u32) {
    let (inputs, values) = operands(op, ty);
    let cell = bits(ty);
    t.line(
        "atomic",
        &format!(".shared .align 8 .b8 cells[512]; mov.u32 at, cells; mad.lo.u32 at, tid, 8, at; st.shared.{cell} [at], a; atom.shared.{op}.{ty} d, [at], {values}; ld.shared.{cell} e, [at]"),
        &format!("{inputs} -> d:{ty} e:{ty} | at:b32"),
    )
    .named(&format!("atom.shared.{op}.{ty}"))
    .sm(sm);
}

fn reduction(t: &mut Table, op: &str, ty: &str, sm: u32) {
    let cell = bits(ty);
    t.line(
        "atomic",
        &format!(
            "st.global.{cell} [dst], a; red.global.{op}.{ty} [dst], b; ld.global.{cell} d, [dst]"
        ),
        &format!("a:{ty} b:{ty} -> d:{ty}"),
    )
    .named(&format!("red.global.{op}.{ty}"))
    .sm(sm);
    if ty.ends_with("32") {
        t.line(
            "atomic",
            &format!(".shared .align 8 .b8 cells[512]; mov.u32 at, cells; mad.lo.u32 at, tid, 8, at; st.shared.{cell} [at], a; red.shared.{op}.{ty} [at], b; ld.shared.{cell} d, [at]"),
            &format!("a:{ty} b:{ty} -> d:{ty} | at:b32"),
        )
        .named(&format!("red.shared.{op}.{ty}"))
        .sm(sm);
    }
}

/// Memory order and scope do not change the value, only who may see it when.
fn orders(t: &mut Table) {
    for order in ["relaxed", "acquire", "release", "acq_rel"] {
        for scope in ["cta", "gpu", "sys"] {
            t.line(
                "atomic",
                &format!("st.global.b32 [dst+8], a; atom.{order}.{scope}.global.add.u32 d, [dst+8], b; ld.global.b32 e, [dst+8]"),
                "a:u32 b:u32 -> d:u32 e:u32",
            )
            .named(&format!("atom.{order}.{scope}.global.add.u32"));
        }
    }
    for (order, scope) in [("relaxed", "gpu"), ("release", "gpu"), ("relaxed", "sys")] {
        t.line(
            "atomic",
            &format!("st.global.b32 [dst], a; red.{order}.{scope}.global.max.s32 [dst], b; ld.global.b32 d, [dst]"),
            "a:s32 b:s32 -> d:s32",
        )
        .named(&format!("red.{order}.{scope}.global.max.s32"));
    }
    t.line(
        "atomic",
        "st.global.b32 [dst+8], a; cvta.global.u64 at, dst; atom.add.u32 d, [at+8], b; ld.global.b32 e, [dst+8]",
        "a:u32 b:u32 -> d:u32 e:u32 | at:b64",
    )
    .named("atom.generic.add.u32");
    t.line(
        "atomic",
        "st.global.v2.f32 [dst], {a, b}; red.global.add.v2.f32 [dst], {b, c}; ld.global.v2.f32 {d, f}, [dst]; mov.f32 e, f",
        "a:f32 b:f32 c:f32 -> d:f32 e:f32 | f:f32",
    )
    .named("red.global.add.v2.f32")
    .sm(90)
    .isa(8, 1);
    t.line(
        "atomic",
        ".reg .b128 x, y, z; ld.global.b128 x, [src]; st.global.b128 [dst], x; ld.global.b128 y, [src+16]; atom.global.exch.b128 z, [dst], y; mov.b128 {d, e}, z",
        "a:b64 b:b64 c:b64 e0:b64 -> d:b64 e:b64",
    )
    .named("atom.global.exch.b128")
    .sm(90)
    .isa(8, 3);
}

/// All threads of a block meet in one cell; integer results have no order.
fn contended(t: &mut Table) {
    for (op, ty) in [
        ("add", "u32"),
        ("min", "s32"),
        ("max", "u64"),
        ("and", "b32"),
        ("or", "b32"),
        ("xor", "b64"),
        ("inc", "u32"),
    ] {
        let cell = bits(ty);
        let start = match op {
            "min" => "0x7fffffff",
            "and" => "-1",
            _ => "0",
        };
        let operand = if op == "inc" { "1000" } else { "a" };
        t.line(
            "atomic",
            &format!(".shared .align 8 .b8 cell[8]; setp.eq.u32 p, tid, 0; @p st.shared.{cell} [cell], {start}; bar.sync 0; atom.shared.{op}.{ty} t, [cell], {operand}; bar.sync 0; ld.shared.{cell} d, [cell]"),
            &format!("a:{ty} -> d:{ty} | t:{ty} p:pred"),
        )
        .named(&format!("atom.shared.{op}.{ty}.contended"));
    }
}
