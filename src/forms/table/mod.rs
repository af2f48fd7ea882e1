//! The table that the files under `forms/` are written from: one line a form.
//!
//! A line is an instruction with alternatives in braces, and a signature.
//! `add{.rn,.rz}{,.ftz}.f32 d, a, b` with `a:f32 b:f32 -> d:f32` makes four
//! forms. What is not said follows the defaults of [`Form`].

mod approximate;
mod atomic;
mod bits;
mod block;
mod compare;
mod control;
mod convert;
mod float;
mod half;
mod integer;
mod matrix;
mod memory;
mod video;
mod warp;

use super::signature::{Operand, SLOT, Signature, Type};
use anyhow::{Context, Result, bail};
use std::fmt::Write as _;
use std::path::Path;

/// One form before it is written out.
#[derive(Debug, Clone)]
pub struct Form {
    pub family: &'static str,
    pub name: String,
    /// `.version`; 8.0 is what drivers from 525 on accept.
    pub isa: (u32, u32),
    /// Least architecture that has the form.
    pub sm: u32,
    pub signature: String,
    /// `cross`, `cross N`, `random N` or `every` (see [`super::inputs`]).
    pub inputs: String,
    /// `exact`, `ulp N`, `abs E`, or both: either bound suffices.
    pub check: String,
    /// Threads a block.
    pub block: u32,
    pub note: String,
    /// Lines before the kernel: variables and device functions.
    pub prelude: String,
    /// Instructions, separated by `;`.
    pub body: String,
}

/// All forms, in order of family and name.
pub fn all() -> Vec<Form> {
    let mut table = Table { forms: Vec::new() };
    integer::lines(&mut table);
    bits::lines(&mut table);
    float::lines(&mut table);
    approximate::lines(&mut table);
    half::lines(&mut table);
    compare::lines(&mut table);
    convert::lines(&mut table);
    memory::lines(&mut table);
    atomic::lines(&mut table);
    control::lines(&mut table);
    warp::lines(&mut table);
    block::lines(&mut table);
    matrix::lines(&mut table);
    video::lines(&mut table);
    table
        .forms
        .sort_by(|a, b| (a.family, &a.name).cmp(&(b.family, &b.name)));
    table.forms
}

pub(super) struct Table {
    forms: Vec<Form>,
}

impl Table {
    /// Adds every form that `body` expands to. The name is the first
    /// instruction's mnemonic until [`Lines::named`] says otherwise.
    fn line(&mut self, family: &'static str, body: &str, signature: &str) -> Lines<'_> {
        let first = self.forms.len();
        let inputs = match family {
            // A copy has no edge cases; a few values show whether it is one.
            "memory" => "random 64",
            "atomic" => "cross 128",
            "carry" | "video" => "cross 192",
            "integer" | "bits" => "cross 320",
            "f16" | "bf16" => "cross 384",
            _ => "cross",
        };
        for body in expand(body) {
            let name = body.split_whitespace().next().unwrap_or("").to_owned();
            self.forms.push(Form {
                family,
                name: name.replace("::", "_"),
                isa: (8, 0),
                sm: 75,
                signature: signature.to_owned(),
                inputs: inputs.to_owned(),
                check: "exact".to_owned(),
                block: 64,
                note: String::new(),
                prelude: String::new(),
                body,
            });
        }
        Lines(&mut self.forms[first..])
    }
}

/// The forms one table line made; sets what differs from the defaults.
pub(super) struct Lines<'a>(&'a mut [Form]);

impl Lines<'_> {
    fn each(self, change: impl Fn(&mut Form)) -> Self {
        self.0.iter_mut().for_each(change);
        self
    }
    /// For a line that makes one form.
    fn named(self, name: &str) -> Self {
        self.each(|f| name.clone_into(&mut f.name))
    }
    /// Appends to the mnemonic, which alone would not be unique.
    fn suffix(self, suffix: &str) -> Self {
        self.each(|f| f.name.push_str(suffix))
    }
    fn sm(self, sm: u32) -> Self {
        self.each(|f| f.sm = sm)
    }
    fn isa(self, major: u32, minor: u32) -> Self {
        self.each(|f| f.isa = (major, minor))
    }
    fn check(self, check: &str) -> Self {
        self.each(|f| check.clone_into(&mut f.check))
    }
    fn inputs(self, inputs: &str) -> Self {
        self.each(|f| inputs.clone_into(&mut f.inputs))
    }
    fn block(self, threads: u32) -> Self {
        self.each(|f| f.block = threads)
    }
    fn note(self, note: &str) -> Self {
        self.each(|f| note.clone_into(&mut f.note))
    }
    fn prelude(self, prelude: &str) -> Self {
        self.each(|f| prelude.clone_into(&mut f.prelude))
    }
}

/// `a{b,c}d` to `abd`, `acd`; several groups multiply. PTX's own braces
/// (vectors, scopes) hold a blank or no comma and stay.
fn expand(text: &str) -> Vec<String> {
    let group = text.match_indices('{').find_map(|(open, _)| {
        let close = open + text[open..].find('}')?;
        let inner = &text[open + 1..close];
        (inner.contains(',') && !inner.contains(' ')).then_some((open, close))
    });
    let Some((open, close)) = group else {
        return vec![text.to_owned()];
    };
    text[open + 1..close]
        .split(',')
        .flat_map(|choice| expand(&format!("{}{choice}{}", &text[..open], &text[close + 1..])))
        .collect()
}

/// `registers("a", 3, "b32")` is `a0:b32 a1:b32 a2:b32`.
fn registers(name: &str, count: u32, ty: &str) -> String {
    let each: Vec<String> = (0..count).map(|k| format!("{name}{k}:{ty}")).collect();
    each.join(" ")
}

