//! Integer arithmetic and carry chains.

use super::Table;

const INTS: [&str; 6] = ["u16", "s16", "u32", "s32", "u64", "s64"];
const WIDE: [(&str, &str); 4] = [
    ("u16", "u32"),
    ("s16", "s32"),
    ("u32", "u64"),
    ("s32", "s64"),
];

pub(super) fn lines(t: &mut Table) {
    plain(t);
    multiply(t);
    packed(t);
    carry(t);
}

fn plain(t: &mut Table) {
    for ty in INTS {
        let two = format!("a:{ty} b:{ty} -> d:{ty}");
        t.line(
            "integer",
            &format!("{{add,sub,min,max}}.{ty} d, a, b"),
            &two,
        );
        // Division by zero is unspecified in PTX, so no divisor is zero.
        let divide = format!("a:{ty} b:{ty}/nonzero -> d:{ty}");
        t.line("integer", &format!("{{div,rem}}.{ty} d, a, b"), &divide);
        t.line(
            "integer",
            &format!("sad.{ty} d, a, b, c"),
            &format!("a:{ty} b:{ty} c:{} -> d:{ty}", ty.replace('s', "u")),
        );
    }
    t.line(
        "integer",
        "{add,sub}.sat.s32 d, a, b",
        "a:s32 b:s32 -> d:s32",
    );
    for ty in ["s16", "s32", "s64"] {
        t.line(
            "integer",
            &format!("{{abs,neg}}.{ty} d, a"),
            &format!("a:{ty} -> d:{ty}"),
        );
    }
}

fn multiply(t: &mut Table) {
    for ty in INTS {
        let two = format!("a:{ty} b:{ty} -> d:{ty}");
        let three = format!("a:{ty} b:{ty} c:{ty} -> d:{ty}");
        t.line("integer", &format!("mul.{{lo,hi}}.{ty} d, a, b"), &two);
        t.line("integer", &format!("mad.{{lo,hi}}.{ty} d, a, b, c"), &three);
    }
    for (ty, wide) in WIDE {
        t.line(
            "integer",
            &format!("mul.wide.{ty} d, a, b"),
            &format!("a:{ty} b:{ty} -> d:{wide}"),
        );
        t.line(
            "integer",
            &format!("mad.wide.{ty} d, a, b, c"),
            &format!("a:{ty} b:{ty} c:{wide} -> d:{wide}"),
        );
    }
    t.line(
        "integer",
        "mad.hi.sat.s32 d, a, b, c",
        "a:s32 b:s32 c:s32 -> d:s32",
    );
    for ty in ["u32", "s32"] {
        t.line(
            "integer",
            &format!("mul24.{{lo,hi}}.{ty} d, a, b"),
            &format!("a:{ty} b:{ty} -> d:{ty}"),
        );
        t.line(
            "integer",
            &format!("mad24.{{lo,hi}}.{ty} d, a, b, c"),
            &format!("a:{ty} b:{ty} c:{ty} -> d:{ty}"),
        );
    }
    t.line(
        "integer",
        "mad24.hi.sat.s32 d, a, b, c",
        "a:s32 b:s32 c:s32 -> d:s32",
    );
}

/// Two 16-bit integers in a register, and the clamped minimum: sm_90.
fn packed(t: &mut Table) {
    t.line(
        "integer",
        "{add,min,max}.{u16x2,s16x2} d, a, b",
        "a:b32 b:b32 -> d:b32",
    )
    .sm(90);
    t.line(
        "integer",
        "{min,max}.relu.{s16x2,s32} d, a, b",
        "a:b32 b:b32 -> d:b32",
    )
    .sm(90);
}

/// Each chain is followed by `addc`/`subc` of zeros, so the carry is an output.
fn carry(t: &mut Table) {
    for ty in ["u32", "s32", "u64", "s64"] {
        let sig = format!("a:{ty} b:{ty} -> d:{ty} e:{ty}");
        t.line(
            "carry",
            &format!("add.cc.{ty} d, a, b; addc.{ty} e, 0, 0"),
            &sig,
        );
        t.line(
            "carry",
            &format!("sub.cc.{ty} d, a, b; subc.{ty} e, 0, 0"),
            &sig,
        );
        let three = format!("a:{ty} b:{ty} c:{ty} -> d:{ty} e:{ty}");
        t.line(
            "carry",
            &format!("mad.{{lo,hi}}.cc.{ty} d, a, b, c; addc.{ty} e, 0, 0"),
            &three,
        );
        let chain = format!("a:{ty} b:{ty} c:{ty} -> d:{ty} e:{ty} f:{ty}");
        t.line(
            "carry",
            &format!("add.cc.{ty} d, a, b; addc.cc.{ty} e, a, c; addc.{ty} f, b, c"),
            &chain,
        )
        .named(&format!("addc.cc.{ty}"));
        t.line(
            "carry",
            &format!("sub.cc.{ty} d, a, b; subc.cc.{ty} e, a, c; subc.{ty} f, b, c"),
            &chain,
        )
        .named(&format!("subc.cc.{ty}"));
        for half in ["lo", "hi"] {
            t.line(
                "carry",
                &format!(
                    "add.cc.{ty} d, a, b; madc.{half}.cc.{ty} e, a, b, c; madc.{half}.{ty} f, b, c, a"
                ),
                &chain,
            )
            .named(&format!("madc.{half}.cc.{ty}"));
        }
    }
    t.line(
        "carry",
        "mul.lo.u64 d, a, b; mul.hi.u64 e, a, b; mad.lo.cc.u64 d, c, b, d; madc.hi.u64 e, c, b, e",
        "a:u64 b:u64 c:u64 -> d:u64 e:u64",
    )
    .named("multiply_128");
}
