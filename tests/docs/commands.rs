//! Whether a command line names programs, targets, flags and files that exist.

use crate::project::Project;
use std::path::Path;

/// Programs that run another program; it is looked for among their arguments.
const WRAPPERS: [&str; 5] = ["env", "time", "timeout", "sudo", "compute-sanitizer"];

/// Whether inline code is a command and not a path or a name.
pub fn is_command(project: &Project, code: &str) -> bool {
    let words = split(code);
    let Some(program) = words.iter().find(|word| !is_assignment(word)) else {
        return false;
    };
    program == "cargo"
        || WRAPPERS.contains(&program.as_str()) && words.len() > 1
        || is_own(project, program)
        || is_built_program(program)
}

/// `target/release/NAME`, but not `target/release/` or a library there.
fn is_built_program(word: &str) -> bool {
    let parts: Vec<&str> = word.trim_start_matches("./").split('/').collect();
    parts.len() == 3
        && parts[0] == "target"
        && parts[2].starts_with(|c: char| c.is_ascii_lowercase())
        && !parts[2].contains('.')
}

pub fn check(project: &Project, line: &str) -> Result<(), String> {
    let words = split(line);
    for command in words.split(|w| ["&&", "||", "|", ";", "&"].contains(&w.as_str())) {
        check_simple(project, command)?;
    }
    Ok(())
}

/// A flag on its own belongs to one of our programs or to `cargo run|test|build`.
pub fn check_lone_flag(project: &Project, flag: &str) -> Result<(), String> {
    let mut texts: Vec<String> = Vec::new();
    for subcommand in ["run", "test", "build"] {
        texts.push(project.cargo_help(subcommand)?);
    }
    for program in project.programs() {
        collect_help(project, program, Vec::new(), &mut texts)?;
    }
    let name = flag.split('=').next().unwrap_or(flag);
    match texts.iter().any(|help| names_flag(help, name)) {
        true => Ok(()),
        false => Err(format!("no program here has the flag {name}")),
    }
}

fn collect_help(
    project: &Project,
    program: &str,
    path: Vec<String>,
    texts: &mut Vec<String>,
) -> Result<(), String> {
    let Some(help) = project.program_help(program, &path) else {
        return Ok(());
    };
    let help = help?;
    for subcommand in subcommands(&help) {
        let mut below = path.clone();
        below.push(subcommand.to_owned());
        collect_help(project, program, below, texts)?;
    }
    texts.push(help);
    Ok(())
}

fn split(line: &str) -> Vec<String> {
    let words =
        shlex::split(line).unwrap_or_else(|| line.split_whitespace().map(str::to_owned).collect());
    let mut separate = Vec::new();
    for word in words {
        match word.strip_suffix(';') {
            Some(word) => separate.extend([word.to_owned(), ";".to_owned()]),
            None => separate.push(word),
        }
    }
    separate
}

fn is_assignment(word: &str) -> bool {
    word.split_once('=').is_some_and(|(name, _)| {
        !name.is_empty()
            && name
                .chars()
                .all(|c| c.is_ascii_uppercase() || c.is_ascii_digit() || c == '_')
    })
}

fn is_redirection(word: &str) -> bool {
    word.trim_start_matches(|c: char| c.is_ascii_digit())
        .starts_with(['>', '<'])
        && !word.ends_with('>')
        || word == ">"
        || word == ">>"
}

/// One command without operators.
fn check_simple(project: &Project, words: &[String]) -> Result<(), String> {
    let start = words.iter().take_while(|w| is_assignment(w)).count();
    let end = words
        .iter()
        .position(|w| is_redirection(w))
        .unwrap_or(words.len());
    let Some((program, arguments)) = words.get(start..end).and_then(|w| w.split_first()) else {
        return Ok(());
    };
    if program == "cargo" {
        return check_cargo(project, arguments);
    }
    if is_own(project, program) {
        return check_program(project, own_name(program), arguments);
    }
    if WRAPPERS.contains(&program.as_str()) {
        let inner = arguments
            .iter()
            .position(|w| w == "cargo" || is_own(project, w));
        if let Some(inner) = inner {
            return check_simple(project, &arguments[inner..]);
        }
    }
    if is_built_program(program) {
        return Err(format!("`{program}` is no program of this workspace"));
    }
    let document = Path::new("README.md");
    words[start..end]
        .iter()
        .try_for_each(|word| project.check_path(document, word))
}

fn own_name(word: &str) -> &str {
    word.rsplit('/').next().unwrap_or(word)
}

