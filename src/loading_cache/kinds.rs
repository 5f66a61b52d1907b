//! What may be given as a loader: a type or a closure, with futures or without. The cache keeps it
//! with its type erased.

use super::Spawner;
use super::loader::{AsyncLoader, LoadError, Loaded, Loader, Reloaded, Reply};
use crate::contain::contain;
use crate::load::Loadable;
use std::cell::Cell;
use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::Poll;
use std::thread;
use std::time::Duration;

/// A task for the program's spawner.
pub(super) type Task = Pin<Box<dyn Future<Output = ()> + Send>>;

/// A future of a loader's answer.
type LoaderFuture<'a, T, E> = Pin<Box<dyn Future<Output = Result<T, E>> + Send + 'a>>;

/// A loader with its type erased. Its own code runs in polls alone, when the load has its leader.
pub trait AnyLoader<K, V, E>: Send + Sync {
    /// Loads a key; reloads it if there is an old value.
    fn load<'a>(&'a self, key: &'a K, old: Option<&'a V>) -> LoaderFuture<'a, Reply<V>, E>;
    fn load_many<'a>(&'a self, keys: &'a [K]) -> LoaderFuture<'a, Vec<Reply<V>>, E>;
    fn retry_after(&self, error: &E, failures: u32) -> Option<Duration>;
    /// Whether `retry_after`, which this thread has just called, may want to know how many failures
    /// there were.
    fn counts_failures(&self) -> bool;
}

impl<K: Loadable + Eq, V: Loadable, L: AsyncLoader<K, V>> AnyLoader<K, V, L::Error> for L {
    fn load<'a>(&'a self, key: &'a K, old: Option<&'a V>) -> LoaderFuture<'a, Reply<V>, L::Error> {
        match old {
            Some(old) => Box::pin(async { self.reload(key, old).await.map(Reloaded::reply) }),
            None => Box::pin(async { AsyncLoader::load(self, key).await.map(Loaded::reply) }),
        }
    }

    fn load_many<'a>(&'a self, keys: &'a [K]) -> LoaderFuture<'a, Vec<Reply<V>>, L::Error> {
        Box::pin(async {
            let values = AsyncLoader::load_many(self, keys).await?.into_iter();
            Ok(values.map(|loaded| loaded?.reply()).collect())
        })
    }

    fn retry_after(&self, error: &L::Error, failures: u32) -> Option<Duration> {
        AsyncLoader::retry_after(self, error, failures)
    }

    fn counts_failures(&self) -> bool {
        self.__counts_failures()
    }
}

/// The answer of a loader; its panic is one, too.
pub(super) async fn caught<T, E>(answer: LoaderFuture<'_, T, E>) -> Result<T, LoadError<E>> {
    let answer = contained(answer).await.ok_or(LoadError::Panicked)?;
    answer.map_err(|error| LoadError::Failed(Arc::new(error)))
}

thread_local! {
    /// Whether the thread polls the code of a load.
    static RUNS: Cell<bool> = const { Cell::new(false) };
}

/// Runs user code, and catches its panic. `runs` says whether it is the code of a load.
fn contain_as<T>(runs: bool, code: impl FnOnce() -> T) -> Option<T> {
    let before = RUNS.replace(runs);
    let made = contain(code);
    RUNS.set(before);
    made
}

/// What a future makes, unless it panics.
pub(super) async fn contained<T>(future: impl Future<Output = T>) -> Option<T> {
    let mut future = pin!(future);
    poll_fn(|cx| match contain_as(true, || future.as_mut().poll(cx)) {
        Some(polled) => polled.map(Some),
        None => Poll::Ready(None),
    })
    .await
}

/// Makes the code of loads run as a task of the program's spawner. After a panic it has ended, and
/// their guards are dropped; also if the spawner panics, or drops the task.
pub(super) fn spawn(spawner: &Spawner, run: impl Future<Output = ()> + Send + 'static) {
    let task = Box::pin(async move { _ = contained(run).await });
    contain_as(false, || spawner(task));
}

/// Why a guard is dropped: its code panics, or is dropped before its end.
pub(super) fn why_dropped<E>() -> LoadError<E> {
    if RUNS.get() && thread::panicking() {
        LoadError::Panicked
    } else {
        LoadError::Abandoned
    }
}

/// A [`Loader`] as a loader whose futures are ready at once.
struct Blocking<L>(L);

// A future that has the answer from its beginning would have room for a value, which may be large.
impl<K: Loadable + Eq, V: Loadable, L: Loader<K, V>> AsyncLoader<K, V> for Blocking<L> {
    type Error = L::Error;

    async fn load(&self, key: &K) -> Result<Loaded<V>, L::Error> {
        self.0.load(key)
    }

