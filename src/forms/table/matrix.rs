//! mma.sync, ldmatrix, stmatrix and movmatrix.

use super::{Table, registers, vector};

/// Shape, type words, (type and count of a, b, c registers), sm, isa.
struct Mma {
    words: &'static str,
    a: (&'static str, u32),
    b: (&'static str, u32),
    c: (&'static str, u32),
    sm: u32,
    isa: (u32, u32),
}

const fn mma(
    words: &'static str,
    a: (&'static str, u32),
    b: (&'static str, u32),
    c: (&'static str, u32),
    sm: u32,
    isa: (u32, u32),
) -> Mma {
    Mma {
        words,
        a,
        b,
        c,
        sm,
        isa,
    }
}

const FLOATS: [Mma; 18] = [
    mma(
        "m16n8k8.row.col.f32.f16.f16.f32",
        ("f16x2", 2),
        ("f16x2", 1),
        ("f32", 4),
        75,
        (8, 0),
    ),
    mma(
        "m16n8k8.row.col.f16.f16.f16.f16",
        ("f16x2", 2),
        ("f16x2", 1),
        ("f16x2", 2),
        75,
        (8, 0),
    ),
    mma(
        "m16n8k16.row.col.f32.f16.f16.f32",
        ("f16x2", 4),
        ("f16x2", 2),
        ("f32", 4),
        80,
        (8, 0),
    ),
    mma(
        "m16n8k16.row.col.f16.f16.f16.f16",
        ("f16x2", 4),
        ("f16x2", 2),
        ("f16x2", 2),
        80,
        (8, 0),
    ),
    mma(
        "m16n8k8.row.col.f32.bf16.bf16.f32",
        ("bf16x2", 2),
        ("bf16x2", 1),
        ("f32", 4),
        80,
        (8, 0),
    ),
    mma(
        "m16n8k16.row.col.f32.bf16.bf16.f32",
        ("bf16x2", 4),
        ("bf16x2", 2),
        ("f32", 4),
        80,
        (8, 0),
    ),
    mma(
        "m16n8k4.row.col.f32.tf32.tf32.f32",
        ("b32", 2),
        ("b32", 1),
        ("f32", 4),
        80,
        (8, 0),
    ),
    mma(
        "m16n8k8.row.col.f32.tf32.tf32.f32",
        ("b32", 4),
        ("b32", 2),
        ("f32", 4),
        80,
        (8, 0),
    ),
    mma(
        "m16n8k32.row.col.f32.e4m3.e4m3.f32",
        ("e4m3x4", 4),
        ("e4m3x4", 2),
        ("f32", 4),
        89,
        (8, 4),
    ),
    mma(
        "m16n8k32.row.col.f32.e4m3.e5m2.f32",
        ("e4m3x4", 4),
        ("e5m2x4", 2),
        ("f32", 4),
        89,
        (8, 4),
    ),
    mma(
        "m16n8k32.row.col.f32.e5m2.e4m3.f32",
        ("e5m2x4", 4),
        ("e4m3x4", 2),
        ("f32", 4),
        89,
        (8, 4),
    ),
    mma(
        "m16n8k32.row.col.f32.e5m2.e5m2.f32",
        ("e5m2x4", 4),
        ("e5m2x4", 2),
        ("f32", 4),
        89,
        (8, 4),
    ),
    mma(
        "m16n8k16.row.col.f32.e4m3.e4m3.f32",
        ("e4m3x4", 2),
        ("e4m3x4", 1),
        ("f32", 4),
        89,
        (8, 7),
    ),
    mma(
        "m16n8k32.row.col.f16.e4m3.e4m3.f16",
        ("e4m3x4", 4),
        ("e4m3x4", 2),
        ("f16x2", 2),
        89,
        (8, 7),
    ),
    mma(
        "m8n8k4.row.col.f64.f64.f64.f64",
        ("f64", 1),
        ("f64", 1),
        ("f64", 2),
        80,
        (8, 0),
    ),
    mma(
        "m16n8k4.row.col.f64.f64.f64.f64",
        ("f64", 2),
        ("f64", 1),
        ("f64", 4),
        90,
        (8, 0),
    ),
    mma(
        "m16n8k8.row.col.f64.f64.f64.f64",
        ("f64", 4),
        ("f64", 2),
        ("f64", 4),
        90,
        (8, 0),
    ),
    mma(
        "m16n8k16.row.col.f64.f64.f64.f64",
        ("f64", 8),
        ("f64", 4),
        ("f64", 4),
        90,
        (8, 0),
    ),
];

pub(super) fn lines(t: &mut Table) {
    for m in &FLOATS {
        add(t, m, "");
    }
    integers(t);
    ldmatrix(t);
    stmatrix(t);
    t.line(
        "matrix",
        "movmatrix.sync.aligned.m8n8.trans.b16 d, a",
        "a:b32 -> d:b32",
    )
    .inputs("random 256");
}

fn add(t: &mut Table, m: &Mma, ending: &str) {
    let d = m.c.0;
    t.line(
        "mma",
        &format!(
            "mma.sync.aligned.{}{ending} {}, {}, {}, {}",
            m.words,
            vector("d", m.c.1),
            vector("a", m.a.1),
            vector("b", m.b.1),
            vector("c", m.c.1)
        ),
        &format!(
            "{} {} {} -> {}",
            registers("a", m.a.1, &format!("{}/mma", m.a.0)),
            registers("b", m.b.1, &format!("{}/mma", m.b.0)),
            registers("c", m.c.1, &format!("{}/mma", m.c.0)),
            registers("d", m.c.1, d)
        ),
    )
    .inputs("random 768")
    .block(32)
    .sm(m.sm)
    .isa(m.isa.0, m.isa.1);
}

fn integers(t: &mut Table) {
    let shapes = [
        ("m8n8k16", ["u8", "s8"], 1, 1, 2, 75),
        ("m16n8k16", ["u8", "s8"], 2, 1, 4, 80),
        ("m16n8k32", ["u8", "s8"], 4, 2, 4, 80),
        ("m8n8k32", ["u4", "s4"], 1, 1, 2, 75),
        ("m16n8k32", ["u4", "s4"], 2, 1, 4, 80),
        ("m16n8k64", ["u4", "s4"], 4, 2, 4, 80),
    ];
    for (shape, types, a, b, c, sm) in shapes {
        for ta in types {
            for tb in types {
                for sat in ["", ".satfinite"] {
                    integer(
                        t,
                        &format!("{shape}.row.col{sat}.s32.{ta}.{tb}.s32"),
                        (a, b, c),
                        sm,
                    );
                }
            }
        }
    }
    for (shape, a, b, c, sm) in [
        ("m8n8k128", 1, 1, 2, 75),
        ("m16n8k128", 2, 1, 4, 80),
        ("m16n8k256", 4, 2, 4, 80),
    ] {
        integer_op(
            t,
            &format!("{shape}.row.col.s32.b1.b1.s32"),
            ".xor.popc",
            (a, b, c),
            sm,
        );
        integer_op(
            t,
            &format!("{shape}.row.col.s32.b1.b1.s32"),
            ".and.popc",
            (a, b, c),
            80,
        );
    }
}

fn integer(t: &mut Table, words: &str, counts: (u32, u32, u32), sm: u32) {
    integer_op(t, words, "", counts, sm);
}

fn integer_op(t: &mut Table, words: &str, ending: &str, (a, b, c): (u32, u32, u32), sm: u32) {
    t.line(
        "mma",
        &format!(
            "mma.sync.aligned.{words}{ending} {}, {}, {}, {}",
            vector("d", c),
            vector("a", a),
            vector("b", b),
            vector("c", c)
        ),
        &format!(
            "{} {} {} -> {}",
            registers("a", a, "b32"),
            registers("b", b, "b32"),
            registers("c", c, "s32"),
            registers("d", c, "s32")
        ),
    )
    .inputs("random 128")
    .block(32)
    .sm(sm);
}

/// Each lane writes one row of 16 bytes, then names any row as its own.
fn ldmatrix(t: &mut Table) {
    for (shape, count) in [("x1", 1), ("x2", 2), ("x4", 4)] {
        for trans in ["", ".trans"] {
            t.line(
                "matrix",
                &format!(
                    ".shared .align 16 .b8 tile[512]; mov.u32 base, tile; mad.lo.u32 at, lane, 16, base; st.shared.v2.b64 [at], {{a, b}}; bar.sync 0; mad.lo.u32 at, row, 16, base; ldmatrix.sync.aligned.m8n8.{shape}{trans}.shared.b16 {}, [at]",
                    vector("d", count)
                ),
                &format!("a:b64 b:b64 row:u32/lane -> {} | at:b32 base:b32", registers("d", count, "b32")),
            )
            .named(&format!("ldmatrix.{shape}{trans}"))
            .inputs("random 256")
            .block(32);
        }
    }
}

fn stmatrix(t: &mut Table) {
    for (shape, count) in [("x1", 1), ("x2", 2), ("x4", 4)] {
        for trans in ["", ".trans"] {
            t.line(
                "matrix",
                &format!(
                    ".shared .align 16 .b8 tile[512]; mov.u32 base, tile; mad.lo.u32 at, lane, 16, base; mov.b64 d, -1; st.shared.v2.b64 [at], {{d, d}}; bar.sync 0; stmatrix.sync.aligned.m8n8.{shape}{trans}.shared.b16 [at], {}; bar.sync 0; ld.shared.v2.b64 {{d, e}}, [at]",
                    vector("a", count)
                ),
                &format!("{} -> d:b64 e:b64 | at:b32 base:b32", registers("a", count, "b32")),
            )
            .named(&format!("stmatrix.{shape}{trans}"))
            .inputs("random 128")
            .block(32)
            .sm(90);
        }
    }
}
