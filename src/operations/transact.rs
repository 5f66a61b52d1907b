//! The one transaction on the entry of a key. It is each write and each removal of a key, the begin
//! of a load, and each end of a load that changes the entry.
//!
//! No user code (`Eq`, a policy, a closure, `Clone`) may run under a shard's lock, and what such
//! code has seen must still be true when the change is made. So a transaction takes these steps,
//! and starts over where it says so:
//!
//! 1. *pin*: the nodes that it reads are not freed. The pin executes a full fence;
//! 2. *probe*: it looks the key up without a lock, and compares keys with [`Change::key`], or
//!    addresses with [`Change::node`];
//! 3. *ask*: it asks the user's code about what is there ([`Change::ask`]), and keeps its *answers*
//!    for this attempt; or they end the transaction without a change;
//! 4. *lock* the shard;
//! 5. *confirm*, by addresses and hashes alone, that the key has what the probe has found; else
//!    start over;
//! 6. *confirm the loads*, if the change wants to know the load of its key
//!    ([`Change::knows_loads`]): were the keys of all loads with this hash compared? If not, copy
//!    the loads, unlock, unpin, compare, and start over;
//! 7. *apply* the answers, in this hold of the lock ([`Change::apply`]). It may still find that
//!    they do not fit: start over;
//! 8. unlock. The caller gets what was done, and an [`AfterTransaction`]: the pin, to read a node
//!    that has just left, and the revoked load, if there is one. Its drop drops the pin, then
//!    releases the waiters of that load, with no lock and no pin held.
//!
//! The caller then calls `Engine::after_write` with the outcome of what it wrote.
//!
//! # The bound
//!
//! Another thread, or the user's code itself, may change the entry each time between 3 and 5. After
//! [`MAX_ASKS`] attempts, `ask` is given the last answers. It must then ask no policy and no
//! `Clone`, and either end the transaction or return answers that fit whatever the key has. There
//! are two exceptions. If the last answer of a policy was to keep the deadline of a live entry,
//! which has ended, the policy is asked once about a new one. A predicate that decides whether the
//! change is made at all is asked each time: one that itself writes the compared key each time does
//! not come to an end.
//!
//! # What a change looks like
//!
//! A *change* is a small struct with the arguments of the operation, and borrows of what is large.
//! The fields may note what an attempt has learnt; the answers are lost when an attempt fails, but
//! for the last one. A small change is two closures ([`Engine::change`]), and knows no loads.

use crate::contain::{contain, let_go};
use crate::engine::{Engine, MAX_ASKS};
use crate::flight::{Load, Loads, RevokedBy, RevokedLoads};
use crate::map::{Confirmed, Shard};
use crate::node::NodePtr;
use crate::reclaim::Pin;
use equivalent::Equivalent;
use std::marker::PhantomData;
use std::sync::Arc;

/// What a change does about what its key has.
pub(crate) enum Decision<A, D> {
    /// It makes the change, by these answers.
    Apply(A),
    /// It ends without a change.
    End(D),
}

/// How an attempt has ended.
pub(crate) enum Tried<A, D> {
    /// The transaction is done.
    Done(D),
    /// The answers do not fit what the key has by now: the transaction starts over. Nothing was
    /// changed, but that a due deadline may be claimed.
    Again(A),
}

/// What one operation does in the steps of a transaction; see the module docs.
pub(crate) trait Change<K, V> {
    type Key: Equivalent<K> + ?Sized;
    /// What the user's code has answered, for [`apply`](Self::apply).
    type Answers;
    type Done;

    /// The key of the transaction.
    fn key(&self) -> &Self::Key;

    /// Whether the change wants to know the load of its key.
    #[inline]
    fn knows_loads(&self) -> bool {
        true
    }

    /// Whether the key is most likely absent, as after a miss. Then a first attempt takes steps 3,
    /// 4, 6 and 7 alone. It succeeds if no node has the key's hash and, for a change that knows
    /// loads, no current load has it either. `ask` is called with no node.
    #[inline]
    fn expects_absent(&self) -> bool {
        false
    }

