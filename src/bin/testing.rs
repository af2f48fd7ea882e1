//! A green suite certifies a wrong kernel; a hardened suite rejects it.

use clap::Parser;
use kernelgate::exit::{self, Exit, UsageError};
use kernelgate::lessons::reduction::{self, BlockTree};
use kernelgate::lessons::testing;
use kernelgate::{out, outln};
use std::process::ExitCode;

/// Runs two test suites over two variants of one launch, drop-tail and guarded,
/// and exits 0 when every claim of the lesson holds.
#[derive(Parser)]
#[command(version, after_help = exit::HELP)]
struct Args {
    /// Print one JSON document instead of text.
    #[arg(long)]
    json: bool,

    /// Run both variants at this one size, on exact inputs, and stop.
    #[arg(long, value_name = "ELEMENTS", allow_negative_numbers = true)]
    n: Option<usize>,

    /// Expect the opposite of this claim, to see that it is able to fail: the run
    /// must then exit 1 with a line beginning GATE:
    #[arg(long, value_name = "CLAIM", conflicts_with = "n")]
    flip: Option<String>,

    /// Simulate the kernel on the host instead of running it on a device.
    #[arg(long)]
    stand_in: bool,
}

fn main() -> ExitCode {
    exit::program(
        |args: &Args| args.json,
        |args| {
            let mut tree = reduction::open(args.stand_in)?;
            match args.n {
                Some(n) => one_size(tree.as_mut(), n, args.json),
                None => lesson(tree.as_mut(), args),
            }
        },
    )
}

fn lesson(tree: &mut dyn BlockTree, args: &Args) -> anyhow::Result<Exit> {
    let mut report = testing::run(tree)?;
    if let Some(id) = &args.flip {
        report
            .flip(id)
            .map_err(|unknown| UsageError(unknown.to_string()))?;
    }
    if args.json {
        outln!("{}", serde_json::to_string_pretty(&report)?)?;
    } else {
        out!("{report}")?;
    }
    Ok(report.claims.exit())
}

fn one_size(tree: &mut dyn BlockTree, n: usize, json: bool) -> anyhow::Result<Exit> {
    let report = testing::at_size(tree, n)?;
    if json {
        outln!("{}", serde_json::to_string_pretty(&report)?)?;
    } else {
        out!("{report}")?;
    }
    Ok(report.claims.exit())
}
