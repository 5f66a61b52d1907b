//! Inserts an entry of a snapshot, with its remaining lifetime, unless the key is present.
//!
//! The expiry policy is not asked: the entry comes with its deadline. The refresh policy is.

use super::write::Condition;
use crate::contain::contain;
use crate::engine::{Engine, LifetimeSource, WriteOutcome};
use crate::listener::RemovalCause;
use crate::node::{NewNode, Times};
use crate::time::{self, NEVER};

impl<K: Eq + 'static, V: 'static> Engine<K, V> {
    /// Adds an entry with these times, which is stale from `stale_at` on, in one step. False, and
    /// the cache is as it was, if the key has a live entry, or the entry is heavier than the whole
    /// bound.
    pub(crate) fn put_back(&self, mut new: NewNode<K, V>, times: &Times, stale_at: u64) -> bool {
        if times.own != NEVER {
            self.lifetimes.note_own();
        }
        let condition = Condition::Absent { times, stale_at };
        let Some(written) = self.write(&mut new, LifetimeSource::Policy, condition) else {
            contain(|| new.discard());
            return false;
        };
        self.after_write(written.outcome);
        true
    }

    /// The moment from which an entry that comes back is stale. The refresh policy of now is asked
    /// as about a new entry, at the time of the entry's last write. User code.
    pub(crate) fn ask_of_restored(&self, key: &K, value: &V, times: &Times) -> u64 {
        let Some(policy) = &self.refresh else {
            return NEVER;
        };
        let lifetime = time::time_left(times.written, times.deadline);
        let after = match policy.by_times((lifetime, None)) {
            Some(answer) => answer,
            None => {
                let at = self.clock.instant(times.written);
                policy.refresh_after_create(key, value, at, lifetime)
            }
        };
        time::deadline_in(times.written, after)
    }

    /// Notifies the listener of an entry that ended while no cache held it.
    pub(crate) fn notify_ended(&self, mut new: NewNode<K, V>) {
        let (weight, cause) = (new.weight, RemovalCause::Expired);
        let mut shard = self.map.lock(new.hash);
        shard.refuse(&mut new, cause);
        let outcome = WriteOutcome::of_removal(&shard, NEVER);
        drop(shard);
        self.count_write(None);
        self.count_removal(|| weight, cause);
        self.after_write(outcome);
    }
}
