//! A call for the value of a key, and loads that run apart from the calls that want them: on the
//! threads of the cache, or in tasks of the program's spawner. The calls wait for the outcome. The
//! load goes on when they leave.

use super::call::{Answer, answer, dropped, run, run_many, task};
use super::loader::LoadError;
use super::{Inner, LoadingCache};
use crate::contain::contain;
use crate::load::state::{Load, RevokedBy, Verdict, Want};
use crate::load::wait::block_on;
use crate::load::{
    CacheHasher, CacheKey, CacheValue, Claim, Claimant, Keys, Over, OwnedGuard, Request, fallible,
    wrong_number_of_values,
};
use crate::operations::WeakHandle;
use equivalent::Equivalent;
use std::any::TypeId;
use std::fmt;
use std::future::{Future, poll_fn};
use std::hash::Hash;
use std::pin::Pin;
use std::sync::{Arc, OnceLock, Weak};
use std::task::{Context, Poll, ready};

/// What a call takes from the load that it wants: whatever that comes to.
pub(super) fn anything<E: 'static>() -> Want {
    Want::Any(TypeId::of::<LoadError<E>>())
}

/// Makes a load run that a call has begun.
type Launch<'l, K, V, E, S> = &'l mut dyn FnMut(&Inner<K, V, E, S>, OwnedGuard<K, V, S>);

/// The number of keys that a loader was given, and that of its values, if these differ.
type WrongNumber = Arc<OnceLock<(usize, usize)>>;

impl<K: CacheKey, V: CacheValue, E: Send + Sync + 'static, S: CacheHasher> Inner<K, V, E, S> {
    /// Makes a load or a reload run in the background.
    pub(super) fn launch(&self, guard: OwnedGuard<K, V, S>) {
        let guard = guard.in_background(dropped::<K, V, E, S>);
        match &self.spawner {
            None => self.threads.push(guard),
            Some(spawner) => {
                let loads = vec![Arc::clone(guard.load())];
                let task = task(loads, run(Arc::clone(&self.loader), guard));
                // A spawner that panics drops the task, and the guard: the caller goes on.
                contain(|| spawner(task));
            }
        }
    }

    /// Makes loads of absent keys run in one task.
    fn launch_many(&self, guards: Vec<OwnedGuard<K, V, S>>, wrong: &WrongNumber) {
        let Some(spawner) = &self.spawner else {
            return;
        };
        let loads = guards.iter().map(|guard| Arc::clone(guard.load()));
        let (loads, loader) = (loads.collect(), Arc::clone(&self.loader));
        let guards = guards.into_iter();
        let guards = guards.map(|guard| guard.in_background(dropped::<K, V, E, S>));
        let run = run_many(loader, guards.collect(), Arc::clone(wrong), drop);
        contain(|| spawner(task(loads, run)));
    }
}

/// A call for the value of a key whose load runs in the background. It keeps no cache alive.
pub(super) struct Call<K, V, E, S> {
    /// What it asks for is what it takes from another call's load. From its own it takes whatever
    /// comes.
    claimant: Claimant<K, V, WeakHandle<K, V, S>>,
    inner: Weak<Inner<K, V, E, S>>,
    /// Whether it has begun the load that it waits for.
    began: bool,
    /// Whether it has gone on from a late load to a newer one.
    switched: bool,
}

