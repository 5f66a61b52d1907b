//! One load of a loader: how it runs and ends, and how the calls that want its value wait.
//!
//! A load runs on the thread of the call that wants it, or in the background: on a thread of the
//! cache, or in a task of the program's spawner. Calls wait for the outcome of a load in the
//! background, which goes on when they leave.

use super::kinds::{AnyLoader, caught, contained};
use super::loader::{LoadError, Reply};
use super::{Inner, LoadingCache, Spawner};
use crate::contain::contain;
use crate::load::state::{Load, Outcome, RevokedBy, Verdict, Want};
use crate::load::wait::runs_loader;
use crate::load::{
    CacheHasher, CacheKey, CacheValue, Claim, Claimant, Ending, Guard, Home, Keyless, Keys, Over,
    OwnedGuard, Request, error_of, fallible, lead, load_together,
};
use crate::operations::{Core, LifetimeSource, WeakHandle};
use crate::sync::block::run_blocking;
use equivalent::Equivalent;
use std::any::TypeId;
use std::future::{Future, poll_fn};
use std::hash::Hash;
use std::iter;
use std::mem;
use std::pin::pin;
use std::sync::{Arc, OnceLock, Weak};
use std::task::{Context, Poll, ready};

/// The answer to a call: `None` if the loader says that there is no value. The value is in a box,
/// as it may be large, and passes through several futures.
pub(super) type Answer<V, E> = Result<Option<Box<Keyless<V>>>, LoadError<E>>;

/// The answer to a call that does not lead.
pub(super) fn answer<K, V, E: Send + Sync + 'static, H: Home<K, V>>(
    claim: Claim<K, V, H>,
) -> Answer<V, E> {
    match claim {
        Claim::Value(seen) => Ok(Some(seen)),
        Claim::Failed(Outcome::Error(error)) => Err((*error_of::<LoadError<E>>(error)).clone()),
        Claim::Failed(_) => Ok(None),
        // It waits, so the cache is gone.
        Claim::Busy => Err(LoadError::Panicked),
        Claim::Guard(..) => unreachable!("a call that leads makes its own answer"),
    }
}

impl<K: CacheKey, V: CacheValue, H: Home<K, V, Hasher: CacheHasher>> Guard<K, V, H> {
    /// Runs a load or a reload, and ends it by what the loader answers: on the thread of a call, on
    /// a reload thread, or in a task.
    pub(super) async fn run_loader<E: Send + Sync + 'static>(
        self,
        loader: &dyn AnyLoader<K, V, E>,
    ) -> Answer<V, E> {
        if !self.begin_run() {
            return Err(LoadError::Panicked);
        }
        let (key, old) = (self.load().key(), self.old());
        let value = old.as_ref().map(|old| &old.value);
        let reply = lead(iter::once(&self), pin!(caught(loader.load(key, value)))).await;
        self.enter().by(reply, old)
    }
}

impl<K: CacheKey, V: CacheValue, H: Home<K, V, Hasher: CacheHasher>> Ending<K, V, H> {
    /// Ends a load or a reload by what the loader has made. If other user code panics, the guard is
    /// dropped.
    pub(super) fn by<E: Send + Sync + 'static>(
        self,
        reply: Result<Reply<V>, LoadError<E>>,
        old: Option<Box<Keyless<V>>>,
    ) -> Answer<V, E> {
        match reply {
            Ok(Some(loaded)) => {
                let mut from = self.loaded(loaded.lifetime, loaded.refresh);
                if let Some(value) = loaded.value {
                    let filling = self.fill(value, LifetimeSource::Loaded(from));
                    return Ok(Some(filling.into_entry()));
                }
                let mut old = old.expect("only a reload leaves a value unchanged");
                from.lifetime = from.lifetime.or(old.left.take().map(Some));
                self.unchanged(old, from);
            }
            Ok(None) if old.is_some() => _ = self.remove(Outcome::Absent),
            Ok(None) => self.fail(&Outcome::Absent),
            Err(error) => {
                // Before the failure is published: a caller that hears of it sees the next moment.
                _ = self.core().map(|core| core.back_off(self.load()));
                self.fail(&Outcome::Error(Arc::new(error.clone())));
                return Err(error);
            }
        }
        Ok(None)
    }
}

/// The failure that waiters get after a task was dropped, or after user code has panicked.
fn dropped<K: CacheKey, V: CacheValue, E: Send + Sync + 'static, S: CacheHasher>(
    load: &Load<K, V>,
    core: Option<&Core<K, V, S>>,
) -> Outcome<V> {
    contain(|| core.map(|core| core.back_off(load)));
    Outcome::Error(Arc::new(LoadError::<E>::Panicked))
}

/// Says that a loader has returned another number of values than it was given keys, if it has.
type WrongNumber = Arc<OnceLock<String>>;

/// What a call takes from the load that it wants: whatever that comes to.
pub(super) fn anything<E: 'static>() -> Want {
    Want::Any(TypeId::of::<LoadError<E>>())
}

