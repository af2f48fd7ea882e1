//! Loads and stores: widths, vectors, cache operators, orders, state spaces.

use super::{Table, registers, vector};

pub(super) fn lines(t: &mut Table) {
    global_scalar(t);
    global_vector(t);
    shared(t);
    local_const_param(t);
    parameters(t);
    generic(t);
    ordering(t);
}

/// Loads read the case's own input again, stores write the case's own output.
fn global_scalar(t: &mut Table) {
    for ty in [
        "u8", "s8", "b8", "u16", "s16", "b16", "u32", "s32", "b32", "f32", "u64", "s64", "b64",
        "f64",
    ] {
        // A narrow load extends to the register's width.
        let out = match ty {
            "u8" | "s8" | "b8" | "u16" | "s16" | "b16" => "b32",
            other => other,
        };
        t.line(
            "memory",
            &format!("ld.global{{,.nc}}.{ty} d, [src]"),
            &format!("a:b64 -> d:{out}"),
        );
        let value = if out == "b32" { "b32" } else { out };
        t.line(
            "memory",
            &format!("mov.b64 d, 0; st.global.b64 [dst], d; st.global.{ty} [dst], a; ld.global.b64 d, [dst]"),
            &format!("a:{value} -> d:b64"),
        )
        .named(&format!("st.global.{ty}"));
    }
    t.line(
        "memory",
        "ld.global{.ca,.cg,.cs,.lu,.cv,.ca.nc,.cg.nc}.b32 d, [src+4]",
        "a:b64 -> d:b32",
    );
    t.line(
        "memory",
        "ld.global{.L1::evict_normal,.L1::evict_last,.L1::no_allocate,.L2::64B,.L2::128B,.nc.L2::256B}.b32 d, [src+4]",
        "a:b64 -> d:b32",
    )
    .sm(80);
    t.line(
        "memory",
        "ld.global.L1::evict_first.nc.b32 d, [src+4]",
        "a:b64 -> d:b32",
    )
    .sm(80);
    for op in [".wb", ".cg", ".cs", ".wt"] {
        t.line(
            "memory",
            &format!("st.global{op}.b32 [dst], a; ld.global.b32 d, [dst]"),
            "a:b32 -> d:b32",
        );
    }
    t.line("memory", "ldu.global.{b32,f32} d, [src]", "a:b32 -> d:b32");
    t.line(
        "memory",
        "prefetch.global.{L1,L2} [src]; ld.global.b32 d, [src]",
        "a:b32 -> d:b32",
    );
    t.line(
        "memory",
        "cvta.global.u64 e, src; ld.b32 d, [e]; cvta.global.u64 e, dst; st.b32 [e], d; ld.b32 d, [e]",
        "a:b32 -> d:b32 | e:b64",
    )
    .named("ld_st.generic.b32");
}

fn global_vector(t: &mut Table) {
    let types = [
        ("b8", 1),
        ("b16", 2),
        ("b32", 4),
        ("f32", 4),
        ("b64", 8),
        ("f64", 8),
        ("u8", 1),
        ("s16", 2),
        ("u32", 4),
        ("s32", 4),
        ("u64", 8),
    ];
    for (ty, bytes) in types {
        for count in [2, 4] {
            if bytes * count > 16 {
                continue;
            }
            let reg = match ty {
                "b8" | "u8" => "b16",
                "s16" => "b16",
                other => other,
            };
            let d = vector("d", count);
            t.line(
                "memory",
                &format!("ld.global{{,.nc}}.v{count}.{ty} {d}, [src]"),
                &format!("a:b64 b:b64 -> {}", registers("d", count, reg)),
            );
            t.line(
                "memory",
                &format!(
                    "mov.b64 x, 0; st.global.v2.b64 [dst], {{x, x}}; st.global.v{count}.{ty} [dst], {}; ld.global.v2.b64 {{x, y}}, [dst]",
                    vector("a", count)
                ),
                &format!("{} -> x:b64 y:b64", registers("a", count, reg)),
            )
            .named(&format!("st.global.v{count}.{ty}"));
        }
    }
    for ty in ["u32", "f32"] {
        t.line(
            "memory",
            &format!("ld.global.cs.v4.{ty} {{d0, d1, d2, d3}}, [src]"),
            &format!("a:b64 b:b64 -> {}", registers("d", 4, ty)),
        );
        t.line(
            "memory",
            &format!(
                "st.global.cs.v4.{ty} [dst], {{a0, a1, a2, a3}}; ld.global.v2.b64 {{x, y}}, [dst]"
            ),
            &format!("{} -> x:b64 y:b64", registers("a", 4, ty)),
        );
    }
    t.line(
        "memory",
        "ld.global.v4.b32 {d0, _, d2, _}, [src]",
        "a:b64 b:b64 -> d0:b32 d2:b32",
    )
    .named("ld.global.v4.b32.sink");
    t.line(
        "memory",
        ".reg .b128 e; ld.global.b128 e, [src]; mov.b128 {d0, d1}, e",
        "a:b64 b:b64 -> d0:b64 d1:b64",
    )
    .named("ld.global.b128")
    .isa(8, 3);
}

