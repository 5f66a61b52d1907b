//! The hot part of a node, with the protocol of its deadline and its state; and what a writer makes
//! a node of.

use super::address::High;
use super::entry::EntryPtr;
use crate::sync::{AtomicU8, AtomicU64, Ordering};
use crate::time;

/// How far into the past a claim moves a deadline (73 years). The deadline stays due even if the
/// clock goes back by 73 years, or forward by 219 years.
const CLAIM_SHIFT: u64 = time::MAX_LIFETIME_NANOS / 2;

/// The states of a node; see the table in the docs of `node`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub(crate) enum NodeState {
    InMap = 1,
    Removed = 2,
    Dead = 3,
    Succeeded = 4,
}

/// A node that is `InMap`, and that an event names by which the pass will hear that its deadline
/// has moved.
const MOVED: u8 = 0;

impl NodeState {
    #[inline]
    pub(super) fn of(state: &AtomicU8) -> Self {
        // Acquire: a thread that sees Removed sees the map without it (partner: `set_state` under
        // the shard's lock).
        match state.load(Ordering::Acquire) {
            MOVED | 1 => Self::InMap,
            2 => Self::Removed,
            3 => Self::Dead,
            _ => Self::Succeeded,
        }
    }
}

/// A node's hot part; see the docs of `node` for the meaning and the owner of each field.
pub(crate) struct Node<K, V> {
    deadline: AtomicU64,
    /// The address of its entry, in two parts.
    pub(super) entry_low: u32,
    pub(super) entry_high: High,
    pub(super) state: AtomicU8,
    seen: AtomicU8,
    pub(super) key: K,
    pub(super) value: V,
}

/// A node's side part.
pub(super) struct Side {
    pub(super) hash: u64,
    pub(super) written: AtomicU64,
}

impl<K, V> Node<K, V> {
    #[inline]
    pub(super) fn new((key, value): (K, V), deadline: u64, entry: EntryPtr<K, V>) -> Self {
        let (entry_low, entry_high) = entry.parts();
        Self {
            deadline: AtomicU64::new(deadline),
            entry_low,
            entry_high,
            state: AtomicU8::new(NodeState::InMap as u8),
            seen: AtomicU8::new(0),
            key,
            value,
        }
    }

    #[inline]
    pub(crate) fn key(&self) -> &K {
        &self.key
    }

    #[inline]
    pub(crate) fn value(&self) -> &V {
        &self.value
    }

    /// The wanted deadline.
    ///
    /// Acquire, partners: the release in [`move_deadline`](Self::move_deadline). A
    /// thread that sees a claim sees what happened before it.
    #[inline]
    pub(crate) fn deadline(&self) -> u64 {
        self.deadline.load(Ordering::Acquire)
    }

    /// Moves the wanted deadline from `judged` to another value; or gives the one to which another
    /// thread moved it first.
    ///
    /// AcqRel, partner: itself. Of an extension and a claim, exactly one succeeds from `judged`.
    #[inline]
    pub(crate) fn move_deadline(&self, judged: u64, to: u64) -> Result<u64, u64> {
        self.deadline
            .compare_exchange(judged, to, Ordering::AcqRel, Ordering::Acquire)
    }

    /// Claims the deadline `judged`, which is due at `now`: no thread can extend it any more (node
    /// 4). False if another thread moved it first.
    pub(crate) fn claim(&self, judged: u64, now: u64) -> bool {
        has_ended(judged, now) || self.move_deadline(judged, claimed(judged, now)).is_ok()
    }

    /// Whether the entry is due at `now`. If so, that is final: its deadline is claimed (node 4).
    #[inline]
    pub(crate) fn claim_if_due(&self, now: u64) -> bool {
        self.live_or_claim(now).is_none()
    }

    /// The wanted deadline of an entry that is live at `now`. `None` if the entry is due: then its
    /// deadline is claimed, which is final (node 4).
    ///
    /// If another thread moves the deadline first, the call judges again. If that thread claimed
    /// it, the entry is expired in any case.
    #[inline]
    pub(crate) fn live_or_claim(&self, now: u64) -> Option<u64> {
        let judged = self.deadline();
        if time::is_due(now, judged) {
            self.claim_or_judge_again(judged, now)
        } else {
            Some(judged)
        }
    }

