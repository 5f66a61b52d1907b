//! Computes: closures that see the live entry and say what becomes of it. They take turns.

use super::begin::LoadRequest;
use super::bounds::{CacheKey, CacheValue};
use super::commit::{Committed, Lead};
use super::entry::{EntrySelector, hit_entry};
use super::got::Got;
use super::key::Key;
use super::poll::Loading;
use super::run::{End, Made};
use super::seek::RoleSearch;
use crate::RemovalCause;
use crate::compute::{CompResult, Entry, Op};
use crate::load::{RevokedBy, Want};
use crate::maintenance::WriteOutcome;
use crate::map::Revalidated;
use crate::operations::LifetimeSource;
use std::convert::Infallible;
use std::future::Future;
use std::hash::{BuildHasher, Hash};
use std::sync::Arc;

impl LoadRequest {
    /// Of a call that runs its own code, whether the key has an entry or not.
    pub(crate) const fn turn(may_wait: bool) -> Self {
        Self {
            want: Want::OwnTurn,
            over_present: true,
            may_wait,
            thread: 0,
        }
    }
}

/// The effect of an operation.
fn made<V, X>(op: Op<V>) -> Made<V, X> {
    match op {
        Op::Nop => Made::Keep,
        Op::Put(value) => Made::Put(value, LifetimeSource::Policy),
        Op::PutWithTtl(value, ttl) => Made::Put(value, LifetimeSource::Ttl(ttl)),
        Op::Remove => Made::Remove,
    }
}

fn try_made<V, X>(op: Result<Op<V>, X>) -> Made<V, X> {
    op.map_or_else(Made::Broke, made)
}

/// The entry that a closure made; an error if it was not stored, with the kind of write that came
/// first.
fn written<K, V>(key: K, committed: Committed<V>) -> Result<Entry<K, V>, (RevokedBy, Entry<K, V>)> {
    match committed {
        Committed::Stored { got, replaced } => Ok(Entry {
            replaced,
            ..Entry::of(key, got)
        }),
        Committed::Revoked { by, value, .. } => Err((by, Entry::of(key, Got::unstored(value)))),
    }
}

/// The result of a compute. The caller handles `Busy` before.
fn comp_result<K, V, X>(key: K, end: End<V, X>) -> Result<CompResult<K, V>, X> {
    let entry = |seen: Option<Got<V>>, key| match seen {
        Some(got) => CompResult::Unchanged(Entry::of(key, got)),
        None => CompResult::StillNone(key),
    };
    Ok(match end {
        End::Put { seen, committed } => match written(key, committed) {
            Ok(entry) if entry.replaced => CompResult::ReplacedWith(entry),
            Ok(entry) => CompResult::Inserted(entry),
            Err((RevokedBy::Overwrite, entry)) if seen.is_some() => CompResult::ReplacedWith(entry),
            Err((RevokedBy::Overwrite, entry)) => CompResult::Inserted(entry),
            Err((RevokedBy::Conditional | RevokedBy::NewerLoad, entry)) => {
                CompResult::Overtaken(Some(entry.value))
            }
        },
        End::Kept(seen) => entry(seen, key),
        End::Removed(got) => CompResult::Removed(Entry {
            stored: false,
            ..Entry::of(key, got)
        }),
        End::NotRemoved { by: None } => CompResult::StillNone(key),
        End::NotRemoved { by: Some(_) } => CompResult::Overtaken(None),
        End::Broke(error) => return Err(error),
        End::Found(_) | End::Failed(_) | End::Busy => {
            unreachable!("a compute shares no outcome")
        }
    })
}

fn never<T>(result: Result<T, Infallible>) -> T {
    match result {
        Ok(value) => value,
        Err(never) => match never {},
    }
}

fn upserted<K, V>(key: K, end: End<V, Infallible>) -> Entry<K, V> {
    match end {
        End::Put { committed, .. } => {
            written(key, committed).unwrap_or_else(|(_, unstored)| unstored)
        }
        _ => unreachable!("an upsert puts a value"),
    }
}