    /// Whether no attempt is inlined: those of loads are not, but for that of an absent key.
    #[inline]
    fn is_apart(&self) -> bool {
        false
    }

    /// The node that the change is about, if it knows that: then no key of a node is compared,
    /// which is user code and may panic.
    #[inline]
    fn node(&self) -> Option<NodePtr<K, V>> {
        None
    }

    /// Decides what to do about the node that the key has, with no lock held. `last` has the
    /// answers of the last attempt if the user's code was asked often enough.
    fn ask(
        &mut self,
        found: Option<NodePtr<K, V>>,
        last: Option<Self::Answers>,
    ) -> Decision<Self::Answers, Self::Done>;

    /// Makes the change, under the lock of this shard. `place` has the node that `ask` has seen;
    /// `loads` are those of the key, if the change [knows loads](Self::knows_loads).
    ///
    /// No user code but that of the ticker, which some changes read here; and no drop of a key or a
    /// value.
    fn apply<'s>(
        &mut self,
        answers: Self::Answers,
        place: Confirmed<'s, K, V>,
        shard: &mut Shard<'s, K, V>,
        loads: &mut FoundLoads<K, V>,
    ) -> Tried<Self::Answers, Self::Done>;
}

/// A change in two closures, about this key. It knows no loads.
struct Steps<'k, Q: ?Sized, A, M, P, D> {
    key: &'k Q,
    ask: A,
    apply: M,
    types: PhantomData<(P, D)>,
}

impl<K, V, Q, A, M, P, D> Change<K, V> for Steps<'_, Q, A, M, P, D>
where
    Q: Equivalent<K> + ?Sized,
    A: FnMut(Option<NodePtr<K, V>>, Option<P>) -> Decision<P, D>,
    M: for<'s> FnMut(P, Confirmed<'s, K, V>, &mut Shard<'s, K, V>) -> Tried<P, D>,
{
    type Key = Q;
    type Answers = P;
    type Done = D;

    #[inline]
    fn knows_loads(&self) -> bool {
        false
    }

    #[inline]
    fn key(&self) -> &Q {
        self.key
    }

    #[inline]
    fn ask(&mut self, found: Option<NodePtr<K, V>>, last: Option<P>) -> Decision<P, D> {
        (self.ask)(found, last)
    }

    #[inline(always)]
    fn apply<'s>(
        &mut self,
        answers: P,
        place: Confirmed<'s, K, V>,
        shard: &mut Shard<'s, K, V>,
        _: &mut FoundLoads<K, V>,
    ) -> Tried<P, D> {
        (self.apply)(answers, place, shard)
    }
}

/// What a transaction still holds at its end. The fields are dropped in this order.
pub(crate) struct AfterTransaction<K, V> {
    _pin: Option<Pin>,
    loads: FoundLoads<K, V>,
}

impl<K, V> AfterTransaction<K, V> {
    /// Adds the load that was revoked, if there is one, to those of a caller that still holds
    /// another pin, and drops them later.
    pub(super) fn move_revoked(&mut self, to: &mut RevokedLoads<K, V>) {
        if let Some(found) = &mut self.loads.0 {
            to.append(&mut found.revoked);
        }
    }
}

impl<K, V> Engine<K, V> {
    /// Runs a change as one transaction on the key with this hash; see the module docs.
    // Always inlined, with the first attempt unless it is apart: what that has done stays in
    // registers. A loop around it would keep in memory what the attempts share, so `attempts` gets
    // the change by value.
    #[inline(always)]
    pub(crate) fn transact<C: Change<K, V>>(
        &self,
        hash: u64,
        mut change: C,
    ) -> (C::Done, AfterTransaction<K, V>) {
        let mut loads = FoundLoads(None);
        if change.expects_absent() {
            if let Some(done) = self.attempt_absent(hash, &mut change, &mut loads) {
                let _pin = None;
                return (done, AfterTransaction { _pin, loads });
            }
        }
        if change.is_apart() {
            return self.attempts(hash, change, loads, None);
        }
        match self.attempt(hash, &mut change, &mut loads, None) {
            Tried::Done((_pin, done)) => (done, AfterTransaction { _pin, loads }),
            Tried::Again(answers) => {
                // In parts: else both arms would return their answer through memory.
                let (done, held) = self.attempts(hash, change, loads, Some(answers));
                (done, held)
            }
        }
    }

