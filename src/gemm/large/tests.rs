//! When a sampled check has a verdict.

use super::*;
use crate::gemm::gate::{Check, Finding};

fn judgement(findings: Vec<Finding>, compared: usize) -> Judgement {
    Judgement {
        findings,
        strength: String::new(),
        compared,
        worst: None,
        global: None,
    }
}

#[test]
fn a_sample_of_zeros_is_no_verdict_and_never_a_pass_but_a_finding_stays_one() {
    let bad = || vec![Finding::sentence(Check::Guards, "overwritten".into())];
    assert!(verdict(judgement(vec![], 9), 1).passed());
    let Outcome::Skipped { reason } = verdict(judgement(vec![], 9), 0) else {
        panic!("a sample of zeros was judged");
    };
    assert!(reason.contains("every reference looked at is zero"));
    assert!(verdict(judgement(bad(), 9), 0).failed());
    assert!(verdict(judgement(bad(), 9), 1).failed());
    assert!(verdict(judgement(vec![], 0), 0).failed());
}
