//! Caches that are dropped while they are used, threads that end while they use them, thousands of
//! both; how many threads the crate starts, and what happens if none can be started.

mod idle_threads;
#[path = "../support/mod.rs"]
mod support;

use std::cell::RefCell;
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::{self, Sender};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use support::census::{Census, Counted};
use support::{Dice, Gate, HOUR, millis, must_end, secs, until};
use wheelhouse::RemovalCause::Expired;
use wheelhouse::{Cache, ManualTicker, Scheduler};

/// Longer than any action here takes, even on a loaded machine.
const SOON: Duration = secs(60);

/// The tests of this file measure the whole process, so they run one by one.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Threads of this process that the crate has started, by name (15 bytes of it), sorted; empty if
/// the system does not list threads.
fn thread_names() -> Vec<String> {
    let Ok(tasks) = std::fs::read_dir("/proc/self/task") else {
        return Vec::new();
    };
    let name = |task: std::fs::DirEntry| std::fs::read_to_string(task.path().join("comm"));
    let mut names: Vec<String> = tasks
        .flatten()
        .filter_map(|task| Some(name(task).ok()?.trim_end().to_string()))
        .filter(|name| name.starts_with("wheelhouse"))
        .collect();
    names.sort_unstable();
    names
}

fn cache_threads() -> usize {
    thread_names().len()
}

/// Resident memory of this process, in KiB; 0 if the system does not report it.
fn resident() -> u64 {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let pages = statm.split(' ').nth(1).and_then(|pages| pages.parse().ok());
    pages.unwrap_or(0) * 4
}

fn one_of_everything(cache: &Cache<u32, Counted<u32>>, census: &Census, dice: &mut Dice) {
    let key = dice.below(50) as u32;
    match dice.below(9) {
        0..=2 => cache.insert(key, census.counted(key)),
        3 => {
            let life = millis(dice.below(3));
            cache.insert_with_ttl(key, census.counted(key), life);
        }
        4 => drop(cache.get(&key)),
        5 => drop(cache.remove(&key)),
        6 => _ = cache.set_expiry(&key, Some(millis(1))),
        7 => _ = cache.iter().take(3).count(),
        _ => cache.run_pending_tasks(),
    }
}

#[test]
fn handles_are_dropped_one_by_one_while_other_threads_work() {
    let _alone = alone();
    let census = Census::default();
    let counted = census.clone();
    must_end(move || {
        for round in 0..60 {
            let builder = Cache::builder().expiry_resolution(millis(1));
            let cache = match round % 3 {
                0 => builder.build(),
                1 => builder.max_capacity(20).build(),
                _ => builder.scheduler(Scheduler::disabled()).build(),
            };
            std::thread::scope(|threads| {
                for thread in 0..4u64 {
                    let (cache, counted) = (cache.clone(), counted.clone());
                    threads.spawn(move || {
                        let mut dice = Dice::new(round * 4 + thread);
                        for _ in 0..100 * (thread + 1) {
                            one_of_everything(&cache, &counted, &mut dice);
                        }
                    });
                }
                drop(cache);
            });
        }
    });
    until("values outlived their caches", || census.alive() == 0);
}

#[test]
fn the_last_handle_may_be_dropped_during_a_pass() {
    let _alone = alone();
    let census = Census::default();
    for round in 0..100 {
        let cache = Cache::builder()
            .name("passing")
            .expiry_resolution(millis(1))
            .build();
        for key in 0..2_000u32 {
            cache.insert_with_ttl(key, census.counted(key), millis(2));
        }
        // The scheduler thread is in its run by now, just before it, or just after it.
        let began = Instant::now();
        while began.elapsed() < Duration::from_micros(1_500 + round * 20) {
            std::hint::spin_loop();
        }
        drop(cache);
    }
    until("values outlived their caches", || census.alive() == 0);
    until("threads outlived their caches", || cache_threads() == 0);
}

thread_local! {
    static LAST: RefCell<Option<Late>> = const { RefCell::new(None) };
}

/// A value that reads and writes a cache when its thread ends.
struct Late(Cache<u32, Counted<u32>>, Census);

impl Drop for Late {
    fn drop(&mut self) {
        for key in 0..50 {
            drop(self.0.get(&key));
            self.0.insert(key + 1_000, self.1.counted(key));
        }
    }
}

