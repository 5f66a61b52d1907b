//! The cache that loads by itself, and reloads entries before they are due.
//!
//! A [`LoadingCache`] is a [`Cache`] with a loader. A read is a look-up as of `get`; a hit whose
//! entry is stale starts a reload beside it. Loads and reloads go the way of `loading`: at most one
//! for each key, whatever the method.
//!
//! A [`Loader`] runs on the caller's thread for an absent key, and on one of the [`workers`] for a
//! reload. The future of an [`AsyncLoader`] is shared: any waiter drives it, and the program's
//! spawner only where there is none ([`mod@drive`]).

mod builder;
mod drive;
mod loader;
mod refreshing;
mod source;
mod wait;
mod workers;

pub use builder::LoadingBuilder;
pub use loader::{
    AsyncLoader, AsyncLoaderFn, LoadError, Loaded, Loader, LoaderFn, Reloaded, async_loader_fn,
    loader_fn,
};
pub use refreshing::Refreshing;
pub use source::IntoLoading;

use crate::RandomState;
use crate::cache::Cache;
use crate::contain::contain;
use crate::load::{Load, Ticket, Verdict, Want};
use crate::loading::{Ask, Begun, ByRef, Dropped, End, Loading, Made, Right, Seeker, fallible};
use crate::node::is_stale;
use crate::operations::Core;
use crate::operations::EntryRef;
use crate::sync::Parker;
use crate::time::NEVER;
use builder::Spawner;
use drive::Drives;
use equivalent::Equivalent;
use refreshing::{answer, refreshing};
use source::{BoxFuture, Futures, Source, between, failure, panicked, put, remade};
use std::any::TypeId;
use std::borrow::ToOwned;
use std::convert::Infallible;
use std::fmt;
use std::future::{Future, poll_fn, ready};
use std::hash::{BuildHasher, Hash};
use std::pin::pin;
use std::sync::{Arc, Weak};
use std::task::{Context, Poll, Waker};
use std::time::Duration;
use wait::Wait;
use workers::Workers;

/// A cache that makes absent values by a loader, and reloads stale ones before they are due. A
/// handle: clone it to share it.
///
/// # Stale and due
///
/// With [`refresh_after`](LoadingBuilder::refresh_after), each entry has a moment from which it is
/// *stale*. A read of a stale entry returns the old value at once, and starts one reload for the
/// key, however many calls read it. Past its deadline an entry is a miss, always; the miss joins a
/// reload that is under way. Entries that are not read are not reloaded.
///
/// # What a reload does
///
/// Its value takes the place of the old one, unless an explicit write of the key came since it
/// began. If it fails, the old value stays until its deadline, and
/// [`refresh_after_failure`](crate::Refresh::refresh_after_failure) says when it is tried again.
///
/// # Example
///
/// ```
/// use std::time::Duration;
/// use wheelhouse::{Cache, ManualTicker, loader_fn, refresh};
///
/// let time = ManualTicker::new();
/// let rates = Cache::builder()
///     .ticker(time.clone())
///     .time_to_live(Duration::from_secs(60))
///     .loading(loader_fn(|currency: &String| Ok::<_, ()>(currency.len())))
///     .refresh_after(refresh::fraction(0.8))
///     .build();
/// assert_eq!(rates.get("EUR").unwrap(), 3); // loads on this thread
/// time.advance(Duration::from_secs(50));
/// assert_eq!(rates.get("EUR").unwrap(), 3); // the old value; a thread of the cache reloads
/// ```
pub struct LoadingCache<K, V, E, S = RandomState>
where
    K: Hash + Eq + Clone + Send + Sync + 'static,
    V: Clone + Send + Sync + 'static,
    S: BuildHasher + Send + Sync + 'static,
{
    cache: Cache<K, V, S>,
    inner: Arc<Inner<K, V, E, S>>,
}

