//! Taking out one entry, the entries that a closure refuses, or all entries: by
//! [`Engine::take_out`], as does a load that ends by removing its entry.

use super::transact::{Change, Decision, FoundLoads, Tried};
use crate::contain::{contain, let_go};
use crate::engine::{Engine, WriteOutcome};
use crate::flight::{FIRST_PLACE, RevokedBy, RevokedLoads};
use crate::listener::RemovalCause;
use crate::map::{Confirmed, Occupied, Shard, Walk};
use crate::node::NodePtr;
use crate::time::{self, NEVER};
use equivalent::Equivalent;
use std::mem;

/// Removals of entries, or revocations of loads, under one hold of a shard's lock, where all are
/// taken out.
const REMOVALS_PER_HOLD: usize = 64;

impl<K, V> Engine<K, V> {
    /// Removes a key's entry and revokes the key's load; with `must_look`, only if the entry is
    /// live. Returns what `look` saw of the node that was removed, unless that was due.
    ///
    /// `look` sees the node before its removal, perhaps several times, with no lock held. `None`
    /// cancels the removal. If the node is replaced each time, perhaps by `look` itself (a value's
    /// `clone`), it is removed first in the end, and seen afterwards; but not with `must_look`.
    pub(crate) fn remove<Q, R>(
        &self,
        hash: u64,
        key: &Q,
        by: RevokedBy,
        must_look: bool,
        mut look: impl FnMut(NodePtr<K, V>) -> Option<R>,
    ) -> Option<R>
    where
        Q: Equivalent<K> + ?Sized,
    {
        let removal = Removal {
            engine: self,
            key,
            node: None,
            by,
            must_look,
            look: &mut look,
        };
        let (done, held) = self.transact(hash, removal);
        let Some(taken) = done else {
            drop(held);
            self.after_vain_removal(hash);
            return None;
        };
        let seen = match taken.seen {
            Some(seen) => {
                drop(held);
                seen
            }
            None => {
                // The guard runs `after_write` even if `look` panics.
                let mut after = AfterRemovals::new(self);
                after.outcome = Some(taken.outcome);
                // Its pin keeps what was removed. Dropped before `after`, in any case.
                let _held = held;
                let seen = look(taken.node)?;
                after.outcome = None;
                seen
            }
        };
        // Called here and not by the guard: if a guard's drop panicked, the compiler would leak the
        // return value.
        self.after_write(taken.outcome);
        match taken.cause {
            RemovalCause::Explicit => Some(seen),
            _ => {
                let_go(seen);
                None
            }
        }
    }

    /// Removes all entries that are present now. Entries that are inserted meanwhile may or may not
    /// be removed. Each shard is visited once, so the call ends under constant writes.
    ///
    /// It compares no keys, and takes out many nodes under one hold of the lock.
    pub(crate) fn take_all(&self) {
        let (map, mut walk, mut nodes) = (&self.map, Walk::default(), Vec::new());
        // The loads of a shard that are still to be revoked, from this place on.
        let mut loads_left = Some(FIRST_PLACE);
        while walk.shard < map.shards() {
            // Dropped after the pin, also if the ticker panics.
            let mut after = AfterRemovals::new(self);
            let pin = self.pin();
            let mut shard = map.lock_shard(walk.shard);
            // First revoke the loads that began before this call. What they have stored already is
            // removed afterwards.
            if let (Some(from), false) = (loads_left, shard.loads().is_empty()) {
                (after.revoked, loads_left) = shard.change_loads(|loads| {
                    loads.revoke_from(from, REMOVALS_PER_HOLD, RevokedBy::Overwrite)
                });
                if loads_left.is_some() {
                    continue;
                }
            }
            loads_left = None;
            let mut visited = 0;
            while walk.shard == shard.number() && visited < REMOVALS_PER_HOLD {
                map.next_group(&mut walk, &pin, &mut nodes);
                // An empty group costs time, too.
                visited += nodes.len().max(1);
                for node in nodes.drain(..) {
                    if let Some(spot) = shard.find_node(node.hash(), node) {
                        self.take_out(&mut shard, spot);
                        after.outcome = Some(WriteOutcome::of_removal(&shard, NEVER));
                    }
                }
            }
            if walk.shard != shard.number() {
                loads_left = Some(FIRST_PLACE);
            }
        }
    }

    /// Removes the live entries for which `keep` returns false, and revokes the loads of their
    /// keys. `keep` runs with no lock held.
    pub(crate) fn retain(&self, mut keep: impl FnMut(&K, &V) -> bool)
    where
        K: Eq,
    {
        let (mut walk, mut nodes) = (Walk::default(), Vec::new());
        loop {
            // Dropped after the pin, also if `keep` panics: what follows a write may run
            // destructors and listeners.
            let mut after = AfterRemovals::new(self);
            let pin = self.pin();
            if !self.map.next_group(&mut walk, &pin, &mut nodes) {
                break;
            }
            for node in nodes.drain(..) {
                if !self.is_live(node) || keep(node.key(), node.value()) {
                    continue;
                }
                let removal = Removal {
                    engine: self,
                    key: node.key(),
                    node: Some(node),
                    by: RevokedBy::Conditional,
                    must_look: true,
                    look: &mut |_| Some(()),
                };
                let (taken, mut held) = self.transact(node.hash(), removal);
                if let Some(taken) = taken {
                    after.outcome = Some(taken.outcome);
                }
                held.move_revoked(&mut after.revoked);
            }
        }
    }
}