    /// Runs a change that knows no loads: two closures, `ask` and `apply`.
    #[inline]
    pub(crate) fn change<Q, P, D>(
        &self,
        hash: u64,
        key: &Q,
        ask: impl FnMut(Option<NodePtr<K, V>>, Option<P>) -> Decision<P, D>,
        apply: impl for<'s> FnMut(P, Confirmed<'s, K, V>, &mut Shard<'s, K, V>) -> Tried<P, D>,
    ) -> D
    where
        Q: Equivalent<K> + ?Sized,
    {
        let types = PhantomData;
        let steps = Steps {
            key,
            ask,
            apply,
            types,
        };
        let (done, held) = self.transact(hash, steps);
        drop(held);
        done
    }

    /// Attempts until one succeeds. The `answers` are those of an attempt that has failed.
    #[cold]
    #[inline(never)]
    fn attempts<C: Change<K, V>>(
        &self,
        hash: u64,
        mut change: C,
        mut loads: FoundLoads<K, V>,
        mut answers: Option<C::Answers>,
    ) -> (C::Done, AfterTransaction<K, V>) {
        for made in u32::from(answers.is_some()).. {
            loads.compare(change.key());
            let last = if made >= MAX_ASKS {
                answers
            } else {
                let_go(answers);
                None
            };
            match self.attempt(hash, &mut change, &mut loads, last) {
                Tried::Done((_pin, done)) => return (done, AfterTransaction { _pin, loads }),
                Tried::Again(again) => answers = Some(again),
            }
        }
        unreachable!("a loop without an end");
    }

    /// The attempt of a change that expects the key to be absent; `None` if it has to be repeated.
    #[inline]
    fn attempt_absent<C: Change<K, V>>(
        &self,
        hash: u64,
        change: &mut C,
        loads: &mut FoundLoads<K, V>,
    ) -> Option<C::Done> {
        let answers = match change.ask(None, None) {
            Decision::Apply(answers) => answers,
            Decision::End(done) => return Some(done),
        };
        let mut shard = self.map.lock(hash);
        if change.knows_loads() && shard.has_loads() && shard.loads().has(hash) {
            return None;
        }
        let place = Confirmed::Vacant(shard.vacant(hash, |_| true)?);
        match change.apply(answers, place, &mut shard, loads) {
            Tried::Done(done) => Some(done),
            Tried::Again(_) => None,
        }
    }

    /// One attempt.
    #[inline(always)]
    fn attempt<C: Change<K, V>>(
        &self,
        hash: u64,
        change: &mut C,
        loads: &mut FoundLoads<K, V>,
        last: Option<C::Answers>,
    ) -> Tried<C::Answers, (Option<Pin>, C::Done)> {
        let cell = self.map.cell(hash);
        // Before the pin, whose fence delays later memory loads.
        cell.prefetch_to_write(hash);
        // After `change` and `loads`: if the user's code panics, the pin is dropped first.
        let pin = self.pin();
        // The comparison borrows the key and not the change, which so stays in registers.
        let (key, about) = (change.key(), change.node());
        let probe = cell.probe(hash, &pin, move |node| match about {
            Some(about) => node == about,
            None => key.equivalent(node.key()),
        });
        let answers = match change.ask(probe.found, last) {
            Decision::Apply(answers) => answers,
            Decision::End(done) => {
                drop(probe);
                return Tried::Done((Some(pin), done));
            }
        };
        let mut shard = cell.lock();
        let Some(place) = shard.confirm(hash, &probe) else {
            return Tried::Again(answers);
        };
        if change.knows_loads() && !loads.are_known(&shard, hash) {
            return Tried::Again(answers);
        }
        let done = match change.apply(answers, place, &mut shard, loads) {
            Tried::Done(done) => done,
            Tried::Again(answers) => return Tried::Again(answers),
        };
        drop(shard);
        drop(probe);
        Tried::Done((Some(pin), done))
    }
}

