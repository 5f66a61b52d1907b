//! What a caller does to help maintenance, and how much at a time.

use super::super::pass::{Drain, Evict, Plan, RUN_BUDGET, SWEEPS_PER_TICK};
use super::super::writers::BATCH_HARD_LIMIT;
use super::{Deaf, node};
use crate::sync::Ordering;
use crate::{Cache, Delivery, EvictionPolicy, Expiry, ManualTicker, Scheduler, ticker_fn};
use std::ops::Range;
use std::sync::{Arc, Mutex, mpsc};
use std::thread;
use std::time::{Duration, Instant};

/// The number of events that may wait in a cache of any bound while its writers cannot help.
const UNHELPED: usize = 32;

/// A cache that is `over` its bound of 10 entries, with all events drained.
fn over_by(over: u32) -> Cache<u32, u32> {
    let cache = Cache::builder()
        .max_capacity(10)
        .ticker(ManualTicker::new())
        .build();
    unhelped(&cache, 0..10 + over, |key| cache.insert(key, 0));
    let state = cache.engine().parts[0].state.lock();
    assert_eq!(state.excess(), u64::from(over));
    drop(state);
    cache
}

/// Writes to all of the keys: few enough at a time that no writer has to wait, while no thread can
/// help.
fn unhelped(cache: &Cache<u32, u32>, keys: Range<u32>, write: impl Fn(u32)) {
    for some in keys.collect::<Vec<_>>().chunks(UNHELPED) {
        let passes = cache.engine().hold_passes();
        some.iter().for_each(|&key| write(key));
        drop(passes);
        drain(cache);
    }
}

fn drain(cache: &Cache<u32, u32>) {
    let plan = Plan {
        budget: usize::MAX,
        evict: Evict::Nothing,
        ..Plan::RUN
    };
    let engine = cache.engine();
    engine.pass(&mut engine.parts[0].state.lock(), plan);
}

/// The plan of the passes by which a caller evicts more.
const EVICT: Plan = Plan {
    drain: Drain::Nothing,
    ..Plan::RUN
};

#[test]
fn a_writer_evicts_until_its_debt_is_paid_or_the_weight_is_near_the_bound() {
    const ONCE: u64 = RUN_BUDGET as u64;
    // `far_over_is_more_than_a_full_batch_of_the_heaviest` says where that ends.
    let near = 2 * BATCH_HARD_LIMIT as u64;
    let over = near + 10 * ONCE;
    for (debt, paid) in [
        (1, ONCE),
        (ONCE, ONCE),
        (ONCE + 1, 2 * ONCE),
        (5 * ONCE - 1, 5 * ONCE),
        (u64::MAX, 11 * ONCE),
    ] {
        let cache = over_by(over as u32);
        let engine = cache.engine();
        // A caller does not drain what other threads write meanwhile.
        let passes = engine.hold_passes();
        (0..UNHELPED as u32).for_each(|key| cache.insert(1_000_000 + key, 0));
        drop(passes);
        let state = engine.parts[0].state.lock();
        let state = engine.evict_excess(&engine.parts[0], state, debt, EVICT);
        assert_eq!(over - state.excess(), paid, "for a debt of {debt}");
        drop(state);
        let buffered = |shard| engine.map.lock_shard(shard).buffered();
        let buffered: usize = (0..engine.map.shards()).map(buffered).sum();
        assert_eq!(buffered, UNHELPED);
    }
}

#[test]
fn a_pass_that_is_to_drain_nothing_leaves_nothing_if_it_has_evicted_enough() {
    let cache = over_by(1);
    let engine = cache.engine();
    let mut state = engine.parts[0].state.lock();
    assert!(!engine.pass_leaves_work(&mut state, EVICT));
}

#[test]
fn a_debt_that_no_eviction_can_pay_is_dropped() {
    let over = 4 * BATCH_HARD_LIMIT as u32;
    let cache = over_by(over);
    let engine = cache.engine();
    let plan = Plan {
        evict: Evict::Nothing,
        ..EVICT
    };
    let state = engine.parts[0].state.lock();
    let state = engine.evict_excess(&engine.parts[0], state, 1_000, plan);
    assert_eq!(state.excess(), u64::from(over));
}