/// Makes the code of loads run as a task. After a panic it has ended, and their guards are dropped;
/// also if the spawner panics, or drops the task.
fn spawn(spawner: &Spawner, run: impl Future<Output = ()> + Send + 'static) {
    let task = Box::pin(async move { _ = contained(run).await });
    contain(|| spawner(task));
}

impl<K: CacheKey, V: CacheValue, E: Send + Sync + 'static, S: CacheHasher> Inner<K, V, E, S> {
    /// Makes a load or a reload run in the background.
    fn launch(&self, guard: OwnedGuard<K, V, S>) {
        let guard = guard.in_background(dropped::<K, V, E, S>);
        let Some(spawner) = &self.spawner else {
            return self.threads.push(guard);
        };
        let loader = Arc::clone(&self.loader);
        spawn(spawner, async move { _ = guard.run_loader(&*loader).await });
    }

    /// Makes loads of absent keys run in one task.
    fn launch_many(
        &self,
        spawner: &Spawner,
        keys: Vec<K>,
        guards: Vec<(usize, OwnedGuard<K, V, S>)>,
        wrong: &WrongNumber,
    ) {
        let (loader, wrong) = (Arc::clone(&self.loader), Arc::clone(wrong));
        let guards = guards.into_iter();
        let guards = guards.map(|(place, guard)| {
            let guard = guard.in_background(dropped::<K, V, E, S>);
            (place, guard)
        });
        let guards: Vec<_> = guards.collect();
        spawn(spawner, async move {
            let load = |keys: Vec<K>| async move { caught(loader.load_many(&keys)).await };
            if guards.iter().all(|(_, guard)| guard.begin_run())
                && let Err((message, guards)) =
                    load_together(&keys, guards, load, |_, guard, reply| {
                        _ = guard.enter().by(reply, None);
                    })
                    .await
            {
                // Before the calls hear that the loads have ended.
                _ = wrong.set(message);
                drop(guards);
            }
        });
    }
}

/// A call for the value of a key whose load runs in the background. It keeps no cache alive.
pub(super) struct Call<K, V, E, S> {
    /// What it asks for is what it takes from another call's load. From its own it takes whatever
    /// comes.
    claimant: Claimant<K, V, WeakHandle<K, V, S>>,
    inner: Weak<Inner<K, V, E, S>>,
    /// For a call that loads its keys by the loader's `load_many`.
    many: Option<WrongNumber>,
    /// Whether it has begun the load that it waits for.
    began: bool,
    /// Whether it has waited for a load that was late.
    was_late: bool,
}

/// The answer of a call, or the guard of a load that it has begun.
type Step<K, V, E, S> = Result<Answer<V, E>, OwnedGuard<K, V, S>>;

impl<K: CacheKey, V: CacheValue, E: Send + Sync + 'static, S: CacheHasher> Call<K, V, E, S> {
    pub(super) fn new(cache: &LoadingCache<K, V, E, S>, hash: u64, key: K, ask: Request) -> Self {
        Self {
            claimant: Claimant::new(cache.cache.downgrade(), hash, key, ask),
            inner: Arc::downgrade(&cache.inner),
            many: None,
            began: false,
            was_late: false,
        }
    }

    /// Claims the key. The answer, or the guard of a load that the call has begun, which is an
    /// error; `None` if the call has to wait for another call's load. For its own it waits as any
    /// other call would, from before that runs. `told` is the verdict about its last wait.
    fn step(&mut self, told: Option<Verdict<V>>) -> Option<Step<K, V, E, S>> {
        self.began = false;
        Some(match self.claimant.step(told)? {
            Claim::Guard(guard, _) => {
                self.claimant.wait_for_own(&guard, anything::<E>());
                self.began = true;
                Err(guard)
            }
            claim => Ok(answer(claim)),
        })
    }

    /// Claims the key. The answer, or `None` if the call has to wait: for another call's load, or
    /// for one that it has begun and launched.
    pub(super) fn claim(&mut self, told: Option<Verdict<V>>) -> Option<Answer<V, E>> {
        let guard = match self.step(told)? {
            Ok(answer) => return Some(answer),
            Err(guard) => guard,
        };
        let Some(inner) = self.inner.upgrade() else {
            return Some(Err(LoadError::Panicked));
        };
        match (&self.many, &inner.spawner) {
            (Some(wrong), Some(spawner)) => {
                let key = guard.load().key().clone();
                inner.launch_many(spawner, vec![key], vec![(0, guard)], wrong);
            }
            _ => inner.launch(guard),
        }
        None
    }

    /// The call's answer, when the load that it waits for has ended, or the one that the key has
    /// then. From an overdue load of another call it goes on once, with the newer load.
    pub(super) fn poll(&mut self, cx: &Context<'_>) -> Poll<Answer<V, E>> {
        loop {
            let polled = self.claimant.poll_verdict(cx);
            // When the call has left its waker: a load that comes into the queue later wakes it.
            if polled.is_pending() && self.run_queued() {
                continue;
            }
            let told = ready!(polled);
            if let Some(load) = self.claimant.awaited()
                && matches!(told, Some(Verdict::Retry) | None)
            {
                let revoked = load.revoked();
                // A newer load takes the place of an overdue one, or has taken it.
                let is_late = revoked.map_or(told.is_none(), |by| by == RevokedBy::NewerLoad);
                // So has a refresh timed out that did not begin the load; and a call that has
                // waited for another late load before.
                let ask = &mut self.claimant.ask;
                let mine = revoked.is_none() && (self.began || ask.over == Over::Any);
                if is_late && (mine || self.was_late) {
                    return Poll::Ready(Err(LoadError::TimedOut));
                }
                self.was_late |= is_late;
                // A refresh takes what a write has stored meanwhile.
                if revoked.is_some() && !is_late {
                    ask.over = Over::Absent;
                }
            }
            if let Some(answer) = self.claim(told) {
                return Poll::Ready(answer);
            }
        }
    }

    /// On a thread that leads a load: runs the load for which the call would wait, if that waits
    /// for a thread, since the threads that reload may all have to wait for this one. True if it
    /// did.
    fn run_queued(&self) -> bool {
        if runs_loader()
            && let Some(inner) = self.inner.upgrade()
            && let Some(guard) = self.claimant.take_queued(dropped::<K, V, E, S>)
        {
            _ = run_blocking(contained(guard.run_loader(&*inner.loader)));
            return true;
        }
        false
    }
}

