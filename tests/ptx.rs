//! The checked-in PTX is fresh, loads in the oldest supported driver, and still
//! has its bugs once it is machine code.
//!
//! Needs the two tools of `.ci/tools.txt`, in `.tools` or in the folder that
//! `KERNELGATE_TOOLS` names. The freshness case needs a build that used nvcc.

mod support;

use anyhow::{Context, ensure};
use kernelgate::kernels::{ADJACENT_DIFFERENCE, ALL, KernelModule, PTX_ORIGIN, SQUARE, WINDOW_SUM};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use support::{Need, case};

/// Devices the lessons promise: Turing (T4), Ampere, Ada, Hopper.
const DEVICES: [&str; 4] = ["sm_75", "sm_80", "sm_89", "sm_90"];

/// What the ptxas of CUDA 12.0 reads, and so do drivers from 525 on.
const OLDEST_ISA: (u32, u32) = (8, 0);

fn main() -> ExitCode {
    let ptxas = tool("nvidia/cuda_nvcc/bin/ptxas");
    let nvdisasm = tool("nvidia/cu13/bin/nvdisasm");
    let compiled = compiled_by_the_recorded_nvcc();
    let newest = ptxas_beside_nvcc();
    let mut cases = vec![
        case(
            "every_kernel_assembles_for_its_own_device",
            &[&newest],
            || ALL.iter().try_for_each(assemble_for_own_device),
        ),
        case("embedded_ptx_is_the_checked_in_ptx", &[&compiled], || {
            ALL.iter().try_for_each(is_checked_in)
        }),
        case(
            "lesson_kernels_assemble_with_the_oldest_ptxas",
            &[&ptxas],
            || DEVICES.iter().try_for_each(|d| assemble_all(d)),
        ),
        case(
            "the_oldest_ptxas_refuses_what_nvcc_writes_unlowered",
            &[&ptxas],
            refuses_newer_isa,
        ),
    ];
    for bug in BUGS {
        cases.push(case(bug.test, &[&ptxas, &nvdisasm], move || {
            ["sm_75", "sm_90"].iter().try_for_each(|d| bug.survives(d))
        }));
    }
    support::run(cases)
}

fn tools() -> PathBuf {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    match std::env::var_os("KERNELGATE_TOOLS") {
        Some(folder) => root.join(folder),
        None => root.join(".tools"),
    }
}

fn tool(path: &str) -> Need {
    let file = tools().join(path);
    match file.is_file() {
        true => Ok(()),
        false => Err(format!(
            "{} is not there; install it with: python3 -m pip install --target .tools -r .ci/tools.txt",
            file.display()
        )),
    }
}

fn run_tool(path: &str, arguments: &[&str]) -> anyhow::Result<String> {
    run(&tools().join(path), arguments)
}

fn run(file: &Path, arguments: &[&str]) -> anyhow::Result<String> {
    let shown = file.display();
    let output = Command::new(file)
        .args(arguments)
        .output()
        .with_context(|| format!("cannot start {shown}"))?;
    ensure!(
        output.status.success(),
        "{shown} {}: {}\n{}",
        arguments.join(" "),
        output.status,
        String::from_utf8_lossy(&output.stderr)
    );
    Ok(String::from_utf8(output.stdout)?)
}

// ---- freshness -------------------------------------------------------------

fn checked_in(module: &KernelModule) -> anyhow::Result<String> {
    let path = format!(
        "{}/kernels/ptx/{}.ptx",
        env!("CARGO_MANIFEST_DIR"),
        module.name
    );
    std::fs::read_to_string(&path).with_context(|| format!("cannot read {path}"))
}

/// Another release of nvcc writes other PTX: only the one that wrote the
/// checked-in files can say whether they are fresh to the byte.
fn compiled_by_the_recorded_nvcc() -> Need {
    let version = PTX_ORIGIN
        .strip_prefix("compiled by nvcc ")
        .ok_or_else(|| format!("this build took PTX that was {PTX_ORIGIN}"))?;
    let recorded = checked_in(&ALL[0]).map_err(|e| e.to_string())?;
    match recorded.contains(&format!(", V{version}\n")) {
        true => Ok(()),
        false => Err(format!(
            "this build used nvcc {version}; the checked-in PTX was made by another"
        )),
    }
}

