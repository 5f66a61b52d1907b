//! Computes: closures that see the live entry and say what becomes of it. They take turns.

use super::claim::{Claim, Claimant, Request};
use super::entry::EntrySelector;
use super::guard::{Filling, Keyless};
use super::key::{CacheKey, CacheValue, Key};
use super::run::{Led, Run};
use super::state::{Outcome, RevokedBy};
use crate::RemovalCause;
use crate::compute::{CompResult, Entry, Op};
use crate::operations::LifetimeSource;
use std::convert::{Infallible, identity};
use std::future::Future;
use std::hash::{BuildHasher, Hash};

/// The operation that a closure asks for, with its value as the call keeps it.
type OwnOp<V> = Op<Box<Keyless<V>>>;

fn own<V, X>(op: Result<Op<V>, X>) -> Result<OwnOp<V>, X> {
    Ok(match op? {
        Op::Nop => Op::Nop,
        Op::Put(value) => Op::Put(Keyless::made(value)),
        Op::PutWithTtl(value, ttl) => Op::PutWithTtl(Keyless::made(value), ttl),
        Op::Remove => Op::Remove,
    })
}

/// Does what the closure of a call has answered. A call that may not wait, and would have to, gets
/// what the key has.
fn apply<K: CacheKey, V: CacheValue, S: BuildHasher, X>(
    key: K,
    run: Run<'_, K, V, S, Result<OwnOp<V>, X>>,
) -> Result<CompResult<K, V>, X> {
    let (guard, seen, op) = match run {
        Err(Claim::Busy(seen)) => return Ok(unchanged(key, seen)),
        run => turn(run),
    };
    // Hands the key on, if the closure failed.
    Ok(match op? {
        Op::Nop => {
            guard.keep();
            unchanged(key, seen)
        }
        Op::Put(own) => put(key, seen.is_some(), guard.fill(own, LifetimeSource::Update)),
        Op::PutWithTtl(own, ttl) => put(
            key,
            seen.is_some(),
            guard.fill(own, LifetimeSource::Ttl(ttl)),
        ),
        Op::Remove => match (guard.remove(Outcome::Nothing), seen) {
            (Ok(Some(RemovalCause::Explicit)), Some(seen)) => CompResult::Removed(Entry {
                stored: false,
                ..seen.with_key(key)
            }),
            (Ok(_), _) => CompResult::StillNone(key),
            (Err(_), _) => CompResult::Overtaken(None),
        },
    })
}

/// The answer about a value that a closure has put.
fn put<K, V>(key: K, over: bool, Filling { own, revoked }: Filling<V>) -> CompResult<K, V> {
    let replaced = match revoked {
        None => own.replaced,
        Some((RevokedBy::Overwrite, _)) => over,
        Some(_) => return CompResult::Overtaken(Some(own.value)),
    };
    let entry = own.with_key(key);
    if replaced {
        CompResult::ReplacedWith(entry)
    } else {
        CompResult::Inserted(entry)
    }
}

/// The answer about an entry that was left as it is.
fn unchanged<K, V>(key: K, seen: Option<Box<Keyless<V>>>) -> CompResult<K, V> {
    match seen {
        Some(seen) => CompResult::Unchanged(seen.with_key(key)),
        None => CompResult::StillNone(key),
    }
}

/// The guard of a call that waits for its turn.
fn turn<'a, K, V, S, O>(run: Run<'a, K, V, S, O>) -> Led<'a, K, V, S, O> {
    match run {
        Ok(turn) => turn,
        Err(_) => unreachable!("a call that waits for its turn gets it"),
    }
}

fn upsert<K: CacheKey, V: CacheValue, S: BuildHasher>(
    key: K,
    run: Run<'_, K, V, S, Box<Keyless<V>>>,
) -> Entry<K, V> {
    let (guard, _, own) = turn(run);
    guard.fill(own, LifetimeSource::Update).own.with_key(key)
}

/// `None`: the live entry is kept.
fn insert_or_keep<K: CacheKey, V: CacheValue, S: BuildHasher>(
    key: K,
    run: Run<'_, K, V, S, Option<Box<Keyless<V>>>>,
) -> Entry<K, V> {
    let seen = match turn(run) {
        (guard, _, Some(own)) => guard.fill(own, LifetimeSource::Policy).into_entry(),
        (guard, Some(seen), None) => {
            guard.keep();
            seen
        }
        (_, None, None) => unreachable!("an absent key gets a value"),
    };
    seen.with_key(key)
}