/// Leaves more entries to free than a few passes free; returns how many.
fn leave_to_free(cache: &Cache<u32, u32>) -> usize {
    let engine = cache.engine();
    let keys = 1_000_000..1_000_000 + 8 * RUN_BUDGET as u32;
    unhelped(cache, keys.clone(), |key| cache.insert(key, 0));
    unhelped(cache, keys, |key| cache.invalidate(&key));
    for _ in 0..100 {
        drain(cache);
        let ready = engine.parts[0].state.lock().freeing.ready();
        if ready >= 6 * RUN_BUDGET {
            return ready;
        }
    }
    panic!("the entries were removed, and are not freed");
}

#[test]
fn a_pass_frees_a_bounded_number_of_chunks() {
    // Whole chunks are freed.
    let once = 2 * RUN_BUDGET..2 * RUN_BUDGET + 128;
    let cache = over_by(4 * BATCH_HARD_LIMIT as u32);
    let engine = cache.engine();
    let before = leave_to_free(&cache);
    let state = engine.parts[0].state.lock();
    let state = engine.evict_excess(&engine.parts[0], state, 1, EVICT);
    let freed = before - state.freeing.ready();
    drop(state);
    assert!(once.contains(&freed), "{freed}");
    let before = leave_to_free(&cache);
    engine.run_pass(&engine.parts[0], EVICT, None);
    let freed = before - engine.parts[0].state.lock().freeing.ready();
    assert!(once.contains(&freed), "{freed}");
}

#[test]
fn a_read_is_not_drained_before_the_ring_is_full() {
    let cache: Cache<u32, u32> = Cache::builder()
        .max_capacity(100)
        .ticker(ManualTicker::new())
        .build();
    (0..3).for_each(|key| cache.insert(key, 0));
    cache.run_pending_tasks();
    (0..3).for_each(|key| _ = cache.get(&key));
    let nodes: Vec<_> = (0..3).map(|key| node(&cache, key)).collect();
    let engine = cache.engine();
    let reads = &cache.engine().reads;
    let mut waiting = Vec::new();
    let passes = engine.hold_passes();
    reads.drain(0, &mut Vec::new(), |some| waiting.extend_from_slice(some));
    drop(passes);
    assert_eq!(waiting, nodes);
}

/// The read and the write come while a pass drains another shard: the ticker makes them, which the
/// pass asks for the time.
#[test]
fn a_pass_applies_a_read_before_the_write_that_came_after_it() {
    type Act = Box<dyn FnOnce() + Send>;
    let act = Arc::new(Mutex::new(None::<Act>));
    let acts = Arc::clone(&act);
    let cache: Cache<u32, u32> = Cache::builder()
        .max_capacity(256)
        .eviction_policy(EvictionPolicy::Lru)
        .parts(1)
        .ticker(ticker_fn(move || {
            let act = acts.lock().unwrap().take();
            if let Some(act) = act {
                act();
            }
            0
        }))
        .scheduler(Scheduler::disabled())
        .build();
    const READ: u32 = 0;
    cache.insert(READ, 0);
    cache.run_pending_tasks();
    let engine = cache.engine();
    let key_of = |shard| {
        let mut keys = 1..;
        keys.find(|key| engine.map.shard_of(cache.hash(key)) == shard)
            .unwrap()
    };
    let mut state = engine.parts[0].state.lock();
    let first = key_of(state.cursor);
    let written = key_of((state.cursor + 1) % engine.map.shards());
    assert_ne!(first, written);
    // Its event waits for the pass, which asks for the time to apply it.
    cache.insert_with_ttl(first, 0, Duration::from_secs(1));
    let user = cache.clone();
    *act.lock().unwrap() = Some(Box::new(move || {
        assert_eq!(user.get(&READ), Some(0));
        user.insert(written, 0);
    }));
    engine.pass(&mut state, Plan::CATCH_UP);
    drop(state);
    assert!(act.lock().unwrap().is_none(), "the pass asked for the time");
    let hottest = cache.policy().hottest(3);
    let order: Vec<u32> = hottest.map(|entry| *entry.key()).collect();
    assert_eq!(order, [written, READ, first]);
}