/// What the handles share beside the cache.
struct Inner<K, V, E, S>
where
    K: Hash + Eq + Clone + Send + Sync + 'static,
    V: Clone + Send + Sync + 'static,
    S: BuildHasher + Send + Sync + 'static,
{
    source: Source<K, V, E>,
    workers: Arc<Workers<K, V, S>>,
    drives: Arc<Drives<K, V, S>>,
}

impl<K, V, E, S> Inner<K, V, E, S>
where
    K: Hash + Eq + Clone + Send + Sync + 'static,
    V: Clone + Send + Sync + 'static,
    E: Send + Sync + 'static,
    S: BuildHasher + Send + Sync + 'static,
{
    /// Runs a reload or a load in the background, and waits for it.
    fn launch_and_wait(
        &self,
        core: &Core<K, V, S>,
        weak: &Weak<Core<K, V, S>>,
        right: Right<K, V, S>,
        ticket: Ticket,
    ) -> Wait<K, V, S> {
        let load = Arc::clone(right.load());
        load.join_own(ticket, Want::Any(TypeId::of::<LoadError<E>>()), None);
        let attached = match &self.source {
            Source::Async(loader) if !self.drives.can_spawn() => {
                Some(self.drives.start(&load, drive(Arc::clone(loader), right)))
            }
            _ => {
                self.launch(core, right);
                None
            }
        };
        let drives = Arc::clone(&self.drives);
        Wait::new(Weak::clone(weak), drives, load, ticket, attached)
    }

    /// Runs a reload or a load in the background.
    fn launch(&self, core: &Core<K, V, S>, right: Right<K, V, S>) {
        match &self.source {
            Source::Blocking(loader) => {
                let now = core.load_clock();
                let overdue = |load: &Load<K, V>| core.is_overdue(load, now);
                self.workers.push(loader, right, overdue);
            }
            Source::Async(loader) => {
                let load = Arc::clone(right.load());
                let attached = self.drives.start(&load, drive(Arc::clone(loader), right));
                self.drives.spawn(attached);
            }
        }
    }
}

impl<K, V, E, S> Drop for Inner<K, V, E, S>
where
    K: Hash + Eq + Clone + Send + Sync + 'static,
    V: Clone + Send + Sync + 'static,
    S: BuildHasher + Send + Sync + 'static,
{
    fn drop(&mut self) {
        self.workers.close();
    }
}

impl<K, V, E, S> Clone for LoadingCache<K, V, E, S>
where
    K: Hash + Eq + Clone + Send + Sync + 'static,
    V: Clone + Send + Sync + 'static,
    S: BuildHasher + Send + Sync + 'static,
{
    /// Another handle of the same cache.
    fn clone(&self) -> Self {
        Self {
            cache: self.cache.clone(),
            inner: Arc::clone(&self.inner),
        }
    }
}

