//! On which threads a loader runs, and what becomes of reloads when the cache goes.

use crate::support::{OneHash, OwnCache, hide_scripted_panics, until};
use std::cell::Cell;
use std::collections::HashSet;
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::task::{Context, Wake, Waker};
use std::thread::{self, LocalKey, ThreadId};
use std::time::{Duration, Instant};
use wheelhouse::compute::{CompResult, Op};
use wheelhouse::{
    Cache, Delivery, Leased, LoadError, LoadingCache, ManualTicker, Refreshing, RemovalCause,
    Scheduler, Ticker, async_loader_fn, loader_fn, refresh,
};

const SECOND: Duration = Duration::from_secs(1);

#[test]
fn loads_run_on_the_caller_and_reloads_on_named_threads_of_the_cache() {
    let (time, seen) = (ManualTicker::new(), Arc::new(Mutex::new(Vec::new())));
    let note = Arc::clone(&seen);
    let users: LoadingCache<u64, u64, ()> = Cache::builder()
        .ticker(time.clone())
        .name("users")
        .loading(loader_fn(move |key: &u64| {
            let thread = thread::current();
            let name = thread.name().unwrap_or_default().to_string();
            note.lock().unwrap().push((thread.id(), name));
            Ok(*key)
        }))
        .refresh_after(refresh::after(SECOND))
        .build();
    assert_eq!(users.get(&1), Ok(1));
    assert_eq!(seen.lock().unwrap()[0].0, thread::current().id());
    time.advance(SECOND);
    assert_eq!(users.get(&1), Ok(1));
    until("it is reloaded", || seen.lock().unwrap().len() == 2);
    let (id, name) = seen.lock().unwrap()[1].clone();
    assert_ne!(id, thread::current().id());
    assert_eq!(name, "wheelhouse-users-reload");
}

#[test]
fn no_more_threads_reload_at_once_than_were_asked_for() {
    for most in [1, 3] {
        let time = ManualTicker::new();
        let (at_once, peak, done) =
            <(Arc<AtomicUsize>, Arc<AtomicUsize>, Arc<AtomicUsize>)>::default();
        let threads: Arc<Mutex<HashSet<ThreadId>>> = Arc::default();
        let open = Arc::new(AtomicBool::new(true));
        let (a, p, d, t, o) = (
            Arc::clone(&at_once),
            Arc::clone(&peak),
            Arc::clone(&done),
            Arc::clone(&threads),
            Arc::clone(&open),
        );
        let users: LoadingCache<u64, u64, ()> = Cache::builder()
            .ticker(time.clone())
            .loading(loader_fn(move |key: &u64| {
                if !o.load(Ordering::SeqCst) {
                    t.lock().unwrap().insert(thread::current().id());
                    let now = a.fetch_add(1, Ordering::SeqCst) + 1;
                    p.fetch_max(now, Ordering::SeqCst);
                    until("as many as may", || {
                        p.load(Ordering::SeqCst) == most || d.load(Ordering::SeqCst) > 0
                    });
                    a.fetch_sub(1, Ordering::SeqCst);
                    d.fetch_add(1, Ordering::SeqCst);
                }
                Ok(*key)
            }))
            .refresh_after(refresh::after(SECOND))
            .reload_threads(most)
            .build();
        for key in 0..20 {
            assert_eq!(users.get(&key), Ok(key));
        }
        open.store(false, Ordering::SeqCst);
        time.advance(SECOND);
        for key in 0..20 {
            assert_eq!(users.get(&key), Ok(key));
        }
        until("all are reloaded", || done.load(Ordering::SeqCst) == 20);
        assert_eq!(peak.load(Ordering::SeqCst), most);
        assert_eq!(threads.lock().unwrap().len(), most);
    }
}

#[test]
fn the_last_handle_goes_while_reloads_run_and_wait() {
    struct Probe(Arc<AtomicUsize>);
    impl Drop for Probe {
        fn drop(&mut self) {
            self.0.fetch_add(1, Ordering::SeqCst);
        }
    }
    let (time, open, dropped) = (
        ManualTicker::new(),
        Arc::new(AtomicBool::new(true)),
        Arc::new(AtomicUsize::new(0)),
    );
    let calls = Arc::new(AtomicUsize::new(0));
    let (o, c, probe) = (
        Arc::clone(&open),
        Arc::clone(&calls),
        Probe(Arc::clone(&dropped)),
    );
    let heard = Arc::new(Mutex::new(Vec::new()));
    let told = Arc::clone(&heard);
    let users: LoadingCache<u64, Arc<u64>, ()> = Cache::builder()
        .ticker(time.clone())
        .removal_listener(move |key: &u64, _: &Arc<u64>, cause| {
            told.lock().unwrap().push((*key, cause));
        })
        .loading(loader_fn(move |key: &u64| {
            let _held = &probe;
            c.fetch_add(1, Ordering::SeqCst);
            until("the gate opens", || o.load(Ordering::SeqCst));
            Ok(Arc::new(*key))
        }))
        .refresh_after(refresh::after(SECOND))
        .build();
    // Not that of key 1: a reload holds the old value.
    let value = users.get(&2).unwrap();
    for key in 1..10 {
        users.get(&key).unwrap();
    }
    open.store(false, Ordering::SeqCst);
    time.advance(SECOND);
    let waiter = users.refresh(1);
    for key in 2..10 {
        users.get(&key).unwrap();
    }
    until("a reload runs", || calls.load(Ordering::SeqCst) == 10);
    let waiting = users.refresh(5);
    drop(users);
    assert_eq!(Arc::strong_count(&value), 1, "reloads keep no cache alive");
    assert!(waiting.wait().is_err(), "it never began");
    open.store(true, Ordering::SeqCst);
    let outcome = waiter.wait().unwrap();
    assert_eq!(outcome.as_deref(), Some(&1), "its waiters get the outcome");
    until("the thread ends", || dropped.load(Ordering::SeqCst) == 1);
    assert_eq!(calls.load(Ordering::SeqCst), 10);
    assert!(
        heard
            .lock()
            .unwrap()
            .iter()
            .all(|(_, cause)| *cause != RemovalCause::Replaced)
    );
}

#[test]
fn a_loader_that_asks_for_its_own_key_panics_and_does_not_hang() {
    let own = OwnCache::<LoadingCache<u64, u64, ()>>::new();
    let inner = own.place();
    let users = Cache::builder()
        .loading(loader_fn(move |key: &u64| match inner.get() {
            Some(users) if *key == 1 => users.get(&1).map_err(|_| ()),
            Some(users) if *key == 2 => users.refresh(2).wait().map(|_| 2).map_err(|_| ()),
            _ => Ok(*key),
        }))
        .build();
    own.set(&users);
    assert_eq!(users.get(&1), Err(wheelhouse::LoadError::Panicked));
    assert_eq!(users.get(&2), Err(wheelhouse::LoadError::Panicked));
    assert_eq!(
        users.refresh(1).wait(),
        Err(wheelhouse::LoadError::Panicked)
    );
    assert_eq!(users.get(&3), Ok(3));
}

#[test]
fn a_read_on_the_maintenance_thread_reloads_on_another() {
    type Users = LoadingCache<u64, u64, ()>;
    let (reloads, readers) = <(Arc<Mutex<Vec<String>>>, Arc<Mutex<Vec<String>>>)>::default();
    let (note, read) = (Arc::clone(&reloads), Arc::clone(&readers));
    let name = || thread::current().name().unwrap_or_default().to_string();
    let own = OwnCache::<Users>::new();
    let inner = own.place();
    let users = Cache::builder()
        .name("busy")
        .expiry_resolution(Duration::from_millis(1))
        .removal_listener(move |key: &u64, _: &u64, _| {
            if let Some(users) = inner.get() {
                if *key >= 100 {
                    read.lock().unwrap().push(name());
                    users.get_if_present(&1);
                }
            }
        })
        .loading(loader_fn(move |key: &u64| {
            note.lock().unwrap().push(name());
            Ok(*key)
        }))
        .refresh_after(refresh::after(Duration::from_millis(1)))
        .build();
    own.set(&users);
    assert_eq!(users.get(&1), Ok(1));
    let mut key = 100;
    until("reads of the maintenance thread reload", || {
        reloads.lock().unwrap().len() > 5 || {
            key += 1;
            users
                .cache()
                .insert_with_ttl(key, key, Duration::from_millis(2));
            thread::yield_now();
            false
        }
    });
    let readers = readers.lock().unwrap();
    let reloads = reloads.lock().unwrap();
    let allowed = "wheelhouse-busy-reload";
    assert!(
        reloads[1..].iter().all(|name| name == allowed),
        "{reloads:?}"
    );
    assert!(readers.iter().any(|name| name != "main"), "{readers:?}");
}

#[test]
fn readers_writers_and_reloads_at_once_leave_every_key_usable() {
    let time = ManualTicker::new();
    let calls = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&calls);
    let users: LoadingCache<u64, u64, ()> = Cache::builder()
        .ticker(time.clone())
        .record_stats()
        .max_capacity(40)
        .time_to_live(3 * SECOND)
        .loading(loader_fn(move |key: &u64| {
            let call = counted.fetch_add(1, Ordering::SeqCst);
            match call % 17 {
                3 => Err(()),
                5 => panic!("told to panic in the loader"),
                _ => Ok(key * 1_000),
            }
        }))
        .refresh_after(refresh::after(SECOND))
        .reload_threads(2)
        .build();
    thread::scope(|scope| {
        for thread in 0..4_u64 {
            let (users, time) = (&users, &time);
            scope.spawn(move || {
                for step in 0..3_000_u64 {
                    let key = (step * 7 + thread) % 60;
                    match (step + thread) % 23 {
                        0 => users.cache().insert(key, key * 1_000),
                        1 => users.cache().invalidate(&key),
                        2 => time.advance(SECOND / 10),
                        3 => drop(users.refresh(key)),
                        4 => drop(users.refresh(key).wait()),
                        _ => {
                            if let Ok(value) = users.get(&key) {
                                assert_eq!(value, key * 1_000);
                            }
                        }
                    }
                }
            });
        }
    });
    for key in 0..60 {
        until("usable", || {
            users.refresh(key).wait() == Ok(Some(key * 1_000))
        });
    }
    assert!(users.cache().stats().reloads() > 100);
}

thread_local! {
    /// By how many readings from now a [`Failing`] ticker panics on this thread; 0 for never.
    static PANICS_IN: Cell<u32> = const { Cell::new(0) };
}

struct Failing(ManualTicker);

impl Ticker for Failing {
    fn nanos(&self) -> u64 {
        let left = PANICS_IN.get();
        PANICS_IN.set(left.saturating_sub(1));
        assert!(left != 1, "told to panic in a ticker");
        self.0.nanos()
    }
}

