//! cvt across all types, and its packed and 8-bit float forms.

use super::Table;

const INTS: [&str; 8] = ["u8", "s8", "u16", "s16", "u32", "s32", "u64", "s64"];
const TO_INT: &str = "{.rni,.rzi,.rmi,.rpi}";
const TO_FLOAT: &str = "{.rn,.rz,.rm,.rp}";

pub(super) fn lines(t: &mut Table) {
    integers(t);
    float_and_integer(t);
    floats(t);
    brain_and_tensor(t);
    packed(t);
    eight_bit(t);
    every_code(t);
}

/// The register that receives a narrow result: 32 bits, so that the extension
/// to the register's width is part of what is compared.
fn result(ty: &str) -> &str {
    match ty {
        "u8" | "s8" | "u16" | "s16" => "b32",
        _ => ty,
    }
}

fn integers(t: &mut Table) {
    for from in INTS {
        for to in INTS {
            // `.sat` is illegal where every value of the source fits.
            let sat = if fits(from, to) { "" } else { "{,.sat}" };
            t.line(
                "convert_integer",
                &format!("cvt{sat}.{to}.{from} d, a"),
                &format!("a:{from} -> d:{}", result(to)),
            );
        }
    }
}

fn fits(from: &str, to: &str) -> bool {
    let bits = |ty: &str| ty[1..].parse::<u32>().unwrap_or(0);
    match (from.starts_with('u'), to.starts_with('u')) {
        (true, true) | (false, false) => bits(to) >= bits(from),
        (true, false) => bits(to) > bits(from),
        (false, true) => false,
    }
}

fn float_and_integer(t: &mut Table) {
    for int in INTS {
        let out = result(int);
        for (float, ftz) in [("f32", "{,.ftz}"), ("f64", ""), ("f16", "")] {
            t.line(
                "convert_float",
                &format!("cvt{TO_INT}{ftz}.{int}.{float} d, a"),
                &format!("a:{float}/round -> d:{out}"),
            );
            t.line(
                "convert_float",
                &format!("cvt{TO_FLOAT}.{float}.{int} d, a"),
                &format!("a:{int} -> d:{float}"),
            );
        }
        t.line(
            "convert_float",
            &format!("cvt.rzi{{,.ftz}}.sat.{int}.f32 d, a"),
            &format!("a:f32/round -> d:{out}"),
        );
    }
    // ptxas 13.0 takes bf16 to and from no 8-bit integer.
    for int in &INTS[2..] {
        t.line(
            "convert_float",
            &format!("cvt{TO_INT}.{int}.bf16 d, a"),
            &format!("a:bf16/round -> d:{int}"),
        )
        .sm(90);
        t.line(
            "convert_float",
            &format!("cvt{TO_FLOAT}.bf16.{int} d, a"),
            &format!("a:{int} -> d:bf16"),
        )
        .sm(90);
    }
    t.line("convert_float", "cvt.rn.sat.f32.u32 d, a", "a:u32 -> d:f32");
}

fn floats(t: &mut Table) {
    let f = "convert_float";
    t.line(
        f,
        &format!("cvt{TO_INT}{{,.ftz}}{{,.sat}}.f32.f32 d, a"),
        "a:f32/round -> d:f32",
    );
    t.line(
        f,
        &format!("cvt{TO_INT}{{,.sat}}.f64.f64 d, a"),
        "a:f64/round -> d:f64",
    );
    t.line(
        f,
        &format!("cvt{TO_INT}.f16.f16 d, a"),
        "a:f16/round -> d:f16",
    );
    t.line(f, "cvt{,.ftz}{,.sat}.f32.f32 d, a", "a:f32 -> d:f32");
    t.line(f, "cvt{,.sat}.f64.f64 d, a", "a:f64 -> d:f64");
    t.line(
        f,
        &format!("cvt{TO_FLOAT}{{,.ftz}}{{,.sat}}.f32.f64 d, a"),
        "a:f64/narrow -> d:f32",
    );
    t.line(f, "cvt{,.ftz}{,.sat}.f64.f32 d, a", "a:f32 -> d:f64");
    t.line(
        f,
        &format!("cvt{TO_FLOAT}{{,.ftz}}{{,.sat}}.f16.f32 d, a"),
        "a:f32/narrow -> d:f16",
    );
    t.line(
        f,
        &format!("cvt{TO_FLOAT}.f16.f64 d, a"),
        "a:f64/narrow -> d:f16",
    );
    t.line(f, "cvt{,.ftz}{,.sat}.f32.f16 d, a", "a:f16 -> d:f32");
    t.line(f, "cvt.f64.f16 d, a", "a:f16 -> d:f64");
}