    async fn reload(&self, key: &K, old: &V) -> Result<Reloaded<V>, L::Error> {
        self.0.reload(key, old)
    }

    async fn load_many(&self, keys: &[K]) -> Result<Vec<Option<Loaded<V>>>, L::Error> {
        self.0.load_many(keys)
    }

    fn retry_after(&self, error: &L::Error, failures: u32) -> Option<Duration> {
        self.0.retry_after(error, failures)
    }

    fn __counts_failures(&self) -> bool {
        self.0.__counts_failures()
    }
}

/// What [`CacheBuilder::loading`](crate::CacheBuilder::loading) accepts: a [`Loader`] or an
/// [`AsyncLoader`]. `IS_ASYNC` tells the two apart, and is always inferred.
///
/// ```
/// use wheelhouse::{Cache, async_loader_fn, loader_fn};
///
/// let blocking = Cache::<u32, u32>::builder().loading(loader_fn(|key: &u32| Ok::<_, ()>(*key)));
/// let with_futures = Cache::<u32, u32>::builder().loading(async_loader_fn(|key: &u32| {
///     let key = *key;
///     async move { Ok::<_, ()>(key) }
/// }));
/// # _ = (blocking.build(), with_futures.spawner(drop).build());
/// ```
pub trait IntoLoading<K, V, const IS_ASYNC: bool> {
    /// The loader's error.
    type Error: Send + Sync + 'static;

    #[doc(hidden)]
    fn erase(self) -> Arc<dyn AnyLoader<K, V, Self::Error>>;
}

impl<K: Loadable + Eq, V: Loadable, L: Loader<K, V>> IntoLoading<K, V, false> for L {
    type Error = L::Error;

    fn erase(self) -> Arc<dyn AnyLoader<K, V, L::Error>> {
        Arc::new(Blocking(self))
    }
}

impl<K: Loadable + Eq, V: Loadable, L: AsyncLoader<K, V>> IntoLoading<K, V, true> for L {
    type Error = L::Error;

    fn erase(self) -> Arc<dyn AnyLoader<K, V, L::Error>> {
        Arc::new(self)
    }
}

/// Makes a [`Loader`] from a closure, which returns the value or a [`Loaded`]. With a `Loaded`,
/// write the type of the cache: the compiler cannot infer it.
///
/// ```
/// use wheelhouse::{Cache, loader_fn};
///
/// let lengths = Cache::builder()
///     .loading(loader_fn(|key: &String| Ok::<usize, ()>(key.len())))
///     .build();
/// assert_eq!(lengths.get("ada").unwrap(), 3);
/// ```
pub fn loader_fn<K, V, L, E, F>(load: F) -> impl Loader<K, V, Error = E>
where
    F: Fn(&K) -> Result<L, E> + Send + Sync + 'static,
    L: Into<Loaded<V>>,
    E: Send + Sync + 'static,
{
    Closure(load)
}

/// Makes an [`AsyncLoader`] from a closure that returns a future.
///
/// The future may not borrow the key: the closure copies it first. An `async |key| …` borrows it,
/// and fails with errors about types and lifetimes; implement [`AsyncLoader`] to borrow the key.
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
/// let doubles = Cache::builder().loading(load).spawner(|task| { tokio::spawn(task); }).build();
/// assert_eq!(doubles.get_async(&4).await.unwrap(), 8);
/// # }
/// ```
pub fn async_loader_fn<K, V, L, E, F, R>(load: F) -> impl AsyncLoader<K, V, Error = E>
where
    K: Send + Sync,
    V: Send + Sync,
    F: Fn(&K) -> R + Send + Sync + 'static,
    R: Future<Output = Result<L, E>> + Send,
    L: Into<Loaded<V>>,
    E: Send + Sync + 'static,
{
    Closure(load)
}

/// A closure as a loader of either kind.
struct Closure<F>(F);

impl<K, V, L, E, F> Loader<K, V> for Closure<F>
where
    F: Fn(&K) -> Result<L, E> + Send + Sync + 'static,
    L: Into<Loaded<V>>,
    E: Send + Sync + 'static,
{
    type Error = E;

    fn load(&self, key: &K) -> Result<Loaded<V>, E> {
        (self.0)(key).map(Into::into)
    }
}

impl<K, V, L, E, F, R> AsyncLoader<K, V> for Closure<F>
where
    K: Send + Sync,
    V: Send + Sync,
    F: Fn(&K) -> R + Send + Sync + 'static,
    R: Future<Output = Result<L, E>> + Send,
    L: Into<Loaded<V>>,
    E: Send + Sync + 'static,
{
    type Error = E;

    fn load(&self, key: &K) -> impl Future<Output = Result<Loaded<V>, E>> + Send {
        let future = (self.0)(key);
        async move { future.await.map(Into::into) }
    }
}