/// Writes the thread's cell, waits, reads the cell of another thread.
fn shared(t: &mut Table) {
    for (ty, bytes) in [
        ("u8", 1),
        ("s8", 1),
        ("b8", 1),
        ("u16", 2),
        ("s16", 2),
        ("b16", 2),
        ("u32", 4),
        ("s32", 4),
        ("b32", 4),
        ("f32", 4),
        ("u64", 8),
        ("s64", 8),
        ("b64", 8),
        ("f64", 8),
    ] {
        let reg = match ty {
            "u8" | "b8" | "s8" | "u16" | "s16" | "b16" => "b16",
            other => other,
        };
        t.line(
            "memory",
            &format!(
                ".shared .align 8 .b8 tile[{}]; mov.u32 base, tile; mad.lo.u32 at, tid, {bytes}, base; st.shared.{ty} [at], a; bar.sync 0; xor.b32 at, tid, 37; mad.lo.u32 at, at, {bytes}, base; ld.shared.{ty} d, [at]",
                64 * bytes
            ),
            &format!("a:{reg} -> d:{reg} | at:b32 base:b32"),
        )
        .named(&format!("ld_st.shared.{ty}"));
    }
    for (ty, count, bytes) in [
        ("b32", 2, 8),
        ("b32", 4, 16),
        ("f32", 4, 16),
        ("b64", 2, 16),
        ("b16", 4, 8),
        ("b8", 4, 4),
    ] {
        let reg = if ty == "b8" { "b16" } else { ty };
        t.line(
            "memory",
            &format!(
                ".shared .align 16 .b8 tile[{}]; mov.u32 base, tile; mad.lo.u32 at, tid, {bytes}, base; st.shared.v{count}.{ty} [at], {}; bar.sync 0; xor.b32 at, tid, 21; mad.lo.u32 at, at, {bytes}, base; ld.shared.v{count}.{ty} {}, [at]",
                64 * bytes,
                vector("a", count),
                vector("d", count)
            ),
            &format!("{} -> {} | at:b32 base:b32", registers("a", count, reg), registers("d", count, reg)),
        )
        .named(&format!("ld_st.shared.v{count}.{ty}"));
    }
    t.line(
        "memory",
        ".shared .align 8 .b8 tile[256]; mov.u64 at, tile; cvta.shared.u64 at, at; mad.wide.u32 at, tid, 4, at; st.b32 [at], a; ld.volatile.b32 d, [at]",
        "a:b32 -> d:b32 | at:b64",
    )
    .named("ld_st.generic.shared.b32");
}

fn local_const_param(t: &mut Table) {
    for ty in ["b8", "b16", "b32", "u32", "b64", "u64", "f32", "f64"] {
        let reg = if ty == "b8" { "b16" } else { ty };
        t.line(
            "memory",
            &format!(
                ".local .align 8 .b8 depot[32]; st.local.{ty} [depot+8], a; st.local.{ty} [depot+16], b; ld.local.{ty} d, [depot+8]; ld.local.{ty} e, [depot+16]"
            ),
            &format!("a:{reg} b:{reg} -> d:{reg} e:{reg}"),
        )
        .named(&format!("ld_st.local.{ty}"));
    }
    t.line(
        "memory",
        ".local .align 16 .b8 depot[64]; mov.u64 at, depot; cvta.local.u64 at, at; and.b32 k, a, 3; mad.wide.u32 at, k, 16, at; st.v4.b32 [at], {a, b, b, a}; ld.b32 d, [at+8]; ld.b32 e, [at]",
        "a:b32 b:b32 -> d:b32 e:b32 | at:b64 k:b32",
    )
    .named("ld_st.generic.local.b32");
    let table = ".const .align 8 .b8 bytes[16] = {0, 1, 127, 128, 255, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13};
.const .align 4 .f32 floats[4] = {1.5, 0f80000000, -2.25, 0f7F800000};
.const .align 8 .u64 words[4] = {0, 18446744073709551615, 81985529216486895, 1};
";
    for (ty, symbol, bytes, reg) in [
        ("u8", "bytes", 1, "b16"),
        ("s8", "bytes", 1, "b16"),
        ("f32", "floats", 4, "f32"),
        ("u64", "words", 8, "u64"),
    ] {
        t.line(
            "memory",
            &format!("and.b32 a, a, 3; mov.u64 at, {symbol}; mad.wide.u32 at, a, {bytes}, at; ld.const.{ty} d, [at]"),
            &format!("a:u32 -> d:{reg} | at:b64"),
        )
        .named(&format!("ld.const.{ty}"))
        .prelude(table);
    }
    t.line(
        "memory",
        "and.b32 a, a, 3; mov.u64 at, words; mad.wide.u32 at, a, 8, at; ld.global.u64 d, [at]; ld.global.u64 e, [link]; ld.u64 e, [e]",
        "a:u32 -> d:u64 e:u64 | at:b64",
    )
    .named("ld.global.initialised")
    .prelude(
        ".visible .global .align 8 .u64 words[4] = {0, 18446744073709551615, 81985529216486895, 1};
.visible .global .align 8 .u64 link = generic(words) + 16;
",
    );
}