impl<'a, K, V, S, Y> EntrySelector<'a, K, V, S, Y>
where
    K: Hash + Eq + Clone + Send + Sync + 'static,
    V: Clone + Send + Sync + 'static,
    S: BuildHasher + Send + Sync + 'static,
    Y: Key<K>,
{
    #[track_caller]
    fn compute<X>(
        self,
        may_wait: bool,
        f: impl FnOnce(Option<Entry<K, V>>) -> Made<V, X>,
    ) -> (K, End<V, X>) {
        let key = self.key.copy();
        let end = self.cache.core.loads().run(
            self.key,
            LoadRequest::turn(may_wait),
            |seen: Option<&Got<V>>| f(seen.map(|got| Entry::of(key.clone(), got.clone()))),
        );
        (key, end)
    }

    fn compute_async<F, X, R>(
        self,
        may_wait: bool,
        f: impl FnOnce(Option<Entry<K, V>>) -> F,
        convert: impl Fn(F::Output) -> Made<V, X>,
        finish: impl FnOnce(&'a crate::Cache<K, V, S>, K, End<V, X>) -> R,
    ) -> impl Future<Output = R>
    where
        F: Future,
    {
        let (key, seen_key, cache) = (self.key.copy(), self.key.copy(), self.cache);
        let search = RoleSearch::new(&cache.core, self.key, LoadRequest::turn(may_wait));
        let make = move |seen: Option<&Got<V>>| f(seen.map(|got| Entry::of(seen_key, got.clone())));
        Loading::new(search, make, convert, move |end| finish(cache, key, end))
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
        if let Some(got) = hit_entry(self.cache, self.key.query())
            && !replace_if(&got.value)
        {
            return Entry::of(self.key.into_owned(), got);
        }
        let (key, end) = self.compute::<Infallible>(true, |seen| match seen {
            Some(seen) if !replace_if(&seen.value) => Made::Keep,
            _ => Made::Put(init(), LifetimeSource::Policy),
        });
        kept_or_made(key, end)
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
        let hit = hit_entry(self.cache, self.key.query());
        if let Some(got) = hit
            && !replace_if(&got.value)
        {
            return Entry::of(self.key.into_owned(), got);
        }
        let make = |seen: Option<Entry<K, V>>| {
            let keep = seen.is_some_and(|seen| !replace_if(&seen.value));
            let init = (!keep).then(init);
            async move {
                match init {
                    Some(init) => Some(init.await),
                    None => None,
                }
            }
        };
        let convert = |value: Option<V>| {
            value.map_or(Made::Keep, |value| {
                Made::<V, Infallible>::Put(value, LifetimeSource::Policy)
            })
        };
        self.compute_async(true, make, convert, |_, key, end| kept_or_made(key, end))
            .await
    }

    /// Stores the value that `f` makes of the live entry, or of `None`.
    ///
    /// No update is lost: closures of a key run one after the other. If the key is written while
    /// `f` runs, the value of `f` is not stored, and [`is_stored`](Entry::is_stored) says so; the
    /// entry carries the value in any case.
    ///
    /// # Panics
    ///
    /// As [`and_compute_with`](Self::and_compute_with).
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
        let (key, end) = self.compute(true, |seen| Made::Put(f(seen), LifetimeSource::Policy));
        upserted(key, end)
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
        let convert = |value| Made::Put(value, LifetimeSource::Policy);
        self.compute_async(true, f, convert, |_, key, end| upserted(key, end))
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
        let (key, end) = self.compute(true, |seen| made(f(seen)));
        never(comp_result(key, end))
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
        self.compute_async(true, f, made, |_, key, end| never(comp_result(key, end)))
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
        let (key, end) = self.compute(true, |seen| try_made(f(seen)));
        comp_result(key, end)
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
        self.compute_async(true, f, try_made, |_, key, end| comp_result(key, end))
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
        let cache = self.cache;
        let (key, end) = self.compute(false, |seen| try_made(f(seen)));
        comp_result_if_free(cache, key, end)
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
        self.compute_async(false, f, try_made, comp_result_if_free)
    }
}

fn kept_or_made<K, V>(key: K, end: End<V, Infallible>) -> Entry<K, V> {
    match end {
        End::Kept(Some(seen)) => Entry::of(key, seen),
        End::Put {
            committed: committed @ Committed::Revoked { .. },
            ..
        } => Entry::of(key, committed.got()),
        end => upserted(key, end),
    }
}

/// The result of a compute that does not wait.
fn comp_result_if_free<K: CacheKey, V: CacheValue, S: BuildHasher, X>(
    cache: &crate::Cache<K, V, S>,
    key: K,
    end: End<V, X>,
) -> Result<CompResult<K, V>, X> {
    let End::Busy = end else {
        return comp_result(key, end);
    };
    let hash = cache.core.hash(&key);
    Ok(match cache.core.loads().peek_got(hash, &key) {
        Some(got) => CompResult::Unchanged(Entry::of(key, got)),
        None => CompResult::StillNone(key),
    })
}

impl<K: CacheKey, V: CacheValue, S: BuildHasher> Lead<'_, K, V, S> {
    /// Removes the entry over which this run leads, if the load is still current.
    pub(super) fn remove<X>(self, seen: Option<Got<V>>) -> End<V, X> {
        let core = self.core();
        let load = Arc::clone(self.load());
        let Some((cause, outcome)) = self.take_out() else {
            let by = load.revoked();
            self.release_discarded();
            return End::NotRemoved { by };
        };
        self.release();
        if let Some(outcome) = outcome {
            core.maintenance.after_write(&core.shared, outcome);
        }
        match (cause, seen) {
            (Some(RemovalCause::Explicit), Some(seen)) => End::Removed(seen),
            _ => End::NotRemoved { by: None },
        }
    }

    /// Takes the key's entry out, if it has one, as the load's own write; `None` if the load is no
    /// longer current.
    pub(super) fn take_out(&self) -> Option<(Option<RemovalCause>, Option<WriteOutcome>)> {
        let core = self.core();
        let load = self.load();
        let hash = load.hash();
        let map = &core.shared.map;
        loop {
            let pin = core.shared.pin();
            let probe = map.probe(hash, &pin, |node| load.key() == node.key());
            let mut shard = probe.lock();
            let Some(revalidated) = shard.revalidate(hash, &probe) else {
                continue;
            };
            if !load.is_current() {
                return None;
            }
            let (Revalidated::Occupied(spot), Some(node)) = (revalidated, probe.found) else {
                return Some((None, None));
            };
            let (cause, now) = core.shared.take_out(&mut shard, spot, node);
            _ = shard.loads_mut().seal(load);
            return Some((Some(cause), Some(WriteOutcome::of_removal(&shard, now))));
        }
    }
}