impl<'a, K, V, S, Y> EntrySelector<'a, K, V, S, Y>
where
    K: Hash + Eq + Clone + Send + Sync + 'static,
    V: Clone + Send + Sync + 'static,
    S: BuildHasher + Send + Sync + 'static,
    Y: Key<K>,
{
    /// The key, and the run of a call that takes its turn.
    #[track_caller]
    fn compute<O>(
        self,
        may_wait: bool,
        f: impl FnOnce(Option<Entry<K, V>>) -> O,
    ) -> (K, Run<'a, K, V, S, O>) {
        let key = self.key.copy();
        let claimant = Claimant::new(self.cache.core(), self.key, Request::turn(may_wait));
        let run = claimant.run(|seen| f(seen.map(|seen| seen.clone().with_key(key.clone()))));
        (key, run)
    }

    /// The same as a task, which ends with `finish`; `made` says what the output of `f` means.
    fn compute_async<F: Future, O, R>(
        self,
        may_wait: bool,
        f: impl FnOnce(Option<Entry<K, V>>) -> F,
        made: impl FnOnce(F::Output) -> O,
        finish: impl FnOnce(K, Run<'a, K, V, S, O>) -> R,
    ) -> impl Future<Output = R> {
        let (key, seen_key) = (self.key.copy(), self.key.copy());
        let claimant = Claimant::new(self.cache.core(), self.key, Request::turn(may_wait));
        claimant.run_async(
            None::<fn(V) -> R>,
            move |seen| f(seen.map(|seen| seen.clone().with_key(seen_key))),
            made,
            move |run| finish(key, run),
        )
    }

    /// The key's entry. If there is none, or `replace_if` returns true for its value, a new entry
    /// with the value of `init`.
    ///
    /// `replace_if` may be asked more than once: about each value that it would replace. If the key
    /// is written while `init` runs, this returns what [`or_insert_with`](Self::or_insert_with)
    /// would: the entry of that write, or, if the key is absent now, the value of `init`, which is
    /// not stored.
    ///
    /// # Panics
    ///
    /// As [`get_with`](crate::Cache::get_with), and if `replace_if` does.
    ///
    /// # Cost
    ///
    /// A call that keeps the entry costs a [`get_ref`](crate::Cache::get_ref) and a clone of the
    /// value.
    ///
    /// ```
    /// let cache = wheelhouse::Cache::new(100);
    /// cache.insert("k", 1);
    /// let entry = cache.entry("k").or_insert_with_if(|| 2, |value| *value < 2);
    /// assert!(entry.is_fresh() && entry.is_old_value_replaced());
    /// let entry = cache.entry("k").or_insert_with_if(|| 3, |value| *value < 2);
    /// assert_eq!(entry.into_value(), 2);
    /// ```
    #[track_caller]
    pub fn or_insert_with_if(
        self,
        init: impl FnOnce() -> V,
        mut replace_if: impl FnMut(&V) -> bool,
    ) -> Entry<K, V> {
        let selector = match self.present(|value| !replace_if(value)) {
            Ok(entry) => return entry,
            Err(selector) => selector,
        };
        let (key, run) = selector.compute(true, |seen| match seen {
            Some(seen) if !replace_if(&seen.value) => None,
            _ => Some(Keyless::made(init())),
        });
        insert_or_keep(key, run)
    }

    /// As [`or_insert_with_if`](Self::or_insert_with_if), with a closure `init` that returns a
    /// future.
    ///
    /// # Panics
    ///
    /// As [`get_with_async`](crate::Cache::get_with_async), and if `replace_if` does.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() {
    /// let cache = wheelhouse::Cache::new(100);
    /// cache.insert("k", 1);
    /// let entry = cache.entry("k");
    /// let entry = entry.or_insert_with_if_async(|| async { 2 }, |value| *value < 2).await;
    /// assert_eq!(entry.into_value(), 2);
    /// # }
    /// ```
    pub async fn or_insert_with_if_async<F>(
        self,
        init: impl FnOnce() -> F,
        mut replace_if: impl FnMut(&V) -> bool,
    ) -> Entry<K, V>
    where
        F: Future<Output = V>,
    {
        let selector = match self.present(|value| !replace_if(value)) {
            Ok(entry) => return entry,
            Err(selector) => selector,
        };
        let make = |seen: Option<Entry<K, V>>| {
            let keep = seen.is_some_and(|seen| !replace_if(&seen.value));
            let init = (!keep).then(init);
            async move {
                match init {
                    Some(init) => Some(Keyless::made(init.await)),
                    None => None,
                }
            }
        };
        selector
            .compute_async(true, make, identity, insert_or_keep)
            .await
    }

    /// Stores the value that `f` makes of the live entry, or of `None`.
    ///
    /// No update is lost: closures of a key run one after the other. If the key is written while
    /// `f` runs, the value of `f` is not stored, and [`is_stored`](Entry::is_stored) says so; the
    /// entry carries the value in any case.
    ///
    /// If the cache has neither a policy nor a `time_to_live`, a live entry keeps its deadline: a
    /// counter that was made with a lifetime ends when that has passed.
    ///
    /// # Panics
    ///
    /// As [`and_compute_with`](Self::and_compute_with).
    ///
    /// # Cost
    ///
    /// The memory of a load, clones of key and value, a box for the live value and one for the new
    /// value, and an [`insert`](crate::Cache::insert).
    ///
    /// ```
    /// let cache = wheelhouse::Cache::new(100);
    /// for _ in 0..3 {
    ///     cache.entry("visits").and_upsert_with(|old| old.map_or(1, |old| old.into_value() + 1));
    /// }
    /// assert_eq!(cache.get("visits"), Some(3));
    /// ```
    #[track_caller]
    pub fn and_upsert_with(self, f: impl FnOnce(Option<Entry<K, V>>) -> V) -> Entry<K, V> {
        let (key, run) = self.compute(true, |seen| Keyless::made(f(seen)));
        upsert(key, run)
    }

    /// As [`and_upsert_with`](Self::and_upsert_with), with a closure that returns a future.
    ///
    /// # Panics
    ///
    /// As [`get_with_async`](crate::Cache::get_with_async).
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() {
    /// let cache = wheelhouse::Cache::new(100);
    /// let entry = cache.entry("k").and_upsert_with_async(|_| async { 1 }).await;
    /// assert_eq!(entry.into_value(), 1);
    /// # }
    /// ```
    pub fn and_upsert_with_async<F>(
        self,
        f: impl FnOnce(Option<Entry<K, V>>) -> F,
    ) -> impl Future<Output = Entry<K, V>>
    where
        F: Future<Output = V>,
    {
        self.compute_async(true, f, Keyless::made, upsert)
    }

    /// Shows the live entry to `f`, and does what `f` answers.
    ///
    /// `f` runs with no lock held; `get` finds the old value meanwhile. Writers of the key do not
    /// wait: [`CompResult`] says what becomes of the compute then. After such a write, the calls
    /// that wait for their turn wait no longer: the first of them that wakes up runs next.
    ///
    /// # Panics
    ///
    /// If `f`, or other user code that an insert runs, panics. If the call would wait for a load
    /// that its own thread leads, itself or through loads of other threads.
    ///
    /// # Cost
    ///
    /// As [`and_upsert_with`](Self::and_upsert_with).
    ///
    /// ```
    /// use wheelhouse::compute::{CompResult, Op};
    ///
    /// let cache = wheelhouse::Cache::new(100);
    /// cache.insert("k", 1);
    /// let result = cache.entry("k").and_compute_with(|entry| match entry {
    ///     Some(entry) if *entry.value() == 1 => Op::Remove,
    ///     _ => Op::Nop,
    /// });
    /// assert!(matches!(result, CompResult::Removed(_)));
    /// assert_eq!(cache.get("k"), None);
    /// ```
    #[track_caller]
    pub fn and_compute_with(
        self,
        f: impl FnOnce(Option<Entry<K, V>>) -> Op<V>,
    ) -> CompResult<K, V> {
        let Ok(result) = self.and_try_compute_with(|seen| Ok::<_, Infallible>(f(seen)));
        result
    }

    /// As [`and_compute_with`](Self::and_compute_with), with a closure that returns a future.
    ///
    /// # Panics
    ///
    /// As [`get_with_async`](crate::Cache::get_with_async).
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() {
    /// use wheelhouse::compute::{CompResult, Op};
    ///
    /// let cache: wheelhouse::Cache<&str, u32> = wheelhouse::Cache::new(100);
    /// let result = cache.entry("k").and_compute_with_async(|_| async { Op::Put(1) }).await;
    /// assert!(matches!(result, CompResult::Inserted(_)));
    /// # }
    /// ```
    pub fn and_compute_with_async<F>(
        self,
        f: impl FnOnce(Option<Entry<K, V>>) -> F,
    ) -> impl Future<Output = CompResult<K, V>>
    where
        F: Future<Output = Op<V>>,
    {
        let made = |op| own(Ok::<_, Infallible>(op));
        self.compute_async(true, f, made, |key, run| {
            let Ok(result) = apply(key, run);
            result
        })
    }

    /// As [`and_compute_with`](Self::and_compute_with), if `f` succeeds.
    ///
    /// # Errors
    ///
    /// That of `f`: then nothing has changed.
    ///
    /// # Panics
    ///
    /// As `and_compute_with`.
    ///
    /// # Cost
    ///
    /// As [`and_upsert_with`](Self::and_upsert_with).
    ///
    /// ```
    /// use wheelhouse::compute::{CompResult, Op};
    ///
    /// let cache: wheelhouse::Cache<&str, u32> = wheelhouse::Cache::new(100);
    /// let result = cache.entry("k").and_try_compute_with(|_| "7".parse().map(Op::Put));
    /// assert!(matches!(result, Ok(CompResult::Inserted(_))));
    /// ```
    #[track_caller]
    pub fn and_try_compute_with<E>(
        self,
        f: impl FnOnce(Option<Entry<K, V>>) -> Result<Op<V>, E>,
    ) -> Result<CompResult<K, V>, E> {
        let (key, run) = self.compute(true, |seen| own(f(seen)));
        apply(key, run)
    }

    /// As [`and_try_compute_with`](Self::and_try_compute_with), with a closure that returns a
    /// future.
    ///
    /// # Errors
    ///
    /// That of `f`: then nothing has changed.
    ///
    /// # Panics
    ///
    /// As [`get_with_async`](crate::Cache::get_with_async).
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() {
    /// use wheelhouse::compute::Op;
    ///
    /// let cache: wheelhouse::Cache<&str, u32> = wheelhouse::Cache::new(100);
    /// let entry = cache.entry("k");
    /// let result = entry.and_try_compute_with_async(|_| async { "7".parse().map(Op::Put) });
    /// assert!(result.await.is_ok());
    /// # }
    /// ```
    pub fn and_try_compute_with_async<E, F>(
        self,
        f: impl FnOnce(Option<Entry<K, V>>) -> F,
    ) -> impl Future<Output = Result<CompResult<K, V>, E>>
    where
        F: Future<Output = Result<Op<V>, E>>,
    {
        self.compute_async(true, f, own, apply)
    }

    /// As [`and_try_compute_with`](Self::and_try_compute_with), but if another call loads or
    /// computes the key just now, returns what the key has without calling `f`.
    ///
    /// # Errors
    ///
    /// That of `f`: then nothing has changed.
    ///
    /// # Panics
    ///
    /// If `f`, or other user code that an insert runs, panics.
    ///
    /// ```
    /// use wheelhouse::compute::{CompResult, Op};
    ///
    /// let cache: wheelhouse::Cache<&str, u32> = wheelhouse::Cache::new(100);
    /// cache.get_with("k", || {
    ///     let result = cache
    ///         .entry("k")
    ///         .and_try_compute_if_nobody_else(|_| Ok::<_, ()>(Op::Put(2)));
    ///     assert!(matches!(result, Ok(CompResult::StillNone("k"))));
    ///     1
    /// });
    /// ```
    #[track_caller]
    pub fn and_try_compute_if_nobody_else<E>(
        self,
        f: impl FnOnce(Option<Entry<K, V>>) -> Result<Op<V>, E>,
    ) -> Result<CompResult<K, V>, E> {
        let (key, run) = self.compute(false, |seen| own(f(seen)));
        apply(key, run)
    }

    /// As [`and_try_compute_if_nobody_else`](Self::and_try_compute_if_nobody_else), with a closure
    /// that returns a future.
    ///
    /// # Errors
    ///
    /// That of `f`: then nothing has changed.
    ///
    /// # Panics
    ///
    /// As [`get_with_async`](crate::Cache::get_with_async).
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() {
    /// use wheelhouse::compute::Op;
    ///
    /// let cache: wheelhouse::Cache<&str, u32> = wheelhouse::Cache::new(100);
    /// let compute = |_| async { Ok::<_, ()>(Op::Put(2)) };
    /// assert!(cache.entry("k").and_try_compute_if_nobody_else_async(compute).await.is_ok());
    /// # }
    /// ```
    pub fn and_try_compute_if_nobody_else_async<E, F>(
        self,
        f: impl FnOnce(Option<Entry<K, V>>) -> F,
    ) -> impl Future<Output = Result<CompResult<K, V>, E>>
    where
        F: Future<Output = Result<Op<V>, E>>,
    {
        self.compute_async(false, f, own, apply)
    }
}
