//! Many keys at once: one closure loads those that this call leads.
//!
//! The call joins the loads of other calls immediately, but waits for them only after its own keys
//! are committed. So calls with overlapping keys never wait in a cycle, and a load that ends
//! meanwhile leaves its value with the waiter.

use super::claim::{Claim, Claimant, Request};
use super::guard::{CallGuard, Home};
use super::key::{CacheHasher, CacheKey, CacheValue};
use super::run::{Made, Run, conclude, of_option, poll_leader};
use super::state::{Outcome, Want};
use super::wait::block_on;
use crate::cache::Cache;
use std::collections::HashMap;
use std::future::{Future, poll_fn, ready};
use std::hash::{BuildHasher, Hash};
use std::pin::pin;
use std::sync::Arc;

/// The keys of a call, each once, and where its answer goes.
pub(crate) struct Keys<K, V> {
    pub(crate) unique: Vec<K>,
    /// For each key of the call, its index among the unique keys.
    places: Vec<usize>,
    /// For each of the unique keys.
    pub(crate) answers: Vec<Option<V>>,
    /// Those without a hit.
    pub(crate) missing: Vec<usize>,
}

impl<K: Hash + Eq, V: Clone> Keys<K, V> {
    /// Removes repeated keys, and looks the rest up together.
    pub(crate) fn look_up(
        keys: impl IntoIterator<Item = K>,
        look_up: impl FnOnce(&[K]) -> Vec<Option<V>>,
    ) -> Self
    where
        K: Clone,
    {
        let mut known = HashMap::new();
        let mut unique = Vec::new();
        let places = keys
            .into_iter()
            .map(|key| {
                *known.entry(key).or_insert_with_key(|key| {
                    unique.push(key.clone());
                    unique.len() - 1
                })
            })
            .collect();
        let answers = look_up(&unique);
        let missing = (0..unique.len()).filter(|&at| answers[at].is_none());
        Self {
            missing: missing.collect(),
            unique,
            places,
            answers,
        }
    }

    pub(crate) fn in_order(self) -> Vec<Option<V>> {
        let answer = |&place: &usize| self.answers[place].clone();
        self.places.iter().map(answer).collect()
    }
}

/// Loads the keys that a call leads, if there are any, and stores what was loaded, or fails each
/// key. A guard stands with the index of its key, which is also that of its answer.
async fn run<K: CacheKey, V: CacheValue, S: CacheHasher, E, F>(
    guards: Vec<(usize, CallGuard<'_, K, V, S>)>,
    load: &mut impl FnMut(Vec<K>) -> F,
    keys: &[K],
    answers: &mut [Option<V>],
) -> Result<(), Arc<E>>
where
    E: Send + Sync + 'static,
    F: Future<Output = Result<Vec<Option<V>>, E>>,
{
    if guards.is_empty() {
        return Ok(());
    }
    let mut places: Vec<_> = guards.iter().map(|(place, _)| *place).collect();
    places.sort_unstable();
    let loaded = {
        let keys = places.iter().map(|&place| keys[place].clone()).collect();
        let loads = guards.iter().map(|(_, guard)| &**guard.load());
        let mut code = pin!(async { load(keys).await });
        poll_fn(|cx| poll_leader(loads.clone(), code.as_mut(), cx)).await
    };
    let values = match loaded {
        Ok(values) => values,
        Err(error) => {
            let error = Arc::new(error);
            for (_, guard) in guards {
                guard.fail(&Outcome::Error(Arc::<E>::clone(&error)));
            }
            return Err(error);
        }
    };
    assert!(
        values.len() == guards.len(),
        "{}",
        wrong_number_of_values(guards.len(), values.len()),
    );
    for (place, value) in places.into_iter().zip(values) {
        answers[place] = value;
    }
    for (place, guard) in guards {
        let made = of_option(answers[place].take());
        answers[place] = answer(Ok((guard, None, made)));
    }
    Ok(())
}

/// The answer for a key.
fn answer<K: CacheKey, V: CacheValue, H: Home<K, V, Hasher: BuildHasher>>(
    run: Run<K, V, H, Made<V>>,
) -> Option<V> {
    conclude(run).ok().map(|seen| seen.value)
}

/// The panic message of a load that returned another number of values than it was given keys.
pub(crate) fn wrong_number_of_values(keys: usize, values: usize) -> String {
    format!(
        "the load of several keys was given {keys} keys and returned {values} values; it has to \
         return one for each key"
    )
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
    /// If `load`, or other user code that an insert runs, panics; if `load` returns another number
    /// of values than it was given keys; or if the call would wait for a load that its own thread
    /// leads, as [`get_with`](Self::get_with) says.
    ///
    /// # Cost
    ///
    /// A [`get`](Self::get) for each key, and an [`insert`](Self::insert) and the memory of a load
    /// and of a box for the value for each key that is loaded.
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
        let load = |keys: Vec<K>| ready(load(&keys));
        block_on(self.get_all_with_async(keys, load))
    }

    /// As [`get_all_with`](Self::get_all_with), with a closure that returns a future and is given
    /// the keys as a vector.
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
        let mut keys = Keys::look_up(keys, |keys| self.get_many(keys));
        let (core, unique, answers) = (self.core(), &keys.unique, &mut keys.answers);
        // In the order of their hashes, in which shards keep loads and entries: the memory that one
        // key needs is near to that of the last.
        let missing = keys.missing.iter().map(|&at| (core.hash(&unique[at]), at));
        let mut missing: Vec<_> = missing.collect();
        missing.sort_unstable();
        // It must not be told to lead another call's load while it loads its own keys: that load
        // would wait for them, and their closure might even wait for that load.
        let ask = Request::value(Want::LookUpAgain);
        let (mut guards, mut waiters) = (Vec::with_capacity(missing.len()), Vec::new());
        for (hash, place) in missing {
            let mut claimant = Claimant::new(core, hash, unique[place].clone(), ask);
            match claimant.step(None) {
                Some(Claim::Guard(guard, _)) => guards.push((place, guard)),
                Some(claim) => answers[place] = answer(Err(claim)),
                None => waiters.push((place, claimant)),
            }
        }
        run(guards, &mut load, unique, answers).await?;
        for (place, mut waiter) in waiters {
            match poll_fn(|cx| waiter.poll_claim(cx)).await {
                Claim::Guard(guard, _) => {
                    run(vec![(place, guard)], &mut load, unique, answers).await?;
                }
                claim => answers[place] = answer(Err(claim)),
            }
        }
        Ok(keys.in_order())
    }
}
