//! `kernelgate gemm`: check kernels, and prove the gate with planted faults.

mod check;
mod faults;
mod limits;
mod progress;
mod subjects;

use anyhow::Result;
use clap::{Args, Subcommand};
use kernelgate::exit::Exit;

/// Low-precision GEMM: sweep, reference, computed gate, planted faults
#[derive(Args)]
pub struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    Check(Box<check::Arguments>),
    Faults(faults::Arguments),
    Limits(limits::Arguments),
}

impl Arguments {
    pub fn json(&self) -> bool {
        match &self.command {
            Command::Check(arguments) => arguments.json,
            Command::Faults(arguments) => arguments.json,
            Command::Limits(arguments) => arguments.json,
        }
    }
}

pub fn run(arguments: &Arguments) -> Result<Exit> {
    match &arguments.command {
        Command::Check(arguments) => check::run(arguments),
        Command::Faults(arguments) => faults::run(arguments),
        Command::Limits(arguments) => limits::run(arguments),
    }
}