/// A program of the workspace by its name or by its path below `target/`.
fn is_own(project: &Project, word: &str) -> bool {
    let built = word.trim_start_matches("./").starts_with("target/") || !word.contains('/');
    built && project.has_target("bin", own_name(word))
}

fn check_cargo(project: &Project, arguments: &[String]) -> Result<(), String> {
    let toolchain = usize::from(arguments.first().is_some_and(|a| a.starts_with('+')));
    let Some((subcommand, rest)) = arguments[toolchain..].split_first() else {
        return Ok(());
    };
    let help = project.cargo_help(subcommand)?;
    let own_end = rest.iter().position(|w| w == "--").unwrap_or(rest.len());
    let mut program = project.default_run();
    let mut words = rest[..own_end].iter();
    while let Some(word) = words.next() {
        if !word.starts_with('-') {
            continue;
        }
        let (flag, inline) = match word.split_once('=') {
            Some((flag, value)) => (flag, Some(value)),
            None => (word.as_str(), None),
        };
        if !names_flag(&help, flag) {
            return Err(format!("cargo {subcommand} has no flag {flag}"));
        }
        let mut value = || {
            inline
                .or_else(|| words.next().map(String::as_str))
                .unwrap_or("")
        };
        match flag {
            "--bin" => program = known_target(project, "bin", value())?,
            "--test" => _ = known_target(project, "test", value())?,
            "--bench" => _ = known_target(project, "bench", value())?,
            "--example" => _ = known_target(project, "example", value())?,
            "-p" | "--package" => known("package", value(), |v| project.has_package(v))?,
            "-F" | "--features" => {
                for feature in value().split([',', ' ']) {
                    known("feature", feature, |v| project.has_feature(v))?;
                }
            }
            _ => {}
        }
    }
    match (subcommand.as_str(), rest.get(own_end + 1..)) {
        ("run" | "r", Some(arguments)) => check_program(project, program, arguments),
        _ => Ok(()),
    }
}

fn known_target<'a>(project: &Project, kind: &str, name: &'a str) -> Result<&'a str, String> {
    known(kind, name, |name| project.has_target(kind, name)).map(|()| name)
}

fn known(what: &str, name: &str, exists: impl Fn(&str) -> bool) -> Result<(), String> {
    match exists(name) {
        true => Ok(()),
        false => Err(format!("there is no {what} `{name}`")),
    }
}

/// Walks the subcommands and looks each flag up in the help text. From a word
/// that names another of our programs on, the rest belongs to that program.
fn check_program(project: &Project, name: &str, arguments: &[String]) -> Result<(), String> {
    let mut path: Vec<String> = Vec::new();
    let Some(help) = project.program_help(name, &path) else {
        return Ok(());
    };
    let mut help = help?;
    let mut below_subcommand = false;
    for (i, word) in arguments.iter().enumerate() {
        if word.starts_with(['<', '[', '…']) || word == "--" {
            continue;
        }
        if word.starts_with('-') {
            let flag = word.split('=').next().unwrap_or(word);
            if !names_flag(&help, flag) {
                let shown = [&[name.to_owned()], &path[..]].concat().join(" ");
                return Err(format!("`{shown}` has no flag {flag}"));
            }
        } else if subcommands(&help).any(|s| s == word) {
            path.push(word.clone());
            help = project
                .program_help(name, &path)
                .unwrap_or_else(|| Err(format!("{name} is not built")))?;
            below_subcommand = true;
        } else if word == "cargo" || is_own(project, word) {
            return check_simple(project, &arguments[i..]);
        } else if !below_subcommand && subcommands(&help).next().is_some() {
            return Err(format!("`{name}` has no subcommand `{word}`"));
        }
    }
    Ok(())
}

/// The names in the `Commands:` part of clap's help.
fn subcommands(help: &str) -> impl Iterator<Item = &str> {
    help.lines()
        .skip_while(|line| line.trim() != "Commands:")
        .skip(1)
        .take_while(|line| line.is_empty() || line.starts_with(' '))
        .filter(|line| line.starts_with("  ") && !line.starts_with("   "))
        .filter_map(|line| line.split_whitespace().next())
        .filter(|name| *name != "help")
}

/// Whether the flag stands in the text as a word of its own.
fn names_flag(help: &str, flag: &str) -> bool {
    let part = |c: char| c.is_ascii_alphanumeric() || c == '-';
    help.match_indices(flag)
        .any(|(at, _)| !help[..at].ends_with(part) && !help[at + flag.len()..].starts_with(part))
}
