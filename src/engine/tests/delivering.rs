//! In which order notifications are delivered, and how many together.

use super::super::pass::Plan;
use super::super::writers::BATCH_HARD_LIMIT;
use crate::sync::cycle::is_noted;
use crate::{Alarm, Cache, CacheBuilder, MaintenanceTask, ManualTicker, Scheduler};
use std::sync::mpsc;
use std::sync::{Arc, Weak};
use std::time::Duration;

/// Runs nothing.
struct Never;

impl Alarm for Never {
    fn set(&self, _: Duration, _: MaintenanceTask) {}
}

/// A cache whose notifications no thread but the test's delivers.
fn builder() -> CacheBuilder<u32, u32> {
    Cache::builder().scheduler(Scheduler::custom(Never))
}

/// Posts the removal of a key.
fn post(cache: &Cache<u32, u32>, key: u32) {
    let engine = cache.engine();
    cache.insert(key, 0);
    cache.invalidate(&key);
    while engine.pass_leaves_work(&mut engine.parts[0].state.lock(), Plan::RUN) {}
}

/// Delivers until so many were delivered in all, and returns how many came back in each chunk.
fn deliver(cache: &Cache<u32, u32>, most: u64) -> Vec<usize> {
    let (engine, mut chunks) = (cache.engine(), Vec::new());
    engine.notifier.deliver(most, |nodes| {
        chunks.push(nodes.len());
        let mut state = engine.parts[0].state.lock();
        for (node, _) in nodes.drain(..) {
            state.freeing.retire(node.shard(), node);
        }
    });
    chunks
}

#[test]
fn a_delivery_that_is_stopped_again_and_again_keeps_the_order() {
    let (tell, delivered) = mpsc::channel();
    let cache = builder()
        .removal_listener(move |&key, _, _| tell.send(key).expect("the test listens"))
        .build();
    // One removal after the other, otherwise only the order of each key would be kept.
    let mut keys = 0..;
    let mut post = |count| keys.by_ref().take(count).for_each(|key| post(&cache, key));
    // More notifications are posted while a block is delivered in part, into that block and into
    // others.
    post(300);
    let mut done = 0;
    let mut deliver_some = || {
        let chunks = deliver(&cache, done + 1);
        done += chunks.iter().sum::<usize>() as u64;
        chunks.len()
    };
    for more in [0, 1, 40, 130, 0, 500] {
        assert_eq!(deliver_some(), 1, "stopped");
        post(more);
    }
    while deliver_some() > 0 {}
    assert_eq!(cache.engine().notifier.waiting(), 0);
    let delivered: Vec<u32> = delivered.try_iter().collect();
    assert_eq!(delivered, (0..971).collect::<Vec<_>>());
}

/// The maintenance lock is taken once for each chunk.
#[test]
fn what_is_posted_one_by_one_while_the_listener_runs_comes_back_together() {
    let cache = Arc::new_cyclic(|me: &Weak<Cache<u32, u32>>| {
        let me = me.clone();
        builder()
            .removal_listener(move |&key, _, _| {
                if key < 39 {
                    if let Some(cache) = me.upgrade() {
                        post(&cache, key + 1);
                    }
                }
            })
            .build()
    });
    post(&cache, 0);
    assert_eq!(deliver(&cache, u64::MAX), [32, 8]);
}

/// The thread that was to take the offer may be held up, or not be there at all.
#[test]
fn a_call_that_delivers_itself_waits_for_no_offer() {
    let (tell, delivered) = mpsc::channel();
    let cache = builder()
        .removal_listener(move |&key, _, _| tell.send(key).expect("the test listens"))
        .build();
    post(&cache, 1);
    let notifier = &cache.engine().notifier;
    assert!(notifier.begin_offer());
    let deliver_here = || _ = deliver(&cache, u64::MAX);
    let mut turns = 0;
    let keep_waiting = || {
        turns += 1;
        turns < 10
    };
    notifier.deliver_or_wait(1, deliver_here, keep_waiting);
    assert_eq!(delivered.try_iter().collect::<Vec<_>>(), [1]);
}

