use super::*;
use crate::perf::record::sample::{place, record};

fn saved() -> (tempfile::TempDir, Baselines, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let baselines = Baselines::at(folder.path());
    let path = baselines
        .save("main", &[record("a", 100.0, 1), record("b", 5.0, 2)], false)
        .unwrap();
    (folder, baselines, path)
}

#[test]
fn what_is_saved_loads_unchanged() {
    let (_folder, baselines, _) = saved();
    let records = baselines.load("main", &place()).unwrap();
    assert_eq!(records, [record("a", 100.0, 1), record("b", 5.0, 2)]);
    let absent = baselines.load("other", &place());
    assert!(matches!(absent, Err(BaselineError::Absent(_))));
}

#[test]
fn a_damaged_document_is_an_error_that_says_what_is_wrong() {
    type Damage = fn(String) -> String;
    let damages: [(&str, Damage, &str); 6] = [
        ("cut", |t| t[..t.len() / 2].to_owned(), "not a baseline"),
        ("empty", |_| String::new(), "not a baseline"),
        ("other JSON", |_| "[1, 2]".to_owned(), "not a baseline"),
        (
            "edited",
            |t| t.replacen("\"median\": ", "\"median\": 9", 1),
            "checksum",
        ),
        (
            "format",
            |t| t.replace(FORMAT, "kernelgate-baseline-0"),
            "expected `kernelgate",
        ),
        (
            "no records",
            |t| {
                let mut v: serde_json::Value = serde_json::from_str(&t).unwrap();
                v["records"] = serde_json::json!([]);
                v.to_string()
            },
            "no case",
        ),
    ];
    for (name, damage, want) in damages {
        let (_folder, baselines, path) = saved();
        let damaged = damage(std::fs::read_to_string(&path).unwrap());
        std::fs::write(&path, &damaged).unwrap();
        let error = baselines.load("main", &place()).unwrap_err();
        assert!(
            matches!(error, BaselineError::Corrupted { .. }),
            "{name}: {error}"
        );
        assert!(error.to_string().contains(want), "{name}: {error}");
        // Neither loading nor a plain save touches it.
        let error = baselines
            .save("main", &[record("a", 1.0, 1)], false)
            .unwrap_err();
        assert!(
            matches!(error, BaselineError::Exists { .. }),
            "{name}: {error}"
        );
        assert_eq!(std::fs::read_to_string(&path).unwrap(), damaged, "{name}");
    }
}

#[test]
fn a_foreign_baseline_is_refused_field_by_field() {
    let (_folder, baselines, _) = saved();
    type Change = fn(&mut Place);
    let changes: [(Change, &str); 4] = [
        (
            |p| p.device = "NVIDIA H100".to_owned(),
            "device: NVIDIA H100 here",
        ),
        (|p| p.conditions.driver = "1".to_owned(), "driver: 1 here"),
        (
            |p| p.conditions.power_limit_mw = Some(1),
            "power limit (mW): 1 here",
        ),
        (
            |p| p.conditions.max_sm_mhz = None,
            "highest SM clock: unknown here",
        ),
    ];
    for (change, want) in changes {
        let mut here = place();
        change(&mut here);
        let error = baselines.load("main", &here).unwrap_err();
        assert!(matches!(error, BaselineError::Foreign { .. }), "{error}");
        assert!(error.to_string().contains(want), "{error}");
    }
    // Another commit is what a comparison is for.
    let mut here = place();
    here.commit = "other".to_owned();
    assert!(baselines.load("main", &here).is_ok());
}

#[test]
fn overwriting_is_asked_for_and_keeps_the_old_one() {
    let (_folder, baselines, path) = saved();
    let old = std::fs::read_to_string(&path).unwrap();
    baselines
        .save("main", &[record("c", 7.0, 3)], true)
        .unwrap();
    assert_eq!(baselines.load("main", &place()).unwrap()[0].about.case, "c");
    let kept = std::fs::read_to_string(path.with_extension("json.old")).unwrap();
    assert_eq!(kept, old);
}

