//! Holds a run against a recording, and makes one of a run.

use super::compare::{Difference, compare};
use super::inputs;
use super::recording::{self, Entry, Recording};
use super::runner::{Outcome, Run};
use super::spec::Spec;
use anyhow::Result;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::path::{Path, PathBuf};

/// What became of one form.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    Pass,
    /// Wrong bits, with the first bad case in words.
    Differs(String),
    /// The device is older than the form asks for: nothing was compared.
    NeedsSm(u32),
    /// The driver does not have the form.
    Unsupported(String),
    /// Fault, time limit, or a form that could not be run.
    Broken(String),
    /// No recording, or one of another version of the form.
    NoRecording(String),
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Verdict::Pass => f.write_str("the recorded bits"),
            Verdict::Differs(how) => write!(f, "other bits: {how}"),
            Verdict::NeedsSm(sm) => write!(f, "needs sm_{sm}"),
            Verdict::Unsupported(why) => write!(f, "not supported: {why}"),
            Verdict::Broken(why) => write!(f, "did not run: {why}"),
            Verdict::NoRecording(why) => write!(f, "nothing to compare with: {why}"),
        }
    }
}

/// The labels that the families of `specs` have recordings of under `dir`.
pub fn labels(specs: &[Spec], dir: &Path) -> BTreeSet<String> {
    let families: BTreeSet<&str> = specs.iter().map(|s| s.family.as_str()).collect();
    let files = families
        .into_iter()
        .filter_map(|family| std::fs::read_dir(dir.join(family)).ok())
        .flat_map(|folder| folder.flatten().map(|entry| entry.path()));
    files
        .filter(|file| file.extension().is_some_and(|e| e == "rec"))
        .filter_map(|file| Some(file.file_stem()?.to_string_lossy().into_owned()))
        .collect()
}

/// One verdict a form, in the order of the forms.
pub fn verify(specs: &[Spec], run: &Run, dir: &Path, label: &str) -> Result<Vec<Verdict>> {
    let mut families: BTreeMap<String, Result<Recording>> = BTreeMap::new();
    let judge = |(spec, outcome): (&Spec, &Outcome)| {
        let family = families
            .entry(spec.family.clone())
            .or_insert_with_key(|f| Recording::load(&recording::path(dir, f, label)));
        match family {
            Ok(recording) => judge(spec, outcome, recording.entries.get(&spec.name)),
            Err(error) => Ok(Verdict::NoRecording(format!("{error:#}"))),
        }
    };
    specs.iter().zip(&run.outcomes).map(judge).collect()
}

/// Recorded forms whose file is gone: a form must not vanish unnoticed.
///
/// # Errors
/// A recording that cannot be read.
pub fn orphans(all: &[Spec], dir: &Path, label: &str) -> Result<Vec<String>> {
    let names: BTreeSet<String> = all.iter().map(Spec::id).collect();
    let families: BTreeSet<&str> = all.iter().map(|s| s.family.as_str()).collect();
    let mut orphans = Vec::new();
    for family in families {
        let path = recording::path(dir, family, label);
        if !path.exists() {
            continue;
        }
        let recorded = Recording::load(&path)?.entries;
        let ids = recorded.keys().map(|name| format!("{family}/{name}"));
        orphans.extend(ids.filter(|id| !names.contains(id)));
    }
    Ok(orphans)
}

/// Forms that the recordings of `families` hold and that `kept` lacks.
///
/// # Errors
/// A recording that cannot be read.
pub fn lost(
    families: &BTreeSet<&str>,
    kept: &[&Spec],
    dir: &Path,
    label: &str,
) -> Result<Vec<String>> {
    let kept: BTreeSet<String> = kept.iter().map(|spec| spec.id()).collect();
    let mut lost = Vec::new();
    for family in families {
        let path = recording::path(dir, family, label);
        if path.exists() {
            let recorded = Recording::load(&path)?.entries;
            let ids = recorded.keys().map(|name| format!("{family}/{name}"));
            lost.extend(ids.filter(|id| !kept.contains(id)));
        }
    }
    Ok(lost)
}

