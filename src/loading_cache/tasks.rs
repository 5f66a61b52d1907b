//! The methods for tasks.

use super::LoadingCache;
use super::error::LoadError;
use super::run::{made, result};
use super::source::{Source, put};
use crate::loading::{ByRef, Got, LoadRequest, Loading, RoleSearch, fallible};
use equivalent::Equivalent;
use std::borrow::ToOwned;
use std::future::ready;
use std::hash::{BuildHasher, Hash};

impl<K, V, E, S> LoadingCache<K, V, E, S>
where
    K: Hash + Eq + Clone + Send + Sync + 'static,
    V: Clone + Send + Sync + 'static,
    E: Send + Sync + 'static,
    S: BuildHasher + Send + Sync + 'static,
{
    /// As [`get`](Self::get), for tasks.
    ///
    /// A [`Loader`](crate::Loader) runs within the first poll. The future of an
    /// [`AsyncLoader`](crate::AsyncLoader) is shared by all calls that wait for the key: each that
    /// is polled drives it. If all of them are dropped, it goes to the
    /// [`spawner`](crate::LoadingBuilder::spawner).
    ///
    /// # Errors
    ///
    /// As `get`. For an async loader, a panic of other user code (the expiry policy, the weigher)
    /// is a [`LoadError::Panicked`], too.
    ///
    /// # Panics
    ///
    /// As `get`.
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
    /// let cache = Cache::builder().loading(load).spawner(|task| { tokio::spawn(task); }).build();
    /// assert_eq!(cache.get_async(&4).await.unwrap(), 8);
    /// # }
    /// ```
    pub async fn get_async<Q>(&self, key: &Q) -> Result<V, LoadError<E>>
    where
        Q: Equivalent<K> + Hash + ToOwned<Owned = K> + ?Sized,
    {
        if let Some(value) = self.get_if_present(key) {
            return Ok(value);
        }
        match &self.inner.source {
            Source::Blocking(loader) => {
                let ask = LoadRequest::value(fallible::<LoadError<E>>());
                let search = RoleSearch::new(&self.cache.core, ByRef::new(key), ask);
                let load = async { self.timed(|| loader.load(&key.to_owned())) };
                Loading::new(search, |_: Option<&Got<V>>| load, made, result).await
            }
            Source::Async(loader) => self.load_driven(loader, key).await,
        }
    }

    /// As [`get_all`](Self::get_all), for tasks.
    ///
    /// A [`Loader`](crate::Loader) runs within a poll. The future of an
    /// [`AsyncLoader`](crate::AsyncLoader) is shared as that of [`get_async`](Self::get_async), by
    /// all calls that wait for one of its keys. This call drives the loads of other calls when its
    /// own have ended.
    ///
    /// # Errors
    ///
    /// As `get_all`. For an async loader, a panic of other user code (the expiry policy, the
    /// weigher) is a [`LoadError::Panicked`], too.
    ///
    /// # Panics
    ///
    /// As `get_all`.
    ///
    /// ```
    /// use wheelhouse::{Cache, loader_fn};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() {
    /// let cache = Cache::builder().loading(loader_fn(|key: &u32| Ok::<u32, ()>(key * 2))).build();
    /// assert_eq!(cache.get_all_async([1, 2]).await.unwrap(), [Some(2), Some(4)]);
    /// # }
    /// ```
    pub async fn get_all_async(
        &self,
        keys: impl IntoIterator<Item = K>,
    ) -> Result<Vec<Option<V>>, LoadError<E>> {
        let (keys, stale) = self.look_up_all(keys);
        let values = match &self.inner.source {
            Source::Blocking(loader) => {
                let store = |(value, took)| put(value, took);
                let load = |keys: Vec<K>| ready(self.load_many(&**loader, &keys));
                let values = self.cache.get_all_as_async(keys, load, store).await;
                values.map_err(|error| (*error).clone())
            }
            Source::Async(loader) => self.load_all_driven(loader, keys).await,
        };
        stale.iter().for_each(|key| self.reload(key));
        values
    }
}
