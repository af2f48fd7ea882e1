//! A form as its file states it.

use super::compare::Check;
use super::inputs::{self, Inputs};
use super::signature::Signature;
use anyhow::{Context, Result, bail};
use std::path::{Path, PathBuf};

/// One `.ptx` file with its header taken apart.
#[derive(Debug, Clone)]
pub struct Spec {
    pub family: String,
    pub name: String,
    pub path: PathBuf,
    pub ptx: String,
    pub signature: Signature,
    pub inputs: Inputs,
    pub check: Check,
    /// Threads a block.
    pub block: u32,
    /// Least architecture, from `.target`.
    pub sm: u32,
}

impl Spec {
    /// Family and name: how a form is called in every message.
    pub fn id(&self) -> String {
        format!("{}/{}", self.family, self.name)
    }

    /// # Errors
    /// A file that cannot be read, or whose header lacks a line or contradicts
    /// itself; the message names the file.
    pub fn load(path: &Path) -> Result<Spec> {
        let ptx = std::fs::read_to_string(path)
            .with_context(|| format!("cannot read the form {}", path.display()))?;
        Self::parse(path, ptx).with_context(|| format!("header of {}", path.display()))
    }

    fn parse(path: &Path, ptx: String) -> Result<Spec> {
        let name_of = |p: Option<&std::ffi::OsStr>| {
            p.and_then(|n| n.to_str())
                .map(str::to_owned)
                .context("path is not UTF-8 or has no family folder")
        };
        let name = header(&ptx, "form")?.to_owned();
        if name_of(path.file_stem())? != name {
            bail!("`// form {name}` does not match the file's name");
        }
        let target = ptx
            .lines()
            .find_map(|l| l.strip_prefix(".target sm_"))
            .context("no `.target sm_` line")?;
        Ok(Spec {
            family: name_of(path.parent().and_then(Path::file_name))?,
            path: path.to_owned(),
            signature: Signature::parse(header(&ptx, "signature")?)?,
            inputs: Inputs::parse(header(&ptx, "inputs")?)?,
            check: Check::parse(header(&ptx, "check")?)?,
            block: header(&ptx, "block")?.parse().context("`// block`")?,
            sm: target.trim().parse().context("`.target`")?,
            name,
            ptx,
        })
    }

    /// Number of cases a run has.
    pub fn cases(&self) -> usize {
        inputs::cases(&self.name, &self.signature, self.inputs, self.block).len()
    }

    /// The text without comment lines: what a recording depends on.
    pub fn code(&self) -> String {
        let lines = self.ptx.lines().filter(|l| !l.starts_with("//"));
        lines.collect::<Vec<_>>().join("\n")
    }
}

fn header<'a>(ptx: &'a str, key: &str) -> Result<&'a str> {
    ptx.lines()
        .map_while(|line| line.strip_prefix("// "))
        .find_map(|line| line.strip_prefix(key)?.strip_prefix(' '))
        .map(str::trim)
        .with_context(|| format!("no `// {key}` line"))
}

/// Every form under `dir`, sorted by family and name.
///
/// # Errors
/// An unreadable folder or header, and a folder without a single form: an
/// empty set would pass every comparison.
pub fn load_all(dir: &Path) -> Result<Vec<Spec>> {
    let mut specs = Vec::new();
    for family in folder(dir)? {
        if !family.is_dir() {
            continue;
        }
        for file in folder(&family)? {
            if file.extension().is_some_and(|e| e == "ptx") {
                specs.push(Spec::load(&file)?);
            }
        }
    }
    if specs.is_empty() {
        bail!(
            "no forms under {}: expected <family>/<name>.ptx; name the folder with --forms-dir",
            dir.display()
        );
    }
    specs.sort_by(|a, b| (&a.family, &a.name).cmp(&(&b.family, &b.name)));
    Ok(specs)
}

fn folder(dir: &Path) -> Result<Vec<PathBuf>> {
    let read = std::fs::read_dir(dir).with_context(|| format!("cannot list {}", dir.display()))?;
    read.map(|entry| Ok(entry?.path())).collect()
}
