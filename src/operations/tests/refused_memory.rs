//! Memory at an address that does not fit the tags of the map: the call panics, and the cache is as
//! it was before the call.

use crate::node::REFUSES;
use crate::{Cache, ManualTicker};
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Makes calls until one panics; returns how many succeeded, and checks the cache.
fn refused(cache: &Cache<u64, u64>, call: impl Fn(u64)) -> u64 {
    for made in 0..100_000 {
        let before = cache.entry_count();
        REFUSES.set(true);
        let outcome = catch_unwind(AssertUnwindSafe(|| call(made)));
        REFUSES.set(false);
        if let Err(message) = outcome {
            let message = message.downcast_ref::<String>().expect("a message");
            assert!(message.contains("bits 48 to"), "{message}");
            assert_eq!(cache.entry_count(), before, "the write became visible");
            cache.core.maintenance.check_invariants(&cache.core.shared);
            return made;
        }
    }
    panic!("nothing was refused");
}

#[test]
fn an_insert_whose_memory_is_refused_changes_nothing() {
    let cache: Cache<u64, u64> = Cache::builder().ticker(ManualTicker::new()).build();
    let mut first = 0;
    // Each time another allocation fails: room for nodes, or a table that has to grow.
    for _ in 0..20 {
        let made = refused(&cache, |n| cache.insert(first + n, n));
        assert_eq!(cache.get(&(first + made)), None);
        (0..made).for_each(|n| assert_eq!(cache.get(&(first + n)), Some(n)));
        // The same call works as soon as the memory fits.
        cache.insert(first + made, made);
        assert_eq!(cache.get(&(first + made)), Some(made));
        first += made + 1;
    }
    assert_eq!(cache.entry_count(), first);
}

#[test]
fn a_removal_that_would_shrink_the_table_is_refused_before_it_is_visible() {
    let cache: Cache<u64, u64> = Cache::builder().ticker(ManualTicker::new()).build();
    (0..20_000).for_each(|key| cache.insert(key, key));
    cache.run_pending_tasks();
    let made = refused(&cache, |key| cache.invalidate(&key));
    assert_eq!(cache.get(&made), Some(made));
    (0..20_000).for_each(|key| cache.invalidate(&key));
    cache.run_pending_tasks();
    assert_eq!(cache.entry_count(), 0);
}