#[test]
fn threads_that_end_leave_nothing_behind_in_the_rings() {
    let _alone = alone();
    let census = Census::default();
    let cache = Cache::builder()
        .max_capacity(500)
        .ticker(ManualTicker::new())
        .build();
    (0..100).for_each(|key| cache.insert(key, census.counted(key)));
    cache.run_pending_tasks();
    for round in 0..300 {
        let (cache, census) = (cache.clone(), census.clone());
        std::thread::spawn(move || {
            // A few events each: no ring is full, so none is drained before the thread ends.
            for key in 0..5 {
                drop(cache.get(&(round * 7 % 100 + key)));
            }
            if round % 10 == 0 {
                LAST.set(Some(Late(cache, census)));
            }
        })
        .join()
        .unwrap();
    }
    cache.invalidate_all();
    for _ in 0..3 {
        cache.run_pending_tasks();
    }
    assert_eq!(census.alive(), 0, "a ring still names them");
}

#[test]
fn thousands_of_caches_leave_no_thread_and_no_memory() {
    let _alone = alone();
    let thousand = |census: &Census| {
        for n in 0..1_000u32 {
            let builder = Cache::builder().expiry_resolution(millis(1));
            let cache = match n % 3 {
                0 => builder.max_capacity(100).build(),
                // These caches start no thread, because they never schedule a run.
                1 => builder.scheduler(Scheduler::disabled()).build(),
                _ => builder.build(),
            };
            for key in 0..20 {
                cache.insert_with_ttl(key, census.counted(key), HOUR);
                drop(cache.get(&(key / 2)));
            }
            (0..10).for_each(|key| cache.invalidate(&key));
        }
    };
    let census = Census::default();
    let mut held = Vec::new();
    for _ in 0..5 {
        thousand(&census);
        until("threads outlived their caches", || cache_threads() == 0);
        assert_eq!(census.alive(), 0);
        held.push(resident());
    }
    println!("resident after each thousand caches, in KiB: {held:?}");
    // Four thousand more caches take no more memory, whatever the allocator keeps: a leak of 1 KiB
    // each would show. A sanitizer keeps freed memory for a while.
    assert!(
        cfg!(wheelhouse_single) || held[4] <= held[0] + 4_000,
        "{held:?}"
    );
}

#[test]
fn a_reference_held_for_a_million_writes_holds_their_memory_and_no_longer() {
    let _alone = alone();
    const WRITES: u32 = 1_000_000;
    let census = Census::default();
    let cache = Cache::builder().ticker(ManualTicker::new()).build();
    for key in 0..100 {
        cache.insert(key, census.counted(key));
    }
    let mut held = Vec::new();
    for _ in 0..2 {
        let before = resident();
        let entry = cache.get_ref(&7).expect("present");
        let value = entry.payload;
        let began = Instant::now();
        for n in 0..WRITES {
            cache.insert(n % 100, census.counted(n));
        }
        let took = began.elapsed();
        cache.run_pending_tasks();
        let (alive, full) = (census.alive(), resident());
        assert_eq!(entry.payload, value, "the reference shows another value");
        assert!(
            alive >= i64::from(WRITES),
            "{alive} values alive: freed under a reader"
        );
        drop(entry);
        for _ in 0..3 {
            cache.run_pending_tasks();
        }
        let after = resident();
        println!(
            "{WRITES} writes in {took:.1?} under a reference: {alive} values held, resident {before} → {full} → {after} KiB"
        );
        assert_eq!(census.alive(), 100, "no reference holds them");
        held.push(full);
    }
    // A sanitizer keeps freed memory for a while, to detect its use.
    assert!(
        cfg!(wheelhouse_single) || held[1] <= held[0] + held[0] / 4,
        "the second time takes more: {held:?} KiB"
    );
}

