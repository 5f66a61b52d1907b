//! In steady state a cache performs almost no allocations, whatever the operations: nodes come from
//! slabs, and the memory for events, removals and notifications is reused. An overflow group of
//! the table is allocated now and then, for new keys. A hit of a loading method allocates nothing.
//! A miss allocates as often as this file says.
//!
//! And how much a full cache allocates for an entry: as much as `Policy::memory_per_entry` and the
//! table in the documentation of `max_capacity` say.
// Under sanitizers, each node is an allocation of its own.
#![cfg(not(wheelhouse_single))]
#![allow(unsafe_code)]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::future::{pending, ready};
use std::pin::pin;
use std::ptr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::task::{Context, Waker};
use std::thread::{self, Scope};
use std::time::Duration;
use wheelhouse::{Cache, CacheBuilder, EvictionPolicy, LoadingCache, ManualTicker, Scheduler};
use wheelhouse::{async_loader_fn, expiry, loader_fn, refresh};

struct Counting;

/// Allocations of the threads that are counted.
static ALLOCATIONS: AtomicU64 = AtomicU64::new(0);

/// The tests take turns: the threads that call listeners serve the caches of all of them.
static TURN: Mutex<()> = Mutex::new(());

fn turn() -> MutexGuard<'static, ()> {
    TURN.lock().unwrap_or_else(PoisonError::into_inner)
}

thread_local! {
    /// Whether the allocations of this thread are counted. Those of another test are not.
    static IS_COUNTED: Cell<bool> = const { Cell::new(false) };
    /// Bytes that this thread has allocated, less those that it has freed.
    static BYTES: Cell<i64> = const { Cell::new(0) };
    /// The largest allocation that this thread may have, and how many of them it may still have.
    static LARGE: Cell<(usize, u32)> = const { Cell::new((usize::MAX, 0)) };
}

/// Whether this thread gets no memory of this size.
fn refuses(size: usize) -> bool {
    let (from, left) = LARGE.get();
    if size < from {
        return false;
    }
    LARGE.set((from, left.saturating_sub(1)));
    left == 0
}

fn add_bytes(bytes: i64) {
    BYTES.set(BYTES.get() + bytes);
}

fn count_one() {
    if IS_COUNTED.get() {
        ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
    }
}

