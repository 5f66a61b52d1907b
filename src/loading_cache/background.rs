//! Loads that run apart from the calls that want them: on the threads of the cache, or in tasks of
//! the program's spawner. The calls wait for the outcome. The load goes on when they leave.

use super::call::{Answer, answer, panicked, run, run_many, run_now};
use super::kinds::{AnyLoader, BoxedFutures, Task};
use super::loader::LoadError;
use super::{Inner, LoadingCache};
use crate::contain::contain;
use crate::load::state::{Load, RevokedBy, Ticket, Verdict, Want};
use crate::load::wait::{block_on, has_to_wait, runs_loader};
use crate::load::{
    ByRef, CacheHasher, CacheKey, CacheValue, Claim, Guard, Keys, Over, OwnedGuard, Request,
    wrong_number_of_values,
};
use crate::operations::WeakHandle;
use equivalent::Equivalent;
use std::any::TypeId;
use std::borrow::ToOwned;
use std::fmt;
use std::future::{Future, poll_fn};
use std::hash::Hash;
use std::pin::Pin;
use std::sync::{Arc, OnceLock, Weak};
use std::task::{Context, Poll};

/// Makes a load run that a call has begun.
type Launch<'l, K, V, E, S> = &'l mut dyn FnMut(&Inner<K, V, E, S>, OwnedGuard<K, V, S>);

impl<K: CacheKey, V: CacheValue, E: Send + Sync + 'static, S: CacheHasher> Inner<K, V, E, S> {
    /// Makes a load run in the background.
    pub(super) fn launch(&self, guard: OwnedGuard<K, V, S>) {
        match &self.loader {
            AnyLoader::Blocking(loader) => self.threads.push(loader, guard),
            AnyLoader::Async(loader) => self.spawn(run(Arc::clone(loader), guard)),
        }
    }

    /// A spawner that panics drops the task, and the right to load with it: the caller goes on.
    fn spawn(&self, task: Task) {
        contain(|| (self.spawner)(task));
    }
}

/// A call for the value of a key, whose load runs in the background. It keeps no cache alive.
pub(super) struct Call<K: CacheKey, V: CacheValue, E, S: CacheHasher> {
    core: WeakHandle<K, V, S>,
    inner: Weak<Inner<K, V, E, S>>,
    /// What it takes from another call's load. From its own it takes whatever comes.
    ask: Request,
    /// Its place among the waiters, drawn when it first waits.
    ticket: Option<Ticket>,
    /// The load that it waits for.
    load: Option<Arc<Load<K, V>>>,
    /// Whether it has begun that load.
    began: bool,
    /// Whether it has gone on from a late load to a newer one.
    switched: bool,
}

impl<K: CacheKey, V: CacheValue, E: Send + Sync + 'static, S: CacheHasher> Call<K, V, E, S> {
    fn new(cache: &LoadingCache<K, V, E, S>, ask: Request) -> Self {
        Self {
            core: cache.cache.downgrade(),
            inner: Arc::downgrade(&cache.inner),
            ask,
            ticket: None,
            load: None,
            began: false,
            switched: false,
        }
    }

    /// A call that runs the loader also if the key has a live entry, unless a load is under way.
    pub(super) fn refresh(cache: &LoadingCache<K, V, E, S>, key: &K) -> Self {
        let ask = Request {
            over: Over::Any,
            ..Request::value(Want::Any(TypeId::of::<LoadError<E>>()))
        };
        let mut call = Self::new(cache, ask);
        let answer = call.claim(key, None, None, &mut Inner::launch);
        debug_assert!(answer.is_none(), "it runs over an entry");
        call
    }

    /// Claims the key. The answer, or `None` if the call has to wait: for another call's load, or
    /// for one that it has begun and launched. `hash` is the key's, unless this is the first time;
    /// `offered` is a load that the call was told to lead.
    fn claim<Q>(
        &mut self,
        key: &Q,
        hash: Option<u64>,
        offered: Option<Arc<Load<K, V>>>,
        launch: Launch<'_, K, V, E, S>,
    ) -> Option<Answer<V, E>>
    where
        Q: Equivalent<K> + Hash + ToOwned<Owned = K> + ?Sized,
    {
        let (Some(core), Some(inner)) = (self.core.visit(), self.inner.upgrade()) else {
            drop(offered.map(|load| Guard::new(self.core.clone(), load)));
            return Some(Err(LoadError::Panicked));
        };
        let hash = hash.unwrap_or_else(|| core.hash(key));
        let (loads, key) = (core.loads(), &mut ByRef::new(key));
        let guard = match loads.begin(offered, key, hash, &self.ask, &mut self.ticket) {
            Ok(Claim::Guard(guard, _)) => guard,
            Ok(Claim::Value(seen)) => return Some(Ok(Some(seen))),
            Ok(Claim::Failed(failure)) => return Some(answer(&failure)),
            Ok(Claim::Busy) => unreachable!("a call that joins waits"),
            Err(load) => {
                (self.load, self.began) = (Some(load), false);
                return None;
            }
        };
        let guard = OwnedGuard::in_background(guard, self.core.clone(), panicked::<E, V>);
        // It waits for its own load, as any other call would, from before it runs.
        let load = Arc::clone(guard.load());
        let place = *self.ticket.get_or_insert_with(Ticket::draw);
        load.join(place, Want::Any(TypeId::of::<LoadError<E>>()));
        loads.watch_quietly(&load, loads.clock());
        (self.load, self.began) = (Some(load), true);
        launch(&inner, guard);
        None
    }

    /// The call has ended its other work: from now on it waits like any other.
    fn wait_now(&mut self) {
        self.ask.want = Want::Optional;
        if let (Some(load), Some(ticket), false) = (&self.load, self.ticket, self.began) {
            load.wait_now(ticket);
        }
    }

    /// Waits until a load of the key has ended: the one that the call waits for, or the one that
    /// the key has then. From an overdue load of another call it goes on once, with the newer load.
    pub(super) fn poll(
        &mut self,
        cx: &mut Context<'_>,
        launch: Launch<'_, K, V, E, S>,
    ) -> Poll<Answer<V, E>> {
        while let (Some(load), Some(ticket)) = (self.load.clone(), self.ticket) {
            self.run_if_queued(&load);
            self.core.check_process();
            let mut overdue = false;
            let verdict = match load.poll(ticket, cx.waker()) {
                Some(verdict) => verdict,
                None => {
                    let core = self.core.visit();
                    match has_to_wait(core.as_deref(), &load, ticket, cx.waker()) {
                        Ok(true) => return Poll::Pending,
                        Ok(false) => {
                            overdue = load.is_current();
                            self.stop();
                            Verdict::Retry
                        }
                        Err(cycle) => {
                            self.stop();
                            panic!("{cycle}");
                        }
                    }
                }
            };
            self.load = None;
            let offered = match verdict {
                Verdict::Ended(outcome) => return Poll::Ready(answer(&outcome)),
                Verdict::Leads => Some(Arc::clone(&load)),
                Verdict::Retry => {
                    let late = overdue || load.revoked() == Some(RevokedBy::NewerLoad);
                    // So has a refresh timed out that did not begin the load.
                    let timed_out = overdue && (self.began || self.ask.over == Over::Any);
                    if late && (self.switched || timed_out) {
                        return Poll::Ready(Err(LoadError::TimedOut));
                    }
                    self.switched |= late;
                    // A refresh takes what a write has stored meanwhile.
                    if !late {
                        self.ask.over = Over::Absent;
                    }
                    None
                }
            };
            let hash = Some(load.hash());
            if let Some(answer) = self.claim(load.key(), hash, offered, launch) {
                return Poll::Ready(answer);
            }
        }
        unreachable!("a call without an answer waits for a load");
    }

    /// On a thread that leads a load: runs a load that is queued for the threads of the reloads,
    /// which may all have to wait for this very thread.
    fn run_if_queued(&self, load: &Arc<Load<K, V>>) {
        if runs_loader()
            && load.is_queued()
            && let Some(inner) = self.inner.upgrade()
            && let AnyLoader::Blocking(loader) = &inner.loader
            && let Some(guard) = inner.threads.take(load)
        {
            contain(|| run_now(&**loader, guard));
        }
    }
}

