//! The GEMM kernels and the gate that judges them, on a device: NVIDIA's or the
//! CPU driver's. Performance has files of its own.

mod support;

use anyhow::{Context, Result, ensure};
use kernelgate::device::choice::Driver;
use kernelgate::device::{Device, DeviceError, LtError};
use kernelgate::gemm::case::Case;
use kernelgate::gemm::check::{Checker, Limits, Outcome, Strength, run_case};
use kernelgate::gemm::cublaslt::{CublasLt, pack_into, pad_into};
use kernelgate::gemm::faults::{CATALOGUE, Fault};
use kernelgate::gemm::gate::Check;
use kernelgate::gemm::inputs::Input;
use kernelgate::gemm::large::{self, Workshop};
use kernelgate::gemm::mma::Mma;
use kernelgate::gemm::operands::Operands;
use kernelgate::gemm::planted::Plant;
use kernelgate::gemm::problem::{Form, Problem, tensor_recipes};
use kernelgate::gemm::runner;
use kernelgate::gemm::shapes::{self, ladder};
use kernelgate::gemm::simt::Simt;
use kernelgate::gemm::subject::Subject;
use kernelgate::gemm::{
    named::named_cases,
    scoreboard::{Scoreboard, trials},
};
use kernelgate::kernels::GEMM_PACK;
use kernelgate::lowp::OutputType;
use std::process::ExitCode;
use support::{Need, case};

/// Multiply-adds of one ladder case here: an unoptimised build runs this, too. The
/// whole ladder is `kernelgate gemm check`.
const CAP: u128 = 1 << 16;

fn main() -> ExitCode {
    let device: Need = Device::open().map(|_| ()).map_err(|e| e.to_string());
    let cublaslt: Need = match (&device, Device::open()) {
        (Ok(()), Ok(open)) => CublasLt::open(&open, false)
            .map(|_| ())
            .map_err(|e| e.to_string()),
        (Err(reason), _) => Err(reason.clone()),
        (_, Err(error)) => Err(error.to_string()),
    };
    support::run(vec![
        case("simt_passes_the_small_ladder", &[&device], || {
            passes_the_ladder(|device| Ok(Box::new(Simt::load(device)?)))
        }),
        case("mma_passes_the_small_ladder", &[&device], || {
            passes_the_ladder(|device| Ok(Box::new(Mma::load(device)?)))
        }),
        case(
            "the_kernels_of_mma_for_large_problems_pass_on_whole_and_ragged_tiles",
            &[&device],
            large_mma_kernels_pass,
        ),
        case(
            "each_kind_of_fault_is_caught_and_its_twin_is_not",
            &[&device],
            each_kind_of_fault_is_caught,
        ),
        case(
            "a_failing_case_names_the_element_and_its_twin_passes",
            &[&device],
            a_failing_case_names_the_element,
        ),
        case(
            "a_printed_command_replays_its_failure_at_every_strength",
            &[&device],
            printed_commands_replay,
        ),
        case(
            "a_fault_that_the_device_cannot_run_is_skipped_with_its_reason_and_not_caught",
            &[&device],
            specimens_are_skipped_or_caught,
        ),
        case(
            "a_cubin_that_the_device_cannot_run_is_refused_with_the_reason",
            &[&device],
            foreign_cubin_is_refused,
        ),
        case(
            "scales_and_rows_are_padded_as_the_library_wants_them",
            &[&device],
            padding_is_right,
        ),
        case(
            "the_device_makes_the_same_operands_as_the_host",
            &[&device],
            same_operands_everywhere,
        ),
        case(
            "both_strengths_on_the_device_pass_simt_and_reject_faults",
            &[&device],
            judged_on_the_device,
        ),
        case(
            "the_full_check_on_the_device_agrees_with_the_host_element_by_element",
            &[&device],
            full_on_the_device_agrees,
        ),
        case(
            "an_order_that_follows_arrival_is_caught_wherever_sums_round",
            &[&device],
            arrival_is_caught,
        ),
        case(
            "stray_stores_are_found_on_the_device_and_named",
            &[&device],
            stray_stores_on_the_device,
        ),
        case(
            "cublaslt_passes_the_small_ladder",
            &[&device, &cublaslt],
            || passes_the_ladder(|device| Ok(Box::new(CublasLt::open(device, false)?))),
        ),
        case(
            "fast_accumulation_is_flagged_on_positive_inputs_and_promotion_passes",
            &[&device, &cublaslt],
            fast_accumulation_is_flagged,
        ),
    ])
}

