//! Each mistake beside a twin without it. What is refused here, ptxas 13.0
//! refuses; what is accepted, it accepts.

use super::check;
use crate::ptx::parse;

const REGISTERS: &str = ".reg .b32 %r<4>; .reg .pred %p<4>; .reg .f32 %f<4>; .reg .b64 %rd<4>;\n\
     .reg .b16 %h<4>; .reg .f64 %fd<4>; .reg .u32 %u<4>; .reg .s32 %s<4>; .reg .f16 %q<4>;\n\
     .reg .u16 %w<4>; .reg .u8 %b<4>; .reg .u64 %ud<4>;";

fn checked(text: &str) -> Result<(), String> {
    let text = format!(".version 8.0\n.target sm_75\n{text}");
    let module = parse(&text).unwrap_or_else(|error| panic!("{error}\n{text}"));
    check(&module).map_err(|error| error.to_string())
}

/// A kernel whose line 6 is `body`.
fn body(body: &str) -> Result<(), String> {
    checked(&format!(".entry k() {{ {REGISTERS}\n{body}\nret; }}"))
}

#[test]
fn undeclared_names_are_refused_with_their_line() {
    for (text, found) in [
        ("add.u32 %r1, %r2, %nope;", "`%nope`"),
        ("add.u32 %r1, %r2, %r4;", "`%r4`"),
        ("add.u32 %r1, %r2, %r01;", "`%r01`"),
        ("bra NOPE;", "expected a label, found `NOPE`"),
        ("@%p1 bra.uni NOPE;", "`NOPE`"),
        ("bra %r1;", "expected a label, found `%r1`, a .b32 register"),
        ("bra L9; { L9: ret; }", "`L9`"),
        ("ld.global.u32 %r1, [nope];", "`nope`"),
        ("mov.u64 %rd1, nope;", "`nope`"),
        ("mov.b64 {%r1, %r9}, %rd1;", "`%r9`"),
        ("@%p9 ret;", "`%p9`"),
        ("@%r1 ret;", "expected a .pred register"),
        ("call nope;", "`nope`"),
        ("call nope, (%r1);", "`nope`"),
        ("mov.u32 %r1, %wibble;", "`%wibble`"),
        ("mov.u32 %r1, %tid;", "`%tid`"),
        ("mov.u32 %r1, %envreg32;", "`%envreg32`"),
        ("frobnicate.x7 %r1, %nope;", "`%nope`"),
        ("t: .branchtargets NOPE;", "`NOPE`"),
        ("{ .reg .b32 x; } mov.b32 x, %r1;", "`x`"),
    ] {
        let error = body(text).expect_err(text);
        assert!(error.starts_with("line 6: "), "{text}: {error}");
        assert!(error.contains(found), "{text}: {error}");
    }
    for text in [
        "add.u32 %r1, %r2, %r3;",
        "{ bra L9; } L9: ret;",
        "bra L9; L9: ret;",
        "mov.u32 %r1, %tid.x; mov.u32 %r1, %envreg31; mov.u32 %r1, WARP_SZ;",
        "mov.u64 %rd1, %clock64; mov.u32 %r1, %reserved_smem_offset_1; mov.u64 %rd1, %pm3_64;",
        "frobnicate.x7 %r1, %r2;",
        "t: .branchtargets A, B; A: B: ret;",
        "{ .reg .b32 x1<5>; mov.b32 x14, %r1; }",
    ] {
        assert_eq!(body(text), Ok(()), "{text}");
    }
}

#[test]
fn names_declared_twice_in_one_scope_are_refused() {
    for (text, found) in [
        ("L1: L1: ret;", "`L1` is declared twice"),
        (".reg .b32 %r1;", "`%r1` is declared twice"),
        (".reg .b32 %r<2>;", "`%r0` is declared twice"),
        (".reg .b32 z3; .reg .b32 z<5>;", "`z3` is declared twice"),
        (".reg .b32 x; .reg .f32 x;", "`x` is declared twice"),
        (".param .b32 z; .param .b32 z;", "`z` is declared twice"),
        (".shared .b32 z; .local .b32 z;", "`z` is declared twice"),
        ("x: ret; .reg .b32 x;", "`x` is declared twice"),
    ] {
        let error = body(text).expect_err(text);
        assert!(error.contains(found), "{text}: {error}");
    }
    for text in [
        "{ .reg .b32 %r<4>; L1: bra L1; } { L1: bra L1; }",
        ".reg .b32 z5; .reg .b32 z<5>;",
    ] {
        assert_eq!(body(text), Ok(()), "{text}");
    }
    for (text, found) in [
        (".global .u32 x;\n.shared .u32 x;", "line 4: `x`"),
        (".entry k(.param .u32 a, .param .u32 a) { ret; }", "`a`"),
        (".global .u64 x = nowhere;", "`nowhere`"),
    ] {
        let error = checked(text).expect_err(text);
        assert!(error.contains(found), "{text}: {error}");
    }
    for text in [
        ".extern .global .u32 x;\n.global .u32 x;",
        ".extern .shared .b8 s[];\n.extern .shared .b8 s[];",
        ".func f();\n.func f() { ret; }",
        ".global .u64 x = y;\n.global .u64 y;",
    ] {
        assert_eq!(checked(text), Ok(()), "{text}");
    }
}

