//! f32 and f64 arithmetic that IEEE 754 (or the PTX manual) fixes to the bit.

use super::Table;

const CLASSES: &str = "{finite,infinite,number,notanumber,normal,subnormal}";

pub(super) fn lines(t: &mut Table) {
    arithmetic_f32(t);
    arithmetic_f64(t);
    selection(t);
}

fn arithmetic_f32(t: &mut Table) {
    let (one, two, three) = (
        "a:f32 -> d:f32",
        "a:f32 b:f32 -> d:f32",
        "a:f32 b:f32 c:f32 -> d:f32",
    );
    // Without a rounding modifier the compiler may contract; one alone it cannot.
    t.line("f32", "{add,sub,mul}.f32 d, a, b", two);
    t.line(
        "f32",
        "{add,sub,mul}{.rn,.rz,.rm,.rp}{,.ftz}{,.sat}.f32 d, a, b",
        two,
    );
    t.line(
        "f32",
        "{fma,mad}{.rn,.rz,.rm,.rp}{,.ftz}{,.sat}.f32 d, a, b, c",
        three,
    );
    t.line("f32", "div{.rn,.rz,.rm,.rp}{,.ftz}.f32 d, a, b", two);
    t.line("f32", "{rcp,sqrt}{.rn,.rz,.rm,.rp}{,.ftz}.f32 d, a", one);
}

fn arithmetic_f64(t: &mut Table) {
    let (one, two, three) = (
        "a:f64 -> d:f64",
        "a:f64 b:f64 -> d:f64",
        "a:f64 b:f64 c:f64 -> d:f64",
    );
    t.line("f64", "{add,sub,mul}{,.rn,.rz,.rm,.rp}.f64 d, a, b", two);
    t.line("f64", "{fma,mad}{.rn,.rz,.rm,.rp}.f64 d, a, b, c", three);
    t.line("f64", "div{.rn,.rz,.rm,.rp}.f64 d, a, b", two);
    t.line("f64", "{rcp,sqrt}{.rn,.rz,.rm,.rp}.f64 d, a", one);
}

fn selection(t: &mut Table) {
    t.line(
        "f32",
        "{min,max}{,.ftz}.f32 d, a, b",
        "a:f32 b:f32 -> d:f32",
    );
    t.line(
        "f32",
        "{min,max}{,.ftz}.NaN.f32 d, a, b",
        "a:f32 b:f32 -> d:f32",
    )
    .sm(80);
    t.line(
        "f32",
        "{min,max}{,.ftz}{,.NaN}.xorsign.abs.f32 d, a, b",
        "a:f32 b:f32 -> d:f32",
    )
    .sm(86);
    t.line("f32", "{abs,neg}{,.ftz}.f32 d, a", "a:f32 -> d:f32");
    t.line("f64", "{min,max}.f64 d, a, b", "a:f64 b:f64 -> d:f64");
    t.line("f64", "{abs,neg}.f64 d, a", "a:f64 -> d:f64");
    for (family, ty) in [("f32", "f32"), ("f64", "f64")] {
        t.line(
            family,
            &format!("copysign.{ty} d, a, b"),
            &format!("a:{ty} b:{ty} -> d:{ty}"),
        );
        t.line(
            family,
            &format!("testp.{CLASSES}.{ty} p, a; selp.u32 d, 1, 0, p"),
            &format!("a:{ty} -> d:u32 | p:pred"),
        );
    }
}
