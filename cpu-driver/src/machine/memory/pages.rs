//! Which pages are mapped: read without a lock by every access of a kernel.

use std::ops::Range;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use super::PAGE;
use super::layout::Layout;

/// The system's page: the unit in which memory is given back.
const SYSTEM_PAGE: u64 = 4096;
/// Freed pieces below this are kept, a system call would cost more.
const LEAST_TO_GIVE_BACK: u64 = 64 << 10;

pub(super) struct Pages {
    start: u64,
    /// One bit a page: holds a live allocation.
    mapped: Box<[AtomicU64]>,
    /// Live allocations that touch the page. Changed under the table's lock.
    holders: Box<[AtomicU32]>,
    /// One bit a page: its backing may be read and written.
    backed: Box<[AtomicU64]>,
}

impl Pages {
    pub(super) fn new(layout: &Layout) -> Self {
        let range = layout.allocatable();
        let pages = ((range.end - range.start).div_ceil(PAGE)) as usize;
        Self {
            start: range.start,
            mapped: zeroed_words(pages.div_ceil(64)),
            holders: (0..pages).map(|_| AtomicU32::new(0)).collect(),
            backed: zeroed_words(pages.div_ceil(64)),
        }
    }

    /// True where every byte of `lo..hi` lies in a mapped page.
    pub(super) fn are_mapped(&self, lo: u64, hi: u64) -> bool {
        if lo < self.start || hi <= lo {
            return false;
        }
        let first = (lo - self.start) / PAGE;
        let last = (hi - 1 - self.start) / PAGE;
        (first..=last).all(|page| self.is_mapped(page))
    }

    /// `page` counts from [`super::layout::Layout::allocatable`]'s start.
    #[inline(always)]
    pub(super) fn is_mapped(&self, page: u64) -> bool {
        self.mapped
            .get((page / 64) as usize)
            .is_some_and(|word| word.load(Ordering::Relaxed) >> (page % 64) & 1 == 1)
    }

    /// Counts an allocation in and makes its pages usable. False where the
    /// system has no memory for them; nothing has changed then.
    pub(super) fn map(&self, layout: &Layout, data: &Range<u64>) -> bool {
        let pages = self.touched(data);
        if !self.back(layout, &pages) {
            return false;
        }
        for page in pages {
            self.holders[page].fetch_add(1, Ordering::Relaxed);
            self.mapped[page / 64].fetch_or(1 << (page % 64), Ordering::Release);
        }
        true
    }

    /// Counts an allocation out and gives its memory back to the system.
    pub(super) fn unmap(&self, layout: &Layout, data: &Range<u64>) {
        let pages = self.touched(data);
        for page in pages {
            if self.holders[page].fetch_sub(1, Ordering::Relaxed) == 1 {
                self.mapped[page / 64].fetch_and(!(1 << (page % 64)), Ordering::Release);
            }
        }
        let inner = whole(data.start, data.end);
        if !inner.is_empty() {
            give_back(layout, &inner);
        }
    }

    fn back(&self, layout: &Layout, pages: &Range<usize>) -> bool {
        let mut missing = pages.clone().filter(|&page| !self.is_backed(page));
        let Some(first) = missing.next() else {
            return true;
        };
        let last = missing.next_back().unwrap_or(first);
        let start = self.start + first as u64 * PAGE;
        let bytes = (last - first + 1) * PAGE as usize;
        // SAFETY: the range lies inside our own backing reservation; pages in
        // between that are backed already keep their rights and contents.
        let rc = unsafe {
            libc::mprotect(
                layout.backing(start).cast(),
                bytes,
                libc::PROT_READ | libc::PROT_WRITE,
            )
        };
        if rc != 0 {
            return false;
        }
        for page in first..=last {
            self.backed[page / 64].fetch_or(1 << (page % 64), Ordering::Relaxed);
        }
        true
    }

    fn is_backed(&self, page: usize) -> bool {
        self.backed[page / 64].load(Ordering::Relaxed) >> (page % 64) & 1 == 1
    }

    fn touched(&self, data: &Range<u64>) -> Range<usize> {
        let first = (data.start - self.start) / PAGE;
        let last = (data.end - 1 - self.start) / PAGE;
        first as usize..last as usize + 1
    }
}

/// The system's pages inside `start..end`; empty where they are too few to be
/// worth a call.
pub(super) fn whole(start: u64, end: u64) -> Range<u64> {
    let inner = start.next_multiple_of(SYSTEM_PAGE)..end / SYSTEM_PAGE * SYSTEM_PAGE;
    if inner.start.saturating_add(LEAST_TO_GIVE_BACK) > inner.end {
        return start..start;
    }
    inner
}

/// Takes the memory from `inner`, which [`whole`] gave: it reads as zeros.
pub(super) fn give_back(layout: &Layout, inner: &Range<u64>) {
    // SAFETY: the range is private anonymous memory of our own backing and
    // nobody counts on its content; a late reader sees zeros.
    unsafe {
        libc::madvise(
            layout.backing(inner.start).cast(),
            (inner.end - inner.start) as usize,
            libc::MADV_DONTNEED,
        );
    }
}

fn zeroed_words(count: usize) -> Box<[AtomicU64]> {
    (0..count).map(|_| AtomicU64::new(0)).collect()
}
