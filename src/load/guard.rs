//! The right to load a key: a guard, which ends the load by what becomes of it.
//!
//! A guard is the right and the duty of a load's leader. It ends by [`fill`](Guard::fill),
//! [`fail`](Guard::fail), [`keep`](Guard::keep) or [`remove`](Guard::remove); a guard that is
//! dropped hands the key on to the call that has waited longest. It has two forms: one borrows the
//! cache and belongs to a call; the other owns a weak handle, keeps no cache alive, and may be sent
//! to another thread (a [`Lease`](crate::Lease), a reload).

use super::key::{CacheKey, CacheValue};
use super::state::{Load, Outcome, Rest, RevokedBy, SharedValue, wake_all};
use crate::compute::Entry;
use crate::contain::contain;
use crate::listener::RemovalCause;
use crate::maintenance::WriteOutcome;
use crate::map::Revalidated;
use crate::node::NodePtr;
use crate::operations::{
    Change, Check, Core, Hold, LifetimeSource, Visit, WeakHandle, WriteCondition, Written, write,
};
use crate::shared::Shared;
use crate::stats::Count;
use crate::time::{self, Clock, NEVER};
use std::hash::BuildHasher;
use std::ops::Deref;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;

/// How a call and its guard know their cache.
pub(crate) trait Home<K, V>: Clone {
    type Hasher;
    type At: Deref<Target = Core<K, V, Self::Hasher>>;

    /// The cache; `None` if it is gone, or in a child made by `fork`.
    fn visit(&self) -> Option<Self::At>;

    /// For a call that is about to wait. Panics in a child made by `fork`.
    fn check_process(&self);
}

impl<'a, K, V, S> Home<K, V> for &'a Core<K, V, S> {
    type Hasher = S;
    type At = &'a Core<K, V, S>;

    #[inline]
    fn visit(&self) -> Option<&'a Core<K, V, S>> {
        (self.maintenance.is_of_this_process()).then_some(*self)
    }

    #[inline]
    fn check_process(&self) {
        self.maintenance.check_process();
    }
}

impl<K, V, S> Home<K, V> for WeakHandle<K, V, S> {
    type Hasher = S;
    type At = Visit<K, V, S>;

    fn visit(&self) -> Option<Visit<K, V, S>> {
        Self::visit(self)
    }

    fn check_process(&self) {
        Self::check_process(self);
    }
}

/// The right to load a key; see the module docs.
#[must_use]
pub(crate) struct Guard<K, V, H: Home<K, V>> {
    home: H,
    load: Arc<Load<K, V>>,
    /// Whether the run was counted as begun, and has yet to be counted as ended.
    pub(super) runs: bool,
    pub(super) ended: bool,
    /// Whether the key was absent when the run began.
    pub(super) absent: bool,
    /// Whether it stands in the queue of the reloads: then another call may have taken it over.
    pub(super) queued: bool,
    /// What waiters get if this is dropped; without it, the next of them leads.
    pub(super) on_drop: Option<OnDrop<K, V, H::Hasher>>,
}

/// Says what waiters get of a guard that was dropped; the cache is `None` if it is gone.
pub(crate) type OnDrop<K, V, S> = fn(Option<&Core<K, V, S>>, &Load<K, V>) -> Outcome<V>;

/// The guard of a call.
pub(crate) type CallGuard<'a, K, V, S> = Guard<K, V, &'a Core<K, V, S>>;
/// A guard as a value, which keeps no cache alive.
pub(crate) type OwnedGuard<K, V, S> = Guard<K, V, WeakHandle<K, V, S>>;

/// An entry without its key, which the call has itself.
pub(crate) type Keyless<V> = Entry<(), V>;

/// What became of the value that filled a load.
#[derive(Debug)]
pub(crate) struct Filling<V> {
    /// The leader's own value. A clone was stored, or let in and could not be kept.
    pub(crate) own: Box<Keyless<V>>,
    /// The load was no longer current, and nothing was stored: the write that revoked it, and the
    /// live entry of the key, if there is one.
    pub(crate) revoked: Option<(RevokedBy, Option<Box<Keyless<V>>>)>,
}

impl<V> Keyless<V> {
    /// A plain hit, for a call that returns the value only.
    #[inline]
    pub(crate) fn hit(value: V) -> Self {
        Self {
            key: (),
            value,
            fresh: false,
            replaced: false,
            stored: true,
            left: None,
        }
    }