/// The device that each recording says it is of, by family.
///
/// # Errors
/// A recording that cannot be read.
pub fn devices(
    specs: &[Spec],
    dir: &Path,
    label: &str,
) -> Result<BTreeMap<String, Option<String>>> {
    let families: BTreeSet<&str> = specs.iter().map(|s| s.family.as_str()).collect();
    let mut devices = BTreeMap::new();
    for family in families {
        let path = recording::path(dir, family, label);
        if path.exists() {
            let head = Recording::load(&path)?.head;
            let device = head.iter().find_map(|line| line.strip_prefix("device: "));
            devices.insert(family.to_owned(), device.map(str::to_owned));
        }
    }
    Ok(devices)
}

fn judge(spec: &Spec, outcome: &Outcome, entry: Option<&Entry>) -> Result<Verdict> {
    let outputs = match outcome {
        Outcome::Ran(outputs) => outputs,
        Outcome::NeedsSm(sm) => return Ok(Verdict::NeedsSm(*sm)),
        Outcome::Unsupported(why) => return Ok(Verdict::Unsupported(why.clone())),
        Outcome::Fault(why) | Outcome::Error(why) => return Ok(Verdict::Broken(why.clone())),
        Outcome::TimedOut => return Ok(Verdict::Broken("no answer in time".into())),
    };
    let Some(want) = entry else {
        return Ok(Verdict::NoRecording(format!(
            "{} is not recorded",
            spec.id()
        )));
    };
    let got = Entry::new(spec, outputs);
    if (got.digest, got.cases) != (want.digest, want.cases) {
        return Ok(Verdict::NoRecording(
            "the recording is of other code or inputs; record again".into(),
        ));
    }
    if spec.inputs == inputs::Inputs::Every {
        return Ok(chunks(spec, outputs, &got.bytes, &want.bytes));
    }
    Ok(
        match compare(&spec.signature, spec.check, &got.bytes, &want.bytes) {
            Ok(None) => Verdict::Pass,
            Ok(Some(difference)) => Verdict::Differs(sentence(spec, &difference)),
            Err(error) => Verdict::Broken(format!("{error:#}")),
        },
    )
}

fn chunks(spec: &Spec, outputs: &[u8], got: &[u8], want: &[u8]) -> Verdict {
    let bad: Vec<usize> = (0..got.len().max(want.len()) / 4)
        .filter(|&k| got.get(4 * k..4 * k + 4) != want.get(4 * k..4 * k + 4))
        .collect();
    let Some(&first) = bad.first() else {
        return Verdict::Pass;
    };
    let low = first * recording::CHUNK;
    let width = spec.signature.packed_bytes();
    let example = super::compare::word(&outputs[low * width..(low + 1) * width]);
    Verdict::Differs(format!(
        "{} of {} chunks differ, first inputs {low:#06x} to {:#06x} (got {example:#x} for the first of them)",
        bad.len(),
        got.len() / 4,
        low + recording::CHUNK - 1,
    ))
}

/// The first bad case: inputs, got, want.
fn sentence(spec: &Spec, difference: &Difference) -> String {
    let cases = inputs::cases(&spec.name, &spec.signature, spec.inputs, spec.block);
    let inputs: Vec<String> = spec
        .signature
        .inputs
        .iter()
        .zip(&cases[difference.case])
        .map(|(operand, value)| {
            format!(
                "{}={value:0width$x}",
                operand.name,
                width = operand.ty.bytes() * 2
            )
        })
        .collect();
    let output = &spec.signature.outputs[difference.output];
    let width = output.ty.bytes() * 2;
    format!(
        "case {} of {} ({} differ): {}: {} got {:0width$x} want {:0width$x}",
        difference.case,
        cases.len(),
        difference.cases,
        inputs.join(" "),
        output.name,
        difference.got,
        difference.want,
    )
}

