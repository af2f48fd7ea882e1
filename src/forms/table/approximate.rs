//! Functions that the PTX manual bounds but does not fix. No line allows more
//! than the manual, and less where chip and CPU driver were seen to be closer
//! (cpu-driver/README.md has what was seen).

use super::Table;

pub(super) fn lines(t: &mut Table) {
    let one = "a:f32 -> d:f32";
    // Manual: 2 ulp (ex2), 1 ulp (rcp, sqrt), 2^-22.9 (rsqrt).
    t.line(
        "approx",
        "ex2.approx{,.ftz}.f32 d, a",
        "a:f32/exponent -> d:f32",
    )
    .check("ulp 2");
    t.line("approx", "{rcp,rsqrt,sqrt}.approx{,.ftz}.f32 d, a", one)
        .check("ulp 1");
    // Manual: absolute 2^-22 near one, else relative 2^-22.
    t.line("approx", "lg2.approx{,.ftz}.f32 d, a", one)
        .check("ulp 1 abs 2.4e-7");
    // Manual: absolute 2^-20.5 in [-2 pi, 2 pi].
    t.line(
        "approx",
        "{sin,cos}.approx{,.ftz}.f32 d, a",
        "a:f32/angle -> d:f32",
    )
    .check("abs 6.7e-7");
    // Manual: relative 2^-11.
    t.line("approx", "tanh.approx.f32 d, a", one)
        .check("ulp 256");
    // Manual: 2 ulp for divisors in [2^-126, 2^126].
    t.line(
        "approx",
        "div.{approx,full}{,.ftz}.f32 d, a, b",
        "a:f32 b:f32/divisor -> d:f32",
    )
    .check("ulp 2");
    t.line(
        "approx",
        "{rcp,rsqrt}.approx.ftz.f64 d, a",
        "a:f64 -> d:f64",
    )
    .check("ulp 4294967296")
    .note("a table look-up: the low 32 bits are zero, about 20 bits are right");
    t.line("approx", "rsqrt.approx.f64 d, a", "a:f64 -> d:f64")
        .check("ulp 4");
    half(t);
}

fn half(t: &mut Table) {
    // Manual: relative 2^-9.9 (f16), 2^-7 (bf16).
    t.line("approx", "ex2.approx.f16 d, a", "a:f16 -> d:f16")
        .check("ulp 1");
    t.line("approx", "ex2.approx.f16x2 d, a", "a:f16x2 -> d:f16x2")
        .check("ulp 1");
    t.line("approx", "ex2.approx.ftz.bf16 d, a", "a:bf16 -> d:bf16")
        .sm(90)
        .check("ulp 1");
    t.line(
        "approx",
        "ex2.approx.ftz.bf16x2 d, a",
        "a:bf16x2 -> d:bf16x2",
    )
    .sm(90)
    .check("ulp 1");
    // Manual: absolute 2^-10.987 (f16), 2^-8 (bf16).
    t.line("approx", "tanh.approx.f16 d, a", "a:f16 -> d:f16")
        .check("ulp 1");
    t.line("approx", "tanh.approx.f16x2 d, a", "a:f16x2 -> d:f16x2")
        .check("ulp 1");
    t.line("approx", "tanh.approx.bf16 d, a", "a:bf16 -> d:bf16")
        .sm(90)
        .check("ulp 1");
    t.line("approx", "tanh.approx.bf16x2 d, a", "a:bf16x2 -> d:bf16x2")
        .sm(90)
        .check("ulp 1");
}