#[test]
fn registers_that_an_instruction_cannot_take_are_refused() {
    for text in [
        "add.u32 %f1, %f2, %f3;",
        "add.f32 %u1, %u2, %f3;",
        "add.u32 %h1, %r2, %r3;",
        "add.u32 %rd1, %r2, %r3;",
        "add.u32 %r1, %r2, %p1;",
        "add.u32 %r1, %b1, %r2;",
        "add.u32 %r1, %r2;",
        "add.u32 %r1, %r2, %r3, %r1;",
        "add.f16 %w1, %w2, %q1;",
        "and.b32 %r1, %f2, %h3;",
        "and.pred %p1, %r1, %p2;",
        "setp.eq.u32 %r1, %r2, %r3;",
        "setp.eq.u32 %p1|%r1, %r2, %r3;",
        "selp.f32 %u1, %f2, %r3, %p1;",
        "selp.b32 %r1, %r2, %r3, %r1;",
        "mov.u32 %f1, %r1;",
        "mov.f32 %u1, %f1;",
        "mov.u32 %r1, %rd1;",
        "mov.u64 %rd1, L9; L9: ret;",
        "mul.wide.u32 %r1, %r1, %r2;",
        "mad.wide.u32 %rd1, %r1, %r2, %r3;",
        "cvt.u32.u16 %f1, %r2;",
        "cvt.u32.u64 %r1, %r2;",
        "cvt.u16.u32 %r1, %h2;",
        "cvt.rn.f32.u32 %u1, %r2;",
        "cvt.rni.f64.f64 %fd1;",
        "cvt.f32.f16 %f1, %w1;",
        "ld.global.u32 %h1, [%rd1];",
        "ld.global.f32 %u1, [%rd1];",
        "ld.global.u32 %f1, [%rd1];",
        "ld.global.b32 %fd1, [%rd1];",
        "ld.global.u32 %r1, [%fd1];",
        "ld.global.v2.u32 {%r1, %h1}, [%rd1];",
        "ld.global.u32 %r1, %rd1;",
        "st.global.u32 [%rd1], %h1;",
        "shl.b32 %r1, %r2, %rd1;",
        "shf.l.wrap.b32 %r1, %r2, %r3, %f1;",
        "popc.b64 %rd1, %rd2;",
        "atom.global.add.u32 %r1, [%rd1], %f1;",
        "atom.global.add.u32 %rd1, [%rd1], %r1;",
        "fma.rn.f32 %f1, %f2, %f3, %fd1;",
        "div.rn.f32 %f1, %f2, %u1;",
        "lg2.approx.f32 %r1, %rd1;",
    ] {
        let error = body(text).expect_err(text);
        assert!(error.starts_with("line 6: `"), "{text}: {error}");
        assert!(error.contains("expected"), "{text}: {error}");
        assert!(error.contains("found"), "{text}: {error}");
    }
    for text in [
        "add.f32 %r1, %r2, %r3;",
        "add.s32 %u1, %s1, %u2;",
        "add.u32 %r1, %r2, -5;",
        "add.f16 %h1, %h2, %q1;",
        "and.b32 %f1, %f2, %f3;",
        "setp.eq.f32 %p1, %r2, %r3;",
        "setp.lt.and.s32 %p1|%p2, %r2, 5, !%p3;",
        "selp.b32 %f1, %f2, %r3, %p1;",
        "mov.b32 %f1, %r1;",
        "mov.b64 %rd1, {%r1, %r2};",
        "mul.wide.u32 %rd1, %r1, %r2;",
        "mad.wide.u32 %rd1, %r1, %r2, %rd3;",
        "cvt.u32.u16 %rd1, %h1;",
        "cvt.u32.u16 %r1, %r2;",
        "cvt.rn.f32.u32 %r1, %r2;",
        "cvt.rzi.u16.f32 %r1, %f1;",
        "cvt.f64.f32 %rd1, %f1;",
        "cvt.f32.f16 %f1, %r1;",
        "ld.global.u8 %rd1, [%rd1];",
        "ld.global.u32 %rd1, [%rd1];",
        "ld.global.f32 %r1, [%rd1];",
        "ld.shared.u32 %r1, [%r1];",
        "ld.global.v2.u32 {%r1, _}, [%rd1+8];",
        "st.global.u8 [%rd1], %r1;",
        "shl.b32 %f1, %r2, %s1;",
        "atom.global.add.f32 %f1, [%rd1], %r1;",
        "cvt.u64.u32 %rd1, %tid.x;",
        "cvt.pack.sat.s16.s32 %r1, %r2, %r3;",
        "ld.global.L2::cache_hint.u32 %r1, [%rd1], %rd2;",
        "st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.u32 [%r1], %r2, [%r3];",
        "red.async.relaxed.cluster.mbarrier::complete_tx::bytes.shared::cluster.inc.u32 [%r1], \
         %r2, [%r3];",
        "red.global.add.v2.f32 [%rd1], {%f1, %f2};",
        "lop3.or.b32 %r1|%p1, %r2, %r3, %r1, 0x3f, %p2;",
        "set.gt.u32.f32 %r1, %f1, %f2;",
    ] {
        assert_eq!(body(text), Ok(()), "{text}");
    }
}

#[test]
fn bounds_count_at_least_one() {
    for directive in [
        ".maxntid 0, 0, 0",
        ".maxntid 32, 0, 1",
        ".maxntid -1",
        ".maxntid 1, 2, 3, 4",
        ".maxntid",
        ".reqntid 0",
        ".minnctapersm 0",
        ".maxnreg 0",
    ] {
        let error = checked(&format!(".entry k() {directive} {{ ret; }}")).expect_err(directive);
        assert!(error.contains("k: expected"), "{directive}: {error}");
    }
    let text = ".entry k() .maxntid 2000 .minnctapersm 2 .maxnreg 32 .wibble 0 { ret; }";
    assert_eq!(checked(text), Ok(()));
}
