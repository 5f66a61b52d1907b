//! The right to load a key: a guard, which ends the load by what becomes of it.
//!
//! It does that by [`fill`](Guard::fill), [`fail`](Guard::fail), [`keep`](Guard::keep) or
//! [`remove`](Guard::remove). A guard that is dropped hands the key on to the call that has waited
//! longest; the guard of a loader tells its waiters a failure. The guard of a call has a borrow of
//! the cache. The guard of a [`Lease`](crate::Lease), of a reload, or of a load in a task has a
//! weak handle ([`ToCache`]). That keeps no cache alive, and may be sent to another thread.
//!
//! While a load ends, user code may drop the last handle of the cache. So an end first visits the
//! cache, and leaves it when the load has ended, also by a panic: the visit is declared before the
//! guard, and dropped after it.

use super::Loadable;
use crate::compute::Keyless;
use crate::contain::{contain, let_go};
use crate::engine::{Engine, LifetimeSource, Visit, WeakHandle, WriteOutcome};
use crate::flight::{AfterRun, Load, Outcome, RevokedBy};
use crate::listener::RemovalCause;
use crate::map::Confirmed;
use crate::node::NodePtr;
use crate::operations::{Condition, Decision, Tried, Written};
use crate::stats::Count;
use crate::stripe::thread_number;
use crate::time::{self, NEVER};
use std::ops::Deref;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;
use std::thread;

/// The way from a call, or from its guard, to the cache.
pub(crate) trait ToCache<K, V>: Clone {
    type At: Deref<Target = Engine<K, V>>;

    /// The cache; `None` if it is gone.
    fn reach(&self) -> Option<Self::At>;
}

impl<'a, K, V> ToCache<K, V> for &'a Engine<K, V> {
    type At = &'a Engine<K, V>;

    #[inline]
    fn reach(&self) -> Option<&'a Engine<K, V>> {
        Some(*self)
    }
}

impl<K, V> ToCache<K, V> for WeakHandle<K, V> {
    type At = Visit<K, V>;

    fn reach(&self) -> Option<Visit<K, V>> {
        self.visit()
    }
}

impl<K, V> Deref for Visit<K, V> {
    type Target = Engine<K, V>;

    fn deref(&self) -> &Engine<K, V> {
        self.cache().as_ref()
    }
}

/// The right to load a key; see the module docs.
#[must_use]
pub(crate) struct Guard<K, V, C: ToCache<K, V>> {
    cache: C,
    load: Arc<Load<K, V>>,
    /// Whether its drop ends the load.
    is_armed: bool,
    /// Whether the key was absent when the run began.
    was_absent: bool,
    /// What waiters get if this is dropped; without it, the next of them leads.
    on_drop: Option<OnDrop<K, V>>,
}

/// Says what waiters get of a guard that was dropped, with its cache if that is not gone.
pub(crate) type OnDrop<K, V> = fn(&Load<K, V>, Option<&Engine<K, V>>) -> Outcome<V>;

/// The guard of a call.
pub(crate) type CallGuard<'a, K, V> = Guard<K, V, &'a Engine<K, V>>;
/// A guard as a value, which keeps no cache alive.
pub(crate) type OwnedGuard<K, V> = Guard<K, V, WeakHandle<K, V>>;

/// What became of the write by which a load ends.
#[must_use]
pub(crate) enum Commit<V> {
    /// It was made. An entry of the key has left for this cause, if there was one.
    Made(Option<RemovalCause>),
    /// It was not made: a write has revoked the load, or a newer load; or the cache is gone.
    TooLate {
        by: RevokedBy,
        /// The live entry of the key, if there is one.
        live: Option<Box<Keyless<V>>>,
    },
}

impl<V> Commit<V> {
    /// What a call returns that wants the key's value: the live entry, or the `own` one, whether or
    /// not that was stored.
    #[inline]
    pub(crate) fn returned(self, own: Box<Keyless<V>>) -> Box<Keyless<V>> {
        match self {
            Self::TooLate {
                live: Some(live), ..
            } => {
                let_go(own);
                live
            }
            Self::Made(_) | Self::TooLate { live: None, .. } => own,
        }
    }
}

