use super::*;
use crate::EvictionPolicy;

#[test]
fn many_entries_keep_their_exact_order_of_use() {
    let cache: Cache<u64, u64> = Cache::builder()
        .max_capacity(10_000)
        .eviction_policy(EvictionPolicy::Lru)
        .build();
    (0..10_000).for_each(|key| cache.insert(key, key));
    cache.run_pending_tasks();
    for key in (0..10_000).step_by(7) {
        cache.get(&key);
    }
    cache.run_pending_tasks();
    let hottest = cache.policy().hottest(10_000).map(|entry| *entry.key());
    let hottest: Vec<u64> = hottest.collect();
    assert_eq!(hottest.len(), 10_000);
    let saved: Vec<u64> = cache.snapshot().iter().map(|entry| entry.key).collect();
    assert_eq!(saved, hottest);
}
