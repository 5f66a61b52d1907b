//! Many keys at once: one closure loads those that this call leads.
//!
//! The call joins the loads of other calls immediately, but waits for them only after its own keys
//! are committed. So calls with overlapping keys never wait in a cycle, and a load that ends
//! meanwhile leaves its value with the waiter.

use super::Loadable;
use super::claim::{Claim, Claimant, May};
use super::guard::{CallGuard, Guard, ToCache};
use super::run::{Made, Ran, conclude, lead, of_option, settled};
use crate::cache::Cache;
use crate::contain::{LetGoEach, contain, with_name};
use crate::engine::Engine;
use crate::flight::{Outcome, Want};
use crate::node::NodePtr;
use crate::sync::block::block_on;
use std::collections::VecDeque;
use std::future::{Future, ready};
use std::hash::{BuildHasher, Hash};
use std::mem;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::pin::pin;
use std::sync::Arc;

/// The keys of a call, and its answers.
pub(crate) struct Keys<K, V> {
    pub(crate) keys: LetGoEach<K>,
    /// Of each repeated key: its place, and the place of the first equal key.
    repeats: Vec<(usize, usize)>,
    pub(crate) answers: LetGoEach<Option<V>>,
    /// The hashes and the places of the keys without a hit, each key once. In the order of their
    /// hashes, in which shards keep loads and entries: the memory that one key needs is near to
    /// that of the last.
    pub(crate) missing: Vec<(u64, usize)>,
}

impl<K: Loadable + Eq, V: Loadable> Keys<K, V> {
    /// Looks the keys up together, each once. `serve` makes the answer of a hit.
    pub(crate) fn look_up<H>(
        engine: &Engine<K, V>,
        keys: impl IntoIterator<Item = K>,
        hash: impl Fn(&K) -> u64,
        find: impl Fn(NodePtr<K, V>) -> H,
        serve: impl Fn(&K, H) -> V,
    ) -> Self {
        let keys = LetGoEach(keys.into_iter().collect::<Vec<K>>());
        let mut places: Vec<_> = keys.0.iter().map(&hash).zip(0..).collect();
        places.sort_unstable();
        let mut missing = Vec::with_capacity(places.len());
        let mut repeats = Vec::new();
        for (hash, place) in places {
            let mut same = missing.iter().rev().take_while(|(other, _)| *other == hash);
            match same.find(|(_, other)| keys.0[*other] == keys.0[place]) {
                Some(&(_, first)) => repeats.push((place, first)),
                None => missing.push((hash, place)),
            }
        }
        let mut answers = LetGoEach(keys.0.iter().map(|_| None).collect::<Vec<_>>());
        let unique = missing.iter().map(|&(_, place)| &keys.0[place]);
        let mut found = engine.find_many(unique, &hash, find).into_iter();
        missing.retain(|&(_, place)| {
            let Some(Some(hit)) = found.next() else {
                return true;
            };
            answers.0[place] = Some(serve(&keys.0[place], hit));
            false
        });
        Self {
            keys,
            repeats,
            answers,
            missing,
        }
    }

    pub(crate) fn in_order(mut self) -> Vec<Option<V>> {
        for (place, first) in self.repeats {
            self.answers.0[place] = self.answers.0[first].clone();
        }
        mem::take(&mut self.answers.0)
    }
}

/// The guards of a call, each with the place of its key.
pub(crate) type CallGuards<'c, K, V> = Vec<(usize, CallGuard<'c, K, V>)>;

