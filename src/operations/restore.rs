//! Inserts an entry of a snapshot, with its remaining lifetime, unless the key is present.
//!
//! The expiry policy is not asked: the entry comes with its deadline. The refresh policy is.

use super::core::Core;
use super::lifetimes::LifetimeSource;
use super::write::{Condition, NextRefresh, write};
use crate::listener::RemovalCause;
use crate::maintenance::WriteOutcome;
use crate::node::{NewNode, Times};
use crate::time::{self, NEVER};
use std::hash::{BuildHasher, Hash};

/// What an entry that comes back has: its times, and when it becomes stale.
pub(crate) type Kept = (Times, NextRefresh);

impl<K: 'static, V: 'static, S> Core<K, V, S> {
    /// The moment from which an entry that comes back is stale, as the refresh policy of now says:
    /// it is asked as about a new entry, at the time of the entry's last write. User code.
    pub(crate) fn ask_of_restored(&self, key: &K, value: &V, times: &Times) -> u64 {
        let Some(policy) = &self.refresh else {
            return NEVER;
        };
        let lifetime = time::time_left(times.written, times.deadline);
        let after = match policy.by_times((lifetime, None)) {
            Some(answer) => answer,
            None => {
                let at = self.shared.clock.instant(times.written);
                policy.refresh_after_create(key, value, at, lifetime)
            }
        };
        time::deadline_in(times.written, after)
    }
}

/// Adds an entry, in one step. False, and the cache is as it was, if the key has a live entry, or
/// the entry is heavier than the whole bound.
pub(crate) fn put_back<K, V, S>(
    core: &Core<K, V, S>,
    key: K,
    value: V,
    weight: u32,
    kept: Kept,
) -> bool
where
    K: Hash + Eq + 'static,
    V: 'static,
    S: BuildHasher,
{
    if kept.0.own != NEVER {
        core.lifetimes.note_own();
    }
    let hash = core.hash(&key);
    let mut new = NewNode::new(key, value, hash, weight);
    let condition = Condition::Absent(&kept);
    let stored = write(core, &mut new, LifetimeSource::Policy, condition);
    let after = |outcome| core.maintenance.after_write(&core.shared, outcome);
    stored.map(after).is_some()
}

/// Notifies the listener of an entry that ended while no cache held it.
pub(crate) fn notify_ended<K, V, S>(core: &Core<K, V, S>, key: K, value: V, weight: u32)
where
    K: Hash,
    S: BuildHasher,
{
    let hash = core.hash(&key);
    let mut new = NewNode::new(key, value, hash, weight);
    let cause = RemovalCause::Expired;
    let mut shard = core.shared.map.lock(hash);
    shard.refuse(&mut new, cause);
    let outcome = WriteOutcome::of_removal(&shard, None);
    drop(shard);
    core.shared.note_written(None);
    core.shared.note_removed(|| weight, cause);
    core.maintenance.after_write(&core.shared, outcome);
}