/// The loads that a transaction has found. Its drop wakes calls: no lock and no pin may be held.
// Nearly all writes find no load. Functions that run if one is found take this by value, so that it
// stands in a register.
pub(crate) struct FoundLoads<K, V>(Option<Box<Found<K, V>>>);

impl<K, V> Drop for FoundLoads<K, V> {
    // What the compiler makes of the field alone is a call for each write.
    #[inline]
    fn drop(&mut self) {
        if let Some(found) = self.0.take() {
            found.release();
        }
    }
}

/// A load with the hash of the key, and whether it is of this key; `None` until the keys are
/// compared.
type SameHash<K, V> = (Arc<Load<K, V>>, Option<bool>);

struct Found<K, V> {
    same_hash: Vec<SameHash<K, V>>,
    revoked: RevokedLoads<K, V>,
}

impl<K, V> FoundLoads<K, V> {
    /// The current load of the key. Under the shard's lock.
    pub(crate) fn load(&self) -> Option<&Arc<Load<K, V>>> {
        self.0.as_ref()?.mine()
    }

    /// Revokes the load of the key, in the hold of the shard's lock that makes the write.
    #[inline]
    pub(crate) fn revoke(&mut self, shard: &mut Shard<'_, K, V>, by: RevokedBy) {
        if let Some(found) = &mut self.0 {
            found.revoke(shard, by);
        }
    }

    /// Whether the keys of all loads with this hash were compared. Under the shard's lock.
    #[inline]
    fn are_known(&mut self, shard: &Shard<'_, K, V>, hash: u64) -> bool {
        if !shard.has_loads() {
            return true;
        }
        let (found, known) = Found::find(self.0.take(), shard.loads(), hash);
        self.0 = found;
        known
    }

    /// Compares the keys of the loads that were found, with no lock held.
    fn compare<Q: Equivalent<K> + ?Sized>(&mut self, key: &Q) {
        for (load, is_mine) in self.0.iter_mut().flat_map(|found| &mut found.same_hash) {
            is_mine.get_or_insert_with(|| key.equivalent(load.key()));
        }
    }
}

impl<K, V> Found<K, V> {
    #[cold]
    #[inline(never)]
    fn release(self: Box<Self>) {
        // It may drop the last key of a load, which may panic: the write is ended all the same.
        contain(|| drop(self));
    }

    #[cold]
    #[inline(never)]
    fn find(found: Option<Box<Self>>, loads: &Loads<K, V>, hash: u64) -> (Option<Box<Self>>, bool) {
        if found.is_none() && !loads.has(hash) {
            return (None, true);
        }
        let mut found = found.unwrap_or_else(|| {
            Box::new(Self {
                same_hash: Vec::new(),
                revoked: RevokedLoads::new(),
            })
        });
        let same_hash = &mut found.same_hash;
        for load in loads.of_hash(hash) {
            if !same_hash.iter().any(|(other, _)| Arc::ptr_eq(other, load)) {
                same_hash.push((Arc::clone(load), None));
            }
        }
        let known = same_hash.iter().all(|(_, is_mine)| is_mine.is_some());
        (Some(found), known)
    }

    /// The current load of the key. Under the shard's lock.
    fn mine(&self) -> Option<&Arc<Load<K, V>>> {
        let mut loads = self.same_hash.iter();
        let mine = loads.find(|(load, is_mine)| *is_mine == Some(true) && load.is_current());
        mine.map(|(load, _)| load)
    }

    #[cold]
    #[inline(never)]
    fn revoke(&mut self, shard: &mut Shard<'_, K, V>, by: RevokedBy) {
        if let Some(load) = self.mine().cloned() {
            self.revoked = shard.change_loads(|loads| loads.revoke(load, by));
        }
    }
}

#[cfg(test)]
mod tests;
