//! Leases: the right to load a key as a value, for code that cannot run inside a closure.

use super::claim::{Claim, Claimant};
use super::guard::{Commit, OwnedGuard};
use super::key::ToKey;
use crate::RandomState;
use crate::cache::Cache;
use crate::compute::Keyless;
use crate::engine::LifetimeSource;
use crate::flight::{Outcome, Want};
use crate::operations::EntryRef;
use crate::sync::block::{block_on, block_until};
use equivalent::Equivalent;
use std::borrow::Borrow;
use std::convert::identity;
use std::fmt;
use std::future::Future;
use std::hash::{BuildHasher, Hash};
use std::marker::PhantomData;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The answer of [`Cache::lease`]. There will be no other answers: a `match` needs no `_`.
///
/// ```
/// use wheelhouse::{Cache, Leased};
///
/// let cache = Cache::new(100);
/// if let Leased::Lease(lease) = cache.lease("ada") {
///     lease.fill(1815);
/// }
/// assert!(matches!(cache.lease("ada"), Leased::Found(1815)));
/// ```
#[must_use]
pub enum Leased<K, V, S = RandomState> {
    /// The key's value.
    Found(V),
    /// The key is absent: the caller may load it.
    Lease(Lease<K, V, S>),
    /// Another call loads the key, and the time to wait is over. From
    /// [`lease_timeout`](Cache::lease_timeout) only.
    Busy,
}

/// The right to load a key. Other calls that need the key's value wait until the lease is filled,
/// fails, or is dropped; after a drop, the call that has waited longest loads the key itself.
///
/// It can be sent to other threads and does not keep the cache alive.
///
/// ```
/// use std::thread;
/// use wheelhouse::{Cache, Leased};
///
/// let cache = Cache::new(100);
/// let Leased::Lease(lease) = cache.lease("ada") else { unreachable!("the key is absent") };
/// thread::spawn(move || lease.fill(1815)).join().unwrap();
/// assert_eq!(cache.get("ada"), Some(1815));
/// ```
#[must_use]
pub struct Lease<K, V, S = RandomState> {
    guard: OwnedGuard<K, V>,
    _hasher: PhantomData<S>,
}

/// What became of a value that filled a [`Lease`]. There will be no other outcomes: a `match` needs
/// no `_`.
///
/// ```
/// use wheelhouse::{Cache, Filled, Leased};
///
/// let cache = Cache::new(100);
/// let Leased::Lease(lease) = cache.lease("ada") else { unreachable!("the key is absent") };
/// cache.insert("ada", 1852);
/// assert!(matches!(lease.fill(1815), Filled::Lost { current: 1852, yours: 1815 }));
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Filled<V> {
    /// It was stored. A value that cannot be kept (capacity 0, a lifetime of 0, too heavy) was
    /// stored as well, and has left again at once: the listener is called for it.
    Stored,
    /// The key was written meanwhile and has another value now.
    Lost {
        /// The key's value.
        current: V,
        /// The value that was not stored.
        yours: V,
    },
    /// The key was written meanwhile and is absent now, or the cache is gone. This is the value
    /// that was not stored.
    Revoked(V),
}

impl<K, V, S> Lease<K, V, S> {
    /// Returns the key to load.
    ///
    /// ```
    /// # use wheelhouse::{Cache, Leased};
    /// let cache: Cache<&str, u32> = Cache::new(100);
    /// let Leased::Lease(lease) = cache.lease("ada") else { unreachable!("the key is absent") };
    /// assert_eq!(*lease.key(), "ada");
    /// ```
    pub fn key(&self) -> &K {
        self.guard.load().key()
    }

    /// Returns whether a value would still be stored: no write of the key has come since, no newer
    /// load has replaced this one, and the cache exists.
    ///
    /// ```
    /// # use wheelhouse::{Cache, Leased};
    /// let cache: Cache<&str, u32> = Cache::new(100);
    /// let Leased::Lease(lease) = cache.lease("ada") else { unreachable!("the key is absent") };
    /// assert!(lease.is_current());
    /// cache.invalidate("ada");
    /// assert!(!lease.is_current());
    /// ```
    pub fn is_current(&self) -> bool {
        self.guard.load().is_current() && self.guard.engine().is_some()
    }

