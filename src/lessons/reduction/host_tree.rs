//! `blockTreeSum` simulated on the host.

use super::launch::{BlockTree, THREADS};
use crate::device::DeviceError;
use crate::harness::poison;

/// A stand-in for the device: the same tree, the same `f32` additions in the same
/// order, one block after the other. It stands in for the launch and the kernel;
/// it is no oracle.
#[derive(Clone, Copy, Debug, Default)]
pub struct HostTree;

impl BlockTree for HostTree {
    fn partials(&mut self, input: &[f32], blocks: usize) -> Result<Vec<f32>, DeviceError> {
        let mut partials = poison::floats(blocks);
        for (block, partial) in partials.iter_mut().enumerate() {
            *partial = block_sum(input, block);
        }
        Ok(partials)
    }

    fn banner(&self) -> String {
        "device: none, by request (--stand-in): blockTreeSum is simulated on the host".to_owned()
    }
}

/// One block: load with the guard, then halve the active threads.
fn block_sum(input: &[f32], block: usize) -> f32 {
    let mut cell = [0.0_f32; THREADS];
    for (thread, cell) in cell.iter_mut().enumerate() {
        *cell = input
            .get(block * THREADS + thread)
            .copied()
            .unwrap_or_default();
    }
    let mut half = THREADS / 2;
    while half > 0 {
        for thread in 0..half {
            cell[thread] += cell[thread + half];
        }
        half /= 2;
    }
    cell[0]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tree_adds_in_the_kernels_order_and_not_left_to_right() {
        // 2^24 + 1 rounds back to 2^24. Left to right, all 255 ones are lost;
        // in the tree only the one that meets 2^24 directly is at first.
        let mut input = vec![1.0_f32; THREADS];
        input[0] = 16_777_216.0;
        let left_to_right: f32 = input.iter().sum();
        assert_eq!(left_to_right, 16_777_216.0);
        // Each level adds its partner to cell 0: 1 (lost), 2, 4, ... 128.
        assert_eq!(block_sum(&input, 0), 16_777_216.0 + 254.0);
    }

    #[test]
    fn threads_past_the_end_add_nothing() {
        let input = vec![0.5_f32; 257];
        let partials = HostTree.partials(&input, 2).unwrap();
        assert_eq!(partials, [128.0, 0.5]);
    }
}
