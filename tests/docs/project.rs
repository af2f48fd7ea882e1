//! What the project holds: files, programs, packages, features, variables.

use serde_json::Value;
use std::cell::RefCell;
use std::collections::{BTreeSet, HashMap};
use std::path::{Path, PathBuf};
use std::process::Command;

/// Made by builds and set-up commands, so not in a fresh checkout.
const GENERATED: [&str; 3] = ["target", ".cuda", ".tools"];

const EXTENSIONS: [&str; 14] = [
    "rs", "cu", "cuh", "ptx", "toml", "lock", "md", "txt", "svg", "json", "jsonl", "yml", "sh",
    "py",
];

pub struct Project {
    pub root: PathBuf,
    /// Files and folders relative to the root, with `/` between parts.
    entries: BTreeSet<String>,
    metadata: Value,
    sources: String,
    help: RefCell<HashMap<Vec<String>, Result<String, String>>>,
}

impl Project {
    pub fn read() -> Project {
        let root = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
        let mut entries = BTreeSet::new();
        walk(&root, &root, &mut entries);
        let sources = entries
            .iter()
            .filter(|e| e.ends_with(".rs") || e.starts_with(".ci/"))
            .filter(|e| !e.starts_with("tests/docs/"))
            .filter_map(|e| std::fs::read_to_string(root.join(e)).ok())
            .collect();
        let output = Command::new(env!("CARGO"))
            .args([
                "metadata",
                "--no-deps",
                "--offline",
                "--format-version",
                "1",
            ])
            .current_dir(&root)
            .output()
            .expect("cargo metadata");
        Project {
            metadata: serde_json::from_slice(&output.stdout).expect("metadata is JSON"),
            root,
            entries,
            sources,
            help: RefCell::default(),
        }
    }

    /// README.md, ARCHITECTURE.md and what else lies beside them or in docs/.
    pub fn documents(&self) -> Vec<PathBuf> {
        self.entries
            .iter()
            .filter(|e| e.ends_with(".md") && (!e.contains('/') || e.starts_with("docs/")))
            .map(PathBuf::from)
            .collect()
    }

    pub fn names_variable(&self, name: &str) -> bool {
        self.sources.contains(name)
    }

    // ---- paths -------------------------------------------------------------

    /// Accepts a word that is no path, or one that exists from the root, from
    /// the document, or as the end of an existing path (`reduce.cu`).
    pub fn check_path(&self, document: &Path, word: &str) -> Result<(), String> {
        let word = word
            .trim_end_matches([',', ';', ')'])
            .trim_start_matches('(');
        let path = word.split(':').next().unwrap_or(word);
        let path = path.trim_start_matches("./");
        if !self.looks_like_path(document, path) {
            return Ok(());
        }
        let pattern = path.trim_end_matches('/');
        let beside = document.parent().unwrap_or(Path::new("")).join(pattern);
        let exists = self.entries.iter().any(|entry| {
            matches(pattern, entry)
                || matches(&beside.to_string_lossy(), entry)
                || matches(&format!("*/{pattern}"), entry)
        });
        match exists {
            true => Ok(()),
            false => Err(format!("`{path}` does not exist")),
        }
    }

    fn looks_like_path(&self, document: &Path, word: &str) -> bool {
        let plain = |c: char| c.is_ascii_alphanumeric() || "_-./*<>".contains(c);
        if word.is_empty() || !word.chars().all(plain) || word.starts_with(['/', '-', '<', '*']) {
            return false;
        }
        let first = word.split('/').next().unwrap_or(word);
        if GENERATED.contains(&first) || word.split('/').any(|part| part == "..") {
            return false;
        }
        let extension = Path::new(word).extension().and_then(|e| e.to_str());
        let beside = document.parent().unwrap_or(Path::new("")).join(first);
        extension.is_some_and(|e| EXTENSIONS.contains(&e))
            || word.ends_with('/')
            || (word.contains('/')
                && (self.entries.contains(first)
                    || self.entries.contains(&*beside.to_string_lossy())))
    }

    /// The file or folder that a relative link means; an empty path is the document.
    pub fn resolve_link(&self, document: &Path, path: &str) -> Result<PathBuf, String> {
        let from = self.root.join(document);
        let target = match path {
            "" => from,
            _ => from.parent().unwrap_or(&self.root).join(path),
        };
        match target.exists() {
            true => Ok(target),
            false => Err(format!("the link to `{path}` leads nowhere")),
        }
    }

