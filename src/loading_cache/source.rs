//! Loaders as the cache keeps them: of either kind, their types erased.

use super::error::LoadError;
use super::loader::{AsyncLoader, Loaded, Loader, Reloaded};
use crate::load::Failure;
use crate::loading::ReloadResult;
use crate::operations::{FromLoad, LifetimeSource};
use crate::time;
use std::any::Any;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

pub(super) type BoxFuture<T> = Pin<Box<dyn Future<Output = T> + Send>>;

/// A loader of either kind.
pub enum Source<K, V, E> {
    Blocking(Arc<dyn Loader<K, V, Error = E>>),
    Async(Arc<dyn Futures<K, V, E>>),
}

impl<K, V, E> std::fmt::Debug for Source<K, V, E> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Blocking(_) => "Blocking",
            Self::Async(_) => "Async",
        })
    }
}

/// An [`AsyncLoader`] whose futures own what they need.
pub trait Futures<K, V, E>: Send + Sync {
    fn load(self: Arc<Self>, key: K) -> BoxFuture<Result<Loaded<V>, E>>;
    fn reload(self: Arc<Self>, key: K, old: V) -> BoxFuture<Result<Reloaded<V>, E>>;
    fn load_many(self: Arc<Self>, keys: Vec<K>) -> BoxFuture<Result<Vec<Option<Loaded<V>>>, E>>;
}

struct Of<L>(L);

impl<K, V, L> Futures<K, V, L::Error> for Of<L>
where
    K: Send + Sync + 'static,
    V: Send + Sync + 'static,
    L: AsyncLoader<K, V>,
{
    fn load(self: Arc<Self>, key: K) -> BoxFuture<Result<Loaded<V>, L::Error>> {
        Box::pin(async move { self.0.load(&key).await })
    }

    fn reload(self: Arc<Self>, key: K, old: V) -> BoxFuture<Result<Reloaded<V>, L::Error>> {
        Box::pin(async move { self.0.reload(&key, &old).await })
    }

    fn load_many(
        self: Arc<Self>,
        keys: Vec<K>,
    ) -> BoxFuture<Result<Vec<Option<Loaded<V>>>, L::Error>> {
        Box::pin(async move { self.0.load_many(&keys).await })
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
    fn into_source(self) -> Source<K, V, Self::Error>;
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

    fn into_source(self) -> Source<K, V, L::Error> {
        Source::Blocking(Arc::new(self))
    }
}

impl<K, V, L> IntoLoading<K, V, IsAsync> for L
where
    K: Send + Sync + 'static,
    V: Send + Sync + 'static,
    L: AsyncLoader<K, V>,
{
    type Error = L::Error;

    fn into_source(self) -> Source<K, V, L::Error> {
        Source::Async(Arc::new(Of(self)))
    }
}

/// A failure as waiters share it.
pub(super) fn failure<E: Send + Sync + 'static>(error: LoadError<E>) -> Failure {
    let error: Arc<dyn Any + Send + Sync> = Arc::new(error);
    Failure::Error(error)
}

/// The failure that waiters get after a panic, or after a task was dropped.
pub(super) fn panicked<E: Send + Sync + 'static>() -> Failure {
    failure(LoadError::<E>::Panicked)
}

/// The answer of a loader; `None` if it panicked.
pub(super) fn reload_result<V, E: Send + Sync + 'static>(
    made: Option<Result<Reloaded<V>, E>>,
    old: Option<V>,
    took: Duration,
    reload: bool,
) -> ReloadResult<V> {
    let from = |lifetime, refresh| FromLoad {
        lifetime,
        refresh,
        reload,
        took,
    };
    match (LoadError::of(made), old) {
        (Err(error), _) => ReloadResult::Failed(failure(error)),
        (Ok(Reloaded::New(loaded)), _) => {
            ReloadResult::New(loaded.value, from(loaded.lifetime, loaded.refresh))
        }
        (Ok(Reloaded::Unchanged), Some(old)) => ReloadResult::Unchanged(old, from(None, None)),
        (
            Ok(Reloaded::UnchangedFor {
                expires_in,
                refresh_in,
            }),
            Some(old),
        ) => ReloadResult::Unchanged(old, from(expires_in.map(Some), refresh_in)),
        // Without an old value there is nothing that could be unchanged.
        (Ok(_), _) => ReloadResult::Gone,
    }
}

/// The value to store, and where its lifetime comes from.
pub(super) fn put<V>(loaded: Loaded<V>, took: Duration) -> (V, LifetimeSource) {
    let from = FromLoad {
        lifetime: loaded.lifetime,
        refresh: loaded.refresh,
        reload: false,
        took,
    };
    (loaded.value, LifetimeSource::Loaded(from))
}

/// The time between two readings of a cache's clock.
pub(super) fn between(began: u64, ended: u64) -> Duration {
    Duration::from_nanos(time::elapsed(ended, began))
}
