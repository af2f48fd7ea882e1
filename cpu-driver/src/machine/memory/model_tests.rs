//! Memory against a model that is obvious at a glance: a list of allocations.

use proptest::prelude::*;
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};

use super::*;

const CAPACITY: u64 = 64 << 20;

#[derive(Debug, Clone)]
enum Step {
    Allocate {
        bytes: u64,
        kind: AllocationKind,
        read_only: bool,
    },
    /// Frees the live allocation at this index (modulo their number).
    Free(usize),
    /// Frees an address that lies this far from an allocation's start.
    FreeWrong(usize, i64),
    /// Looks at addresses around an allocation's start, or its end.
    Probe {
        index: usize,
        end: bool,
        by: i64,
        size: u32,
    },
}

fn step() -> impl Strategy<Value = Step> {
    let kind = prop_oneof![
        4 => Just(AllocationKind::Device),
        2 => Just(AllocationKind::Pool),
        1 => Just(AllocationKind::Managed),
        1 => Just(AllocationKind::HostPinned),
        1 => Just(AllocationKind::Module),
    ];
    let bytes = prop_oneof![1..600_u64, 1..100_000_u64, 900_000..5_000_000_u64];
    let far = prop_oneof![-9..9_i64, -600..600_i64, -5_000_000..5_000_000_i64];
    let size = prop_oneof![1..9_u32, 1..64_u32];
    prop_oneof![
        5 => (bytes, kind, prop::bool::weighted(0.1)).prop_map(|(bytes, kind, read_only)| {
            let read_only = read_only && kind == AllocationKind::Module;
            Step::Allocate { bytes, kind, read_only }
        }),
        3 => any::<usize>().prop_map(Step::Free),
        1 => (any::<usize>(), -600..600_i64).prop_map(|(index, by)| Step::FreeWrong(index, by)),
        6 => (any::<usize>(), any::<bool>(), far, size)
            .prop_map(|(index, end, by, size)| Step::Probe { index, end, by, size }),
    ]
}

struct Model<'m> {
    memory: &'m Memory,
    view: View<'m>,
    /// With the byte that fills each.
    live: Vec<(Allocation, u8)>,
    freed: Vec<Allocation>,
}