#[test]
fn a_cache_over_its_bound_sweeps_a_crowded_bucket_a_few_times_a_tick() {
    let clock = ManualTicker::new();
    let tick = Duration::from_nanos(1 << 30);
    let cache: Cache<u32, u32> = Cache::builder()
        .max_capacity(1)
        .expiry_resolution(tick)
        .ticker(clock.clone())
        .build();
    let engine = cache.engine();
    unhelped(&cache, 0..1_000, |key| {
        cache.insert_with_ttl(key, 0, tick / 2);
    });
    let swept_at = || {
        let mut state = engine.parts[0].state.lock();
        // Too small a budget to empty the bucket, so that it stays crowded.
        let plan = Plan {
            budget: 4,
            drain: Drain::Nothing,
            ..Plan::RUN
        };
        engine.pass(&mut state, plan);
        state.swept_at
    };
    let pause = tick / SWEEPS_PER_TICK as u32;
    let nanos = |time: Duration| time.as_nanos() as u64;
    clock.advance(pause);
    assert_eq!(swept_at(), nanos(pause));
    clock.advance(pause - Duration::from_nanos(1));
    assert_eq!(swept_at(), nanos(pause), "so soon");
    clock.advance(Duration::from_nanos(1));
    assert_eq!(swept_at(), nanos(2 * pause));
}

/// A bound that was made smaller is due work: where no thread wakes the cache, each call does a
/// part of it. Other calls help once for many writes.
#[test]
fn callers_evict_what_is_over_a_smaller_bound() {
    for lifetime in [None, Some(Duration::from_secs(60))] {
        let mut builder = Cache::builder();
        if let Some(lifetime) = lifetime {
            builder = builder.time_to_live(lifetime);
        }
        let cache: Cache<u32, u32> = builder
            .ticker(ManualTicker::new())
            .scheduler(Scheduler::disabled())
            .max_capacity(40_000)
            .build();
        (0..40_000).for_each(|key| cache.insert(key, 0));
        cache.run_pending_tasks();
        cache.policy().set_max_capacity(20_000);
        let soft_limit = cache.engine().batch_soft_limit.load(Ordering::Relaxed);
        assert!(soft_limit > 16, "{soft_limit}");
        // Each of them evicts sixteen or more.
        (0..1_300).for_each(|_| cache.insert(50_000, 0));
        assert!(cache.entry_count() <= 20_010, "{lifetime:?}: {cache:?}");
        assert!(!cache.engine().waking.is_armed() || lifetime.is_some());
    }
}

/// Each read leaves so much of the lifetime that is left.
struct ByRead(fn(Duration) -> Option<Duration>);

impl Expiry<u32, u32> for ByRead {
    fn expire_after_read(
        &self,
        _: &u32,
        _: &u32,
        _: Instant,
        left: Option<Duration>,
        _: Instant,
    ) -> Option<Duration> {
        left.and_then(self.0)
    }
}

/// A reader that moves a deadline holds a pin, so it can offer no delivery: it leaves the work to a
/// caller that can.
#[test]
fn a_pinned_reader_leaves_the_work_of_a_stuck_scheduler_to_other_callers() {
    const HOUR: Duration = Duration::from_secs(3600);
    let (tell, told) = mpsc::channel();
    let clock = ManualTicker::new();
    let cache: Cache<u32, u32> = Cache::builder()
        .ticker(clock.clone())
        .scheduler(Scheduler::background())
        .expire_after(ByRead(|left| Some(left / 2)))
        .removal_listener(move |&key, _, _| _ = tell.send(key))
        .build();
    cache.insert_with_ttl(1, 0, HOUR);
    cache.insert_with_ttl(2, 0, 8 * HOUR);
    // The scheduler thread sleeps for an hour of real time: it is as late as one that is stuck.
    clock.advance(2 * HOUR);
    assert_eq!(cache.get(&2), Some(0));
    cache.insert_with_ttl(3, 0, HOUR);
    assert_eq!(told.recv_timeout(Duration::from_secs(30)), Ok(1));
}

