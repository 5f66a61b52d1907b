//! Deadlines that move: by the read that has found the entry, or by hand.

use super::find::Judged;
use super::transact::{Decision, Tried};
use crate::engine::{Engine, FIRST_READ, NO_READ, WriteOutcome};
use crate::node::{NodePtr, NodeState};
use crate::sync::Ordering;
use crate::time;
use equivalent::Equivalent;
use std::time::Duration;

/// After a move of a deadline that failed: the look-up has found the value only if a writer has
/// frozen the deadline.
#[cold]
fn kept_if_frozen<K, V>(node: NodePtr<K, V>, deadline: u64, now: u64) -> Option<u64> {
    if node.is_frozen(now) {
        Some(deadline)
    } else {
        None
    }
}

impl<K, V> Engine<K, V> {
    /// Moves the deadline as a read does: by the answer of the policy, which this asks, and by the
    /// idle limit. Returns the deadline that the entry has now; `None` if it expired meanwhile, or
    /// another thread moved its deadline, so that the look-up has to start over; then this read has
    /// extended nothing.
    ///
    /// If the value was replaced meanwhile, the read counts as earlier and moves no deadline: it
    /// says nothing about the new value.
    #[inline(always)]
    pub(super) fn extend(&self, live: &Judged<K, V>) -> Option<u64> {
        let Judged {
            node,
            deadline,
            now,
            is_exact,
        } = *live;
        let lifetimes = &self.lifetimes;
        if !lifetimes.reads_extend {
            return Some(deadline);
        }
        let asks = lifetimes.asks_reads.load(Ordering::Relaxed);
        let mut answer = None;
        if let Some(policy) = &lifetimes.policy {
            if asks != NO_READ {
                answer = policy.deadline_of_read(node, &self.clock, now, deadline);
                if asks == FIRST_READ {
                    self.note_first_read(policy.inherits_reads());
                }
            }
        }
        if answer.is_none() {
            let stays = match lifetimes.time_to_idle {
                None => true,
                Some(idle) => {
                    // A long limit has the grain of coarse readings.
                    let fits = idle < time::COARSE_FROM || !is_exact;
                    fits && self.clock.is_coarse() && lifetimes.keeps_deadline(now, deadline)
                }
            };
            if stays {
                return Some(deadline);
            }
        }
        self.move_by_read(node, deadline, now, answer)
    }

    /// Moves the deadline of an entry that was judged live to the one that follows from the
    /// policy's answer, if there is one, and from the idle limit; see [`extend`](Self::extend).
    ///
    /// The entry was live at the reading by which it was judged, and the new deadline counts from
    /// there. If another thread has found the entry due since, it has claimed the deadline, and the
    /// exchange fails (node 4).
    // What was judged, in its parts: they stay in registers (`find`).
    #[inline(always)]
    pub(super) fn move_by_read(
        &self,
        node: NodePtr<K, V>,
        deadline: u64,
        now: u64,
        answer: Option<u64>,
    ) -> Option<u64> {
        let lifetimes = &self.lifetimes;
        let (own, wanted) = lifetimes.moved(node, deadline, answer, now);
        // The own deadline changes with the wanted one, under the lock (`Shard::set_deadlines`).
        let apart = lifetimes.has_own_column && answer.is_some();
        if wanted == deadline && !apart {
            return Some(deadline);
        }
        // The pass finds out about a later deadline when it comes to the entry's bucket. It needs
        // an event for an earlier deadline. It also needs one for a removed deadline: otherwise the
        // wheel would keep the entry for nothing.
        if apart || !time::keeps_bucket(deadline, wanted) {
            return self.move_under_lock(node, deadline, answer, now);
        }
        if node.move_deadline(deadline, wanted).is_err() {
            return kept_if_frozen(node, deadline, now);
        }
        // A clock that leapt by 64 to 91 years meanwhile makes an old deadline look like a claimed
        // one (node 4). Then only the removal shows that it was due.
        if node.state() != NodeState::InMap {
            return None;
        }
        if !lifetimes.has_own_column || lifetimes.own_deadline(node) == own {
            return Some(wanted);
        }
        // Another thread has meanwhile set the own deadline, and moved the wanted one to the very
        // value that it had before: the exchange succeeded, but ignores the new own deadline.
        // Correct it here; readers see the later of the two until then.
        self.move_under_lock(node, wanted, None, now)
    }

    /// Moves a deadline under the shard's lock, with an event if the wheel has to hear of it. For
    /// an earlier or a removed deadline, and where the own deadline is kept apart. Returns where it
    /// is now; `None` if the entry turns out to be due, or another thread moved the deadline.
    #[cold]
    #[inline(never)]
    fn move_under_lock(
        &self,
        node: NodePtr<K, V>,
        judged: u64,
        answer: Option<u64>,
        now: u64,
    ) -> Option<u64> {
        let hash = node.hash();
        let mut shard = self.map.lock(hash);
        // Again: another thread may have set the own deadline before the lock was taken.
        let (own, wanted) = self.lifetimes.moved(node, judged, answer, now);
        if shard.find_node(hash, node).is_none() || !shard.set_deadlines(node, judged, own, wanted)
        {
            return kept_if_frozen(node, judged, now);
        }
        let outcome = WriteOutcome::of_change(&shard, wanted, now);
        drop(shard);
        self.after_move_by_read(outcome);
        // The own deadline may have passed since the entry was found, if it was set meanwhile. A
        // deadline that the policy returns for this read does not turn the read into a miss.
        if answer.is_none() && time::is_due(now, own) {
            return kept_if_frozen(node, judged, now);
        }
        Some(wanted)
    }

    /// Sets a deadline by hand; false if the key is absent or its entry is due.
    pub(crate) fn set_lifetime<Q>(&self, hash: u64, key: &Q, lifetime: Option<Duration>) -> bool
    where
        Q: Equivalent<K> + ?Sized,
    {
        let ask = |found: Option<NodePtr<K, V>>, _| match found {
            Some(_) => Decision::Apply(self.clock.now()),
            None => Decision::End(None),
        };
        let moved = self.change(hash, key, ask, |now, place, shard| {
            let Some(node) = place.node() else {
                return Tried::Done(None);
            };
            let judged = node.deadline();
            if time::is_due(now, judged) && node.claim(judged, now) {
                return Tried::Done(None);
            }
            let own = time::deadline_in(now, lifetime);
            if lifetime.is_some() {
                self.lifetimes.note_own();
            }
            let wanted = self.lifetimes.wanted(own, || node.written(), now);
            if !shard.set_deadlines(node, judged, own, wanted) {
                return Tried::Again(now);
            }
            let outcome = WriteOutcome::of_change(shard, wanted, now);
            Tried::Done(Some(outcome))
        });
        let Some(outcome) = moved else {
            return false;
        };
        self.after_write(outcome);
        true
    }
}