/// A cache with one reload thread, and a loader that hangs with key 0 as long as it is stuck.
struct Stuck {
    users: LoadingCache<u64, u64, ()>,
    time: ManualTicker,
    stuck: Arc<AtomicBool>,
    /// The threads that ran the loader, with the key.
    runs: Arc<Mutex<Vec<(u64, ThreadId)>>>,
}

impl Stuck {
    /// Keys 0 to 9 are there; key 0 is stale, and the thread is stuck with it.
    fn new(threads: usize, timeout: Option<Duration>) -> Self {
        let (time, stuck) = (ManualTicker::new(), Arc::new(AtomicBool::new(false)));
        let runs = Arc::<Mutex<Vec<_>>>::default();
        let (holds, note) = (Arc::clone(&stuck), Arc::clone(&runs));
        let mut builder = Cache::builder()
            .ticker(Failing(time.clone()))
            .record_stats();
        if let Some(timeout) = timeout {
            builder = builder.load_timeout(timeout);
        }
        let users = builder
            .time_to_live(10 * SECOND)
            .loading(loader_fn(move |key: &u64| {
                note.lock().unwrap().push((*key, thread::current().id()));
                until("it is let go", || {
                    *key != 0 || !holds.load(Ordering::SeqCst)
                });
                Ok(*key)
            }))
            .refresh_after(refresh::after(SECOND))
            .reload_threads(threads)
            .build();
        for key in 0..10 {
            assert_eq!(users.get(&key), Ok(key));
        }
        stuck.store(true, Ordering::SeqCst);
        time.advance(SECOND);
        assert_eq!(users.get(&0), Ok(0));
        until("it hangs", || runs.lock().unwrap().len() == 11);
        Self {
            users,
            time,
            stuck,
            runs,
        }
    }

    fn let_go(&self) {
        self.stuck.store(false, Ordering::SeqCst);
        // It may join the load that was stuck. The next one comes behind what waits.
        assert_eq!(self.users.refresh(0).wait(), Ok(Some(0)));
        until("the queue is empty", || {
            let stats = self.users.cache().stats();
            let runs = self.runs.lock().unwrap().len() as u64;
            self.users.refresh(0).wait() == Ok(Some(0)) && stats.loads() >= runs
        });
    }
}

impl Drop for Stuck {
    fn drop(&mut self) {
        self.stuck.store(false, Ordering::SeqCst);
    }
}

#[test]
fn what_waits_for_a_thread_is_no_load() {
    let stuck = &Stuck::new(1, None);
    let Stuck {
        users, time, runs, ..
    } = stuck;
    let loads = users.cache().stats().loads();
    for key in 1..10 {
        assert_eq!(users.get(&key), Ok(key), "the old value");
    }
    // A refresh of an absent key waits, as one of a key that is there.
    let absent = users.refresh(20);
    let there = users.refresh(1);
    assert_eq!(users.cache().stats().loads(), loads, "no load has begun");
    time.advance(10 * SECOND);
    let me = thread::current().id();
    assert_eq!((users.get(&1), users.get(&20)), (Ok(1), Ok(20)));
    assert_eq!(runs.lock().unwrap()[11..], [(1, me), (20, me)]);
    // No other call that loads waits for it.
    assert_eq!(users.get_all([2, 3]), Ok(vec![Some(2), Some(3)]));
    assert_eq!(futures_lite::future::block_on(users.get_async(&4)), Ok(4));
    assert_eq!(users.cache().get_with(5, || 55), 55);
    assert_eq!(
        users.cache().entry(6).or_insert_with(|| 66).into_value(),
        66
    );
    let waits = users.refresh(7);
    let lease = users.cache().lease_timeout(7, Duration::ZERO);
    assert!(matches!(lease, Leased::Lease(_)));
    assert_eq!(users.cache().stats().load_waits(), 0);
    // Each refresh comes to its turn. That of 7 waits for the lease then.
    let before = runs.lock().unwrap().len();
    stuck.stuck.store(false, Ordering::SeqCst);
    assert_eq!((absent.wait(), there.wait()), (Ok(Some(20)), Ok(Some(1))));
    // Those of which only reads have asked are due no more, or fresh.
    let keys: Vec<u64> = runs.lock().unwrap()[before..]
        .iter()
        .map(|run| run.0)
        .collect();
    assert_eq!(keys, [1, 20]);
    until("it waits for the lease", || {
        users.cache().stats().load_waits() == 1
    });
    if let Leased::Lease(lease) = lease {
        lease.fill(77);
    }
    assert_eq!(waits.wait(), Ok(Some(77)));
}

/// What reads ask for while all threads are busy is done once, and only so much is kept.
#[test]
fn stale_entries_wait_while_all_threads_are_busy() {
    let stuck = &Stuck::new(1, None);
    let Stuck { users, runs, .. } = stuck;
    for key in 1_000..3_000 {
        users.cache().insert(key, key);
    }
    stuck.time.advance(SECOND);
    for _ in 0..10 {
        for key in 1_000..3_000 {
            assert_eq!(users.get(&key), Ok(key));
        }
    }
    let before = runs.lock().unwrap().len();
    stuck.let_go();
    let reloaded: Vec<u64> = runs.lock().unwrap()[before..]
        .iter()
        .map(|run| run.0)
        .filter(|key| *key >= 1_000)
        .collect();
    let different: HashSet<u64> = reloaded.iter().copied().collect();
    assert_eq!(reloaded.len(), different.len(), "each once");
    assert!((1..=300).contains(&different.len()), "{}", different.len());
    // The others stay stale, for a later read.
    until("all are reloaded", || {
        (1_000..3_000).for_each(|key| assert_eq!(users.get(&key), Ok(key)));
        runs.lock().unwrap().len() >= before + 2_000
    });
}

/// However often a key is refreshed while it waits, and whether or not the refreshes are kept.
#[test]
fn a_key_waits_once() {
    let stuck = &Stuck::new(1, None);
    let Stuck { users, runs, .. } = stuck;
    for _ in 0..1_000 {
        (1..10).for_each(|key| drop(users.refresh(key)));
    }
    let kept: Vec<_> = (0..100).map(|_| users.refresh(3)).collect();
    let before = runs.lock().unwrap().len();
    stuck.stuck.store(false, Ordering::SeqCst);
    for refresh in kept {
        assert_eq!(refresh.wait(), Ok(Some(3)));
    }
    until("all are served", || {
        runs.lock().unwrap().len() == before + 9
    });
    let keys: Vec<u64> = runs.lock().unwrap()[before..]
        .iter()
        .map(|run| run.0)
        .collect();
    assert_eq!(keys, [1, 2, 3, 4, 5, 6, 7, 8, 9]);
}

/// A compute looks nothing up before: it finds the entry that is due when it claims the key.
#[test]
fn a_ticker_that_panics_in_a_compute_leaves_the_key_usable() {
    hide_scripted_panics();
    for reading in 1.. {
        let Stuck { users, time, .. } = &Stuck::new(1, None);
        assert_eq!(users.get(&1), Ok(1), "stale");
        time.advance(10 * SECOND);
        let compute = || users.cache().entry(1).and_compute_with(|_| Op::Nop);
        PANICS_IN.set(reading);
        let result = catch_unwind(AssertUnwindSafe(compute));
        let is_last = PANICS_IN.replace(0) > 0;
        let lease = users.cache().lease_timeout(1, Duration::ZERO);
        let is_busy = matches!(lease, Leased::Busy);
        assert!(!is_busy, "after the panic at reading {reading}");
        drop(lease);
        assert_eq!(users.get(&1), Ok(1));
        if is_last {
            assert!(matches!(result, Ok(CompResult::StillNone(1))));
            assert!(reading > 3, "{reading} readings");
            break;
        }
    }
}

/// Also when its load has timed out: that frees the calls that wait, not the thread.
#[test]
fn a_thread_that_hangs_counts_among_the_reload_threads() {
    let stuck = Stuck::new(2, Some(3 * SECOND));
    let Stuck {
        users, time, runs, ..
    } = &stuck;
    // The other thread serves the rest.
    assert_eq!(users.refresh(1).wait(), Ok(Some(1)));
    // Both hang.
    let first = users.refresh(0);
    time.advance(3 * SECOND);
    assert_eq!(first.wait(), Err(wheelhouse::LoadError::TimedOut));
    assert_eq!(users.get(&0), Ok(0), "the old value");
    until("it hangs as well", || runs.lock().unwrap().len() == 13);
    let hang: HashSet<_> = [10, 12].map(|run| runs.lock().unwrap()[run].1).into();
    assert_eq!(hang.len(), 2);
    time.advance(3 * SECOND);
    for key in 1..10 {
        assert_eq!(users.get(&key), Ok(key), "the old value");
    }
    thread::sleep(Duration::from_millis(50));
    assert_eq!(runs.lock().unwrap().len(), 13, "no third thread");
    // What waits for a thread is served when one comes back.
    let waits: Vec<_> = (1..10).map(|key| users.refresh(key)).collect();
    stuck.stuck.store(false, Ordering::SeqCst);
    for (key, wait) in (1..10).zip(waits) {
        assert_eq!(wait.wait(), Ok(Some(key)));
    }
    let all: HashSet<_> = runs.lock().unwrap()[10..].iter().map(|run| run.1).collect();
    assert_eq!(all, hang);
}

/// As in a program: one reload thread, a loader that takes a while, and many stale entries.
#[test]
fn a_miss_behind_two_hundred_reloads_takes_one_load() {
    let load = Duration::from_millis(20);
    let users: LoadingCache<u64, u64, ()> = Cache::builder()
        .time_to_live(Duration::from_millis(400))
        .loading(loader_fn(move |key: &u64| {
            if *key >= 1_000 {
                thread::sleep(load);
            }
            Ok(*key)
        }))
        .refresh_after(refresh::after(Duration::from_millis(1)))
        .build();
    for key in 1_000..1_200 {
        users.cache().insert(key, key);
    }
    thread::sleep(Duration::from_millis(2));
    for key in 1_000..1_200 {
        users.get_if_present(&key);
    }
    while users.cache().get(&1_199).is_some() {
        thread::sleep(Duration::from_millis(1));
    }
    let began = Instant::now();
    assert_eq!(users.get(&1_199), Ok(1_199));
    let took = began.elapsed();
    assert!(
        took < 50 * load,
        "{took:?}: the queue takes {:?}",
        180 * load
    );
}

