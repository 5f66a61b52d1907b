//! The cache that loads by itself, and reloads entries before they are due.
//!
//! A [`LoadingCache`] is a [`Cache`] with a loader. A read is a look-up like `get`; if the hit is
//! stale, the read also starts a reload. Loads and reloads take the steps of `load`: at most one
//! runs for each key, whatever the method.
//!
//! A [`Loader`] runs on the caller's thread for an absent key, and on one of the cache's own
//! [`threads`] for a refresh or reload. Each load of an [`AsyncLoader`] is a task, which the
//! program's spawner gets when the load begins; the calls that want its value wait for the outcome
//! ([`call`]).
//!
//! `read` has the methods that read. To the rest each loader is an [`AsyncLoader`]: the futures of
//! a blocking one are ready at once ([`kinds`]).
//!
//! `DESIGN.md` has the states of an entry. The failures of the loads of absent keys are remembered
//! beside the cache ([`backend`]). [`turn`] says how far a refresh has come.

mod backend;
mod builder;
mod call;
mod kinds;
mod loader;
mod read;
mod threads;
mod turn;

pub use builder::LoadingBuilder;
pub use kinds::{IntoLoading, async_loader_fn, loader_fn};
pub use loader::{AsyncLoader, LoadError, Loaded, Loader, Reloaded};
pub use read::Refreshing;

use crate::RandomState;
use crate::cache::Cache;
use backend::Backend;
use kinds::Task;
use std::fmt;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use threads::ReloadThreads;

/// A cache that calls a loader for absent keys, and reloads stale entries before their deadlines.
/// It is a handle: clone it to share it.
///
/// # Stale and due
///
/// With [`refresh_after`](LoadingBuilder::refresh_after), each entry has a moment from which it is
/// *stale*. A read of a stale entry returns the old value at once, and starts one reload for the
/// key, however many calls read it. After its deadline an entry is always a miss. The miss joins a
/// reload that is running. If a reload only waits for a thread, the miss runs its own load. Entries
/// that are not read are not reloaded.
///
/// # What a reload does
///
/// Its value takes the place of the old one, unless an explicit write of the key came since it
/// began. If it fails, the old value stays until its deadline, and
/// [`refresh_after_failure`](crate::Refresh::refresh_after_failure) says when it is tried again. A
/// failure of the load of an absent key is remembered only with
/// [`failure_backoff`](LoadingBuilder::failure_backoff).
///
/// # Threads and tasks
///
/// Threads and tasks may use one cache, and share its loads.
///
/// | | a load of an absent key | a reload |
/// |---|---|---|
/// | [`Loader`] | runs on the thread, or within a poll of the task, that asks | runs on a thread of the cache: [`reload_threads`](LoadingBuilder::reload_threads) |
/// | [`AsyncLoader`] | is a task of the [`spawner`](LoadingBuilder::spawner); the call waits | is a task of the spawner |
///
/// `get`, `get_all` and [`Refreshing::wait`] block the thread. In a task of a runtime with one
/// thread such a call can wait for ever for a load that is a task of this runtime. No library can
/// see it. Use the async form there, or let another thread make the call:
///
/// ```
/// # use wheelhouse::{Cache, async_loader_fn};
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() {
/// # let load = async_loader_fn(|key: &u32| { let key = *key; async move { Ok::<u32, ()>(key) } });
/// # let users = Cache::builder().loading(load).spawner(|task| { tokio::spawn(task); }).build();
/// let user = users.get_async(&7).await;
/// # assert_eq!(user, Ok(7));
/// let user = tokio::task::spawn_blocking(move || users.get(&7)).await.unwrap();
/// # assert_eq!(user, Ok(7));
/// # }
/// ```
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
pub struct LoadingCache<K, V, E, S = RandomState> {
    cache: Cache<K, V, S>,
    /// It is whole after a panic of user code, as the cache is.
    inner: AssertUnwindSafe<Arc<Inner<K, V, E>>>,
}

/// The program's function that runs a task of the cache.
type Spawner = Box<dyn Fn(Task) + Send + Sync>;

/// The loader, and where it runs. The handles share it beside the cache.
struct Inner<K, V, E> {
    backend: Arc<Backend<K, V, E>>,
    /// For an [`AsyncLoader`].
    spawner: Option<Spawner>,
    /// For a [`Loader`]; tasks only take their weak handle of the cache.
    threads: Arc<ReloadThreads<K, V, E>>,
}

impl<K, V, E> Drop for Inner<K, V, E> {
    fn drop(&mut self) {
        self.threads.close();
    }
}

impl<K, V, E, S> Clone for LoadingCache<K, V, E, S> {
    /// Another handle of the same cache.
    fn clone(&self) -> Self {
        Self {
            cache: self.cache.clone(),
            inner: AssertUnwindSafe(Arc::clone(&self.inner)),
        }
    }
}

impl<K, V, E, S> LoadingCache<K, V, E, S> {
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
}

impl<K, V, E, S> fmt::Debug for LoadingCache<K, V, E, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LoadingCache")
            .field("name", &self.cache.name())
            .field("entry_count", &self.cache.engine().map.len())
            .finish_non_exhaustive()
    }
}
