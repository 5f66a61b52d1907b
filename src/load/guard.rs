//! The right to load a key: a guard, which ends the load by what becomes of it.
//!
//! A guard is the right and the duty of a load's leader. To end the load it [enters](Guard::enter)
//! its cache, and then ends by [`fill`](Ending::fill), [`fail`](Ending::fail),
//! [`keep`](Ending::keep) or [`remove`](Ending::remove). A guard that is dropped hands the key on
//! to the call that has waited longest. It has two forms: one borrows the cache and belongs to a
//! call; the other owns a weak handle, keeps no cache alive, and may be sent to another thread (a
//! [`Lease`](crate::Lease), a reload).

use super::state::{Load, Outcome, RevokedBy, wake_all};
use super::{CacheKey, CacheValue};
use crate::compute::Entry;
use crate::contain::contain;
use crate::engine::{Engine, LifetimeSource, Visit, WeakHandle, WriteOutcome};
use crate::listener::RemovalCause;
use crate::map::Revalidated;
use crate::node::NodePtr;
use crate::operations::{Ask, Condition, Tried};
use crate::stats::Count;
use crate::stripe::thread_number;
use crate::time::{self, NEVER};
use std::cell::Cell;
use std::mem;
use std::ops::Deref;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;

/// How a call and its guard know their cache.
pub(crate) trait Home<K, V>: Clone {
    type At: Deref<Target = Engine<K, V>>;

    /// The cache; `None` if it is gone.
    fn visit(&self) -> Option<Self::At>;
}

impl<'a, K, V> Home<K, V> for &'a Engine<K, V> {
    type At = &'a Engine<K, V>;

    #[inline]
    fn visit(&self) -> Option<&'a Engine<K, V>> {
        Some(*self)
    }
}

impl<K, V> Home<K, V> for WeakHandle<K, V> {
    type At = Visited<K, V>;

    fn visit(&self) -> Option<Visited<K, V>> {
        let cache = Self::visit(self)?;
        Some(Visited(cache))
    }
}

/// The engine of a cache that a thread without a handle visits.
pub(crate) struct Visited<K, V>(Visit<K, V>);

impl<K, V> Deref for Visited<K, V> {
    type Target = Engine<K, V>;

    fn deref(&self) -> &Engine<K, V> {
        self.0.engine()
    }
}

/// The right to load a key; see the module docs.
#[must_use]
pub(crate) struct Guard<K, V, H: Home<K, V>> {
    home: H,
    load: Arc<Load<K, V>>,
    /// Whether the run was counted as begun, and has yet to be counted as ended.
    pub(super) runs: bool,
    /// Whether its drop ends nothing.
    pub(super) ended: bool,
    /// Whether the key was absent when the run began.
    pub(super) absent: bool,
    /// What waiters get if this is dropped; without it, the next of them leads.
    pub(super) on_drop: Option<OnDrop<K, V>>,
}

/// A guard that ends its load. If it owns no handle it is inside the cache's gate, and leaves that
/// when the load has ended, also by a panic: user code may have dropped the last handle, and then
/// the thread waits as it leaves.
#[must_use]
pub(crate) struct Ending<K, V, H: Home<K, V>> {
    // The cache is dropped last.
    guard: Guard<K, V, H>,
    has_ended: Cell<bool>,
    /// `None` if the cache is gone.
    engine: Option<H::At>,
}

/// Says what waiters get of a guard that was dropped, with its cache if that is not gone.
pub(crate) type OnDrop<K, V> = fn(&Load<K, V>, Option<&Engine<K, V>>) -> Outcome<V>;

/// The guard of a call.
pub(crate) type CallGuard<'a, K, V> = Guard<K, V, &'a Engine<K, V>>;
/// A guard as a value, which keeps no cache alive.
pub(crate) type OwnedGuard<K, V> = Guard<K, V, WeakHandle<K, V>>;

/// An entry without its key, which the call has itself.
pub(crate) type Keyless<V> = Entry<(), V>;