/// A loader that reads another key, whose reload waits for the very thread that runs the loader.
#[test]
fn a_reload_may_wait_for_a_key_behind_it() {
    for call in 0..5 {
        let time = ManualTicker::new();
        let own = OwnCache::<LoadingCache<u64, u64, ()>>::new();
        let open = Arc::new(AtomicBool::new(true));
        let (inner, o) = (own.place(), Arc::clone(&open));
        let users: LoadingCache<u64, u64, ()> = Cache::builder()
            .ticker(time.clone())
            .record_stats()
            .time_to_live(10 * SECOND)
            .loading(loader_fn(move |key: &u64| {
                let Some(users) = inner.get().filter(|_| *key == 1) else {
                    return Ok(*key);
                };
                until("the gate opens", || o.load(Ordering::SeqCst));
                let other = match call {
                    0 => users.get(&2).map_err(drop)?,
                    1 => users.refresh(2).wait().map_err(drop)?.ok_or(())?,
                    2 => users.cache().get_with(2, || 2),
                    3 => futures_lite::future::block_on(users.get_async(&2)).map_err(drop)?,
                    _ => users.get_all([2]).map_err(drop)?[0].ok_or(())?,
                };
                Ok(100 + other)
            }))
            .refresh_after(refresh::after(SECOND))
            .build();
        assert_eq!((users.get(&1), users.get(&2)), (Ok(1), Ok(2)));
        own.set(&users);
        open.store(false, Ordering::SeqCst);
        time.advance(SECOND);
        assert_eq!(
            (users.get(&1), users.get(&2)),
            (Ok(1), Ok(2)),
            "both are stale"
        );
        until("the thread is busy", || {
            users.cache().stats().reloads() == 1
        });
        time.advance(9 * SECOND);
        open.store(true, Ordering::SeqCst);
        let (done, ends) = std::sync::mpsc::channel();
        thread::spawn(move || done.send((users.get(&1), users.get(&2))));
        let end = ends.recv_timeout(Duration::from_secs(20));
        assert_eq!(end, Ok((Ok(102), Ok(2))), "call {call} waits for ever");
    }
}

/// What a refresh waits for a thread is no part of the load's time.
#[test]
fn the_time_of_a_reload_counts_from_its_run() {
    let time = ManualTicker::new();
    let (calls, open) = <(Arc<AtomicUsize>, Arc<AtomicUsize>)>::default();
    let (counted, o) = (Arc::clone(&calls), Arc::clone(&open));
    let users: LoadingCache<u64, u64, ()> = Cache::builder()
        .ticker(time.clone())
        .record_stats()
        .loading(loader_fn(move |key: &u64| {
            let call = counted.fetch_add(1, Ordering::SeqCst);
            until("the gate opens", || {
                call < 2 || o.load(Ordering::SeqCst) > call - 2
            });
            Ok(*key)
        }))
        .refresh_after(refresh::after(10 * SECOND))
        .load_timeout(5 * SECOND)
        .build();
    assert_eq!((users.get(&1), users.get(&2)), (Ok(1), Ok(2)));
    time.advance(10 * SECOND);
    assert_eq!(
        (users.get(&1), users.get(&2)),
        (Ok(1), Ok(2)),
        "both are stale"
    );
    until("the first runs", || calls.load(Ordering::SeqCst) == 3);
    let waiter = users.refresh(2);
    time.advance(4 * SECOND);
    open.store(1, Ordering::SeqCst);
    until("the second runs", || calls.load(Ordering::SeqCst) == 4);
    time.advance(3 * SECOND);
    assert_eq!(users.cache().stats().reloads(), 2, "it is not overdue");
    open.store(2, Ordering::SeqCst);
    assert_eq!(waiter.wait(), Ok(Some(2)));
    assert_eq!(users.cache().stats().load_time(), 7 * SECOND);
}

/// The loader of 1, on the thread of a call, waits for 2, which is queued behind 3; the only thread
/// reloads 3, and waits for 1.
#[test]
fn a_ring_through_the_reload_threads() {
    let time = ManualTicker::new();
    let own = OwnCache::<LoadingCache<u64, u64, ()>>::new();
    let (hot, began, open) = <(Arc<AtomicBool>, Arc<AtomicBool>, Arc<AtomicBool>)>::default();
    let cache = own.place();
    let (h, b, o) = (Arc::clone(&hot), Arc::clone(&began), Arc::clone(&open));
    let users: LoadingCache<u64, u64, ()> = Cache::builder()
        .ticker(time.clone())
        .record_stats()
        .time_to_live(100 * SECOND)
        .loading(loader_fn(move |key: &u64| {
            match (*key, cache.get()) {
                (1, Some(users)) => {
                    b.store(true, Ordering::SeqCst);
                    until("the gate opens", || o.load(Ordering::SeqCst));
                    users.refresh(2).wait().map_err(drop)?;
                }
                (3, Some(users)) if h.load(Ordering::SeqCst) => {
                    users.get(&1).map_err(drop)?;
                }
                _ => (),
            }
            Ok(*key)
        }))
        .refresh_after(refresh::after(10 * SECOND))
        .build();
    own.set(&users);
    assert_eq!((users.get(&2), users.get(&3)), (Ok(2), Ok(3)));
    hot.store(true, Ordering::SeqCst);
    time.advance(11 * SECOND);
    let (done, ends) = std::sync::mpsc::channel();
    let caller = users.clone();
    thread::spawn(move || done.send(caller.get(&1)));
    until("1 is loaded", || began.load(Ordering::SeqCst));
    assert_eq!(users.get(&3), Ok(3), "stale");
    until("the reload of 3 waits for 1", || {
        users.cache().stats().load_waits() == 1
    });
    assert_eq!(users.get(&2), Ok(2), "stale");
    open.store(true, Ordering::SeqCst);
    let end = ends.recv_timeout(Duration::from_secs(20));
    assert_eq!(end, Ok(Ok(1)), "they wait for each other");
}

type Numbers = LoadingCache<u64, u64, ()>;

/// A cache whose only thread hangs in the reload of 0 while the flag is set; 1 is stale.
fn with_a_stale_entry(
    hangs: &Arc<AtomicBool>,
    in_reload: impl Fn(&LoadingCache<u64, u64, ()>) + Send + Sync + 'static,
) -> (OwnCache<Numbers>, Numbers, Arc<AtomicUsize>) {
    let time = ManualTicker::new();
    let own = OwnCache::<LoadingCache<u64, u64, ()>>::new();
    let (calls, is_stuck) = <(Arc<AtomicUsize>, Arc<AtomicBool>)>::default();
    let (cache, counted) = (own.place(), Arc::clone(&calls));
    let (h, s) = (Arc::clone(hangs), Arc::clone(&is_stuck));
    let users: LoadingCache<u64, u64, ()> = Cache::builder()
        .ticker(time.clone())
        .time_to_live(100 * SECOND)
        .loading(loader_fn(move |key: &u64| {
            match (*key, cache.get()) {
                (0, Some(users)) => {
                    s.store(true, Ordering::SeqCst);
                    until("the gate opens", || !h.load(Ordering::SeqCst));
                    in_reload(&users);
                }
                (1, _) => _ = counted.fetch_add(1, Ordering::SeqCst),
                _ => (),
            }
            Ok(*key)
        }))
        .refresh_after(refresh::after(10 * SECOND))
        .build();
    assert_eq!((users.get(&0), users.get(&1)), (Ok(0), Ok(1)));
    own.set(&users);
    hangs.store(true, Ordering::SeqCst);
    time.advance(11 * SECOND);
    assert_eq!(users.get(&0), Ok(0), "stale");
    until("the only thread is stuck", || {
        is_stuck.load(Ordering::SeqCst)
    });
    assert_eq!(users.get(&1), Ok(1), "stale");
    (own, users, calls)
}

#[test]
fn a_compute_is_not_held_up_by_a_refresh_that_waits_for_a_thread() {
    for stores in [true, false] {
        let hangs = Arc::new(AtomicBool::new(false));
        let (_own, users, calls) = with_a_stale_entry(&hangs, |_| ());
        let waiter = users.refresh(1);
        let (done, ends) = std::sync::mpsc::channel();
        let caller = users.clone();
        thread::spawn(move || {
            let entry = caller.cache().entry(1);
            if stores {
                _ = entry.and_upsert_with(|_| 5);
            } else {
                _ = entry.and_compute_with(|_| Op::Nop);
            }
            done.send(())
        });
        let end = ends.recv_timeout(Duration::from_secs(20));
        assert_eq!(end, Ok(()), "it waits for the loader of another key");
        assert_eq!(calls.load(Ordering::SeqCst), 1);
        assert_eq!(users.get(&1), Ok(if stores { 5 } else { 1 }));
        hangs.store(false, Ordering::SeqCst);
        assert_eq!(waiter.wait(), Ok(Some(1)), "it comes to its turn");
        assert_eq!(users.get(&1), Ok(1));
        assert_eq!(calls.load(Ordering::SeqCst), 2);
    }
}

/// A key whose clone panics while the flag is set, if it is 1.
struct Touchy(u64, Arc<AtomicBool>);

impl Clone for Touchy {
    fn clone(&self) -> Self {
        let panics = self.0 == 1 && self.1.load(Ordering::SeqCst);
        assert!(!panics, "as told");
        Self(self.0, Arc::clone(&self.1))
    }
}

impl PartialEq for Touchy {
    fn eq(&self, other: &Self) -> bool {
        self.0 == other.0
    }
}

impl Eq for Touchy {}

impl std::hash::Hash for Touchy {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        self.0.hash(state);
    }
}

#[test]
fn a_refresh_that_panics_at_its_turn_leaves_the_key_usable() {
    hide_scripted_panics();
    let (hangs, panics) = (
        Arc::new(AtomicBool::new(true)),
        Arc::new(AtomicBool::new(false)),
    );
    let (is_stuck, stuck) = mpsc::channel();
    let gate = Arc::clone(&hangs);
    let users: LoadingCache<Touchy, u64, ()> = Cache::builder()
        .loading(loader_fn(move |key: &Touchy| {
            if key.0 == 0 {
                is_stuck.send(()).unwrap();
                until("the gate opens", || !gate.load(Ordering::SeqCst));
            }
            Ok(key.0)
        }))
        .build();
    let key = |number| Touchy(number, Arc::clone(&panics));
    let busy = users.refresh(key(0));
    stuck.recv().unwrap();
    let waits = users.refresh(key(1));
    panics.store(true, Ordering::SeqCst);
    hangs.store(false, Ordering::SeqCst);
    assert!(waits.wait().is_err(), "the clone of the key panics");
    panics.store(false, Ordering::SeqCst);
    assert_eq!(busy.wait(), Ok(Some(0)));
    assert_eq!(users.get(&key(1)), Ok(1), "no guard has the lead");
    assert_eq!(
        users.refresh(key(1)).wait(),
        Ok(Some(1)),
        "nor is a thread lost"
    );
}