impl<K, V> Engine<K, V> {
    /// A live node's value, cloned, with the time that it has left. The node was judged by this
    /// deadline: by now it may be frozen. The pin is held; `Clone` is user code.
    // Out of line: its room on the stack is free again when a load runs.
    #[inline(never)]
    pub(super) fn copy_of(&self, node: NodePtr<K, V>, deadline: u64) -> Box<Keyless<V>>
    where
        V: Clone,
    {
        Box::new(Keyless {
            left: self.clock.time_until(deadline),
            ..Keyless::hit(node.value().clone())
        })
    }
}

impl<K, V, C: ToCache<K, V>> Guard<K, V, C> {
    /// The guard of a call whose run begins; `was_absent` says whether the key is absent now.
    #[inline]
    pub(super) fn running(cache: C, load: Arc<Load<K, V>>, was_absent: bool) -> Self {
        Self {
            cache,
            load,
            is_armed: true,
            was_absent,
            on_drop: None,
        }
    }

    pub(crate) fn load(&self) -> &Arc<Load<K, V>> {
        &self.load
    }

    /// The cache; `None` if it is gone.
    #[inline]
    pub(crate) fn engine(&self) -> Option<C::At> {
        self.cache.reach()
    }

    /// Visits the cache, to begin or to end a run; `None` if it is gone. User code runs from now
    /// on: what it calls must not wait for this load.
    #[inline]
    pub(super) fn enter(&self) -> Option<C::At> {
        self.load.set_leader_thread(thread_number());
        self.cache.reach()
    }

    /// The right of this guard, as a value: it keeps no cache alive, and no thread runs the load
    /// for now. `on_drop` says what waiters share if it is dropped.
    #[cold]
    pub(crate) fn in_background(
        mut self,
        cache: WeakHandle<K, V>,
        on_drop: Option<OnDrop<K, V>>,
    ) -> OwnedGuard<K, V> {
        self.load.set_leader_thread(0);
        self.is_armed = false;
        Guard {
            cache,
            load: Arc::clone(&self.load),
            is_armed: true,
            was_absent: self.was_absent,
            on_drop,
        }
    }

    /// Starts a run in the background, and its time: that which it has waited for a thread or a
    /// task does not count. False if the cache is gone.
    pub(crate) fn begin_run(&self) -> bool {
        let Some(engine) = self.enter() else {
            return false;
        };
        self.load.set_began(engine.clock.now());
        engine.watch_load(&self.load);
        true
    }

    /// The guard, unless this refuses the key: then the load has failed with the error.
    pub(crate) fn unless<E>(self, refuse: impl FnOnce(&K) -> Option<E>) -> Result<Self, E>
    where
        E: Clone + Send + Sync + 'static,
    {
        match refuse(self.load.key()) {
            None => Ok(self),
            Some(error) => {
                self.fail(&Outcome::Error(Arc::new(error.clone())));
                Err(error)
            }
        }
    }

    /// Ends the load with a failure, which waiters share if they accept it.
    pub(crate) fn fail(self, failure: &Outcome<V>) {
        let engine = self.enter();
        let mut guard = self;
        guard.end_without_value(engine.as_deref(), failure, true);
    }

    /// Ends the load without a value, which is no failure: a compute leaves things as they are.
    pub(crate) fn keep(self) {
        let engine = self.enter();
        let mut guard = self;
        guard.end_run(engine.as_deref(), &Outcome::Nothing, false);
    }

    #[cold]
    #[inline(never)]
    fn end_without_value(
        &mut self,
        engine: Option<&Engine<K, V>>,
        failure: &Outcome<V>,
        failed: bool,
    ) {
        if let (Outcome::Absent, Some(engine)) = (failure, engine) {
            engine.forget_failure(self.load.key());
        }
        self.end_run(engine, failure, failed);
    }

    /// Ends the run: counts it, publishes its outcome, and wakes the waiters.
    pub(super) fn end_run(
        &mut self,
        engine: Option<&Engine<K, V>>,
        outcome: &Outcome<V>,
        failed: bool,
    ) {
        self.is_armed = false;
        if let Some(engine) = engine {
            self.note_end(engine, failed);
        }
        publish(engine, &self.load, outcome).release();
    }

