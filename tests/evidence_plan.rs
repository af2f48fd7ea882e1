//! Every command that a lesson page or the README shows is one that
//! `kernelgate evidence` runs.

use std::collections::BTreeSet;
use std::path::Path;

use kernelgate::evidence::lessons::STEPS;

const PAGES: [&str; 4] = [
    "README.md",
    "docs/testing.md",
    "docs/ci-gate.md",
    "docs/memory-bugs.md",
];

/// Programs whose output is no lesson: nothing to record.
const OTHER: [&str; 5] = [
    "kernelgate doctor",
    "kernelgate driver-path",
    "kernelgate evidence",
    "kernelgate forms",
    "kernelgate grade",
];

#[test]
fn every_command_of_the_lesson_pages_is_in_the_plan() {
    let planned: BTreeSet<String> = STEPS.iter().map(|step| step.command()).collect();
    let mut sanitized = 0;
    for page in PAGES {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(page);
        let text = std::fs::read_to_string(&path).expect(page);
        for command in commands(&text) {
            let program = command.trim_start_matches("target/release/");
            if OTHER.iter().any(|other| program.starts_with(other)) || differs(&command) {
                continue;
            }
            assert!(
                planned.contains(&command),
                "{page} shows `{command}`, which is in no step of src/evidence/lessons.rs"
            );
            sanitized += usize::from(command.contains(" sanitize "));
        }
    }
    assert!(sanitized >= 5, "the pages show {sanitized} sanitized runs");
}

/// Lines of code blocks that run a built binary.
fn commands(text: &str) -> Vec<String> {
    let mut inside = false;
    let mut commands = Vec::new();
    for line in text.lines() {
        if line.trim_start().starts_with("```") {
            inside = !inside;
        } else if inside && line.starts_with("target/release/") {
            commands.push(line.trim().to_string());
        }
    }
    commands
}

/// Options that change what is printed, not what is shown: `--flip CLAIM`, `--json`,
/// `--n SIZE`, `--help`, `--hint`.
fn differs(command: &str) -> bool {
    ["--flip", "--json", "--n ", "--help", "--hint", "--stand-in"]
        .iter()
        .any(|option| command.contains(option))
}
