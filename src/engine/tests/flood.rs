//! Writers that always bring as much as a pass can take.

use super::super::pass::Plan;
use super::super::pass::RUN_BUDGET;
use super::super::writers::BATCH_HARD_LIMIT;
use super::Deaf;
use crate::map::Garbage;
use crate::{Cache, MaintenanceTask, ManualTicker, Scheduler, Ticker};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

#[test]
fn due_entries_are_removed_even_when_a_pass_has_a_full_load() {
    let clock = ManualTicker::new();
    let cache: Cache<u32, u32> = Cache::builder().ticker(clock.clone()).build();
    let engine = cache.engine();
    (0..100).for_each(|key| cache.insert_with_ttl(key, 0, Duration::from_secs(1)));
    let shard = |key: &u32| engine.map.shard_of(cache.hash(key));
    // All keys are in the shard that is drained first.
    let keys: Vec<u32> = (100..)
        .filter(|key| shard(key) == 0)
        .take(2 * RUN_BUDGET)
        .collect();
    keys.iter().for_each(|&key| cache.insert(key, 0));
    cache.run_pending_tasks();
    clock.advance(Duration::from_secs(10));
    let passes = engine.hold_passes();
    for key in &keys {
        assert!(cache.set_expiry(key, Some(Duration::from_secs(60))));
    }
    drop(passes);
    let mut state = engine.parts[0].state.lock();
    state.cursor = 0;
    engine.pass(&mut state, Plan::RUN);
    let left = engine.map.len() - keys.len() as u64;
    assert!(left < 100, "none of those that were due has left");
}

#[test]
fn a_writer_that_had_to_wait_removes_more_due_entries_than_it_inserted() {
    const DUE: u64 = 2_000;
    let clock = ManualTicker::new();
    let cache: Cache<u64, u64> = Cache::builder()
        .ticker(clock.clone())
        .scheduler(Scheduler::custom(Deaf))
        .build();
    let engine = cache.engine();
    (0..DUE).for_each(|key| cache.insert_with_ttl(key, 0, Duration::from_secs(1)));
    cache.run_pending_tasks();
    clock.advance(Duration::from_secs(10));
    let keys: Vec<u64> = (DUE..)
        .filter(|key| engine.map.shard_of(cache.hash(key)) == 0)
        .take(BATCH_HARD_LIMIT)
        .collect();
    let passes = engine.hold_passes();
    std::thread::scope(|threads| {
        let writer = threads.spawn(|| keys.iter().for_each(|&key| cache.insert(key, 0)));
        while engine.map.lock_shard(0).buffered() < BATCH_HARD_LIMIT {
            std::thread::yield_now();
        }
        drop(passes);
        writer.join().expect("no panic");
    });
    let left = engine.map.len() - BATCH_HARD_LIMIT as u64;
    assert!(
        left < DUE - BATCH_HARD_LIMIT as u64,
        "{left} of {DUE} are left"
    );
}

/// A clock that, at every reading by a pass, writes more to all shards than the next pass can take,
/// as other threads would.
#[derive(Clone, Default)]
struct Flood(Arc<Source>);

#[derive(Default)]
struct Source {
    /// Emptied at the end of a test, so that nothing leaks.
    cache: Mutex<Option<Cache<u32, u32>>>,
    on: AtomicBool,
    inside: AtomicBool,
    waves: AtomicU32,
}

impl Source {
    /// The writes stand for those of other threads. At any other moment, when another thread could
    /// not run beside a pass, they would do what a ticker must not do: call the cache.
    fn is_read_by_a_pass(&self) -> bool {
        (self.cache.lock().unwrap().as_ref())
            .is_some_and(|cache| cache.engine().parts[0].state.try_lock().is_none())
    }
}

impl Flood {
    fn write(&self) {
        let Some(cache) = self.0.cache.lock().unwrap().clone() else {
            return;
        };
        let map = &cache.engine().map;
        let waiting: usize = (0..map.shards())
            .map(|shard| map.lock_shard(shard).buffered())
            .sum();
        // Too little to fill a batch: its writer would wait for the pass that is waiting for this
        // clock.
        if waiting < 2 * RUN_BUDGET {
            let wave = self.0.waves.fetch_add(1, Ordering::Relaxed);
            (0..2 * RUN_BUDGET as u32).for_each(|key| cache.insert(key, wave));
        }
    }
}

