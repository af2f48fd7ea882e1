//! f16 and bf16 arithmetic, single and packed.

use super::Table;

pub(super) fn lines(t: &mut Table) {
    for ty in ["f16", "f16x2"] {
        let one = format!("a:{ty} -> d:{ty}");
        let two = format!("a:{ty} b:{ty} -> d:{ty}");
        let three = format!("a:{ty} b:{ty} c:{ty} -> d:{ty}");
        t.line(
            "f16",
            &format!("{{add,sub,mul}}{{,.rn,.ftz,.sat,.ftz.sat}}.{ty} d, a, b"),
            &two,
        );
        t.line(
            "f16",
            &format!("fma.rn{{,.ftz}}{{,.sat}}.{ty} d, a, b, c"),
            &three,
        );
        t.line(
            "f16",
            &format!("fma.rn{{,.ftz}}.relu.{ty} d, a, b, c"),
            &three,
        )
        .sm(80);
        t.line(
            "f16",
            &format!("{{min,max}}{{,.ftz}}{{,.NaN}}.{ty} d, a, b"),
            &two,
        )
        .sm(80);
        t.line(
            "f16",
            &format!("{{min,max}}{{,.ftz}}{{,.NaN}}.xorsign.abs.{ty} d, a, b"),
            &two,
        )
        .sm(86);
        t.line("f16", &format!("{{abs,neg}}{{,.ftz}}.{ty} d, a"), &one);
    }
    for ty in ["bf16", "bf16x2"] {
        let one = format!("a:{ty} -> d:{ty}");
        let two = format!("a:{ty} b:{ty} -> d:{ty}");
        let three = format!("a:{ty} b:{ty} c:{ty} -> d:{ty}");
        t.line(
            "bf16",
            &format!("{{add,sub,mul}}{{,.rn}}.{ty} d, a, b"),
            &two,
        )
        .sm(90);
        t.line("bf16", &format!("fma.rn{{,.relu}}.{ty} d, a, b, c"), &three)
            .sm(80);
        t.line("bf16", &format!("{{min,max}}{{,.NaN}}.{ty} d, a, b"), &two)
            .sm(80);
        t.line(
            "bf16",
            &format!("{{min,max}}{{,.NaN}}.xorsign.abs.{ty} d, a, b"),
            &two,
        )
        .sm(86);
        t.line("bf16", &format!("{{abs,neg}}.{ty} d, a"), &one)
            .sm(80);
    }
}
