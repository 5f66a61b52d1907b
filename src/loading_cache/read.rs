//! The methods that read, for threads and for tasks.

use super::call::{CallResult, WrongNumber, result_of};
use super::kinds::caught;
use super::loader::LoadError;
use super::threads::hint;
use super::turn::{OwnedClaimant, Progress, poll_turn};
use super::{Inner, LoadingCache};
use crate::compute::Keyless;
use crate::contain::{LetGoEach, with_name};
use crate::engine::Engine;
use crate::load::{
    CallGuards, Claim, Claimant, Keys, Loadable, Replaces, ToKey, fallible, settled,
};
use crate::node::NodePtr;
use crate::operations::EntryRef;
use crate::stats::Count;
use crate::sync::block::{block_on, poll_once};
use equivalent::Equivalent;
use std::fmt;
use std::future::{Future, poll_fn, ready};
use std::hash::{BuildHasher, Hash};
use std::pin::Pin;
use std::sync::{Arc, Weak};
use std::task::{Context, Poll};

impl<K, V, E, S> LoadingCache<K, V, E, S>
where
    K: Hash + Eq + Clone + Send + Sync + 'static,
    V: Clone + Send + Sync + 'static,
    E: Send + Sync + 'static,
    S: BuildHasher + Send + Sync + 'static,
{
    /// Returns the value of a key, and loads it if the key is absent.
    ///
    /// A [`Loader`](crate::Loader) runs on this thread. The load of an
    /// [`AsyncLoader`](crate::AsyncLoader) is a task of the
    /// [`spawner`](crate::LoadingBuilder::spawner), for which this thread waits. In a task use
    /// [`get_async`](Self::get_async): see [threads and tasks](Self#threads-and-tasks).
    ///
    /// # Errors
    ///
    /// If the loader fails or panics: nothing is stored. Calls that waited share the error, and
    /// later calls get it for as long as
    /// [`failure_backoff`](crate::LoadingBuilder::failure_backoff) says. That is so, too, if the
    /// key was written meanwhile; later calls then find what was written.
    ///
    /// If a load of an [`AsyncLoader`](crate::AsyncLoader) that this call has begun takes longer
    /// than [`load_timeout`](crate::LoadingBuilder::load_timeout). If the load of another call
    /// becomes overdue, a call that waits for it goes on once, with a newer load. If that becomes
    /// overdue too, a call for an async loader gets [`LoadError::TimedOut`].
    ///
    /// # Panics
    ///
    /// If user code other than the loader panics; or if the call would wait for a load that its own
    /// thread leads, as [`Cache::get_with`](crate::Cache::get_with) says.
    ///
    /// # Cost
    ///
    /// A hit costs what [`Cache::get`](crate::Cache::get) costs, and one comparison. A hit of a
    /// stale entry looks the key up once more, unless it waits for a reload thread. While a compute
    /// of the key runs, each such hit wakes a reload thread. A miss that loads on this thread costs
    /// what one of [`Cache::get_with`](crate::Cache::get_with) costs, and a box.
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
        Q: Equivalent<K> + Hash + ToKey<K> + ?Sized,
    {
        match self.get_if_present(key) {
            Some(value) => Ok(value),
            None => self.load_as_thread(key),
        }
    }

    #[cold]
    #[inline(never)]
    #[track_caller]
    fn load_as_thread<Q>(&self, key: &Q) -> Result<V, LoadError<E>>
    where
        Q: Equivalent<K> + Hash + ToKey<K> + ?Sized,
    {
        block_on(self.load(key)).map(|seen| seen.value)
    }

    /// Loads an absent key, or waits for the load of another call. The value is in a box, since
    /// futures would copy a large one several times on the stack.
    async fn load<Q>(&self, key: &Q) -> Result<Box<Keyless<V>>, LoadError<E>>
    where
        Q: Equivalent<K> + Hash + ToKey<K> + ?Sized,
    {
        // Before the call owns a key, and joins or begins a load.
        if let Some(error) = self.remembered(key) {
            return Err(error);
        }
        let key = key.to_key();
        let hash = self.cache.hash(&key);
        let want = fallible::<LoadError<E>>();
        let mut call = Claimant::new(self.cache.engine(), hash, key, want);
        if self.inner.spawner.is_some() {
            call.elsewhere = Some(settled::<LoadError<E>>());
        }
        loop {
            let result = match call.claim().await {
                // The load of another call may have failed since this one looked.
                Claim::Guard(guard, _) => match guard.unless(|key| self.remembered(key)) {
                    Ok(guard) => match &self.inner.spawner {
                        Some(spawner) => {
                            self.inner.launch(spawner, guard);
                            // The next claim waits for the task.
                            continue;
                        }
                        None => poll_once(guard.run_loader(&*self.inner.backend)),
                    },
                    Err(error) => Err(error),
                },
                claim => result_of(claim),
            };
            return match result {
                Ok(Some(seen)) => Ok(seen),
                Ok(None) => unreachable!("it accepts values and errors only"),
                Err(error) => Err(error),
            };
        }
    }

    /// The failure that is remembered for an absent key.
    fn remembered<Q>(&self, key: &Q) -> Option<LoadError<E>>
    where
        Q: Equivalent<K> + Hash + ?Sized,
    {
        let engine = self.cache.engine();
        let failure = self.inner.backend.failure(key, || engine.clock.now())?;
        engine.count(Count::RememberedFailures);
        Some(failure)
    }

    /// Returns the values of several keys, in their order. Those that are absent are loaded by one
    /// call of [`load_many`](crate::Loader::load_many). `None` for a key for which the loader
    /// returns `None`.
    ///
    /// A key that another call is loading is not loaded again: this call waits for it, after its
    /// own keys were stored. In a task use [`get_all_async`](Self::get_all_async): see [threads and
    /// tasks](Self#threads-and-tasks).
    ///
    /// # Errors
    ///
    /// If the loader fails or panics: then the keys that it was given are not stored. If an error
    /// is remembered for one of the keys that are absent: then the loader is not called for that
    /// key. The other keys are loaded and stored all the same; if their load fails, this call
    /// returns the error of that.
    ///
    /// # Panics
    ///
    /// As [`Cache::get_all_with`](crate::Cache::get_all_with).
    ///
    /// # Cost
    ///
    /// A [`get`](Self::get) for each key. A loaded key also costs an
    /// [`insert`](crate::Cache::insert), and the memory of a load and of a box for the value.
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
        block_on(self.get_all_async(keys))
    }

    /// Returns the value of a key if it is present; loads nothing. Starts a reload if the value is
    /// stale.
    ///
    /// # Panics
    ///
    /// As [`Cache::get`](crate::Cache::get).
    ///
    /// # Cost
    ///
    /// As a hit of [`get`](Self::get).
    ///
    /// ```
    /// use wheelhouse::{Cache, loader_fn};
    ///
    /// let cache = Cache::builder().loading(loader_fn(|key: &u32| Ok::<u32, ()>(key * 2))).build();
    /// assert_eq!(cache.get_if_present(&4), None);
    /// assert_eq!(cache.get(&4).unwrap(), 8);
    /// assert_eq!(cache.get_if_present(&4), Some(8));
    /// ```
    #[inline(always)]
    pub fn get_if_present<Q>(&self, key: &Q) -> Option<V>
    where
        Q: Equivalent<K> + Hash + ?Sized,
    {
        let engine = self.cache.engine();
        let hash = self.cache.hash(key);
        let serve = move |entry: EntryRef<'_, K, V>, bound| {
            let stale = engine.stale_hint(hash, entry.node, bound);
            (entry.value().clone(), stale)
        };
        let (value, stale) = engine.read(hash, key, serve)?;
        if let Some(hint) = stale {
            self.reload(hash, key, hint);
        }
        Some(value)
    }

    /// Reloads a key, whether or not its value is stale, or joins the load that is under way. An
    /// absent key is loaded, whatever error is remembered. The loader runs on a reload thread or in
    /// a task. On a reload thread the load begins when the thread claims the key: a write before
    /// that does not revoke it.
    /// [One table](crate#when-is-a-removal-told-and-a-value-dropped) says when the listener hears
    /// of the old value, and [`Delivery`](crate::Delivery) what it must not wait for.
    ///
    /// # Panics
    ///
    /// If the key's `Hash`, `Eq` or `Clone` panics.
    ///
    /// # Cost
    ///
    /// The memory of a load. An async loader costs a task.
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
        let hash = self.cache.hash(&key);
        self.begin_refresh(hash, key, Replaces::Any)
    }

    /// Reloads a key whose entry is stale, or joins its reload: see [`refresh`](Self::refresh).
    /// `None` if there is no such entry. After a failure, neither reads nor this call retry before
    /// the pause is over.
    ///
    /// If the entry is no longer stale when the turn of the refresh comes, the outcome is its
    /// value; if it is gone, `None`.
    ///
    /// # Panics
    ///
    /// If the key's `Hash`, `Eq` or `Clone` panics.
    ///
    /// # Cost
    ///
    /// A look-up, and that of a `refresh` if the entry is stale.
    ///
    /// ```
    /// use std::time::Duration;
    /// use wheelhouse::{Cache, ManualTicker, loader_fn, refresh};
    ///
    /// let (time, minute) = (ManualTicker::new(), Duration::from_secs(60));
    /// let cache = Cache::builder()
    ///     .ticker(time.clone())
    ///     .loading(loader_fn(|key: &u32| Ok::<u32, ()>(key * 2)))
    ///     .refresh_after(refresh::after(minute))
    ///     .build();
    /// assert_eq!(cache.get(&4).unwrap(), 8);
    /// assert!(cache.refresh_if_stale(4).is_none());
    /// time.advance(minute);
    /// assert!(cache.cache().peek_ref(&4).unwrap().is_stale());
    /// let refreshing = cache.refresh_if_stale(4).expect("it is stale");
    /// assert_eq!(refreshing.wait().unwrap(), Some(8));
    /// ```
    pub fn refresh_if_stale(&self, key: K) -> Option<Refreshing<V, E>> {
        let engine = self.cache.engine();
        let hash = self.cache.hash(&key);
        let pin = engine.pin();
        let hit = engine.find_live(hash, &key, &pin)?;
        let refresh = hit.node.refresh()?;
        let wanted = refresh.is_reloading() || refresh.is_stale(engine.clock.now());
        drop(pin);
        if wanted {
            Some(self.begin_refresh(hash, key, Replaces::Stale))
        } else {
            None
        }
    }

    fn begin_refresh(&self, hash: u64, key: K, replaces: Replaces) -> Refreshing<V, E> {
        // It keeps no cache alive.
        let mut call = Claimant::new(self.cache.downgrade(), hash, key, settled::<LoadError<E>>());
        call.replaces = replaces;
        call.elsewhere = Some(settled::<LoadError<E>>());
        let progress = self.inner.refresh(call);
        let inner = Arc::downgrade(&self.inner);
        Refreshing {
            outcome: Box::pin(async move {
                let loaded = outcome(inner, progress).await?;
                Ok(loaded.map(|seen| seen.value))
            }),
        }
    }

    /// Returns the value of a key, and loads it if the key is absent; the async form of
    /// [`get`](Self::get).
    ///
    /// A [`Loader`](crate::Loader) runs within a poll. The load of an
    /// [`AsyncLoader`](crate::AsyncLoader) is a task of its own, which the
    /// [`spawner`](crate::LoadingBuilder::spawner) gets within the first poll. It goes on if this
    /// call, and all others that wait for it, are dropped.
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
    /// # Cost
    ///
    /// As [`get`](Self::get). A miss starts a task: its memory, and the wake-ups of the calls that
    /// wait.
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
    /// let cache = Cache::builder().loading(load).spawner(|task| { tokio::spawn(task); }).build();
    /// assert_eq!(cache.get_async(&4).await.unwrap(), 8);
    /// # }
    /// ```
    pub async fn get_async<Q>(&self, key: &Q) -> Result<V, LoadError<E>>
    where
        Q: Equivalent<K> + Hash + ToKey<K> + ?Sized,
    {
        match self.get_if_present(key) {
            Some(value) => Ok(value),
            None => Ok(self.load(key).await?.value),
        }
    }

    /// Returns the values of several keys, and loads those that are absent; the async form of
    /// [`get_all`](Self::get_all).
    ///
    /// A [`Loader`](crate::Loader) runs within a poll. One task loads all keys that an
    /// [`AsyncLoader`](crate::AsyncLoader) has to load for this call.
    ///
    /// # Errors
    ///
    /// As `get_all`. For an async loader, a panic of other user code (the expiry policy, the
    /// weigher) is a [`LoadError::Panicked`], too.
    ///
    /// # Panics
    ///
    /// As `get_all`.
    ///
    /// # Cost
    ///
    /// As [`get_all`](Self::get_all). All keys that no other call loads are one task.
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
        let engine = self.cache.engine();
        let keys = Keys::look_up(
            engine,
            keys,
            |key| self.cache.hash(key),
            |node| {
                (
                    node.value().clone(),
                    engine.stale_hint(node.hash(), node, None),
                )
            },
            |key, (value, stale)| {
                if let Some(hint) = stale {
                    self.reload(self.cache.hash(key), key, hint);
                }
                value
            },
        );
        let wrong = &WrongNumber::default();
        let launch = self.inner.spawner.as_ref().map(|spawner| {
            move |keys, guards: CallGuards<'_, K, V>| {
                self.inner.launch_many(spawner, keys, guards, wrong);
            }
        });
        let backend = &*self.inner.backend;
        let all = engine.load_all(
            keys,
            |key| self.remembered(key),
            launch,
            |keys| {
                let keys = LetGoEach(keys);
                ready(poll_once(caught(backend.loader.load_many(&keys.0))))
            },
            |guard, reply| match guard.end_by_reply(reply, None, backend) {
                Ok(Some(loaded)) => Some(loaded.value),
                Ok(None) | Err(_) => None,
            },
            |claim| match wrong.get() {
                Some(message) => panic!("{}", with_name(self.cache.name(), message)),
                None => Ok(result_of(claim)?.map(|seen| seen.value)),
            },
        );
        all.await
    }
}

