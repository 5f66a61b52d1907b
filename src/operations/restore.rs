//! Inserts an entry of a snapshot, with its remaining lifetime, unless the key is present.
//!
//! The policy is not asked: the entry comes with its deadline.

use super::core::Core;
use super::lifetimes::LifetimeSource;
use super::lifetimes::Lifetimes;
use super::write::{Condition, NextRefresh, write};
use crate::listener::RemovalCause;
use crate::maintenance::WriteOutcome;
use crate::node::{NewNode, Times};
use crate::time;
use std::hash::{BuildHasher, Hash};
use std::time::Duration;

/// The remaining lifetime of an entry that comes back.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Remaining {
    /// The reading of the clock from which all of these count: the beginning of the restore.
    pub(crate) at: u64,
    /// Until its own deadline.
    pub(crate) own: Option<Duration>,
    /// Until the idle limit ends it.
    pub(crate) idle: Option<Duration>,
    /// Until it becomes stale.
    pub(crate) refresh: Option<Duration>,
    /// Since it was written.
    pub(crate) age: Duration,
}

impl Remaining {
    /// The times of an entry that comes back.
    pub(super) fn times<K, V>(&self, lifetimes: &Lifetimes<K, V>) -> Times {
        let now = self.at;
        let own = time::deadline_in(now, self.own);
        let written = time::of_write(now.wrapping_sub(time::deadline_after(0, self.age)));
        let mut deadline = lifetimes.wanted(own, || written, now);
        if let (Some(idle), Some(limit)) = (self.idle, lifetimes.limits.time_to_idle) {
            let idle = time::deadline_after(now, idle.min(limit));
            deadline = time::earlier(deadline, idle, now);
        }
        Times {
            written,
            deadline,
            own,
        }
    }

    /// When it becomes stale.
    pub(super) fn next_refresh(&self) -> Option<NextRefresh> {
        self.refresh.map(|after| NextRefresh {
            at: time::deadline_after(self.at, after),
            lifetime: None,
        })
    }
}

/// Adds an entry, in one step. False, and the cache is as it was, if the key has a live entry, or
/// the entry is heavier than the whole bound.
pub(crate) fn put_back<K, V, S>(
    core: &Core<K, V, S>,
    key: K,
    value: V,
    weight: u32,
    remaining: Remaining,
) -> bool
where
    K: Hash + Eq + 'static,
    V: 'static,
    S: BuildHasher,
{
    if remaining.own.is_some() {
        core.lifetimes.note_own();
    }
    let hash = core.hash(&key);
    let mut new = NewNode::new(key, value, hash, weight);
    let condition = Condition::Absent(&remaining);
    let stored = write(core, &mut new, LifetimeSource::Policy, condition);
    if let Some(outcome) = stored {
        core.maintenance.after_write(&core.shared, outcome);
    }
    stored.is_some()
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
