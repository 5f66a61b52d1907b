//! Writers on every core while maintenance starves: a listener that does not return, a pass that is
//! stopped in the middle. Waiting work is bounded where this is guaranteed, no thread hangs, and no
//! write is lost. `excess_at_full_speed` tests how far writers alone exceed the bound.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use crate::support::{millis, secs, until};
use crate::{BATCH_HARD_LIMIT, cores, shards};
use wheelhouse::{Cache, ManualTicker, Scheduler, Ticker};

/// Longer than any action here takes, even on a loaded machine.
const SOON: Duration = secs(30);
/// How many writes to an unbounded cache may wait while this many threads write: full batches in
/// all shards, two more that a pass has taken, and what each thread adds before it notices.
fn slack(threads: usize) -> u64 {
    (shards() + 2) * BATCH_HARD_LIMIT + 2 * threads as u64
}

/// Closed or open; a thread that arrives while it is closed waits.
#[derive(Default)]
struct Barrier {
    shut: Mutex<bool>,
    opened: Condvar,
    waiting: AtomicBool,
}

impl Barrier {
    fn shut(&self) {
        *self.shut.lock().unwrap() = true;
    }

    fn open(&self) {
        *self.shut.lock().unwrap() = false;
        self.opened.notify_all();
    }

    fn pass(&self) {
        let shut = self.shut.lock().unwrap();
        self.waiting.store(*shut, Ordering::SeqCst);
        drop(self.opened.wait_timeout_while(shut, SOON, |shut| *shut));
    }
}

/// Opens the barrier when the test ends, also by a panic.
struct OpensAtLast(Arc<Barrier>);

impl Drop for OpensAtLast {
    fn drop(&mut self) {
        self.0.open();
    }
}

#[test]
fn a_listener_that_does_not_return_stops_no_writer_and_loses_nothing() {
    let _alone = crate::alone();
    const CAPACITY: u64 = 1_000;
    const EACH: u64 = 100_000;
    let (barrier, heard) = (
        Arc::new(Barrier::default()),
        Arc::new(Mutex::new(Vec::new())),
    );
    let _open = OpensAtLast(Arc::clone(&barrier));
    let (gate, record) = (Arc::clone(&barrier), Arc::clone(&heard));
    let cache: Cache<u64, u64> = Cache::builder()
        .max_capacity(CAPACITY)
        .removal_listener(move |_: &u64, &value: &u64, _| {
            gate.pass();
            record.lock().unwrap().push(value);
        })
        .build();
    barrier.shut();
    cache.insert(0, u64::MAX);
    cache.invalidate(&0);
    until("the listener", || barrier.waiting.load(Ordering::SeqCst));

    let threads = 2 * cores();
    let most = AtomicU64::new(0);
    let began = Instant::now();
    thread::scope(|scope| {
        for thread in 0..threads as u64 {
            let (cache, most) = (&cache, &most);
            scope.spawn(move || {
                for n in 0..EACH {
                    let value = thread * EACH + n;
                    cache.insert(value % 50_000, value);
                    if n % 64 == 0 {
                        most.fetch_max(cache.entry_count(), Ordering::Relaxed);
                    }
                }
            });
        }
    });
    let (took, most) = (began.elapsed(), most.into_inner());
    assert_eq!(
        heard.lock().unwrap().len(),
        0,
        "the listener is still in its first call"
    );
    println!(
        "{threads} writers, {} writes in {took:.1?} with the listener stalled: at most {most} entries of {CAPACITY}",
        EACH * threads as u64
    );
    assert!(most <= CAPACITY + CAPACITY / 4 + 256, "{most} entries");

    barrier.open();
    cache.run_pending_tasks();
    assert!(cache.entry_count() <= CAPACITY);
    let present: BTreeSet<u64> = cache.iter().map(|entry| *entry).collect();
    let heard = std::mem::take(&mut *heard.lock().unwrap());
    let told: BTreeSet<u64> = heard.iter().copied().filter(|v| *v != u64::MAX).collect();
    assert_eq!(told.len() + 1, heard.len(), "told twice");
    assert!(told.is_disjoint(&present), "delivered, and still stored");
    assert_eq!(
        (told.len() + present.len()) as u64,
        EACH * threads as u64,
        "lost"
    );
}

/// A clock that lets threads of the cache wait, which stops the pass that they run.
struct Stopping {
    clock: ManualTicker,
    barrier: Arc<Barrier>,
}

impl Ticker for Stopping {
    fn nanos(&self) -> u64 {
        if thread::current()
            .name()
            .is_some_and(|name| name == "wheelhouse")
        {
            self.barrier.pass();
        }
        self.clock.nanos()
    }
}

