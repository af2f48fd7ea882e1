//! Malformed text: refused where it goes wrong, in words.

use super::HEAD;
use crate::ptx::{ErrorKind, parse};

#[test]
fn malformed_text_is_refused_where_it_goes_wrong() {
    let cases = [
        ("", 1, 1, "`.version`"),
        ("hello", 1, 1, "found `hello`"),
        (".version 8.0", 1, 13, "no `.target`"),
        (".version 8.0\n.target compute_75", 2, 9, "sm_75"),
        (
            ".version 8.0\n.target sm_75\n.address_size 32",
            3,
            15,
            "32-bit",
        ),
        (
            ".version 8.0\n.target sm_75\n.entry k() { ret;",
            3,
            18,
            "truncated",
        ),
        (
            ".version 8.0\n.target sm_75\n.entry k() { add.s32 %r1 %r2; }",
            3,
            26,
            "expected `;`",
        ),
        (
            ".version 8.0\n.target sm_75\n.entry k() { %r1; }",
            3,
            14,
            "instruction",
        ),
        (".version 8.0\n.target sm_75\n/* never", 3, 1, "never ends"),
        (
            ".version 8.0\n.target sm_75\n.file 1 \"x",
            3,
            9,
            "never ends",
        ),
        (
            ".version 8.0\n.target sm_75\n.global .u32 x[99999999999999999];",
            3,
            33,
            "address space",
        ),
        (
            ".version 8.0\n.target sm_75\n.global .u32 x[0xFFFFFFFFFFFFFFFFF];",
            3,
            16,
            "64-bit",
        ),
        (
            ".version 8.0\n.target sm_75\n.global .align 3 .u32 x;",
            3,
            16,
            "power of two",
        ),
        (".version 8.0\n.target sm_75\n.global x;", 3, 9, "a type"),
        (
            ".version 8.0\n.target sm_75\n.global .u32 x = 0f3F8;",
            3,
            19,
            "`;`",
        ),
        (
            ".version 8.0\n.target sm_75\n\u{e9}",
            3,
            1,
            "does not belong",
        ),
    ];
    for (text, line, column, words) in cases {
        let error = parse(text).expect_err(text);
        assert_eq!(
            (error.line, error.column),
            (line, column),
            "{text}: {error}"
        );
        assert!(error.message.contains(words), "{text}: {error}");
    }
}

#[test]
fn deep_nesting_is_an_error_and_not_a_stack_overflow() {
    for (open, what) in [("{", ".entry k() "), ("{", ".global .u32 x = ")] {
        let text = format!("{HEAD}{what}{}", open.repeat(200_000));
        let error = parse(&text).expect_err(what);
        assert!(error.message.contains("too deeply"), "{error}");
    }
    let text = format!("{HEAD}.entry k() {{ mov {} }}", "{".repeat(200_000));
    assert!(parse(&text).is_err());
}

#[test]
fn versions_and_targets_that_there_never_were_are_refused() {
    for (version, known) in [
        ("1.5", true),
        ("3.2", true),
        ("6.5", true),
        ("7.8", true),
        ("8.8", true),
        ("9.0", true),
        ("9.5", true),
        ("9.9", true),
        ("0.0", false),
        ("3.9", false),
        ("6.6", false),
        ("8.9", false),
        ("9.10", false),
        ("10.0", false),
        ("99.9", false),
    ] {
        let text = format!(".version {version}\n.target sm_75\n");
        match parse(&text) {
            Ok(_) => assert!(known, "{version}"),
            Err(error) => {
                assert!(!known, "{version}: {error}");
                assert_eq!(error.kind, ErrorKind::Version);
                assert!(
                    error.message.contains(&format!("found `{version}`")),
                    "{error}"
                );
            }
        }
    }
    for (target, known) in [("sm_75", true), ("sm_90a", true), ("sm_120f", true)]
        .into_iter()
        .chain([
            ("sm_77", false),
            ("sm_0", false),
            ("sm_99", false),
            ("sm_9", false),
        ])
    {
        let parsed = parse(&format!(".version 8.0\n.target {target}\n"));
        assert_eq!(parsed.is_ok(), known, "{target}");
    }
}
