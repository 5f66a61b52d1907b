//! Settings of a loading cache.

use super::backend::{Backend, FailurePolicy, Failures, forget};
use super::kinds::{AnyLoader, IntoLoading, Task};
use super::threads::ReloadThreads;
use super::{Inner, LoadingCache, Spawner};
use crate::RandomState;
use crate::cache::{BuildError, CacheBuilder};
use crate::refresh::{self, Refresh};
use std::fmt;
use std::hash::{BuildHasher, Hash};
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

impl<K, V, S> CacheBuilder<K, V, S> {
    /// Continues as the builder of a [`LoadingCache`], which calls this [`Loader`](crate::Loader)
    /// or [`AsyncLoader`](crate::AsyncLoader) for absent keys.
    ///
    /// ```
    /// use wheelhouse::{Cache, loader_fn};
    ///
    /// let lengths = Cache::builder()
    ///     .max_capacity(1_000)
    ///     .loading(loader_fn(|key: &String| Ok::<usize, ()>(key.len())))
    ///     .build();
    /// assert_eq!(lengths.get("ada").unwrap(), 3);
    /// ```
    pub fn loading<L, const IS_ASYNC: bool>(
        mut self,
        loader: L,
    ) -> LoadingBuilder<K, V, L::Error, S>
    where
        L: IntoLoading<K, V, IS_ASYNC>,
    {
        // A loader may say when its value is to be reloaded.
        self.settings.refresh = Some(Box::new(refresh::never()));
        LoadingBuilder {
            cache: self,
            loader: loader.erase(),
            is_async: IS_ASYNC,
            threads: None,
            spawner: None,
            failure_backoff: None,
        }
    }
}

/// Settings of a [`LoadingCache`] to be built; from [`CacheBuilder::loading`].
///
/// # Cost
///
/// An entry of a loading cache takes 24 bytes more than one of a [`Cache`](crate::Cache).
///
/// ```
/// use std::time::Duration;
/// use wheelhouse::{Cache, LoadingCache, loader_fn, refresh};
///
/// let users: LoadingCache<u64, String, std::io::Error> = Cache::builder()
///     .max_capacity(10_000)
///     .time_to_live(Duration::from_secs(60))
///     .loading(loader_fn(|id: &u64| Ok(format!("user {id}"))))
///     .refresh_after(refresh::fraction(0.8))
///     .load_timeout(Duration::from_secs(5))
///     .build();
/// assert_eq!(users.get(&7).unwrap(), "user 7");
/// ```
#[must_use = "a builder does nothing until `build` is called"]
pub struct LoadingBuilder<K, V, E, S = RandomState> {
    cache: CacheBuilder<K, V, S>,
    loader: Arc<dyn AnyLoader<K, V, E>>,
    is_async: bool,
    threads: Option<usize>,
    spawner: Option<Spawner>,
    failure_backoff: Option<FailurePolicy>,
}

impl<K, V, E, S> LoadingBuilder<K, V, E, S> {
    /// Sets the policy that decides when each entry is reloaded; see [`refresh`]. Without it an
    /// entry is stale only if its loader has said when, by
    /// [`Loaded::refresh_in`](crate::Loaded::refresh_in).
    ///
    /// # Errors
    ///
    /// [`try_build`](Self::try_build) refuses [`refresh::after`] with a time of zero.
    ///
    /// # Cost
    ///
    /// A call of the policy for each write and each reload. A hit compares one moment.
    ///
    /// ```
    /// use std::time::Duration;
    /// use wheelhouse::{Cache, loader_fn, refresh};
    ///
    /// let cache = Cache::builder()
    ///     .loading(loader_fn(|key: &u32| Ok::<u32, ()>(key * 2)))
    ///     .refresh_after(refresh::after(Duration::from_secs(60)))
    ///     .build();
    /// assert_eq!(cache.get(&4).unwrap(), 8);
    /// ```
    pub fn refresh_after(mut self, policy: impl Refresh<K, V>) -> Self {
        self.cache.settings.refresh = Some(Box::new(policy));
        self
    }

    /// Bounds how long a load or a reload holds its key; as [`CacheBuilder::load_timeout`]. When a
    /// reload is overdue, another one may begin.
    ///
    /// # Errors
    ///
    /// [`try_build`](Self::try_build) refuses zero.
    ///
    /// ```
    /// use std::time::Duration;
    /// use wheelhouse::{Cache, loader_fn};
    ///
    /// let load = loader_fn(|key: &u32| Ok::<u32, ()>(key * 2));
    /// let builder = Cache::builder().loading(load).load_timeout(Duration::from_secs(5));
    /// assert_eq!(builder.build().get(&4).unwrap(), 8);
    /// ```
    pub fn load_timeout(mut self, time: Duration) -> Self {
        self.cache = self.cache.load_timeout(time);
        self
    }