impl<K, V, E, S> LoadingCache<K, V, E, S>
where
    K: Hash + Eq + Clone + Send + Sync + 'static,
    V: Clone + Send + Sync + 'static,
    E: Send + Sync + 'static,
    S: BuildHasher + Send + Sync + 'static,
{
    fn of(
        cache: Cache<K, V, S>,
        source: Source<K, V, E>,
        threads: usize,
        spawner: Option<Spawner>,
    ) -> Self {
        let workers = Workers::new(threads, cache.name());
        Self {
            cache,
            inner: Arc::new(Inner {
                source,
                workers: Arc::new(workers),
                drives: Arc::new(Drives::new(spawner)),
            }),
        }
    }

    /// The cache itself, for all else. Reads there start no reload.
    ///
    /// ```
    /// use wheelhouse::{Cache, loader_fn};
    ///
    /// let cache = Cache::builder().loading(loader_fn(|key: &u32| Ok::<u32, ()>(*key))).build();
    /// cache.cache().insert(1, 10);
    /// assert_eq!(cache.get(&1).unwrap(), 10);
    /// assert_eq!(cache.cache().get(&2), None);
    /// ```
    pub fn cache(&self) -> &Cache<K, V, S> {
        &self.cache
    }

    /// The value of a key, which is loaded if the key is absent.
    ///
    /// A [`Loader`] runs on this thread. For an [`AsyncLoader`] the thread waits, and drives the
    /// future if no other waiter does.
    ///
    /// # Errors
    ///
    /// If the loader fails or panics: nothing is stored. Calls that waited share the error.
    ///
    /// # Panics
    ///
    /// If user code other than the loader panics; or if the call would wait for a load that its own
    /// thread leads, as [`Cache::get_with`] says.
    ///
    /// # Cost
    ///
    /// A hit costs what [`Cache::get`] costs, and one comparison.
    ///
    /// ```
    /// use wheelhouse::{Cache, loader_fn};
    ///
    /// let cache = Cache::builder().loading(loader_fn(|key: &u32| Ok::<u32, ()>(key * 2))).build();
    /// assert_eq!(cache.get(&4).unwrap(), 8);
    /// ```
    #[inline]
    #[track_caller]
    pub fn get<Q>(&self, key: &Q) -> Result<V, LoadError<E>>
    where
        Q: Equivalent<K> + Hash + ToOwned<Owned = K> + ?Sized,
    {
        if let Some(value) = self.get_if_present(key) {
            return Ok(value);
        }
        self.load(key)
    }

    #[cold]
    #[inline(never)]
    #[track_caller]
    fn load<Q>(&self, key: &Q) -> Result<V, LoadError<E>>
    where
        Q: Equivalent<K> + Hash + ToOwned<Owned = K> + ?Sized,
    {
        match &self.inner.source {
            Source::Blocking(loader) => {
                let ask = Ask::value(fallible::<LoadError<E>>());
                let core = &self.cache.core;
                let end = core.run(ByRef::new(key), ask, |_| {
                    made(self.run_loader(key, |key| loader.load(key)))
                });
                result(end)
            }
            Source::Async(loader) => block_on(self.load_driven(loader, key), self.looks()),
        }
    }

    /// As [`get`](Self::get), for tasks.
    ///
    /// A [`Loader`] runs within the first poll. The future of an [`AsyncLoader`] is shared by all
    /// calls that wait for the key: each that is polled drives it. If all of them are dropped, it
    /// goes to the [`spawner`](LoadingBuilder::spawner), or is dropped if there is none.
    ///
    /// # Errors
    ///
    /// As `get`. For an async loader, a panic of other user code (the expiry policy, the weigher)
    /// is a [`LoadError::Panicked`], too.
    ///
    /// # Panics
    ///
    /// As `get`.
    ///
    /// ```
    /// use wheelhouse::{Cache, async_loader_fn};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() {
    /// let load = async_loader_fn(|key: &u32| {
    ///     let key = *key;
    ///     async move { Ok::<u32, ()>(key * 2) }
    /// });
    /// let cache = Cache::builder().loading(load).build();
    /// assert_eq!(cache.get_async(&4).await.unwrap(), 8);
    /// # }
    /// ```
    pub async fn get_async<Q>(&self, key: &Q) -> Result<V, LoadError<E>>
    where
        Q: Equivalent<K> + Hash + ToOwned<Owned = K> + ?Sized,
    {
        if let Some(value) = self.get_if_present(key) {
            return Ok(value);
        }
        match &self.inner.source {
            Source::Blocking(loader) => {
                let ask = Ask::value(fallible::<LoadError<E>>());
                let seeker = Seeker::new(&self.cache, ByRef::new(key), ask, None);
                let load = async { self.run_loader(key, |key| loader.load(key)) };
                Loading::of_future(seeker, load, made, result).await
            }
            Source::Async(loader) => self.load_driven(loader, key).await,
        }
    }

    /// The values of several keys, in their order; those that are absent are loaded by one call of
    /// [`load_many`](Loader::load_many). `None` for a key of which the loader says that it has no
    /// value.
    ///
    /// A key that another call loads just now is not loaded again: this call waits for it, after
    /// its own keys were stored.
    ///
    /// # Errors
    ///
    /// If the loader fails or panics: then the keys that it was given are not stored.
    ///
    /// # Panics
    ///
    /// As [`Cache::get_all_with`].
    ///
    /// ```
    /// use wheelhouse::{Cache, loader_fn};
    ///
    /// let cache = Cache::builder().loading(loader_fn(|key: &u32| Ok::<u32, ()>(key * 2))).build();
    /// assert_eq!(cache.get_all([1, 2, 1]).unwrap(), [Some(2), Some(4), Some(2)]);
    /// ```
    #[track_caller]
    pub fn get_all(
        &self,
        keys: impl IntoIterator<Item = K>,
    ) -> Result<Vec<Option<V>>, LoadError<E>> {
        match &self.inner.source {
            Source::Blocking(loader) => {
                let keys: Vec<K> = keys.into_iter().collect();
                let stale = self.stale_among(&keys);
                let load = |keys: &[K]| self.timed(|| loader.load_many(keys));
                let store = |(value, took)| put(value, took);
                let values = self.cache.get_all_as(keys, load, store);
                // After the read, which is to find the old values.
                stale.iter().for_each(|key| self.reload(key));
                values.map_err(|error| (*error).clone())
            }
            Source::Async(_) => block_on(self.get_all_async(keys), self.looks()),
        }
    }

    /// As [`get_all`](Self::get_all), for tasks. What the loader is asked for belongs to this call:
    /// if it is dropped, calls that wait for its keys load them anew.
    ///
    /// # Errors
    ///
    /// As `get_all`.
    ///
    /// # Panics
    ///
    /// As `get_all`.
    ///
    /// ```
    /// use wheelhouse::{Cache, loader_fn};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() {
    /// let cache = Cache::builder().loading(loader_fn(|key: &u32| Ok::<u32, ()>(key * 2))).build();
    /// assert_eq!(cache.get_all_async([1, 2]).await.unwrap(), [Some(2), Some(4)]);
    /// # }
    /// ```
    pub async fn get_all_async(
        &self,
        keys: impl IntoIterator<Item = K>,
    ) -> Result<Vec<Option<V>>, LoadError<E>> {
        let keys: Vec<K> = keys.into_iter().collect();
        let stale = self.stale_among(&keys);
        let store = |(value, took)| put(value, took);
        let values = match &self.inner.source {
            Source::Blocking(loader) => {
                let load = |keys: Vec<K>| ready(self.timed(|| loader.load_many(&keys)));
                self.cache.get_all_as_async(keys, load, store).await
            }
            Source::Async(loader) => {
                let load = |keys: Vec<K>| {
                    let began = self.now();
                    let future = contain(|| Arc::clone(loader).load_many(keys));
                    async move {
                        let made = until_panic(future).await;
                        self.judged(made, began)
                    }
                };
                self.cache.get_all_as_async(keys, load, store).await
            }
        };
        stale.iter().for_each(|key| self.reload(key));
        values.map_err(|error| (*error).clone())
    }

    /// The value of a key if it is there, without loading it. Starts a reload if it is stale.
    ///
    /// # Panics
    ///
    /// As [`Cache::get`].
    ///
    /// ```
    /// use wheelhouse::{Cache, loader_fn};
    ///
    /// let cache = Cache::builder().loading(loader_fn(|key: &u32| Ok::<u32, ()>(key * 2))).build();
    /// assert_eq!(cache.get_if_present(&4), None);
    /// assert_eq!(cache.get(&4).unwrap(), 8);
    /// assert_eq!(cache.get_if_present(&4), Some(8));
    /// ```
    #[inline]
    pub fn get_if_present<Q>(&self, key: &Q) -> Option<V>
    where
        Q: Equivalent<K> + Hash + ?Sized,
    {
        let (value, at, now) = self.cache.core.get_timed(key)?;
        if self.is_stale(at, now) {
            self.reload(key);
        }
        Some(value)
    }

    /// Loads a key anew, whether or not its value is stale, or joins the load that is under way.
    /// For a key that is absent it is a load.
    ///
    /// # Panics
    ///
    /// If the key's `Hash`, `Eq` or `Clone` panics.
    ///
    /// ```
    /// use std::sync::atomic::{AtomicU32, Ordering};
    /// use wheelhouse::{Cache, loader_fn};
    ///
    /// let runs = AtomicU32::new(0);
    /// let load = loader_fn(move |_: &&str| Ok::<u32, ()>(runs.fetch_add(1, Ordering::Relaxed)));
    /// let cache = Cache::builder().loading(load).build();
    /// assert_eq!(cache.get(&"k").unwrap(), 0);
    /// assert_eq!(cache.refresh("k").wait().unwrap(), Some(1));
    /// assert_eq!(cache.get(&"k").unwrap(), 1);
    /// ```
    pub fn refresh(&self, key: K) -> Refreshing<V, E> {
        let core = &self.cache.core;
        let want = Want::Any(TypeId::of::<LoadError<E>>());
        let ask = Ask {
            over_present: true,
            ..Ask::value(want)
        };
        let mut ticket = None;
        let hash = core.hash(&key);
        let wait = match core.begin(&mut ByRef::new(&key), hash, &ask, &mut ticket, None) {
            Begun::Lead(lead, seen) => {
                let until = seen.and_then(|_| core.mark_reload(lead.load()));
                let right = Right::of(lead, core.downgrade(), until, panicked::<E>, Dropped::Fails);
                let weak = core.downgrade();
                (self.inner).launch_and_wait(core, &weak, right, Ticket::draw())
            }
            Begun::Joined(load) => {
                let Some(ticket) = ticket else {
                    unreachable!("a call that waits has a ticket");
                };
                self.wait_for(load, ticket, None)
            }
            Begun::Found(_) | Begun::Busy => unreachable!("it runs over an entry, and waits"),
        };
        refreshing(wait, self)
    }

    fn wait_for(
        &self,
        load: Arc<Load<K, V>>,
        ticket: Ticket,
        attached: Option<drive::Attached<K, V, S>>,
    ) -> Wait<K, V, S> {
        let core = self.cache.core.downgrade();
        Wait::new(core, Arc::clone(&self.inner.drives), load, ticket, attached)
    }

    /// Whether an entry was stale at the time of its look-up; `now` is 0 if that needed no clock.
    #[inline]
    fn is_stale(&self, at: u64, now: u64) -> bool {
        if now == 0 {
            at != NEVER && is_stale(at, self.cache.core.shared.clock.now())
        } else {
            is_stale(at, now)
        }
    }

    #[cold]
    #[inline(never)]
    fn reload<Q>(&self, key: &Q)
    where
        Q: Equivalent<K> + Hash + ?Sized,
    {
        let core = &self.cache.core;
        if let Some((lead, until)) = core.begin_reload(core.hash(key), key) {
            let (weak, until) = (core.downgrade(), Some(until));
            let right = Right::of(lead, weak, until, panicked::<E>, Dropped::Fails);
            self.inner.launch(core, right);
        }
    }

    /// Those keys that are stale.
    fn stale_among(&self, keys: &[K]) -> Vec<K> {
        if self.cache.core.refresh.is_none() {
            return Vec::new();
        }
        let stale = |key: &&K| {
            let entry = self.cache.peek_ref(*key);
            let refresh = entry.as_ref().and_then(EntryRef::refresh);
            drop(entry);
            refresh.is_some_and(|(at, now)| self.is_stale(at, now))
        };
        keys.iter().filter(stale).cloned().collect()
    }

    fn now(&self) -> u64 {
        self.cache.core.shared.clock.now()
    }

    /// How often a waiting thread looks whether the load is overdue.
    fn looks(&self) -> Option<Duration> {
        let timed = self.cache.core.lifetimes.limits.load_timeout;
        timed.map(|most| most.clamp(Duration::from_millis(1), Duration::from_millis(50)))
    }

    /// Runs the loader for a key, on this thread.
    fn run_loader<Q>(
        &self,
        key: &Q,
        load: impl FnOnce(&K) -> Result<Loaded<V>, E>,
    ) -> Result<(Loaded<V>, Duration), LoadError<E>>
    where
        Q: ToOwned<Owned = K> + ?Sized,
    {
        let began = self.now();
        let made = contain(|| load(&key.to_owned()));
        match made {
            Some(Ok(loaded)) => Ok((loaded, between(began, self.now()))),
            Some(Err(error)) => Err(LoadError::Failed(Arc::new(error))),
            None => Err(LoadError::Panicked),
        }
    }

    /// Runs the loader for several keys.
    #[expect(
        clippy::type_complexity,
        reason = "a list of what may be there, with its time"
    )]
    fn timed(
        &self,
        load: impl FnOnce() -> Result<Vec<Option<Loaded<V>>>, E>,
    ) -> Result<Vec<Option<(Loaded<V>, Duration)>>, LoadError<E>> {
        let began = self.now();
        self.judged(contain(load), began)
    }

    #[expect(clippy::type_complexity, reason = "as of `timed`")]
    fn judged(
        &self,
        made: Option<Result<Vec<Option<Loaded<V>>>, E>>,
        began: u64,
    ) -> Result<Vec<Option<(Loaded<V>, Duration)>>, LoadError<E>> {
        match made {
            None => Err(LoadError::Panicked),
            Some(Err(error)) => Err(LoadError::Failed(Arc::new(error))),
            Some(Ok(values)) => {
                let took = between(began, self.now());
                let timed = |value: Option<_>| value.map(|value| (value, took));
                Ok(values.into_iter().map(timed).collect())
            }
        }
    }

    /// Loads an absent key by a shared future.
    async fn load_driven<Q>(
        &self,
        loader: &Arc<dyn Futures<K, V, E>>,
        key: &Q,
    ) -> Result<V, LoadError<E>>
    where
        Q: Equivalent<K> + Hash + ToOwned<Owned = K> + ?Sized,
    {
        let hash = self.cache.core.hash(key);
        let mut ticket = None;
        let mut told: Option<Arc<Load<K, V>>> = None;
        loop {
            let step = poll_fn(|cx| {
                let told = told.take();
                Poll::Ready(self.step(loader, (hash, key), &mut ticket, told, cx.waker()))
            });
            let mut wait = match step.await {
                Ok(value) => return Ok(value),
                Err(wait) => wait,
            };
            match poll_fn(|cx| wait.poll(cx)).await {
                Verdict::Ended(outcome) => {
                    return answer(&outcome).map(|value| {
                        value.unwrap_or_else(|| unreachable!("it accepts values and errors only"))
                    });
                }
                Verdict::Retry => (),
                Verdict::Leads => told = Some(Arc::clone(wait.load())),
            }
        }
    }

    /// A call's part in the load of an absent key: its value, or its wait.
    fn step<Q>(
        &self,
        loader: &Arc<dyn Futures<K, V, E>>,
        (hash, key): (u64, &Q),
        ticket: &mut Option<Ticket>,
        told: Option<Arc<Load<K, V>>>,
        waker: &Waker,
    ) -> Result<V, Wait<K, V, S>>
    where
        Q: Equivalent<K> + Hash + ToOwned<Owned = K> + ?Sized,
    {
        let core = &self.cache.core;
        let want = fallible::<LoadError<E>>();
        let ask = Ask::value(want);
        let begun = told
            .and_then(|load| core.take_up(&load, &ask))
            .unwrap_or_else(|| core.begin(&mut ByRef::new(key), hash, &ask, ticket, Some(waker)));
        match begun {
            Begun::Found(got) => Ok(got.value),
            Begun::Lead(lead, _) => {
                let right = Right::of(
                    lead,
                    core.downgrade(),
                    None,
                    panicked::<E>,
                    Dropped::PassesOn,
                );
                let load = Arc::clone(right.load());
                let place = *ticket.get_or_insert_with(Ticket::draw);
                load.join_own(place, want, Some(waker.clone()));
                let future = drive(Arc::clone(loader), right);
                let attached = self.inner.drives.start(&load, future);
                Err(self.wait_for(load, place, Some(attached)))
            }
            Begun::Joined(load) => {
                let Some(place) = *ticket else {
                    unreachable!("a call that waits has a ticket");
                };
                Err(self.wait_for(load, place, None))
            }
            Begun::Busy => unreachable!("it waits"),
        }
    }
}