/// Neither a read that leaves an event in a full batch, nor one that finds an entry due where calls
/// expire entries, waits for the thread that runs a pass.
#[test]
fn reads_wait_for_no_pass() {
    const HOUR: Duration = Duration::from_secs(3600);
    const PATIENCE: Duration = Duration::from_secs(30);
    const KEYS: u32 = 1_000;
    let clock = ManualTicker::new();
    // Half as many events would be too many.
    let cache: Cache<u32, u32> = Cache::builder()
        .max_capacity(KEYS.into())
        .ticker(clock.clone())
        .scheduler(Scheduler::disabled())
        .expire_after(ByRead(|left| Some(left - Duration::from_nanos(1))))
        .removal_listener(|_, _, _| ())
        .delivery(Delivery::Caller)
        .build();
    (0..KEYS).for_each(|key| cache.insert_with_ttl(key, 10, HOUR));
    cache.run_pending_tasks();
    let (tell, told) = mpsc::channel();
    let passes = cache.engine().hold_passes();
    let reader = thread::spawn({
        let cache = cache.clone();
        move || {
            for key in 0..KEYS {
                assert_eq!(cache.get(&key), Some(10));
            }
            tell.send("moved").unwrap();
            clock.advance(HOUR);
            assert_eq!(cache.get(&0), None);
            tell.send("missed").unwrap();
        }
    });
    let heard = [told.recv_timeout(PATIENCE), told.recv_timeout(PATIENCE)];
    drop(passes);
    reader.join().unwrap();
    assert_eq!(heard, [Ok("moved"), Ok("missed")]);
}

/// With `Caller`, a read that expires an entry returns when the listener has heard of it, also if
/// another thread is inside the listener.
#[test]
fn a_read_that_expires_an_entry_returns_when_the_listener_has_heard() {
    const HOUR: Duration = Duration::from_secs(3600);
    const PATIENCE: Duration = Duration::from_secs(30);
    let clock = ManualTicker::new();
    let (enter, entered) = mpsc::channel();
    let (release, released) = mpsc::channel();
    let released = Mutex::new(released);
    let cache: Cache<u32, u32> = Cache::builder()
        .ticker(clock.clone())
        .scheduler(Scheduler::disabled())
        .removal_listener(move |&key, _, _| {
            enter.send(key).unwrap();
            _ = released.lock().unwrap().recv();
        })
        .delivery(Delivery::Caller)
        .build();
    let (tell, told) = mpsc::channel();
    let read = |key: u32| {
        let (cache, tell) = (cache.clone(), tell.clone());
        thread::spawn(move || {
            assert_eq!(cache.get(&key), None);
            tell.send(key).unwrap();
        })
    };
    cache.insert_with_ttl(1, 0, HOUR);
    cache.insert_with_ttl(2, 0, 2 * HOUR);
    // Late enough for their ticks to have ended.
    clock.advance(HOUR + HOUR / 2);
    let first = read(1);
    assert_eq!(entered.recv_timeout(PATIENCE), Ok(1));
    clock.advance(HOUR);
    let second = read(2);
    release.send(()).unwrap();
    assert_eq!(entered.recv_timeout(PATIENCE), Ok(2));
    assert!(!told.try_iter().any(|key| key == 2), "returned too early");
    release.send(()).unwrap();
    first.join().unwrap();
    second.join().unwrap();
    cache.run_pending_tasks();
    let state = cache.engine().parts[0].state.lock();
    assert_eq!((state.freeing.held(), state.freeing.retired), (0, 2));
}

