//! Entry selectors: a key, and what to do with its entry. `or_*` make a value for an absent key;
//! `and_*`, the computes, see the live entry and say what becomes of it, in turns.

use super::Loadable;
use super::claim::{Claim, Claimant};
use super::guard::Commit;
use super::run::{
    Made, Ran, conclude, fallible, of_option, of_pair, of_result, of_value, or_error, sure,
};
use crate::cache::Cache;
use crate::compute::{CompResult, Entry, Keyless, Op};
use crate::contain::{LetGo, let_go};
use crate::engine::{Engine, LifetimeSource};
use crate::flight::{Outcome, RevokedBy, Want};
use crate::{RandomState, RemovalCause};
use equivalent::Equivalent;
use std::convert::Infallible;
use std::fmt;
use std::future::Future;
use std::hash::{BuildHasher, Hash};
use std::marker::PhantomData;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;

type KeyClaimant<'a, K, V> = (LetGo<K>, Claimant<K, V, &'a Engine<K, V>>);
type KeyRun<'a, K, V, O> = (K, Ran<K, V, &'a Engine<K, V>, O>);

/// A key of a cache, and what to do with its entry; from [`Cache::entry`].
///
/// At most one closure runs for a key at any time, whatever the method. (A second one may run
/// beside the closure of a load that a write has revoked, or that is overdue.) The methods `or_*`
/// make a value if the key has none; calls that come meanwhile share it, as with
/// [`get_with`](Cache::get_with). The methods `and_*` see the live entry and change it; they take
/// turns, the longest-waiting call first. If more threads than processors change one key, a running
/// thread may pass sleeping ones, a bounded number of times.
///
/// # Cost
///
/// A hit of an `or_*` method costs a [`get_ref`](Cache::get_ref) and clones of key and value; a
/// miss, what one of [`get_with`](Cache::get_with) costs.
///
/// ```
/// let cache = wheelhouse::Cache::new(100);
/// let entry = cache.entry("ada").or_insert_with(|| 1815);
/// assert_eq!(*entry.value(), 1815);
/// let entry = cache.entry("ada").and_upsert_with(|old| old.map_or(0, |old| old.into_value() + 1));
/// assert_eq!(*entry.value(), 1816);
/// ```
#[must_use = "a selector does nothing by itself"]
pub struct EntrySelector<'a, K, V, S = RandomState, Q: ?Sized = K> {
    cache: &'a Cache<K, V, S>,
    key: K,
    form: PhantomData<fn(&Q)>,
}

/// A key of a cache, made of a borrowed one, and what to do with its entry; from
/// [`Cache::entry_by_ref`].
///
/// ```
/// let cache: wheelhouse::Cache<String, u32> = wheelhouse::Cache::new(100);
/// assert_eq!(*cache.entry_by_ref("ada").or_insert(1815).value(), 1815);
/// ```
pub type RefEntrySelector<'a, K, Q, V, S = RandomState> = EntrySelector<'a, K, V, S, Q>;

impl<K, V, S> Cache<K, V, S>
where
    K: Hash + Eq + Clone + Send + Sync + 'static,
    V: Clone + Send + Sync + 'static,
    S: BuildHasher + Send + Sync + 'static,
{
    /// Selects the entry of a key; the selector's methods read or change it. A closure that runs an
    /// executor of its own may meet a panic, as [`get_with`](Self::get_with) says.
    ///
    /// A counter whose window ends at a fixed time, such as a rate limiter's, is `and_upsert_with`
    /// on a cache with [`expiry::creating`](crate::expiry::creating): see
    /// `examples/rate_limiter.rs` in the repository.
    ///
    /// # Cost
    ///
    /// Selecting costs nothing; [`EntrySelector`](EntrySelector#cost) says what its methods cost.
    ///
    /// ```
    /// let cache = wheelhouse::Cache::new(100);
    /// assert!(cache.entry("ada").or_insert(1815).is_fresh());
    /// assert_eq!(cache.entry("ada").or_insert(0).into_value(), 1815);
    /// ```
    pub fn entry(&self, key: K) -> EntrySelector<'_, K, V, S> {
        EntrySelector {
            cache: self,
            key,
            form: PhantomData,
        }
    }

    /// Selects the entry of a key that is given by reference: see [`entry`](Self::entry).
    ///
    /// # Cost
    ///
    /// As [`entry`](Self::entry), and one owned key for the returned entry.
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
            key: key.to_owned(),
            form: PhantomData,
        }
    }
}

