//! In steady state a cache performs almost no allocations, whatever the operations: nodes come from
//! slabs, and the memory for events, removals and notifications is reused. An overflow group of
//! the table is allocated now and then, for new keys. A hit of a loading method allocates nothing.
//! A miss allocates as often as this file says.
// Under sanitizers, each node is an allocation of its own.
#![cfg(not(wheelhouse_single))]
#![allow(unsafe_code)]

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Waker};
use std::time::Duration;
use wheelhouse::{Cache, LoadingCache, ManualTicker, Scheduler, loader_fn};
use wheelhouse::{async_loader_fn, refresh};

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
            // Each run hands what it has posted to a listener's thread.
            let of_tasks = if listens { 10 } else { 0 };
            let most = if what == "hits" {
                0
            } else {
                5 + of_tasks + of_graces
            };
            assert!(count <= most, "{what}: {count} for a thousand operations");
        }
    }
    loading_methods();
}

/// Allocations of one call, as an average of many, after as many for warming up.
fn for_each(mut call: impl FnMut(u64), after: impl Fn()) -> u64 {
    let mut run = |numbers: std::ops::Range<u64>| {
        let mut count = 0;
        for number in numbers {
            let before = ALLOCATIONS.load(Ordering::Relaxed);
            call(number);
            count += ALLOCATIONS.load(Ordering::Relaxed) - before;
            // Nodes of former entries are freed.
            after();
        }
        count
    };
    run(0..2_000);
    let count = run(2_000..4_000);
    // Overflow groups of the table, and rings that grow, come seldom.
    (count + 1_000) / 2_000
}

fn loading_methods() {
    let builder = || {
        Cache::<u64, u64>::builder()
            .max_capacity(500)
            .time_to_live(Duration::from_secs(60))
            .ticker(ManualTicker::new())
    };
    let cache = builder().build();
    let words: Cache<String, u64> = Cache::new(10);
    words.insert("a long key that is in the cache".into(), 1);
    let users: LoadingCache<u64, u64, ()> = builder()
        .loading(loader_fn(|key: &u64| Ok(*key)))
        .refresh_after(refresh::fraction(0.5))
        .build();
    let with_futures: LoadingCache<u64, u64, ()> = builder()
        .loading(async_loader_fn(|key: &u64| std::future::ready(Ok(*key))))
        .spawner(|mut task| {
            let ready = task.as_mut().poll(&mut Context::from_waker(Waker::noop()));
            assert!(ready.is_ready());
        })
        .build();
    let poll = |future: std::pin::Pin<&mut dyn Future<Output = u64>>| {
        assert!(
            future
                .poll(&mut Context::from_waker(Waker::noop()))
                .is_ready()
        );
    };
    type Call<'a> = (&'a str, u64, Box<dyn FnMut(u64) + 'a>);
    let hits: [Call<'_>; 6] = [
        ("get_with", 0, Box::new(|_| _ = cache.get_with(1, || 1))),
        (
            "get_with_async",
            0,
            Box::new(|_| poll(std::pin::pin!(cache.get_with_async(1, async { 1 })))),
        ),
        ("entry", 0, Box::new(|_| _ = cache.entry(1).or_insert(1))),
        // The caller's own key.
        (
            "entry, async",
            1,
            Box::new(|_| {
                poll(std::pin::pin!(async {
                    let entry = words.entry(String::from("a long key that is in the cache"));
                    entry
                        .or_insert_with_async(|| async { 1 })
                        .await
                        .into_value()
                }))
            }),
        ),
        (
            "LoadingCache::get",
            0,
            Box::new(|_| assert_eq!(users.get(&1), Ok(1))),
        ),
        (
            "LoadingCache::get_async",
            0,
            Box::new(|_| {
                poll(std::pin::pin!(async {
                    with_futures.get_async(&1).await.unwrap()
                }))
            }),
        ),
    ];
    for (name, count, call) in hits {
        assert_eq!(for_each(call, || ()), count, "a hit of {name}");
    }
    // One allocation: the load, which waiters would join. That of an async loader is a task: its
    // boxes, the call's place among the waiters, and the value that they share.
    let misses: [Call<'_>; 5] = [
        ("insert", 0, Box::new(|key| cache.insert(key + 10_000, 1))),
        (
            "get_with",
            1,
            Box::new(|key| _ = cache.get_with(key + 10, || 1)),
        ),
        (
            "get_with_async",
            1,
            Box::new(|key| poll(std::pin::pin!(cache.get_with_async(key + 10, async { 1 })))),
        ),
        (
            "LoadingCache::get",
            1,
            Box::new(|key| assert!(users.get(&(key + 10)).is_ok())),
        ),
        (
            "LoadingCache::get_async",
            10,
            Box::new(|key| {
                poll(std::pin::pin!(async {
                    with_futures.get_async(&(key + 10)).await.unwrap()
                }))
            }),
        ),
    ];
    for (name, count, call) in misses {
        let after = || {
            for cache in [&cache, users.cache(), with_futures.cache()] {
                cache.run_pending_tasks();
            }
        };
        let made = for_each(call, after);
        println!("a miss of {name}: {made}");
        let of_graces = u64::from(cfg!(feature = "crossbeam-epoch"));
        assert!(made <= count + of_graces, "a miss of {name}: {made}");
    }
}
