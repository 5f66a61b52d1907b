//! Overflow chains of a table where entries are removed and as many inserted.

use crate::Cache;

#[test]
fn overflow_chains_are_freed_when_their_entries_are_removed() {
    let cache: Cache<u64, u64> = Cache::builder().build();
    let alive = 2_000;
    for turnover in 0..40 {
        for key in turnover * alive..(turnover + 1) * alive {
            cache.insert(key, key);
            if turnover > 0 {
                cache.invalidate(&(key - alive));
            }
        }
        // Table 6.
        cache.engine().check_invariants();
    }
}
