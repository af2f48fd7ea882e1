//! The control-flow graph of a function and its immediate post-dominators.
//!
//! Post-dominators by the iterative algorithm of Cooper, Harvey and Kennedy,
//! "A Simple, Fast Dominance Algorithm" (2001), on the reversed graph with a
//! virtual exit.

use super::operation::{Flow, Operation};

/// A straight run of operations.
#[derive(Debug, Clone, Default)]
pub struct Block {
    pub start: usize,
    pub end: usize,
    pub successors: Vec<usize>,
    /// Block where divergent lanes meet again; `None` where that is only the
    /// end of the function.
    pub meets: Option<usize>,
}

/// Divides operations into blocks. `labels` gives each label's operation.
pub fn blocks(operations: &[Operation], labels: &[usize]) -> Vec<Block> {
    let count = operations.len();
    let mut leader = vec![false; count + 1];
    leader[0] = true;
    for at in labels {
        if *at <= count {
            leader[*at] = true;
        }
    }
    for (at, operation) in operations.iter().enumerate() {
        if operation.flow != Flow::Next {
            leader[at + 1] = true;
        }
    }
    let starts: Vec<usize> = (0..count).filter(|at| leader[*at]).collect();
    let mut block_at = vec![usize::MAX; count + 1];
    for (block, start) in starts.iter().enumerate() {
        block_at[*start] = block;
    }
    let to = |label: u32| block_at.get(labels[label as usize]).copied();
    let mut blocks: Vec<Block> = Vec::with_capacity(starts.len());
    for (at, start) in starts.iter().enumerate() {
        let end = starts.get(at + 1).copied().unwrap_or(count);
        let mut successors: Vec<usize> = match &operations[end - 1].flow {
            Flow::Next => vec![at + 1],
            Flow::Jump(label) => to(*label).into_iter().collect(),
            Flow::Branch(label) => to(*label).into_iter().chain([at + 1]).collect(),
            Flow::Table(table) => table.iter().filter_map(|label| to(*label)).collect(),
            Flow::Leave => Vec::new(),
        };
        successors.retain(|s| *s < starts.len());
        successors.sort_unstable();
        successors.dedup();
        blocks.push(Block {
            start: *start,
            end,
            successors,
            meets: None,
        });
    }
    post_dominators(&mut blocks);
    blocks
}

fn post_dominators(blocks: &mut [Block]) {
    let exit = blocks.len();
    let order = reverse_post_order(blocks);
    let mut rank = vec![usize::MAX; exit + 1];
    for (at, block) in order.iter().enumerate() {
        rank[*block] = at;
    }
    let mut dominator = vec![usize::MAX; exit + 1];
    dominator[exit] = exit;
    let meet = |dominator: &[usize], mut a: usize, mut b: usize| {
        while a != b {
            while rank[a] > rank[b] {
                a = dominator[a];
            }
            while rank[b] > rank[a] {
                b = dominator[b];
            }
        }
        a
    };
    let mut changed = true;
    while changed {
        changed = false;
        for block in order.iter().skip(1) {
            let mut new = usize::MAX;
            for successor in forward(blocks, *block) {
                if dominator[successor] == usize::MAX {
                    continue;
                }
                new = if new == usize::MAX {
                    successor
                } else {
                    meet(&dominator, successor, new)
                };
            }
            if new != dominator[*block] {
                dominator[*block] = new;
                changed = true;
            }
        }
    }
    for at in 0..exit {
        let meets = dominator[at];
        blocks[at].meets = (meets < exit).then_some(meets);
    }
}

/// Successors, with the virtual exit behind blocks that leave.
fn forward(blocks: &[Block], block: usize) -> Vec<usize> {
    if blocks[block].successors.is_empty() {
        vec![blocks.len()]
    } else {
        blocks[block].successors.clone()
    }
}

/// Reverse post-order of the reversed graph, from the virtual exit. Blocks
/// from which the exit cannot be reached (endless loops) are not in it.
fn reverse_post_order(blocks: &[Block]) -> Vec<usize> {
    let exit = blocks.len();
    let mut predecessors = vec![Vec::new(); exit + 1];
    for block in 0..exit {
        for successor in forward(blocks, block) {
            predecessors[successor].push(block);
        }
    }
    let mut seen = vec![false; exit + 1];
    let mut post = Vec::with_capacity(exit + 1);
    let mut stack = vec![(exit, 0)];
    seen[exit] = true;
    while let Some((block, next)) = stack.pop() {
        if let Some(predecessor) = predecessors[block].get(next) {
            stack.push((block, next + 1));
            if !seen[*predecessor] {
                seen[*predecessor] = true;
                stack.push((*predecessor, 0));
            }
        } else {
            post.push(block);
        }
    }
    post.reverse();
    post
}