type Load = fn(&Device) -> Result<Box<dyn Subject>>;

fn passes_the_ladder(load: Load) -> Result<()> {
    let device = Device::open()?;
    let subject = match load(&device) {
        Ok(subject) => subject,
        // An older device than the kernel is written for; the tool reports a skip.
        Err(error) if is_rejection(&error) => return Ok(()),
        Err(error) => return Err(error),
    };
    let mut passed = 0;
    for case in ladder(1, CAP) {
        match run_case(&device, subject.as_ref(), &case, &Limits::default())? {
            Outcome::Passed(_) => passed += 1,
            Outcome::Skipped { .. } => {}
            failed => anyhow::bail!(
                "{case}: {failed:#?}; {}",
                case.replay(subject.name(), Strength::Full)
            ),
        }
    }
    ensure!(passed >= 6, "only {passed} cases ran");
    Ok(())
}

/// Above the cap of the ladder here. The exact inputs find a wrong index anywhere, the
/// normal ones a wrong scale. `native` is what a device without unpacking runs.
fn large_mma_kernels_pass() -> Result<()> {
    type Load = fn(&Device) -> Result<Mma, DeviceError>;
    let device = Device::open()?;
    let loads: [(&str, Load); 2] = [("mmaFp8Widened", Mma::load), ("mmaFp8Large", Mma::native)];
    let whole = Problem::dense(128, 128, 256, OutputType::Bf16);
    let ragged = Problem::dense(97, 131, 400, OutputType::F16);
    for (kernel, load) in loads {
        let subject = match load(&device) {
            Ok(subject) => subject,
            Err(DeviceError::PtxRejected { .. }) => return Ok(()),
            Err(error) => return Err(error.into()),
        };
        let hopper = device.info().compute_capability.0 == 9;
        for (problem, input) in [
            (whole.clone(), Input::Integers),
            (ragged.clone(), Input::Integers),
            (ragged.clone().padded(3).accumulating(), Input::Normal),
            (ragged.clone().with_recipes(tensor_recipes()), Input::Normal),
        ] {
            let ran = subject.variant(&problem).kernel;
            ensure!(ran == kernel || !hopper, "{ran} instead of {kernel}");
            let case = Case::new("large", problem, input, 5);
            let outcome = run_case(&device, &subject, &case, &Limits::default())?;
            ensure!(
                matches!(outcome, Outcome::Passed(_)),
                "{kernel}, {case}: {outcome:#?}"
            );
        }
    }
    Ok(())
}

fn is_rejection(error: &anyhow::Error) -> bool {
    matches!(error.downcast_ref(), Some(DeviceError::PtxRejected { .. }))
}

/// One fault of each kind of check, on the smallest named case that shows it.
const KINDS: [(&str, &str); 8] = [
    ("last-k-dropped", "integers padded m=1"),
    ("scale-2-percent", "integers padded m=1"),
    ("store-past-n", "integers padded m=1"),
    ("one-nan", "integers padded m=1"),
    ("stale-output", "integers padded m=1"),
    ("masked-rows-written", "integers masked"),
    ("neighbour-weights", "integers contiguous"),
    ("missing-barrier", "integers contiguous"),
];

fn fault(name: &str) -> Result<&'static Fault> {
    CATALOGUE
        .iter()
        .find(|fault| fault.name == name)
        .with_context(|| format!("no fault {name}"))
}

fn each_kind_of_fault_is_caught() -> Result<()> {
    let device = Device::open()?;
    let mut board = Scoreboard::default();
    for (name, on) in KINDS {
        let mut cases = named_cases(1, false);
        cases.retain(|named| named.case.origin == on);
        ensure!(cases.len() == 1, "no case {on}");
        let (trials, skipped) = trials(&device, &[fault(name)?], &cases, |_| {})?;
        ensure!(skipped.is_empty(), "{skipped:?}");
        board.trials.extend(trials);
    }
    ensure!(
        board.trials.len() == KINDS.len(),
        "{} trials",
        board.trials.len()
    );
    ensure!(board.missed().is_empty(), "missed: {:?}", board.missed());
    Ok(())
}

