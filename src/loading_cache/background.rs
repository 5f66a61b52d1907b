//! A call for the value of a key, and loads that run apart from the calls that want them: on the
//! threads of the cache, or in tasks of the program's spawner. The calls wait for the outcome. The
//! load goes on when they leave.

use super::call::{Answer, answer, dropped, end, failed, of_loaded};
use super::kinds::AnyAsyncLoader;
use super::loader::{LoadError, Loaded};
use super::{Inner, LoadingCache, Spawner};
use crate::contain::contain;
use crate::load::state::{RevokedBy, Verdict, Want};
use crate::load::wait::{block_on, runs_loader};
use crate::load::{
    CacheHasher, CacheKey, CacheValue, Claim, Claimant, Guard, Keys, Over, OwnedGuard, Request,
    conclude_all, fallible, lead, wrong_number_of_values,
};
use crate::operations::WeakHandle;
use equivalent::Equivalent;
use std::any::TypeId;
use std::fmt;
use std::future::{Future, poll_fn};
use std::hash::Hash;
use std::iter;
use std::pin::{Pin, pin};
use std::sync::{Arc, OnceLock, Weak};
use std::task::{Context, Poll, ready};

/// The number of keys that a loader was given, and that of its values, if these differ.
type WrongNumber = Arc<OnceLock<(usize, usize)>>;

/// What a call takes from the load that it wants: whatever that comes to.
pub(super) fn anything<E: 'static>() -> Want {
    Want::Any(TypeId::of::<LoadError<E>>())
}

/// Makes the code of loads run as a task. After a panic it has ended, and their guards are dropped;
/// also if the spawner panics, or drops the task.
fn spawn(spawner: &Spawner, run: impl Future<Output = ()> + Send + 'static) {
    let task = Box::pin(async move {
        let mut run = pin!(run);
        poll_fn(|cx| contain(|| run.as_mut().poll(cx)).unwrap_or(Poll::Ready(()))).await;
    });
    contain(|| spawner(task));
}