impl<K: CacheKey, V: CacheValue, E, S: CacheHasher> Call<K, V, E, S> {
    /// Ends the wait. If the call had been told to lead, the next waiter leads.
    fn stop(&mut self) {
        if let (Some(load), Some(ticket)) = (self.load.take(), self.ticket)
            && load.is_of_this_process()
            && load.leave(ticket)
        {
            drop(Guard::new(self.core.clone(), load));
        }
    }
}

impl<K: CacheKey, V: CacheValue, E, S: CacheHasher> Drop for Call<K, V, E, S> {
    fn drop(&mut self) {
        self.stop();
    }
}

impl<K: CacheKey, V: CacheValue, E: Send + Sync + 'static, S: CacheHasher>
    LoadingCache<K, V, E, S>
{
    /// Loads an absent key.
    pub(super) async fn load_in_task<Q>(&self, key: &Q, ask: Request) -> Answer<V, E>
    where
        Q: Equivalent<K> + Hash + ToOwned<Owned = K> + ?Sized,
    {
        let mut call = Call::new(self, ask);
        match call.claim(key, None, None, &mut Inner::launch) {
            Some(answer) => answer,
            None => poll_fn(|cx| call.poll(cx, &mut Inner::launch)).await,
        }
    }

    /// Loads the keys that are absent: one task loads all of them that no other call loads. The
    /// call waits for the other loads when its own have ended.
    pub(super) async fn load_all_in_task(
        &self,
        loader: &Arc<dyn BoxedFutures<K, V, E>>,
        mut keys: Keys<K, V>,
    ) -> Result<Vec<Option<V>>, LoadError<E>> {
        let wrong: Arc<OnceLock<(usize, usize)>> = Arc::default();
        let spawn = |inner: &Inner<K, V, E, S>, guards| {
            let (loader, wrong) = (Arc::clone(loader), Arc::clone(&wrong));
            inner.spawn(run_many(loader, guards, wrong));
        };
        let (mut guards, mut calls) = (Vec::new(), Vec::new());
        for &place in &keys.missing {
            let mut call = Call::new(self, Request::value(Want::LookUpAgain));
            let key = &keys.unique[place];
            match call.claim(key, None, None, &mut |_, guard| guards.push(guard)) {
                Some(answer) => keys.answers[place] = answer?.map(|seen| seen.value),
                None => calls.push((place, call)),
            }
        }
        if !guards.is_empty() {
            spawn(&self.inner, guards);
        }
        calls.sort_by_key(|(_, call)| !call.began);
        for (place, mut call) in calls {
            call.wait_now();
            let mut launch = |inner: &Inner<K, V, E, S>, guard| spawn(inner, vec![guard]);
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
        if let Some(guard) = core.loads().begin_reload(core.hash(key), key) {
            let weak = self.cache.downgrade();
            let guard = OwnedGuard::in_background(guard, weak, panicked::<E, V>);
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
