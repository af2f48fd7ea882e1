//! Lowered functions to one array of executable operations.

use std::collections::HashMap;

use super::allocate::{Assignment, assign};
use super::code::{ABSENT, Class, Code, Constant, Fill, FunctionCode, Op};
use super::flow::{self, Block};
use super::link::{Linked, Symbols};
use super::lower::{Lowered, Tables, lower};
use super::operation::{Flow, Operation, Register, Value};
use super::reach::Layout;
use crate::machine::ops::control;
use crate::ptx::ast::FunctionKind;

/// Builds the code of the kernel that `layout` belongs to.
pub fn assemble(linked: &Linked, layout: &Layout) -> Code {
    let mut tables = Tables::default();
    let mut code = Code::default();
    for id in &layout.functions {
        let (module, function) = linked.symbols.function(*id);
        let mut lowered = lower(linked, layout, &mut tables, module, function);
        propagate_constants(&mut lowered);
        code.calls_functions |= function.kind == FunctionKind::Device;
        let index = code.functions.len() as u32;
        code.by_address
            .insert(Symbols::function_address(*id), index);
        place(&mut code, lowered);
    }
    code.local_bytes = code.functions.iter().fold(0, |sum: u32, function| {
        sum.saturating_add(function.local_bytes)
    });
    code.calls = tables.calls;
    code.accesses = tables.accesses;
    code.matrices = tables.matrices;
    code.videos = tables.videos;
    code.tiles = tables.tiles;
    code.products = tables.products;
    code.sites = tables.sites;
    code.refusals = tables.refusals;
    code.frames = tables.frames;
    code
}

/// A register that only ever holds one constant needs no row of its own.
fn propagate_constants(lowered: &mut Lowered) {
    let mut writes = vec![0u32; lowered.registers.len()];
    for operation in &lowered.operations {
        for value in operation.writes() {
            if let Value::Register(register) = value {
                writes[register as usize] += 1;
            }
        }
    }
    let mut known: HashMap<Register, Constant> = HashMap::new();
    for operation in &lowered.operations {
        if let (true, false, Value::Register(dst), Value::Constant(constant)) = (
            operation.copies,
            operation.partial,
            operation.dst,
            operation.a,
        ) && writes[dst as usize] == 1
        {
            known.insert(dst, constant);
        }
    }
    for operation in &mut lowered.operations {
        for value in operation.values_mut() {
            if let Value::Register(register) = value
                && let Some(constant) = known.get(register)
            {
                *value = Value::Constant(*constant);
            }
        }
    }
    remove(lowered, |operation| {
        operation.copies && matches!(operation.dst, Value::Constant(_))
    });
}

/// Removes operations and moves labels along.
fn remove(lowered: &mut Lowered, unwanted: impl Fn(&Operation) -> bool) {
    let mut new_index = Vec::with_capacity(lowered.operations.len() + 1);
    let mut kept = 0;
    for operation in &lowered.operations {
        new_index.push(kept);
        kept += usize::from(!unwanted(operation));
    }
    new_index.push(kept);
    lowered.operations.retain(|operation| !unwanted(operation));
    for label in &mut lowered.labels {
        if let Some(at) = new_index.get(*label) {
            *label = *at;
        }
    }
}

/// Where registers and constants of a function lie in its frame.
struct FrameLayout<'a> {
    assignment: &'a Assignment,
    classes: &'a [Class],
    quads: u32,
    longs: u32,
    words: u32,
    end: u32,
    constants: HashMap<Constant, u32>,
    fills: Vec<Fill>,
}

impl<'a> FrameLayout<'a> {
    fn new(assignment: &'a Assignment, classes: &'a [Class], truths: u32) -> Self {
        let quads = (4 * (assignment.predicates + truths)).next_multiple_of(128);
        let longs = quads + 512 * assignment.quads;
        let words = longs + 256 * assignment.longs;
        Self {
            assignment,
            classes,
            quads,
            longs,
            words,
            end: words + 128 * assignment.words,
            constants: HashMap::new(),
            fills: Vec::new(),
        }
    }

    fn offset(&mut self, value: Value) -> u32 {
        match value {
            Value::None => ABSENT,
            Value::Raw(number) => number,
            Value::Register(register) => {
                let slot = self.assignment.slot[register as usize];
                match self.classes[register as usize] {
                    Class::Predicate | Class::None => 4 * slot,
                    Class::Quad => self.quads + 512 * slot,
                    Class::Long => self.longs + 256 * slot,
                    Class::Word => self.words + 128 * slot,
                }
            }
            Value::Constant(constant) => self.constant(constant),
        }
    }