impl<K: CacheKey, V: CacheValue, E: Send + Sync + 'static, S: CacheHasher> Inner<K, V, E, S> {
    /// Makes a load or a reload run in the background.
    fn launch(&self, guard: OwnedGuard<K, V, S>) {
        match self {
            Self::Threads(threads) => threads.push(guard),
            Self::Tasks(loader, spawner) => {
                let guard = guard.in_background(dropped::<K, V, E, S>);
                spawn(spawner, Self::run(Arc::clone(loader), guard));
            }
        }
    }

    async fn run(loader: Arc<dyn AnyAsyncLoader<K, V, E>>, guard: OwnedGuard<K, V, S>) {
        if guard.begin_run() {
            let (key, old) = (guard.load().key(), guard.old());
            let value = old.as_ref().map(|(old, _)| &old.value);
            let reply = lead(iter::once(&guard), loader.load(key, value).as_mut()).await;
            _ = end(guard, reply.map_err(failed), old);
        }
    }

    /// Makes loads of absent keys run in one task.
    fn launch_many(&self, guards: Vec<OwnedGuard<K, V, S>>, wrong: &WrongNumber) {
        if let Self::Tasks(loader, spawner) = self
            && !guards.is_empty()
        {
            let guards = guards.into_iter();
            let guards = guards.map(|guard| guard.in_background(dropped::<K, V, E, S>));
            let (loader, wrong) = (Arc::clone(loader), Arc::clone(wrong));
            spawn(spawner, Self::run_many(loader, guards.collect(), wrong));
        }
    }

    async fn run_many(
        loader: Arc<dyn AnyAsyncLoader<K, V, E>>,
        guards: Vec<OwnedGuard<K, V, S>>,
        wrong: WrongNumber,
    ) {
        if !guards.iter().all(Guard::begin_run) {
            return;
        }
        let keys = guards.iter().map(|guard| guard.load().key().clone());
        let keys: Vec<K> = keys.collect();
        let loaded = lead(guards.iter(), loader.load_many(&keys).as_mut()).await;
        let number = loaded.as_ref().map_or(keys.len(), Vec::len);
        if number != keys.len() {
            _ = wrong.set((keys.len(), number));
            return;
        }
        let mut values = loaded.map(Vec::into_iter).map_err(failed);
        let loads = guards.into_iter().map(|guard| {
            let value = values.as_mut().map(|values| values.next().flatten());
            (0, guard, value.map_err(|error| error.clone()))
        });
        conclude_all(loads, of_loaded, |_, _| ());
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

impl<K: CacheKey, V: CacheValue, E: Send + Sync + 'static, S: CacheHasher> Call<K, V, E, S> {
    pub(super) fn new(
        cache: &LoadingCache<K, V, E, S>,
        claimant: Claimant<K, V, WeakHandle<K, V, S>>,
    ) -> Self {
        Self {
            claimant,
            inner: Arc::downgrade(&cache.inner),
            many: None,
            began: false,
            was_late: false,
        }
    }

    /// It has begun this load, and waits for it as any other call would, from before it runs.
    fn wait_for_own(&mut self, guard: &OwnedGuard<K, V, S>) {
        self.claimant.wait_for_own(guard, anything::<E>());
        self.began = true;
    }

    /// Claims the key. The answer, or `None` if the call has to wait: for another call's load, or
    /// for one that it has begun and launched. `told` is the verdict about its last wait.
    pub(super) fn claim(&mut self, told: Option<Verdict<V>>) -> Option<Answer<V, E>> {
        self.began = false;
        let guard = match self.claimant.step(told)? {
            Claim::Guard(guard, _) => guard,
            claim => return Some(answer(claim)),
        };
        let Some(inner) = self.inner.upgrade() else {
            return Some(Err(LoadError::Panicked));
        };
        self.wait_for_own(&guard);
        match &self.many {
            Some(wrong) => inner.launch_many(vec![guard], wrong),
            None => inner.launch(guard),
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
        let inner = self.inner.upgrade();
        match (inner.as_deref(), self.claimant.awaited()) {
            (Some(Inner::Threads(threads)), Some(load)) => runs_loader() && threads.run(load),
            _ => false,
        }
    }
}

impl<K: CacheKey, V: CacheValue, E: Send + Sync + 'static, S: CacheHasher>
    LoadingCache<K, V, E, S>
{
    /// An error that is remembered for one of the absent keys: with it, the loader is not called.
    pub(super) fn heed_failures(&self, keys: &Keys<K, Loaded<V>>) -> Result<(), LoadError<E>> {
        let core = self.cache.core();
        if core.failure_backoff.is_none() {
            return Ok(());
        }
        let ask = Request {
            over: Over::Never,
            may_wait: false,
            heeds_failures: true,
            ..Request::of(fallible::<LoadError<E>>())
        };
        for &(hash, place) in &keys.missing {
            let mut claimant = Claimant::new(core, hash, keys.keys[place].clone(), ask);
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
        mut keys: Keys<K, Loaded<V>>,
    ) -> Result<Vec<Option<Loaded<V>>>, LoadError<E>> {
        let wrong = WrongNumber::default();
        let call = |claimant| Call {
            many: Some(Arc::clone(&wrong)),
            ..Call::new(self, claimant)
        };
        let (mut led, waits) = keys.claim(&self.cache.downgrade());
        led.sort_unstable_by_key(|(place, _)| *place);
        let (mut guards, mut calls) = (Vec::new(), Vec::new());
        for (place, guard) in led {
            let ask = Request::of(Want::LookUpAgain);
            let mut call = call(Claimant::of_guard(&guard, ask));
            call.wait_for_own(&guard);
            guards.push(guard);
            calls.push((place, call));
        }
        self.inner.launch_many(guards, &wrong);
        for (place, claimant) in waits {
            calls.push((place, call(claimant)));
        }
        for (place, mut call) in calls {
            call.claimant.wait_now();
            let answer = poll_fn(|cx| call.poll(cx)).await;
            if let Some(&(asked, got)) = wrong.get() {
                panic!("{}", wrong_number_of_values(asked, got));
            }
            keys.answers[place] = answer?.map(|seen| seen.value.into());
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
        let key = hit.node.key().clone();
        drop(pin);
        let ask = Request {
            over: Over::Stale,
            may_wait: false,
            ..Request::of(Want::Value)
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
/// the loader answers [`Gone`](crate::Reloaded::Gone). A refresh that lasts longer than
/// [`load_timeout`](crate::LoadingBuilder::load_timeout) is [`LoadError::TimedOut`], unless a newer
/// load has taken its place: then it waits once more, for that one.
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
    /// If the loader fails or panics, or takes longer than
    /// [`load_timeout`](crate::LoadingBuilder::load_timeout).
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