    /// A value that the call's own code has made; it is not stored. In a box, since it may be
    /// large, and passes through many functions.
    #[inline]
    pub(crate) fn made(value: V) -> Box<Self> {
        Box::new(Self {
            fresh: true,
            stored: false,
            ..Self::hit(value)
        })
    }

    /// A live node's value. The pin is held; `Clone` is user code.
    // Out of line, as the next: its room on the stack is free again when a load runs.
    #[inline(never)]
    pub(crate) fn of_node<K>(shared: &Shared<K, V>, node: NodePtr<K, V>) -> Box<Self>
    where
        V: Clone,
    {
        let deadline = node.deadline();
        Box::new(Self {
            left: shared.clock.time_until(deadline),
            ..Self::hit(node.value().clone())
        })
    }

    /// The value of another call's load.
    #[inline(never)]
    pub(crate) fn of_load(clock: Option<&Clock>, of: &SharedValue<V>) -> Box<Self>
    where
        V: Clone,
    {
        Box::new(Self {
            stored: of.stored,
            left: clock.and_then(|clock| clock.time_until(of.deadline)),
            ..Self::hit(of.value.clone())
        })
    }

    pub(crate) fn with_key<K>(self, key: K) -> Entry<K, V> {
        Entry {
            key,
            value: self.value,
            fresh: self.fresh,
            replaced: self.replaced,
            stored: self.stored,
            left: self.left,
        }
    }
}

impl<V> Filling<V> {
    /// What the call that leads returns: if the load was revoked, the live value if there is one.
    #[inline]
    pub(crate) fn into_entry(self) -> Box<Keyless<V>> {
        self.revoked.and_then(|(_, live)| live).unwrap_or(self.own)
    }
}

impl<K, V, H: Home<K, V>> Guard<K, V, H> {
    /// The guard of a call that was told to lead; its run has yet to begin.
    pub(crate) fn new(home: H, load: Arc<Load<K, V>>) -> Self {
        Self {
            home,
            load,
            runs: false,
            ended: false,
            absent: false,
            queued: false,
            on_drop: None,
        }
    }

    pub(crate) fn load(&self) -> &Arc<Load<K, V>> {
        &self.load
    }

    /// The cache; `None` if it is gone.
    pub(crate) fn core(&self) -> Option<H::At> {
        self.home.visit()
    }

    /// Ends the load with a failure, which waiters share if they accept it.
    pub(crate) fn fail(mut self, failure: &Outcome<V>) {
        self.remember(failure);
        self.end(failure, true);
    }

    /// The load of an absent key has failed: the cache may remember that for a time.
    #[inline]
    fn remember(&self, failure: &Outcome<V>) {
        if let Outcome::Error(error) = failure
            && let Some(core) = self.home.visit()
            && let Some(policy) = &core.failure_backoff
            && self.load.reload_until().is_none()
        {
            let failures = self.load.failures().saturating_add(1);
            // If user code panics, nothing is remembered.
            let rest = contain(|| {
                let pause = policy(&**error, failures)?;
                let until = time::deadline_after(core.shared.clock.now(), pause);
                Some(Rest {
                    outcome: failure.clone(),
                    failures,
                    until,
                })
            });
            self.load.set_rest(rest.flatten());
        }
    }

    /// Ends the load without a value, which is no failure: a compute leaves things as they are.
    pub(crate) fn keep(mut self) {
        self.end(&Outcome::Nothing, false);
    }

    pub(super) fn end(&mut self, outcome: &Outcome<V>, failed: bool) {
        match self.home.visit() {
            Some(core) => {
                self.note_end(&core, failed);
                core.end_run(&self.load, outcome);
            }
            None => {
                self.ended = true;
                if self.load.is_of_this_process() {
                    wake_all(self.load.end(outcome, 0).0);
                }
            }
        }
    }

    /// The run has ended: it is counted, if runs are.
    #[inline]
    fn note_end(&mut self, core: &Core<K, V, H::Hasher>, failed: bool) {
        self.ended = true;
        let Some(counters) = core.shared.counters.as_ref().filter(|_| self.runs) else {
            return;
        };
        // If the ticker panics, waiters must be woken all the same.
        contain(|| {
            let began = self.load.began();
            counters.load_took(time::elapsed(core.shared.clock.now(), began));
        });
        if failed {
            counters.count(Count::FailedLoads);
        }
    }
}

impl<K, V, H: Home<K, V>> Guard<K, V, H> {
    #[cold]
    #[inline(never)]
    fn end_dropped(&mut self) {
        if self.queued && !self.load.take_queued() {
            return;
        }
        let outcome = match self.on_drop {
            Some(on_drop) => on_drop(self.home.visit().as_deref(), &self.load),
            None => Outcome::Nothing,
        };
        self.end(&outcome, self.runs);
    }
}