// Out of line: its room on the stack is free while the load runs.
#[inline(never)]
fn entry<K: Loadable + Eq, V: Loadable>(
    (key, run): KeyRun<'_, K, V, Made<V>>,
) -> Result<Entry<K, V>, Outcome<V>> {
    let mut key = LetGo::new(key);
    // In a closure, and with no name: its room on the stack is free while the load ends.
    conclude(run).map(|seen| seen.with_key(key.take()))
}

/// What the operation that a closure asks for means for its load.
fn of_op<V>(op: Op<V>) -> Made<V> {
    match op {
        Op::Nop => Made::Kept,
        Op::Put(value) => Made::Value(Keyless::made(value), LifetimeSource::Update),
        Op::PutWithTtl(value, ttl) => of_pair((value, ttl)),
        Op::PutUntil(value, end) => Made::Value(Keyless::made(value), LifetimeSource::Until(end)),
        Op::Remove => Made::NoValue(Outcome::Absent),
    }
}

/// Does what the closure of a call has answered. A call that may not wait, and would have to, gets
/// what the key has.
fn apply<K: Loadable + Eq, V: Loadable, X>(
    (key, run): KeyRun<'_, K, V, Result<Made<V>, X>>,
) -> Result<CompResult<K, V>, X> {
    let (guard, seen, made) = match run {
        Ran::Led(guard, seen, made) => (guard, seen, made),
        Ran::NotLed(Claim::Value(seen)) => return Ok(unchanged(key, Some(seen))),
        Ran::NotLed(_) => return Ok(unchanged(key, None)),
    };
    let made = match made {
        Ok(made) => made,
        Err(error) => {
            // Hands the key on.
            drop(guard);
            let_go(key);
            let_go(seen);
            return Err(error);
        }
    };
    Ok(match made {
        Made::Value(mut own, given) => {
            let was_there = seen.is_some();
            let_go(seen);
            let replaced = match guard.fill(&mut own, given) {
                Commit::Made(_) => own.replaced,
                Commit::TooLate {
                    by: RevokedBy::Overwrite,
                    live,
                } => {
                    let_go(live);
                    was_there
                }
                Commit::TooLate { live, .. } => {
                    let_go(live);
                    let_go(key);
                    return Ok(CompResult::Overtaken(Some(own.value)));
                }
            };
            let entry = own.with_key(key);
            if replaced {
                CompResult::ReplacedWith(entry)
            } else {
                CompResult::Inserted(entry)
            }
        }
        Made::NoValue(_) => match (guard.remove(Outcome::Nothing), seen) {
            (Commit::Made(Some(RemovalCause::Explicit)), Some(seen)) => {
                let mut entry = seen.with_key(key);
                entry.stored = false;
                CompResult::Removed(entry)
            }
            (Commit::Made(_), seen) => {
                let_go(seen);
                CompResult::StillNone(key)
            }
            (Commit::TooLate { live, .. }, seen) => {
                let_go(live);
                let_go(key);
                let_go(seen);
                CompResult::Overtaken(None)
            }
        },
        Made::Kept => {
            guard.keep();
            unchanged(key, seen)
        }
    })
}

/// The answer about an entry that was left as it is.
fn unchanged<K, V>(key: K, seen: Option<Box<Keyless<V>>>) -> CompResult<K, V> {
    match seen {
        Some(seen) => CompResult::Unchanged(seen.with_key(key)),
        None => CompResult::StillNone(key),
    }
}

/// Stores what the closure of a call has made.
fn upsert<K: Loadable + Eq, V: Loadable>(
    (key, run): KeyRun<'_, K, V, Box<Keyless<V>>>,
) -> Entry<K, V> {
    let Ran::Led(guard, seen, mut own) = run else {
        unreachable!("it waits for its turn");
    };
    let_go(seen);
    let_go(guard.fill(&mut own, LifetimeSource::Update));
    own.with_key(key)
}

