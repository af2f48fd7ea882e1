//! The mixture-of-experts layer on whatever device there is, ranks as threads.

use std::time::Duration;

use kernelgate::exit::Exit;
use kernelgate::moe::case::{Case, cases, sweep};
use kernelgate::moe::check::{CaseReport, Options, run};
use kernelgate::moe::fault::Fault;
use kernelgate::moe::finding::Stage;
use kernelgate::moe::scoreboard::score;
use kernelgate::moe::shape::{Layout, Shape};
use kernelgate::moe::threads;

const TIMEOUT: Duration = Duration::from_secs(120);

fn options(seed: u64) -> Options {
    Options {
        seed,
        fault: None,
        single_rank: true,
        exact_work: 1 << 31,
        loss: None,
    }
}

/// Runs a case, and demands that it passed and that something was looked at.
fn passes(ranks: usize, case: &Case) {
    let report: CaseReport = threads::run(ranks, TIMEOUT, |rank| {
        Ok(run(rank, case, &options(1))?.report)
    })
    .unwrap_or_else(|error| panic!("{} on {ranks} ranks: {error:#}", case.name))
    .swap_remove(0);
    assert!(report.passed(), "{report:#?}");
    assert!(report.rerun && report.single_rank == Some(true));
    assert!(report.looked.rows > 0 && report.looked.exact_gemms > 0);
    assert_eq!(report.looked.sampled_gemms, 0);
}

/// The small layer with at least two experts a rank.
fn shape(ranks: usize) -> Shape {
    Shape::small((2 * ranks).max(8))
}

#[test]
fn every_case_passes_on_one_two_and_four_ranks() {
    let contiguous = &[Layout::Contiguous][..];
    for (ranks, layouts) in [(1, contiguous), (2, &[Layout::Masked]), (4, &Layout::ALL)] {
        for &layout in layouts {
            for case in cases(shape(ranks), layout, 3) {
                passes(ranks, &case);
            }
        }
    }
}

#[test]
fn eight_sixteen_and_sixty_four_ranks_give_the_bits_of_one() {
    for ranks in [8, 16, 64] {
        for layout in Layout::ALL {
            let all = cases(shape(ranks), layout, 2);
            let case = all.iter().find(|case| case.name == "zero-token-rank");
            passes(ranks, case.expect("the case is in the list"));
        }
    }
}

#[test]
fn ranks_that_own_no_expert_still_send_and_combine() {
    let few = Shape::small(8);
    passes(16, &cases(few, Layout::Contiguous, 2)[0]);
}

#[test]
fn swept_sizes_pass() {
    for (i, shape) in sweep(3, 6, 300, 8, 4).into_iter().enumerate() {
        let layout = Layout::ALL[i % 2];
        passes(2, &cases(shape, layout, 3)[0]);
    }
}

#[test]
fn every_planted_rank_fault_is_named_and_correct_layers_are_silent() {
    for (ranks, seed) in [(2, 1), (8, 2)] {
        let board = threads::run(ranks, TIMEOUT, |rank| {
            score(rank, shape(ranks), 3, &Layout::ALL, &options(seed))
        })
        .unwrap_or_else(|error| panic!("{ranks} ranks: {error:#}"))
        .swap_remove(0);
        assert_eq!(board.exit(), Exit::Held, "{board}");
        assert_eq!(board.false_alarms(), 0);
        assert_eq!(board.rows.len(), 2 * 9, "eight faults and one correct run");
    }
}

/// The check for shapes that are too large to compare element by element.
#[test]
fn the_sampled_strength_passes_a_correct_layer_and_names_permuted_experts() {
    let case = cases(shape(2), Layout::Contiguous, 3)[0];
    for fault in [None, Some((Fault::ExpertsPermuted, 1))] {
        let sampled = Options {
            exact_work: 0,
            fault,
            ..options(1)
        };
        let report = threads::run(2, TIMEOUT, |rank| Ok(run(rank, &case, &sampled)?.report))
            .unwrap()
            .swap_remove(0);
        assert!(report.looked.sampled_gemms > 0 && report.looked.exact_gemms == 0);
        let first = report.findings.first();
        assert_eq!(
            first.map(|f| (f.stage, f.rank)),
            fault.map(|_| (Stage::FirstGemm, 1)),
            "{report:#?}"
        );
    }
}

#[test]
fn a_rank_that_fails_ends_the_others_with_its_reason() {
    let case = cases(shape(2), Layout::Masked, 2)[0];
    let error = threads::run(2, TIMEOUT, |rank| {
        if rank.hub.rank() == 1 {
            anyhow::bail!("planted failure");
        }
        run(rank, &case, &options(1)).map(drop)
    })
    .unwrap_err();
    assert_eq!(format!("{error:#}"), "rank 1: planted failure");
}