    /// Ends the load with an error, which calls of `try_get_with` with this error type share.
    ///
    /// # Cost
    ///
    /// An allocation for the error, and the wake-ups of the calls that wait.
    ///
    /// ```
    /// # use wheelhouse::{Cache, Leased};
    /// let cache: Cache<&str, u32> = Cache::new(100);
    /// let Leased::Lease(lease) = cache.lease("ada") else { unreachable!("the key is absent") };
    /// assert_eq!(*lease.fail("no such person"), "no such person");
    /// assert_eq!(cache.get("ada"), None);
    /// ```
    pub fn fail<E: Send + Sync + 'static>(self, error: E) -> Arc<E> {
        let error = Arc::new(error);
        let failure = Outcome::Error(Arc::<E>::clone(&error));
        self.guard.fail(&failure);
        error
    }
}

impl<K, V, S> Lease<K, V, S>
where
    K: Hash + Eq + Clone + Send + Sync + 'static,
    V: Clone + Send + Sync + 'static,
    S: BuildHasher + Send + Sync + 'static,
{
    /// Stores the value, unless the key was written meanwhile, and gives it to the calls that wait.
    /// [One table](crate#when-is-a-removal-told-and-a-value-dropped) says when the listener hears
    /// of a value that this removes.
    ///
    /// # Panics
    ///
    /// If user code that an insert runs panics; then the lease is given back. A policy that loads
    /// this very key panics.
    ///
    /// # Cost
    ///
    /// As [`Cache::insert`], a clone of the value, and a box for it meanwhile.
    ///
    /// ```
    /// # use wheelhouse::{Cache, Filled, Leased};
    /// let cache = Cache::new(100);
    /// let Leased::Lease(lease) = cache.lease("ada") else { unreachable!("the key is absent") };
    /// assert_eq!(lease.fill(1815), Filled::Stored);
    /// ```
    pub fn fill(self, value: V) -> Filled<V> {
        self.fill_as(value, LifetimeSource::Policy)
    }

    /// Stores the value with a lifetime, as of [`insert_with_ttl`](Cache::insert_with_ttl): see
    /// [`fill`](Self::fill).
    ///
    /// # Panics
    ///
    /// As `fill`.
    ///
    /// # Cost
    ///
    /// As [`fill`](Self::fill).
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use wheelhouse::{Cache, Filled, Leased};
    /// let cache = Cache::new(100);
    /// let Leased::Lease(lease) = cache.lease("ada") else { unreachable!("the key is absent") };
    /// assert_eq!(lease.fill_with_ttl(1815, Duration::from_secs(60)), Filled::Stored);
    /// assert!(cache.get_ref("ada").unwrap().time_left().is_some());
    /// ```
    pub fn fill_with_ttl(self, value: V, ttl: Duration) -> Filled<V> {
        self.fill_as(value, LifetimeSource::Ttl(ttl))
    }

    fn fill_as(self, value: V, given: LifetimeSource) -> Filled<V> {
        let mut own = Keyless::made(value);
        match self.guard.fill(&mut own, given) {
            Commit::Made(_) => Filled::Stored,
            Commit::TooLate {
                live: Some(live), ..
            } => Filled::Lost {
                current: live.value,
                yours: own.value,
            },
            Commit::TooLate { live: None, .. } => Filled::Revoked(own.value),
        }
    }
}

