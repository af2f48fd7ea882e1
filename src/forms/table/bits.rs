//! Logic, shifts, counting, fields, byte permutation and small dot products.

use super::Table;

pub(super) fn lines(t: &mut Table) {
    logic(t);
    shifts(t);
    counting(t);
    fields(t);
    bytes(t);
}

fn logic(t: &mut Table) {
    for ty in ["b16", "b32", "b64"] {
        t.line(
            "bits",
            &format!("{{and,or,xor}}.{ty} d, a, b"),
            &format!("a:{ty} b:{ty} -> d:{ty}"),
        );
        t.line(
            "bits",
            &format!("{{not,cnot}}.{ty} d, a"),
            &format!("a:{ty} -> d:{ty}"),
        );
    }
    for op in ["and", "or", "xor"] {
        t.line(
            "bits",
            &format!(
                "setp.ne.u32 p, a, 0; setp.ne.u32 q, b, 0; {op}.pred r, p, q; selp.u32 d, 1, 0, r"
            ),
            "a:u32/bit b:u32/bit -> d:u32 | p:pred q:pred r:pred",
        )
        .named(&format!("{op}.pred"));
    }
    t.line(
        "bits",
        "setp.ne.u32 p, a, 0; not.pred q, p; selp.u32 d, 1, 0, q",
        "a:u32/bit -> d:u32 | p:pred q:pred",
    )
    .named("not.pred");
    for table in [
        "0x80", "0xfe", "0x96", "0xe8", "0xca", "0x1b", "0x00", "0xff", "0x2d",
    ] {
        t.line(
            "bits",
            &format!("lop3.b32 d, a, b, c, {table}"),
            "a:b32 b:b32 c:b32 -> d:b32",
        )
        .suffix(&format!(".{table}"));
    }
    for op in ["and", "or"] {
        t.line(
            "bits",
            &format!(
                "setp.ne.u32 q, e, 0; lop3.{op}.b32 d|p, a, b, c, 0x96, q; selp.u32 f, 1, 0, p"
            ),
            "a:b32 b:b32 c:b32 e:u32/bit -> d:b32 f:u32 | p:pred q:pred",
        )
        .named(&format!("lop3.{op}.b32"))
        .isa(8, 2);
    }
}

fn shifts(t: &mut Table) {
    for bits in ["16", "32", "64"] {
        t.line(
            "bits",
            &format!("shl.b{bits} d, a, b"),
            &format!("a:b{bits} b:u32/shift -> d:b{bits}"),
        );
        for kind in ["b", "u", "s"] {
            t.line(
                "bits",
                &format!("shr.{kind}{bits} d, a, b"),
                &format!("a:{kind}{bits} b:u32/shift -> d:{kind}{bits}"),
            );
        }
    }
    t.line(
        "bits",
        "shf.{l,r}.{clamp,wrap}.b32 d, a, b, c",
        "a:b32 b:b32 c:u32/shift -> d:b32",
    );
}

fn counting(t: &mut Table) {
    for ty in ["b32", "b64"] {
        t.line(
            "bits",
            &format!("{{popc,clz}}.{ty} d, a"),
            &format!("a:{ty} -> d:u32"),
        );
        t.line(
            "bits",
            &format!("brev.{ty} d, a"),
            &format!("a:{ty} -> d:{ty}"),
        );
    }
    for ty in ["u32", "s32", "u64", "s64"] {
        t.line(
            "bits",
            &format!("bfind{{,.shiftamt}}.{ty} d, a"),
            &format!("a:{ty} -> d:u32"),
        );
    }
    t.line(
        "bits",
        "fns.b32 d, a, b, c",
        "a:b32 b:u32/lane c:s32/small -> d:u32",
    );
}

fn fields(t: &mut Table) {
    for ty in ["u32", "s32", "u64", "s64"] {
        t.line(
            "bits",
            &format!("bfe.{ty} d, a, b, c"),
            &format!("a:{ty} b:u32/shift c:u32/shift -> d:{ty}"),
        );
    }
    for ty in ["b32", "b64"] {
        t.line(
            "bits",
            &format!("bfi.{ty} d, a, b, c, e"),
            &format!("a:{ty} b:{ty} c:u32/shift e:u32/shift -> d:{ty}"),
        );
    }
    t.line(
        "bits",
        "szext.{clamp,wrap}.{u32,s32} d, a, b",
        "a:b32 b:u32/shift -> d:b32",
    );
    t.line(
        "bits",
        "bmsk.{clamp,wrap}.b32 d, a, b",
        "a:u32/shift b:u32/shift -> d:b32",
    );
}

fn bytes(t: &mut Table) {
    t.line(
        "bits",
        "prmt.b32{,.f4e,.b4e,.rc8,.ecl,.ecr,.rc16} d, a, b, c",
        "a:b32/bytes b:b32/bytes c:b32 -> d:b32",
    );
    for a in ["u32", "s32"] {
        for b in ["u32", "s32"] {
            let d = if a == "u32" && b == "u32" {
                "u32"
            } else {
                "s32"
            };
            let sig = format!("a:b32 b:b32 c:{d} -> d:{d}");
            t.line("bits", &format!("dp4a.{a}.{b} d, a, b, c"), &sig);
            t.line("bits", &format!("dp2a.{{lo,hi}}.{a}.{b} d, a, b, c"), &sig);
        }
    }
}
