//! Entry selectors: a key, and what to do with its entry. `or_*` make a value for an absent key.

use super::claim::{Claimant, Request};
use super::guard::Keyless;
use super::key::{ByRef, Key, Owned};
use super::run::{
    Made, conclude, fallible, of_option, of_pair, of_result, of_value, or_error, sure,
};
use super::state::{Outcome, Want};
use crate::RandomState;
use crate::cache::Cache;
use crate::compute::Entry;
use equivalent::Equivalent;
use std::borrow::ToOwned;
use std::fmt;
use std::future::Future;
use std::hash::{BuildHasher, Hash};
use std::sync::Arc;
use std::time::Duration;

/// A key of a cache, and what to do with its entry; from [`Cache::entry`].
///
/// At most one closure runs for a key at any time, whatever the method. The methods `or_*` make a
/// value if the key has none; calls that come meanwhile share it, as with
/// [`get_with`](Cache::get_with). The methods `and_*` see the live entry and change it; they take
/// turns, the longest-waiting call first.
///
/// ```
/// let cache = wheelhouse::Cache::new(100);
/// let entry = cache.entry("ada").or_insert_with(|| 1815);
/// assert_eq!(*entry.value(), 1815);
/// let entry = cache.entry("ada").and_upsert_with(|old| old.map_or(0, |old| old.into_value() + 1));
/// assert_eq!(*entry.value(), 1816);
/// ```
#[must_use = "a selector does nothing by itself"]
pub struct EntrySelector<'a, K, V, S = RandomState, Y = Owned<K>> {
    pub(super) cache: &'a Cache<K, V, S>,
    pub(super) key: Y,
    // The struct uses `K` only through `Y`.
    _key: std::marker::PhantomData<fn() -> K>,
}

/// A borrowed key of a cache, and what to do with its entry; from [`Cache::entry_by_ref`]. An owned
/// key is made only if a load needs one.
///
/// ```
/// let cache: wheelhouse::Cache<String, u32> = wheelhouse::Cache::new(100);
/// assert_eq!(*cache.entry_by_ref("ada").or_insert(1815).value(), 1815);
/// ```
pub type RefEntrySelector<'a, K, Q, V, S = RandomState> =
    EntrySelector<'a, K, V, S, ByRef<'a, Q, K>>;

impl<K, V, S> Cache<K, V, S>
where
    K: Hash + Eq + Clone + Send + Sync + 'static,
    V: Clone + Send + Sync + 'static,
    S: BuildHasher + Send + Sync + 'static,
{
    /// Selects the entry of a key; the selector's methods read or change it.
    ///
    /// A counter whose window ends at a fixed time, such as a rate limiter's, is `and_upsert_with`
    /// on a cache with [`expiry::creating`](crate::expiry::creating): see
    /// `examples/rate_limiter.rs`.
    ///
    /// # Cost
    ///
    /// Selecting costs nothing. A hit of an `or_…` method costs a [`get_ref`](Self::get_ref) and a
    /// clone of the value; an `and_…` method takes its turn among the loads of the key, as a load
    /// does.
    ///
    /// ```
    /// let cache = wheelhouse::Cache::new(100);
    /// assert!(cache.entry("ada").or_insert(1815).is_fresh());
    /// assert_eq!(cache.entry("ada").or_insert(0).into_value(), 1815);
    /// ```
    pub fn entry(&self, key: K) -> EntrySelector<'_, K, V, S> {
        EntrySelector {
            cache: self,
            key: Owned(Some(key)),
            _key: std::marker::PhantomData,
        }
    }

    /// As [`entry`](Self::entry), by a borrowed form of the key.
    ///
    /// # Cost
    ///
    /// As [`entry`](Self::entry); an owned key is made if the call loads, and for the entry that it
    /// returns.
    ///
    /// ```
    /// let cache: wheelhouse::Cache<String, u32> = wheelhouse::Cache::new(100);
    /// assert_eq!(cache.entry_by_ref("ada").or_default().into_value(), 0);
    /// ```
    pub fn entry_by_ref<'a, Q>(&'a self, key: &'a Q) -> RefEntrySelector<'a, K, Q, V, S>
    where
        Q: Equivalent<K> + Hash + ToOwned<Owned = K> + ?Sized,
    {
        EntrySelector {
            cache: self,
            key: ByRef::new(key),
            _key: std::marker::PhantomData,
        }
    }
}

// Out of line: its room on the stack is free while the load runs.
#[inline(never)]
fn entry<K, V>(
    key: K,
    outcome: Result<Box<Keyless<V>>, Outcome<V>>,
) -> Result<Entry<K, V>, Outcome<V>> {
    outcome.map(|seen| seen.with_key(key))
}

