//! Inserts an entry of a snapshot, with its remaining lifetime, unless the key is present.
//!
//! The policy is not asked: the entry comes with its deadline. As in every write, keys are compared
//! with no lock held, and what was found is confirmed by addresses under the shard's lock.

use super::core::Core;
use super::lifetimes::Lifetimes;
use super::transact::{Change, Hold};
use super::write::{NextRefresh, set_refresh};
use crate::listener::RemovalCause;
use crate::load::state::RevokedBy;
use crate::maintenance::WriteOutcome;
use crate::map::Revalidated;
use crate::node::{NewNode, NodePtr, Times};
use crate::shared::Shared;
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
    fn times<K, V>(&self, lifetimes: &Lifetimes<K, V>) -> Times {
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
}

/// Adds an entry, in one step. False, and the cache is as it was, if the key has a live entry.
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
    let times = remaining.times(&core.lifetimes);
    let hash = core.hash(&key);
    let mut new = NewNode::new(key, value, hash, weight);
    let refresh = remaining.refresh.map(|after| NextRefresh {
        at: time::deadline_after(remaining.at, after),
        lifetime: None,
    });
    let change = PutBack {
        shared: &core.shared,
        new: &mut new,
        times,
        refresh,
    };
    let Some(outcome) = core.shared.transact(hash, change).0 else {
        return false;
    };
    core.maintenance.after_write(&core.shared, outcome);
    true
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

/// The return of an entry, as a change.
struct PutBack<'p, K, V> {
    shared: &'p Shared<K, V>,
    new: &'p mut NewNode<K, V>,
    times: Times,
    refresh: Option<NextRefresh>,
}

impl<K: Eq, V> Change<K, V> for PutBack<'_, K, V> {
    type Key = K;
    /// The time at which there was no live entry.
    type Plan = u64;
    /// `None` if the key has a live entry.
    type Done = Option<WriteOutcome>;
    const KNOWS_LOADS: bool = true;

    fn key(&self) -> &K {
        self.new.key()
    }

    fn ask(&mut self, found: Option<NodePtr<K, V>>, _: Option<u64>) -> Result<u64, Self::Done> {
        let now = self.shared.clock.now();
        let live = |node: NodePtr<K, V>| node.deadline_if_live(now).is_some();
        if found.is_some_and(live) {
            Err(None)
        } else {
            Ok(now)
        }
    }

    fn apply<'s>(
        &mut self,
        now: u64,
        place: Revalidated<'s, K, V>,
        hold: &mut Hold<'_, 's, K, V>,
    ) -> Result<Self::Done, u64> {
        let cause = RemovalCause::Expired;
        let old = place.node().map(|old| (old, cause));
        let node = match place {
            Revalidated::Occupied(spot) => hold.shard.replace(spot, self.new, self.times, cause),
            Revalidated::Vacant(home) => hold.shard.add(home, self.new, self.times),
        };
        self.shared.note_written(old);
        set_refresh(node, self.refresh);
        hold.revoke(RevokedBy::Overwrite);
        Ok(Some(WriteOutcome {
            left: usize::from(old.is_some()),
            ..WriteOutcome::of_change(&hold.shard, self.times.deadline, Some(now))
        }))
    }
}