/// The test below runs it in a process of its own, where no thread can be started.
#[test]
#[ignore = "a part of a_thread_that_cannot_be_started_leaves_maintenance_to_the_callers"]
fn in_a_process_without_threads() {
    assert!(
        std::thread::Builder::new().spawn(|| ()).is_err(),
        "a thread was started: the test proves nothing"
    );
    let heard = support::record::Record::new();
    let scheduler = Scheduler::background();
    let caches: Vec<Cache<u32, u32>> = (0..2)
        .map(|_| {
            Cache::builder()
                .expiry_resolution(millis(1))
                .scheduler(scheduler.clone())
                .removal_listener(heard.listener())
                .build()
        })
        .collect();
    for cache in &caches {
        for key in 0..5_000 {
            cache.insert_with_ttl(key, key, millis(20));
        }
        let began = Instant::now();
        while began.elapsed() < millis(40) {
            std::hint::spin_loop();
        }
        // Callers do the expiry, a few entries each.
        for key in 0..5_000 {
            assert_eq!(cache.get(&key), None);
            cache.insert_with_ttl(key + 10_000, key, HOUR);
        }
        let left = cache.entry_count();
        assert!(
            left < 7_500,
            "{left} entries: no call removed the expired ones"
        );
        // And they call the listener: notifications do not pile up.
        let mut told = heard.take();
        let gone = 10_000 - left as usize;
        assert!(
            told.len() + 1_000 > gone,
            "{gone} entries were removed, the listener heard of {}",
            told.len()
        );
        cache.run_pending_tasks();
        assert_eq!(cache.entry_count(), 5_000);
        told.extend(heard.take());
        assert_eq!(told.len(), 5_000);
        assert!(told.iter().all(|notice| notice.2 == Expired));
        cache.invalidate(&10_000);
        cache.run_pending_tasks();
        assert_eq!((cache.entry_count(), heard.take().len()), (4_999, 1));
    }
}

#[test]
fn a_thread_that_cannot_be_started_leaves_maintenance_to_the_callers() {
    let _alone = alone();
    // A stack larger than any address space. The test harness runs a single test on its first
    // thread.
    let output = Command::new(std::env::current_exe().expect("this program"))
        .args(["--exact", "in_a_process_without_threads"])
        .args(["--ignored", "--nocapture", "--test-threads=1"])
        .env("RUST_MIN_STACK", (1u64 << 60).to_string())
        .output()
        .expect("this program runs");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
    let reports = said.matches("the background thread could not be started");
    assert_eq!(reports.count(), 1, "two caches, one scheduler: {said}");
}

#[test]
fn the_thread_ends_with_the_last_cache_and_starts_again() {
    let _alone = alone();
    for round in 0..20u32 {
        let cache: Cache<u32, u32> = Cache::builder().build();
        cache.insert_with_ttl(round, 0, HOUR);
        let other = Cache::builder().build();
        other.insert_with_ttl(round, 0, HOUR);
        assert!(cache_threads() <= 1);
        drop(cache);
        other.insert_with_ttl(round, 1, secs(1));
        drop(other);
        until("no cache is left for the thread", || cache_threads() == 0);
    }
}

thread_local! {
    static AT_EXIT: RefCell<Option<Lingering>> = const { RefCell::new(None) };
}

/// Takes its time when its thread ends, then counts that.
struct Lingering(Arc<AtomicU32>);

impl Lingering {
    /// Lets the calling thread linger.
    fn set(ends: &Arc<AtomicU32>) {
        if AT_EXIT.with_borrow(Option::is_none) {
            AT_EXIT.set(Some(Self(Arc::clone(ends))));
        }
    }
}

