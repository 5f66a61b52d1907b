//! How much a pass may do, and how many events may wait in a batch.

/// Budget of a pass run by a caller. The events of the caller's own shard are free; events of other
/// shards count.
pub(super) const CALLER_BUDGET: usize = 16;

/// The same in a bounded cache. With less, more removals would wait in batches, while their weight
/// still forces evictions.
pub(super) const BOUNDED_CALLER_BUDGET: usize = 32;

/// Budget of a pass of a run. It bounds how long a writer waits for the maintenance lock.
pub(super) const RUN_BUDGET: usize = 256;

/// This many events in a shard's batch make the writer run a pass.
pub(super) const BATCH_SOFT_LIMIT: usize = 24;

/// The soft limits of all shards add up to at most 1/16 of the bound. Batches are mostly far from
/// full, so what waits in them is less than 2 percent of the bound.
pub(super) const SOFT_LIMITS_PER_BOUND: u64 = 16;

/// This many events in a shard's batch make the writer wait for a pass.
pub(super) const BATCH_HARD_LIMIT: usize = 1024;

/// How many events in a batch make its writer run a pass: fewer where the cache has few entries for
/// each shard, so that it stays near its bound.
pub(super) fn batch_soft_limit(max_capacity: Option<u64>, shards: usize) -> usize {
    let share = max_capacity.unwrap_or(u64::MAX) / (shards as u64 * SOFT_LIMITS_PER_BOUND);
    usize::try_from(share).map_or(BATCH_SOFT_LIMIT, |share| share.clamp(1, BATCH_SOFT_LIMIT))
}