impl<K, V> Engine<K, V> {
    /// The hint at a stale entry.
    #[inline]
    fn stale_hint(&self, hash: u64, node: NodePtr<K, V>, bound: Option<u64>) -> Option<u64> {
        if self.is_stale(node, bound) {
            Some(hint(hash, node))
        } else {
            None
        }
    }
}

impl<K: Loadable + Hash + Eq, V: Loadable, E: Send + Sync + 'static> Inner<K, V, E> {
    /// A refresh begins, or has to look its key up again.
    fn refresh(&self, call: OwnedClaimant<K, V>) -> Progress<K, V, E> {
        match &self.spawner {
            Some(spawner) => Progress::at_turn(call, |guard| self.launch(spawner, guard)),
            None => self.threads.refresh(call),
        }
    }
}

/// The outcome of a refresh.
async fn outcome<K: Loadable + Hash + Eq, V: Loadable, E: Send + Sync + 'static>(
    inner: Weak<Inner<K, V, E>>,
    mut progress: Progress<K, V, E>,
) -> CallResult<V, E> {
    loop {
        progress = match progress {
            Progress::Queued { turn, hash, name } => {
                poll_fn(|cx| poll_turn(&turn, hash, name.as_ref(), cx)).await
            }
            Progress::Waits(mut call) => match call.claim().await {
                // It keeps the loader no longer than it needs it.
                Claim::Busy => match inner.upgrade() {
                    Some(inner) => inner.refresh(call),
                    None => Progress::Ended(Err(LoadError::Abandoned)),
                },
                claim => Progress::Ended(result_of(claim)),
            },
            Progress::Ended(result) => return result,
        };
    }
}