/// Nothing says when it is polled. So it is no call that could go on with a load.
#[test]
fn a_refresh_that_is_not_polled_holds_up_no_key() {
    let users: LoadingCache<u64, u64, ()> = Cache::builder()
        .loading(loader_fn(|key: &u64| Ok(*key)))
        .build();
    let lease = users.cache().lease(1);
    let refresh = users.refresh(1);
    drop(lease);
    let lease = users.cache().lease_timeout(1, Duration::ZERO);
    assert!(matches!(lease, Leased::Lease(_)), "it waits for a poll");
    drop(lease);
    assert_eq!(users.get(&1), Ok(1));
    assert_eq!(refresh.wait(), Ok(Some(1)));
}

#[test]
fn a_loader_that_computes_a_stale_key() {
    let (done, ends) = std::sync::mpsc::channel();
    let hangs = Arc::new(AtomicBool::new(false));
    let (_own, users, calls) = with_a_stale_entry(&hangs, move |users| {
        _ = users.cache().entry(1).and_upsert_with(|_| 7);
        done.send(()).unwrap();
    });
    hangs.store(false, Ordering::SeqCst);
    let end = ends.recv_timeout(Duration::from_secs(20));
    assert_eq!(end, Ok(()), "the only thread waits for its own queue");
    assert_eq!(users.get(&1), Ok(7));
    assert_eq!(calls.load(Ordering::SeqCst), 1);
}

/// The closure of a `get_with` waits for the reload of 2, which is queued behind 3; the only thread
/// reloads 3, and waits for the key of the closure.
#[test]
fn a_ring_through_the_reload_threads_and_the_closure_of_a_call() {
    let time = ManualTicker::new();
    let own = OwnCache::<LoadingCache<u64, u64, ()>>::new();
    let cache = own.place();
    let users: LoadingCache<u64, u64, ()> = Cache::builder()
        .ticker(time.clone())
        .record_stats()
        .loading(loader_fn(move |key: &u64| match cache.get() {
            Some(users) if *key == 3 => users.get(&1).map_err(drop),
            _ => Ok(*key),
        }))
        .refresh_after(refresh::after(SECOND))
        .build();
    assert_eq!((users.get(&2), users.get(&3)), (Ok(2), Ok(3)));
    own.set(&users);
    time.advance(SECOND);
    let (done, ends) = std::sync::mpsc::channel();
    let caller = users.clone();
    thread::spawn(move || {
        let value = caller.cache().get_with(1, || {
            assert_eq!(caller.get(&3), Ok(3), "stale");
            until("the reload of 3 waits for 1", || {
                caller.cache().stats().load_waits() == 1
            });
            caller.refresh(2).wait().unwrap().unwrap() + 100
        });
        done.send(value)
    });
    let end = ends.recv_timeout(Duration::from_secs(20));
    assert_eq!(end, Ok(102), "they wait for each other");
}

/// As before, for a load that is led in another way, and which the only thread wants from another
/// cache.
#[test]
fn a_ring_through_the_reload_threads_and_any_load_that_is_led() {
    use futures_lite::future::block_on;
    type Users = LoadingCache<u64, u64, ()>;
    for form in 0..6 {
        let time = ManualTicker::new();
        let own = OwnCache::<(Users, Users)>::new();
        let asks = Arc::new(AtomicBool::new(false));
        let (caches, asked) = (own.place(), Arc::clone(&asks));
        let users: Users = Cache::builder()
            .ticker(time.clone())
            .loading(loader_fn(move |key: &u64| match caches.get() {
                Some((_, other)) if *key == 3 => {
                    asked.store(true, Ordering::SeqCst);
                    other.get(&1).map_err(drop)
                }
                _ => Ok(*key),
            }))
            .refresh_after(refresh::after(SECOND))
            .build();
        assert_eq!((users.get(&2), users.get(&3)), (Ok(2), Ok(3)));
        let caches = own.place();
        let make = Arc::new(move || {
            let (users, _) = caches.get().unwrap();
            assert_eq!(users.get(&3), Ok(3), "stale");
            until("the only thread wants the load", || {
                asks.load(Ordering::SeqCst)
            });
            users.refresh(2).wait().unwrap().unwrap() + 100
        });
        let of_task = Arc::clone(&make);
        let other: Users = Cache::builder()
            .loading(async_loader_fn(move |_: &u64| {
                let make = Arc::clone(&of_task);
                async move { Ok(make()) }
            }))
            .spawner(|task| drop(thread::spawn(|| block_on(task))))
            .build();
        own.set(&(users, other.clone()));
        time.advance(SECOND);
        let (done, ends) = std::sync::mpsc::channel();
        thread::spawn(move || {
            let cache = other.cache();
            let make_all = || Ok::<_, ()>(vec![Some(make())]);
            done.send(match form {
                0 => cache.get_with(1, || make()),
                1 => cache.get_all_with([1], |_| make_all()).unwrap()[0].unwrap(),
                2 => block_on(cache.get_with_async(1, async { make() })),
                3 => {
                    let all = cache.get_all_with_async([1], |_| async { make_all() });
                    block_on(all).unwrap()[0].unwrap()
                }
                4 => match cache.lease(1) {
                    Leased::Lease(lease) => {
                        lease.fill(make());
                        cache.get(&1).unwrap()
                    }
                    _ => unreachable!("the key is absent"),
                },
                _ => other.get(&1).unwrap(),
            })
        });
        let end = ends.recv_timeout(Duration::from_secs(20));
        assert_eq!(end, Ok(102), "form {form}: they wait for each other");
    }
}

/// A waker that the load lets go of is user code, too: it may wait by the same thread.
#[test]
fn a_wait_sees_an_end_that_comes_while_an_old_waker_is_dropped() {
    struct Old {
        goes: Arc<AtomicBool>,
        users: LoadingCache<u64, u64, String>,
        other: Cache<u64, u64>,
    }
    impl Wake for Old {
        fn wake(self: Arc<Self>) {}
    }
    impl Drop for Old {
        fn drop(&mut self) {
            self.goes.store(true, Ordering::SeqCst);
            until("the load has ended", || {
                self.users.cache().peek_ref(&1).is_some()
            });
            assert_eq!(self.other.get_with(7, || unreachable!("it is led")), 70);
        }
    }

    let goes = Arc::new(AtomicBool::new(false));
    let let_go = Arc::clone(&goes);
    let users = Cache::builder()
        .loading(loader_fn(move |key: &u64| {
            until("it is let go", || let_go.load(Ordering::SeqCst));
            Ok::<_, String>(*key)
        }))
        .build();
    let other: Cache<u64, u64> = Cache::new(10);
    let (done, ends) = mpsc::channel();
    let (leads, led) = mpsc::channel();
    let (leader, leading) = (other.clone(), users.clone());
    thread::spawn(move || {
        leader.get_with(7, || {
            leads.send(()).unwrap();
            until("the load has ended", || {
                leading.cache().peek_ref(&1).is_some()
            });
            // The end wakes the waiting thread soon after the value can be read.
            thread::sleep(Duration::from_millis(50));
            70
        });
    });
    led.recv().unwrap();
    thread::spawn(move || {
        let mut refresh = users.refresh(1);
        let old = Old {
            goes,
            users: users.clone(),
            other,
        };
        let waker = Waker::from(Arc::new(old));
        let mut cx = Context::from_waker(&waker);
        assert!(pin!(&mut refresh).poll(&mut cx).is_pending());
        drop(waker);
        done.send(refresh.wait()).unwrap();
    });
    let answer = ends.recv_timeout(Duration::from_secs(20));
    assert_eq!(answer.expect("the wait ends"), Ok(Some(1)));
}

/// Polls a refresh when it is woken, and notes whether that has to wait.
struct PollsRefresh {
    refresh: Mutex<Option<wheelhouse::Refreshing<u64, ()>>>,
    waits: Mutex<Option<bool>>,
}

impl Wake for PollsRefresh {
    fn wake(self: Arc<Self>) {
        let mut refresh = self.refresh.lock().unwrap();
        let polled = pin!(refresh.as_mut().unwrap()).poll(&mut Context::from_waker(Waker::noop()));
        *self.waits.lock().unwrap() = Some(polled.is_pending());
    }
}

#[test]
fn a_refresh_that_a_waker_polls_waits_for_a_thread() {
    let (begins, begun) = mpsc::channel();
    let (gates, free): (Vec<_>, Vec<_>) = (0..2)
        .map(|_| {
            let (free, gate) = mpsc::channel::<()>();
            (Mutex::new(gate), free)
        })
        .unzip();
    // The keys 0 and 1 wait at their gates.
    let load = loader_fn(move |key: &u64| {
        begins.send((*key, thread::current().id())).unwrap();
        if let Some(gate) = gates.get(*key as usize) {
            gate.lock().unwrap().recv().unwrap();
        }
        Ok::<u64, ()>(*key)
    });
    let users: LoadingCache<u64, u64, ()> = Cache::builder().loading(load).build();
    let busy = users.refresh(0);
    let (_, reloads) = begun.recv().unwrap();
    let polls = Arc::new(PollsRefresh {
        refresh: Mutex::new(Some(users.refresh(2))),
        waits: Mutex::default(),
    });
    let own = users.clone();
    let leader = thread::spawn(move || own.get(&1));
    assert_eq!(begun.recv().unwrap().0, 1);
    let waker = Waker::from(Arc::clone(&polls));
    let mut waiter = pin!(users.get_async(&1));
    let polled = waiter.as_mut().poll(&mut Context::from_waker(&waker));
    assert!(polled.is_pending());
    free[1].send(()).unwrap();
    assert_eq!(leader.join().unwrap(), Ok(1));
    assert_eq!(*polls.waits.lock().unwrap(), Some(true));
    free[0].send(()).unwrap();
    assert_eq!(busy.wait(), Ok(Some(0)));
    let queued = polls.refresh.lock().unwrap().take().unwrap();
    assert_eq!(queued.wait(), Ok(Some(2)));
    assert_eq!(begun.recv().unwrap(), (2, reloads));
}

/// Panics when it is dropped on a thread of the reloads.
#[derive(Clone, Debug)]
struct BadOnReloads;

impl Drop for BadOnReloads {
    fn drop(&mut self) {
        let thread = thread::current();
        if !thread::panicking() && thread.name().is_some_and(|name| name.ends_with("-reload")) {
            std::panic::resume_unwind(Box::new("as told"));
        }
    }
}