#[test]
fn failed_cases_and_bad_names_are_not_saved() {
    let folder = tempfile::tempdir().unwrap();
    let baselines = Baselines::at(folder.path());
    let mut failed = record("a", 1.0, 1);
    failed.failure = Some("wrong".to_owned());
    for records in [vec![], vec![failed]] {
        let error = baselines.save("x", &records, false).unwrap_err();
        assert!(matches!(error, BaselineError::NotWorthSaving(_)));
    }
    for name in ["", "../x", "a/b", ".x", "a b"] {
        let error = baselines
            .save(name, &[record("a", 1.0, 1)], false)
            .unwrap_err();
        assert!(matches!(error, BaselineError::BadName(_)), "{name}");
    }
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
}

/// Bytes changed, cut out, doubled: an error or, where only spaces were hit, the
/// same records; never a panic, other records or another file.
#[test]
fn a_mutilated_document_never_gives_other_records() {
    let (_folder, baselines, path) = saved();
    let good = std::fs::read(&path).unwrap();
    let records = baselines.load("main", &place()).unwrap();
    let mut random = fastrand::Rng::with_seed(1);
    let mut refused = 0;
    for round in 0..600 {
        let mut bytes = good.clone();
        for _ in 0..random.usize(1..4) {
            let at = random.usize(..bytes.len());
            let end = (at + random.usize(1..200)).min(bytes.len());
            match random.u8(..4) {
                0 => bytes[at] = random.u8(..),
                1 => drop(bytes.drain(at..end)),
                2 => bytes.splice(at..at, bytes[at..end].to_vec()).for_each(drop),
                _ => bytes.truncate(at.max(1)),
            }
        }
        std::fs::write(&path, &bytes).unwrap();
        match baselines.load("main", &place()) {
            Ok(found) => assert_eq!(found, records, "round {round}"),
            Err(_) => refused += 1,
        }
        let error = baselines.save("main", &records, false).unwrap_err();
        assert!(
            matches!(error, BaselineError::Exists { .. }),
            "round {round}"
        );
        assert_eq!(std::fs::read(&path).unwrap(), bytes, "round {round}");
    }
    assert!(refused > 500, "{refused} of 600 refused");
    let nested = "[".repeat(100_000);
    std::fs::write(&path, nested).unwrap();
    assert!(baselines.load("main", &place()).is_err());
}

/// Whole, with a checksum that fits, and timings that no run gives.
#[test]
fn odd_timings_are_inconclusive_and_no_panic() {
    use crate::perf::compare::{Rules, Timings, Verdict, compare};
    let rules = Rules {
        floor: 0.01,
        paired: false,
        seed: 1,
    };
    let real = record("a", 100.0, 1).timings;
    let odd: [Vec<Vec<f64>>; 6] = [
        vec![],
        vec![vec![]; 8],
        vec![vec![], vec![1.0; 40], vec![2.0; 40], vec![3.0; 40]],
        vec![vec![-1.0; 8]; 8],
        vec![vec![0.0; 8]; 8],
        vec![vec![f64::MAX; 8]; 8],
    ];
    for microseconds in odd {
        let folder = tempfile::tempdir().unwrap();
        let baselines = Baselines::at(folder.path());
        let mut strange = record("a", 100.0, 1);
        strange.timings.microseconds = microseconds.clone();
        baselines.save("x", &[strange], false).unwrap();
        let loaded = baselines.load("x", &place()).unwrap().swap_remove(0);
        let side: Timings = loaded.timings;
        for (a, b) in [(side.clone(), real.clone()), (real.clone(), side)] {
            let all = compare(&[("a".to_owned(), a, b)], &rules);
            let same = all[0].verdict == Verdict::Same;
            assert!(!same, "{microseconds:?}: {:?}", all[0]);
        }
    }
}
