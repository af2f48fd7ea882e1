//! The parser against real nvcc output, against the manual's odder forms, and
//! against damage.

use super::ast::{InitValue, Linkage, Loc, Module, Operand, Statement};
use super::parse;
use proptest::prelude::*;

/// nvcc 13.0 output for `tests/ptx/tour.cu`.
const TOUR: &str = include_str!("../../tests/ptx/tour_sm75.ptx");

const HEAD: &str = ".version 8.0\n.target sm_75\n.address_size 64\n";

fn module(rest: &str) -> Module {
    parse(&format!("{HEAD}{rest}")).unwrap_or_else(|error| panic!("{error}\n{rest}"))
}

fn body(text: &str) -> Vec<Statement> {
    let module = module(&format!(".entry k() {{ {text} }}"));
    module.functions[0].body.clone().expect("a body")
}

/// The operands of a single instruction.
fn operands(text: &str) -> Vec<Operand> {
    match body(text).remove(0) {
        Statement::Instruction(instruction) => instruction.operands,
        other => panic!("{other:?}"),
    }
}

fn name(text: &str) -> Operand {
    Operand::Name(text.to_owned())
}

fn count(body: &[Statement], matches: &dyn Fn(&Statement) -> bool) -> usize {
    let inner = |statement: &Statement| match statement {
        Statement::Block(block) => count(block, matches),
        other => usize::from(matches(other)),
    };
    body.iter().map(inner).sum()
}

#[test]
fn nvcc_output_parses_and_no_instruction_is_lost() {
    let module = parse(TOUR).expect("nvcc's output");
    assert_eq!(module.version, (9, 0));
    assert_eq!((module.target.sm, module.target.suffix), (75, None));
    assert_eq!(module.files.len(), 7);
    let entries = TOUR.matches(".visible .entry").count();
    let kernels = module
        .functions
        .iter()
        .filter(|f| f.kind == super::ast::FunctionKind::Entry)
        .count();
    assert_eq!(kernels, entries);
    let locs: usize = module
        .functions
        .iter()
        .filter_map(|f| f.body.as_deref())
        .map(|b| count(b, &|s| matches!(s, Statement::Loc(_))))
        .sum();
    assert_eq!(locs, TOUR.matches(".loc\t").count());
    let returns: usize = module
        .functions
        .iter()
        .filter_map(|f| f.body.as_deref())
        .map(|b| {
            count(
                b,
                &|s| matches!(s, Statement::Instruction(i) if i.opcode == "ret"),
            )
        })
        .sum();
    assert_eq!(returns, TOUR.matches("\tret;").count());
}

#[test]
fn every_inlined_frame_of_nvcc_output_has_its_name() {
    let module = parse(TOUR).expect("nvcc's output");
    fn frames(body: &[Statement], into: &mut Vec<String>) {
        for statement in body {
            match statement {
                Statement::Loc(Loc {
                    function: Some(label),
                    ..
                }) => into.push(label.clone()),
                Statement::Block(inner) => frames(inner, into),
                _ => {}
            }
        }
    }
    let mut labels = Vec::new();
    for function in &module.functions {
        frames(function.body.as_deref().unwrap_or(&[]), &mut labels);
    }
    assert!(!labels.is_empty());
    for label in labels {
        let found = module.debug_strings.iter().find(|(key, _)| *key == label);
        assert!(
            found.is_some_and(|(_, text)| text.starts_with("_Z")),
            "{label}"
        );
    }
    assert_eq!(module.debug_strings[0].1, "_Z13inlinedHelperf");
}

#[test]
fn initialisers_keep_symbols_offsets_masks_and_signs() {
    let symbol = |name: &str, offset, generic, mask| InitValue::Symbol {
        name: name.to_owned(),
        offset,
        generic,
        mask,
    };
    let cases: &[(&str, Vec<InitValue>)] = &[
        ("= -5", vec![InitValue::Int(-5)]),
        (
            "= 0xFFFFFFFFFFFFFFFF",
            vec![InitValue::Int(u64::MAX.into())],
        ),
        ("= 017", vec![InitValue::Int(15)]),
        ("= 0b101U", vec![InitValue::Int(5)]),
        ("= -0f3F800000", vec![InitValue::F32(0xBF80_0000)]),
        (
            "= 0d3FF0000000000000",
            vec![InitValue::F64(1.0_f64.to_bits())],
        ),
        ("= -2.5e-1", vec![InitValue::F64((-0.25_f64).to_bits())]),
        ("= foo", vec![symbol("foo", 0, false, None)]),
        ("= foo+8", vec![symbol("foo", 8, false, None)]),
        ("= generic(foo)+8", vec![symbol("foo", 8, true, None)]),
        ("= generic(foo+4)-8", vec![symbol("foo", -4, true, None)]),
        (
            "= 0xFF00(foo+1)",
            vec![symbol("foo", 1, false, Some(0xFF00))],
        ),
        (
            "= 0xFF(generic(foo))",
            vec![symbol("foo", 0, true, Some(0xFF))],
        ),
        (
            "[2][2] = {{1, 2}, {3}}",
            vec![InitValue::Int(1), InitValue::Int(2), InitValue::Int(3)],
        ),
    ];
    for (text, want) in cases {
        let module = module(&format!(".global .u64 x {text};"));
        assert_eq!(&module.variables[0].init, want, "{text}");
    }
}