fn a_failing_case_names_the_element() -> Result<()> {
    let device = Device::open()?;
    let plant = Plant::load(&device)?;
    let wrong = plant.fault(fault("last-k-dropped")?);
    let case = Case::new(
        "test",
        Problem::dense(3, 40, 129, OutputType::F32),
        Input::Normal,
        4,
    );
    let Outcome::Failed(judgement) = run_case(&device, &wrong, &case, &Limits::default())? else {
        anyhow::bail!("the planted fault passed");
    };
    let finding = &judgement.findings[0];
    ensure!(finding.place.is_some() && finding.got.is_some() && finding.want.is_some());
    // k = 129: the last k is all of k-group 1.
    ensure!(
        finding
            .message
            .contains("k-group 1 (k 128..129) were left out"),
        "{}",
        finding.message
    );

    // The twin passes under the command that replays the fault.
    let command = case.replay("simt", Strength::Full);
    ensure!(tool(&command)?.status.code() == Some(0), "{command}");
    Ok(())
}

fn tool(command: &str) -> Result<std::process::Output> {
    let words = command
        .strip_prefix("kernelgate ")
        .context("the command starts with the tool's name")?;
    Ok(std::process::Command::new(env!("CARGO_BIN_EXE_kernelgate"))
        .args(words.split_whitespace())
        .output()?)
}

/// The text after `label` of the line that has it.
fn printed<'t>(text: &'t str, label: &str) -> Option<&'t str> {
    text.lines()
        .find_map(|line| line.trim_start().strip_prefix(label))
}

/// For each check that can fail, and each place where it is made: what the tool prints
/// as `replay:` fails again by the same check, and so does what it prints as
/// `smallest:`.
fn printed_commands_replay() -> Result<()> {
    let padded = "--only 5,40,129 --pad 8 --input integers --output f32";
    let plain = "--only 5,40,129 --input normal --output f32";
    let masked = "--only 12,40,64 --masked 3,0,2 --max-rows 4 --input integers";
    let table = [
        ("store-past-n", padded, "untouched"),
        ("store-past-n", "--only 1,40,64 --input integers", "guards"),
        ("last-k-dropped", padded, "exact"),
        ("last-k-dropped", plain, "elementwise"),
        ("masked-rows-written", masked, "untouched"),
    ];
    for strength in ["full", "sampled", "device", "device-full"] {
        for (name, options, check) in table {
            // Shrinking takes up to sixty runs: once is enough.
            let shrink = if strength == "full" {
                ""
            } else {
                " --no-shrink"
            };
            let first = format!(
                "kernelgate gemm check --subject fault:{name} {options} --seed 3 \
                 --strength {strength}{shrink}"
            );
            let output = tool(&first)?;
            let text = String::from_utf8_lossy(&output.stdout).into_owned();
            let failed = format!("{check}: ");
            ensure!(
                output.status.code() == Some(1) && text.contains(&failed),
                "{first}: {text}"
            );
            let replay = printed(&text, "replay: ").with_context(|| text.clone())?;
            ensure!(
                replay.ends_with(&format!("--strength {strength}")),
                "{replay}"
            );
            for command in [Some(replay), printed(&text, "smallest: ")]
                .into_iter()
                .flatten()
            {
                let again = tool(command)?;
                let said = String::from_utf8_lossy(&again.stdout).into_owned();
                ensure!(again.status.code() == Some(1), "{command}: {said}");
                ensure!(
                    command != replay || said.contains(&failed),
                    "{command}: {said}"
                );
            }
        }
    }
    Ok(())
}

