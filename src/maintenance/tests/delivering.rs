//! In which order notifications are delivered, and how many together.

use super::super::pass::Plan;
use crate::map::Garbage;
use crate::{Cache, CacheBuilder, Delivery, Scheduler};
use std::sync::mpsc;

/// A cache whose notifications no thread but the test's delivers.
fn builder() -> CacheBuilder<u32, u32> {
    Cache::builder()
        .scheduler(Scheduler::disabled())
        .delivery(Delivery::executor(drop))
}

/// Posts the removal of a key.
fn post(cache: &Cache<u32, u32>, key: u32) {
    let (shared, maintenance) = (&cache.core().shared, &cache.core().maintenance);
    cache.insert(key, 0);
    cache.invalidate(&key);
    while maintenance
        .pass(shared, &mut maintenance.state.lock(), Plan::RUN)
        .run()
        .more
    {}
}

/// Delivers, and returns how many came back in each chunk.
fn deliver(cache: &Cache<u32, u32>, keep_going: bool) -> Vec<usize> {
    let (maintenance, mut chunks) = (&cache.core().maintenance, Vec::new());
    maintenance.notifier.deliver(|| keep_going, &mut |nodes| {
        chunks.push(nodes.len());
        let mut state = maintenance.state.lock();
        for told in nodes {
            state.freeing.retire(Garbage::Node(told.node));
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
    for more in [0, 1, 40, 130, 0, 500] {
        assert_eq!(deliver(&cache, false).len(), 1, "stopped");
        post(more);
    }
    while !deliver(&cache, false).is_empty() {}
    assert_eq!(cache.core().maintenance.notifier.waiting(), 0);
    let delivered: Vec<u32> = delivered.try_iter().collect();
    assert_eq!(delivered, (0..971).collect::<Vec<_>>());
}

/// The maintenance lock is taken once for each chunk.
#[test]
fn what_was_posted_one_by_one_comes_back_together() {
    let cache = builder().removal_listener(|_, _, _| ()).build();
    (0..40).for_each(|key| post(&cache, key));
    assert_eq!(deliver(&cache, true), [32, 8]);
}