#[test]
fn declarations_keep_linkage_space_alignment_and_extent() {
    let module = module(
        ".visible .global .align 4 .u32 x = 1, y;\n\
         .extern .shared .align 16 .b8 buf[];\n\
         .global .attribute(.managed) .align 8 .u64 m;\n\
         .common .global .v4 .f32 v;\n\
         .global .b8 text[] = {1, 2, 3};\n\
         .alias g, f;",
    );
    let [x, y, buf, m, v, text] = module.variables.as_slice() else {
        panic!("{:?}", module.variables)
    };
    assert_eq!(
        (x.linkage, x.init.len(), y.init.len()),
        (Linkage::Visible, 1, 0)
    );
    assert_eq!((buf.dims.as_slice(), buf.align), ([None].as_slice(), 16));
    assert!(m.managed && !v.managed);
    assert_eq!((v.vector, v.align, v.linkage), (4, 16, Linkage::Common));
    assert_eq!(text.dims, [Some(3)]);
    assert_eq!(module.aliases, [("g".to_owned(), "f".to_owned())]);
}

#[test]
fn a_pointer_attribute_does_not_change_the_parameters_alignment() {
    let module = module(
        ".entry k(.param .u64 .ptr .global .align 16 p, .param .align 16 .b8 s[32]) .maxntid 8, 4, 1 .reqntid 32 { ret; }",
    );
    let kernel = &module.functions[0];
    assert_eq!((kernel.params[0].align, kernel.params[1].align), (8, 16));
    assert_eq!(kernel.directives[0].values, [8, 4, 1]);
    assert_eq!(kernel.directives[1].name, "reqntid");
}

#[test]
fn operands_of_every_shape_are_told_apart() {
    let address = |base: Operand, offset, coordinates| Operand::Address {
        base: Box::new(base),
        offset,
        coordinates,
    };
    let cases: Vec<(&str, Vec<Operand>)> = vec![
        (
            "mov.u64 %rd1, %clock64;",
            vec![name("%rd1"), name("%clock64")],
        ),
        ("mov.u32 %r1, %tid.x;", vec![name("%r1"), name("%tid.x")]),
        (
            "ld.u32 %r1, [%rd1+-8];",
            vec![name("%r1"), address(name("%rd1"), -8, vec![])],
        ),
        (
            "ld.u32 _, [16];",
            vec![Operand::Sink, address(Operand::Int(16), 0, vec![])],
        ),
        (
            "mov.b64 {%r1, _}, %rd1;",
            vec![
                Operand::Vector(vec![name("%r1"), Operand::Sink]),
                name("%rd1"),
            ],
        ),
        (
            "shfl.sync.bfly.b32 %r1|%p1, %r2, -1, 0x1f, 0f3F800000;",
            vec![
                Operand::Pair(Box::new(name("%r1")), Box::new(name("%p1"))),
                name("%r2"),
                Operand::Int(-1),
                Operand::Int(31),
                Operand::F32(0x3F80_0000),
            ],
        ),
        (
            "add.s32 x, y, table+4;",
            vec![name("x"), name("y"), Operand::NameOffset("table".into(), 4)],
        ),
        (
            "selp.b32 a, b, c, !%p1;",
            vec![name("a"), name("b"), name("c"), Operand::Not("%p1".into())],
        ),
        (
            "cp.async.bulk.tensor.2d.shared::cluster.global [%r1], [%rd1, {%r2, %r3}], [%r4];",
            vec![
                address(name("%r1"), 0, vec![]),
                address(name("%rd1"), 0, vec![name("%r2"), name("%r3")]),
                address(name("%r4"), 0, vec![]),
            ],
        ),
        (
            "call (r), f, (a, b);",
            vec![
                Operand::List(vec![name("r")]),
                name("f"),
                Operand::List(vec![name("a"), name("b")]),
            ],
        ),
    ];
    for (text, want) in cases {
        assert_eq!(operands(text), want, "{text}");
    }
}

#[test]
fn unknown_instruction_words_are_kept_with_their_modifiers() {
    let Statement::Instruction(i) = body("@!%p1 frobnicate.shared::cta.x7 %r1;").remove(0) else {
        panic!()
    };
    assert_eq!(i.opcode, "frobnicate");
    assert_eq!(i.modifiers, ["shared::cta", "x7"]);
    assert!(i.guard.is_some_and(|guard| guard.negated));
    assert_eq!(i.line, 4);
}