    /// Remembers the errors of loads of absent keys, so that a backend that is down is not asked at
    /// each miss. The policy says for how long: it gets the number of the key's failures in a row,
    /// from 1 on, and `None` means that the error is not remembered. [`refresh::doubling`] is a
    /// ready one. By default no error is remembered.
    ///
    /// While an error is remembered, `get` and `get_async` return it at once, as
    /// [`LoadError::Failed`](crate::LoadError::Failed) with the same `Arc`. `get_all` and
    /// `get_all_async` return it if one of their absent keys has one, after they have loaded the
    /// others. After that time the next miss calls the loader again.
    /// [`refresh`](LoadingCache::refresh) calls it in any case, and the methods of
    /// [`cache`](LoadingCache::cache) run code of their own. A load that succeeds, whichever method
    /// has led it, ends the series and forgets the error. Other writes of the key do not.
    ///
    /// [`Loader::retry_after`](crate::Loader::retry_after) comes before this policy.
    ///
    /// Panics and time-outs are not remembered, nor are failures of reloads: for these
    /// [`refresh_after_failure`](crate::Refresh::refresh_after_failure) decides. If the policy
    /// panics, the error is not remembered.
    ///
    /// # Cost
    ///
    /// For each error the memory of an entry, and a look-up for each miss. The number of keys whose
    /// errors are remembered is bounded, by 16,384 or by
    /// [`max_capacity`](CacheBuilder::max_capacity), whichever is larger. With a weigher, or
    /// without `max_capacity`, the bound is 16,384. Beyond it, the errors that were asked for least
    /// recently are forgotten: the next miss of their keys calls the loader.
    ///
    /// ```
    /// use std::time::Duration;
    /// use wheelhouse::{Cache, LoadError, ManualTicker, loader_fn, refresh};
    ///
    /// let (time, second) = (ManualTicker::new(), Duration::from_secs(1));
    /// let hosts = Cache::builder()
    ///     .ticker(time.clone())
    ///     .record_stats()
    ///     .loading(loader_fn(|host: &&str| Err::<u32, _>(format!("no answer about {host}"))))
    ///     .failure_backoff(refresh::doubling(second, 60 * second))
    ///     .build();
    /// let first = hosts.get(&"example.org");
    /// assert!(matches!(&first, Err(LoadError::Failed(_))));
    /// assert_eq!(hosts.get(&"example.org"), first); // no call of the loader
    /// assert_eq!(hosts.cache().stats().loads(), 1);
    /// time.advance(second);
    /// assert_eq!(hosts.get(&"example.org"), first); // called, and then not for 2 s
    /// assert_eq!(hosts.cache().stats().loads(), 2);
    /// ```
    pub fn failure_backoff(
        mut self,
        policy: impl Fn(u32) -> Option<Duration> + Send + Sync + 'static,
    ) -> Self {
        self.failure_backoff = Some(Box::new(policy));
        self
    }

    /// Sets the maximum number of threads that run a [`Loader`](crate::Loader) for reloads. A
    /// thread starts when it is needed, and ends when it has been idle for a while. The default is
    /// 1.
    ///
    /// # Errors
    ///
    /// [`try_build`](Self::try_build) refuses 0.
    ///
    /// # Loaders that hang
    ///
    /// A loader that hangs keeps its thread: [`load_timeout`](Self::load_timeout) frees the calls
    /// that wait, not the thread. While loaders hang on all the threads, nothing is reloaded. Reads
    /// return old values until their deadlines. From then on they are misses, and each miss runs
    /// the loader on its own thread. A key that waits for a thread holds up no other call. Only a
    /// [`refresh`](LoadingCache::refresh) waits until a thread is free. A read that finds all
    /// threads busy may leave its entry stale for a later read.
    ///
    /// While a loader waits for another load of a cache, or for a listener, its thread does not
    /// count: another thread may start. So loaders may wait for loads, and for refreshes, of each
    /// other. When such waits end, more loaders than the maximum may be at work for a while.
    ///
    /// An [`AsyncLoader`](crate::AsyncLoader) has no use for it.
    ///
    /// ```
    /// use wheelhouse::{Cache, loader_fn};
    ///
    /// let load = loader_fn(|key: &u32| Ok::<u32, ()>(key * 2));
    /// let cache = Cache::builder().loading(load).reload_threads(4).build();
    /// assert_eq!(cache.refresh(4).wait().unwrap(), Some(8)); // on one of the four
    /// ```
    pub fn reload_threads(mut self, threads: usize) -> Self {
        self.threads = Some(threads);
        self
    }

