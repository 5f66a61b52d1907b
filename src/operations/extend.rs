//! Deadlines that move: by the read that has found the entry, or by hand.

use super::core::Core;
use super::find::Hit;
use super::lifetimes::{FIRST_READ, NO_READ};
use crate::maintenance::WriteOutcome;
use crate::node::{NodePtr, NodeState};
use crate::shared::EXACT_READS;
use crate::sync::Ordering;
use crate::time::{self, NEVER};
use equivalent::Equivalent;
use std::hash::{BuildHasher, Hash};
use std::time::Duration;

impl<K, V> Hit<K, V> {
    /// Asks the policy about a read. Returns the deadline that the entry has now; `None` if it
    /// expired meanwhile, or another thread moved its deadline, so that the look-up has to start
    /// over; then this read has extended nothing.
    ///
    /// If the value was replaced meanwhile, the read counts as earlier and moves no deadline: it
    /// says nothing about the new value.
    #[inline(always)]
    pub(super) fn extend<S>(&self, core: &Core<K, V, S>) -> Option<u64> {
        let Self {
            node,
            deadline,
            now,
        } = *self;
        let lifetimes = &core.lifetimes;
        if !lifetimes.reads_extend {
            return Some(deadline);
        }
        let asks = lifetimes.asks_reads.load(Ordering::Relaxed);
        let own = match &lifetimes.policy {
            Some(policy) if asks != NO_READ => {
                let own = policy.deadline_of_read(node, &core.shared.clock, now, deadline);
                if asks == FIRST_READ {
                    lifetimes.note_first_read(policy.inherits_reads(), &core.shared);
                }
                own
            }
            _ => deadline,
        };
        let shared = &core.shared;
        let is_coarse = || shared.clock.is_coarse() && !shared.has_detour(EXACT_READS);
        if own == deadline
            && (lifetimes.limits.time_to_idle.is_none()
                || is_coarse() && lifetimes.leaves(now, deadline))
        {
            return Some(deadline);
        }
        move_by_read(core, node, deadline, now, own)
    }
}

/// Moves the deadline of a [`Hit`] to the one that follows from `own`; see [`Hit::extend`].
///
/// The hit was live at the reading by which it was judged, and the new deadline counts from there.
/// If another thread has found the entry due since, it has claimed the deadline, and the exchange
/// fails (node 4).
// The hit in its parts: they stay in registers (`lookup`).
pub(super) fn move_by_read<K, V, S>(
    core: &Core<K, V, S>,
    node: NodePtr<K, V>,
    deadline: u64,
    now: u64,
    own: u64,
) -> Option<u64> {
    let answer = (own != deadline).then_some(own);
    let lifetimes = &core.lifetimes;
    let (own, wanted) = lifetimes.moved(node, deadline, answer, now);
    let apart = lifetimes.kept_apart && answer.is_some();
    if wanted == deadline && !apart {
        return Some(deadline);
    }
    // A move that failed leaves the hit valid only if a writer has frozen its deadline.
    let frozen = || node.is_frozen(now).then_some(deadline);
    // The pass finds out about a later deadline when it comes to the entry's bucket. It needs an
    // event for an earlier deadline. It also needs one for a removed deadline: otherwise the wheel
    // would keep the entry for nothing.
    if apart || wanted == NEVER || time::is_before(wanted, deadline, now) {
        return move_deadline(core, node, deadline, answer, now).or_else(frozen);
    }
    if !node.extend(deadline, wanted) {
        return frozen();
    }
    // A clock that leapt by 64 to 91 years meanwhile makes an old deadline look like a claimed one
    // (node 4): then only the removal shows that the entry was found due.
    if node.state() != NodeState::Live {
        return None;
    }
    if !lifetimes.kept_apart || lifetimes.own_deadline(node) == own {
        return Some(wanted);
    }
    // Another thread has meanwhile set the own deadline, and moved the wanted one to the very value
    // that it had before: the exchange succeeded, but ignores the new own deadline. Correct it
    // here; readers see the later of the two until then.
    let moved = move_deadline(core, node, wanted, None, now);
    moved.or_else(|| node.is_frozen(now).then_some(wanted))
}

/// Moves a deadline under the shard's lock, with an event for the pass. For an earlier deadline,
/// and in caches that keep the own deadline apart. Returns where it is now; `None` if the entry
/// turns out to be due, or another thread moved the deadline.
#[cold]
#[inline(never)]
fn move_deadline<K, V, S>(
    core: &Core<K, V, S>,
    node: NodePtr<K, V>,
    judged: u64,
    answer: Option<u64>,
    now: u64,
) -> Option<u64> {
    let hash = node.hash();
    let mut shard = core.shared.map.lock(hash);
    // Again: another thread may have set the own deadline before the lock was taken.
    let (own, wanted) = core.lifetimes.moved(node, judged, answer, now);
    if shard.find_node(hash, node).is_none() || !shard.move_deadline(node, judged, own, wanted) {
        return None;
    }
    let outcome = WriteOutcome {
        // This read's.
        pins: 1,
        ..WriteOutcome::of_change(&shard, wanted, Some(now))
    };
    drop(shard);
    core.maintenance.after_write(&core.shared, outcome);
    // The own deadline may have passed since the hit was found, if it was set meanwhile. A
    // deadline that the policy returns for this read does not turn the read into a miss.
    let ended = answer.is_none() && time::is_due(now, own);
    (!ended).then_some(wanted)
}

/// Sets a deadline by hand; false if the key is absent or its entry is due.
pub(crate) fn set_lifetime<K, V, S, Q>(
    core: &Core<K, V, S>,
    key: &Q,
    lifetime: Option<Duration>,
) -> bool
where
    K: 'static,
    V: 'static,
    S: BuildHasher,
    Q: Equivalent<K> + Hash + ?Sized,
{
    let (lifetimes, clock) = (&core.lifetimes, &core.shared.clock);
    let hash = core.hash(key);
    let ask = |found: Option<NodePtr<K, V>>, _| found.map(|_| clock.now()).ok_or(None);
    let moved = core.shared.change(hash, key, ask, |now, place, hold| {
        let Some(node) = place.node() else {
            return Ok(None);
        };
        let judged = node.deadline();
        if time::is_due(now, judged) && node.claim(judged, now) {
            return Ok(None);
        }
        let own = time::deadline_in(now, lifetime);
        if lifetime.is_some() {
            lifetimes.note_own();
        }
        let wanted = lifetimes.wanted(own, || node.written(), now);
        if !hold.shard.move_deadline(node, judged, own, wanted) {
            return Err(now);
        }
        let outcome = WriteOutcome::of_change(&hold.shard, wanted, Some(now));
        Ok(Some(outcome))
    });
    let after = |outcome| core.maintenance.after_write(&core.shared, outcome);
    moved.map(after).is_some()
}