/// Specimens of Hopper and of the library: caught where they run; where they do not,
/// the reason is printed, nothing counts, and the exit code says that nothing ran.
fn specimens_are_skipped_or_caught() -> Result<()> {
    let device = Device::open()?;
    let plant = Plant::load(&device)?;
    for name in ["wgmma-unpromoted", "cublaslt-fast"] {
        let output = tool(&format!(
            "kernelgate gemm faults --fault {name} --no-alarms"
        ))?;
        let text = String::from_utf8_lossy(&output.stdout);
        match plant.unavailable(&device, fault(name)?)? {
            None => ensure!(output.status.code() == Some(0), "{text}"),
            Some(reason) => {
                ensure!(
                    output.status.code() == Some(3),
                    "{name}: {:?}",
                    output.status
                );
                ensure!(
                    text.contains(&format!("skipped {name}: {reason}")),
                    "{text}"
                );
                ensure!(printed(&text, &format!("{name} (")).is_none(), "{text}");
            }
        }
    }
    Ok(())
}

/// An ELF file without a section that any device could run: well formed, and the
/// driver's to refuse.
fn foreign_cubin_is_refused() -> Result<()> {
    let device = Device::open()?;
    let mut image = vec![0u8; 128];
    image[..6].copy_from_slice(b"\x7fELF\x02\x01");
    (image[0x28], image[0x3a], image[0x3c]) = (64, 64, 1);
    let file = tempfile::Builder::new().suffix(".cubin").tempfile()?;
    std::fs::write(file.path(), &image)?;
    match device.load_file(file.path()) {
        Err(error @ DeviceError::PtxRejected { .. }) => {
            let said = error.to_string();
            ensure!(said.contains("a cubin"), "{said}");
            ensure!(
                device.info().driver != Driver::Cpu || said.contains("give it the PTX"),
                "{said}"
            );
        }
        Err(other) => anyhow::bail!("not a refusal by the driver: {other}"),
        Ok(_) => anyhow::bail!("a cubin without code was loaded"),
    }
    std::fs::write(file.path(), "neither")?;
    let neither = device.load_file(file.path()).err().map(|e| e.to_string());
    ensure!(
        neither
            .as_ref()
            .is_some_and(|e| e.contains("expected PTX text or a cubin")),
        "{neither:?}"
    );
    ensure!(!device.is_lost());
    // The same door takes PTX.
    std::fs::write(file.path(), GEMM_PACK.ptx)?;
    device.load_file(file.path())?.kernel("padBytes")?;
    Ok(())
}

fn padding_is_right() -> Result<()> {
    let device = Device::open()?;
    let pack = device.load(&GEMM_PACK)?;
    // Five k-groups, three rows: rows of 2-D scales padded to eight k-groups, 1-D
    // scales k-group-major with m padded to eight.
    let scales: Vec<f32> = (1..=15).map(|i| i as f32).collect();
    let from = device.upload(&scales)?;
    let (padded, turned) = (device.poisoned::<f32>(24)?, device.poisoned::<f32>(40)?);
    let (at, into) = (from.address(), padded.address());
    pack_into(&pack, at, (3, 5), into, (3, 8), false)?;
    pack_into(&pack, at, (3, 5), turned.address(), (5, 8), true)?;
    let (padded, turned) = (padded.download()?, turned.download()?);
    for row in 0..8 {
        for group in 0..8 {
            let inside = row < 3 && group < 5;
            let want = if inside { scales[row * 5 + group] } else { 0.0 };
            if row < 3 {
                ensure!(padded[row * 8 + group] == want, "row {row}, group {group}");
            }
            if group < 5 {
                ensure!(turned[group * 8 + row] == want, "row {row}, group {group}");
            }
        }
    }
    let bytes: Vec<u8> = (1..=100).collect();
    let from = device.upload(&bytes)?;
    let longer = device.poisoned::<u8>(300)?;
    pad_into(&pack, from.address(), 100, longer.address(), 300)?;
    let longer = longer.download()?;
    ensure!(longer[..100] == bytes && longer[100..].iter().all(|&byte| byte == 0));
    Ok(())
}

fn fast_accumulation_is_flagged() -> Result<()> {
    let device = Device::open()?;
    let problem = Problem::dense(64, 128, 4096, OutputType::F32).with_recipes(tensor_recipes());
    let case = Case::new("test", problem, Input::Positive, 1);
    for (fast, name) in [(false, "promoted"), (true, "fast")] {
        let subject = match CublasLt::open(&device, fast) {
            Ok(subject) => subject,
            Err(error @ LtError::Absent(_)) => anyhow::bail!("{error}"),
            Err(error) => return Err(error.into()),
        };
        let outcome = run_case(&device, &subject, &case, &Limits::default())?;
        ensure!(outcome.passed() != fast, "{name}: {outcome:#?}");
        ensure!(outcome.failed() == fast, "{name}: {outcome:#?}");
    }
    Ok(())
}