#[test]
fn a_value_that_panics_when_it_is_dropped_ends_no_reload_thread() {
    let load = loader_fn(|_: &u64| Ok::<_, ()>(BadOnReloads));
    let users: LoadingCache<u64, BadOnReloads, ()> = Cache::builder().loading(load).build();
    let (tell, told) = mpsc::channel();
    thread::spawn(move || {
        for key in 0..3 {
            tell.send(users.refresh(key).wait().is_ok()).unwrap();
        }
    });
    for _ in 0..3 {
        let answer = told.recv_timeout(Duration::from_secs(20));
        assert_eq!(answer, Ok(true), "a thread runs it");
    }
}

/// The listener hears of a due entry inside the call that claims its key, and waits for a refresh
/// behind a loader that loads this very key.
#[test]
fn a_refresh_inside_a_listener_that_the_only_thread_waits_for() {
    let ticker = ManualTicker::new();
    let (begins, begun) = mpsc::channel();
    let (go, gone) = mpsc::channel::<()>();
    let (begun, gone, go) = (Mutex::new(begun), Mutex::new(gone), Mutex::new(go));
    let users: Arc<Mutex<Option<LoadingCache<u64, u64, ()>>>> = Arc::default();
    let of_listener = Arc::clone(&users);
    let outer: Cache<u64, u64> = Cache::builder()
        .ticker(ticker.clone())
        .scheduler(Scheduler::disabled())
        .delivery(Delivery::Caller)
        .removal_listener(move |_: &u64, _: &u64, cause| {
            if cause == RemovalCause::Expired {
                let users = of_listener.lock().unwrap().take().unwrap();
                drop(users.refresh(1));
                begun.lock().unwrap().recv().unwrap();
                let queued = users.refresh(2);
                go.lock().unwrap().send(()).unwrap();
                assert_eq!(queued.wait(), Ok(Some(2)));
            }
        })
        .build();
    let inner = outer.clone();
    let load = loader_fn(move |key: &u64| {
        if *key == 1 {
            begins.send(()).unwrap();
            gone.lock().unwrap().recv().unwrap();
            assert_eq!(inner.get_with(7, || 9), 9);
        }
        Ok::<u64, ()>(*key)
    });
    *users.lock().unwrap() = Some(Cache::builder().loading(load).build());
    outer.insert_with_ttl(7, 1, SECOND);
    ticker.advance(SECOND);
    let (say, said) = mpsc::channel();
    thread::spawn(move || say.send(outer.get_with(7, || 5)).unwrap());
    assert_eq!(said.recv_timeout(Duration::from_secs(20)), Ok(9));
}

/// The last drop waits for the threads that have no job, and nothing keeps the loader.
#[test]
fn the_loader_goes_with_the_last_handle() {
    for _ in 0..200 {
        let captured = Arc::new(());
        let of_loader = Arc::clone(&captured);
        let users: LoadingCache<u64, u64, ()> = Cache::builder()
            .loading(loader_fn(move |key: &u64| {
                let _captured = &of_loader;
                Ok(*key)
            }))
            .reload_threads(2)
            .build();
        let waits = [users.refresh(1), users.refresh(2)];
        for wait in waits {
            assert!(wait.wait().is_ok());
        }
        drop(users);
        assert_eq!(Arc::strong_count(&captured), 1);
    }
}

/// A chain of loaders, each of which waits for the refresh of the next key: a thread that waits
/// has no place.
#[test]
fn loaders_may_wait_for_refreshes_of_each_other() {
    let own = OwnCache::<LoadingCache<u64, u64, ()>>::new();
    let cache = own.place();
    let users: LoadingCache<u64, u64, ()> = Cache::builder()
        .loading(loader_fn(move |key: &u64| match cache.get() {
            Some(users) if *key > 0 => {
                let next = users.refresh(key - 1).wait().map_err(drop)?;
                Ok(next.ok_or(())? + 1)
            }
            _ => Ok(0),
        }))
        .build();
    own.set(&users);
    let (done, ends) = mpsc::channel();
    thread::spawn(move || done.send(users.refresh(20).wait()));
    let end = ends.recv_timeout(Duration::from_secs(20));
    assert_eq!(end, Ok(Ok(Some(20))), "they wait for a thread");
}

/// A task that leads a load between two polls: the only thread waits for that load, and the task
/// for a refresh.
#[test]
fn a_task_may_await_a_refresh_inside_a_load() {
    use futures_lite::future::block_on;
    let own = OwnCache::<LoadingCache<u64, u64, ()>>::new();
    let cache = own.place();
    let users: LoadingCache<u64, u64, ()> = Cache::builder()
        .record_stats()
        .loading(loader_fn(move |key: &u64| match cache.get() {
            Some(users) if *key == 3 => users.get(&1).map_err(drop),
            _ => Ok(*key),
        }))
        .build();
    own.set(&users);
    let (done, ends) = mpsc::channel();
    thread::spawn(move || {
        let value = block_on(users.cache().get_with_async(1, async {
            let busy = users.refresh(3);
            until("the only thread waits for 1", || {
                users.cache().stats().load_waits() == 1
            });
            let other = users.refresh(2).await.unwrap().unwrap();
            drop(busy);
            other + 100
        }));
        done.send(value)
    });
    let end = ends.recv_timeout(Duration::from_secs(20));
    assert_eq!(end, Ok(102), "they wait for each other");
}

/// Its entry is stale no longer when its turn comes, or gone: the write holds.
#[test]
fn a_refresh_of_a_stale_entry_reloads_no_other_one() {
    for removes in [false, true] {
        let hangs = Arc::new(AtomicBool::new(false));
        let (_own, users, calls) = with_a_stale_entry(&hangs, |_| ());
        let waits = users.refresh_if_stale(1).expect("it is stale");
        if removes {
            users.cache().invalidate(&1);
        } else {
            users.cache().insert(1, 99);
        }
        hangs.store(false, Ordering::SeqCst);
        let now = if removes { None } else { Some(99) };
        assert_eq!(waits.wait(), Ok(now));
        assert_eq!(users.cache().get(&1), now);
        assert_eq!(calls.load(Ordering::SeqCst), 1, "it has loaded");
    }
}

/// What a reload thread tells and awaits when it next clones a key.
type Gate = Mutex<Option<(mpsc::Sender<()>, mpsc::Receiver<()>)>>;

struct Gated(Arc<Gate>);

impl Clone for Gated {
    fn clone(&self) -> Self {
        if thread::current().name() == Some("wheelhouse-gated-reload") {
            let gate = self.0.lock().unwrap().take();
            if let Some((begin, go_on)) = gate {
                begin.send(()).unwrap();
                go_on.recv().unwrap();
            }
        }
        Self(Arc::clone(&self.0))
    }
}

type Hook = Cell<Option<Box<dyn FnOnce()>>>;

thread_local! {
    /// What this thread does when it next compares two such keys, and when it next drops one.
    static AT_EQ: Hook = const { Cell::new(None) };
    static AT_DROP: Hook = const { Cell::new(None) };
}

fn run_hook(hook: &'static LocalKey<Hook>) {
    if let Ok(Some(hook)) = hook.try_with(Cell::take) {
        hook();
    }
}

impl Drop for Gated {
    fn drop(&mut self) {
        run_hook(&AT_DROP);
    }
}

impl PartialEq for Gated {
    fn eq(&self, _: &Self) -> bool {
        run_hook(&AT_EQ);
        true
    }
}

impl Eq for Gated {}

impl std::hash::Hash for Gated {
    fn hash<H: std::hash::Hasher>(&self, _: &mut H) {}
}

/// A thread has taken the key for a read, and has yet to claim it; then the reload fails. No second
/// one begins within the pause.
#[test]
fn a_refresh_of_a_stale_entry_hears_of_the_reload_that_a_thread_is_about_to_begin() {
    let (time, calls) = (ManualTicker::new(), Arc::new(AtomicUsize::new(0)));
    let counted = Arc::clone(&calls);
    let users: LoadingCache<Gated, u32, ()> = Cache::builder()
        .ticker(time.clone())
        .name("gated")
        .loading(loader_fn(move |_: &Gated| {
            counted.fetch_add(1, Ordering::SeqCst);
            Err::<u32, ()>(())
        }))
        .refresh_after(refresh::after(SECOND))
        .build();
    let key = Gated(Arc::default());
    users.cache().insert(key.clone(), 1);
    time.advance(SECOND);
    let (begin, begun) = mpsc::channel();
    let (go_on, goes_on) = mpsc::channel();
    *key.0.lock().unwrap() = Some((begin, goes_on));
    assert_eq!(users.get(&key), Ok(1));
    begun.recv_timeout(Duration::from_secs(20)).unwrap();
    let waits = users.refresh_if_stale(key.clone()).expect("it is stale");
    go_on.send(()).unwrap();
    assert_eq!(waits.wait(), Err(LoadError::Failed(Arc::new(()))));
    assert_eq!(calls.load(Ordering::SeqCst), 1);
}

/// They stand in one queue, and are told apart.
#[test]
fn stale_keys_that_share_a_hash_are_all_reloaded() {
    #[derive(Clone, Copy, Default)]
    struct Colliding;
    impl std::hash::Hasher for Colliding {
        fn finish(&self) -> u64 {
            7
        }
        fn write(&mut self, _: &[u8]) {}
    }

    let time = ManualTicker::new();
    let (hangs, is_hanging) = mpsc::channel();
    let (release, released) = mpsc::channel::<()>();
    let (released, runs) = (Mutex::new(released), Arc::new(Mutex::new(Vec::new())));
    let note = Arc::clone(&runs);
    let users = Cache::builder()
        .ticker(time.clone())
        .hasher(std::hash::BuildHasherDefault::<Colliding>::default())
        .loading(loader_fn(move |key: &u64| {
            note.lock().unwrap().push(*key);
            if *key == 0 {
                hangs.send(()).unwrap();
                released.lock().unwrap().recv().unwrap();
            }
            Ok::<u64, ()>(*key)
        }))
        .refresh_after(refresh::after(SECOND))
        .build();
    (0..4).for_each(|key| users.cache().insert(key, key));
    time.advance(SECOND);
    assert_eq!(users.get(&0), Ok(0));
    is_hanging.recv_timeout(Duration::from_secs(20)).unwrap();
    for key in [1, 2, 1, 2, 3] {
        assert_eq!(users.get(&key), Ok(key));
    }
    release.send(()).unwrap();
    assert_eq!(users.refresh(4).wait(), Ok(Some(4)));
    assert_eq!(*runs.lock().unwrap(), [0, 1, 2, 3, 4]);
}