// SAFETY: the system's allocator does all the work; this one only adds to a counter.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        if refuses(layout.size()) {
            return ptr::null_mut();
        }
        count_one();
        add_bytes(layout.size() as i64);
        // SAFETY: the caller's promise is passed on.
        unsafe { System.alloc(layout) }
    }

    // The system's own: it does not touch memory that is zero already.
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        if refuses(layout.size()) {
            return ptr::null_mut();
        }
        count_one();
        // SAFETY: the caller's promise is passed on.
        let at = unsafe { System.alloc_zeroed(layout) };
        if !at.is_null() {
            add_bytes(layout.size() as i64);
        }
        at
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        add_bytes(-(layout.size() as i64));
        // SAFETY: the caller's promise is passed on.
        unsafe { System.dealloc(at, layout) }
    }

    unsafe fn realloc(&self, at: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        count_one();
        add_bytes(size as i64 - layout.size() as i64);
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
        // The first removals come while it warms up.
        let listener = |_: &u64, _: &u64, _| IS_COUNTED.set(true);
        builder.removal_listener(listener).build()
    } else {
        builder.build()
    };
    let run = |numbers: std::ops::Range<u64>| {
        for number in numbers {
            operate(&cache, &clock, number);
            if number % RUNS == 0 {
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

/// The table would take 128 MiB. The system provides the pages that are written to.
#[test]
#[cfg(all(target_os = "linux", target_env = "gnu"))]
fn a_large_table_without_entries_takes_no_pages() {
    let _turn = turn();
    let resident = || {
        let report = std::fs::read_to_string("/proc/self/status").expect("proc is mounted");
        let line = report.lines().find_map(|line| line.strip_prefix("VmRSS:"));
        let kib = line.expect("the kernel reports it").trim();
        let kib = kib.strip_suffix("kB").expect("its unit").trim();
        kib.parse::<u64>().expect("a number")
    };
    // A bound as small as this one has one shard.
    let settings = || Cache::<u64, u64>::builder().max_capacity(100);
    // Initialized by the first cache of the process.
    drop(settings().build());
    let before = resident();
    let cache = settings().initial_capacity(10 << 20).build();
    let taken = resident().saturating_sub(before);
    assert!(taken < 16 << 10, "{taken} KiB");
    cache.insert(1, 1);
    assert_eq!(cache.get(&1), Some(1));
}

#[test]
fn room_that_the_allocator_refuses_is_an_error_of_try_build_and_leaks_nothing() {
    let _turn = turn();
    const MIB: usize = 1 << 20;
    // There are four shards for each core, and a shard of so many entries has a table of 2 MiB.
    let cores = thread::available_parallelism().map_or(1, |cores| cores.get());
    let entries = (4 * cores.next_power_of_two()).min(1024) << 17;
    let settings = |entries| Cache::<u64, u64>::builder().initial_capacity(entries);
    // Initialized by the first cache of the process.
    drop(settings(0).build());
    for given in 0..4 {
        let before = BYTES.get();
        // The tables of some shards get memory, the next one does not.
        LARGE.set((MIB, given));
        let refused = settings(entries).name("huge").try_build();
        LARGE.set((usize::MAX, 0));
        let message = refused.expect_err("memory was refused").to_string();
        let setting = format!("initial_capacity is {entries}");
        for part in ["\"huge\"", &setting, "refused", "bytes"] {
            assert!(message.contains(part), "{part} in {message}");
        }
        drop((message, setting));
        assert_eq!(BYTES.get(), before, "{given} tables had memory");
    }
    // A smaller one works.
    LARGE.set((MIB, 0));
    let cache = settings(1 << 10).build();
    LARGE.set((usize::MAX, 0));
    cache.insert(1, 1);
    assert_eq!(cache.get(&1), Some(1));
}

#[test]
fn in_steady_state_a_cache_performs_almost_no_allocations() {
    let _turn = turn();
    IS_COUNTED.set(true);
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
    // The loads of the two calls, their boxes, and what keeps a call that waits; none to wake it.
    let turns = |_| {
        let mut cx = Context::from_waker(Waker::noop());
        let first = cache.entry(1).and_upsert_with_async(|_| pending());
        let mut first = Box::pin(first);
        assert!(first.as_mut().poll(&mut cx).is_pending());
        let mut next = pin!(cache.entry(1).and_upsert_with_async(|_| ready(1)));
        assert!(next.as_mut().poll(&mut cx).is_pending());
        drop(first);
        assert!(next.poll(&mut cx).is_ready());
    };
    assert_eq!(for_each(turns, || ()), 13, "a turn of a compute that waits");
    // Two allocations: the load, which waiters would join, and the box of the caller's value. A
    // loader's future is in a box, too. The load of an async loader is a task: its boxes, the
    // call's place among the waiters, and the value that they share.
    let misses: [(Call<'_>, &Cache<u64, u64>); 5] = [
        (
            ("insert", 0, Box::new(|key| cache.insert(key + 10_000, 1))),
            &cache,
        ),
        (
            (
                "get_with",
                2,
                Box::new(|key| _ = cache.get_with(key + 10, || 1)),
            ),
            &cache,
        ),
        (
            (
                "get_with_async",
                2,
                Box::new(|key| poll(std::pin::pin!(cache.get_with_async(key + 10, async { 1 })))),
            ),
            &cache,
        ),
        (
            (
                "LoadingCache::get",
                3,
                Box::new(|key| assert!(users.get(&(key + 10)).is_ok())),
            ),
            users.cache(),
        ),
        (
            (
                "LoadingCache::get_async",
                10,
                Box::new(|key| {
                    poll(std::pin::pin!(async {
                        with_futures.get_async(&(key + 10)).await.unwrap()
                    }))
                }),
            ),
            with_futures.cache(),
        ),
    ];
    for ((name, count, call), cache) in misses {
        let made = for_each(call, || cache.run_pending_tasks());
        println!("a miss of {name}: {made}");
        let of_graces = u64::from(cfg!(feature = "crossbeam-epoch"));
        assert!(made <= count + of_graces, "a miss of {name}: {made}");
    }
}

/// The rows of the table at `CacheBuilder::max_capacity`.
const TABLE: [(&str, [u64; 3]); 4] = [
    ("8 + 8", [96, 121, 134]),
    ("24 + 24", [135, 160, 173]),
    ("24 + 64", [180, 206, 218]),
    ("8 + 128", [225, 251, 264]),
];

/// Always with the same seeds: by another hash, one shard's table may have doubled and another's
/// not, and the sum would differ from run to run.
type Hashing = ahash::RandomState;
type Builder<K, V> = CacheBuilder<K, V, Hashing>;
type Settings<K, V> = fn(Builder<K, V>, u64) -> Builder<K, V>;

/// What the columns of that table mean.
fn columns<K: 'static, V: 'static>() -> [Settings<K, V>; 3] {
    let unbounded: Settings<K, V> = |builder, _| builder;
    let bounded: Settings<K, V> = |builder, most| builder.max_capacity(most);
    let all: Settings<K, V> = |builder, most| {
        let builder = builder.max_capacity(most).weigher(|_, _| 1);
        let policy = expiry::writing(|_: &K, _: &V| Some(Duration::from_secs(300)));
        builder
            .expire_after(policy)
            .time_to_idle(Duration::from_secs(60))
    };
    [unbounded, bounded, all]
}

/// Fills a cache, and returns what it says of an entry, and what it has allocated for one.
fn said_and_seen<const KEY: usize, const VALUE: usize>(
    settings: Settings<[u64; KEY], [u64; VALUE]>,
    entries: u64,
    deadlines: bool,
) -> (u64, f64) {
    // Each part keeps some room for what is being freed, too much for the few entries here.
    let builder = Cache::builder()
        .parts(1)
        .ticker(ManualTicker::new())
        .hasher(Hashing::with_seeds(1, 2, 3, 4));
    let cache: Cache<[u64; KEY], [u64; VALUE], Hashing> = settings(builder, entries).build();
    let before = BYTES.get();
    // A bounded cache is full, and has evicted.
    let turns = 1 + u64::from(cache.policy().max_capacity().is_some());
    for number in 0..turns * entries {
        let (key, value) = ([number; KEY], [number; VALUE]);
        if deadlines {
            cache.insert_with_ttl(key, value, Duration::from_secs(number % 100 + 1));
        } else {
            cache.insert(key, value);
        }
        if number % 256 == 0 {
            cache.run_pending_tasks();
        }
    }
    // What was evicted is freed.
    (0..3).for_each(|_| cache.run_pending_tasks());
    assert_eq!(cache.entry_count(), entries);
    let full = BYTES.get() - before;
    let said = cache.policy().memory_per_entry();
    (said, full as f64 / entries as f64)
}

/// Checks a row of the table, with as many entries as these; each column in a thread of its own,
/// which does all that its caches do.
fn check_row<'s, const KEY: usize, const VALUE: usize>(
    scope: &'s Scope<'s, '_>,
    row: usize,
    counts: &'s [u64],
) {
    let (sizes, figures) = TABLE[row];
    let shown = figures.map(|figure| figure.to_string()).join(" | ");
    let documentation = include_str!("../src/cache/builder.rs");
    let line = format!("/// | {sizes} | {shown} |");
    assert!(documentation.contains(&line), "the table has no row {line}");
    // The number of shards, which have their own chunks, follows the number of cores.
    let cores = std::thread::available_parallelism().map_or(2, |cores| cores.get() as u64);
    for (settings, figure) in columns().into_iter().zip(figures) {
        scope.spawn(move || {
            for entries in counts.iter().map(|count| count * cores.max(2) / 2) {
                // A deadline of its own makes no entry larger.
                for deadlines in [false, true] {
                    let (said, seen) = said_and_seen::<KEY, VALUE>(settings, entries, deadlines);
                    println!("{sizes}, {entries} entries: {said} bytes each, seen {seen:.1}");
                    assert_eq!(said, figure);
                    let error = seen / said as f64 - 1.0;
                    assert!(
                        error.abs() <= 0.1,
                        "{said} bytes are said, {seen} are taken"
                    );
                }
            }
        });
    }
}

#[test]
fn an_entry_takes_as_much_memory_as_the_cache_says() {
    let _turn = turn();
    std::thread::scope(|scope| {
        // From one doubling of the table to the next.
        check_row::<1, 1>(scope, 0, &[20_000, 41_000, 60_000]);
        check_row::<3, 3>(scope, 1, &[30_000]);
        check_row::<3, 8>(scope, 2, &[30_000]);
        check_row::<1, 16>(scope, 3, &[30_000]);
    });
    // The other size policy keeps nothing of what has left.
    let lru = Cache::<u64, u64>::builder()
        .max_capacity(10)
        .eviction_policy(EvictionPolicy::Lru)
        .build();
    assert_eq!(lru.policy().memory_per_entry(), TABLE[0].1[1] - 8);
}
