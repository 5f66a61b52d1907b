//! Changes of which the pass need not hear.

use crate::{Cache, ManualTicker, Scheduler};
use std::time::Duration;

const SECOND: Duration = Duration::from_secs(1);

/// How many events wait in all batches.
fn events(cache: &Cache<u64, u64>) -> usize {
    let map = &cache.engine().map;
    let shards = 0..map.shards();
    shards.map(|shard| map.lock_shard(shard).buffered()).sum()
}

#[test]
fn a_deadline_that_moves_later_leaves_no_event_and_holds() {
    let clock = ManualTicker::new();
    let cache: Cache<u64, u64> = Cache::builder()
        .ticker(clock.clone())
        .scheduler(Scheduler::disabled())
        .build();
    cache.insert_with_ttl(1, 0, 10 * SECOND);
    cache.run_pending_tasks();
    assert!(cache.set_expiry(&1, Some(20 * SECOND)));
    assert_eq!(events(&cache), 0);
    clock.advance(19 * SECOND);
    cache.run_pending_tasks();
    assert!(cache.contains_key(&1));
    assert!(cache.set_expiry(&1, Some(SECOND / 2)));
    assert_eq!(events(&cache), 1, "an earlier one does");
    clock.advance(SECOND / 2);
    cache.run_pending_tasks();
    assert_eq!(cache.entry_count(), 0);
    cache.insert(2, 0);
    cache.run_pending_tasks();
    for (lifetime, change) in [(Some(SECOND), "comes"), (None, "goes")] {
        assert!(cache.set_expiry(&2, lifetime));
        assert_eq!(events(&cache), 1, "a deadline {change}");
        cache.run_pending_tasks();
        cache.engine().check_invariants();
    }
}