impl<K: CacheKey, V: CacheValue, E: Send + Sync + 'static, S: CacheHasher>
    LoadingCache<K, V, E, S>
{
    /// An error that is remembered for one of the absent keys: with it, the loader is not called.
    pub(super) fn heed_failures(&self, keys: &Keys<K, V>) -> Result<(), LoadError<E>> {
        if self.cache.core().failure_backoff.is_some() {
            for &(hash, place) in &keys.missing {
                self.reload_if_stale(hash, keys.keys[place].clone())?;
            }
        }
        Ok(())
    }

    /// Loads the keys that are absent, for an [`AsyncLoader`](super::AsyncLoader): one task loads
    /// all that no other call loads. The call waits for the other loads when its own have ended.
    pub(super) async fn load_all_in_task(
        &self,
        spawner: &Spawner,
        mut keys: Keys<K, V>,
    ) -> Result<Vec<Option<V>>, LoadError<E>> {
        let wrong = WrongNumber::default();
        let (mut guards, mut own, mut others) = (Vec::new(), Vec::new(), Vec::new());
        for (hash, place) in mem::take(&mut keys.missing) {
            let ask = Request::of(Want::LookUpAgain);
            let mut call = Call {
                many: Some(Arc::clone(&wrong)),
                ..Call::new(self, hash, keys.keys[place].clone(), ask)
            };
            match call.step(None) {
                Some(Ok(answer)) => keys.answers[place] = answer?.map(|seen| seen.value),
                Some(Err(guard)) => {
                    guards.push((place, guard));
                    own.push((place, call));
                }
                None => others.push((place, call)),
            }
        }
        if !guards.is_empty() {
            let keys = mem::take(&mut keys.keys);
            self.inner.launch_many(spawner, keys, guards, &wrong);
        }
        for (place, mut call) in own.into_iter().chain(others) {
            call.claimant.wait_now();
            let answer = poll_fn(|cx| call.poll(cx)).await;
            if let Some(message) = wrong.get() {
                panic!("{message}");
            }
            keys.answers[place] = answer?.map(|seen| seen.value);
        }
        Ok(keys.in_order())
    }

    #[cold]
    #[inline(never)]
    pub(super) fn reload<Q>(&self, key: &Q)
    where
        Q: Equivalent<K> + Hash + ?Sized,
    {
        let core = self.cache.core();
        let (hash, pin) = (core.hash(key), core.shared.pin());
        if let Some(hit) = core.shared.find_live(hash, key, &pin) {
            let key = hit.node.key().clone();
            drop(pin);
            _ = self.reload_if_stale(hash, key);
        }
    }

    /// Begins a reload if the key has a stale entry. The error that is remembered for the key, if
    /// it has none.
    fn reload_if_stale(&self, hash: u64, key: K) -> Result<(), LoadError<E>> {
        let ask = Request {
            over: Over::Stale,
            may_wait: false,
            heeds_failures: true,
            ..Request::of(fallible::<LoadError<E>>())
        };
        match Claimant::new(self.cache.downgrade(), hash, key, ask).step(None) {
            Some(Claim::Guard(guard, _)) => {
                self.inner.launch(guard);
            }
            Some(claim @ Claim::Failed(_)) => _ = answer(claim)?,
            _ => {}
        }
        Ok(())
    }
}
