//! What nvcc 13.0 writes: nothing is lost.

use super::TOUR;
use crate::ptx::ast::{FunctionKind, Loc, Statement};
use crate::ptx::parse;

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
        .filter(|f| f.kind == FunctionKind::Entry)
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
