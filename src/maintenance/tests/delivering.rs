//! In which order notifications are delivered.

use super::super::pass::Plan;
use crate::map::Garbage;
use crate::{Cache, Delivery, Scheduler};
use std::sync::mpsc;

#[test]
fn a_delivery_that_is_stopped_again_and_again_keeps_the_order() {
    let (tell, delivered) = mpsc::channel();
    let cache: Cache<u32, u32> = Cache::builder()
        .scheduler(Scheduler::disabled())
        // No thread but the test's delivers.
        .delivery(Delivery::executor(drop))
        .removal_listener(move |&key, _, _| tell.send(key).expect("the test listens"))
        .build();
    let (shared, maintenance) = (&cache.core().shared, &cache.core().maintenance);
    let mut next = 0;
    let mut post = |count| {
        for key in next..next + count {
            cache.insert(key, 0);
            cache.invalidate(&key);
            // One shard after the other, otherwise only the order of each key would be kept.
            while maintenance
                .pass(shared, &mut maintenance.state.lock(), Plan::RUN)
                .run()
                .more
            {}
        }
        next += count;
    };
    let deliver = || {
        maintenance.notifier.deliver(|| false, &mut |nodes| {
            let mut state = maintenance.state.lock();
            for told in nodes.drain(..) {
                state.freeing.retire(Garbage::Node(told.node));
            }
        })
    };
    // More notifications are posted while a block is delivered in part, into that block and into
    // others.
    post(300);
    for more in [0, 1, 40, 130, 0, 500] {
        assert!(deliver(), "stopped");
        post(more);
    }
    while deliver() {}
    assert_eq!(maintenance.notifier.waiting(), 0);
    let delivered: Vec<u32> = delivered.try_iter().collect();
    assert_eq!(delivered, (0..971).collect::<Vec<_>>());
}