/// A removal, as a change.
struct Removal<'r, K, V, Q: ?Sized, L> {
    engine: &'r Engine<K, V>,
    key: &'r Q,
    /// The node to remove, if no other of the key may be removed.
    node: Option<NodePtr<K, V>>,
    by: RevokedBy,
    must_look: bool,
    look: &'r mut L,
}

/// An entry that was removed, with what was seen of it before.
struct Taken<K, V, R> {
    cause: RemovalCause,
    outcome: WriteOutcome,
    node: NodePtr<K, V>,
    seen: Option<R>,
}

impl<K, V, Q, R, L> Change<K, V> for Removal<'_, K, V, Q, L>
where
    Q: Equivalent<K> + ?Sized,
    L: FnMut(NodePtr<K, V>) -> Option<R>,
{
    type Key = Q;
    /// What was seen of the entry; `None` to remove it first and look afterwards.
    type Answers = Option<R>;
    /// The entry, if there was one.
    type Done = Option<Taken<K, V, R>>;

    #[inline]
    fn key(&self) -> &Q {
        self.key
    }

    #[inline]
    fn node(&self) -> Option<NodePtr<K, V>> {
        self.node
    }

    #[inline]
    fn ask(
        &mut self,
        found: Option<NodePtr<K, V>>,
        last: Option<Self::Answers>,
    ) -> Decision<Self::Answers, Self::Done> {
        let is_last = last.is_some();
        let_go(last);
        match found {
            None if self.must_look => Decision::End(None),
            None => Decision::Apply(None),
            Some(_) if is_last && !self.must_look => Decision::Apply(None),
            Some(node) => match (self.look)(node) {
                Some(seen) => Decision::Apply(Some(seen)),
                // The next attempt looks at what the key has instead.
                None if self.engine.has_left(node) => Decision::Apply(None),
                None => Decision::End(None),
            },
        }
    }

    // Always inlined: what it returns stays in registers.
    #[inline(always)]
    fn apply<'s>(
        &mut self,
        seen: Self::Answers,
        place: Confirmed<'s, K, V>,
        shard: &mut Shard<'s, K, V>,
        loads: &mut FoundLoads<K, V>,
    ) -> Tried<Self::Answers, Self::Done> {
        let Confirmed::Occupied(spot) = place else {
            loads.revoke(shard, self.by);
            return Tried::Done(None);
        };
        let node = spot.node;
        let (cause, now) = self.engine.take_out(shard, spot);
        // What was seen live may be due by now. A removal that needs it so has removed nothing.
        if !(self.must_look && cause == RemovalCause::Expired) {
            loads.revoke(shard, self.by);
        }
        let outcome = WriteOutcome::of_removal(shard, now);
        Tried::Done(Some(Taken {
            cause,
            outcome,
            node,
            seen,
        }))
    }
}

/// What follows removals, when this is dropped: the waiters of revoked loads are released, then
/// `after_write` is called.
struct AfterRemovals<'a, K, V> {
    engine: &'a Engine<K, V>,
    outcome: Option<WriteOutcome>,
    revoked: RevokedLoads<K, V>,
}

impl<'a, K, V> AfterRemovals<'a, K, V> {
    fn new(engine: &'a Engine<K, V>) -> Self {
        Self {
            engine,
            outcome: None,
            revoked: RevokedLoads::new(),
        }
    }
}

impl<K, V> Drop for AfterRemovals<'_, K, V> {
    fn drop(&mut self) {
        // They may drop the program's. A panic must not keep `after_write` from being called.
        let_go(mem::replace(&mut self.revoked, RevokedLoads::new()));
        let Some(outcome) = self.outcome.take() else {
            return;
        };
        let engine = self.engine;
        let after = || engine.after_write(outcome);
        if std::thread::panicking() {
            // A second panic, a ticker's or an alarm's, must not end the process.
            contain(after);
        } else {
            after();
        }
    }
}

impl<K, V> Engine<K, V> {
    /// Takes a node out because a call removes it, and returns the cause, and the time; [`NEVER`]
    /// if the clock was not read.
    #[inline]
    pub(crate) fn take_out<'a>(
        &self,
        shard: &mut Shard<'a, K, V>,
        spot: Occupied<'a, K, V>,
    ) -> (RemovalCause, u64) {
        let node = spot.node;
        let now = if node.deadline() == NEVER {
            NEVER
        } else {
            time::of_write(self.clock.now())
        };
        // The deadline of an entry that is due is claimed.
        let cause = if now != NEVER && node.claim_if_due(now) {
            RemovalCause::Expired
        } else {
            RemovalCause::Explicit
        };
        shard.remove(spot, cause);
        self.count_removal(|| node.weight(), cause);
        (cause, now)
    }
}

#[cfg(all(test, not(wheelhouse_loom)))]
mod tests;