    #[cold]
    #[inline(never)]
    fn claim_or_judge_again(&self, due: u64, now: u64) -> Option<u64> {
        let mut judged = due;
        while !self.claim(judged, now) {
            judged = self.deadline();
            if !time::is_due(now, judged) {
                return Some(judged);
            }
        }
        None
    }

    /// Ends all extensions and returns the last wanted deadline: for a node that is being replaced
    /// (node 4). `None` if the caller has to judge again: it is due at `now`, or claimed by a
    /// thread whose clock was ahead, or not the one that was `seen`.
    pub(crate) fn freeze(&self, seen: Option<u64>, now: u64) -> Option<u64> {
        let mut judged = seen.unwrap_or_else(|| self.deadline());
        while !time::is_due(now, judged) {
            match self.move_deadline(judged, frozen(now)) {
                Ok(_) => return Some(judged),
                Err(_) if seen.is_some() => return None,
                Err(moved) => judged = moved,
            }
        }
        None
    }

    /// Whether the deadline was frozen, as seen at `now`, because the node is being replaced.
    pub(crate) fn is_frozen(&self, now: u64) -> bool {
        was_frozen(self.deadline(), now)
    }

    /// The wanted deadline: a moment in the past if it was claimed. If another thread has frozen it
    /// since the caller read `judged`, the answer is `judged`.
    #[inline]
    pub(crate) fn present_deadline(&self, judged: u64, now: u64) -> u64 {
        let deadline = self.deadline();
        if was_frozen(deadline, now) {
            judged
        } else {
            deadline
        }
    }

    #[inline]
    pub(crate) fn state(&self) -> NodeState {
        NodeState::of(&self.state)
    }

    /// Takes the next step in the table of states.
    ///
    /// Release, partner: [`state`](Self::state).
    pub(crate) fn set_state(&self, to: NodeState) {
        debug_assert!(
            matches!(to, NodeState::Removed | NodeState::Succeeded)
                && self.state() == NodeState::InMap
                || to > NodeState::Removed && self.state() == NodeState::Removed,
            "a node's state went from {:?} to {to:?}",
            self.state()
        );
        self.state.store(to as u8, Ordering::Release);
    }

    /// Marks that the deadline has moved, of which the pass has to hear. True if the caller has to
    /// leave an event; if one waits, the pass will find this deadline, too. For the holder of the
    /// shard's lock, of a node in the map.
    ///
    /// AcqRel, partner: [`hear_of_moves`](Self::hear_of_moves). Of two exchanges, one comes first.
    /// If it is this one, the pass sees the deadline; else this one finds that no event waits.
    pub(crate) fn mark_moved(&self) -> bool {
        self.state.swap(MOVED, Ordering::AcqRel) != MOVED
    }

    /// The pass has taken the event that [`mark_moved`](Self::mark_moved) asked for. It reads the
    /// deadline after that.
    ///
    /// AcqRel, partner: `mark_moved`. It changes nothing if the node has left the map.
    pub(crate) fn hear_of_moves(&self) {
        let in_map = NodeState::InMap as u8;
        let (done, failed) = (Ordering::AcqRel, Ordering::Relaxed);
        _ = (self.state).compare_exchange(MOVED, in_map, done, failed);
    }

    /// The stamp of the read rings when a read of this node was last recorded, 0 for never.
    /// Relaxed: it is a hint about recency.
    #[inline]
    pub(crate) fn seen(&self) -> u8 {
        self.seen.load(Ordering::Relaxed)
    }

    /// The next read of this node is recorded.
    #[inline]
    pub(crate) fn forget_recorded_read(&self) {
        self.set_seen(0);
    }

    #[inline]
    pub(crate) fn set_seen(&self, stamp: u8) {
        self.seen.store(stamp, Ordering::Relaxed);
    }
}

/// The bit in which a frozen deadline differs from a claimed one.
const FROZEN: u64 = 1;

