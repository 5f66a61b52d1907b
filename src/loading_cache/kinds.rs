//! What may be given as a loader: a type or a closure, with futures or without. The cache keeps it
//! with its type erased.

use super::loader::{AsyncLoader, Loaded, Loader, Reloaded, Reply};
use crate::load::{CacheKey, CacheValue};
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

/// A task for the program's spawner.
pub(super) type Task = Pin<Box<dyn Future<Output = ()> + Send>>;

/// A future of a loader's answer.
type Answer<'a, T, E> = Pin<Box<dyn Future<Output = Result<T, E>> + Send + 'a>>;

/// A loader with its type erased.
#[allow(missing_debug_implementations, reason = "programs do not see it")]
pub enum AnyLoader<K, V, E> {
    Blocking(Arc<dyn Loader<K, V, Error = E>>),
    Async(Arc<dyn AnyAsyncLoader<K, V, E>>),
}

/// An [`AsyncLoader`] with its type erased.
pub trait AnyAsyncLoader<K, V, E>: Send + Sync {
    /// Loads a key; reloads it if there is an old value.
    fn load<'a>(&'a self, key: &'a K, old: Option<&'a V>) -> Answer<'a, Reply<V>, E>;
    fn load_many<'a>(&'a self, keys: &'a [K]) -> Answer<'a, Vec<Option<Loaded<V>>>, E>;
}

impl<K: CacheKey, V: CacheValue, L: AsyncLoader<K, V>> AnyAsyncLoader<K, V, L::Error> for L {
    fn load<'a>(&'a self, key: &'a K, old: Option<&'a V>) -> Answer<'a, Reply<V>, L::Error> {
        match old {
            Some(old) => Box::pin(async { self.reload(key, old).await.map(Reloaded::reply) }),
            None => Box::pin(async { AsyncLoader::load(self, key).await.map(Loaded::reply) }),
        }
    }

    fn load_many<'a>(&'a self, keys: &'a [K]) -> Answer<'a, Vec<Option<Loaded<V>>>, L::Error> {
        // The loader's own code runs in the poll, too, when the load has its leader.
        Box::pin(async { AsyncLoader::load_many(self, keys).await })
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
    fn erase(self) -> AnyLoader<K, V, Self::Error>;
}

impl<K: CacheKey, V: CacheValue, L: Loader<K, V>> IntoLoading<K, V, false> for L {
    type Error = L::Error;

    fn erase(self) -> AnyLoader<K, V, L::Error> {
        AnyLoader::Blocking(Arc::new(self))
    }
}

impl<K: CacheKey, V: CacheValue, L: AsyncLoader<K, V>> IntoLoading<K, V, true> for L {
    type Error = L::Error;

    fn erase(self) -> AnyLoader<K, V, L::Error> {
        AnyLoader::Async(Arc::new(self))
    }
}

/// Makes a [`Loader`] from a closure, which returns the value or a [`Loaded`].
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
    LoaderFn(load)
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
    AsyncLoaderFn(load)
}

struct LoaderFn<F>(F);

struct AsyncLoaderFn<F>(F);

impl<K, V, L, E, F> Loader<K, V> for LoaderFn<F>
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

impl<K, V, L, E, F, R> AsyncLoader<K, V> for AsyncLoaderFn<F>
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
