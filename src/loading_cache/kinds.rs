//! What may be given as a loader: a type or a closure, with futures or without. The cache keeps it
//! with its type erased.

use super::loader::{AsyncLoader, Loaded, Loader, Reloaded};
use crate::load::{CacheKey, CacheValue};
use std::fmt;
use std::future::Future;
use std::pin::Pin;

/// A task for the program's spawner.
pub(super) type Task = BoxFuture<'static, ()>;

type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// A loader of either kind.
pub enum AnyLoader<K, V, E> {
    Blocking(Box<dyn Loader<K, V, Error = E>>),
    Async(Box<dyn BoxedFutures<K, V, E>>),
}

impl<K, V, E> fmt::Debug for AnyLoader<K, V, E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Blocking(_) => "Blocking",
            Self::Async(_) => "Async",
        })
    }
}

impl<K: CacheKey, V: CacheValue, E: Send + Sync + 'static> AnyLoader<K, V, E> {
    /// Makes the value of a key whose present value is `old`.
    pub(super) async fn load_or_reload(&self, key: &K, old: Option<&V>) -> Result<Reloaded<V>, E> {
        match (self, old) {
            (Self::Blocking(loader), Some(old)) => loader.reload(key, old),
            (Self::Blocking(loader), None) => loader.load(key).map(Reloaded::New),
            (Self::Async(loader), Some(old)) => loader.reload(key, old).await,
            (Self::Async(loader), None) => loader.load(key).await.map(Reloaded::New),
        }
    }

    /// Makes the values of several keys.
    pub(super) async fn load_many(&self, keys: &[K]) -> Result<Vec<Option<Loaded<V>>>, E> {
        match self {
            Self::Blocking(loader) => loader.load_many(keys),
            Self::Async(loader) => loader.load_many(keys).await,
        }
    }
}

/// An [`AsyncLoader`] with its futures in boxes.
pub trait BoxedFutures<K, V, E>: Send + Sync {
    fn load<'a>(&'a self, key: &'a K) -> BoxFuture<'a, Result<Loaded<V>, E>>;
    fn reload<'a>(&'a self, key: &'a K, old: &'a V) -> BoxFuture<'a, Result<Reloaded<V>, E>>;
    fn load_many<'a>(&'a self, keys: &'a [K]) -> BoxFuture<'a, Result<Vec<Option<Loaded<V>>>, E>>;
}

impl<K, V, L> BoxedFutures<K, V, L::Error> for L
where
    K: Send + Sync + 'static,
    V: Send + Sync + 'static,
    L: AsyncLoader<K, V>,
{
    fn load<'a>(&'a self, key: &'a K) -> BoxFuture<'a, Result<Loaded<V>, L::Error>> {
        Box::pin(AsyncLoader::load(self, key))
    }

    fn reload<'a>(
        &'a self,
        key: &'a K,
        old: &'a V,
    ) -> BoxFuture<'a, Result<Reloaded<V>, L::Error>> {
        Box::pin(AsyncLoader::reload(self, key, old))
    }

    fn load_many<'a>(
        &'a self,
        keys: &'a [K],
    ) -> BoxFuture<'a, Result<Vec<Option<Loaded<V>>>, L::Error>> {
        Box::pin(AsyncLoader::load_many(self, keys))
    }
}

/// What [`CacheBuilder::loading`](crate::CacheBuilder::loading) accepts: a [`Loader`] or an
/// [`AsyncLoader`]. `M` tells the two apart, and is always inferred.
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
pub trait IntoLoading<K, V, M> {
    /// The loader's error.
    type Error: Send + Sync + 'static;

    #[doc(hidden)]
    fn erase(self) -> AnyLoader<K, V, Self::Error>;
}

/// Marks a [`Loader`].
#[doc(hidden)]
#[derive(Debug)]
pub enum IsBlocking {}

/// Marks an [`AsyncLoader`].
#[doc(hidden)]
#[derive(Debug)]
pub enum IsAsync {}

impl<K, V, L: Loader<K, V>> IntoLoading<K, V, IsBlocking> for L {
    type Error = L::Error;

    fn erase(self) -> AnyLoader<K, V, L::Error> {
        AnyLoader::Blocking(Box::new(self))
    }
}

impl<K, V, L> IntoLoading<K, V, IsAsync> for L
where
    K: Send + Sync + 'static,
    V: Send + Sync + 'static,
    L: AsyncLoader<K, V>,
{
    type Error = L::Error;

    fn erase(self) -> AnyLoader<K, V, L::Error> {
        AnyLoader::Async(Box::new(self))
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
pub fn loader_fn<K, L, E, F>(load: F) -> LoaderFn<F>
where
    F: Fn(&K) -> Result<L, E> + Send + Sync + 'static,
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
pub fn async_loader_fn<K, L, E, F, R>(load: F) -> AsyncLoaderFn<F>
where
    F: Fn(&K) -> R + Send + Sync + 'static,
    R: Future<Output = Result<L, E>> + Send,
{
    AsyncLoaderFn(load)
}

/// The loader made by [`loader_fn`].
#[derive(Clone, Copy)]
pub struct LoaderFn<F>(F);

/// The loader made by [`async_loader_fn`].
#[derive(Clone, Copy)]
pub struct AsyncLoaderFn<F>(F);

impl<F> fmt::Debug for LoaderFn<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LoaderFn").finish_non_exhaustive()
    }
}

impl<F> fmt::Debug for AsyncLoaderFn<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AsyncLoaderFn").finish_non_exhaustive()
    }
}

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
