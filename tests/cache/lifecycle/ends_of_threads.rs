//! The cache is used where a thread ends: in destructors that run while it unwinds, and in those
//! of its thread-local variables.

use std::cell::RefCell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::thread;
use std::time::Duration;

use crate::support::census::{Census, Counted};
use crate::support::record::Record;
use crate::support::secs;
use wheelhouse::{Cache, Scheduler, expiry};

/// Uses the cache in its destructor; the last value of key 3 tells that all of it ran.
struct AtTheEnd(Cache<u32, u32>, u32);

impl Drop for AtTheEnd {
    fn drop(&mut self) {
        let Self(cache, value) = self;
        cache.insert(1, *value);
        assert_eq!(cache.get(&1), Some(*value));
        assert!(cache.get_ref(&1).is_some() && cache.set_expiry(&1, Some(secs(5))));
        cache.insert(1, 100);
        assert_eq!(cache.remove(&1), Some(100));
        cache.insert_with_ttl(2, 200, Duration::ZERO);
        let panicked = catch_unwind(AssertUnwindSafe(|| {
            cache.retain(|_, _| panic!("told to panic in retain"));
        }));
        assert_eq!(panicked.is_err(), cache.iter().next().is_some());
        cache.run_pending_tasks();
        cache.insert(3, *value);
    }
}

thread_local! {
    static LOCAL: RefCell<Option<AtTheEnd>> = const { RefCell::new(None) };
}

#[test]
fn every_operation_works_where_a_thread_ends() {
    for bound in [100, u64::MAX] {
        for scheduler in [Scheduler::background(), Scheduler::disabled()] {
            let heard = Record::new();
            let cache = Cache::builder()
                .max_capacity(bound)
                .scheduler(scheduler)
                .expire_after(expiry::accessing(|_: &u32, _: &u32| Some(secs(100))))
                .removal_listener(heard.listener())
                .record_stats()
                .build();
            let after = |case: u32, body: fn(AtTheEnd)| {
                let last = AtTheEnd(cache.clone(), case);
                drop(thread::spawn(move || body(last)).join());
                cache.run_pending_tasks();
                assert_eq!(cache.get(&3), Some(case));
            };
            after(1, |_last| panic!("told to panic with it in scope"));
            // A local that is older than those of the cache.
            after(2, |last| LOCAL.set(Some(last)));
            // A local that is younger.
            after(3, |last| {
                last.0.insert(4, 400);
                drop(last.0.get_ref(&4));
                LOCAL.set(Some(last));
            });
            let stats = cache.stats();
            assert_eq!(stats.listener_panics(), 0);
            let gone = stats.insertions() + stats.updates() - cache.entry_count();
            assert_eq!(heard.count() as u64, gone);
        }
    }
}

#[test]
fn the_last_handle_may_be_dropped_by_a_thread_that_unwinds() {
    let (census, heard) = (Census::default(), Record::new());
    let (counted, listener) = (census.clone(), heard.listener());
    let thread = thread::spawn(move || {
        let cache: Cache<u32, Counted<u32>> = Cache::builder().removal_listener(listener).build();
        for key in 0..100 {
            cache.insert(key, counted.counted(key));
        }
        (0..50).for_each(|key| cache.invalidate(&key));
        panic!("told to panic with the cache in scope");
    });
    assert!(thread.join().is_err());
    assert_eq!(heard.count(), 50);
    drop(heard);
    assert_eq!(census.alive(), 0);
}
