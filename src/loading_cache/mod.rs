//! The cache that loads by itself, and reloads entries before they are due.
//!
//! A [`LoadingCache`] is a [`Cache`] with a loader. A read is a look-up like `get`; if a hit's
//! entry is stale, the read also starts a reload. Loads and reloads take the steps of `loading`: at
//! most one runs for each key, whatever the method.
//!
//! A [`Loader`] runs on the caller's thread for an absent key, and on one of the [`workers`] for a
//! reload. The future of an [`AsyncLoader`] is shared: any waiter drives it. If there is no waiter,
//! the program's spawner gets it ([`mod@drive`], [`driven`]).
//!
//! The methods for threads are in `read`, those for tasks in `tasks`; `launch` starts reloads, and
//! `run` calls the loader.

mod builder;
mod closure;
mod drive;
mod driven;
mod error;
mod launch;
mod loader;
mod read;
mod refreshing;
mod run;
mod source;
mod tasks;
mod wait;
mod workers;

pub use builder::LoadingBuilder;
pub use closure::{AsyncLoaderFn, LoaderFn, async_loader_fn, loader_fn};
pub use error::LoadError;
pub use loader::{AsyncLoader, Loaded, Loader, Reloaded};
pub use refreshing::Refreshing;
pub use source::IntoLoading;

use crate::RandomState;
use crate::cache::Cache;
use crate::loading::{CacheHasher, CacheKey, CacheValue};
use drive::{Drives, Spawner};
use source::Source;
use std::fmt;
use std::hash::{BuildHasher, Hash};
use std::sync::Arc;
use std::time::Duration;
use workers::Workers;

/// A cache that calls a loader for absent keys, and reloads stale entries before their deadlines.
/// It is a handle: clone it to share it.
///
/// # Stale and due
///
/// With [`refresh_after`](LoadingBuilder::refresh_after), each entry has a moment from which it is
/// *stale*. A read of a stale entry returns the old value at once, and starts one reload for the
/// key, however many calls read it. After its deadline an entry is always a miss. The miss joins a
/// reload that is running. Entries that are not read are not reloaded.
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

/// The state that the handles share beside the cache.
struct Inner<K: CacheKey, V: CacheValue, E, S: CacheHasher> {
    source: Source<K, V, E>,
    workers: Arc<Workers<K, V, S>>,
    drives: Arc<Drives<K, V, S>>,
}

impl<K: CacheKey, V: CacheValue, E, S: CacheHasher> Drop for Inner<K, V, E, S> {
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
        spawner: Spawner,
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

    /// Returns the cache itself, for all other methods. Its reads start no reload.
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

    fn now(&self) -> u64 {
        self.cache.core.shared.clock.now()
    }

    /// How often a waiting thread checks whether the load is overdue.
    fn check_interval(&self) -> Option<Duration> {
        let timed = self.cache.core.lifetimes.limits.load_timeout;
        timed.map(|most| most.clamp(Duration::from_millis(1), Duration::from_millis(50)))
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