/// Each input, recipe and form once: a case must mean the same wherever it is made.
fn same_operands_everywhere() -> Result<()> {
    let device = Device::open()?;
    let shop = Workshop::load(&device)?;
    let recipes = shapes::recipes();
    let forms = [
        Form::Dense,
        Form::Contiguous {
            rows: vec![3, 0, 2],
        },
        Form::Masked {
            max_rows: 4,
            rows: vec![1, 4],
        },
    ];
    for i in 0..recipes.len() {
        let input = Input::ALL[i % Input::ALL.len()];
        let problem = Problem::dense(5, 34, 147, OutputType::F32)
            .with_recipes(recipes[i])
            .with_form(forms[i % forms.len()].clone());
        let case = Case::new("test", problem.clone(), input, 3 + i as u64);
        let host = runner::images(&problem, &Operands::generate(&case)?);
        let made = large::images(&device, &shop, &case)?;
        for (which, (host, made)) in host.iter().zip(&made).enumerate() {
            ensure!(made.len() >= host.len());
            let differs = host.iter().zip(made).position(|(x, y)| x != y);
            ensure!(
                differs.is_none(),
                "{case}: image {which} differs at byte {differs:?}"
            );
        }
    }
    Ok(())
}

fn judged_on_the_device() -> Result<()> {
    let device = Device::open()?;
    let simt = Simt::load(&device)?;
    let plant = Plant::load(&device)?;
    let case = |input, output| Case::new("test", Problem::dense(19, 150, 140, output), input, 2);
    for strength in [Strength::Device, Strength::DeviceFull] {
        // One checker for all: memory stays from case to case.
        let checker = Checker::new(&device, at(strength));
        for (input, output) in [
            (Input::Integers, OutputType::F32),
            (Input::Integers, OutputType::Bf16),
            (Input::Positive, OutputType::F16),
        ] {
            let case = case(input, output);
            let outcome = checker.run(&simt, &case)?;
            ensure!(outcome.passed(), "{case}: {outcome:#?}");
            for name in ["last-k-dropped", "store-past-n", "one-nan", "zero-tile"] {
                let outcome = checker.run(&plant.fault(fault(name)?), &case)?;
                ensure!(outcome.failed(), "{name} on {case}: {outcome:#?}");
            }
        }
    }
    Ok(())
}

fn at(strength: Strength) -> Limits {
    Limits {
        strength,
        ..Limits::default()
    }
}

/// The same verdict, calc_diff and number of bad elements, from two references that
/// share nothing but the codes; every output type, C += and several groups.
fn full_on_the_device_agrees() -> Result<()> {
    let device = Device::open()?;
    let simt = Simt::load(&device)?;
    let plant = Plant::load(&device)?;
    let (host, on_device) = (
        Checker::new(&device, at(Strength::Full)),
        Checker::new(&device, at(Strength::DeviceFull)),
    );
    let dense = |output| Problem::dense(9, 70, 200, output);
    let problems = [
        dense(OutputType::F32),
        dense(OutputType::F16).accumulating(),
        dense(OutputType::Bf16).padded(3),
        dense(OutputType::F32).with_form(Form::Masked {
            max_rows: 6,
            rows: vec![6, 0, 2],
        }),
        dense(OutputType::Bf16).with_recipes(tensor_recipes()),
    ];
    let faults = ["sparse-zeros", "scale-2-percent", "output-truncated"];
    for (i, problem) in problems.into_iter().enumerate() {
        let input = [Input::Normal, Input::Positive][i % 2];
        let case = Case::new("test", problem, input, 40 + i as u64);
        let mut subjects: Vec<Box<dyn Subject + '_>> = vec![];
        for name in faults {
            subjects.push(Box::new(plant.fault(fault(name)?)));
        }
        let all = std::iter::once(&simt as &dyn Subject).chain(subjects.iter().map(|s| &**s));
        for subject in all {
            let what = format!("{} on {case}", subject.name());
            let (here, there) = (host.run(subject, &case)?, on_device.run(subject, &case)?);
            ensure!(here.word() == there.word(), "{what}: {here:#?} {there:#?}");
            let judged = |outcome| match outcome {
                Outcome::Passed(judgement) | Outcome::Failed(judgement) => Ok(judgement),
                other => Err(anyhow::anyhow!("{what}: {other:?}")),
            };
            let (here, there) = (judged(here)?, judged(there)?);
            ensure!(here.compared == there.compared, "{what}");
            let calc = |global: Option<(f64, f64)>| global.context("no calc_diff").map(|g| g.0);
            let (x, y) = (calc(here.global)?, calc(there.global)?);
            ensure!((x - y).abs() <= 1e-9 * x.abs() + 1e-15, "{what}: {x} {y}");
            let place = |worst: &Option<kernelgate::gemm::gate::Worst>| {
                worst.as_ref().map(|w| (w.got.to_bits(), w.ratio > 1.0))
            };
            // The worst element may differ where the bounds do; whether it is outside
            // may not.
            ensure!(
                place(&here.worst).map(|p| p.1) == place(&there.worst).map(|p| p.1),
                "{what}: {:?} {:?}",
                here.worst,
                there.worst
            );
            ensure!(there.strength.starts_with("full, FP64 on the device"));
        }
    }
    Ok(())
}