#[test]
fn a_pass_that_is_stopped_in_the_middle_holds_writers_at_a_bound_and_no_reader() {
    let _alone = crate::alone();
    const EACH: u64 = 60_000;
    let (clock, barrier) = (ManualTicker::new(), Arc::new(Barrier::default()));
    let _open = OpensAtLast(Arc::clone(&barrier));
    let cache: Cache<u64, u64> = Cache::builder()
        .ticker(Stopping {
            clock: clock.clone(),
            barrier: Arc::clone(&barrier),
        })
        .scheduler(Scheduler::background())
        .expiry_resolution(millis(1))
        .build();
    // Long enough for the scheduler thread to start a pass, and to read the clock while it holds
    // the maintenance lock.
    barrier.shut();
    (0..100).for_each(|key| cache.insert_with_ttl(u64::MAX - key, 0, millis(5)));
    clock.advance(secs(1));
    until("the pass", || barrier.waiting.load(Ordering::SeqCst));

    let threads = 2 * cores();
    let written: Vec<AtomicU64> = (0..threads).map(|_| AtomicU64::new(0)).collect();
    let sum = || {
        written
            .iter()
            .map(|n| n.load(Ordering::SeqCst))
            .sum::<u64>()
    };
    thread::scope(|scope| {
        for (thread, written) in (0u64..).zip(&written) {
            let cache = &cache;
            scope.spawn(move || {
                for n in 0..EACH {
                    cache.insert(thread * EACH + n, n);
                    written.fetch_add(1, Ordering::SeqCst);
                }
            });
        }
        // They stop, one after another, when their shards are full.
        let (mut last, mut since) = (sum(), Instant::now());
        let began = Instant::now();
        while since.elapsed() < millis(300) && began.elapsed() < SOON {
            // Readers do not wait, and what they see is right.
            for key in 0..EACH {
                let found = cache.get(&key);
                assert!(found.is_none_or(|value| value == key));
            }
            if sum() != last {
                (last, since) = (sum(), Instant::now());
            }
        }
        let stopped = sum();
        println!(
            "{threads} writers stopped after {stopped} writes behind a stopped pass; the bound is {}",
            slack(threads) + 100
        );
        let all = EACH * threads as u64;
        barrier.open();
        assert!(
            stopped < all,
            "no writer was stopped: the test proved nothing"
        );
        assert!(stopped <= slack(threads) + 100, "{stopped} writes wait");
        until("the rest of the writes", || sum() == all);
    });
    cache.run_pending_tasks();
    assert_eq!(
        cache.entry_count(),
        EACH * threads as u64,
        "a write was lost"
    );
    assert_eq!(cache.next_maintenance_in(), None);
}

#[test]
fn writers_do_the_maintenance_if_no_thread_runs_it() {
    let _alone = crate::alone();
    const EACH: u64 = 100_000;
    const CAPACITY: u64 = 2_000;
    // A scheduler that ignores requests: a timer of a stopped event loop.
    struct Deaf;
    impl wheelhouse::Alarm for Deaf {
        fn set(&self, _: Duration, _: wheelhouse::MaintenanceTask) {}
    }
    let census = crate::support::census::Census::default();
    let cache = Cache::builder()
        .max_capacity(CAPACITY)
        .scheduler(Scheduler::custom(Deaf))
        .build();
    let threads = 2 * cores();
    let most = AtomicU64::new(0);
    thread::scope(|scope| {
        for thread in 0..threads as u64 {
            let (cache, most, census) = (&cache, &most, &census);
            scope.spawn(move || {
                for n in 0..EACH {
                    cache.insert(thread * EACH + n, census.counted(()));
                    if n % 64 == 0 {
                        most.fetch_max(census.alive() as u64, Ordering::Relaxed);
                    }
                }
            });
        }
    });
    let most = most.into_inner();
    println!(
        "{threads} writers without a scheduler: at most {most} values in memory, capacity {CAPACITY}"
    );
    // Writers also free what was evicted. The documented limit, and as much again for threads that
    // lost their processor for long.
    let ceiling = CAPACITY + CAPACITY / 2 + 2_048;
    assert!(most <= 2 * ceiling, "{most} values in memory");
    for _ in 0..3 {
        cache.run_pending_tasks();
    }
    assert_eq!(census.alive() as u64, cache.entry_count());
    assert!(cache.entry_count() <= CAPACITY);
}

/// A value whose drop passes a barrier.
#[derive(Clone)]
struct Passes(Option<Arc<Barrier>>);

impl Drop for Passes {
    fn drop(&mut self) {
        if let Some(barrier) = &self.0 {
            barrier.pass();
        }
    }
}

/// A cache whose entry expires soon, and the scheduler thread in the drop of its value.
fn with_a_destructor_that_hangs(
    clock: &ManualTicker,
    barrier: &Arc<Barrier>,
) -> Cache<u64, Passes> {
    let cache = Cache::builder()
        .ticker(clock.clone())
        .scheduler(Scheduler::background())
        .expiry_resolution(millis(1))
        .build();
    barrier.shut();
    cache.insert_with_ttl(1, Passes(None), secs(3_600));
    cache.insert_with_ttl(2, Passes(Some(Arc::clone(barrier))), millis(1));
    clock.advance(secs(1));
    until("the drop", || barrier.waiting.load(Ordering::SeqCst));
    cache
}

#[test]
fn writers_remove_what_is_due_while_the_scheduler_thread_hangs_in_a_destructor_of_their_cache() {
    let _alone = crate::alone();
    let (clock, barrier) = (ManualTicker::new(), Arc::new(Barrier::default()));
    let open = OpensAtLast(Arc::clone(&barrier));
    let cache = with_a_destructor_that_hangs(&clock, &barrier);
    clock.advance(secs(7_200));
    cache.insert(3, Passes(None));
    assert_eq!(cache.entry_count(), 1);
    drop(open);
}

#[test]
fn a_listener_hears_of_evictions_while_the_scheduler_thread_hangs_in_another_cache() {
    let _alone = crate::alone();
    let (clock, barrier) = (ManualTicker::new(), Arc::new(Barrier::default()));
    let open = OpensAtLast(Arc::clone(&barrier));
    let other = with_a_destructor_that_hangs(&clock, &barrier);
    let heard = Arc::new(AtomicU64::new(0));
    let count = Arc::clone(&heard);
    let cache: Cache<u64, u64> = Cache::builder()
        .max_capacity(100)
        .removal_listener(move |_: &u64, _: &u64, _| _ = count.fetch_add(1, Ordering::Relaxed))
        .build();
    (0..10_000).for_each(|key| cache.insert(key, key));
    let began = Instant::now();
    until("the listener", || heard.load(Ordering::Relaxed) > 1_000);
    assert!(
        began.elapsed() < SOON / 2,
        "the destructor may have returned"
    );
    drop(open);
    drop(other);
}