/// Of a load that was no longer current, so that nothing was stored: the write that revoked it, and
/// the live entry of the key, if there is one.
pub(crate) type FilledLate<V> = Option<(RevokedBy, Option<Box<Keyless<V>>>)>;

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
        // Field by field: without optimization, `..Self::hit(value)` would copy it once more.
        Box::new(Self {
            key: (),
            value,
            fresh: true,
            replaced: false,
            stored: false,
            left: None,
        })
    }

    /// A live node's value. The pin is held; `Clone` is user code.
    // Out of line, as the next: its room on the stack is free again when a load runs.
    #[inline(never)]
    pub(crate) fn of_node<K>(engine: &Engine<K, V>, node: NodePtr<K, V>) -> Box<Self>
    where
        V: Clone,
    {
        let deadline = node.deadline();
        Box::new(Self {
            left: engine.clock.time_until(deadline),
            ..Self::hit(node.value().clone())
        })
    }

    /// A copy, for a call that shares it.
    #[inline(never)]
    pub(crate) fn copy(&self) -> Box<Self>
    where
        V: Clone,
    {
        Box::new(self.clone())
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

impl<K, V, H: Home<K, V>> Guard<K, V, H> {
    /// The guard of a call that was told to lead; its run has yet to begin.
    pub(crate) fn new(home: H, load: Arc<Load<K, V>>) -> Self {
        Self {
            home,
            load,
            runs: false,
            ended: false,
            absent: false,
            on_drop: None,
        }
    }

    pub(crate) fn load(&self) -> &Arc<Load<K, V>> {
        &self.load
    }

    /// The cache; `None` if it is gone.
    #[inline]
    pub(crate) fn engine(&self) -> Option<H::At> {
        self.home.visit()
    }

    /// Enters the cache, to end the load. User code runs from now on: what it calls must not wait
    /// for this load.
    #[inline]
    pub(crate) fn enter(mut self) -> Ending<K, V, H> {
        self.load.set_leader(thread_number());
        self.ended = true;
        Ending {
            engine: self.engine(),
            guard: self,
            has_ended: Cell::new(false),
        }
    }

    /// The same right, with another way to the cache.
    #[cold]
    pub(crate) fn moved<G: Home<K, V>>(&mut self, home: G) -> Guard<K, V, G> {
        Guard {
            home,
            load: Arc::clone(&self.load),
            runs: self.runs,
            ended: mem::replace(&mut self.ended, true),
            absent: self.absent,
            on_drop: self.on_drop,
        }
    }
}

impl<K, V, H: Home<K, V>> Drop for Guard<K, V, H> {
    #[inline]
    fn drop(&mut self) {
        if !self.ended {
            drop(self.moved(self.home.clone()).enter());
        }
    }
}

impl<K, V, H: Home<K, V>> Drop for Ending<K, V, H> {
    #[inline]
    fn drop(&mut self) {
        if !self.has_ended.get() {
            let on_drop = self.guard.on_drop;
            let outcome = on_drop.map(|on_drop| on_drop(self.load(), self.engine()));
            let outcome = outcome.unwrap_or(Outcome::Nothing);
            self.end_failed(&outcome, self.guard.runs);
        }
    }
}

impl<K, V, H: Home<K, V>> Ending<K, V, H> {
    pub(crate) fn load(&self) -> &Arc<Load<K, V>> {
        &self.guard.load
    }

    /// The cache; `None` if it is gone.
    pub(crate) fn engine(&self) -> Option<&Engine<K, V>> {
        self.engine.as_deref()
    }

    /// Ends the load with a failure, which waiters share if they accept it.
    pub(crate) fn fail(self, failure: &Outcome<V>) {
        self.end_failed(failure, true);
    }

    #[cold]
    #[inline(never)]
    fn end_failed(&self, failure: &Outcome<V>, failed: bool) {
        if let Outcome::Absent = failure {
            self.forget_failure();
        }
        self.end(failure, failed);
    }

    /// A load of the key has succeeded.
    #[inline]
    pub(super) fn forget_failure(&self) {
        if let Some(engine) = &self.engine {
            if let Some(forget) = &engine.forget_failure {
                contain(|| forget(self.guard.load.key()));
            }
        }
    }

    /// Ends the load without a value, which is no failure: a compute leaves things as they are.
    pub(crate) fn keep(self) {
        self.end(&Outcome::Nothing, false);
    }

    /// Ends the run: publishes its outcome, and wakes the waiters.
    pub(super) fn end(&self, outcome: &Outcome<V>, failed: bool) {
        let (load, engine) = (self.load(), self.engine());
        self.has_ended.set(true);
        // If the ticker panics, waiters must be woken all the same.
        let now = engine.and_then(|engine| {
            self.note_end(engine, failed);
            contain(|| engine.load_clock())
        });
        let mut shard = engine.map(|engine| engine.map.lock(load.hash));
        let wakers = load.end(outcome, now.unwrap_or(0));
        if let Some(shard) = &mut shard {
            shard.change_loads(|loads| loads.ended(load));
        }
        drop(shard);
        _ = engine.map(|engine| engine.watch_load(load));
        wake_all(wakers);
    }

    /// The run has ended: it is counted, if runs are.
    #[inline]
    fn note_end(&self, engine: &Engine<K, V>, failed: bool) {
        self.has_ended.set(true);
        if let Some(counters) = engine.counters.as_ref().filter(|_| self.guard.runs) {
            // If the ticker panics, waiters must be woken all the same.
            contain(|| {
                let began = self.guard.load.began();
                let took = time::elapsed(engine.clock.now(), began);
                counters.add(Count::LoadNanos, took);
            });
            counters.add(Count::FailedLoads, u64::from(failed));
        }
    }
}

impl<K: CacheKey, V: CacheValue, H: Home<K, V>> Ending<K, V, H> {
    /// Stores a clone of the value if the load is still current, and gives it to the waiters. The
    /// value stays with the leader.
    #[inline(never)]
    pub(crate) fn fill(self, own: &mut Keyless<V>, given: LifetimeSource) -> FilledLate<V> {
        let (load, Some(engine)) = (self.load(), self.engine()) else {
            return self.discard(own);
        };
        self.forget_failure();
        let key = load.key().clone();
        let mut made = None;
        let mut new = engine.new_node(load.hash, key, own.value.clone());
        let condition = Condition::Current {
            load,
            was_absent: self.guard.absent,
            made: &mut made,
        };
        let outcome = engine.write(&mut new, given, condition);
        let (Some(outcome), Some(written)) = (outcome, made) else {
            let late = self.discard(own);
            // What was not stored: destructors of the user.
            contain(|| new.discard());
            return late;
        };
        own.replaced = written.cause == Some(RemovalCause::Replaced);
        own.stored = written.is_stored();
        let deadline = if own.stored { written.deadline } else { NEVER };
        own.left = time::time_left(written.now, deadline);
        let shared = if written.awaited {
            let shared = catch_unwind(AssertUnwindSafe(|| self.share(own, deadline)));
            if !self.has_ended.get() {
                // A clone has panicked: the next of them leads.
                self.end(&Outcome::Nothing, false);
            }
            shared
        } else {
            self.note_end(engine, false);
            Ok(())
        };
        engine.after_write(outcome);
        if let Err(panic) = shared {
            resume_unwind(panic);
        }
        None
    }

    /// Ends the run; the calls that share values get clones of this one.
    #[cold]
    #[inline(never)]
    fn share(&self, own: &Keyless<V>, deadline: u64) {
        let mut outcome = Outcome::Nothing;
        if self.guard.load.has_sharers() {
            let mut shared = own.clone();
            (shared.fresh, shared.replaced) = (false, false);
            outcome = Outcome::Value(Arc::new(shared), deadline);
        }
        self.end(&outcome, false);
    }

    /// Ends the run of a load that was revoked, or whose cache is gone: all waiters get the live
    /// value, or the loaded one if there is none.
    #[cold]
    #[inline(never)]
    fn discard(&self, own: &Keyless<V>) -> FilledLate<V> {
        let load = &self.guard.load;
        let live = (self.engine.as_ref()).and_then(|engine| self.share_live(engine));
        if live.is_none() {
            self.share(own, NEVER);
        }
        let by = load.revoked().unwrap_or(RevokedBy::Overwrite);
        Some((by, live))
    }

    /// Ends the run of a load that was revoked by the live value that the key has now, if it has
    /// one, and returns that.
    fn share_live(&self, engine: &Engine<K, V>) -> Option<Box<Keyless<V>>> {
        let load = &self.guard.load;
        engine.count(Count::DiscardedLoads);
        let pin = engine.pin();
        let hit = engine.find_live(load.hash, load.key(), &pin)?;
        let (mut live, deadline) = (Keyless::of_node(engine, hit.node), hit.node.deadline());
        drop(pin);
        live.stored = false;
        self.share(&live, deadline);
        Some(live)
    }

    /// Removes the key's entry if the load is still current, and ends the run; waiters get `none`,
    /// or the live value if the load was revoked. Says for which cause an entry left; an error if
    /// the load was revoked.
    pub(crate) fn remove(self, none: Outcome<V>) -> Result<Option<RemovalCause>, Revoked> {
        let (load, Some(engine)) = (self.load(), self.engine()) else {
            self.end(&none, false);
            return Err(Revoked);
        };
        let ask = |_, _| Ask::Apply(());
        let taken = engine.change(load.hash, load.key(), ask, |(), place, hold| {
            if !load.is_current() {
                return Tried::Done(Err(Revoked));
            }
            let Revalidated::Occupied(spot) = place else {
                return Tried::Done(Ok(None));
            };
            let (cause, now) = engine.take_out(&mut hold.shard, spot);
            hold.shard.change_loads(|loads| loads.seal(load));
            let outcome = WriteOutcome::of_removal(&hold.shard, now);
            Tried::Done(Ok(Some((cause, outcome))))
        });
        let Ok(taken) = taken else {
            if self.share_live(engine).is_none() {
                self.end(&none, false);
            }
            return Err(Revoked);
        };
        self.end(&none, false);
        Ok(taken.map(|(cause, outcome)| {
            engine.after_write(outcome);
            cause
        }))
    }
}

/// A load was no longer current: it had no effect.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Revoked;