impl<'a, K, V, S, Q> EntrySelector<'a, K, V, S, Q>
where
    K: Hash + Eq + Clone + Send + Sync + 'static,
    V: Clone + Send + Sync + 'static,
    S: BuildHasher + Send + Sync + 'static,
    Q: ?Sized,
{
    /// Ends with the entry of a key that is present, if its value is kept. Else the call goes on:
    /// it claims the key.
    fn look_up(
        self,
        want: Want,
        keeps: impl FnOnce(&V) -> bool,
    ) -> ControlFlow<Entry<K, V>, KeyClaimant<'a, K, V>> {
        let hit = self.cache.get_ref(&self.key);
        // Field by field: each function that a large value passes through takes room for it.
        match hit.map(|found| (LetGo::new(found.value().clone()), found.time_left())) {
            Some((mut value, left)) if keeps(value.get()) => ControlFlow::Break(Entry {
                key: self.key,
                value: value.take(),
                fresh: false,
                replaced: false,
                stored: true,
                left,
            }),
            _ => ControlFlow::Continue(self.claimant(want, true)),
        }
    }

    fn claimant(self, want: Want, may_wait: bool) -> KeyClaimant<'a, K, V> {
        let engine = self.cache.engine();
        let key = self.key;
        let mut claimant = Claimant::new(engine, self.cache.hash(&key), key.clone(), want);
        claimant.may_wait = may_wait;
        (LetGo::new(key), claimant)
    }

    /// The entry of the key if its value is kept; else one with a value that is made, if the call
    /// comes to lead.
    #[track_caller]
    fn load(
        self,
        want: Want,
        mut keeps: impl FnMut(&V) -> bool,
        make: impl FnOnce() -> Made<V>,
    ) -> Result<Entry<K, V>, Outcome<V>> {
        let (mut key, mut claimant) = match self.look_up(want, &mut keeps) {
            ControlFlow::Break(entry) => return Ok(entry),
            ControlFlow::Continue(call) => call,
        };
        let run = claimant.run_here(|seen| match seen {
            Some(seen) if keeps(&seen.value) => Made::Kept,
            _ => make(),
        });
        entry((key.take(), run))
    }

    /// The entry of a call that loads, as a task. `made` says what the output of the future means.
    async fn load_async<F: Future>(
        self,
        want: Want,
        mut keeps: impl FnMut(&V) -> bool,
        init: impl FnOnce() -> F,
        made: impl FnOnce(F::Output) -> Made<V>,
    ) -> Result<Entry<K, V>, Outcome<V>> {
        let (mut key, mut claimant) = match self.look_up(want, &mut keeps) {
            ControlFlow::Break(entry) => return Ok(entry),
            ControlFlow::Continue(call) => call,
        };
        let make = async |seen: Option<&Keyless<V>>| match seen {
            Some(seen) if keeps(&seen.value) => Made::Kept,
            _ => made(init().await),
        };
        let run = claimant.run(make).await;
        entry((key.take(), run))
    }

    /// The key, and the run of a call that takes its turn.
    #[track_caller]
    fn compute<O>(
        self,
        may_wait: bool,
        f: impl FnOnce(Option<Entry<K, V>>) -> O,
    ) -> KeyRun<'a, K, V, O> {
        let (mut key, mut claimant) = self.claimant(Want::OwnTurn, may_wait);
        let run =
            claimant.run_here(|seen| f(seen.map(|seen| seen.clone().with_key(key.get().clone()))));
        (key.take(), run)
    }

    /// The key, and the run of a call that takes its turn, as a task.
    async fn compute_async<F: Future>(
        self,
        may_wait: bool,
        f: impl FnOnce(Option<Entry<K, V>>) -> F,
    ) -> KeyRun<'a, K, V, F::Output> {
        let (mut key, mut claimant) = self.claimant(Want::OwnTurn, may_wait);
        let make = async |seen: Option<&Keyless<V>>| {
            f(seen.map(|seen| seen.clone().with_key(key.get().clone()))).await
        };
        let run = claimant.run(make).await;
        (key.take(), run)
    }

    /// Returns the key's entry, or stores a new one with the default value.
    ///
    /// # Panics
    ///
    /// As [`or_insert_with`](Self::or_insert_with).
    ///
    /// # Cost
    ///
    /// See [`EntrySelector`](EntrySelector#cost).
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
    /// # Cost
    ///
    /// See [`EntrySelector`](EntrySelector#cost).
    ///
    /// ```
    /// let cache = wheelhouse::Cache::new(100);
    /// assert!(cache.entry("k").or_insert(1).is_fresh());
    /// assert_eq!(cache.entry("k").or_insert(2).into_value(), 1);
    /// ```
    #[track_caller]
    pub fn or_insert(self, value: V) -> Entry<K, V> {
        // The closure refers to the value: moved through the calls below, a large one would take
        // its room on the stack several times.
        let mut value = Some(value);
        self.or_insert_with(|| value.take().expect("it is called once at most"))
    }

    /// Returns the key's entry, or stores a new one with the value that `init` makes, as
    /// [`get_with`](Cache::get_with) does it.
    ///
    /// # Panics
    ///
    /// As `get_with`.
    ///
    /// # Cost
    ///
    /// See [`EntrySelector`](EntrySelector#cost).
    ///
    /// ```
    /// let cache = wheelhouse::Cache::new(100);
    /// assert_eq!(cache.entry("k").or_insert_with(|| 1).into_value(), 1);
    /// ```
    #[track_caller]
    pub fn or_insert_with(self, init: impl FnOnce() -> V) -> Entry<K, V> {
        sure(self.load(Want::Value, |_| true, || of_value(init())))
    }

    /// Returns the key's entry; if there is none, stores the value and the lifetime of `init`: see
    /// [`or_insert_with`](Self::or_insert_with). The entry lives as long as one that
    /// [`insert_with_ttl`](Cache::insert_with_ttl) stores. For a load that may fail, put the
    /// lifetime into the value ([`expiry::writing`](crate::expiry::writing)).
    ///
    /// # Panics
    ///
    /// As [`get_with`](Cache::get_with).
    ///
    /// # Cost
    ///
    /// See [`EntrySelector`](EntrySelector#cost).
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
        sure(self.load(Want::Value, |_| true, || of_pair(init())))
    }

    /// Returns the key's entry. If there is none, or `replace_if` returns true for its value,
    /// stores and returns a new entry with the value of `init`.
    ///
    /// `replace_if` may be asked more than once: about each value that it would replace. If the key
    /// is written while `init` runs, this returns the entry of that write, as
    /// [`or_insert_with`](Self::or_insert_with) does. If the key is absent now, it returns the
    /// value of `init`, which is not stored. [One
    /// table](crate#when-is-a-removal-told-and-a-value-dropped) says when the listener hears of the
    /// old value.
    ///
    /// # Panics
    ///
    /// As [`get_with`](Cache::get_with), and if `replace_if` does.
    ///
    /// # Cost
    ///
    /// A call that keeps the entry costs a [`get_ref`](Cache::get_ref) and a clone of the
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
        sure(self.load(
            Want::OwnTurn,
            |value| !replace_if(value),
            || of_value(init()),
        ))
    }

    /// Returns the key's entry; if there is none, stores the value of `init`, if that makes one:
    /// see [`or_insert_with`](Self::or_insert_with).
    ///
    /// # Panics
    ///
    /// As [`get_with`](Cache::get_with).
    ///
    /// # Cost
    ///
    /// See [`EntrySelector`](EntrySelector#cost).
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
        self.load(Want::Optional, |_| true, || of_option(init()))
            .ok()
    }

    /// Returns the key's entry; if there is none, stores the value of an `init` that may fail: see
    /// [`or_insert_with`](Self::or_insert_with).
    ///
    /// # Errors
    ///
    /// That of `init`, or of the call that this one has waited for.
    ///
    /// # Panics
    ///
    /// As [`get_with`](Cache::get_with).
    ///
    /// # Cost
    ///
    /// See [`EntrySelector`](EntrySelector#cost).
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
        or_error(self.load(fallible::<E>(), |_| true, || of_result(init())))
    }

    /// Returns the key's entry; if there is none, stores the value of a future; the async form of
    /// [`or_insert_with`](Self::or_insert_with).
    ///
    /// # Panics
    ///
    /// As [`get_with_async`](Cache::get_with_async).
    ///
    /// # Cost
    ///
    /// See [`EntrySelector`](EntrySelector#cost).
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() {
    /// let cache = wheelhouse::Cache::new(100);
    /// let entry = cache.entry("k").or_insert_with_async(|| async { 1 }).await;
    /// assert_eq!(entry.into_value(), 1);
    /// # }
    /// ```
    pub async fn or_insert_with_async<F>(self, init: impl FnOnce() -> F) -> Entry<K, V>
    where
        F: Future<Output = V>,
    {
        sure(self.load_async(Want::Value, |_| true, init, of_value).await)
    }

    /// Returns the key's entry; if there is none, stores the value and the lifetime of a future;
    /// the async form of [`or_insert_with_ttl`](Self::or_insert_with_ttl).
    ///
    /// # Panics
    ///
    /// As [`get_with_async`](Cache::get_with_async).
    ///
    /// # Cost
    ///
    /// See [`EntrySelector`](EntrySelector#cost).
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
    pub async fn or_insert_with_ttl_async<F>(self, init: impl FnOnce() -> F) -> Entry<K, V>
    where
        F: Future<Output = (V, Duration)>,
    {
        sure(self.load_async(Want::Value, |_| true, init, of_pair).await)
    }

    /// Returns the key's entry; if there is none, or `replace_if` returns true, stores the value of
    /// a future; the async form of [`or_insert_with_if`](Self::or_insert_with_if).
    ///
    /// # Panics
    ///
    /// As [`get_with_async`](Cache::get_with_async), and if `replace_if` does.
    ///
    /// # Cost
    ///
    /// See [`EntrySelector`](EntrySelector#cost).
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
        let loaded = self.load_async(Want::OwnTurn, |value| !replace_if(value), init, of_value);
        sure(loaded.await)
    }

    /// Returns the key's entry; if there is none, stores the value of a future, if that makes one;
    /// the async form of [`or_optionally_insert_with`](Self::or_optionally_insert_with).
    ///
    /// # Panics
    ///
    /// As [`get_with_async`](Cache::get_with_async).
    ///
    /// # Cost
    ///
    /// See [`EntrySelector`](EntrySelector#cost).
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() {
    /// let cache: wheelhouse::Cache<&str, u32> = wheelhouse::Cache::new(100);
    /// let entry = cache.entry("k").or_optionally_insert_with_async(|| async { None }).await;
    /// assert!(entry.is_none());
    /// # }
    /// ```
    pub async fn or_optionally_insert_with_async<F>(
        self,
        init: impl FnOnce() -> F,
    ) -> Option<Entry<K, V>>
    where
        F: Future<Output = Option<V>>,
    {
        let loaded = self.load_async(Want::Optional, |_| true, init, of_option);
        loaded.await.ok()
    }

    /// Returns the key's entry; if there is none, stores the value of a future that may fail; the
    /// async form of [`or_try_insert_with`](Self::or_try_insert_with).
    ///
    /// # Errors
    ///
    /// That of `init`, or of the call that this one has waited for.
    ///
    /// # Panics
    ///
    /// As [`get_with_async`](Cache::get_with_async).
    ///
    /// # Cost
    ///
    /// See [`EntrySelector`](EntrySelector#cost).
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() {
    /// let cache: wheelhouse::Cache<&str, u32> = wheelhouse::Cache::new(100);
    /// let entry = cache.entry("k").or_try_insert_with_async(|| async { "7".parse() }).await;
    /// assert_eq!(entry.unwrap().into_value(), 7);
    /// # }
    /// ```
    pub async fn or_try_insert_with_async<E, F>(
        self,
        init: impl FnOnce() -> F,
    ) -> Result<Entry<K, V>, Arc<E>>
    where
        E: Send + Sync + 'static,
        F: Future<Output = Result<V, E>>,
    {
        let loaded = self.load_async(fallible::<E>(), |_| true, init, of_result);
        or_error(loaded.await)
    }
    /// Stores the value that `f` makes of the live entry, or of `None`.
    ///
    /// No update is lost: closures of a key run one after the other. If the key is written while
    /// `f` runs, the value of `f` is not stored, and [`is_stored`](Entry::is_stored) says so; the
    /// entry carries the value in any case. [One
    /// table](crate#when-is-a-removal-told-and-a-value-dropped) says when the listener hears of the
    /// old value.
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
    /// value, and an [`insert`](Cache::insert).
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
        upsert(self.compute(true, |seen| Keyless::made(f(seen))))
    }

    /// Stores the value that a future makes of the live entry, or of `None`; the async form of
    /// [`and_upsert_with`](Self::and_upsert_with).
    ///
    /// # Panics
    ///
    /// As [`get_with_async`](Cache::get_with_async).
    ///
    /// # Cost
    ///
    /// As [`and_upsert_with`](Self::and_upsert_with).
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() {
    /// let cache = wheelhouse::Cache::new(100);
    /// let entry = cache.entry("k").and_upsert_with_async(|_| async { 1 }).await;
    /// assert_eq!(entry.into_value(), 1);
    /// # }
    /// ```
    pub async fn and_upsert_with_async<F>(
        self,
        f: impl FnOnce(Option<Entry<K, V>>) -> F,
    ) -> Entry<K, V>
    where
        F: Future<Output = V>,
    {
        let computed = self.compute_async(true, |seen| async { Keyless::made(f(seen).await) });
        upsert(computed.await)
    }

    /// Shows the live entry to `f`, and does what `f` answers.
    ///
    /// `f` runs with no lock held; `get` finds the old value meanwhile. Writers of the key do not
    /// wait: [`CompResult`] says what becomes of the compute then. After such a write, the call
    /// that has waited longest for its turn looks again; the others wait behind it.
    ///
    /// [One table](crate#when-is-a-removal-told-and-a-value-dropped) says when the listener hears
    /// of the old value. With [`Delivery::Caller`](crate::Delivery) the call waits for the listener
    /// (for limits see `Delivery`).
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

    /// Shows the live entry to `f`, and does what its future answers; the async form of
    /// [`and_compute_with`](Self::and_compute_with).
    ///
    /// # Panics
    ///
    /// As [`get_with_async`](Cache::get_with_async).
    ///
    /// # Cost
    ///
    /// As [`and_upsert_with`](Self::and_upsert_with).
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
    pub async fn and_compute_with_async<F>(
        self,
        f: impl FnOnce(Option<Entry<K, V>>) -> F,
    ) -> CompResult<K, V>
    where
        F: Future<Output = Op<V>>,
    {
        let f = |seen| async { Ok::<_, Infallible>(f(seen).await) };
        let Ok(result) = self.and_try_compute_with_async(f).await;
        result
    }

    /// Shows the live entry to `f`, and does what `f` answers, unless that is an error: see
    /// [`and_compute_with`](Self::and_compute_with).
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
        apply(self.compute(true, |seen| f(seen).map(of_op)))
    }

    /// Shows the live entry to `f`, and does what its future answers, unless that is an error; the
    /// async form of [`and_try_compute_with`](Self::and_try_compute_with).
    ///
    /// # Errors
    ///
    /// That of `f`: then nothing has changed.
    ///
    /// # Panics
    ///
    /// As [`get_with_async`](Cache::get_with_async).
    ///
    /// # Cost
    ///
    /// As [`and_upsert_with`](Self::and_upsert_with).
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
    pub async fn and_try_compute_with_async<E, F>(
        self,
        f: impl FnOnce(Option<Entry<K, V>>) -> F,
    ) -> Result<CompResult<K, V>, E>
    where
        F: Future<Output = Result<Op<V>, E>>,
    {
        let computed = self.compute_async(true, |seen| async { f(seen).await.map(of_op) });
        apply(computed.await)
    }

    /// Computes as [`and_try_compute_with`](Self::and_try_compute_with) does, but only if no other
    /// call loads or computes the key just now: else returns what the key has without calling `f`.
    ///
    /// # Errors
    ///
    /// That of `f`: then nothing has changed.
    ///
    /// # Panics
    ///
    /// If `f`, or other user code that an insert runs, panics.
    ///
    /// # Cost
    ///
    /// As [`and_upsert_with`](Self::and_upsert_with).
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
        apply(self.compute(false, |seen| f(seen).map(of_op)))
    }

    /// Computes with a future, but only if no other call loads or computes the key just now; the
    /// async form of [`and_try_compute_if_nobody_else`](Self::and_try_compute_if_nobody_else).
    ///
    /// # Errors
    ///
    /// That of `f`: then nothing has changed.
    ///
    /// # Panics
    ///
    /// As [`and_try_compute_if_nobody_else`](Self::and_try_compute_if_nobody_else).
    ///
    /// # Cost
    ///
    /// As [`and_upsert_with`](Self::and_upsert_with).
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
    pub async fn and_try_compute_if_nobody_else_async<E, F>(
        self,
        f: impl FnOnce(Option<Entry<K, V>>) -> F,
    ) -> Result<CompResult<K, V>, E>
    where
        F: Future<Output = Result<Op<V>, E>>,
    {
        let computed = self.compute_async(false, |seen| async { f(seen).await.map(of_op) });
        apply(computed.await)
    }
}

impl<K, V, S, Q: ?Sized> fmt::Debug for EntrySelector<'_, K, V, S, Q> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EntrySelector").finish_non_exhaustive()
    }
}