/// What a run of the loader means for its load.
fn made<V, E: Send + Sync + 'static>(
    loaded: Result<(Loaded<V>, Duration), LoadError<E>>,
) -> Made<V, Infallible> {
    match loaded {
        Ok((loaded, took)) => {
            let (value, given) = put(loaded, took);
            Made::Put(value, given)
        }
        Err(error) => match failure(error) {
            crate::load::Failure::Error(error) => Made::Error(error),
            crate::load::Failure::Absent => Made::Absent,
        },
    }
}

/// What a call gets.
fn result<V: Clone, E: Send + Sync + 'static>(end: End<V, Infallible>) -> Result<V, LoadError<E>> {
    end.got().map(|got| got.value).map_err(|failure| {
        let Some(failure) = failure else {
            unreachable!("it accepts values and errors only");
        };
        match answer::<V, E>(&crate::load::Outcome::Failed(failure)) {
            Err(error) => error,
            Ok(_) => unreachable!("it accepts values and errors only"),
        }
    })
}

/// The future of a load or a reload.
fn drive<K, V, E, S>(loader: Arc<dyn Futures<K, V, E>>, right: Right<K, V, S>) -> BoxFuture<()>
where
    K: Hash + Eq + Clone + Send + Sync + 'static,
    V: Clone + Send + Sync + 'static,
    E: Send + Sync + 'static,
    S: BuildHasher + Send + Sync + 'static,
{
    Box::pin(async move {
        let Some(began) = right.now() else { return };
        let reload = right.is_reload();
        let begun = contain(|| {
            let key = right.load().key().clone();
            let old = if reload { right.old() } else { None };
            let future: BoxFuture<_> = match &old {
                Some(old) => loader.reload(key, old.clone()),
                None => {
                    let future = loader.load(key);
                    Box::pin(async { future.await.map(Reloaded::New) })
                }
            };
            (future, old)
        });
        let (future, old) = begun.map_or((None, None), |(future, old)| (Some(future), old));
        let made = until_panic(future).await;
        let took = between(began, right.now().unwrap_or(began));
        right.finish(remade(made, old, took, reload));
    })
}