impl<K, V, S> Cache<K, V, S>
where
    K: Hash + Eq + Clone + Send + Sync + 'static,
    V: Clone + Send + Sync + 'static,
    S: BuildHasher + Send + Sync + 'static,
{
    /// Returns the value of a key, or the right to load it. Waits while another call loads the key.
    ///
    /// # Panics
    ///
    /// If the wait would never end, because the load that it waits for waits, directly or through
    /// other threads, for this thread. No thread runs the load of a lease, so a wait for a lease
    /// never panics.
    ///
    /// # Cost
    ///
    /// A key that is found costs a [`get`](Self::get). A lease costs a clone of the key and the
    /// memory of a load.
    ///
    /// ```
    /// use wheelhouse::{Cache, Leased};
    ///
    /// let cache = Cache::new(100);
    /// match cache.lease("ada") {
    ///     Leased::Lease(lease) => drop(lease.fill(1815)),
    ///     _ => unreachable!("the key is absent"),
    /// }
    /// assert!(matches!(cache.lease("ada"), Leased::Found(1815)));
    /// ```
    #[track_caller]
    pub fn lease(&self, key: K) -> Leased<K, V, S> {
        block_on(self.lease_as::<K, _>(key, identity, true))
    }

    /// Returns the value of a key, or the right to load it, and waits for at most `wait`: see
    /// [`lease`](Self::lease). With zero it does not wait. `wait` is real time, whatever the
    /// cache's ticker.
    ///
    /// Never panics for a deadlock: a call that would wait for a load of its own thread returns
    /// [`Busy`](Leased::Busy) at once.
    ///
    /// # Panics
    ///
    /// If the key's `Hash`, `Eq` or `Clone`, or the value's `Clone`, panics.
    ///
    /// # Cost
    ///
    /// As [`lease`](Self::lease).
    ///
    /// ```
    /// use std::time::Duration;
    /// use wheelhouse::{Cache, Leased};
    ///
    /// let cache: Cache<&str, u32> = Cache::new(100);
    /// let held = cache.lease("ada");
    /// assert!(matches!(cache.lease_timeout("ada", Duration::ZERO), Leased::Busy));
    /// # drop(held);
    /// ```
    pub fn lease_timeout(&self, key: K, wait: Duration) -> Leased<K, V, S> {
        self.lease_until::<K, _>(key, identity, wait)
    }

    fn lease_until<Q, F>(
        &self,
        key: F,
        to_key: impl FnOnce(F) -> K,
        wait: Duration,
    ) -> Leased<K, V, S>
    where
        Q: Equivalent<K> + Hash + ?Sized,
        F: Borrow<Q>,
    {
        // `None`, which means no limit, if the time is too far away for an `Instant`.
        let until = Instant::now().checked_add(wait);
        let leased = block_until(self.lease_as(key, to_key, !wait.is_zero()), until);
        leased.unwrap_or(Leased::Busy)
    }

    /// Returns the value of a key, or the right to load it; the async form of
    /// [`lease`](Self::lease).
    ///
    /// # Panics
    ///
    /// As [`get_with_async`](Cache::get_with_async).
    ///
    /// # Cost
    ///
    /// As [`lease`](Self::lease).
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() {
    /// use wheelhouse::{Cache, Leased};
    ///
    /// let cache = Cache::new(100);
    /// if let Leased::Lease(lease) = cache.lease_async("ada").await {
    ///     lease.fill(1815);
    /// }
    /// assert_eq!(cache.get("ada"), Some(1815));
    /// # }
    /// ```
    pub fn lease_async(&self, key: K) -> impl Future<Output = Leased<K, V, S>> {
        self.lease_as::<K, _>(key, identity, true)
    }

    /// Returns the value of a key that is given by reference, or the right to load it: see
    /// [`lease`](Self::lease).
    ///
    /// # Panics
    ///
    /// As `lease`.
    ///
    /// # Cost
    ///
    /// As [`lease`](Self::lease); the key is made only after a miss.
    ///
    /// ```
    /// use wheelhouse::{Cache, Leased};
    ///
    /// let cache: Cache<String, u32> = Cache::new(100);
    /// if let Leased::Lease(lease) = cache.lease_by_ref("ada") {
    ///     lease.fill(1815);
    /// }
    /// assert_eq!(cache.get("ada"), Some(1815));
    /// ```
    #[track_caller]
    pub fn lease_by_ref<Q>(&self, key: &Q) -> Leased<K, V, S>
    where
        Q: Equivalent<K> + Hash + ToKey<K> + ?Sized,
    {
        block_on(self.lease_as::<Q, _>(key, Q::to_key, true))
    }

    /// Returns the value of a key that is given by reference, or the right to load it, and waits
    /// for at most `wait`: see [`lease_timeout`](Self::lease_timeout).
    ///
    /// # Panics
    ///
    /// As `lease_timeout`.
    ///
    /// # Cost
    ///
    /// As [`lease`](Self::lease); the key is made only after a miss.
    ///
    /// ```
    /// use std::time::Duration;
    /// use wheelhouse::{Cache, Leased};
    ///
    /// let cache: Cache<String, u32> = Cache::new(100);
    /// let held = cache.lease_by_ref("ada");
    /// assert!(matches!(cache.lease_timeout_by_ref("ada", Duration::ZERO), Leased::Busy));
    /// # drop(held);
    /// ```
    pub fn lease_timeout_by_ref<Q>(&self, key: &Q, wait: Duration) -> Leased<K, V, S>
    where
        Q: Equivalent<K> + Hash + ToKey<K> + ?Sized,
    {
        self.lease_until::<Q, _>(key, Q::to_key, wait)
    }

    /// Returns the value of a key that is given by reference, or the right to load it: see
    /// [`lease_async`](Self::lease_async).
    ///
    /// # Panics
    ///
    /// As [`get_with_async`](Cache::get_with_async).
    ///
    /// # Cost
    ///
    /// As [`lease`](Self::lease); the key is made only after a miss.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() {
    /// use wheelhouse::{Cache, Leased};
    ///
    /// let cache: Cache<String, u32> = Cache::new(100);
    /// if let Leased::Lease(lease) = cache.lease_by_ref_async("ada").await {
    ///     lease.fill(1815);
    /// }
    /// assert_eq!(cache.get("ada"), Some(1815));
    /// # }
    /// ```
    pub fn lease_by_ref_async<Q>(&self, key: &Q) -> impl Future<Output = Leased<K, V, S>>
    where
        Q: Equivalent<K> + Hash + ToKey<K> + ?Sized,
    {
        self.lease_as::<Q, _>(key, Q::to_key, true)
    }

    async fn lease_as<Q, F>(
        &self,
        key: F,
        to_key: impl FnOnce(F) -> K,
        may_wait: bool,
    ) -> Leased<K, V, S>
    where
        Q: Equivalent<K> + Hash + ?Sized,
        F: Borrow<Q>,
    {
        let engine = self.engine();
        let hash = self.hash(key.borrow());
        let clone = |entry: EntryRef<'_, K, V>, _| entry.value().clone();
        if let Some(value) = engine.read(hash, key.borrow(), clone) {
            return Leased::Found(value);
        }
        // As a call of this handle, not of the lease: user code runs outside of the cache's gate.
        let mut claimant = Claimant::new(engine, hash, to_key(key), Want::Value);
        claimant.may_wait = may_wait;
        match claimant.claim().await {
            Claim::Value(seen) => Leased::Found(seen.value),
            Claim::Failed(_) | Claim::TimedOut | Claim::Gone => {
                unreachable!("it accepts values only")
            }
            Claim::Busy => Leased::Busy,
            Claim::Guard(guard, _) => Leased::Lease(Lease {
                guard: guard.in_background(self.downgrade(), None),
                _hasher: PhantomData,
            }),
        }
    }
}

impl<K: fmt::Debug, V, S> fmt::Debug for Lease<K, V, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lease")
            .field("key", self.key())
            .field("is_current", &self.is_current())
            .finish()
    }
}

impl<K: fmt::Debug, V: fmt::Debug, S> fmt::Debug for Leased<K, V, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Found(value) => f.debug_tuple("Found").field(value).finish(),
            Self::Lease(lease) => f.debug_tuple("Lease").field(lease).finish(),
            Self::Busy => f.write_str("Busy"),
        }
    }
}