/// A lease is a load under way: that of its own key is joined, that of another key with the hash is
/// not.
#[test]
fn a_refresh_joins_the_load_of_its_key_alone() {
    let users: LoadingCache<u64, u64, (), OneHash> = Cache::builder()
        .hasher(OneHash)
        .loading(loader_fn(|key: &u64| Ok(*key)))
        .build();
    let Leased::Lease(lease) = users.cache().lease(1) else {
        panic!("it is absent")
    };
    let (end, ends) = mpsc::channel();
    let [joins, loads] = [1, 2].map(|key| users.refresh(key));
    thread::spawn(move || end.send(loads.wait()));
    assert_eq!(ends.recv_timeout(20 * SECOND), Ok(Ok(Some(2))));
    lease.fill(50);
    assert_eq!(joins.wait(), Ok(Some(50)));
}

#[test]
fn the_outcome_of_a_refresh_is_that_of_its_turn_however_late_it_is_asked_for() {
    let time = ManualTicker::new();
    let runs: Arc<Mutex<Vec<u64>>> = Arc::default();
    let (open, gate) = mpsc::channel::<()>();
    let (noted, gate) = (Arc::clone(&runs), Mutex::new(gate));
    let users: LoadingCache<u64, u64, ()> = Cache::builder()
        .ticker(time.clone())
        .loading(loader_fn(move |key: &u64| {
            noted.lock().unwrap().push(*key);
            if *key == 2 {
                _ = gate.lock().unwrap().recv();
            }
            Ok(*key)
        }))
        .refresh_after(refresh::after(SECOND))
        .reload_threads(1)
        .build();
    for key in [1, 4] {
        assert_eq!(users.get(&key), Ok(key));
    }
    time.advance(SECOND);
    let held = users.refresh(2);
    until("the thread has work", || runs.lock().unwrap().contains(&2));
    let replaced = users.refresh_if_stale(1).expect("it is stale");
    let removed = users.refresh_if_stale(4).expect("it is stale");
    users.cache().insert(1, 7);
    users.cache().invalidate(&4);
    open.send(()).unwrap();
    assert_eq!(held.wait(), Ok(Some(2)));
    // Its turn comes after those of the others.
    assert_eq!(users.refresh(3).wait(), Ok(Some(3)));
    users.cache().insert(4, 8);
    time.advance(SECOND);
    assert_eq!(replaced.wait(), Ok(Some(7)));
    assert_eq!(removed.wait(), Ok(None));
    assert_eq!(*runs.lock().unwrap(), [1, 4, 2, 3]);
}

/// The write comes while the loader runs, and the entry is stale again when the outcome is asked
/// for.
#[test]
fn a_refresh_whose_load_a_write_revokes_begins_no_second_one() {
    for (joins_a_read, removes) in [(false, false), (false, true), (true, false), (true, true)] {
        for is_if_stale in [false, true] {
            let time = ManualTicker::new();
            let runs = Arc::new(AtomicUsize::new(0));
            let (open, gate) = mpsc::channel::<()>();
            let (counted, gate) = (Arc::clone(&runs), Mutex::new(gate));
            let users: LoadingCache<u64, u64, ()> = Cache::builder()
                .ticker(time.clone())
                .loading(loader_fn(move |key: &u64| {
                    if *key == 1 && counted.fetch_add(1, Ordering::SeqCst) == 1 {
                        gate.lock().unwrap().recv().unwrap();
                    }
                    Ok(*key)
                }))
                .refresh_after(refresh::after(SECOND))
                .build();
            assert_eq!(users.get(&1), Ok(1));
            time.advance(SECOND);
            if joins_a_read {
                assert_eq!(users.get(&1), Ok(1), "stale");
            }
            let late = match is_if_stale {
                true => users.refresh_if_stale(1).expect("it is stale"),
                false => users.refresh(1),
            };
            until("the loader runs", || runs.load(Ordering::SeqCst) == 2);
            if removes {
                users.cache().invalidate(&1);
            } else {
                users.cache().insert(1, 99);
            }
            open.send(()).unwrap();
            // Its turn comes when the load has ended.
            assert_eq!(users.refresh(3).wait(), Ok(Some(3)));
            if removes {
                users.cache().insert(1, 8);
            }
            time.advance(SECOND);
            let case = format!("joins: {joins_a_read}, removes: {removes}, {is_if_stale}");
            let heard = if removes { 1 } else { 99 };
            assert_eq!(late.wait(), Ok(Some(heard)), "{case}");
            assert_eq!(runs.load(Ordering::SeqCst), 2, "{case}");
        }
    }
}

/// The two wait for one turn of the key, which is no longer stale then.
#[test]
fn the_outcomes_of_two_refreshes_do_not_depend_on_which_is_asked_for_first() {
    for if_stale_first in [true, false] {
        let hangs = Arc::new(AtomicBool::new(false));
        let (_own, users, calls) = with_a_stale_entry(&hangs, |_| ());
        let if_stale = || users.refresh_if_stale(1).expect("it is stale");
        let (stale, any);
        if if_stale_first {
            stale = if_stale();
            any = users.refresh(1);
        } else {
            any = users.refresh(1);
            stale = if_stale();
        }
        users.cache().insert(1, 99);
        hangs.store(false, Ordering::SeqCst);
        assert_eq!(any.wait(), Ok(Some(1)));
        assert_eq!(stale.wait(), Ok(Some(99)), "it is not stale at its turn");
        assert_eq!(
            calls.load(Ordering::SeqCst),
            2,
            "the first load, and a refresh"
        );
    }
}

/// A refresh that a write has revoked waits for its turn too, and loads then: the key is gone.
#[test]
fn the_refresh_of_an_entry_that_is_gone_hears_nothing_of_the_load_of_a_revoked_refresh() {
    let time = ManualTicker::new();
    let (open, is_stuck, computes) =
        <(Arc<AtomicBool>, Arc<AtomicBool>, Arc<AtomicBool>)>::default();
    let (gate, stuck) = (Arc::clone(&open), Arc::clone(&is_stuck));
    let users: LoadingCache<u64, u64, ()> = Cache::builder()
        .ticker(time.clone())
        .loading(loader_fn(move |key: &u64| {
            if *key == 2 {
                stuck.store(true, Ordering::SeqCst);
                until("the gate opens", || gate.load(Ordering::SeqCst));
            }
            Ok(*key)
        }))
        .refresh_after(refresh::after(SECOND))
        .reload_threads(1)
        .build();
    assert_eq!(users.get(&1), Ok(1));
    let other = users.refresh(2);
    until("the thread is stuck", || is_stuck.load(Ordering::SeqCst));
    let (end, ends) = mpsc::channel::<()>();
    let compute = thread::spawn({
        let (cache, computes) = (users.cache().clone(), Arc::clone(&computes));
        move || {
            cache.entry(1).and_compute_with(|_| {
                computes.store(true, Ordering::SeqCst);
                ends.recv().unwrap();
                Op::Nop
            })
        }
    });
    until("it computes", || computes.load(Ordering::SeqCst));
    let mut revoked = users.refresh(1);
    users.cache().invalidate(&1);
    end.send(()).unwrap();
    compute.join().unwrap();
    users.cache().insert(1, 50);
    time.advance(SECOND);
    let stale = users.refresh_if_stale(1).expect("it is stale");
    users.cache().invalidate(&1);
    let mut cx = Context::from_waker(Waker::noop());
    assert!(Pin::new(&mut revoked).poll(&mut cx).is_pending());
    open.store(true, Ordering::SeqCst);
    assert_eq!(stale.wait(), Ok(None), "it is gone");
    assert_eq!(revoked.wait(), Ok(Some(1)));
    assert_eq!(other.wait(), Ok(Some(2)));
}

/// A key of which the one that was given, not a clone, panics as it is dropped.
struct Brittle(u64, Arc<AtomicBool>);

impl Clone for Brittle {
    fn clone(&self) -> Self {
        Self(self.0, Arc::default())
    }
}

impl Drop for Brittle {
    fn drop(&mut self) {
        run_hook(&AT_DROP);
        assert!(!self.1.swap(false, Ordering::SeqCst), "as told");
    }
}

impl PartialEq for Brittle {
    fn eq(&self, other: &Self) -> bool {
        self.0 == other.0
    }
}

impl Eq for Brittle {}

impl std::hash::Hash for Brittle {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        self.0.hash(state);
    }
}

#[test]
fn a_key_that_panics_as_it_is_dropped_in_the_queue_costs_no_load() {
    hide_scripted_panics();
    let users: LoadingCache<Brittle, u64, ()> = Cache::builder()
        .ticker(ManualTicker::new())
        .loading(loader_fn(|key: &Brittle| Ok(key.0)))
        .build();
    let panics = Arc::new(AtomicBool::new(true));
    let refresh = users.refresh(Brittle(1, Arc::clone(&panics)));
    assert_eq!(refresh.wait(), Ok(Some(1)));
    assert!(!panics.load(Ordering::SeqCst), "it was dropped");
}

#[test]
fn a_refresh_joins_the_load_that_a_thread_is_about_to_begin() {
    let runs = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&runs);
    let users: LoadingCache<Gated, u32, ()> = Cache::builder()
        .ticker(ManualTicker::new())
        .name("gated")
        .loading(loader_fn(move |_: &Gated| {
            counted.fetch_add(1, Ordering::SeqCst);
            Ok(1)
        }))
        .build();
    let (begin, begun) = mpsc::channel();
    let (go_on, goes_on) = mpsc::channel();
    let key = Gated(Arc::new(Mutex::new(Some((begin, goes_on)))));
    let one = users.refresh(key.clone());
    begun.recv_timeout(Duration::from_secs(20)).unwrap();
    let other = users.refresh(key);
    go_on.send(()).unwrap();
    assert_eq!((one.wait(), other.wait()), (Ok(Some(1)), Ok(Some(1))));
    assert_eq!(runs.load(Ordering::SeqCst), 1);
}

/// The thread tells the listener of the entry that is due, before it begins the load.
#[test]
fn a_listener_refreshes_the_key_that_its_thread_is_about_to_load() {
    let time = ManualTicker::new();
    let own = OwnCache::<Numbers>::new();
    let cache = own.place();
    let (tell, told) = mpsc::channel();
    let users: Numbers = Cache::builder()
        .ticker(time.clone())
        .scheduler(Scheduler::disabled())
        .time_to_live(SECOND)
        .removal_listener(move |key: &u64, _: &u64, cause| {
            if let (RemovalCause::Expired, Some(users)) = (cause, cache.get()) {
                tell.send(users.refresh(*key).wait()).unwrap();
            }
        })
        .delivery(Delivery::Caller)
        .loading(loader_fn(|key: &u64| Ok(*key)))
        .reload_threads(1)
        .build();
    own.set(&users);
    users.cache().insert(1, 9);
    time.advance(SECOND);
    let refresh = users.refresh(1);
    let heard = told.recv_timeout(Duration::from_secs(20));
    assert_eq!(heard, Ok(Ok(Some(1))), "it waits for itself");
    assert_eq!(refresh.wait(), Ok(Some(1)));
}