/// The output of a loader's future; `None` if it panicked, or was not even made.
async fn until_panic<T>(future: Option<BoxFuture<T>>) -> Option<T> {
    let mut future = future?;
    let output = poll_fn(|cx| match contain(|| future.as_mut().poll(cx)) {
        Some(polled) => polled.map(Some),
        None => Poll::Ready(None),
    })
    .await;
    contain(|| drop(future));
    output
}

/// Waits for a future as a thread, which polls it at least every `looks`.
fn block_on<F: Future>(future: F, looks: Option<Duration>) -> F::Output {
    // Not the thread's own place: the future may run code that waits there.
    let parker: Arc<Parker> = Arc::default();
    let waker = Waker::from(Arc::clone(&parker));
    let mut cx = Context::from_waker(&waker);
    let mut future = pin!(future);
    loop {
        if let Poll::Ready(output) = future.as_mut().poll(&mut cx) {
            return output;
        }
        match looks {
            Some(time) => parker.park_for(time),
            None => parker.park(),
        }
    }
}

impl<K, V, E, S> fmt::Debug for LoadingCache<K, V, E, S>
where
    K: Hash + Eq + Clone + Send + Sync + 'static,
    V: Clone + Send + Sync + 'static,
    S: BuildHasher + Send + Sync + 'static,
{
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LoadingCache")
            .field("name", &self.cache.name())
            .finish_non_exhaustive()
    }
}
