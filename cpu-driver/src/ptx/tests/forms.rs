//! The manual's odder forms, kept as they stand.

use super::HEAD;
use crate::ptx::ast::{InitValue, Linkage, Module, Operand, Statement};
use crate::ptx::parse;

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
    assert_eq!(
        found[3],
        Statement::Label {
            name: "$L1".into(),
            line: 4
        }
    );
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