/// The thread may claim the key at any moment of the second call.
#[test]
fn two_refreshes_load_once_wherever_the_first_is() {
    let (both, runs) = <(Arc<AtomicBool>, Arc<AtomicUsize>)>::default();
    let (asked, counted) = (Arc::clone(&both), Arc::clone(&runs));
    let users: LoadingCache<u64, u64, ()> = Cache::builder()
        .ticker(ManualTicker::new())
        .loading(loader_fn(move |key: &u64| {
            counted.fetch_add(1, Ordering::SeqCst);
            until("both have asked", || asked.load(Ordering::SeqCst));
            Ok(*key)
        }))
        .build();
    for round in 1..=2_000 {
        both.store(false, Ordering::SeqCst);
        let one = users.refresh(1);
        for _ in 0..dice_of(round) {
            std::hint::spin_loop();
        }
        let other = users.refresh(1);
        both.store(true, Ordering::SeqCst);
        assert_eq!((one.wait(), other.wait()), (Ok(Some(1)), Ok(Some(1))));
        assert_eq!(runs.load(Ordering::SeqCst), round, "round {round}");
    }
}

/// Between 0 and 2,047.
fn dice_of(round: usize) -> usize {
    round.wrapping_mul(0x9E37_79B9) >> 7 & 0x7FF
}

/// A key that does something when a reload thread clones it for the so manieth time.
#[derive(Debug)]
struct Eager(u64, Arc<Clones>);

#[derive(Debug, Default)]
struct Clones {
    left: AtomicUsize,
    users: Mutex<Option<LoadingCache<Eager, u64, ()>>>,
}

impl Clones {
    /// Waits for its turn of the key, as other code would that waits for its load.
    fn compute(&self, key: Eager) {
        let users = self.users.lock().unwrap().clone();
        if let Some(users) = users {
            _ = users.cache().entry(key).and_compute_with(|_| Op::Nop);
        }
    }
}

impl Clone for Eager {
    fn clone(&self) -> Self {
        let thread = thread::current();
        if thread.name().is_some_and(|name| name.ends_with("-reload")) {
            let left = self.1.left.load(Ordering::SeqCst);
            self.1.left.store(left.saturating_sub(1), Ordering::SeqCst);
            if left == 1 {
                self.1.compute(Self(self.0, Arc::clone(&self.1)));
            }
        }
        Self(self.0, Arc::clone(&self.1))
    }
}

impl PartialEq for Eager {
    fn eq(&self, other: &Self) -> bool {
        self.0 == other.0
    }
}

impl Eq for Eager {}

impl std::hash::Hash for Eager {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        self.0.hash(state);
    }
}

impl Wake for Clones {
    fn wake(self: Arc<Self>) {
        self.compute(Eager(1, Arc::clone(&self)));
    }
}

/// The key's `Clone`, at any moment, or the waker of a refresh.
#[test]
fn user_code_that_waits_for_the_key_that_its_reload_thread_claims_is_refused() {
    for clone in 0..8 {
        let (time, open) = (ManualTicker::new(), Arc::new(AtomicBool::new(false)));
        let (begin, begun) = mpsc::channel();
        let gate = Arc::clone(&open);
        let users: LoadingCache<Eager, u64, ()> = Cache::builder()
            .ticker(time.clone())
            .loading(loader_fn(move |key: &Eager| {
                if key.0 == 0 {
                    begin.send(()).unwrap();
                    until("the gate opens", || gate.load(Ordering::SeqCst));
                }
                Ok(key.0)
            }))
            .refresh_after(refresh::after(SECOND))
            .build();
        let clones = Arc::<Clones>::default();
        let key = |number| Eager(number, Arc::clone(&clones));
        users.cache().insert(key(1), 9);
        time.advance(SECOND);
        let busy = users.refresh(key(0));
        begun.recv_timeout(Duration::from_secs(20)).unwrap();
        let mut any = users.refresh(key(1));
        let stale = users.refresh_if_stale(key(1)).expect("it is stale");
        *clones.users.lock().unwrap() = Some(users.clone());
        clones.left.store(clone, Ordering::SeqCst);
        if clone == 0 {
            let waker = Waker::from(Arc::clone(&clones));
            let mut cx = Context::from_waker(&waker);
            assert!(Pin::new(&mut any).poll(&mut cx).is_pending());
        }
        // The end of the first load clones its key.
        clones
            .left
            .fetch_add(usize::from(clone > 0), Ordering::SeqCst);
        open.store(true, Ordering::SeqCst);
        let (tell, told) = mpsc::channel();
        thread::spawn(move || {
            _ = (busy.wait(), any.wait(), stale.wait());
            tell.send(()).unwrap();
        });
        let ends = told.recv_timeout(Duration::from_secs(20));
        *clones.users.lock().unwrap() = None;
        assert!(ends.is_ok(), "clone {clone}: its thread waits for itself");
        assert_eq!(users.refresh(key(1)).wait(), Ok(Some(1)));
    }
}

/// The loader hangs, and no handle is left of the cache whose clock measures the load.
#[test]
fn a_refresh_times_out_though_the_cache_is_gone() {
    for is_polled_before in [true, false] {
        let (runs, open) = <(Arc<AtomicBool>, Arc<AtomicBool>)>::default();
        let (begun, gate) = (Arc::clone(&runs), Arc::clone(&open));
        let users: LoadingCache<u64, u64, ()> = Cache::builder()
            .ticker(ManualTicker::new())
            .load_timeout(Duration::from_millis(1))
            .loading(loader_fn(move |key: &u64| {
                begun.store(true, Ordering::SeqCst);
                until("the gate opens", || gate.load(Ordering::SeqCst));
                Ok(*key)
            }))
            .build();
        let mut refresh = users.refresh(1);
        until("the loader runs", || runs.load(Ordering::SeqCst));
        if is_polled_before {
            let mut cx = Context::from_waker(Waker::noop());
            assert!(Pin::new(&mut refresh).poll(&mut cx).is_pending());
        }
        drop(users);
        let (tell, told) = mpsc::channel();
        thread::spawn(move || tell.send(refresh.wait()).unwrap());
        let outcome = told.recv_timeout(Duration::from_secs(20));
        open.store(true, Ordering::SeqCst);
        assert_eq!(outcome, Ok(Err(LoadError::TimedOut)), "{is_polled_before}");
    }
}

/// Its own load is overdue, and the one that has taken the place has ended when it is asked.
#[test]
fn a_refresh_hears_of_the_load_that_has_replaced_its_own_however_late_it_asks() {
    for (is_async, fails) in [(false, false), (false, true), (true, false), (true, true)] {
        let time = ManualTicker::new();
        let (runs, open) = <(Arc<AtomicUsize>, Arc<AtomicBool>)>::default();
        let (counted, gate) = (Arc::clone(&runs), Arc::clone(&open));
        let load = move |_: &u64| {
            let run = counted.fetch_add(1, Ordering::SeqCst) + 1;
            if run == 1 {
                until("the gate opens", || gate.load(Ordering::SeqCst));
            }
            if fails { Err(run) } else { Ok(run) }
        };
        let builder = Cache::builder()
            .ticker(time.clone())
            .load_timeout(5 * SECOND);
        let users: LoadingCache<u64, usize, usize> = if is_async {
            let load = Arc::new(load);
            builder
                .loading(async_loader_fn(move |key: &u64| {
                    let (load, key) = (Arc::clone(&load), *key);
                    async move { load(&key) }
                }))
                .spawner(|task| drop(thread::spawn(|| futures_lite::future::block_on(task))))
                .build()
        } else {
            builder.loading(loader_fn(load)).reload_threads(2).build()
        };
        let late = users.refresh(1);
        until("it runs", || runs.load(Ordering::SeqCst) == 1);
        time.advance(5 * SECOND);
        let next = users.refresh(1).wait();
        let case = format!("async: {is_async}, fails: {fails}");
        if fails {
            assert_eq!(next, Err(LoadError::Failed(Arc::new(2))), "{case}");
        } else {
            assert_eq!(next, Ok(Some(2)), "{case}");
        }
        assert_eq!(late.wait(), next, "{case}");
        assert_eq!(runs.load(Ordering::SeqCst), 2, "{case}");
        open.store(true, Ordering::SeqCst);
    }
}

/// The load with which it compares ends, and the drop of its key begins the next one.
#[test]
fn a_refresh_joins_the_load_that_began_while_it_looked() {
    let runs = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&runs);
    let (go_on, goes_on) = mpsc::channel();
    let goes_on = Mutex::new(goes_on);
    let users: LoadingCache<Gated, u32, ()> = Cache::builder()
        .ticker(ManualTicker::new())
        .loading(loader_fn(move |_: &Gated| {
            counted.fetch_add(1, Ordering::SeqCst);
            goes_on.lock().unwrap().recv().map_err(drop)
        }))
        .build();
    let key = Gated(Arc::default());
    let (reader, read) = (users.clone(), key.clone());
    let first = thread::spawn(move || assert!(reader.get(&read).is_ok()));
    until("it loads", || runs.load(Ordering::SeqCst) == 1);
    let (hand, handed) = mpsc::channel();
    let (again, next, end) = (users.clone(), key.clone(), go_on.clone());
    let counted = Arc::clone(&runs);
    AT_EQ.set(Some(Box::new(move || {
        end.send(1).unwrap();
        first.join().unwrap();
        again.cache().invalidate(&next);
        AT_DROP.set(Some(Box::new(move || {
            hand.send(again.refresh(next)).unwrap();
            until("it loads", || counted.load(Ordering::SeqCst) == 2);
        })));
    })));
    let other = users.refresh(key);
    (2..4).for_each(|value| go_on.send(value).unwrap());
    let one = handed.try_recv().expect("the key was dropped meanwhile");
    assert_eq!((one.wait(), other.wait()), (Ok(Some(2)), Ok(Some(2))));
    assert_eq!(runs.load(Ordering::SeqCst), 2);
}

