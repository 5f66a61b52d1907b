//! Inserts an entry of a snapshot, with its remaining lifetime, unless the key is present.
//!
//! The policy is not asked: the entry comes with its deadline. As in every write, keys are compared
//! with no lock held, and what was found is confirmed by addresses under the shard's lock.

use super::condition::Explicit;
use super::core::Core;
use super::lifetimes::Lifetimes;
use super::refresh::set_refresh;
use crate::listener::RemovalCause;
use crate::load::RevokedBy;
use crate::maintenance::WriteOutcome;
use crate::map::Revalidated;
use crate::node::{NewNode, NodePtr, Times};
use crate::time::{self, NEVER};
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
        let written = now.wrapping_sub(time::deadline_after(0, self.age));
        let written = if written == NEVER {
            written.wrapping_add(1)
        } else {
            written
        };
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

impl<K, V, S> Core<K, V, S>
where
    K: Hash + Eq + 'static,
    V: 'static,
    S: BuildHasher,
{
    /// Adds an entry, in one step. False, and the cache is as it was, if the key has a live entry.
    pub(crate) fn put_back(&self, key: K, value: V, weight: u32, remaining: Remaining) -> bool {
        let times = remaining.times(&self.lifetimes);
        let hash = self.hash(&key);
        let new = NewNode::new(key, value, hash, weight);
        if remaining.own.is_some() {
            self.lifetimes.note_own();
        }
        let refresh = remaining
            .refresh
            .map(|after| time::deadline_after(remaining.at, after));
        let mut condition = Explicit::new(RevokedBy::Overwrite);
        let outcome = loop {
            condition.compare(|other| other == new.key());
            let pin = self.shared.pin();
            let probe = self
                .shared
                .map
                .probe(hash, &pin, |node| new.key() == node.key());
            let now = self.shared.clock.now();
            let live = |node: NodePtr<K, V>| node.deadline_if_live(now).is_some();
            if probe.found.is_some_and(live) {
                // The pin is dropped before the key and the value.
                drop(probe);
                drop(pin);
                drop(new);
                return false;
            }
            let mut shard = probe.lock();
            if !condition.knows_loads(&mut shard, hash) {
                drop((shard, probe));
                continue;
            }
            let left = match shard.revalidate(hash, &probe) {
                None => {
                    drop((shard, probe));
                    continue;
                }
                Some(Revalidated::Vacant(vacant)) => {
                    self.shared.note_written(None);
                    let node = shard.add(vacant, new, times);
                    set_refresh(node, refresh);
                    false
                }
                Some(Revalidated::Occupied(occupied)) => {
                    let old = probe.found.expect("revalidated at the node that was found");
                    let cause = RemovalCause::Expired;
                    self.shared.note_written(Some((old, cause)));
                    let node = shard.replace(occupied, old, new, times, cause);
                    set_refresh(node, refresh);
                    true
                }
            };
            condition.revoke(&mut shard);
            break WriteOutcome {
                left: usize::from(left),
                ..WriteOutcome::of_change(&shard, times.deadline, Some(now))
            };
        };
        drop(condition);
        self.maintenance.after_write(&self.shared, outcome);
        true
    }

    /// Notifies the listener of an entry that ended while no cache held it.
    pub(crate) fn notify_ended(&self, key: K, value: V, weight: u32) {
        let hash = self.hash(&key);
        let new = NewNode::new(key, value, hash, weight);
        let cause = RemovalCause::Expired;
        self.shared.note_written(None);
        self.shared.note_removed(|| weight, cause);
        let mut shard = self.shared.map.lock(hash);
        shard.refuse(new, cause);
        let outcome = WriteOutcome::of_removal(&shard, None);
        drop(shard);
        self.maintenance.after_write(&self.shared, outcome);
    }
}
