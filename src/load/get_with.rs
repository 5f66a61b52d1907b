//! `get_with` and its variants: the value of a key, loaded if it is absent.
#![allow(unsafe_code)]

use super::claim::Claimant;
use super::run::{Made, conclude, fallible, of_option, of_result, of_value, or_error, sure};
use crate::cache::Cache;
use crate::compute::Keyless;
use crate::contain::AtEnd;
use crate::flight::{Outcome, Want};
use crate::operations::EntryRef;
use equivalent::Equivalent;
use std::borrow::Borrow;
use std::convert::identity;
use std::future::Future;
use std::hash::{BuildHasher, Hash};
use std::pin::Pin;
use std::sync::Arc;

// Out of line: its room on the stack is free while the load runs.
#[inline(never)]
fn unboxed<V>(outcome: Result<Box<Keyless<V>>, Outcome<V>>) -> Result<V, Outcome<V>> {
    outcome.map(|seen| seen.value)
}

/// # Loading
///
/// One closure runs for a key at a time. Only a load that is revoked or overdue may run beside it.
/// Calls that load the same key wait for its value and share it, whichever method they use; calls
/// of the same kind and error type also its failure. Computes (`and_*`) take turns with loads. A
/// write of the key (`insert`, `invalidate`, `remove`, …) never waits for a load: it revokes the
/// load, whose value is then not stored. Each method that loads first removes an expired entry of
/// its key: see [when](crate#when-is-a-removal-told-and-a-value-dropped) the listener hears of it.
impl<K, V, S> Cache<K, V, S>
where
    K: Hash + Eq + Clone + Send + Sync + 'static,
    V: Clone + Send + Sync + 'static,
    S: BuildHasher + Send + Sync + 'static,
{
    /// The value of a key; if it is absent, what `make` makes. The call has the key itself (`F` is
    /// `K`), or a reference to a form of it (`F` is `&Q`).
    #[inline(always)]
    #[track_caller]
    fn get_or_load<Q, F>(
        &self,
        key: F,
        to_key: impl FnOnce(F) -> K,
        want: Want,
        make: impl FnOnce() -> Made<V>,
    ) -> Result<V, Outcome<V>>
    where
        Q: Equivalent<K> + Hash + ?Sized,
        F: Borrow<Q>,
    {
        let hash = self.hash(key.borrow());
        let clone = |entry: EntryRef<'_, K, V>, _| entry.value().clone();
        match self.engine().read(hash, key.borrow(), clone) {
            Some(value) => Ok(value),
            None => self.load(hash, to_key(key), want, make),
        }
    }

    #[inline(never)]
    #[track_caller]
    fn load(
        &self,
        hash: u64,
        key: K,
        want: Want,
        make: impl FnOnce() -> Made<V>,
    ) -> Result<V, Outcome<V>> {
        let mut claimant = Claimant::new(self.engine(), hash, key, want);
        unboxed(conclude(claimant.run_here(|_| make())))
    }

    /// The future holds `init` once: moved on, it would take its room several times
    /// (`futures_are_small` in tests/loading/loads/tasks.rs).
    fn get_or_load_async<Q, F, I: Future, R>(
        &self,
        key: F,
        to_key: impl FnOnce(F) -> K,
        want: Want,
        init: I,
        made: impl FnOnce(I::Output) -> Made<V>,
        answer: impl FnOnce(Result<V, Outcome<V>>) -> R,
    ) -> impl Future<Output = R>
    where
        Q: Equivalent<K> + Hash + ?Sized,
        F: Borrow<Q>,
    {
        let mut init = Some(init);
        async move {
            let engine = self.engine();
            let hash = self.hash(key.borrow());
            // One answer for both ways: without optimization, each has room of its own.
            answer('found: {
                let clone = |entry: EntryRef<'_, K, V>, _| entry.value().clone();
                if let Some(value) = engine.read(hash, key.borrow(), clone) {
                    break 'found Ok(value);
                }
                let mut claimant = Claimant::new(engine, hash, to_key(key), want);
                // SAFETY: this block has captured `init`, and is itself pinned while it runs. It
                // neither moves `init` nor names it again, so `init` stays where it is until it is
                // dropped there.
                let init = unsafe { Pin::new_unchecked(&mut init) };
                let mut init = AtEnd(init, |init| init.set(None));
                let run = claimant.run(|_: Option<&_>| async move {
                    let made = made(init.0.as_mut().as_pin_mut().expect("it is there").await);
                    drop(init);
                    made
                });
                unboxed(conclude(run.await))
            })
        }
    }

    /// Returns the value of a key. If the key is absent or its entry has expired, calls `init` and
    /// stores the value.
    ///
    /// While `init` runs, other calls for the key wait and share its value. If `init` panics, the
    /// call that has waited longest runs its own closure. If another call writes the key meanwhile,
    /// the written value is returned; if another call removes the key, the loaded value is returned
    /// and not stored.
    ///
    /// # Panics
    ///
    /// If `init`, or other user code that an insert runs, panics. On a deadlock: the awaited load
    /// waits for this thread, directly or through other threads. The message names the cache and
    /// the key's hash. A closure that runs an executor of its own may meet this, too: see
    /// [`get_with_async`](Self::get_with_async).
    ///
    /// # Cost
    ///
    /// A hit costs what [`get`](Self::get) costs. Beside what `get` and `insert` take, a miss that
    /// loads costs a clone of the key and of the value, and the memory of a load and a box.
    ///
    /// ```
    /// let cache = wheelhouse::Cache::new(100);
    /// assert_eq!(cache.get_with("ada", || 1815), 1815);
    /// assert_eq!(cache.get_with("ada", || unreachable!("a hit")), 1815);
    /// ```
    #[inline]
    #[track_caller]
    pub fn get_with(&self, key: K, init: impl FnOnce() -> V) -> V {
        sure(self.get_or_load::<K, _>(key, identity, Want::Value, || of_value(init())))
    }

    /// Returns the value of a key that is given by reference, loaded if it is absent: see
    /// [`get_with`](Self::get_with).
    ///
    /// # Panics
    ///
    /// As `get_with`.
    ///
    /// # Cost
    ///
    /// As `get_with`; the key is made owned only after a miss.
    ///
    /// ```
    /// let cache: wheelhouse::Cache<String, u32> = wheelhouse::Cache::new(100);
    /// assert_eq!(cache.get_with_by_ref("ada", || 1815), 1815);
    /// assert_eq!(cache.get("ada"), Some(1815));
    /// ```
    #[inline]
    #[track_caller]
    pub fn get_with_by_ref<Q>(&self, key: &Q, init: impl FnOnce() -> V) -> V
    where
        Q: Equivalent<K> + Hash + ToOwned<Owned = K> + ?Sized,
    {
        sure(self.get_or_load::<Q, _>(key, Q::to_owned, Want::Value, || of_value(init())))
    }

    /// Returns the value of a key, loaded if it is absent and `init` makes a value: see
    /// [`get_with`](Self::get_with). `None` is not stored. Waiting calls of `optionally_get_with`
    /// share the `None`; other waiting calls run their own closures.
    ///
    /// If another call has stored a value meanwhile, a `None` of `init` is returned all the same.
    /// That value stays, and the waiting calls that do not share the `None` get it.
    ///
    /// # Panics
    ///
    /// As `get_with`.
    ///
    /// # Cost
    ///
    /// As [`get_with`](Self::get_with).
    ///
    /// ```
    /// let cache = wheelhouse::Cache::new(100);
    /// assert_eq!(cache.optionally_get_with("ada", || None), None);
    /// assert_eq!(cache.optionally_get_with("ada", || Some(1815)), Some(1815));
    /// ```
    #[inline]
    #[track_caller]
    pub fn optionally_get_with(&self, key: K, init: impl FnOnce() -> Option<V>) -> Option<V> {
        self.get_or_load::<K, _>(key, identity, Want::Optional, || of_option(init()))
            .ok()
    }

    /// Returns the value of a key that is given by reference, loaded if `init` makes one: see
    /// [`optionally_get_with`](Self::optionally_get_with).
    ///
    /// # Panics
    ///
    /// As [`get_with`](Self::get_with).
    ///
    /// # Cost
    ///
    /// As [`get_with_by_ref`](Self::get_with_by_ref).
    ///
    /// ```
    /// let cache: wheelhouse::Cache<String, u32> = wheelhouse::Cache::new(100);
    /// assert_eq!(cache.optionally_get_with_by_ref("ada", || Some(1815)), Some(1815));
    /// ```
    #[inline]
    #[track_caller]
    pub fn optionally_get_with_by_ref<Q>(
        &self,
        key: &Q,
        init: impl FnOnce() -> Option<V>,
    ) -> Option<V>
    where
        Q: Equivalent<K> + Hash + ToOwned<Owned = K> + ?Sized,
    {
        self.get_or_load::<Q, _>(key, Q::to_owned, Want::Optional, || of_option(init()))
            .ok()
    }

    /// Returns the value of a key, loaded if it is absent by an `init` that may fail: see
    /// [`get_with`](Self::get_with). An error is not stored. Waiting calls with the same error type
    /// share the error; other waiting calls run their own closures.
    ///
    /// If another call has stored a value meanwhile, an error of `init` is returned all the same.
    /// That value stays, and the waiting calls that do not share the error get it.
    ///
    /// # Errors
    ///
    /// That of `init`, or of the call that this one has waited for.
    ///
    /// # Panics
    ///
    /// As `get_with`.
    ///
    /// # Cost
    ///
    /// As [`get_with`](Self::get_with).
    ///
    /// ```
    /// let cache = wheelhouse::Cache::new(100);
    /// let born = cache.try_get_with("ada", || "1815".parse::<u32>());
    /// assert_eq!(born.unwrap(), 1815);
    /// let error = cache.try_get_with("bob", || "?".parse::<u32>()).unwrap_err();
    /// assert_eq!(error.to_string(), "invalid digit found in string");
    /// assert_eq!(cache.get("bob"), None);
    /// ```
    #[inline]
    #[track_caller]
    pub fn try_get_with<E>(&self, key: K, init: impl FnOnce() -> Result<V, E>) -> Result<V, Arc<E>>
    where
        E: Send + Sync + 'static,
    {
        or_error(self.get_or_load::<K, _>(key, identity, fallible::<E>(), || of_result(init())))
    }

    /// Returns the value of a key that is given by reference, loaded by an `init` that may fail:
    /// see [`try_get_with`](Self::try_get_with).
    ///
    /// # Errors
    ///
    /// As `try_get_with`.
    ///
    /// # Panics
    ///
    /// As [`get_with`](Self::get_with).
    ///
    /// # Cost
    ///
    /// As [`get_with_by_ref`](Self::get_with_by_ref).
    ///
    /// ```
    /// let cache: wheelhouse::Cache<String, u32> = wheelhouse::Cache::new(100);
    /// let born = cache.try_get_with_by_ref("ada", || "1815".parse::<u32>());
    /// assert_eq!(born.unwrap(), 1815);
    /// ```
    #[inline]
    #[track_caller]
    pub fn try_get_with_by_ref<Q, E>(
        &self,
        key: &Q,
        init: impl FnOnce() -> Result<V, E>,
    ) -> Result<V, Arc<E>>
    where
        Q: Equivalent<K> + Hash + ToOwned<Owned = K> + ?Sized,
        E: Send + Sync + 'static,
    {
        or_error(self.get_or_load::<Q, _>(key, Q::to_owned, fallible::<E>(), || of_result(init())))
    }

    /// Returns the value of a key, loaded by a future if it is absent; the async form of
    /// [`get_with`](Self::get_with). On a hit the future is dropped without being polled.
    ///
    /// Works on any runtime. The future of the first call for a key is polled as part of that call.
    /// If the call is dropped, the task that has waited longest polls its own future. Waiting calls
    /// are ordered by their first poll.
    ///
    /// # Panics
    ///
    /// As `get_with`. A task that would wait for a load which it is polling at that moment panics.
    ///
    /// So does a task that is polled inside the closure of a load, and wants the key of that load:
    /// the closure may run an executor of its own. The cache cannot know whether the closure needs
    /// that task to end, and refuses what may be a deadlock. Let such a closure run only the tasks
    /// that it needs.
    ///
    /// # Cost
    ///
    /// As [`get_with`](Self::get_with). The future of the call holds `init` in place, not in a box.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() {
    /// let cache = wheelhouse::Cache::new(100);
    /// assert_eq!(cache.get_with_async("ada", async { 1815 }).await, 1815);
    /// assert_eq!(cache.get("ada"), Some(1815));
    /// # }
    /// ```
    pub fn get_with_async(&self, key: K, init: impl Future<Output = V>) -> impl Future<Output = V> {
        self.get_or_load_async::<K, _, _, _>(key, identity, Want::Value, init, of_value, sure)
    }

    /// Returns the value of a key that is given by reference, loaded by a future if it is absent:
    /// see [`get_with_async`](Self::get_with_async).
    ///
    /// # Panics
    ///
    /// As `get_with_async`.
    ///
    /// # Cost
    ///
    /// As `get_with_async`; the key is made owned only after a miss.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() {
    /// let cache: wheelhouse::Cache<String, u32> = wheelhouse::Cache::new(100);
    /// assert_eq!(cache.get_with_by_ref_async("ada", async { 1815 }).await, 1815);
    /// # }
    /// ```
    pub fn get_with_by_ref_async<Q>(
        &self,
        key: &Q,
        init: impl Future<Output = V>,
    ) -> impl Future<Output = V>
    where
        Q: Equivalent<K> + Hash + ToOwned<Owned = K> + ?Sized,
    {
        self.get_or_load_async::<Q, _, _, _>(key, Q::to_owned, Want::Value, init, of_value, sure)
    }

    /// Returns the value of a key, loaded if a future makes one; the async form of
    /// [`optionally_get_with`](Self::optionally_get_with).
    ///
    /// # Panics
    ///
    /// As [`get_with_async`](Self::get_with_async).
    ///
    /// # Cost
    ///
    /// As [`get_with_async`](Self::get_with_async).
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() {
    /// let cache: wheelhouse::Cache<&str, u32> = wheelhouse::Cache::new(100);
    /// assert_eq!(cache.optionally_get_with_async("ada", async { None }).await, None);
    /// # }
    /// ```
    pub fn optionally_get_with_async(
        &self,
        key: K,
        init: impl Future<Output = Option<V>>,
    ) -> impl Future<Output = Option<V>> {
        self.get_or_load_async::<K, _, _, _>(
            key,
            identity,
            Want::Optional,
            init,
            of_option,
            Result::ok,
        )
    }

    /// Returns the value of a key that is given by reference, loaded if a future makes one: see
    /// [`optionally_get_with_async`](Self::optionally_get_with_async).
    ///
    /// # Panics
    ///
    /// As [`get_with_async`](Self::get_with_async).
    ///
    /// # Cost
    ///
    /// As `get_with_async`; the key is made owned only after a miss.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() {
    /// let cache: wheelhouse::Cache<String, u32> = wheelhouse::Cache::new(100);
    /// let born = cache.optionally_get_with_by_ref_async("ada", async { Some(1815) }).await;
    /// assert_eq!(born, Some(1815));
    /// # }
    /// ```
    pub fn optionally_get_with_by_ref_async<Q>(
        &self,
        key: &Q,
        init: impl Future<Output = Option<V>>,
    ) -> impl Future<Output = Option<V>>
    where
        Q: Equivalent<K> + Hash + ToOwned<Owned = K> + ?Sized,
    {
        self.get_or_load_async::<Q, _, _, _>(
            key,
            Q::to_owned,
            Want::Optional,
            init,
            of_option,
            Result::ok,
        )
    }

    /// Returns the value of a key, loaded by a future that may fail; the async form of
    /// [`try_get_with`](Self::try_get_with).
    ///
    /// # Errors
    ///
    /// That of `init`, or of the call that this one has waited for.
    ///
    /// # Panics
    ///
    /// As [`get_with_async`](Self::get_with_async).
    ///
    /// # Cost
    ///
    /// As [`get_with_async`](Self::get_with_async).
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() {
    /// let cache: wheelhouse::Cache<&str, u32> = wheelhouse::Cache::new(100);
    /// let born = cache.try_get_with_async("ada", async { "1815".parse::<u32>() }).await;
    /// assert_eq!(born.unwrap(), 1815);
    /// # }
    /// ```
    pub fn try_get_with_async<E>(
        &self,
        key: K,
        init: impl Future<Output = Result<V, E>>,
    ) -> impl Future<Output = Result<V, Arc<E>>>
    where
        E: Send + Sync + 'static,
    {
        self.get_or_load_async::<K, _, _, _>(
            key,
            identity,
            fallible::<E>(),
            init,
            of_result,
            or_error,
        )
    }

    /// Returns the value of a key that is given by reference, loaded by a future that may fail: see
    /// [`try_get_with_async`](Self::try_get_with_async).
    ///
    /// # Errors
    ///
    /// As `try_get_with_async`.
    ///
    /// # Panics
    ///
    /// As [`get_with_async`](Self::get_with_async).
    ///
    /// # Cost
    ///
    /// As `get_with_async`; the key is made owned only after a miss.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() {
    /// let cache: wheelhouse::Cache<String, u32> = wheelhouse::Cache::new(100);
    /// let born = cache.try_get_with_by_ref_async("ada", async { "1815".parse::<u32>() }).await;
    /// assert_eq!(born.unwrap(), 1815);
    /// # }
    /// ```
    pub fn try_get_with_by_ref_async<Q, E>(
        &self,
        key: &Q,
        init: impl Future<Output = Result<V, E>>,
    ) -> impl Future<Output = Result<V, Arc<E>>>
    where
        Q: Equivalent<K> + Hash + ToOwned<Owned = K> + ?Sized,
        E: Send + Sync + 'static,
    {
        self.get_or_load_async::<Q, _, _, _>(
            key,
            Q::to_owned,
            fallible::<E>(),
            init,
            of_result,
            or_error,
        )
    }
}
