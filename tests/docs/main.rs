//! Everything that README.md, ARCHITECTURE.md and docs/ name exists: paths,
//! links, commands with their flags, environment variables.
//!
//! Checked are inline code, links, images, and fenced blocks marked `sh`, `bash`
//! or `console`. Blocks with another mark or none are output and are left alone.

mod commands;
mod markdown;
mod project;

use markdown::{Item, Kind};
use project::Project;
use std::path::Path;

/// Problems of one document, each with its line.
fn problems(project: &Project, document: &Path, text: &str) -> Vec<String> {
    let mut found = Vec::new();
    let items = markdown::items(text);
    for Item { line, kind } in &items {
        let result = match kind {
            Kind::Code(code) => check_code(project, document, code),
            Kind::Command(command) => commands::check(project, command),
            Kind::Link(target) => check_link(project, document, &items, target),
            Kind::Image { target, alt } => check_image(project, document, target, alt),
            Kind::Heading(_) => Ok(()),
        };
        if let Err(problem) = result {
            found.push(format!("{}:{line}: {problem}", document.display()));
        }
    }
    for (line, name) in markdown::variables(text) {
        if !project.names_variable(name) {
            found.push(format!(
                "{}:{line}: no source reads the variable {name}",
                document.display()
            ));
        }
    }
    found
}

fn check_code(project: &Project, document: &Path, code: &str) -> Result<(), String> {
    if commands::is_command(project, code) {
        return commands::check(project, code);
    }
    if !code.contains(' ') && code.starts_with("--") {
        return commands::check_lone_flag(project, code);
    }
    code.split_whitespace()
        .try_for_each(|word| project.check_path(document, word))
}

fn check_link(
    project: &Project,
    document: &Path,
    items: &[Item],
    target: &str,
) -> Result<(), String> {
    if target.contains("://") || target.starts_with("mailto:") {
        return Ok(());
    }
    let (path, anchor) = target.split_once('#').unwrap_or((target, ""));
    let linked = project.resolve_link(document, path)?;
    if anchor.is_empty() {
        return Ok(());
    }
    let own;
    let headings = if path.is_empty() {
        items
    } else {
        let text = std::fs::read_to_string(&linked).map_err(|e| format!("{path}: {e}"))?;
        own = markdown::items(&text);
        &own
    };
    let known = |item: &Item| matches!(&item.kind, Kind::Heading(slug) if slug == anchor);
    match headings.iter().any(known) {
        true => Ok(()),
        false => Err(format!("`{target}`: no heading has the anchor #{anchor}")),
    }
}

fn check_image(project: &Project, document: &Path, target: &str, alt: &str) -> Result<(), String> {
    if alt.trim().is_empty() {
        return Err(format!("the image {target} has no alt text"));
    }
    if target.contains("://") {
        return Ok(());
    }
    project.resolve_link(document, target).map(|_| ())
}

#[test]
fn everything_that_the_documents_name_exists() {
    let project = Project::read();
    let documents = project.documents();
    assert!(documents.iter().any(|d| d == Path::new("README.md")));
    let mut found = Vec::new();
    for document in &documents {
        let text = std::fs::read_to_string(project.root.join(document)).unwrap();
        found.extend(problems(&project, document, &text));
    }
    assert!(found.is_empty(), "\n{}", found.join("\n"));
}

#[test]
fn the_architecture_page_gives_a_reason_for_each_dependency_and_no_other() {
    let root = Project::read().root;
    let mut used = std::collections::BTreeSet::new();
    for manifest in ["Cargo.toml", "cpu-driver/Cargo.toml"] {
        let text = std::fs::read_to_string(root.join(manifest)).unwrap();
        let manifest: toml::Table = text.parse().unwrap();
        for table in ["dependencies", "dev-dependencies", "build-dependencies"] {
            let names = manifest.get(table).and_then(|t| t.as_table());
            used.extend(names.into_iter().flat_map(|t| t.keys().cloned()));
        }
    }
    used.remove("cpu-driver");
    let page = std::fs::read_to_string(root.join("ARCHITECTURE.md")).unwrap();
    let table = page
        .split("| crate | why |")
        .nth(1)
        .expect("the table of crates");
    let rows = table.lines().skip(2).take_while(|row| row.starts_with('|'));
    let named: std::collections::BTreeSet<String> = rows
        .flat_map(|row| row.split('|').nth(1).unwrap_or_default().split(','))
        .map(|name| {
            name.split('(')
                .next()
                .unwrap_or_default()
                .trim()
                .to_string()
        })
        .collect();
    assert_eq!(named, used);
}

#[test]
fn a_document_that_names_something_missing_is_rejected() {
    let project = Project::read();
    let rows = [
        ("`kernels/reduse.cu`", "kernels/reduse.cu"),
        ("`kernels/no_*.cu`", "kernels/no_*.cu"),
        ("`nowhere/`", "nowhere/"),
        ("`unheard_of.rs`", "unheard_of.rs"),
        ("[text](docs/none.md)", "docs/none.md"),
        ("[text](#none)\n\n# Some", "#none"),
        ("![](build.rs)", "alt text"),
        ("![drawing](none.svg)", "none.svg"),
        ("Set KERNELGATE_NONSENSE.", "KERNELGATE_NONSENSE"),
        ("`cargo run --bin nothing`", "nothing"),
        ("`cargo run --bin testing -- --nonsense`", "--nonsense"),
        ("`cargo run -- --nonsense`", "--nonsense"),
        ("`cargo test --nonsense`", "--nonsense"),
        ("`cargo test --test nothing`", "nothing"),
        ("`cargo nonsense`", "nonsense"),
        ("`cargo build -p nothing`", "nothing"),
        ("`cargo build --features nothing`", "nothing"),
        ("`target/release/testing --nonsense`", "--nonsense"),
        ("`target/release/nothing`", "nothing"),
        (
            "`compute-sanitizer target/release/testing --nonsense`",
            "--nonsense",
        ),
        ("`--nonsense`", "--nonsense"),
        (
            "```sh\nA=1 cargo test --workspace && cargo test --test nothing\n```",
            "nothing",
        ),
        ("```sh\ncargo run \\\n  --bin nothing\n```", "nothing"),
        (
            "```sh\npython3 -m pip install -r kernels/none.txt\n```",
            "kernels/none.txt",
        ),
        ("```console\n$ .ci/none\n```", ".ci/none"),
    ];
    for (text, part) in rows {
        let found = problems(&project, Path::new("README.md"), text);
        assert!(
            found.len() == 1 && found[0].contains(part),
            "{text}: expected one problem with `{part}`, found {found:?}"
        );
    }
}

#[test]
fn a_document_that_names_what_exists_passes() {
    let project = Project::read();
    let text = "\
# Some heading: with `code`

See `kernels/reduce.cu:12`, `kernels/*.cu`, `src/harness/`, `build.rs`, `reduce.cu`, `f16/bf16`,
`evidence`, `target/release/`, [here](#some-heading-with-code), [build](build.rs),
![a drawing](build.rs), `KERNELGATE_PTX=refresh cargo build --lib`, `--help`, <https://x.y/z>.

```sh
# a comment with words: cargo nonsense
cargo test --workspace   # and another
KERNELGATE_PTX=checked-in cargo run --release --bin testing -- --help
python3 -m pip install --target .cuda -r kernels/nvcc.txt
compute-sanitizer --tool memcheck target/release/testing --help > /tmp/x
```

```console
$ cargo test --test ptx
whatever it --prints
```

```text
cargo nonsense
```
";
    let found = problems(&project, Path::new("README.md"), text);
    assert!(found.is_empty(), "{found:?}");
}