    // ---- cargo -------------------------------------------------------------

    fn packages(&self) -> impl Iterator<Item = &Value> {
        self.metadata["packages"].as_array().into_iter().flatten()
    }

    /// Whether a target of this kind (`bin`, `test`, `bench`, `example`) exists.
    pub fn has_target(&self, kind: &str, name: &str) -> bool {
        self.target(kind, name).is_some()
    }

    fn target(&self, kind: &str, name: &str) -> Option<&Value> {
        self.packages()
            .flat_map(|package| package["targets"].as_array().into_iter().flatten())
            .find(|t| t["name"] == name && t["kind"].as_array().is_some_and(|k| k[0] == kind))
    }

    pub fn has_package(&self, name: &str) -> bool {
        self.packages().any(|package| package["name"] == name)
    }

    pub fn has_feature(&self, name: &str) -> bool {
        self.packages()
            .any(|package| package["features"].get(name).is_some())
    }

    pub fn default_run(&self) -> &str {
        self.packages()
            .find_map(|package| package["default_run"].as_str())
            .expect("a default-run")
    }

    // ---- help texts --------------------------------------------------------

    /// What `cargo SUBCOMMAND -h` prints: every flag. `--help` may open a manual.
    pub fn cargo_help(&self, subcommand: &str) -> Result<String, String> {
        self.help_text(env!("CARGO"), &[subcommand.to_owned()], "-h")
    }

    /// What `PROGRAM SUBCOMMANDS --help` prints. `None` for a program that this
    /// build does not make because it wants a feature.
    pub fn program_help(&self, name: &str, path: &[String]) -> Option<Result<String, String>> {
        let wants_feature = self
            .target("bin", name)
            .is_some_and(|t| t["required-features"].as_array().is_some());
        let file = Path::new(env!("CARGO_BIN_EXE_testing")).with_file_name(name);
        if wants_feature && !file.exists() {
            return None;
        }
        Some(self.help_text(&file.to_string_lossy(), path, "--help"))
    }

    fn help_text(&self, program: &str, path: &[String], flag: &str) -> Result<String, String> {
        let mut key = vec![program.to_owned()];
        key.extend_from_slice(path);
        if let Some(known) = self.help.borrow().get(&key) {
            return known.clone();
        }
        let shown = key.join(" ");
        let text = Command::new(program)
            .args(path)
            .arg(flag)
            .output()
            .map_err(|e| format!("cannot start {shown}: {e}"))
            .and_then(|output| match output.status.success() {
                true => Ok(String::from_utf8_lossy(&output.stdout).into_owned()),
                false => Err(format!("`{shown} {flag}` fails: no such command?")),
            });
        self.help.borrow_mut().insert(key, text.clone());
        text
    }

    /// The programs of the workspace.
    pub fn programs(&self) -> impl Iterator<Item = &str> {
        self.packages()
            .flat_map(|package| package["targets"].as_array().into_iter().flatten())
            .filter(|target| target["kind"][0] == "bin")
            .filter_map(|target| target["name"].as_str())
    }
}

fn walk(root: &Path, folder: &Path, entries: &mut BTreeSet<String>) {
    for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        let path = entry.path();
        let name = entry.file_name();
        if name == ".git" || GENERATED.iter().any(|g| name == *g) {
            continue;
        }
        if let Ok(relative) = path.strip_prefix(root) {
            entries.insert(relative.to_string_lossy().replace('\\', "/"));
        }
        if path.is_dir() {
            walk(root, &path, entries);
        }
    }
}

/// `*` and `<anything>` stand for any text within a path.
fn matches(pattern: &str, entry: &str) -> bool {
    let mut parts = Vec::new();
    let mut rest = pattern;
    while let Some(at) = rest.find(['*', '<']) {
        parts.push(&rest[..at]);
        let end = match rest[at..].starts_with('<') {
            true => rest[at..].find('>').map_or(rest.len(), |end| at + end + 1),
            false => at + 1,
        };
        rest = &rest[end..];
    }
    let Some(mut left) = entry.strip_suffix(rest) else {
        return false;
    };
    if parts.is_empty() {
        return left.is_empty();
    }
    for (i, part) in parts.iter().enumerate() {
        let Some(at) = left.find(part) else {
            return false;
        };
        if i == 0 && at != 0 {
            return false;
        }
        left = &left[at + part.len()..];
    }
    true
}
