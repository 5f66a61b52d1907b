use crate::Cache;

#[test]
fn the_first_to_evict_of_many_without_a_bound_are_gathered_alone() {
    let cache: Cache<u32, u32> = Cache::builder().build();
    (0..10_000).for_each(|key| cache.insert(key, key));
    let policy = cache.policy();
    let gathered = policy.ranked(5, &cache.engine().pin(), |order, _| order);
    assert_eq!(gathered.len(), 5);
    assert!(gathered.capacity() < 100, "{}", gathered.capacity());
    assert_eq!(policy.first_to_evict(5).count(), 5);
    assert_eq!(policy.last_to_evict(5).count(), 5);
}