impl<K: Loadable + Eq, V: Loadable> Engine<K, V> {
    /// Loads the keys without a hit: those that no other call loads together. Either `launch` makes
    /// their loads run; or `load` runs here, and `end` ends each of them by its part of the answer;
    /// all of them share its error. `answer` is the answer of a load that ran elsewhere. Keys for
    /// which `refuse` has an error are not loaded; the others are, before this fails with it.
    // `load` is not wrapped: a future that held the program's future would hold it twice.
    pub(crate) async fn load_all<'c, T, X, E, F>(
        &'c self,
        mut keys: Keys<K, V>,
        refuse: impl Fn(&K) -> Option<E>,
        launch: Option<impl Fn(Vec<K>, CallGuards<'c, K, V>)>,
        mut load: impl FnMut(Vec<K>) -> F,
        end: impl Fn(CallGuard<'c, K, V>, Result<Option<T>, E>) -> Option<V>,
        answer: impl Fn(Claim<K, V, &'c Self>) -> Result<Option<V>, E>,
    ) -> Result<Vec<Option<V>>, E>
    where
        E: From<X> + Clone + Send + Sync + 'static,
        F: Future<Output = Result<Vec<Option<T>>, X>>,
    {
        // While a call loads its own keys it must not be offered the lead of another. That load
        // would wait for this call's own keys, whose closure might even wait for that load. So it
        // looks again.
        let want = Want::OptionalForNow;
        let missing = mem::take(&mut keys.missing);
        let mut guards = Vec::with_capacity(missing.len());
        let mut waits = VecDeque::new();
        let mut others = Vec::new();
        let mut refused = None;
        for (hash, place) in missing {
            if let Some(error) = refuse(&keys.keys.0[place]) {
                refused = Some(error);
                continue;
            }
            let mut claimant = Claimant::new(self, hash, keys.keys.0[place].clone(), want);
            if launch.is_some() {
                claimant.elsewhere = Some(settled::<E>());
            }
            match claimant.try_claim(May::Lead) {
                Some(Claim::Guard(guard, _)) => match guard.unless(&refuse) {
                    Ok(guard) => {
                        guards.push((place, guard));
                        waits.extend(launch.as_ref().map(|_| (place, claimant)));
                    }
                    Err(error) => refused = Some(error),
                },
                Some(claim) => keys.answers.0[place] = answer(claim)?,
                None => others.push((place, claimant)),
            }
        }
        // For its own loads first.
        waits.extend(others);
        loop {
            let mut places: Vec<_> = guards.iter().map(|(place, _)| *place).collect();
            places.sort_unstable();
            let asked: Vec<K> = places.iter().map(|&at| keys.keys.0[at].clone()).collect();
            match &launch {
                _ if asked.is_empty() => {}
                Some(launch) => launch(asked, guards),
                None => {
                    load_together(
                        asked,
                        guards,
                        &mut load,
                        |fault| panic!("{}", with_name(self.name.as_deref(), &fault)),
                        |place, guard, value| keys.answers.0[place] = end(guard, value),
                    )
                    .await?;
                }
            }
            let Some((place, wait)) = waits.front_mut() else {
                return match refused {
                    Some(error) => Err(error),
                    None => Ok(keys.in_order()),
                };
            };
            guards = Vec::new();
            wait.wait_now();
            match wait.claim().await {
                Claim::Guard(guard, _) => match guard.unless(&refuse) {
                    Ok(guard) => guards.push((*place, guard)),
                    Err(error) => refused = Some(error),
                },
                claim => keys.answers.0[*place] = answer(claim)?,
            }
            // A load that is launched from here is awaited still.
            if guards.is_empty() || launch.is_none() {
                waits.pop_front();
            }
        }
    }
}

/// Runs `load` for keys, which are in the order of the places that their guards have. If the answer
/// has another number of values than there are keys, `faulty` makes an error of the message about
/// that. `end` ends each load by its part of the answer. If that panics about one key, the others
/// get their values all the same: the first panic goes on when all have ended.
pub(crate) async fn load_together<K, V, C: ToCache<K, V>, T, X, E, F>(
    keys: Vec<K>,
    guards: Vec<(usize, Guard<K, V, C>)>,
    load: impl FnOnce(Vec<K>) -> F,
    faulty: impl FnOnce(String) -> E,
    mut end: impl FnMut(usize, Guard<K, V, C>, Result<Option<T>, E>),
) -> Result<(), E>
where
    E: From<X> + Clone,
    F: Future<Output = Result<Vec<Option<T>>, X>>,
{
    let mut order: Vec<usize> = (0..guards.len()).collect();
    order.sort_unstable_by_key(|&at| guards[at].0);
    // The code of `load` runs within a poll, as its future does.
    let code = pin!(async { load(keys).await });
    let loaded = lead(guards.iter().map(|(_, guard)| guard), code).await;
    let asked = guards.len();
    let loaded = match loaded {
        Ok(values) if values.len() != asked => {
            let got = values.len();
            // Here: what comes next may panic.
            drop(LetGoEach(values));
            Err(faulty(format!(
                "the load of several keys was given {asked} keys and returned {got} values; it has \
                 to return one for each key"
            )))
        }
        loaded => loaded.map_err(E::from),
    };
    let mut values: Vec<_> = guards.iter().map(|_| None).collect();
    let loaded = loaded.map(|loaded| {
        let loaded = order.into_iter().zip(loaded);
        loaded.for_each(|(at, value)| values[at] = value);
    });
    // The gate of the cache is left when all of the loads have ended.
    let _visit = match guards.first() {
        Some((_, guard)) => guard.engine(),
        None => None,
    };
    let mut panicked = None;
    for ((place, guard), value) in guards.into_iter().zip(values) {
        let value = loaded.clone().map(|()| value);
        match catch_unwind(AssertUnwindSafe(|| end(place, guard, value))) {
            Ok(()) => {}
            Err(panic) if panicked.is_none() => panicked = Some(panic),
            Err(panic) => _ = contain(|| drop(panic)),
        }
    }
    match panicked {
        Some(panic) => resume_unwind(panic),
        None => loaded,
    }
}

impl<K, V, S> Cache<K, V, S>
where
    K: Hash + Eq + Clone + Send + Sync + 'static,
    V: Clone + Send + Sync + 'static,
    S: BuildHasher + Send + Sync + 'static,
{
    /// Returns the values of several keys, in their order. Those that the cache does not have are
    /// loaded by one call of `load`, which returns a value or `None` for each key that it is given.
    ///
    /// A key that another call is loading is not loaded again: this call waits for it, after its
    /// own keys were stored. Only if that load fails, `load` runs again, for that key.
    ///
    /// # Errors
    ///
    /// That of `load`: then the keys that it was given are not stored. Keys that were found or
    /// loaded before are not affected.
    ///
    /// # Panics
    ///
    /// If `load`, or other user code that an insert runs, panics. If `load` returns another number
    /// of values than it was given keys. If the call would wait for a load that its own thread
    /// leads, as [`get_with`](Self::get_with) says.
    ///
    /// # Cost
    ///
    /// A [`get`](Self::get) for each key, and an [`insert`](Self::insert) and the memory of a load
    /// and of a box for the value for each key that is loaded. Keys are told apart by the hasher of
    /// the cache: those that share a hash are compared with each other.
    ///
    /// ```
    /// let cache = wheelhouse::Cache::new(100);
    /// cache.insert(1, 10);
    /// let values = cache.get_all_with([1, 2, 3, 2], |keys| {
    ///     assert_eq!(keys, [2, 3]);
    ///     Ok::<_, ()>(vec![Some(20), None])
    /// });
    /// assert_eq!(values.unwrap(), [Some(10), Some(20), None, Some(20)]);
    /// ```
    #[track_caller]
    pub fn get_all_with<E>(
        &self,
        keys: impl IntoIterator<Item = K>,
        mut load: impl FnMut(&[K]) -> Result<Vec<Option<V>>, E>,
    ) -> Result<Vec<Option<V>>, Arc<E>>
    where
        E: Send + Sync + 'static,
    {
        let load = |keys: Vec<K>| {
            let keys = LetGoEach(keys);
            ready(load(&keys.0))
        };
        block_on(self.get_all_with_async(keys, load))
    }

    /// Returns the values of several keys; a future loads those that are absent. The async form of
    /// [`get_all_with`](Self::get_all_with); its closure gets the keys as a vector.
    ///
    /// # Errors
    ///
    /// As `get_all_with`.
    ///
    /// # Panics
    ///
    /// As `get_all_with`.
    ///
    /// # Cost
    ///
    /// As [`get_all_with`](Self::get_all_with).
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() {
    /// let cache = wheelhouse::Cache::new(100);
    /// let squares = |keys: Vec<u64>| async move {
    ///     Ok::<_, ()>(keys.iter().map(|key| Some(key * key)).collect())
    /// };
    /// let values = cache.get_all_with_async([2, 3], squares).await;
    /// assert_eq!(values.unwrap(), [Some(4), Some(9)]);
    /// # }
    /// ```
    pub async fn get_all_with_async<E, F>(
        &self,
        keys: impl IntoIterator<Item = K>,
        mut load: impl FnMut(Vec<K>) -> F,
    ) -> Result<Vec<Option<V>>, Arc<E>>
    where
        E: Send + Sync + 'static,
        F: Future<Output = Result<Vec<Option<V>>, E>>,
    {
        let engine = self.engine();
        let keys = Keys::look_up(
            engine,
            keys,
            |key| self.hash(key),
            |node| node.value().clone(),
            |_, value| value,
        );
        let value = |run: Ran<_, _, _, _>| conclude(run).ok().map(|seen| seen.value);
        let all = engine.load_all(
            keys,
            |_| None::<Arc<E>>,
            None::<fn(_, _)>,
            &mut load,
            |guard, loaded| {
                let made = match loaded {
                    Ok(loaded) => of_option(loaded),
                    Err(error) => Made::NoValue(Outcome::Error(error)),
                };
                value(Ran::Led(guard, None, made))
            },
            |claim| Ok(value(Ran::NotLed(claim))),
        );
        all.await
    }
}