/// A reload thread has taken the key. So the reader finds a job, or finds one that ends meanwhile.
#[test]
fn a_key_that_panics_as_it_is_dropped_beside_a_job_costs_no_read() {
    hide_scripted_panics();
    for is_read in [true, false] {
        let time = ManualTicker::new();
        let users: LoadingCache<Gated, u32, ()> = Cache::builder()
            .ticker(time.clone())
            .name("gated")
            .loading(loader_fn(|_: &Gated| Ok(1)))
            .refresh_after(refresh::after(SECOND))
            .build();
        let (begin, begun) = mpsc::channel();
        let (go_on, goes_on) = mpsc::channel();
        let key = Gated(Arc::default());
        if is_read {
            users.cache().insert(key.clone(), 9);
            time.advance(SECOND);
        }
        *key.0.lock().unwrap() = Some((begin, goes_on));
        let first = users.refresh(key.clone());
        begun.recv_timeout(Duration::from_secs(20)).unwrap();
        let panics: Box<dyn FnOnce()> = Box::new(|| panic!("told to panic in a drop"));
        if is_read {
            AT_DROP.set(Some(panics));
            let read = catch_unwind(AssertUnwindSafe(|| users.get(&key)));
            assert_eq!(read.expect("it reaches the reader"), Ok(9));
            go_on.send(()).unwrap();
            assert_eq!(first.wait(), Ok(Some(1)));
        } else {
            AT_EQ.set(Some(Box::new(move || {
                go_on.send(()).unwrap();
                assert_eq!(first.wait(), Ok(Some(1)));
                AT_DROP.set(Some(panics));
            })));
            let other = catch_unwind(AssertUnwindSafe(|| users.refresh(key)));
            let other = other.expect("it reaches the caller");
            assert_eq!(other.wait(), Ok(Some(1)));
        }
        assert!(AT_DROP.take().is_none(), "no key was dropped");
    }
}

/// A cache with one reload thread and the due key 1. Before that thread leads, it does this.
fn with_a_due_key(at_expiry: impl Fn() + Send + Sync + 'static) -> Numbers {
    let time = ManualTicker::new();
    let users: Numbers = Cache::builder()
        .ticker(time.clone())
        .scheduler(Scheduler::disabled())
        .time_to_live(SECOND)
        .removal_listener(move |_: &u64, _: &u64, cause| {
            if cause == RemovalCause::Expired {
                at_expiry();
            }
        })
        .delivery(Delivery::Caller)
        .loading(loader_fn(|key: &u64| Ok(*key)))
        .reload_threads(1)
        .build();
    users.cache().insert(1, 9);
    time.advance(SECOND);
    users
}

/// The last handle of the loading cache goes inside the listener. The waker of the first refresh
/// waits for the next one.
#[test]
fn a_refresh_that_no_thread_takes_any_more_is_abandoned() {
    for is_polled in [false, true] {
        let (give, given) = mpsc::channel::<Numbers>();
        let given = Mutex::new(given);
        let (tell, told) = mpsc::channel();
        let users = with_a_due_key(move || {
            let users = given.lock().unwrap().recv().unwrap();
            let mut refresh = users.refresh(1);
            let (refuse, refused) = mpsc::channel();
            let waker = waits_for(users.refresh(1), refuse);
            drop(users);
            if is_polled {
                let mut cx = Context::from_waker(&waker);
                _ = Pin::new(&mut refresh).poll(&mut cx);
                assert_eq!(refused.recv(), Ok(false));
            }
            tell.send(refresh.wait()).unwrap();
        });
        let cache = users.cache().clone();
        let first = users.refresh(1);
        give.send(users).unwrap();
        let heard = told.recv_timeout(Duration::from_secs(20));
        if heard.is_err() {
            // Its drop would wait for the listener.
            std::mem::forget(cache);
        }
        assert_eq!(heard, Ok(Err(LoadError::Abandoned)), "{is_polled}");
        assert_eq!(first.wait(), Ok(Some(1)));
    }
}

/// Two refreshes wait behind a loader that hangs, and the last handle goes. The waker of one, or
/// the drop of a key, waits for the other.
#[test]
fn user_code_that_waits_for_another_refresh_when_none_has_its_turn_any_more() {
    for is_waker in [true, false] {
        let (begin, begun) = mpsc::channel();
        let (go_on, goes_on) = mpsc::channel();
        let goes_on = Mutex::new(goes_on);
        let users: LoadingCache<Brittle, u64, ()> = Cache::builder()
            .loading(loader_fn(move |key: &Brittle| {
                begin.send(()).unwrap();
                goes_on.lock().unwrap().recv().map_err(drop)?;
                Ok(key.0)
            }))
            .build();
        let key = |number| Brittle(number, Arc::default());
        let busy = users.refresh(key(0));
        begun.recv_timeout(Duration::from_secs(20)).unwrap();
        let mut first = users.refresh(key(1));
        let (tell, told) = mpsc::channel();
        let waker = waits_for(users.refresh(key(2)), tell);
        if is_waker {
            let mut cx = Context::from_waker(&waker);
            assert!(Pin::new(&mut first).poll(&mut cx).is_pending());
        }
        thread::spawn(move || {
            if !is_waker {
                AT_DROP.set(Some(Box::new(|| waker.wake())));
            }
            drop(users);
        });
        let refused = told.recv_timeout(Duration::from_secs(20));
        go_on.send(()).unwrap();
        assert_eq!(refused, Ok(false), "waker: {is_waker}");
        assert_eq!(first.wait(), Err(LoadError::Abandoned));
        assert_eq!(busy.wait(), Ok(Some(0)));
    }
}

/// A thread has taken the key for a read, and the entry is due by the claim. A refresh comes before
/// that, and another one while the listener hears of the entry.
#[test]
fn refreshes_that_come_before_a_load_has_begun_share_it() {
    let (time, runs) = (ManualTicker::new(), Arc::new(AtomicUsize::new(0)));
    let counted = Arc::clone(&runs);
    let (begin, begun) = mpsc::channel();
    let (go_on, goes_on) = mpsc::channel();
    let (expire, expired) = mpsc::channel();
    let (go_further, goes_further) = mpsc::channel();
    let goes_further = Mutex::new(goes_further);
    let users: LoadingCache<Gated, u32, ()> = Cache::builder()
        .ticker(time.clone())
        .name("gated")
        .scheduler(Scheduler::disabled())
        .time_to_live(2 * SECOND)
        .removal_listener(move |_: &Gated, _: &u32, cause| {
            if cause == RemovalCause::Expired {
                expire.send(()).unwrap();
                goes_further.lock().unwrap().recv().unwrap();
            }
        })
        .delivery(Delivery::Caller)
        .loading(loader_fn(move |_: &Gated| {
            counted.fetch_add(1, Ordering::SeqCst);
            Ok(1)
        }))
        .refresh_after(refresh::after(SECOND))
        .build();
    let key = Gated(Arc::default());
    users.cache().insert(key.clone(), 9);
    time.advance(SECOND);
    *key.0.lock().unwrap() = Some((begin, goes_on));
    assert_eq!(users.get(&key), Ok(9));
    begun.recv_timeout(Duration::from_secs(20)).unwrap();
    time.advance(SECOND);
    let one = users.refresh(key.clone());
    go_on.send(()).unwrap();
    expired.recv_timeout(Duration::from_secs(20)).unwrap();
    let other = users.refresh(key);
    go_further.send(()).unwrap();
    assert_eq!((one.wait(), other.wait()), (Ok(Some(1)), Ok(Some(1))));
    assert_eq!(runs.load(Ordering::SeqCst), 1);
}

fn is_refused<T>(wait: impl FnOnce() -> T) -> bool {
    catch_unwind(AssertUnwindSafe(wait)).is_err()
}

/// As a thread, and as a task.
#[test]
fn a_thread_that_waits_for_the_refresh_which_it_has_taken_is_refused() {
    hide_scripted_panics();
    for is_task in [false, true] {
        let (give, given) = mpsc::channel::<Refreshing<u64, ()>>();
        let given = Mutex::new(given);
        let (tell, told) = mpsc::channel();
        let users = with_a_due_key(move || {
            let taken = given.lock().unwrap().recv().unwrap();
            let refused = is_refused(|| match is_task {
                true => futures_lite::future::block_on(taken),
                false => taken.wait(),
            });
            tell.send(refused).unwrap();
        });
        give.send(users.refresh(1)).unwrap();
        let refused = told.recv_timeout(Duration::from_secs(20));
        assert_eq!(refused, Ok(true), "task: {is_task}");
        assert_eq!(users.refresh(1).wait(), Ok(Some(1)));
    }
}

/// Waits for a refresh when it is woken, and tells whether that was refused.
struct WaitsFor(Mutex<Option<Refreshing<u64, ()>>>, mpsc::Sender<bool>);

impl Wake for WaitsFor {
    fn wake(self: Arc<Self>) {
        let refresh = self.0.lock().unwrap().take();
        if let Some(refresh) = refresh {
            self.1.send(is_refused(|| refresh.wait())).unwrap();
        }
    }
}

fn waits_for(refresh: Refreshing<u64, ()>, tell: mpsc::Sender<bool>) -> Waker {
    Waker::from(Arc::new(WaitsFor(Mutex::new(Some(refresh)), tell)))
}

#[test]
fn a_waker_that_waits_for_the_next_refresh_of_the_job_is_refused() {
    hide_scripted_panics();
    let stuck = &Stuck::new(1, None);
    let mut first = stuck.users.refresh(20);
    let (tell, told) = mpsc::channel();
    let waker = waits_for(stuck.users.refresh(20), tell);
    let mut cx = Context::from_waker(&waker);
    assert!(Pin::new(&mut first).poll(&mut cx).is_pending());
    stuck.stuck.store(false, Ordering::SeqCst);
    assert_eq!(told.recv_timeout(Duration::from_secs(20)), Ok(true));
    assert_eq!(first.wait(), Ok(Some(20)));
}

/// A closure waits for the refresh that a thread has taken, and that thread for the closure.
#[test]
fn a_ring_through_a_refresh_that_waits_for_its_turn() {
    hide_scripted_panics();
    let (give, given) = mpsc::channel::<Cache<u64, u64>>();
    let given = Mutex::new(given);
    let (tell, told) = mpsc::channel();
    let tells = tell.clone();
    let users = with_a_due_key(move || {
        let cache = given.lock().unwrap().recv().unwrap();
        tells.send(is_refused(|| cache.get_with(2, || 0))).unwrap();
    });
    let cache = users.cache().clone();
    thread::spawn(move || {
        cache.get_with(2, || {
            let refresh = users.refresh(1);
            give.send(users.cache().clone()).unwrap();
            tell.send(is_refused(|| refresh.wait())).unwrap();
            2
        })
    });
    let both = [(); 2].map(|()| told.recv_timeout(Duration::from_secs(20)));
    assert!(
        both == [Ok(true), Ok(false)] || both == [Ok(false), Ok(true)],
        "{both:?}"
    );
}