/// The deadline that a claim at `now` stores for one that is due: 2^61 ns earlier, so that the time
/// since can still be told.
fn claimed(judged: u64, now: u64) -> u64 {
    let from = if now.wrapping_sub(judged) < CLAIM_SHIFT / 2 {
        judged
    } else {
        // The deadline passed 36 years ago or earlier. A deadline even further in the past might
        // look live.
        now
    };
    // Never the reserved value, which is odd.
    from.wrapping_sub(CLAIM_SHIFT) & !FROZEN
}

/// The deadline that a writer stores when it replaces a live node at `now`, whatever the old one
/// was.
fn frozen(now: u64) -> u64 {
    let past = now.wrapping_sub(CLAIM_SHIFT) | FROZEN;
    if past == time::NEVER { past - 2 } else { past }
}

/// Whether a deadline was frozen, as seen at `now`. [`NEVER`](time::NEVER) is odd too.
#[inline]
fn was_frozen(deadline: u64, now: u64) -> bool {
    deadline != time::NEVER && deadline & FROZEN != 0 && has_ended(deadline, now)
}

/// Whether a deadline was claimed or frozen, as seen at `now`.
///
/// Claimed and frozen deadlines lie 2^61 ns (73 years) in the past. The test leaves room for a
/// clock that is up to 9 years behind, and for 18 years until a thread looks; after that, the
/// thread claims again. An ordinary deadline is mistaken for a claimed one only if the clock jumps
/// 64 to 91 years past it between two looks.
#[inline]
fn has_ended(deadline: u64, now: u64) -> bool {
    const FROM: u64 = CLAIM_SHIFT - CLAIM_SHIFT / 8;
    const TO: u64 = CLAIM_SHIFT + CLAIM_SHIFT / 4;
    (FROM..TO).contains(&now.wrapping_sub(deadline))
}

/// How long a deadline, claimed or not, has passed as of `now`; 0 if it has not.
pub(crate) fn lateness(now: u64, deadline: u64) -> u64 {
    match time::elapsed(now, deadline) {
        // Another thread's judgement, made final before (node 4). The clock may have stepped back
        // since.
        since if since >= CLAIM_SHIFT / 2 => since.saturating_sub(CLAIM_SHIFT),
        since => since,
    }
}

/// A node before it is published: only its writer has it, on its stack.
///
/// Key and value are taken when there is memory for the node. Allocating panics if the memory is
/// refused. What is not taken by then stays with the writer, so it is not dropped under a lock.
pub(crate) struct NewNode<K, V> {
    content: Option<(K, V)>,
    pub(crate) hash: u64,
    pub(crate) weight: u32,
}

/// The fields of a node that are known only when it is added, under the shard's lock.
// Apart from the rest, which was written a while before: copied together, in wider words, the copy
// would wait for these.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Times {
    /// Cache time of the write; [`time::NEVER`] if not known.
    pub(crate) written: u64,
    /// The wanted deadline.
    pub(crate) deadline: u64,
    /// The entry's own deadline, where the cache keeps it apart.
    pub(crate) own: u64,
}

impl Times {
    /// Those of a node that was never added.
    pub(crate) const NONE: Self = Self {
        written: time::NEVER,
        deadline: time::NEVER,
        own: time::NEVER,
    };
}

impl<K, V> NewNode<K, V> {
    #[inline]
    pub(crate) fn new(key: K, value: V, hash: u64, weight: u32) -> Self {
        Self {
            content: Some((key, value)),
            hash,
            weight,
        }
    }

    /// Key and value, until they are taken.
    #[inline]
    pub(crate) fn pair(&self) -> (&K, &V) {
        let content = self.content.as_ref();
        let (key, value) = content.expect("a node is published once");
        (key, value)
    }

    #[inline]
    pub(crate) fn key(&self) -> &K {
        self.pair().0
    }

    /// Takes key and value, once.
    #[inline]
    pub(crate) fn take(&mut self) -> (K, V) {
        self.content.take().expect("a node is published once")
    }

    /// Drops key and value, which are not to be published. In place: the value may be large.
    #[inline(never)]
    pub(crate) fn discard(&mut self) {
        self.content = None;
    }
}