/// A load that the listener then waits for would find a cycle that is none.
#[test]
fn a_thread_that_delivers_is_not_noted_as_one_that_waits() {
    let (release, released) = mpsc::channel();
    let released = std::sync::Mutex::new(released);
    let (enter, entered) = mpsc::channel();
    let cache = builder()
        .removal_listener(move |&key, _, _| {
            if key == 1 {
                enter.send(()).expect("the test listens");
                _ = released.lock().expect("one call").recv();
            } else if key == 33 {
                assert!(!is_noted(), "noted while it delivers");
            }
        })
        .build();
    // More than the first thread takes together.
    (1..=33).for_each(|key| post(&cache, key));
    std::thread::scope(|threads| {
        threads.spawn(|| deliver(&cache, 1));
        entered.recv().expect("the listener runs");
        let mut turns = 0;
        let keep_waiting = || {
            turns += 1;
            if turns == 2 {
                release.send(()).expect("the listener waits");
            }
            true
        };
        let notifier = &cache.engine().notifier;
        let deliver_here = || _ = deliver(&cache, u64::MAX);
        notifier.deliver_or_wait(33, deliver_here, keep_waiting);
        assert_eq!(notifier.delivered(), 33);
    });
    assert_eq!(cache.engine().notifier.listener_panics(), 0);
}

/// However many wait, and whatever posts one more: a post is made under the maintenance lock.
#[test]
fn a_post_moves_none_of_those_that_wait() {
    let cache = builder().removal_listener(|_, _, _| {}).build();
    (0..100).for_each(|key| post(&cache, key));
    let notifier = &cache.engine().notifier;
    let before = notifier.places();
    (100..3_000).for_each(|key| post(&cache, key));
    let after = notifier.places();
    assert_eq!((before.len(), after.len()), (100, 3_000));
    assert_eq!(before, after[..100]);
}

#[test]
fn a_queue_that_is_empty_again_keeps_little_room() {
    let cache = builder().removal_listener(|_, _, _| {}).build();
    (0..3_000).for_each(|key| post(&cache, key));
    let notifier = &cache.engine().notifier;
    assert!(notifier.room() >= 3_000 / 32);
    deliver(&cache, u64::MAX);
    assert!(notifier.room() < 3_000 / 32);
}

/// The run for the due entries may be past its deliveries: it frees, and has no reason to come
/// back.
#[test]
fn what_a_full_batch_expires_is_delivered_soon() {
    let time = ManualTicker::new();
    let cache = builder()
        .ticker(time.clone())
        .removal_listener(|_, _, _| {})
        .build();
    let engine = cache.engine();
    let mut keys = (1..).filter(|key| engine.map.shard_of(cache.hash(key)) == 0);
    cache.insert_with_ttl(0, 0, Duration::from_secs(1));
    cache.run_pending_tasks();
    let run = engine.waking.begin();
    let other_pass = engine.parts[0].state.lock();
    let most = keys.by_ref().take(BATCH_HARD_LIMIT - 1);
    most.for_each(|key| cache.insert(key, 0));
    drop(other_pass);
    time.advance(Duration::from_secs(5));
    cache.insert(keys.next().expect("endless"), 0);
    run.end(engine.next_visit(), None, &engine.clock);
    assert_eq!(engine.notifier.posted(), 1);
    let must_be_offered = engine.notifier.begin_offer();
    engine.notifier.end_offer();
    assert!(!must_be_offered || !engine.waking.is_unrequested());
}

/// Brings a cache up to date when it is dropped.
struct Tidies(Cache<u32, u32>);

impl Drop for Tidies {
    fn drop(&mut self) {
        self.0.run_pending_tasks();
    }
}

/// Where no other thread can be started, only that thread could take the offer.
#[test]
fn a_thread_of_the_crew_waits_for_no_offer() {
    let (tell, delivered) = mpsc::channel();
    let cache = builder()
        .removal_listener(move |&key, _, _| tell.send(key).expect("the test listens"))
        .build();
    post(&cache, 1);
    assert!(cache.engine().notifier.begin_offer());
    let other = Cache::builder().build();
    other.insert(1, Tidies(cache.clone()));
    // The scheduler thread drops the value.
    other.invalidate(&1);
    let heard = delivered.recv_timeout(Duration::from_secs(20));
    // So that the thread goes on in any case.
    cache.engine().notifier.end_offer();
    assert_eq!(heard, Ok(1));
}