/// 21 blocks and three k-groups: without a call in between, a second run on a device
/// that runs blocks in order starts where the first did.
fn arrival_is_caught() -> Result<()> {
    let device = Device::open()?;
    let plant = Plant::load(&device)?;
    let wrong = plant.fault(fault("order-by-arrival")?);
    for strength in [Strength::Full, Strength::Device] {
        let checker = Checker::new(&device, at(strength));
        for (m, n, k) in [(70, 200, 328), (64, 256, 512), (33, 40, 256), (5, 24, 1024)] {
            let problem = Problem::dense(m, n, k, OutputType::F32);
            for input in [Input::Normal, Input::Positive] {
                let case = Case::new("test", problem.clone(), input, 5);
                let Outcome::Failed(judgement) = checker.run(&wrong, &case)? else {
                    anyhow::bail!("{case} at {strength:?}: not caught");
                };
                let checks: Vec<Check> = judgement.findings.iter().map(|f| f.check).collect();
                ensure!(checks == [Check::Rerun], "{case}: {checks:?}");
            }
        }
    }
    Ok(())
}

/// Padding, masked rows and guard bands, at the strength that samples C: none of
/// these can be seen in the elements that count.
fn stray_stores_on_the_device() -> Result<()> {
    let device = Device::open()?;
    let simt = Simt::load(&device)?;
    let plant = Plant::load(&device)?;
    let checker = Checker::new(&device, at(Strength::Device));
    let masked = Form::Masked {
        max_rows: 7,
        rows: vec![5, 0, 7],
    };
    let padded = Problem::dense(6, 40, 64, OutputType::F32).padded(8);
    let one_row = Problem::dense(1, 40, 64, OutputType::Bf16);
    let table = [
        (
            "store-past-n",
            padded,
            Check::Untouched,
            "padding after column n",
            6,
        ),
        (
            "store-past-n",
            one_row,
            Check::Guards,
            "0 bytes after it",
            1,
        ),
        (
            "masked-rows-written",
            Problem::dense(0, 40, 64, OutputType::Bf16).with_form(masked),
            Check::Untouched,
            "a masked row",
            2 * 40,
        ),
    ];
    for (name, problem, check, words, bad) in table {
        let case = Case::new("test", problem, Input::Integers, 3);
        let outcome = checker.run(&simt, &case)?;
        ensure!(outcome.passed(), "{case}: {outcome:#?}");
        let Outcome::Failed(judgement) = checker.run(&plant.fault(fault(name)?), &case)? else {
            anyhow::bail!("{name} passed {case}");
        };
        let found = judgement
            .findings
            .iter()
            .find(|finding| finding.check == check && finding.message.contains(words));
        let found = found.with_context(|| format!("{name} on {case}: {judgement:#?}"))?;
        ensure!(found.bad == bad, "{name}: {found:?}");
    }
    Ok(())
}