    fn constant(&mut self, constant: Constant) -> u32 {
        if let Some(offset) = self.constants.get(&constant) {
            return *offset;
        }
        let offset = if let Constant::Truth(value) = constant {
            4 * (self.assignment.predicates + u32::from(value))
        } else {
            let offset = self.end;
            self.end += constant.class().bytes();
            offset
        };
        self.constants.insert(constant, offset);
        self.fills.push(Fill { offset, constant });
        offset
    }
}

/// Gives a lowered function its place at the end of the code.
fn place(code: &mut Code, lowered: Lowered) {
    let mut blocks = flow::blocks(&lowered.operations, &lowered.labels);
    forget_uniform_meets(&mut blocks, &lowered.operations);
    let assignment = assign(&lowered.operations, &blocks, &lowered.registers);
    let mut frame = FrameLayout::new(&assignment, &lowered.registers, 2);
    let entry = code.ops.len() as u32;

    let mut meets = vec![false; blocks.len()];
    for block in &blocks {
        if let Some(meeting) = block.meets {
            meets[meeting] = true;
        }
    }
    let mut starts = Vec::with_capacity(blocks.len());
    let mut pc = entry;
    for (at, block) in blocks.iter().enumerate() {
        starts.push(pc);
        pc += (block.end - block.start) as u32 + u32::from(meets[at]);
    }
    let block_of = |operation: usize| blocks.partition_point(|b| b.start <= operation) - 1;
    let target = |label: u32| starts[block_of(lowered.labels[label as usize])];

    for (at, block) in blocks.iter().enumerate() {
        if meets[at] {
            code.ops.push(Op {
                site: lowered.operations[block.start].site,
                ..blank(control::join_exec())
            });
        }
        for operation in &lowered.operations[block.start..block.end] {
            let meeting = block.meets.map_or(ABSENT, |meeting| starts[meeting]);
            emit(code, &mut frame, operation, &target, meeting);
        }
    }
    code.functions.push(FunctionCode {
        name: lowered.name,
        entry,
        end: code.ops.len() as u32,
        frame_bytes: frame.end.next_multiple_of(512),
        fills: frame.fills,
        local_bytes: lowered.local_bytes,
        params: lowered.params,
        returns: lowered.returns,
    });
}

/// Only blocks that end in a branch need a meeting place.
fn forget_uniform_meets(blocks: &mut [Block], operations: &[Operation]) {
    for block in blocks {
        if !matches!(
            operations[block.end - 1].flow,
            Flow::Branch(_) | Flow::Table(_)
        ) {
            block.meets = None;
        }
    }
}

fn blank(exec: super::code::Exec) -> Op {
    Op {
        exec,
        imm: 0,
        dst: ABSENT,
        dst2: ABSENT,
        a: ABSENT,
        b: ABSENT,
        c: ABSENT,
        aux: ABSENT,
        site: ABSENT,
    }
}

fn emit(
    code: &mut Code,
    frame: &mut FrameLayout<'_>,
    operation: &Operation,
    target: &dyn Fn(u32) -> u32,
    meeting: u32,
) {
    let mut op = Op {
        imm: operation.imm,
        dst: frame.offset(operation.dst),
        dst2: frame.offset(operation.dst2),
        a: frame.offset(operation.a),
        b: frame.offset(operation.b),
        c: frame.offset(operation.c),
        aux: frame.offset(operation.fourth),
        site: operation.site,
        ..blank(operation.exec)
    };
    let mut list: Vec<u32> = operation
        .list
        .iter()
        .map(|(value, _)| frame.offset(*value))
        .collect();
    match &operation.flow {
        Flow::Next | Flow::Leave => {}
        Flow::Jump(label) => op.b = target(*label),
        Flow::Branch(label) => {
            op.b = target(*label);
            op.c = meeting;
        }
        Flow::Table(labels) => {
            list = labels.iter().map(|label| target(*label)).collect();
            op.imm = list.len() as u64;
            op.c = meeting;
        }
    }
    if !list.is_empty() {
        op.aux = code.lists.len() as u32;
        code.lists.extend(list);
    }
    let pc = code.ops.len() as u32;
    if let Some(exec) = control::backward(&operation.flow)
        && op.b <= pc
    {
        op.exec = exec;
    }
    if let Some(variants) = operation.variants {
        code.variants.push((pc, variants));
    }
    code.ops.push(op);
}
