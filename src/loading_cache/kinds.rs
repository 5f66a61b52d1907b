//! What may be given as a loader: a type or a closure, with futures or without. The cache keeps it
//! with its type erased.

use super::loader::{AsyncLoader, Loaded, Loader, Reloaded};
use crate::load::wait::in_loader;
use crate::load::{CacheKey, CacheValue, Keyless};
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

/// A task for the program's spawner.
pub(super) type Task = Pin<Box<dyn Future<Output = ()> + Send>>;

/// What a loader has made of a key, with the value in a box, as it may be large.
pub(super) type Boxed<V> = Reloaded<Box<Keyless<V>>>;

/// A loader's answer, or a future of it.
#[allow(missing_debug_implementations, reason = "programs do not see it")]
pub enum Answering<'a, T, E> {
    Now(Result<T, E>),
    Later(Pin<Box<dyn Future<Output = Result<T, E>> + Send + 'a>>),
}

/// A loader with its type erased.
pub trait AnyLoader<K, V, E>: Send + Sync {
    /// Loads a key; reloads it if there is an old value.
    fn load<'a>(&'a self, key: &'a K, old: Option<&'a V>) -> Answering<'a, Boxed<V>, E>;
    fn load_many<'a>(&'a self, keys: &'a [K]) -> Answering<'a, Vec<Option<Loaded<V>>>, E>;
}

struct Blocking<L>(L);

struct Async<L>(L);

impl<K: CacheKey, V: CacheValue, L: Loader<K, V>> AnyLoader<K, V, L::Error> for Blocking<L> {
    fn load<'a>(&'a self, key: &'a K, old: Option<&'a V>) -> Answering<'a, Boxed<V>, L::Error> {
        Answering::Now(in_loader(|| match old {
            Some(old) => self.0.reload(key, old).map(Reloaded::boxed),
            None => self.0.load(key).map(Loaded::boxed),
        }))
    }

    fn load_many<'a>(&'a self, keys: &'a [K]) -> Answering<'a, Vec<Option<Loaded<V>>>, L::Error> {
        Answering::Now(in_loader(|| self.0.load_many(keys)))
    }
}

impl<K: CacheKey, V: CacheValue, L: AsyncLoader<K, V>> AnyLoader<K, V, L::Error> for Async<L> {
    fn load<'a>(&'a self, key: &'a K, old: Option<&'a V>) -> Answering<'a, Boxed<V>, L::Error> {
        Answering::Later(match old {
            Some(old) => Box::pin(async { self.0.reload(key, old).await.map(Reloaded::boxed) }),
            None => Box::pin(async { self.0.load(key).await.map(Loaded::boxed) }),
        })
    }

    fn load_many<'a>(&'a self, keys: &'a [K]) -> Answering<'a, Vec<Option<Loaded<V>>>, L::Error> {
        Answering::Later(Box::pin(self.0.load_many(keys)))
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

impl<K: CacheKey, V: CacheValue, L: Loader<K, V>> IntoLoading<K, V, false> for L {
    type Error = L::Error;

    fn erase(self) -> Arc<dyn AnyLoader<K, V, L::Error>> {
        Arc::new(Blocking(self))
    }
}

impl<K: CacheKey, V: CacheValue, L: AsyncLoader<K, V>> IntoLoading<K, V, true> for L {
    type Error = L::Error;

    fn erase(self) -> Arc<dyn AnyLoader<K, V, L::Error>> {
        Arc::new(Async(self))
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