impl<K, V, H: Home<K, V>> Drop for Guard<K, V, H> {
    #[inline]
    fn drop(&mut self) {
        if !self.ended && self.load.is_of_this_process() {
            self.end_dropped();
        }
    }
}

impl<K, V, S> CallGuard<'_, K, V, S> {
    /// The same right as a value.
    pub(super) fn into_owned(mut self, home: WeakHandle<K, V, S>) -> OwnedGuard<K, V, S> {
        let mut owned = Guard::new(home, Arc::clone(&self.load));
        (owned.runs, owned.absent) = (self.runs, self.absent);
        self.ended = true;
        owned
    }
}

/// The condition of a load's own write: the load is current.
struct Commit<'l, K, V> {
    load: &'l Arc<Load<K, V>>,
    /// Whether the key was absent when the run began.
    absent: bool,
    /// The write, and whether calls wait for its outcome.
    made: &'l mut Option<(Written, bool)>,
}

impl<K, V> WriteCondition<K, V> for Commit<'_, K, V> {
    const KNOWS_LOADS: bool = false;

    #[inline]
    fn expects_absent(&mut self) -> bool {
        self.absent && self.load.is_current()
    }

    #[inline]
    fn check(&mut self, _: Option<NodePtr<K, V>>, _: u64, _: &mut Hold<'_, '_, K, V>) -> Check {
        if self.load.is_current() {
            Check::Pass
        } else {
            Check::Refuse
        }
    }

    #[inline]
    fn stored(&mut self, hold: &mut Hold<'_, '_, K, V>, written: Written) {
        *self.made = Some((
            written,
            hold.shard.change_loads(|loads| loads.seal(self.load)),
        ));
    }
}

/// The removal of the key's entry as a load's own write.
struct TakeOut<'l, K, V> {
    shared: &'l Shared<K, V>,
    load: &'l Arc<Load<K, V>>,
}

impl<K: Eq, V> Change<K, V> for TakeOut<'_, K, V> {
    type Key = K;
    type Plan = ();
    /// What was removed.
    type Done = Result<Option<(RemovalCause, WriteOutcome)>, Revoked>;
    const KNOWS_LOADS: bool = false;

    fn key(&self) -> &K {
        self.load.key()
    }

    fn ask(&mut self, _: Option<NodePtr<K, V>>, _: Option<()>) -> Result<(), Self::Done> {
        Ok(())
    }

    fn apply<'s>(
        &mut self,
        (): (),
        place: Revalidated<'s, K, V>,
        hold: &mut Hold<'_, 's, K, V>,
    ) -> Result<Self::Done, ()> {
        if !self.load.is_current() {
            return Ok(Err(Revoked));
        }
        let Revalidated::Occupied(spot) = place else {
            return Ok(Ok(None));
        };
        let (cause, now) = self.shared.take_out(&mut hold.shard, spot);
        hold.shard.change_loads(|loads| loads.seal(self.load));
        let outcome = WriteOutcome::of_removal(&hold.shard, now);
        Ok(Ok(Some((cause, outcome))))
    }
}

impl<K: CacheKey, V: CacheValue, H: Home<K, V, Hasher: BuildHasher>> Guard<K, V, H> {
    /// Stores a clone of the value if the load is still current, and gives it to the waiters.
    pub(crate) fn fill(mut self, mut own: Box<Keyless<V>>, given: LifetimeSource) -> Filling<V> {
        let Some(core) = self.home.visit() else {
            return self.discard(None, own);
        };
        // User code, all of it with no lock held.
        let key = self.load.key().clone();
        let mut new = write::new_node(&core, self.load.hash(), key, own.value.clone());
        let mut made = None;
        let condition = Commit {
            load: &self.load,
            absent: self.absent,
            made: &mut made,
        };
        let Some(outcome) = write::put_through(&core, &mut new, given, condition) else {
            drop(new);
            return self.discard(Some(&core), own);
        };
        let Some((written, waited)) = made else {
            unreachable!("a write that was made has sealed the load");
        };
        let shared = if waited {
            self.share(&own.value, written)
        } else {
            self.note_end(&core, false);
            Ok(())
        };
        core.maintenance.after_write(&core.shared, outcome);
        if let Err(panic) = shared {
            resume_unwind(panic);
        }
        own.replaced = written.cause == Some(RemovalCause::Replaced);
        own.stored = written.is_stored();
        own.left = time::time_left(written.now, written.deadline);
        Filling { own, revoked: None }
    }