    /// Sets what runs the tasks of an [`AsyncLoader`](crate::AsyncLoader). Each load and each
    /// reload is one task. The spawner gets it when the load begins, and the calls that want the
    /// value wait for its outcome. The load goes on when they leave.
    ///
    /// A [`Loader`](crate::Loader) has no use for it.
    ///
    /// # Errors
    ///
    /// [`try_build`](Self::try_build) refuses an async loader without a spawner.
    ///
    /// # Cost
    ///
    /// A box for the task of a load, one for the future of the loader, and what the program's
    /// runtime takes for a task.
    ///
    /// The spawner is called on the thread that begins the load. `tokio::spawn` looks up the
    /// runtime of that thread, so it suits a cache that outlives a runtime: one in a `static`,
    /// which the tests of a program share. On a thread of no runtime, which may be the cache's own
    /// or one that calls [`get`](LoadingCache::get), it panics. A `Handle` that the spawner holds
    /// works on any thread, as long as its runtime exists. If the spawner panics, or the task is
    /// dropped before it ends, the load has failed with [`Abandoned`](crate::LoadError::Abandoned).
    ///
    /// ```
    /// use std::time::Duration;
    /// use wheelhouse::{Cache, async_loader_fn, refresh};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() {
    /// let load = async_loader_fn(|key: &u32| {
    ///     let key = *key;
    ///     async move { Ok::<u32, ()>(key * 2) }
    /// });
    /// let cache = Cache::builder()
    ///     .loading(load)
    ///     .refresh_after(refresh::after(Duration::from_secs(60)))
    ///     .spawner(|task| { tokio::spawn(task); })
    ///     .build();
    /// assert_eq!(cache.get_async(&4).await.unwrap(), 8);
    /// # }
    /// ```
    pub fn spawner(mut self, spawn: impl Fn(Task) + Send + Sync + 'static) -> Self {
        self.spawner = Some(Box::new(spawn));
        self
    }
}

impl<K, V, E, S> LoadingBuilder<K, V, E, S>
where
    K: Hash + Eq + Clone + Send + Sync + 'static,
    V: Clone + Send + Sync + 'static,
    E: Send + Sync + 'static,
    S: BuildHasher + Send + Sync + 'static,
{
    /// Builds the cache.
    ///
    /// # Panics
    ///
    /// If a setting is invalid; see [`try_build`](Self::try_build).
    ///
    /// # Cost
    ///
    /// As [`CacheBuilder::build`]. A thread starts with the first reload.
    ///
    /// ```
    /// use wheelhouse::{Cache, loader_fn};
    ///
    /// let cache = Cache::builder().loading(loader_fn(|key: &u32| Ok::<u32, ()>(*key))).build();
    /// assert_eq!(cache.get(&1).unwrap(), 1);
    /// ```
    #[track_caller]
    pub fn build(self) -> LoadingCache<K, V, E, S> {
        match self.try_build() {
            Ok(cache) => cache,
            Err(error) => panic!("{error}"),
        }
    }

    /// Builds the cache, or returns an error that names the invalid setting.
    ///
    /// # Errors
    ///
    /// As [`CacheBuilder::try_build`]; if `reload_threads` is 0; if an async loader has no
    /// `spawner`; or if the time of [`refresh::after`] is zero.
    ///
    /// # Cost
    ///
    /// As [`build`](Self::build).
    ///
    /// ```
    /// use wheelhouse::{Cache, loader_fn};
    ///
    /// let builder = Cache::builder().loading(loader_fn(|key: &u32| Ok::<u32, ()>(*key)));
    /// let error = builder.reload_threads(0).try_build().unwrap_err();
    /// assert_eq!(error.to_string(), "reload_threads is 0, but must be at least 1");
    /// ```
    pub fn try_build(self) -> Result<LoadingCache<K, V, E, S>, BuildError> {
        let threads = self.threads.unwrap_or(1);
        let is_stale_at_once = match &self.cache.settings.refresh {
            // Of an entry without a deadline: of the ready policies, only `after` has an answer
            // then.
            Some(policy) => policy.by_times((None, None)) == Some(Some(Duration::ZERO)),
            None => false,
        };
        let fault = match (self.is_async, self.threads, &self.spawner) {
            (_, Some(0), _) => Some("reload_threads is 0, but must be at least 1"),
            (true, _, None) => Some(
                "spawner is missing, but must be given for an async loader: it runs each load and \
                 reload",
            ),
            _ if is_stale_at_once => Some(
                "refresh_after is refresh::after(0ns), but must be more than zero: a value would \
                 be stale as soon as it is loaded",
            ),
            _ => None,
        };
        if let Some(fault) = fault {
            return Err(self.cache.fault(fault));
        }
        let mut settings = self.cache;
        let entries = match settings.settings.weigher {
            // It is a weight then.
            Some(_) => None,
            None => settings.settings.max_capacity,
        };
        let failures = Arc::new(Failures::new());
        let forgets = Arc::clone(&failures);
        settings.settings.forget_failure = Some(Box::new(move |key| forget(&forgets, key)));
        let cache = settings.try_build()?;
        let backend = Arc::new(Backend::new(
            self.loader,
            self.failure_backoff,
            failures,
            entries,
        ));
        let inner = Inner {
            threads: Arc::new(ReloadThreads::new(
                Arc::clone(&backend),
                cache.downgrade(),
                cache.name(),
                threads,
            )),
            backend,
            spawner: match self.is_async {
                true => self.spawner,
                // The settings of both kinds may stand in one chain.
                false => None,
            },
        };
        Ok(LoadingCache {
            cache,
            inner: AssertUnwindSafe(Arc::new(inner)),
        })
    }
}

impl<K, V, E, S> fmt::Debug for LoadingBuilder<K, V, E, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LoadingBuilder")
            .field("cache", &self.cache)
            .field("reload_threads", &self.threads)
            .field("spawner", &self.spawner.is_some())
            .finish_non_exhaustive()
    }
}