    /// Counts the run, which has ended.
    #[inline]
    fn note_end(&self, engine: &Engine<K, V>, failed: bool) {
        let Some(counters) = &engine.counters else {
            return;
        };
        // If the ticker panics, waiters must be woken all the same.
        contain(|| {
            let took = time::elapsed(engine.clock.now(), self.load.began());
            counters.add(Count::LoadNanos, took);
        });
        counters.add(Count::FailedLoads, u64::from(failed));
    }
}

impl<K, V, C: ToCache<K, V>> Drop for Guard<K, V, C> {
    #[inline]
    fn drop(&mut self) {
        if self.is_armed {
            self.end_dropped();
        }
    }
}

impl<K, V, C: ToCache<K, V>> Guard<K, V, C> {
    #[cold]
    #[inline(never)]
    fn end_dropped(&mut self) {
        let engine = self.enter();
        let engine = engine.as_deref();
        let outcome = match self.on_drop {
            Some(on_drop) => on_drop(&self.load, engine),
            None => Outcome::Nothing,
        };
        self.end_without_value(engine, &outcome, true);
    }
}

/// A call that was offered the lead of this load does not take it: the next waiter is offered it.
#[cold]
pub(super) fn hand_on<K, V, C: ToCache<K, V>>(cache: &C, load: &Arc<Load<K, V>>) {
    // Wakers are called: what they call must not wait for this load.
    load.set_leader_thread(thread_number());
    let engine = cache.reach();
    publish(engine.as_deref(), load, &Outcome::Nothing).release();
}

/// Publishes the outcome of a run that has ended, and finds the next leader. `engine` is `None` if
/// the cache is gone.
fn publish<K, V>(
    engine: Option<&Engine<K, V>>,
    load: &Arc<Load<K, V>>,
    outcome: &Outcome<V>,
) -> AfterRun<K, V> {
    let Some(engine) = engine else {
        return load.publish_end(outcome, 0);
    };
    // If the ticker panics, waiters must be woken all the same.
    let now = contain(|| engine.load_clock()).unwrap_or(0);
    let mut shard = engine.map.lock(load.hash);
    let ended = load.publish_end(outcome, now);
    shard.change_loads(|loads| loads.drop_if_outdated(load));
    drop(shard);
    engine.watch_load(load);
    ended
}

impl<K, V> Engine<K, V> {
    /// The code of a load has answered, with a value or that there is none: a failure of the key is
    /// remembered no more.
    #[inline]
    pub(super) fn forget_failure(&self, key: &K) {
        if let Some(forget) = &self.forget_failure {
            contain(|| forget(key));
        }
    }
}

impl<K: Loadable + Eq, V: Loadable, C: ToCache<K, V>> Guard<K, V, C> {
    /// Stores a clone of the value if the load is still current, and gives it to the waiters. The
    /// value stays with the leader.
    #[inline(never)]
    pub(crate) fn fill(self, own: &mut Keyless<V>, given: LifetimeSource) -> Commit<V> {
        let engine = self.enter();
        let mut guard = self;
        let Some(engine) = engine.as_deref() else {
            return guard.discard(None, own);
        };
        let load = &guard.load;
        let key = load.key().clone();
        let mut new = engine.new_node(load.hash, key, own.value.clone());
        let condition = Condition::Current {
            load,
            was_absent: guard.was_absent,
        };
        let written = engine.write(&mut new, given, condition);
        // The load's code has made a value, stored or not.
        engine.forget_failure(load.key());
        let Some(written) = written else {
            let late = guard.discard(Some(engine), own);
            // What was not stored: destructors of the user.
            contain(|| new.discard());
            return late;
        };
        let told = guard.end_stored(engine, own, &written);
        engine.after_write(written.outcome);
        if let Err(panic) = told {
            resume_unwind(panic);
        }
        Commit::Made(written.cause)
    }