/// The pointer to the inputs is put together from parts of its parameter.
fn parameters(t: &mut Table) {
    let mut part = |name: &str, load: &str, scratch: &str| {
        t.line(
            "memory",
            &format!(
                "{load}; cvta.to.global.u64 x, x; mad.wide.u32 x, i, 8, x; ld.global.b32 d, [x]"
            ),
            &format!("a:b32 -> d:b32 | x:u64 {scratch}"),
        )
        .named(name);
    };
    for ty in ["u32", "s32", "b32", "f32"] {
        part(
            &format!("ld.param.{ty}"),
            &format!("ld.param.{ty} l, [inputs]; ld.param.{ty} h, [inputs+4]; mov.b64 x, {{l, h}}"),
            &format!("l:{ty} h:{ty}"),
        );
    }
    for ty in ["u32", "f32", "b32"] {
        part(
            &format!("ld.param.v2.{ty}"),
            &format!("ld.param.v2.{ty} {{l, h}}, [inputs]; mov.b64 x, {{l, h}}"),
            &format!("l:{ty} h:{ty}"),
        );
    }
    for ty in ["b64", "s64", "f64"] {
        part(
            &format!("ld.param.{ty}"),
            &format!("ld.param.{ty} l, [inputs]; mov.b64 x, l"),
            &format!("l:{ty}"),
        );
    }
    let bytes: Vec<String> = (0..8)
        .map(|k| {
            format!(
                "ld.param.u8 h, [inputs+{k}]; cvt.u64.u16 y, h; shl.b64 y, y, {}; or.b64 x, x, y",
                8 * k
            )
        })
        .collect();
    part(
        "ld.param.u8",
        &format!("mov.u64 x, 0; {}", bytes.join("; ")),
        "y:u64 h:u16",
    );
    part(
        "ld.param.u16",
        "ld.param.u16 p, [inputs]; ld.param.u16 q, [inputs+2]; ld.param.u16 r, [inputs+4]; ld.param.u16 s, [inputs+6]; mov.b64 x, {p, q, r, s}",
        "p:u16 q:u16 r:u16 s:u16",
    );
    t.line(
        "memory",
        "mov.b64 x, inputs; cvta.param.u64 x, x; ld.u64 x, [x]; cvta.to.global.u64 x, x; mad.wide.u32 x, i, 8, x; ld.global.b32 d, [x]",
        "a:b32 -> d:b32 | x:u64",
    )
    .named("cvta.param.u64");
}

/// Each type through a generic address of global memory.
fn generic(t: &mut Table) {
    for ty in [
        "u8", "s8", "u16", "s16", "u32", "s32", "f32", "u64", "b64", "f64",
    ] {
        let out = match ty {
            "u8" | "s8" | "u16" | "s16" => "b32",
            other => other,
        };
        t.line(
            "memory",
            &format!("cvta.global.u64 e, src; ld.{ty} d, [e]"),
            &format!("a:b64 -> d:{out} | e:b64"),
        )
        .named(&format!("ld.{ty}"));
        t.line(
            "memory",
            &format!("mov.b64 d, 0; st.global.b64 [dst], d; cvta.global.u64 e, dst; st.{ty} [e], a; ld.global.b64 d, [dst]"),
            &format!("a:{out} -> d:b64 | e:b64"),
        )
        .named(&format!("st.{ty}"));
    }
}

fn ordering(t: &mut Table) {
    t.line(
        "memory",
        "ld.volatile.global.{b32,u32,f32} d, [src]",
        "a:b32 -> d:b32",
    );
    t.line(
        "memory",
        "ld.{relaxed,acquire}.{cta,gpu,sys}.global.b32 d, [src]",
        "a:b32 -> d:b32",
    );
    t.line(
        "memory",
        "ld.relaxed.gpu.global.u8 d, [src]",
        "a:b32 -> d:b32",
    );
    for op in [
        "volatile",
        "relaxed.cta",
        "relaxed.gpu",
        "relaxed.sys",
        "release.cta",
        "release.gpu",
        "release.sys",
    ] {
        t.line(
            "memory",
            &format!("st.{op}.global.b32 [dst], a; ld.global.b32 d, [dst]"),
            "a:b32 -> d:b32",
        );
    }
    t.line(
        "memory",
        "st.volatile.global.u32 [dst], a; ld.global.b32 d, [dst]",
        "a:b32 -> d:b32",
    );
    t.line(
        "memory",
        "ld.relaxed.gpu.global.v2.b32 {d0, d1}, [src]",
        "a:b64 -> d0:b32 d1:b32",
    );
    for fence in [
        "membar.cta",
        "membar.gl",
        "membar.sys",
        "fence.sc.cta",
        "fence.sc.gpu",
        "fence.sc.sys",
        "fence.acq_rel.cta",
        "fence.acq_rel.gpu",
        "fence.acq_rel.sys",
    ] {
        t.line(
            "memory",
            &format!("st.global.b32 [dst], a; {fence}; ld.global.b32 d, [dst]"),
            "a:b32 -> d:b32",
        )
        .named(fence);
    }
}