/// Writes one recording a family. Forms that did not run are left out and
/// named in the head; families are replaced whole, so record all of a family.
///
/// # Errors
/// Writing a file.
pub fn record(
    specs: &[Spec],
    run: &Run,
    dir: &Path,
    label: &str,
    head: &[String],
) -> Result<Vec<PathBuf>> {
    let mut families: BTreeMap<&str, Recording> = BTreeMap::new();
    for (spec, outcome) in specs.iter().zip(&run.outcomes) {
        let recording = families.entry(&spec.family).or_insert_with(|| Recording {
            head: head.to_vec(),
            entries: BTreeMap::new(),
        });
        match outcome {
            Outcome::Ran(outputs) => {
                let entry = Entry::new(spec, outputs);
                recording.entries.insert(spec.name.clone(), entry);
            }
            other => {
                let line = format!("not recorded: {}: {other:?}", spec.name);
                recording.head.push(line.replace(['\n', '\r'], " "));
            }
        }
    }
    let mut written = Vec::new();
    for (family, recording) in families {
        let path = recording::path(dir, family, label);
        recording.save(&path)?;
        written.push(path);
    }
    Ok(written)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::forms::worker::Hello;

    const FORM: &str = "// form       add.u32
// signature  a:u32 b:u32 -> d:u32
// inputs     random 64
// check      exact
// block      64
.version 8.0
.target sm_75
";

    /// A folder with one form, and a run in which every output byte is `fill`.
    fn set(name: &str, fill: u8) -> (PathBuf, Vec<Spec>, Run) {
        let dir = std::env::temp_dir().join(format!("kernelgate-{name}-{}", std::process::id()));
        let family = dir.join("integer");
        std::fs::create_dir_all(&family).expect("folder");
        std::fs::write(family.join("add.u32.ptx"), FORM).expect("form");
        let specs = crate::forms::spec::load_all(&dir).expect("forms");
        let device = Hello {
            name: "none".into(),
            sm: 90,
            banner: String::new(),
            driver: String::new(),
        };
        let outcomes = vec![Outcome::Ran(vec![fill; 64 * 4])];
        (dir, specs, Run { device, outcomes })
    }

    #[test]
    fn a_missing_recording_is_no_pass() {
        let (dir, specs, run) = set("missing", 1);
        let verdicts = verify(&specs, &run, &dir, "h200").expect("verdicts");
        assert!(
            matches!(verdicts[..], [Verdict::NoRecording(_)]),
            "{verdicts:?}"
        );
    }

    #[test]
    fn the_same_bits_pass_and_one_other_bit_differs() {
        let (dir, specs, run) = set("bits", 1);
        record(&specs, &run, &dir, "h200", &[]).expect("record");
        assert_eq!(
            verify(&specs, &run, &dir, "h200").expect("same"),
            [Verdict::Pass]
        );
        let mut bytes = vec![1; 64 * 4];
        bytes[7] = 0;
        let other = Run {
            outcomes: vec![Outcome::Ran(bytes)],
            ..run
        };
        let verdicts = verify(&specs, &other, &dir, "h200").expect("other");
        let [Verdict::Differs(why)] = &verdicts[..] else {
            panic!("{verdicts:?}")
        };
        assert!(why.contains("case 1 of 64 (1 differ)"), "{why}");
        assert!(why.contains("got 00010101 want 01010101"), "{why}");
    }

    #[test]
    fn a_recording_of_other_code_is_no_pass() {
        let (dir, specs, run) = set("stale", 1);
        record(&specs, &run, &dir, "h200", &[]).expect("record");
        let file = dir.join("integer/add.u32.ptx");
        std::fs::write(&file, format!("{FORM}.address_size 64\n")).expect("form");
        let changed = crate::forms::spec::load_all(&dir).expect("forms");
        let verdicts = verify(&changed, &run, &dir, "h200").expect("verdicts");
        assert!(
            matches!(verdicts[..], [Verdict::NoRecording(_)]),
            "{verdicts:?}"
        );
    }

    #[test]
    fn a_recording_of_fewer_forms_names_what_would_be_lost_and_whose_it_is() {
        let (dir, specs, run) = set("lost", 1);
        let families = BTreeSet::from(["integer"]);
        assert!(
            lost(&families, &[], &dir, "h200")
                .expect("none yet")
                .is_empty()
        );
        record(&specs, &run, &dir, "h200", &["device: X".into()]).expect("record");
        let all: Vec<&Spec> = specs.iter().collect();
        assert!(
            lost(&families, &all, &dir, "h200")
                .expect("same")
                .is_empty()
        );
        assert_eq!(
            lost(&families, &[], &dir, "h200").expect("fewer"),
            ["integer/add.u32"]
        );
        let devices = devices(&specs, &dir, "h200").expect("devices");
        assert_eq!(devices["integer"].as_deref(), Some("X"));
    }

    #[test]
    fn a_form_that_lost_its_file_is_named() {
        let (dir, specs, run) = set("orphan", 1);
        record(&specs, &run, &dir, "h200", &[]).expect("record");
        let mut renamed = specs.clone();
        renamed[0].name = "sub.u32".into();
        assert_eq!(
            orphans(&renamed, &dir, "h200").expect("orphans"),
            ["integer/add.u32"]
        );
    }
}
