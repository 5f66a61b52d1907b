//! The methods for threads.

use super::LoadingCache;
use super::error::LoadError;
use super::refreshing::{Refreshing, refreshing};
use super::run::{block_on, made, result};
use super::source::{Source, put};
use crate::load::Want;
use crate::loading::{ByRef, Dropped, LoadRequest, Role, fallible};
use crate::operations::Timed;
use equivalent::Equivalent;
use std::any::TypeId;
use std::borrow::ToOwned;
use std::hash::{BuildHasher, Hash};

impl<K, V, E, S> LoadingCache<K, V, E, S>
where
    K: Hash + Eq + Clone + Send + Sync + 'static,
    V: Clone + Send + Sync + 'static,
    E: Send + Sync + 'static,
    S: BuildHasher + Send + Sync + 'static,
{
    /// Returns the value of a key, and loads it if the key is absent.
    ///
    /// A [`Loader`](crate::Loader) runs on this thread. For an [`AsyncLoader`](crate::AsyncLoader)
    /// the thread waits, and drives the future if no other waiter does.
    ///
    /// # Errors
    ///
    /// If the loader fails or panics: nothing is stored. Calls that waited share the error. If a
    /// load of an [`AsyncLoader`](crate::AsyncLoader) that this call has begun takes longer than
    /// [`load_timeout`](crate::LoadingBuilder::load_timeout). If the load of another call becomes
    /// overdue, a call that waits for it waits once more, for the newer load.
    ///
    /// # Panics
    ///
    /// If user code other than the loader panics; or if the call would wait for a load that its own
    /// thread leads, as [`Cache::get_with`](crate::Cache::get_with) says.
    ///
    /// # Cost
    ///
    /// A hit costs what [`Cache::get`](crate::Cache::get) costs, and one comparison.
    ///
    /// ```
    /// use wheelhouse::{Cache, loader_fn};
    ///
    /// let cache = Cache::builder().loading(loader_fn(|key: &u32| Ok::<u32, ()>(key * 2))).build();
    /// assert_eq!(cache.get(&4).unwrap(), 8);
    /// ```
    #[inline]
    #[track_caller]
    pub fn get<Q>(&self, key: &Q) -> Result<V, LoadError<E>>
    where
        Q: Equivalent<K> + Hash + ToOwned<Owned = K> + ?Sized,
    {
        if let Some(value) = self.get_if_present(key) {
            return Ok(value);
        }
        self.load(key)
    }

    #[cold]
    #[inline(never)]
    #[track_caller]
    fn load<Q>(&self, key: &Q) -> Result<V, LoadError<E>>
    where
        Q: Equivalent<K> + Hash + ToOwned<Owned = K> + ?Sized,
    {
        match &self.inner.source {
            Source::Blocking(loader) => {
                let ask = LoadRequest::value(fallible::<LoadError<E>>());
                let core = &self.cache.core;
                let end = core.loads().run(ByRef::new(key), ask, |_| {
                    made(self.timed(|| loader.load(&key.to_owned())))
                });
                result(end)
            }
            Source::Async(loader) => block_on(self.load_driven(loader, key), self.check_interval()),
        }
    }

    /// Returns the values of several keys, in their order. Those that are absent are loaded by one
    /// call of [`load_many`](crate::Loader::load_many). `None` for a key for which the loader
    /// returns `None`.
    ///
    /// A key that another call is loading is not loaded again: this call waits for it, after its
    /// own keys were stored.
    ///
    /// # Errors
    ///
    /// If the loader fails or panics: then the keys that it was given are not stored.
    ///
    /// # Panics
    ///
    /// As [`Cache::get_all_with`](crate::Cache::get_all_with).
    ///
    /// ```
    /// use wheelhouse::{Cache, loader_fn};
    ///
    /// let cache = Cache::builder().loading(loader_fn(|key: &u32| Ok::<u32, ()>(key * 2))).build();
    /// assert_eq!(cache.get_all([1, 2, 1]).unwrap(), [Some(2), Some(4), Some(2)]);
    /// ```
    #[track_caller]
    pub fn get_all(
        &self,
        keys: impl IntoIterator<Item = K>,
    ) -> Result<Vec<Option<V>>, LoadError<E>> {
        match &self.inner.source {
            Source::Blocking(loader) => {
                let (keys, stale) = self.look_up_all(keys);
                let load = |keys: &[K]| self.load_many(&**loader, keys);
                let store = |(value, took)| put(value, took);
                let values = self.cache.get_all_as(keys, load, store);
                stale.iter().for_each(|key| self.reload(key));
                values.map_err(|error| (*error).clone())
            }
            Source::Async(_) => block_on(self.get_all_async(keys), self.check_interval()),
        }
    }

    /// Returns the value of a key if it is present; loads nothing. Starts a reload if the value is
    /// stale.
    ///
    /// # Panics
    ///
    /// As [`Cache::get`](crate::Cache::get).
    ///
    /// ```
    /// use wheelhouse::{Cache, loader_fn};
    ///
    /// let cache = Cache::builder().loading(loader_fn(|key: &u32| Ok::<u32, ()>(key * 2))).build();
    /// assert_eq!(cache.get_if_present(&4), None);
    /// assert_eq!(cache.get(&4).unwrap(), 8);
    /// assert_eq!(cache.get_if_present(&4), Some(8));
    /// ```
    #[inline]
    pub fn get_if_present<Q>(&self, key: &Q) -> Option<V>
    where
        Q: Equivalent<K> + Hash + ?Sized,
    {
        let (value, at, now) = self.cache.core.look_up::<Timed, _>(key)?;
        if self.is_stale(at, now) {
            self.reload(key);
        }
        Some(value)
    }

    /// Reloads a key, whether or not its value is stale, or joins the load that is under way. An
    /// absent key is loaded.
    ///
    /// # Panics
    ///
    /// If the key's `Hash`, `Eq` or `Clone` panics.
    ///
    /// ```
    /// use std::sync::atomic::{AtomicU32, Ordering};
    /// use wheelhouse::{Cache, loader_fn};
    ///
    /// let runs = AtomicU32::new(0);
    /// let load = loader_fn(move |_: &&str| Ok::<u32, ()>(runs.fetch_add(1, Ordering::Relaxed)));
    /// let cache = Cache::builder().loading(load).build();
    /// assert_eq!(cache.get(&"k").unwrap(), 0);
    /// assert_eq!(cache.refresh("k").wait().unwrap(), Some(1));
    /// assert_eq!(cache.get(&"k").unwrap(), 1);
    /// ```
    pub fn refresh(&self, key: K) -> Refreshing<V, E> {
        let core = &self.cache.core;
        let want = Want::Any(TypeId::of::<LoadError<E>>());
        let ask = LoadRequest {
            over_present: true,
            ..LoadRequest::value(want)
        };
        let mut ticket = None;
        let hash = core.hash(&key);
        let wait = match core
            .loads()
            .begin(None, &mut ByRef::new(&key), hash, &ask, &mut ticket)
        {
            Role::Lead(lead, seen) => {
                let until = seen.and_then(|_| core.loads().mark_reload(lead.load()));
                let right = self.right_of(lead, until, Dropped::Fails);
                (self.inner).launch_and_wait(core, &core.downgrade(), right)
            }
            Role::Joined(load) => self.wait_for(load, ticket),
            Role::Found(_) | Role::Busy => unreachable!("it runs over an entry, and waits"),
        };
        refreshing(wait, self)
    }
}
