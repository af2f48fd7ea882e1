//! From `.loc` directives to the source lines of operations.
//!
//! Several `.loc` in a row: the last one counts. Line 0 is code made by the
//! compiler and keeps the line before it. An `inlined_at` gives the call site
//! as a further frame.

use std::collections::HashMap;

use super::code::{ABSENT, SiteInfo};
use super::lower::Tables;
use crate::machine::observe::Frame;
use crate::ptx::ast::{Instruction, Loc, Module};

/// Source places of the function being lowered.
pub struct Sites<'m> {
    module: &'m Module,
    files: HashMap<u32, &'m str>,
    known: HashMap<Loc, u32>,
    current: u32,
}

impl<'m> Sites<'m> {
    pub fn new(module: &'m Module) -> Self {
        Self {
            module,
            files: module
                .files
                .iter()
                .map(|file| (file.index, file.path.as_str()))
                .collect(),
            known: HashMap::new(),
            current: ABSENT,
        }
    }

    pub fn loc(&mut self, tables: &mut Tables, loc: &Loc) {
        if loc.line == 0 {
            return;
        }
        if let Some(known) = self.known.get(loc) {
            self.current = *known;
            return;
        }
        let function = loc.function.as_ref().and_then(|label| {
            self.module
                .debug_strings
                .iter()
                .find(|(name, _)| name == label)
                .map(|(_, text)| text.clone())
        });
        let mut frames = vec![Frame {
            function,
            file: self.file(loc.file),
            line: loc.line,
        }];
        if let Some((file, line, _)) = loc.inlined_at {
            frames.push(Frame {
                function: None,
                file: self.file(file),
                line,
            });
        }
        self.current = tables.frames.len() as u32;
        tables.frames.push(frames);
        self.known.insert(loc.clone(), self.current);
    }

    fn file(&self, index: u32) -> String {
        self.files
            .get(&index)
            .map_or_else(|| format!("file {index}"), |path| (*path).to_owned())
    }

    /// Site of an instruction of the text.
    pub fn instruction(&mut self, tables: &mut Tables, instruction: &Instruction) -> u32 {
        let mut text = instruction.opcode.clone();
        for modifier in &instruction.modifiers {
            text.push('.');
            text.push_str(modifier);
        }
        self.add(tables, text, instruction.line)
    }

    /// Site of an operation that the text does not contain.
    pub fn synthetic(&mut self, tables: &mut Tables, text: &str) -> u32 {
        self.add(tables, text.to_owned(), 0)
    }

    fn add(&mut self, tables: &mut Tables, text: String, ptx_line: u32) -> u32 {
        tables.sites.push(SiteInfo {
            text,
            ptx_line,
            frames: self.current,
        });
        tables.sites.len() as u32 - 1
    }
}
