//! In steady state a cache performs almost no allocations, whatever the operations: nodes come from
//! slabs, and the memory for events, removals and notifications is reused. An overflow bucket of
//! the table is allocated now and then, for new keys.
// Under sanitizers, each node is an allocation of its own.
#![cfg(not(wheelhouse_single))]
#![allow(unsafe_code)]

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use wheelhouse::{Cache, ManualTicker, Scheduler};

struct Counting;

static ALLOCATIONS: AtomicU64 = AtomicU64::new(0);

// SAFETY: the system's allocator does all the work; this one only adds to a counter.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
        // SAFETY: the caller's promise is passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        // SAFETY: the caller's promise is passed on.
        unsafe { System.dealloc(at, layout) }
    }

    unsafe fn realloc(&self, at: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
        // SAFETY: the caller's promise is passed on.
        unsafe { System.realloc(at, layout, size) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

const ENTRIES: u64 = 10_000;
const OPERATIONS: u64 = 30_000;
/// Operations from one run of maintenance to the next.
const RUNS: u64 = 100;

/// One kind of load on a cache, given the number of the operation.
type Use = fn(&Cache<u64, u64>, &ManualTicker, u64);

/// Allocations per thousand operations, after as many for warming up.
fn for_a_thousand(listens: bool, operate: Use) -> u64 {
    let clock = ManualTicker::new();
    let builder = Cache::builder()
        .max_capacity(ENTRIES)
        .time_to_live(Duration::from_secs(60))
        .ticker(clock.clone())
        .scheduler(Scheduler::disabled());
    let cache: Cache<u64, u64> = if listens {
        builder.removal_listener(|_, _, _| ()).build()
    } else {
        builder.build()
    };
    let run = |numbers: std::ops::Range<u64>| {
        for number in numbers {
            operate(&cache, &clock, number);
            if number.is_multiple_of(RUNS) {
                cache.run_pending_tasks();
            }
        }
    };
    (0..ENTRIES).for_each(|key| cache.insert(key, 0));
    run(0..OPERATIONS);
    let before = ALLOCATIONS.load(Ordering::Relaxed);
    run(OPERATIONS..2 * OPERATIONS);
    (ALLOCATIONS.load(Ordering::Relaxed) - before) * 1_000 / OPERATIONS
}

// A single test: the allocations of another one at the same time would be counted, too.
#[test]
fn in_steady_state_a_cache_performs_almost_no_allocations() {
    let uses: [(&str, Use); 5] = [
        ("hits", |cache, _, number| {
            cache.get(&(number % ENTRIES));
        }),
        ("inserts at capacity", |cache, _, number| {
            cache.insert(ENTRIES + number, number)
        }),
        ("replacements", |cache, _, number| {
            cache.insert(number % ENTRIES, number)
        }),
        ("inserts and removals", |cache, _, number| {
            cache.insert(ENTRIES + number, number);
            cache.invalidate(&(ENTRIES + number));
        }),
        ("inserts and expiries", |cache, clock, number| {
            cache.insert(ENTRIES + number, number);
            clock.advance(Duration::from_millis(100));
        }),
    ];
    for listens in [false, true] {
        for (what, operate) in uses {
            let count = for_a_thousand(listens, operate);
            println!("{what}, listener {listens}: {count} for a thousand operations");
            // No allocations for a run of maintenance or a grace period; there are ten of these.
            // crossbeam-epoch allocates for each grace period; there is one for 128 removals.
            let of_graces = if cfg!(feature = "crossbeam-epoch") {
                60
            } else {
                0
            };
            let most = if what == "hits" { 0 } else { 5 + of_graces };
            assert!(count <= most, "{what}: {count} for a thousand operations");
        }
    }
}