    /// Ends the run with a value that was stored: the calls that wait for it get clones. If making
    /// one panics, the next of them leads.
    #[cold]
    #[inline(never)]
    fn share(&mut self, value: &V, written: Written) -> std::thread::Result<()> {
        let clone = || Outcome::of(value.clone(), written.is_stored(), written.deadline);
        let shared = (self.load.has_sharers())
            .then(|| catch_unwind(AssertUnwindSafe(clone)))
            .transpose();
        let (outcome, result) = match shared {
            Ok(outcome) => (outcome.unwrap_or(Outcome::Nothing), Ok(())),
            Err(panic) => (Outcome::Nothing, Err(panic)),
        };
        self.end(&outcome, false);
        result
    }

    /// Ends the run of a load that was revoked, or whose cache is gone: all waiters get the live
    /// value, or the loaded one if there is none.
    #[cold]
    #[inline(never)]
    pub(super) fn discard(
        mut self,
        core: Option<&Core<K, V, H::Hasher>>,
        own: Box<Keyless<V>>,
    ) -> Filling<V> {
        let load = Arc::clone(&self.load);
        let (mut by, mut live) = (RevokedBy::Overwrite, None);
        if load.is_of_this_process() {
            live = self.end_revoked(core, || Outcome::of(own.value.clone(), false, NEVER));
            by = load.revoked().unwrap_or(by);
        } else {
            self.ended = true;
        }
        let revoked = Some((by, live));
        Filling { own, revoked }
    }

    /// Ends the run of a load that was revoked: the waiters that share values get the live one, or
    /// else `other`. Returns the live one.
    fn end_revoked(
        &mut self,
        core: Option<&Core<K, V, H::Hasher>>,
        other: impl FnOnce() -> Outcome<V>,
    ) -> Option<Box<Keyless<V>>> {
        let load = &self.load;
        let live = core.and_then(|core| {
            core.shared.count(Count::DiscardedLoads);
            let pin = core.shared.pin();
            let hit = core.shared.find_live(load.hash(), load.key(), &pin)?;
            let mut live = Keyless::of_node(&core.shared, hit.node);
            live.stored = false;
            Some(live)
        });
        let outcome = match &live {
            _ if !load.has_sharers() => Outcome::Nothing,
            Some(live) => Outcome::of(live.value.clone(), false, NEVER),
            None => other(),
        };
        self.end(&outcome, false);
        live
    }

    /// Removes the key's entry if the load is still current, and ends the run; waiters get `none`,
    /// or the live value if the load was revoked. Says for which cause an entry left; an error if
    /// the load was revoked.
    pub(crate) fn remove(mut self, none: Outcome<V>) -> Result<Option<RemovalCause>, Revoked> {
        let Some(core) = self.home.visit() else {
            self.end(&none, false);
            return Err(Revoked);
        };
        let (shared, load) = (&core.shared, &self.load);
        let Ok(taken) = shared.transact(load.hash(), TakeOut { shared, load }).end() else {
            self.end_revoked(Some(&core), || none);
            return Err(Revoked);
        };
        self.end(&none, false);
        let Some((cause, outcome)) = taken else {
            return Ok(None);
        };
        core.maintenance.after_write(shared, outcome);
        Ok(Some(cause))
    }
}

/// A load was no longer current: it had no effect.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Revoked;

impl<K, V, S> Core<K, V, S> {
    /// Publishes the outcome of a run and wakes the waiters.
    fn end_run(&self, load: &Arc<Load<K, V>>, outcome: &Outcome<V>) {
        let now = if load.is_current() {
            contain(|| self.load_clock()).unwrap_or(0)
        } else if load.revoked().is_some() {
            0
        } else {
            // Sealed: it has left the table, and no other call can change it.
            return wake_all(load.end(outcome, 0).0);
        };
        let mut shard = self.shared.map.lock(load.hash());
        let current = load.is_current();
        let (wakers, failure) = load.end(outcome, now);
        if !current {
            shard.change_loads(|loads| loads.remove(load));
        } else if !load.is_current() {
            shard.change_loads(|loads| loads.remove_ended(load));
        }
        let rests = current && load.is_resting();
        let forgotten = rests.then(|| shard.change_loads(|loads| loads.rest(load)));
        drop(shard);
        drop((forgotten, failure));
        if load.is_current() && !rests {
            self.watch_load(load, now);
        }
        wake_all(wakers);
    }
}