    /// Ends the run of a load whose value was stored: says so in the leader's own copy, and tells
    /// the calls that wait, if there are any. An error is the panic of a clone for them.
    #[inline]
    fn end_stored(
        &mut self,
        engine: &Engine<K, V>,
        own: &mut Keyless<V>,
        written: &Written,
    ) -> thread::Result<()> {
        let outcome = written.outcome;
        own.replaced = written.cause == Some(RemovalCause::Replaced);
        own.stored = written.is_stored();
        let deadline = if own.stored { outcome.deadline } else { NEVER };
        own.left = time::time_left(outcome.now, deadline);
        if !written.awaited {
            self.is_armed = false;
            self.note_end(engine, false);
            return Ok(());
        }
        let told = catch_unwind(AssertUnwindSafe(|| {
            self.share(Some(engine), own, deadline);
        }));
        if self.is_armed {
            // A clone has panicked: the next of them leads.
            self.end_run(Some(engine), &Outcome::Nothing, false);
        }
        told
    }

    /// Ends the run; the calls that share values get clones of this one.
    #[cold]
    #[inline(never)]
    fn share(&mut self, engine: Option<&Engine<K, V>>, own: &Keyless<V>, deadline: u64) {
        let mut outcome = Outcome::Nothing;
        if self.load.has_sharers() {
            let mut shared = own.clone();
            shared.fresh = false;
            shared.replaced = false;
            outcome = Outcome::Value(Arc::new(shared), deadline);
        }
        self.end_run(engine, &outcome, false);
        let_go(outcome);
    }

    /// Ends the run of a load that was revoked, or whose cache is gone. The waiters that accept a
    /// value get the live one; if there is none, the loaded one.
    #[cold]
    #[inline(never)]
    fn discard(&mut self, engine: Option<&Engine<K, V>>, own: &Keyless<V>) -> Commit<V> {
        let mut live = None;
        if let Some(engine) = engine {
            live = self.share_live(engine);
        }
        if live.is_none() {
            self.share(engine, own, NEVER);
        }
        self.too_late(live)
    }

    /// The end of a load that was revoked, or whose cache is gone.
    fn too_late(&self, live: Option<Box<Keyless<V>>>) -> Commit<V> {
        // Of a cache that is gone, the load may be current: its end is as a write that clears all.
        let by = self.load.revoked().unwrap_or(RevokedBy::Overwrite);
        Commit::TooLate { by, live }
    }

    /// Ends the run of a load that was revoked by the live value that the key has now, if it has
    /// one, and returns that.
    fn share_live(&mut self, engine: &Engine<K, V>) -> Option<Box<Keyless<V>>> {
        engine.count(Count::DiscardedLoads);
        let pin = engine.pin();
        let hit = engine.find_live(self.load.hash, self.load.key(), &pin)?;
        let mut live = engine.copy_of(hit.node, hit.deadline);
        drop(pin);
        live.stored = false;
        self.share(Some(engine), &live, hit.deadline);
        Some(live)
    }

    /// Removes the key's entry if the load is still current, and ends the run; waiters get `none`,
    /// or the live value if the load was revoked.
    pub(crate) fn remove(self, none: Outcome<V>) -> Commit<V> {
        let engine = self.enter();
        let mut guard = self;
        let Some(engine) = engine.as_deref() else {
            guard.end_run(None, &none, false);
            return guard.too_late(None);
        };
        let load = &guard.load;
        let mut left = None;
        let is_current = engine.change(
            load.hash,
            load.key(),
            |_, _| Decision::Apply(()),
            |(), place, shard| {
                if !load.is_current() {
                    return Tried::Done(false);
                }
                if let Confirmed::Occupied(spot) = place {
                    let (cause, now) = engine.take_out(shard, spot);
                    shard.change_loads(|loads| loads.seal(load));
                    left = Some((cause, WriteOutcome::of_removal(shard, now)));
                }
                Tried::Done(true)
            },
        );
        engine.forget_failure(load.key());
        if !is_current {
            let live = guard.share_live(engine);
            if live.is_none() {
                guard.end_run(Some(engine), &none, false);
            }
            return guard.too_late(live);
        }
        guard.end_run(Some(engine), &none, false);
        let Some((cause, outcome)) = left else {
            return Commit::Made(None);
        };
        engine.after_write(outcome);
        Commit::Made(Some(cause))
    }
}