impl<'a, K, V, S, Y> EntrySelector<'a, K, V, S, Y>
where
    K: Hash + Eq + Clone + Send + Sync + 'static,
    V: Clone + Send + Sync + 'static,
    S: BuildHasher + Send + Sync + 'static,
    Y: Key<K>,
{
    /// The entry of a key that is present, unless its value is refused; else the selector again.
    pub(super) fn present(self, accept: impl FnOnce(&V) -> bool) -> Result<Entry<K, V>, Self> {
        let hit = self.cache.get_ref(self.key.query());
        match hit.map(|found| (found.value().clone(), found.time_left())) {
            Some((value, left)) if accept(&value) => Ok(Entry {
                left,
                ..Keyless::hit(value).with_key(self.key.into_owned())
            }),
            _ => Err(self),
        }
    }

    #[track_caller]
    fn load(self, want: Want, make: impl FnOnce() -> Made<V>) -> Result<Entry<K, V>, Outcome<V>> {
        let selector = match self.present(|_| true) {
            Ok(entry) => return Ok(entry),
            Err(selector) => selector,
        };
        let key = selector.key.copy();
        let core = selector.cache.core();
        let claimant = Claimant::new(core, selector.key, Request::value(want));
        entry(key, conclude(claimant.run(|_| make())))
    }

    async fn load_async<F: Future, R>(
        self,
        want: Want,
        init: impl FnOnce() -> F,
        made: impl FnOnce(F::Output) -> Made<V>,
        answer: impl FnOnce(Result<Entry<K, V>, Outcome<V>>) -> R,
    ) -> R {
        let selector = match self.present(|_| true) {
            Ok(entry) => return answer(Ok(entry)),
            Err(selector) => selector,
        };
        let key = selector.key.copy();
        let (core, ask) = (selector.cache.core(), Request::value(want));
        let finish = |run| answer(entry(key, conclude(run)));
        let hit = None::<fn(V) -> R>;
        Claimant::new(core, selector.key, ask)
            .run_async(hit, |_| init(), made, finish)
            .await
    }

    /// Returns the key's entry, or stores a new one with the default value.
    ///
    /// # Panics
    ///
    /// As [`or_insert_with`](Self::or_insert_with).
    ///
    /// ```
    /// let cache: wheelhouse::Cache<&str, u32> = wheelhouse::Cache::new(100);
    /// assert_eq!(cache.entry("k").or_default().into_value(), 0);
    /// ```
    #[track_caller]
    pub fn or_default(self) -> Entry<K, V>
    where
        V: Default,
    {
        self.or_insert_with(V::default)
    }

    /// Returns the key's entry, or stores a new one with this value.
    ///
    /// # Panics
    ///
    /// As [`or_insert_with`](Self::or_insert_with).
    ///
    /// ```
    /// let cache = wheelhouse::Cache::new(100);
    /// assert!(cache.entry("k").or_insert(1).is_fresh());
    /// assert_eq!(cache.entry("k").or_insert(2).into_value(), 1);
    /// ```
    #[track_caller]
    pub fn or_insert(self, value: V) -> Entry<K, V> {
        self.or_insert_with(|| value)
    }

    /// Returns the key's entry, or stores a new one with the value that `init` makes, as
    /// [`get_with`](Cache::get_with) does it.
    ///
    /// # Panics
    ///
    /// As `get_with`.
    ///
    /// ```
    /// let cache = wheelhouse::Cache::new(100);
    /// assert_eq!(cache.entry("k").or_insert_with(|| 1).into_value(), 1);
    /// ```
    #[track_caller]
    pub fn or_insert_with(self, init: impl FnOnce() -> V) -> Entry<K, V> {
        sure(self.load(Want::Value, || of_value(init())))
    }

    /// As [`or_insert_with`](Self::or_insert_with), with a lifetime that `init` knows: the entry
    /// lives as long as one that [`insert_with_ttl`](Cache::insert_with_ttl) stores.
    ///
    /// # Panics
    ///
    /// As [`get_with`](Cache::get_with).
    ///
    /// ```
    /// use std::time::Duration;
    ///
    /// let cache = wheelhouse::Cache::new(100);
    /// let entry = cache.entry("k").or_insert_with_ttl(|| (1, Duration::from_secs(60)));
    /// assert_eq!(entry.time_left(), Some(Duration::from_secs(60)));
    /// ```
    #[track_caller]
    pub fn or_insert_with_ttl(self, init: impl FnOnce() -> (V, Duration)) -> Entry<K, V> {
        sure(self.load(Want::Value, || of_pair(init())))
    }

    /// As [`or_insert_with`](Self::or_insert_with), if `init` makes a value.
    ///
    /// # Panics
    ///
    /// As [`get_with`](Cache::get_with).
    ///
    /// ```
    /// let cache: wheelhouse::Cache<&str, u32> = wheelhouse::Cache::new(100);
    /// assert!(cache.entry("k").or_optionally_insert_with(|| None).is_none());
    /// ```
    #[track_caller]
    pub fn or_optionally_insert_with(
        self,
        init: impl FnOnce() -> Option<V>,
    ) -> Option<Entry<K, V>> {
        self.load(Want::Optional, || of_option(init())).ok()
    }

    /// As [`or_insert_with`](Self::or_insert_with), if `init` succeeds.
    ///
    /// # Errors
    ///
    /// That of `init`, or of the call that this one has waited for.
    ///
    /// # Panics
    ///
    /// As [`get_with`](Cache::get_with).
    ///
    /// ```
    /// let cache: wheelhouse::Cache<&str, u32> = wheelhouse::Cache::new(100);
    /// let entry = cache.entry("k").or_try_insert_with(|| "7".parse());
    /// assert_eq!(entry.unwrap().into_value(), 7);
    /// ```
    #[track_caller]
    pub fn or_try_insert_with<E>(
        self,
        init: impl FnOnce() -> Result<V, E>,
    ) -> Result<Entry<K, V>, Arc<E>>
    where
        E: Send + Sync + 'static,
    {
        or_error(self.load(fallible::<E>(), || of_result(init())))
    }

    /// As [`or_insert_with`](Self::or_insert_with), with a closure that returns a future.
    ///
    /// # Panics
    ///
    /// As [`get_with_async`](Cache::get_with_async).
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() {
    /// let cache = wheelhouse::Cache::new(100);
    /// let entry = cache.entry("k").or_insert_with_async(|| async { 1 }).await;
    /// assert_eq!(entry.into_value(), 1);
    /// # }
    /// ```
    pub fn or_insert_with_async<F>(
        self,
        init: impl FnOnce() -> F,
    ) -> impl Future<Output = Entry<K, V>>
    where
        F: Future<Output = V>,
    {
        self.load_async(Want::Value, init, of_value, sure)
    }

    /// As [`or_insert_with_ttl`](Self::or_insert_with_ttl), with a closure that returns a future.
    ///
    /// # Panics
    ///
    /// As [`get_with_async`](Cache::get_with_async).
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() {
    /// use std::time::Duration;
    ///
    /// let cache = wheelhouse::Cache::new(100);
    /// let load = || async { (1, Duration::from_secs(60)) };
    /// let entry = cache.entry("k").or_insert_with_ttl_async(load).await;
    /// assert!(entry.time_left().is_some());
    /// # }
    /// ```
    pub fn or_insert_with_ttl_async<F>(
        self,
        init: impl FnOnce() -> F,
    ) -> impl Future<Output = Entry<K, V>>
    where
        F: Future<Output = (V, Duration)>,
    {
        self.load_async(Want::Value, init, of_pair, sure)
    }

    /// As [`or_optionally_insert_with`](Self::or_optionally_insert_with), with a closure that
    /// returns a future.
    ///
    /// # Panics
    ///
    /// As [`get_with_async`](Cache::get_with_async).
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() {
    /// let cache: wheelhouse::Cache<&str, u32> = wheelhouse::Cache::new(100);
    /// let entry = cache.entry("k").or_optionally_insert_with_async(|| async { None }).await;
    /// assert!(entry.is_none());
    /// # }
    /// ```
    pub fn or_optionally_insert_with_async<F>(
        self,
        init: impl FnOnce() -> F,
    ) -> impl Future<Output = Option<Entry<K, V>>>
    where
        F: Future<Output = Option<V>>,
    {
        self.load_async(Want::Optional, init, of_option, Result::ok)
    }

    /// As [`or_try_insert_with`](Self::or_try_insert_with), with a closure that returns a future.
    ///
    /// # Errors
    ///
    /// That of `init`, or of the call that this one has waited for.
    ///
    /// # Panics
    ///
    /// As [`get_with_async`](Cache::get_with_async).
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() {
    /// let cache: wheelhouse::Cache<&str, u32> = wheelhouse::Cache::new(100);
    /// let entry = cache.entry("k").or_try_insert_with_async(|| async { "7".parse() }).await;
    /// assert_eq!(entry.unwrap().into_value(), 7);
    /// # }
    /// ```
    pub fn or_try_insert_with_async<E, F>(
        self,
        init: impl FnOnce() -> F,
    ) -> impl Future<Output = Result<Entry<K, V>, Arc<E>>>
    where
        E: Send + Sync + 'static,
        F: Future<Output = Result<V, E>>,
    {
        self.load_async(fallible::<E>(), init, of_result, or_error)
    }
}

impl<K: fmt::Debug, V, S, Y> fmt::Debug for EntrySelector<'_, K, V, S, Y> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EntrySelector").finish_non_exhaustive()
    }
}
