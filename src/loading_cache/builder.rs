//! Settings of a loading cache.

use super::LoadingCache;
use super::drive::Spawner;
use super::source::{BoxFuture, IntoLoading, Source};
use crate::RandomState;
use crate::cache::{BuildError, CacheBuilder};
use crate::refresh::{self, Refresh};
use std::fmt;
use std::hash::{BuildHasher, Hash};
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
    pub fn loading<L, M>(self, loader: L) -> LoadingBuilder<K, V, L::Error, S>
    where
        L: IntoLoading<K, V, M>,
    {
        LoadingBuilder {
            cache: self,
            source: loader.into_source(),
            refreshes: false,
            threads: 1,
            spawner: None,
        }
    }
}

/// Settings of a [`LoadingCache`] to be built; from [`CacheBuilder::loading`].
///
/// # Cost
///
/// An entry of a loading cache takes 16 bytes more than one of a [`Cache`](crate::Cache).
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
    source: Source<K, V, E>,
    refreshes: bool,
    threads: usize,
    spawner: Option<Spawner>,
}

impl<K, V, E, S> LoadingBuilder<K, V, E, S> {
    /// Sets the policy that decides when each entry is reloaded; see [`refresh`]. Without it an
    /// entry is stale only if its loader has said when, by
    /// [`Loaded::refresh_in`](crate::Loaded::refresh_in).
    ///
    /// ```
    /// use std::time::Duration;
    /// use wheelhouse::{Cache, loader_fn, refresh};
    ///
    /// let cache = Cache::builder()
    ///     .loading(loader_fn(|key: &u32| Ok::<u32, ()>(key * 2)))
    ///     .refresh_after(refresh::after(Duration::from_secs(60)))
    ///     .build();
    /// # _ = cache;
    /// ```
    pub fn refresh_after(mut self, policy: impl Refresh<K, V>) -> Self {
        self.cache.set_refresh(Box::new(policy));
        self.refreshes = true;
        self
    }

    /// Bounds how long a load or a reload holds its key; as [`CacheBuilder::load_timeout`]. When a
    /// reload is overdue, another one may begin.
    ///
    /// ```
    /// use std::time::Duration;
    /// use wheelhouse::{Cache, loader_fn};
    ///
    /// let cache = Cache::builder()
    ///     .loading(loader_fn(|key: &u32| Ok::<u32, ()>(key * 2)))
    ///     .load_timeout(Duration::from_secs(5))
    ///     .build();
    /// # _ = cache;
    /// ```
    pub fn load_timeout(mut self, time: Duration) -> Self {
        self.cache = self.cache.load_timeout(time);
        self
    }

    /// Sets the maximum number of threads that run a [`Loader`](crate::Loader) for reloads. A
    /// thread starts when it is needed, and ends when it has been idle for a while. The default is
    /// 1.
    ///
    /// A loader may read other keys of the cache. While it waits for the load of such a key, its
    /// thread does not count towards the maximum. So another thread can run that load.
    ///
    /// ```
    /// use wheelhouse::{Cache, loader_fn};
    ///
    /// let cache = Cache::builder()
    ///     .loading(loader_fn(|key: &u32| Ok::<u32, ()>(key * 2)))
    ///     .reload_threads(4)
    ///     .build();
    /// # _ = cache;
    /// ```
    pub fn reload_threads(mut self, threads: usize) -> Self {
        self.threads = threads;
        self
    }

    /// Sets what runs the tasks of an [`AsyncLoader`](crate::AsyncLoader): reloads, and loads whose
    /// calls have all been dropped. A task that is dropped counts as a reload that failed. An async
    /// loader needs it.
    ///
    /// ```
    /// use std::time::Duration;
    /// use wheelhouse::{Cache, async_loader_fn, refresh};
    ///
    /// let load = async_loader_fn(|key: &u32| {
    ///     let key = *key;
    ///     async move { Ok::<u32, ()>(key * 2) }
    /// });
    /// let cache = Cache::builder()
    ///     .loading(load)
    ///     .refresh_after(refresh::after(Duration::from_secs(60)))
    ///     .spawner(|task| { tokio::spawn(task); })
    ///     .build();
    /// # _ = cache;
    /// ```
    pub fn spawner(mut self, spawn: impl Fn(BoxFuture<()>) + Send + Sync + 'static) -> Self {
        self.spawner = Some(Arc::new(spawn));
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
    /// As [`CacheBuilder::try_build`]; and if `reload_threads` is 0, or an async loader has no
    /// `spawner`.
    ///
    /// ```
    /// use wheelhouse::{Cache, loader_fn};
    ///
    /// let builder = Cache::builder().loading(loader_fn(|key: &u32| Ok::<u32, ()>(*key)));
    /// let error = builder.reload_threads(0).try_build().unwrap_err();
    /// assert_eq!(error.to_string(), "reload_threads is 0, but must be at least 1");
    /// ```
    pub fn try_build(mut self) -> Result<LoadingCache<K, V, E, S>, BuildError> {
        if self.threads == 0 {
            let fault = "reload_threads is 0, but must be at least 1";
            return Err(self.cache.fault(fault));
        }
        let spawner = match (self.spawner, &self.source) {
            (Some(spawner), _) => spawner,
            // Never called: such a loader has no futures.
            (None, Source::Blocking(_)) => Arc::new(drop),
            (None, Source::Async(_)) => {
                let fault = "spawner is missing, but must be given for an async loader: it runs \
                             reloads, and loads whose callers have all gone away";
                return Err(self.cache.fault(fault));
            }
        };
        if !self.refreshes {
            // A loader may say when its value is to be reloaded.
            self.cache.set_refresh(Box::new(refresh::never()));
        }
        let cache = self.cache.try_build()?;
        Ok(LoadingCache::of(cache, self.source, self.threads, spawner))
    }
}

impl<K, V, E, S> fmt::Debug for LoadingBuilder<K, V, E, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LoadingBuilder")
            .field("cache", &self.cache)
            .field("refresh_after", &self.refreshes)
            .field("reload_threads", &self.threads)
            .field("spawner", &self.spawner.is_some())
            .finish_non_exhaustive()
    }
}