impl<K: CacheKey, V: CacheValue, E: Send + Sync + 'static, S: CacheHasher> Call<K, V, E, S> {
    pub(super) fn new(cache: &LoadingCache<K, V, E, S>, key: K, ask: Request) -> Self {
        let (hash, home) = (cache.cache.core().hash(&key), cache.cache.downgrade());
        Self {
            claimant: Claimant::new(home, hash, key, ask),
            inner: Arc::downgrade(&cache.inner),
            began: false,
            switched: false,
        }
    }

    /// Claims the key. The answer, or `None` if the call has to wait: for another call's load, or
    /// for one that it has begun and launched. `told` is the verdict about its last wait.
    pub(super) fn claim(
        &mut self,
        told: Option<Verdict<V>>,
        launch: Launch<'_, K, V, E, S>,
    ) -> Option<Answer<V, E>> {
        self.began = false;
        let guard = match self.claimant.step(told)? {
            Claim::Guard(guard, _) => guard,
            claim => return Some(answer(claim)),
        };
        let Some(inner) = self.inner.upgrade() else {
            return Some(Err(LoadError::Panicked));
        };
        // It waits for its own load, as any other call would, from before it runs.
        self.claimant.wait_for_own(&guard, anything::<E>());
        self.began = true;
        launch(&inner, guard);
        None
    }

    /// The call's answer, when the load that it waits for has ended, or the one that the key has
    /// then. From an overdue load of another call it goes on once, with the newer load.
    pub(super) fn poll(
        &mut self,
        cx: &Context<'_>,
        launch: Launch<'_, K, V, E, S>,
    ) -> Poll<Answer<V, E>> {
        loop {
            let load = self.claimant.awaited().cloned();
            let load = load.as_ref();
            self.run_queued(load);
            let is_current = load.is_some_and(|load| load.is_current());
            let polled = self.claimant.poll_verdict(cx);
            // Again, since the call has left its waker: a load that comes into the queue after this
            // wakes the call.
            if polled.is_pending() && self.run_queued(load) {
                continue;
            }
            let told = ready!(polled);
            if let Some(load) = load
                && matches!(told, Some(Verdict::Retry) | None)
            {
                let overdue = told.is_none() && is_current;
                let late = overdue || load.revoked() == Some(RevokedBy::NewerLoad);
                // So has a refresh timed out that did not begin the load.
                let ask = &mut self.claimant.ask;
                let timed_out = overdue && (self.began || ask.over == Over::Any);
                if late && (self.switched || timed_out) {
                    return Poll::Ready(Err(LoadError::TimedOut));
                }
                self.switched |= late;
                // A refresh takes what a write has stored meanwhile.
                if !late {
                    ask.over = Over::Absent;
                }
            }
            if let Some(answer) = self.claim(told, launch) {
                return Poll::Ready(answer);
            }
        }
    }

    /// Runs the load that the call waits for, if that has to be; see `ReloadThreads::run_queued`.
    fn run_queued(&self, load: Option<&Arc<Load<K, V>>>) -> bool {
        let inner = self.inner.upgrade();
        load.is_some_and(|load| inner.is_some_and(|inner| inner.threads.run_queued(load)))
    }
}