#[test]
fn tables_prototypes_and_labels_bear_their_names() {
    let found = body(
        "$L_t: .branchtargets $L1, $L2; p : .callprototype (.param .b32 _) _ (.param .b64 _) .noreturn; \
         c: .calltargets f, g; $L1: { .reg .b32 %q<3>; } $L2: .pragma \"nounroll\"; ret;",
    );
    assert!(matches!(&found[0], Statement::BranchTargets { labels, .. } if labels.len() == 2));
    assert!(
        matches!(&found[1], Statement::CallPrototype { returns, params, .. }
        if returns.len() == 1 && params[0].name == "_")
    );
    assert!(matches!(&found[2], Statement::CallTargets { functions, .. } if functions[1] == "g"));
    assert_eq!(found[3], Statement::Label("$L1".into()));
    assert!(matches!(&found[4], Statement::Block(inner) if inner.len() == 1));
    assert_eq!(found[6], Statement::Pragma("nounroll".into()));
}

#[test]
fn a_loc_may_point_into_the_middle_of_a_debug_string() {
    let module = module(
        ".entry k() { .loc 1 2 3, function_name $L0+2, inlined_at 4 5 6\n ret; }\n\
         .section .debug_str\n{\n$L0:\n.b8 97,0,98\n.b8 99,0\n}\n.section .debug_abbrev { .b64 $L0+4 }",
    );
    let Some(Statement::Loc(loc)) = module.functions[0].body.as_ref().map(|b| &b[0]) else {
        panic!()
    };
    assert_eq!(loc.inlined_at, Some((4, 5, 6)));
    let key = loc.function.clone().expect("a name");
    assert!(module.debug_strings.contains(&(key, "bc".into())));
    assert!(module.debug_strings.contains(&("$L0".into(), "a".into())));
}

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
fn a_module_cut_anywhere_is_parsed_or_refused_without_panic() {
    let mut refused = 0;
    for end in (0..TOUR.len())
        .step_by(7)
        .filter(|&end| TOUR.is_char_boundary(end))
    {
        refused += usize::from(parse(&TOUR[..end]).is_err());
    }
    assert!(refused > 1000, "only {refused} cuts were refused");
}

/// Cuts, repeats and replaces pieces of real PTX.
fn damaged() -> impl Strategy<Value = String> {
    let edit = (0..TOUR.len(), 0..40_usize, 0..TOUR.len(), 0..3_u8);
    proptest::collection::vec(edit, 1..6).prop_map(|edits| {
        let mut bytes = TOUR.as_bytes().to_vec();
        for (at, length, from, how) in edits {
            let at = at.min(bytes.len());
            let end = (at + length).min(bytes.len());
            let from = from.min(bytes.len().saturating_sub(length));
            let piece = match how {
                0 => Vec::new(),
                1 => bytes[from..(from + length).min(bytes.len())].to_vec(),
                _ => bytes[at..end]
                    .iter()
                    .map(|b| b.wrapping_add(13) & 0x7f)
                    .collect(),
            };
            bytes.splice(at..end, piece);
        }
        String::from_utf8_lossy(&bytes).into_owned()
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn damaged_modules_never_panic(text in damaged()) {
        let _ = parse(&text);
    }

    #[test]
    fn arbitrary_bytes_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..400)) {
        let text = String::from_utf8_lossy(&bytes);
        let _ = parse(&text);
        let _ = parse(&format!("{HEAD}{text}"));
        let _ = parse(&format!("{HEAD}.entry k() {{{text}}}"));
    }

    #[test]
    fn token_soup_never_panics(words in proptest::collection::vec(0..SOUP.len(), 0..120)) {
        let text: String = words.iter().map(|&w| SOUP[w]).collect::<Vec<_>>().join(" ");
        let _ = parse(&format!("{HEAD}{text}"));
        let _ = parse(&format!("{HEAD}.entry k() {{{text}}}"));
    }
}

const SOUP: &[&str] = &[
    "{",
    "}",
    "(",
    ")",
    "[",
    "]",
    "<",
    ">",
    ",",
    ";",
    ":",
    "=",
    "+",
    "-",
    "|",
    "!",
    "@",
    "_",
    "%r1",
    "$L",
    "k",
    "generic",
    ".entry",
    ".func",
    ".reg",
    ".global",
    ".param",
    ".b32",
    ".align",
    ".v4",
    ".loc",
    ".file",
    ".section",
    ".debug_str",
    ".callprototype",
    ".branchtargets",
    ".pragma",
    ".attribute",
    ".ptr",
    ".maxntid",
    "function_name",
    "inlined_at",
    "1",
    "0xFFFFFFFFFFFFFFFF",
    "18446744073709551616",
    "0f3F800000",
    "1.5",
    "\"s\"",
    ".extern",
    ".alias",
    ".target",
    "sm_75",
];