/// A refresh that [`LoadingCache::refresh`](super::LoadingCache::refresh) has requested: a future
/// of its outcome. The refresh continues if the future is dropped, unless it waits for the code of
/// another call just then, and that makes no value.
///
/// The outcome is the new value, or the one that an explicit write has stored meanwhile; `None` if
/// the loader answers [`Gone`](crate::Reloaded::Gone). A refresh that lasts longer than
/// [`load_timeout`](crate::LoadingBuilder::load_timeout) is [`LoadError::TimedOut`], unless a newer
/// load has taken its place: then it waits once more, for that one. If the last handle of the cache
/// is dropped, only [`wait`](Self::wait) still ends by itself in time.
///
/// # Panics
///
/// A poll, unless a waker makes it, panics if the task would wait for the polling thread itself, as
/// [`wait`](Self::wait) does.
///
/// ```
/// use wheelhouse::{Cache, loader_fn};
///
/// let cache = Cache::builder().loading(loader_fn(|key: &u32| Ok::<u32, ()>(key * 2))).build();
/// assert_eq!(cache.refresh(4).wait().unwrap(), Some(8));
/// ```
#[must_use = "it says what came of the refresh, which goes on without it"]
pub struct Refreshing<V, E> {
    outcome: OutcomeFuture<V, E>,
}

type OutcomeFuture<V, E> =
    Pin<Box<dyn Future<Output = Result<Option<V>, LoadError<E>>> + Send + Sync>>;

impl<V, E> Refreshing<V, E> {
    /// Waits for the outcome, as a thread. In a task await the future: see [threads and
    /// tasks](super::LoadingCache#threads-and-tasks).
    ///
    /// # Errors
    ///
    /// If the loader fails or panics, or takes longer than
    /// [`load_timeout`](crate::LoadingBuilder::load_timeout).
    ///
    /// # Panics
    ///
    /// If the call would wait for its own thread: for a load that this leads, or for a refresh
    /// whose key it has taken to load; also through loads of other threads.
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
        self.outcome.as_mut().poll(cx)
    }
}

impl<V, E> fmt::Debug for Refreshing<V, E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Refreshing").finish_non_exhaustive()
    }
}
