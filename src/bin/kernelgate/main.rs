//! The tool `kernelgate`: one file a subcommand.

mod bench;
mod doctor;
mod driver_path;
mod evidence;
mod forms;
mod gemm;
mod given;
mod grade;
mod moe;
mod programs;
mod sanitize;

use std::process::ExitCode;

use clap::{Parser, Subcommand};
use kernelgate::exit;

/// Tests for GPU kernels that are able to fail.
#[derive(Parser)]
#[command(name = "kernelgate", version, after_help = exit::HELP)]
struct CommandLine {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    Sanitize(sanitize::Arguments),
    DriverPath(driver_path::Arguments),
    Doctor(doctor::Arguments),
    Gemm(gemm::Arguments),
    Bench(bench::Arguments),
    Moe(moe::Arguments),
    Grade(grade::Arguments),
    Forms(forms::Forms),
    Evidence(evidence::Arguments),
}

fn main() -> ExitCode {
    let words = sanitize::joined_xml(std::env::args_os());
    let arguments = match exit::arguments::<CommandLine>(words) {
        Ok(arguments) => arguments,
        Err(code) => return code,
    };
    match arguments.command {
        Command::Sanitize(arguments) => sanitize::main(&arguments),
        Command::Forms(arguments) => exit::run(|| forms::run(&arguments)),
        Command::DriverPath(arguments) => exit::run(|| driver_path::run(&arguments)),
        Command::Doctor(arguments) => {
            exit::run_reporting(arguments.json, || doctor::run(&arguments))
        }
        Command::Gemm(arguments) => exit::run_reporting(arguments.json(), || gemm::run(&arguments)),
        Command::Moe(arguments) => exit::run_reporting(arguments.json(), || moe::run(&arguments)),
        Command::Bench(arguments) => exit::run(|| bench::run(&arguments)),
        Command::Grade(arguments) => {
            exit::run_reporting(arguments.json(), || grade::run(&arguments))
        }
        Command::Evidence(arguments) => exit::run(|| evidence::run(&arguments)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_well_formed() {
        CommandLine::command().debug_assert();
    }

    /// What `--help` would leave blank.
    fn silent(command: &clap::Command, path: &str) -> Vec<String> {
        let path = format!("{path}{} ", command.get_name());
        let mut silent = Vec::new();
        if command.get_about().is_none() {
            silent.push(path.clone());
        }
        for argument in command.get_arguments().filter(|a| !a.is_hide_set()) {
            if argument.get_help().is_none() {
                silent.push(format!("{path}{}", argument.get_id()));
            }
        }
        for inner in command.get_subcommands().filter(|c| !c.is_hide_set()) {
            silent.extend(self::silent(inner, &path));
        }
        silent
    }

    #[test]
    fn every_command_and_every_flag_says_what_it_is_for() {
        let silent = silent(&CommandLine::command(), "");
        assert!(silent.is_empty(), "no help for: {silent:#?}");
    }
}
