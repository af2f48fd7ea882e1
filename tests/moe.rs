//! The mixture-of-experts layer on whatever device there is, ranks as threads.

use std::time::Duration;

use kernelgate::moe::case::{Case, cases};
use kernelgate::moe::check::{CaseReport, Options, run};
use kernelgate::moe::shape::{Layout, Shape};
use kernelgate::moe::threads;

const TIMEOUT: Duration = Duration::from_secs(120);

fn options() -> Options {
    Options {
        seed: 1,
        fault: None,
        single_rank: true,
        exact_work: 1 << 31,
        loss: None,
    }
}

fn report(ranks: usize, case: &Case, options: &Options) -> CaseReport {
    threads::run(ranks, TIMEOUT, |rank| Ok(run(rank, case, options)?.report))
        .unwrap_or_else(|error| panic!("{} on {ranks} ranks: {error:#}", case.name))
        .swap_remove(0)
}

/// The small layer with at least two experts a rank.
fn shape(ranks: usize) -> Shape {
    Shape::small((2 * ranks).max(8))
}

#[test]
fn a_layer_on_two_ranks_passes_in_both_layouts() {
    for layout in Layout::ALL {
        let case = cases(shape(2), layout, 2)[0];
        let report = report(2, &case, &options());
        assert!(report.passed(), "{report:#?}");
        assert!(report.rerun && report.single_rank == Some(true));
        assert!(report.looked.rows > 0 && report.looked.exact_gemms > 0);
    }
}