/// `vector("a", 3)` is `{a0, a1, a2}`.
fn vector(name: &str, count: u32) -> String {
    let each: Vec<String> = (0..count).map(|k| format!("{name}{k}")).collect();
    format!("{{{}}}", each.join(", "))
}

impl Form {
    /// The whole file: header, then one kernel in which thread `i` computes
    /// case `i`.
    ///
    /// # Errors
    /// A signature that does not parse.
    pub fn text(&self) -> Result<String> {
        let signature = Signature::parse(&self.signature)
            .with_context(|| format!("form {}/{}", self.family, self.name))?;
        let mut out = String::new();
        let shown = self.signature.split('|').next().unwrap_or("").trim();
        writeln!(out, "// form       {}", self.name)?;
        if !self.note.is_empty() {
            writeln!(out, "// note       {}", self.note)?;
        }
        writeln!(out, "// signature  {shown}")?;
        writeln!(out, "// inputs     {}", self.inputs)?;
        writeln!(out, "// check      {}", self.check)?;
        writeln!(out, "// block      {}", self.block)?;
        writeln!(out, ".version {}.{}", self.isa.0, self.isa.1)?;
        writeln!(out, ".target sm_{}", self.sm)?;
        writeln!(out, ".address_size 64\n")?;
        for line in self.prelude.lines() {
            writeln!(out, "{}", line.trim_end())?;
        }
        writeln!(
            out,
            ".visible .entry form(.param .u64 inputs, .param .u64 outputs)\n{{"
        )?;
        self.declare(&signature, &mut out)?;
        self.locate(&signature, &mut out)?;
        for (k, operand) in signature.inputs.iter().enumerate() {
            writeln!(
                out,
                "    ld.global.{} {}, [src+{}];",
                operand.ty.memory(),
                operand.name,
                k * SLOT
            )?;
        }
        out.push('\n');
        for statement in self.body.split(';') {
            let statement = statement.trim();
            match statement {
                "" => {}
                _ if statement.ends_with(':') => writeln!(out, "{statement}")?,
                "{" | "}" => writeln!(out, "    {statement}")?,
                _ => writeln!(out, "    {statement};")?,
            }
        }
        out.push('\n');
        for (k, operand) in signature.outputs.iter().enumerate() {
            writeln!(
                out,
                "    st.global.{} [dst+{}], {};",
                operand.ty.memory(),
                k * SLOT,
                operand.name
            )?;
        }
        out.push_str("    ret;\n}\n");
        Ok(out)
    }

    fn declare(&self, signature: &Signature, out: &mut String) -> Result<()> {
        let operands: Vec<&Operand> = signature
            .inputs
            .iter()
            .chain(&signature.outputs)
            .chain(&signature.scratch)
            .collect();
        let mut kinds: Vec<&str> = Vec::new();
        for operand in &operands {
            if !kinds.contains(&operand.ty.register()) {
                kinds.push(operand.ty.register());
            }
        }
        for kind in kinds {
            let names: Vec<&str> = operands
                .iter()
                .filter(|o| o.ty.register() == kind)
                .map(|o| o.name.as_str())
                .collect();
            writeln!(out, "    .reg .{kind} {};", names.join(", "))?;
        }
        let lane = if self.uses("lane") { ", lane" } else { "" };
        writeln!(out, "    .reg .b32 i, tid, cta, width{lane};")?;
        writeln!(out, "    .reg .b64 src, dst;")?;
        debug_assert!(
            operands
                .iter()
                .all(|o| o.ty != Type::Pred || !o.name.is_empty())
        );
        Ok(())
    }

    fn locate(&self, signature: &Signature, out: &mut String) -> Result<()> {
        writeln!(out, "    mov.u32 tid, %tid.x;")?;
        writeln!(out, "    mov.u32 cta, %ctaid.x;")?;
        writeln!(out, "    mov.u32 width, %ntid.x;")?;
        writeln!(out, "    mad.lo.u32 i, cta, width, tid;")?;
        if self.uses("lane") {
            writeln!(out, "    mov.u32 lane, %laneid;")?;
        }
        for (register, param, count) in [
            ("src", "inputs", signature.inputs.len()),
            ("dst", "outputs", signature.outputs.len()),
        ] {
            writeln!(out, "    ld.param.u64 {register}, [{param}];")?;
            writeln!(out, "    cvta.to.global.u64 {register}, {register};")?;
            let stride = count.max(1) * SLOT;
            writeln!(out, "    mad.wide.u32 {register}, i, {stride}, {register};")?;
        }
        Ok(())
    }

    /// Whether the body mentions a register by this name.
    fn uses(&self, word: &str) -> bool {
        self.body
            .split(|c: char| !c.is_ascii_alphanumeric() && c != '_' && c != '%')
            .any(|w| w == word)
    }
}

/// Writes every form to `dir/<family>/<name>.ptx` and returns their number.
///
/// # Errors
/// Writing, and two forms of one name.
pub fn write(dir: &Path) -> Result<usize> {
    let forms = all();
    for pair in forms.windows(2) {
        if (pair[0].family, &pair[0].name) == (pair[1].family, &pair[1].name) {
            bail!("two forms are called {}/{}", pair[0].family, pair[0].name);
        }
    }
    for form in &forms {
        let folder = dir.join(form.family);
        std::fs::create_dir_all(&folder)?;
        std::fs::write(folder.join(format!("{}.ptx", form.name)), form.text()?)?;
    }
    Ok(forms.len())
}