impl Model<'_> {
    fn apply(&mut self, step: &Step) -> Result<(), TestCaseError> {
        match *step {
            Step::Allocate {
                bytes,
                kind,
                read_only,
            } => self.allocate(bytes, kind, read_only),
            Step::Free(index) => self.free(index),
            Step::FreeWrong(index, by) => self.free_wrong(index, by),
            Step::Probe {
                index,
                end,
                by,
                size,
            } => self.probe(index, end, by, size),
        }
    }

    fn used(&self) -> u64 {
        let pinned = |kind| kind == AllocationKind::HostPinned;
        let sizes = self.live.iter().filter(|(a, _)| !pinned(a.kind));
        sizes.map(|(a, _)| a.bytes.next_multiple_of(GRANULE)).sum()
    }

    fn allocate(
        &mut self,
        bytes: u64,
        kind: AllocationKind,
        read_only: bool,
    ) -> Result<(), TestCaseError> {
        let mut request = Request::new(kind, bytes, 1);
        request.read_only = read_only;
        let fits = kind == AllocationKind::HostPinned
            || bytes.next_multiple_of(GRANULE) <= CAPACITY - self.used();
        let allocation = match self.memory.allocate(request) {
            Ok(allocation) => allocation,
            Err(error) => {
                prop_assert!(!fits, "{bytes} bytes fit, but: {error}");
                return Ok(());
            }
        };
        prop_assert!(fits, "{bytes} bytes beyond the capacity were given");
        prop_assert_eq!(allocation.base % GRANULE, 0);
        for (other, _) in &self.live {
            let apart = allocation.range().end + GRANULE <= other.base
                || other.range().end + GRANULE <= allocation.base;
            prop_assert!(
                apart,
                "{allocation:?} is not {GRANULE} bytes from {other:?}"
            );
        }
        self.freed
            .retain(|old| old.range().end <= allocation.base || old.base >= allocation.range().end);
        let fill = allocation.serial as u8;
        self.memory
            .fill(allocation.base, &[fill], bytes)
            .expect("inside");
        self.live.push((allocation, fill));
        Ok(())
    }

    fn free(&mut self, index: usize) -> Result<(), TestCaseError> {
        if self.live.is_empty() {
            return Ok(());
        }
        let (allocation, fill) = self.live.swap_remove(index % self.live.len());
        let mut content = vec![0; allocation.bytes as usize];
        self.memory
            .read(allocation.base, &mut content)
            .expect("live");
        prop_assert!(
            content == vec![fill; content.len()],
            "somebody else wrote here"
        );
        let freed = self.memory.free(allocation.base).expect("live");
        prop_assert_eq!(freed.serial, allocation.serial);
        if let Err(error) = self.memory.free(allocation.base) {
            let twice = matches!(error, MemoryError::DoubleFree { .. });
            // Host addresses leave the table with the quarantine.
            prop_assert!(twice || allocation.kind.is_host(), "{error}");
        } else {
            return Err(TestCaseError::fail("a double free went through"));
        }
        self.freed.push(freed);
        Ok(())
    }

    fn free_wrong(&mut self, index: usize, by: i64) -> Result<(), TestCaseError> {
        let Some(address) = self.around(index, false, by) else {
            return Ok(());
        };
        if self.live.iter().any(|(a, _)| a.base == address) {
            return Ok(());
        }
        prop_assert!(self.memory.free(address).is_err());
        Ok(())
    }

    fn around(&self, index: usize, end: bool, by: i64) -> Option<u64> {
        let (allocation, _) = self.live.get(index % self.live.len().max(1))?;
        let range = allocation.range();
        let from = if end { range.end } else { range.start };
        Some(from.wrapping_add_signed(by))
    }

    fn probe(&mut self, index: usize, end: bool, by: i64, size: u32) -> Result<(), TestCaseError> {
        let Some(address) = self.around(index, end, by) else {
            return Ok(());
        };
        let end = address + u64::from(size);
        // A view that has just used the allocation must not widen it.
        let _ = self
            .around(index, false, 0)
            .map(|base| self.view.span::<true>(base, base + 1));
        let holder = self
            .live
            .iter()
            .map(|(a, _)| a)
            .find(|a| a.range().contains(&address));
        let inside = holder.filter(|a| end <= a.range().end);
        let checked = self.view.span::<true>(address, end);
        prop_assert_eq!(
            checked.is_some(),
            inside.is_some(),
            "{:#x} + {}",
            address,
            size
        );
        let stored = self.view.span_mut::<true>(address, end);
        prop_assert_eq!(stored.is_some(), inside.is_some_and(|a| !a.read_only));
        let found = self.memory.find(address);
        prop_assert_eq!(found.as_ref(), holder);
        let unchecked = self.view.span::<false>(address, end);
        if let Some(pointer) = checked {
            prop_assert_eq!(
                unchecked,
                Some(pointer),
                "legal checked, so legal unchecked"
            );
            // SAFETY: the span is live and nobody else runs.
            let first = unsafe { pointer.read() };
            let fill = self.live.iter().find(|(a, _)| a.range().contains(&address));
            prop_assert_eq!(Some(first), fill.map(|(_, fill)| *fill));
        }
        self.check_nearest(address)
    }

    fn check_nearest(&self, address: u64) -> Result<(), TestCaseError> {
        let distance = |a: &Allocation| match address {
            at if at < a.base => a.base - at,
            at if at >= a.range().end => at - a.range().end + 1,
            _ => 0,
        };
        let best = self.live.iter().map(|(a, _)| distance(a)).min();
        let found = self.memory.nearest(address).expect("something is live");
        if found.allocation.freed {
            prop_assert!(found.allocation.range().contains(&address));
            prop_assert!(self.memory.find(address).is_none());
            return Ok(());
        }
        let told = match found.relation {
            Relation::Before(told) | Relation::After(told) => told,
            Relation::Inside(_) => 0,
        };
        prop_assert_eq!(Some(distance(&found.allocation)), best);
        prop_assert_eq!(Some(told), best);
        Ok(())
    }
}

fn run(strict: bool, quarantine_bytes: u64) {
    let seed = *b"allocator against a model, seed1";
    let mut runner = TestRunner::new_with_rng(
        Config {
            cases: 40,
            failure_persistence: None,
            ..Config::default()
        },
        TestRng::from_seed(RngAlgorithm::ChaCha, &seed),
    );
    let steps = prop::collection::vec(step(), 1..120);
    runner
        .run(&steps, |steps| {
            let mut options = MemoryOptions::unchecked(CAPACITY);
            options.strict = strict;
            options.quarantine_bytes = quarantine_bytes;
            let memory = Memory::new(options).expect("address space");
            let mut model = Model {
                view: memory.view(),
                memory: &memory,
                live: Vec::new(),
                freed: Vec::new(),
            };
            for step in &steps {
                model.apply(step)?;
                prop_assert_eq!(memory.usage(0).free, CAPACITY - model.used());
            }
            prop_assert_eq!(memory.live(None).len(), model.live.len());
            Ok(())
        })
        .unwrap();
}

#[test]
fn memory_agrees_with_a_list_of_allocations_without_quarantine() {
    run(false, 0);
}

#[test]
fn memory_agrees_with_a_list_of_allocations_with_a_small_quarantine() {
    run(false, 1 << 20);
}

#[test]
fn memory_agrees_with_a_list_of_allocations_when_strict() {
    run(true, CAPACITY);
}