impl<K: CacheKey, V: CacheValue, E: Send + Sync + 'static, S: CacheHasher>
    LoadingCache<K, V, E, S>
{
    /// An error that is remembered for one of the absent keys: with it, the loader is not called.
    pub(super) fn heed_failures(&self, keys: &Keys<K, V>) -> Result<(), LoadError<E>> {
        let core = self.cache.core();
        if core.failure_backoff.is_none() {
            return Ok(());
        }
        let ask = Request {
            over: Over::Never,
            may_wait: false,
            heeds_failures: true,
            ..Request::value(fallible::<LoadError<E>>())
        };
        for &place in &keys.missing {
            let key = keys.unique[place].clone();
            let mut claimant = Claimant::new(core, core.hash(&key), key, ask);
            if let Some(claim @ Claim::Failed(_)) = claimant.step(None) {
                _ = answer(claim)?;
            }
        }
        Ok(())
    }

    /// Loads the keys that are absent, for an [`AsyncLoader`](super::AsyncLoader): one task loads
    /// all that no other call loads. The call waits for the other loads when its own have ended.
    pub(super) async fn load_all_in_task(
        &self,
        mut keys: Keys<K, V>,
    ) -> Result<Vec<Option<V>>, LoadError<E>> {
        let wrong = WrongNumber::default();
        let (mut guards, mut calls) = (Vec::new(), Vec::new());
        for &place in &keys.missing {
            let key = keys.unique[place].clone();
            let mut call = Call::new(self, key, Request::value(Want::LookUpAgain));
            match call.claim(None, &mut |_, guard| guards.push(guard)) {
                Some(answer) => keys.answers[place] = answer?.map(|seen| seen.value),
                None => calls.push((place, call)),
            }
        }
        if !guards.is_empty() {
            self.inner.launch_many(guards, &wrong);
        }
        calls.sort_by_key(|(_, call)| !call.began);
        for (place, mut call) in calls {
            let mut launch = |inner: &Inner<K, V, E, S>, guard| {
                inner.launch_many(vec![guard], &wrong);
            };
            let answer = poll_fn(|cx| call.poll(cx, &mut launch)).await;
            if let Some(&(asked, got)) = wrong.get() {
                panic!("{}", wrong_number_of_values(asked, got));
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
        let Some(hit) = core.shared.find_live(hash, key, &pin) else {
            return;
        };
        // The caller may have judged by a clock that is ahead.
        let now = core.shared.clock.now();
        if !(hit.node.refresh()).is_some_and(|refresh| refresh.is_stale(now)) {
            return;
        }
        let key = hit.node.key().clone();
        drop(pin);
        let ask = Request {
            over: Over::Stale,
            may_wait: false,
            ..Request::value(Want::Value)
        };
        let claim = Claimant::new(self.cache.downgrade(), hash, key, ask).step(None);
        if let Some(Claim::Guard(guard, _)) = claim {
            self.inner.launch(guard);
        }
    }
}

/// A refresh that [`LoadingCache::refresh`](super::LoadingCache::refresh) has requested: a future
/// of its outcome. The refresh continues if the future is dropped.
///
/// The outcome is the new value, or the one that an explicit write has stored meanwhile; `None` if
/// the loader answers [`Gone`](crate::Reloaded::Gone). A refresh that lasts longer than the
/// time-out is [`LoadError::TimedOut`], unless a newer load has taken its place: then it waits for
/// that one.
///
/// ```
/// use wheelhouse::{Cache, loader_fn};
///
/// let cache = Cache::builder().loading(loader_fn(|key: &u32| Ok::<u32, ()>(key * 2))).build();
/// assert_eq!(cache.refresh(4).wait().unwrap(), Some(8));
/// ```
#[must_use = "it says what came of the refresh, which goes on without it"]
pub struct Refreshing<V, E> {
    /// Until it is ready.
    pub(super) outcome: Option<OutcomeFuture<V, E>>,
}

type OutcomeFuture<V, E> = Pin<Box<dyn Future<Output = Answer<V, E>> + Send + Sync>>;

impl<V, E> Refreshing<V, E> {
    /// Waits for the outcome, as a thread. In a task of a runtime with one thread this call can
    /// wait for ever for a load of that runtime: await the future there, or use `spawn_blocking`.
    ///
    /// # Errors
    ///
    /// If the loader fails or panics, or takes longer than the time-out.
    ///
    /// # Panics
    ///
    /// If the call would wait for a load that its own thread leads, itself or through loads of
    /// other threads.
    ///
    /// # Cost
    ///
    /// Parks the thread. With a [`load_timeout`](crate::LoadingBuilder::load_timeout) it wakes up
    /// at least every 50 ms.
    ///
    /// ```
    /// use wheelhouse::{Cache, LoadError, loader_fn};
    ///
    /// let cache = Cache::builder().loading(loader_fn(|_: &u32| Err::<u32, _>("closed"))).build();
    /// let error = cache.refresh(4).wait().unwrap_err();
    /// assert!(matches!(error, LoadError::Failed(_)));
    /// ```
    #[track_caller]
    pub fn wait(self) -> Result<Option<V>, LoadError<E>> {
        block_on(self)
    }
}

impl<V, E> Future for Refreshing<V, E> {
    type Output = Result<Option<V>, LoadError<E>>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        // Taken out while user code runs: after a panic the future stays ended.
        let Some(mut outcome) = self.outcome.take() else {
            panic!("the future of a refresh was polled after it was ready, or after it panicked");
        };
        let polled = outcome.as_mut().poll(cx);
        if polled.is_pending() {
            self.outcome = Some(outcome);
        }
        polled.map_ok(|seen| seen.map(|seen| seen.value))
    }
}

impl<V, E> fmt::Debug for Refreshing<V, E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Refreshing").finish_non_exhaustive()
    }
}