fn is_checked_in(module: &KernelModule) -> anyhow::Result<()> {
    ensure!(
        checked_in(module)? == module.ptx,
        "kernels/ptx/{}.ptx is not what nvcc makes of kernels/{}.cu; \
         refresh it with: KERNELGATE_PTX=refresh cargo build --lib",
        module.name,
        module.name
    );
    Ok(())
}

// ---- assembling ------------------------------------------------------------

/// Assembles with the oldest ptxas.
fn assemble(ptx: &str, device: &str, cubin: &Path) -> anyhow::Result<()> {
    let oldest = tools().join("nvidia/cuda_nvcc/bin/ptxas");
    assemble_with(&oldest, ptx, device, cubin)
}

fn assemble_with(ptxas: &Path, ptx: &str, device: &str, cubin: &Path) -> anyhow::Result<()> {
    let source = cubin.with_extension("ptx");
    std::fs::write(&source, ptx)?;
    let (source, cubin) = (source.to_string_lossy(), cubin.to_string_lossy());
    let arch = format!("-arch={device}");
    run(ptxas, &[&arch, "-lineinfo", "-o", &cubin, &source])?;
    Ok(())
}

/// The ptxas of the toolkit that compiled this build's kernels. Like every ptxas
/// it refuses instructions that the declared ISA or target does not have.
fn newest_ptxas() -> Option<PathBuf> {
    let nvcc = option_env!("KERNELGATE_NVCC")?;
    Some(Path::new(nvcc).with_file_name("ptxas")).filter(|file| file.is_file())
}

fn ptxas_beside_nvcc() -> Need {
    newest_ptxas()
        .map(|_| ())
        .ok_or_else(|| "this build used no nvcc, so there is no ptxas beside it".to_owned())
}

/// Also for kernels that declare more than the oldest ptxas reads.
fn assemble_for_own_device(module: &KernelModule) -> anyhow::Result<()> {
    let ptxas = newest_ptxas().context("no ptxas")?;
    let folder = tempfile::tempdir()?;
    let cubin = folder.path().join("own.cubin");
    assemble_with(&ptxas, module.ptx, module.target, &cubin)
        .with_context(|| format!("{} as declared", module.name))
}

/// Every kernel that declares the oldest ISA, on a device that its target allows; one for
/// a single architecture (`sm_90a`) goes through its own device's assembler alone.
fn assemble_all(device: &str) -> anyhow::Result<()> {
    let folder = tempfile::tempdir()?;
    let mut assembled = 0;
    for module in ALL {
        let one_architecture = module.target.ends_with('a');
        if one_architecture
            || module.least_isa > OLDEST_ISA
            || number(module.target)? > number(device)?
        {
            continue;
        }
        assemble(
            module.ptx,
            device,
            &folder.path().join(format!("{}.cubin", module.name)),
        )
        .with_context(|| format!("{} for {device}", module.name))?;
        assembled += 1;
    }
    ensure!(
        assembled >= 4,
        "expected at least the four lesson kernels, assembled {assembled}"
    );
    Ok(())
}

fn number(device: &str) -> anyhow::Result<u32> {
    let digits: String = device.chars().filter(char::is_ascii_digit).collect();
    digits
        .parse()
        .with_context(|| format!("`{device}` is no device"))
}

fn refuses_newer_isa() -> anyhow::Result<()> {
    let folder = tempfile::tempdir()?;
    let newer = SQUARE.ptx.replace(".version 8.0", ".version 9.0");
    ensure!(newer != SQUARE.ptx, "square.ptx is not ISA 8.0");
    let refused = assemble(&newer, "sm_75", &folder.path().join("newer.cubin"));
    let message = format!("{:#}", refused.err().context("ISA 9.0 was accepted")?);
    ensure!(
        message.contains("version"),
        "refused for another reason: {message}"
    );
    Ok(())
}

// ---- machine code ----------------------------------------------------------

struct Instruction {
    predicated: bool,
    opcode: String,
    operands: String,
}