impl Ticker for Flood {
    fn nanos(&self) -> u64 {
        // It ends at some point, so that the test ends.
        if self.0.on.load(Ordering::Relaxed)
            && self.0.is_read_by_a_pass()
            && self.0.waves.load(Ordering::Relaxed) < 2_000
            && !self.0.inside.swap(true, Ordering::Relaxed)
        {
            self.write();
            self.0.inside.store(false, Ordering::Relaxed);
        }
        0
    }
}

/// How many waves were written while `call` ran.
fn waves_during(scheduler: Scheduler, call: impl FnOnce(&Cache<u32, u32>)) -> u32 {
    let flood = Flood::default();
    let cache: Cache<u32, u32> = Cache::builder()
        .ticker(flood.clone())
        .scheduler(scheduler)
        .expire_after(crate::expiry::writing(|_: &u32, _: &u32| {
            Some(Duration::from_secs(60))
        }))
        .build();
    *flood.0.cache.lock().unwrap() = Some(cache.clone());
    // In all shards. Otherwise a first pass that drains the only shard with an event last would
    // complete a round.
    let passes = cache.engine().hold_passes();
    flood.write();
    drop(passes);
    flood.0.on.store(true, Ordering::Relaxed);
    call(&cache);
    flood.0.on.store(false, Ordering::Relaxed);
    flood.0.cache.lock().unwrap().take();
    flood.0.waves.load(Ordering::Relaxed)
}

/// As many passes as there are shards complete one round; each round of reclaim may take as many.
fn most_waves(cache: &Cache<u32, u32>) -> u32 {
    16 * cache.engine().map.shards() as u32
}

#[test]
fn run_pending_tasks_ends_although_other_threads_keep_writing() {
    let calls: [fn(&Cache<u32, u32>); 3] = [
        |cache| cache.run_pending_tasks(),
        |cache| _ = cache.next_maintenance_in(),
        |cache| _ = cache.policy().wheel(),
    ];
    for call in calls {
        let mut most = 0;
        let waves = waves_during(Scheduler::disabled(), |cache| {
            most = most_waves(cache);
            call(cache);
        });
        assert!(waves > 0, "no thread wrote in between");
        assert!(waves <= most, "{waves} waves");
    }
}

#[test]
fn the_run_of_an_alarm_ends_although_other_threads_keep_writing() {
    #[derive(Clone, Default)]
    struct Bell(Arc<Mutex<Option<MaintenanceTask>>>);

    impl crate::Alarm for Bell {
        fn set(&self, _: Duration, task: MaintenanceTask) {
            *self.0.lock().unwrap() = Some(task);
        }
    }

    let bell = Bell::default();
    let mut most = 0;
    let waves = waves_during(Scheduler::custom(bell.clone()), |cache| {
        most = most_waves(cache);
        let task = bell
            .0
            .lock()
            .unwrap()
            .take()
            .expect("a deadline was requested");
        assert_eq!(task.run(), Some(Duration::ZERO), "there is more to do");
    });
    assert!((1..=most).contains(&waves), "{waves} waves");
}

/// The lists in which nodes waited are kept to be filled again, but not where nothing comes.
#[test]
fn an_idle_cache_keeps_no_room_for_nodes_to_free() {
    let cache: Cache<u32, u32> = Cache::builder()
        .ticker(ManualTicker::new())
        .scheduler(Scheduler::custom(Deaf))
        .build();
    let engine = cache.engine();
    let room = || {
        let state = engine.parts[0].state.lock();
        let mut room = 0;
        for shard in 0..engine.map.shards() {
            let shard = engine.map.lock_shard(shard);
            room += shard.emptied().iter().map(Garbage::room).sum::<usize>();
        }
        room + state.freeing.room()
    };
    for _ in 0..2 {
        for _ in 0..10 {
            (0..20_000).for_each(|key| cache.insert(key, 0));
        }
        cache.run_pending_tasks();
        assert!(room() > 0, "the next flood fills them again");
        cache.run_pending_tasks();
        assert_eq!(room(), 0);
        cache.run_pending_tasks();
    }
    // No other run may come to a cache that is empty and has no deadlines.
    (0..20_000).for_each(|key| cache.insert(key, 0));
    (0..20_000).for_each(|key| cache.invalidate(&key));
    cache.run_pending_tasks();
    assert_eq!(room(), 0, "after the entries went");
}