/// However often reads move deadlines while a pass is held up, one event for each entry tells of
/// all moves.
#[test]
fn reads_leave_one_event_for_each_entry_at_most() {
    const HOUR: Duration = Duration::from_secs(3600);
    let clock = ManualTicker::new();
    let cache: Cache<u32, u32> = Cache::builder()
        .ticker(clock.clone())
        .scheduler(Scheduler::custom(Deaf))
        .expire_after(ByRead(|left| Some(left - Duration::from_secs(60))))
        .build();
    (0..50).for_each(|key| cache.insert_with_ttl(key, key, HOUR));
    cache.run_pending_tasks();
    let engine = cache.engine();
    let passes = engine.hold_passes();
    let buffered = |shard| engine.map.lock_shard(shard).buffered();
    for _ in 0..10 {
        (0..50).for_each(|key| assert_eq!(cache.get(&key), Some(key)));
        assert_eq!((0..engine.map.shards()).map(buffered).sum::<usize>(), 50);
    }
    drop(passes);
    // The pass knows of the last moves, and hears of later ones.
    clock.advance(HOUR - 10 * Duration::from_secs(60));
    cache.run_pending_tasks();
    assert_eq!(cache.entry_count(), 0);
    for _ in 0..2 {
        cache.insert_with_ttl(1, 1, HOUR);
        cache.run_pending_tasks();
        assert_eq!(cache.get(&1), Some(1));
        cache.run_pending_tasks();
        assert_eq!(cache.get(&1), Some(1));
        clock.advance(HOUR - Duration::from_secs(120));
        cache.run_pending_tasks();
        assert_eq!(cache.entry_count(), 0);
    }
}

/// Each insert and each read leaves an event, so it may always be a read that fills the batch.
#[test]
fn a_read_that_fills_a_batch_evicts_too() {
    const BOUND: u64 = 100;
    let cache: Cache<u32, u32> = Cache::builder()
        .max_capacity(BOUND)
        .ticker(ManualTicker::new())
        .scheduler(Scheduler::disabled())
        .expire_after(ByRead(|_| None))
        .build();
    for key in 0..2_000 {
        cache.insert_with_ttl(key, key, Duration::from_secs(60));
        assert_eq!(cache.get(&key), Some(key));
        let count = cache.entry_count();
        assert!(count <= BOUND + BOUND / 4 + 256, "{count} entries");
    }
}

/// Where the scheduler thread is stuck, a read of a due entry expires in the part of its key. What
/// is due in another part is still to be done.
#[test]
fn a_read_leaves_the_other_parts_to_the_calls_that_follow() {
    const MINUTE: Duration = Duration::from_secs(60);
    let clock = ManualTicker::new();
    let cache: Cache<u32, u32> = Cache::builder()
        .parts(2)
        .ticker(clock.clone())
        .scheduler(Scheduler::background())
        .build();
    cache.insert_with_ttl(0, 0, MINUTE);
    let engine = cache.engine();
    let part_of = |key| engine.number_of_part(node(&cache, key).shard());
    let other = (1..100).find(|&key| {
        cache.insert_with_ttl(key, 0, 2 * MINUTE);
        part_of(key) != part_of(0)
    });
    let other = other.unwrap();
    // The scheduler thread sleeps for a minute of real time: it is as late as one that is stuck.
    clock.advance(3 * MINUTE);
    // The first read wakes the thread for what is left, so it may be at work, too.
    let start = Instant::now();
    while cache.entry_count() > 0 {
        assert!(start.elapsed() < Duration::from_secs(30), "{cache:?}");
        assert_eq!(cache.get(&0), None);
        assert_eq!(cache.get(&other), None);
    }
}

/// Each call that helps in place of a run that a destructor holds up does the work of one part, and
/// the next call goes on.
#[test]
fn a_helper_leaves_the_rest_of_a_run_that_is_held_up_to_the_next() {
    const MINUTE: Duration = Duration::from_secs(60);
    let clock = ManualTicker::new();
    let cache: Cache<u32, u32> = Cache::builder()
        .parts(2)
        .ticker(clock.clone())
        .scheduler(Scheduler::disabled())
        .build();
    let engine = cache.engine();
    let part_of = |key| {
        cache.insert_with_ttl(key, 0, MINUTE);
        engine.number_of_part(node(&cache, key).shard())
    };
    let first = part_of(0);
    let other = (1..100).find(|&key| part_of(key) != first).unwrap();
    clock.advance(2 * MINUTE);
    let held_up = engine.waking.begin();
    assert_eq!(cache.get(&0), None);
    assert_eq!(cache.entry_count(), 1);
    assert_eq!(cache.get(&other), None);
    assert_eq!(cache.entry_count(), 0);
    held_up.end(None, None, &engine.clock);
}
