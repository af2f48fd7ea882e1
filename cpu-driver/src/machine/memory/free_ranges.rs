//! Unused addresses: best fit over coalesced ranges.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

#[derive(Debug, Default)]
pub(super) struct FreeRanges {
    /// start → length
    by_start: BTreeMap<u64, u64>,
    /// (length, start)
    by_length: BTreeSet<(u64, u64)>,
}

impl FreeRanges {
    pub(super) fn new(range: &Range<u64>) -> Self {
        let mut free = Self::default();
        free.insert(range.start, range.end - range.start);
        free
    }

    /// Takes `length` addresses from the low end of the tightest range.
    pub(super) fn take_low(&mut self, length: u64, align: u64) -> Option<u64> {
        self.take(length, |start, end| {
            let at = start.checked_next_multiple_of(align)?;
            (at.checked_add(length)? <= end).then_some(at)
        })
    }

    /// Takes `length` addresses from the high end of the tightest range.
    pub(super) fn take_high(&mut self, length: u64, align: u64) -> Option<u64> {
        self.take(length, |start, end| {
            let at = end.checked_sub(length)? & !(align - 1);
            (at >= start).then_some(at)
        })
    }

    fn take(&mut self, length: u64, place: impl Fn(u64, u64) -> Option<u64>) -> Option<u64> {
        let (found, start, at) = self
            .by_length
            .range((length, 0)..)
            .find_map(|&(found, start)| place(start, start + found).map(|at| (found, start, at)))?;
        self.remove(start, found);
        self.insert(start, at - start);
        self.insert(at + length, start + found - (at + length));
        Some(at)
    }

    /// Gives a range back and joins it with its neighbours.
    pub(super) fn give(&mut self, range: &Range<u64>) {
        let (mut start, mut end) = (range.start, range.end);
        if let Some((&before, &length)) = self.by_start.range(..start).next_back()
            && before + length == start
        {
            self.remove(before, length);
            start = before;
        }
        if let Some(&length) = self.by_start.get(&end) {
            self.remove(end, length);
            end += length;
        }
        self.insert(start, end - start);
    }

    fn insert(&mut self, start: u64, length: u64) {
        if length > 0 {
            self.by_start.insert(start, length);
            self.by_length.insert((length, start));
        }
    }

    fn remove(&mut self, start: u64, length: u64) {
        self.by_start.remove(&start);
        self.by_length.remove(&(length, start));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn everything_given_back_is_one_range_again() {
        let whole = 4096..1_000_000;
        let mut free = FreeRanges::new(&whole);
        let mut taken = Vec::new();
        for step in 0..200_u64 {
            let (length, align) = (step * 37 % 900 + 1, 1 << (step % 8));
            let at = if step % 3 == 0 {
                free.take_high(length, align)
            } else {
                free.take_low(length, align)
            };
            let at = at.expect("room for all");
            assert_eq!(at % align, 0);
            assert!(at >= whole.start && at + length <= whole.end);
            assert!(
                taken
                    .iter()
                    .all(|other: &Range<u64>| other.end <= at || at + length <= other.start),
                "{at} + {length} overlaps"
            );
            taken.push(at..at + length);
            if step % 5 == 4 {
                free.give(&taken.swap_remove((step * 7) as usize % taken.len()));
            }
        }
        for range in &taken {
            free.give(range);
        }
        assert_eq!(free.by_start, BTreeMap::from([(4096, 1_000_000 - 4096)]));
        assert_eq!(free.by_length.len(), 1);
    }

    #[test]
    fn nothing_is_found_where_nothing_fits() {
        let mut free = FreeRanges::new(&(512..1024));
        assert_eq!(free.take_low(513, 1), None);
        assert_eq!(free.take_low(1, 2048), None);
        assert_eq!(free.take_high(512, 1024), None);
        assert_eq!(free.take_high(512, 512), Some(512));
        assert_eq!(free.take_low(1, 1), None);
    }
}
