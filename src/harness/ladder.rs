//! Sizes at which indexing bugs show.
//!
//! A size that the tile divides never takes the guard; a size that nothing
//! divides takes it on every launch. A ladder holds both, for each tile: whole
//! tiles (remainder 0), one element over, a part of a tile, and one element short
//! of the next. More than one tile belongs on it: a race can hide at 32 threads
//! and show at 64.

/// One size to test, and the tile it was chosen for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rung {
    /// Number of elements.
    pub n: usize,
    /// The tile (elements that one block covers).
    pub tile: usize,
}

/// Sizes in the order in which they should be tried.
///
/// From one tile upwards first, the sizes below one tile last: a launch that
/// rounds down cannot start at all below one tile, and the more telling failure
/// should be the first one named.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ladder {
    rungs: Vec<Rung>,
}

/// How many whole tiles stand before the remainder.
const WHOLE_TILES: [usize; 3] = [1, 4, 64];

impl Ladder {
    /// The ladder for one tile.
    ///
    /// Remainders are 0, 1, 99 parts of 256, and one short of a tile; for a tile
    /// of 256 that is 0, 1, 99 and 255.
    ///
    /// # Panics
    /// For a tile of zero elements.
    pub fn for_tile(tile: usize) -> Self {
        assert!(tile > 0, "a tile holds at least one element");
        let remainders = remainders(tile);
        let whole = WHOLE_TILES
            .iter()
            .flat_map(|tiles| remainders.iter().map(move |r| tiles * tile + r));
        let below = remainders.iter().copied().filter(|&r| r > 0);
        Self {
            rungs: whole.chain(below).map(|n| Rung { n, tile }).collect(),
        }
    }

    /// The ladders of several tiles, one after the other.
    pub fn for_tiles(tiles: &[usize]) -> Self {
        Self {
            rungs: tiles
                .iter()
                .flat_map(|&tile| Self::for_tile(tile).rungs)
                .collect(),
        }
    }

    /// The rungs in order.
    pub fn rungs(&self) -> &[Rung] {
        &self.rungs
    }

    /// The sizes alone, in order.
    pub fn sizes(&self) -> Vec<usize> {
        self.rungs.iter().map(|rung| rung.n).collect()
    }
}

fn remainders(tile: usize) -> Vec<usize> {
    let part = (tile * 99).div_ceil(256);
    let mut remainders = vec![0, 1, part, tile - 1];
    remainders.retain(|&r| r < tile);
    remainders.sort_unstable();
    remainders.dedup();
    remainders
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn a_tile_of_256_gives_remainders_0_1_99_and_255() {
        let seen: BTreeSet<usize> = Ladder::for_tile(256)
            .rungs()
            .iter()
            .map(|rung| rung.n % rung.tile)
            .collect();
        assert_eq!(seen, BTreeSet::from([0, 1, 99, 255]));
    }

    #[test]
    fn every_tile_gets_whole_ragged_and_short_sizes_and_no_empty_one() {
        for tile in [1, 2, 3, 32, 64, 100, 256, 1_024] {
            let ladder = Ladder::for_tile(tile);
            assert!(ladder.sizes().iter().all(|&n| n > 0), "tile {tile}");
            assert!(ladder.sizes().contains(&tile));
            if tile > 1 {
                assert!(ladder.sizes().contains(&(tile + 1)), "tile {tile}");
                assert!(ladder.sizes().contains(&(5 * tile - 1)), "tile {tile}");
                assert!(ladder.sizes().contains(&(tile - 1)), "tile {tile}");
            }
        }
    }

    #[test]
    fn the_first_ragged_size_is_above_one_tile() {
        let ladder = Ladder::for_tile(256);
        let first = ladder.sizes().into_iter().find(|n| n % 256 != 0);
        assert_eq!(first, Some(257));
    }

    #[test]
    fn several_tiles_keep_their_own_sizes() {
        let tiles: BTreeSet<usize> = Ladder::for_tiles(&[64, 256])
            .rungs()
            .iter()
            .map(|rung| rung.tile)
            .collect();
        assert_eq!(tiles, BTreeSet::from([64, 256]));
    }
}