impl Instruction {
    fn is(&self, family: &str) -> bool {
        self.opcode.split('.').next() == Some(family)
    }
}

/// A deliberate bug, and how machine code that has it differs from its fix.
struct Bug {
    test: &'static str,
    module: KernelModule,
    broken: &'static str,
    fixed: &'static str,
    /// What `shows` looks for, for messages.
    sign: &'static str,
    shows: fn(&[Instruction]) -> bool,
}

const BUGS: [Bug; 3] = [
    Bug {
        test: "the_load_past_the_end_is_still_unguarded_in_machine_code",
        module: ADJACENT_DIFFERENCE,
        broken: "diffNextPastEnd",
        fixed: "diffNext",
        sign: "a global load without predicate, issued before the last comparison",
        shows: |code| {
            let load = code.iter().position(|i| i.is("LDG") && !i.predicated);
            let test = code.iter().rposition(|i| i.is("ISETP"));
            matches!((load, test), (Some(load), Some(test)) if load < test)
        },
    },
    Bug {
        test: "the_stray_store_still_follows_the_valid_one_in_machine_code",
        module: SQUARE,
        broken: "squarePastEnd",
        fixed: "squareGuarded",
        sign: "a global store, then a conditional exit or branch, then a second store",
        shows: |code| {
            let first = code.iter().position(|i| i.is("STG"));
            let last = code.iter().rposition(|i| i.is("STG"));
            let (Some(first), Some(last)) = (first, last) else {
                return false;
            };
            code[first..last]
                .iter()
                .any(|i| i.predicated && (i.is("EXIT") || i.is("BRA")))
        },
    },
    Bug {
        test: "the_staging_loop_still_runs_to_cell_258_in_machine_code",
        module: WINDOW_SUM,
        broken: "windowSumPastTile",
        fixed: "windowSum",
        sign: "shared stores in a loop bounded by 259 (0x103) cells",
        shows: |code| {
            let bound = |i: &Instruction| i.is("ISETP") && i.operands.contains(", 0x103,");
            code.iter().any(bound) && code.iter().any(|i| i.is("STS"))
        },
    },
];

impl Bug {
    /// Looks for the sign in the broken kernel and for its absence in the fix: a
    /// sign that both show would say nothing.
    fn survives(&self, device: &str) -> anyhow::Result<()> {
        let folder = tempfile::tempdir()?;
        let cubin = folder.path().join("module.cubin");
        assemble(self.module.ptx, device, &cubin)?;
        let sass = run_tool(
            "nvidia/cu13/bin/nvdisasm",
            &["-c", &cubin.to_string_lossy()],
        )?;
        for (kernel, expected) in [(self.broken, true), (self.fixed, false)] {
            let code = instructions(&sass, kernel);
            ensure!(!code.is_empty(), "no machine code of {kernel}:\n{sass}");
            ensure!(
                (self.shows)(&code) == expected,
                "{kernel} on {device}: expected {} `{}`, in:\n{sass}",
                if expected { "to find" } else { "not to find" },
                self.sign
            );
        }
        Ok(())
    }
}

/// The instructions of one kernel in nvdisasm's text, such as
/// `/*0120*/  @!P0 LDG.E.SYS R0, [R4.64+UR4] ;`
fn instructions(sass: &str, kernel: &str) -> Vec<Instruction> {
    let start = format!(".text.{kernel}:");
    sass.lines()
        .skip_while(|line| line.trim() != start)
        .skip(1)
        .take_while(|line| !line.starts_with(".text."))
        .filter_map(|line| {
            let (_, text) = line.trim().strip_prefix("/*")?.split_once("*/")?;
            let text = text.split(';').next()?.trim();
            let (predicated, text) = match text.strip_prefix('@') {
                Some(rest) => (true, rest.split_once(' ')?.1.trim()),
                None => (false, text),
            };
            let (opcode, operands) = text.split_once(' ').unwrap_or((text, ""));
            Some(Instruction {
                predicated,
                opcode: opcode.to_owned(),
                operands: operands.to_owned(),
            })
        })
        .collect()
}
