//! Loaders made from closures.

use super::loader::{AsyncLoader, Loaded, Loader};
use std::fmt;
use std::future::Future;

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