impl Drop for Lingering {
    fn drop(&mut self) {
        std::thread::sleep(millis(30));
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

/// A value that is dropped by the scheduler thread.
struct Marks(Arc<AtomicU32>, Arc<AtomicU32>);

impl Drop for Marks {
    fn drop(&mut self) {
        if std::thread::current().name() == Some("wheelhouse") {
            Lingering::set(&self.0);
            self.1.fetch_add(1, Ordering::SeqCst);
        }
    }
}

/// The code of the crate may be unloaded when the last cache is gone.
#[test]
fn the_last_drop_of_the_last_cache_waits_for_the_end_of_all_threads() {
    let _alone = alone();
    for round in 0..5 {
        let ends = Arc::new(AtomicU32::new(0));
        let heard = Arc::new(AtomicU32::new(0));
        let (hears, marks) = (Arc::clone(&heard), Arc::clone(&ends));
        let cache = Cache::builder()
            .expiry_resolution(millis(1))
            .removal_listener(move |_: &u32, _: &Marks, _| {
                Lingering::set(&marks);
                hears.fetch_add(1, Ordering::SeqCst);
            })
            .build();
        let other: Cache<u32, u32> = Cache::builder().build();
        // Otherwise the scheduler thread ends with the first cache, perhaps in this moment.
        let is_scheduled = round % 2 == 0;
        if is_scheduled {
            other.insert_with_ttl(1, 1, HOUR);
        }
        let dropped = Arc::new(AtomicU32::new(0));
        let value = Marks(Arc::clone(&ends), Arc::clone(&dropped));
        cache.insert_with_ttl(1, value, millis(2));
        until("removed and told", || heard.load(Ordering::SeqCst) == 1);
        until("dropped by the scheduler thread", || {
            dropped.load(Ordering::SeqCst) == 1
        });
        drop(cache);
        let ended = ends.load(Ordering::SeqCst);
        assert!(!is_scheduled || ended == 0, "another cache lives");
        drop(other);
        assert_eq!(ends.load(Ordering::SeqCst), 2, "round {round}");
    }
}

/// The last cache of the process ends, and another one is built in that moment: its listener waits
/// for the drop of the first.
#[test]
fn the_drop_of_one_cache_does_not_wait_for_the_listener_of_another() {
    let _alone = alone();
    must_end(|| {
        for _ in 0..50 {
            let first = Cache::builder()
                .removal_listener(|_: &u32, _: &u32, _| ())
                .build();
            first.insert(1, 1);
            first.invalidate(&1);
            first.run_pending_tasks();
            let dropped = Gate::new();
            let waits = Arc::clone(&dropped);
            std::thread::scope(|threads| {
                threads.spawn(move || {
                    drop(first);
                    dropped.open();
                });
                for _ in 0..10 {
                    let waits = Arc::clone(&waits);
                    let other = Cache::builder()
                        .removal_listener(move |_: &u32, _: &u32, _| assert!(waits.wait()))
                        .record_stats()
                        .build();
                    other.insert(1, 1);
                    other.invalidate(&1);
                    other.run_pending_tasks();
                    assert_eq!(other.stats().listener_panics(), 0, "both wait");
                }
            });
        }
    });
}

/// Each write requests an earlier run than all before, for one cache after the other.
#[test]
fn thousands_of_caches_are_served_by_one_thread() {
    let _alone = alone();
    const CACHES: u32 = 3_000;
    let caches: Vec<Cache<u32, u32>> = (0..CACHES)
        .map(|_| Cache::builder().expiry_resolution(millis(1)).build())
        .collect();
    for round in 1..=5 {
        for cache in &caches {
            cache.insert_with_ttl(round, 0, HOUR / round);
        }
    }
    for cache in &caches {
        cache.insert_with_ttl(9, 0, millis(20));
    }
    until("an entry of each cache expires", || {
        caches.iter().all(|cache| cache.entry_count() == 5)
    });
    assert!(cache_threads() <= 1);
}

/// A destructor of one cache holds the scheduler thread up; the writers of another do its work.
#[test]
fn writers_do_the_work_of_a_thread_that_is_very_late() {
    /// A value whose destructor reports that it runs, and waits.
    struct Stuck(Sender<()>, Arc<Gate>);
    impl Drop for Stuck {
        fn drop(&mut self) {
            self.0.send(()).ok();
            self.1.wait();
        }
    }

    let _alone = alone();
    let (gate, clock) = (Gate::new(), ManualTicker::new());
    let (entered, enters) = mpsc::channel();
    let holder = Cache::builder().expiry_resolution(millis(1)).build();
    holder.insert_with_ttl(1, Stuck(entered, Arc::clone(&gate)), millis(1));
    enters.recv_timeout(SOON).expect("dropped by the scheduler");
    let heard = support::record::Record::new();
    let cache = Cache::builder()
        .ticker(clock.clone())
        .scheduler(Scheduler::background())
        .removal_listener(heard.listener())
        .build();
    (0..1_000).for_each(|key| cache.insert_with_ttl(key, key, secs(10)));
    // Due, but not very late yet: the thread should remove it.
    clock.advance(secs(12));
    cache.insert_with_ttl(2_000, 0, HOUR);
    assert_eq!(cache.entry_count(), 1_001);
    clock.advance(secs(10));
    let mut inserted = 1;
    // A writer does nothing while the listener thread holds the maintenance lock.
    until("writers remove the rest", || {
        clock.advance(millis(1));
        cache.insert_with_ttl(2_000 + inserted, 0, HOUR);
        inserted += 1;
        cache.entry_count() == inserted
    });
    until("the listener thread delivers", || heard.count() == 1_000);
    gate.open();
}