fn brain_and_tensor(t: &mut Table) {
    let f = "convert_half";
    t.line(
        f,
        "cvt{.rn,.rz}{,.relu}.bf16.f32 d, a",
        "a:f32/narrow -> d:bf16",
    )
    .sm(80);
    t.line(
        f,
        "cvt{.rn,.rz}{,.relu}.f16.f32 d, a",
        "a:f32/narrow -> d:f16",
    )
    .sm(80);
    t.line(f, "cvt{.rm,.rp}.bf16.f32 d, a", "a:f32/narrow -> d:bf16")
        .sm(90);
    t.line(f, "cvt{,.ftz}.f32.bf16 d, a", "a:bf16 -> d:f32")
        .sm(90);
    t.line(f, "cvt{.rn,.rz}.bf16.f64 d, a", "a:f64/narrow -> d:bf16")
        .sm(90);
    t.line(f, "cvt.f64.bf16 d, a", "a:bf16 -> d:f64").sm(90);
    t.line(f, "cvt{.rn,.rz}.bf16.f16 d, a", "a:f16 -> d:bf16")
        .sm(90);
    t.line(f, "cvt{.rn,.rz}.f16.bf16 d, a", "a:bf16 -> d:f16")
        .sm(90);
    t.line(
        f,
        &format!("cvt{TO_INT}.bf16.bf16 d, a"),
        "a:bf16/round -> d:bf16",
    )
    .sm(90);
    t.line(f, "cvt.rna.tf32.f32 d, a", "a:f32/narrow -> d:b32")
        .sm(80);
    t.line(
        f,
        "cvt{.rn,.rz}{,.relu}.tf32.f32 d, a",
        "a:f32/narrow -> d:b32",
    )
    .sm(90);
    t.line(
        f,
        "cvt.rna.satfinite.tf32.f32 d, a",
        "a:f32/narrow -> d:b32",
    )
    .sm(89)
    .isa(8, 1);
}

fn packed(t: &mut Table) {
    let f = "convert_half";
    for to in ["f16x2", "bf16x2"] {
        t.line(
            f,
            &format!("cvt{{.rn,.rz}}{{,.relu}}.{to}.f32 d, a, b"),
            &format!("a:f32/narrow b:f32/narrow -> d:{to}"),
        )
        .sm(80);
    }
    t.line(
        "convert_integer",
        "cvt.pack.sat.{u16,s16}.s32 d, a, b",
        "a:s32 b:s32 -> d:b32",
    );
    t.line(
        "convert_integer",
        "cvt.pack.sat.{u8,s8,u4,s4,u2,s2}.s32.b32 d, a, b, c",
        "a:s32 b:s32 c:b32 -> d:b32",
    );
}

fn eight_bit(t: &mut Table) {
    let f = "convert_fp8";
    for to in ["e4m3x2", "e5m2x2"] {
        t.line(
            f,
            &format!("cvt.rn.satfinite{{,.relu}}.{to}.f32 d, a, b"),
            &format!("a:f32/narrow b:f32/narrow -> d:{to}"),
        )
        .sm(89)
        .isa(8, 1);
        t.line(
            f,
            &format!("cvt.rn.satfinite{{,.relu}}.{to}.f16x2 d, a"),
            &format!("a:f16x2 -> d:{to}"),
        )
        .sm(89)
        .isa(8, 1);
        t.line(
            f,
            &format!("cvt.rn{{,.relu}}.f16x2.{to} d, a"),
            &format!("a:{to} -> d:f16x2"),
        )
        .sm(89)
        .isa(8, 1);
    }
}

/// Conversions small enough to try on all of their inputs.
fn every_code(t: &mut Table) {
    let mut every = |body: &str, signature: &str, name: &str, sm: u32, isa: (u32, u32)| {
        t.line("exhaustive", body, signature)
            .named(&format!("{name}.every"))
            .inputs("every")
            .block(256)
            .sm(sm)
            .isa(isa.0, isa.1);
    };
    for (op, from, to) in [
        ("cvt.f32.f16", "f16", "f32"),
        ("cvt.f64.f16", "f16", "f64"),
        ("cvt.rni.s32.f16", "f16", "s32"),
        ("cvt.rzi.u64.f16", "f16", "u64"),
        ("cvt.rzi.s16.f16", "f16", "s16"),
        ("cvt.rni.f16.f16", "f16", "f16"),
        ("cvt.rn.f16.u16", "u16", "f16"),
        ("cvt.rn.f16.s16", "s16", "f16"),
        ("cvt.rz.f16.u16", "u16", "f16"),
        ("abs.f16", "f16", "f16"),
        ("neg.f16", "f16", "f16"),
    ] {
        every(
            &format!("{op} d, a"),
            &format!("a:{from} -> d:{to}"),
            op,
            75,
            (8, 0),
        );
    }
    for (op, from, to) in [
        ("cvt.f32.bf16", "bf16", "f32"),
        ("cvt.rn.f16.bf16", "bf16", "f16"),
        ("cvt.rn.bf16.f16", "f16", "bf16"),
        ("cvt.rni.s32.bf16", "bf16", "s32"),
        ("cvt.rn.bf16.s16", "s16", "bf16"),
    ] {
        every(
            &format!("{op} d, a"),
            &format!("a:{from} -> d:{to}"),
            op,
            90,
            (8, 0),
        );
    }
    for to in ["e4m3x2", "e5m2x2"] {
        every(
            &format!("cvt.rn.f16x2.{to} d, a"),
            &format!("a:{to} -> d:f16x2"),
            &format!("cvt.rn.f16x2.{to}"),
            89,
            (8, 1),
        );
        // Both halves of the pair hold the code.
        every(
            &format!("mov.b32 p, {{a, a}}; cvt.rn.satfinite.{to}.f16x2 d, p"),
            &format!("a:f16 -> d:{to} | p:b32"),
            &format!("cvt.rn.satfinite.{to}.f16x2"),
            89,
            (8, 1),
        );
        // The upper half of an f32: every bf16 code.
        every(
            &format!("mov.u16 z, 0; mov.b32 f, {{z, a}}; cvt.rn.satfinite.{to}.f32 d, f, f"),
            &format!("a:bf16 -> d:{to} | z:b16 f:f32"),
            &format!("cvt.rn.satfinite.{to}.f32"),
            89,
            (8, 1),
        );
    }
}
