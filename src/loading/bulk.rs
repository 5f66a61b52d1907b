//! Many keys at once: one closure loads those that this call leads.
//!
//! The call joins the loads of other calls immediately, but waits for them only after its own keys
//! are committed. So calls with overlapping keys never wait in a ring, and a load that ends
//! meanwhile leaves its value with the waiter.

use super::begin::{LoadRequest, Role};
use super::bounds::{CacheKey, CacheValue};
use super::commit::Lead;
use super::key::ByRef;
use super::poll::{Part, Seeker};
use super::run::End;
use crate::cache::Cache;
use crate::load::{Failure, Load, Outcome, Ticket, Verdict, Want, thread_number};
use crate::operations::{Core, LifetimeSource};
use std::collections::HashMap;
use std::convert::Infallible;
use std::future::{Future, poll_fn};
use std::hash::{BuildHasher, Hash};
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;

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
    pub(crate) fn fold(keys: impl IntoIterator<Item = K>) -> Self
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
        Self {
            answers: Vec::with_capacity(unique.len()),
            unique,
            places,
            missing: Vec::new(),
        }
    }

    /// Reads what the cache has.
    pub(crate) fn look_up<S>(&mut self, cache: &Cache<K, V, S>)
    where
        K: Send + Sync + 'static,
        V: Send + Sync + 'static,
        S: BuildHasher + Send + Sync + 'static,
    {
        self.answers = cache.get_many(&self.unique);
        let missing = |&at: &usize| self.answers[at].is_none();
        self.missing = (0..self.unique.len()).filter(missing).collect();
    }

    pub(crate) fn in_order(self) -> Vec<Option<V>> {
        let answer = |&place: &usize| self.answers[place].clone();
        self.places.iter().map(answer).collect()
    }
}

/// What a call leads: the keys' places, and the right to load each.
struct Leads<'a, K, V, S> {
    places: Vec<usize>,
    leads: Vec<Lead<'a, K, V, S>>,
}

impl<'a, K: CacheKey, V: CacheValue, S: BuildHasher> Leads<'a, K, V, S> {
    fn new() -> Self {
        Self {
            places: Vec::new(),
            leads: Vec::new(),
        }
    }

    fn one(place: usize, lead: Lead<'a, K, V, S>) -> Self {
        Self {
            places: vec![place],
            leads: vec![lead],
        }
    }

    fn push(&mut self, place: usize, lead: Lead<'a, K, V, S>) {
        self.places.push(place);
        self.leads.push(lead);
    }

    fn is_empty(&self) -> bool {
        self.leads.is_empty()
    }

    fn keys(&self) -> Vec<K> {
        let key = |lead: &Lead<'a, K, V, S>| lead.load().key().clone();
        self.leads.iter().map(key).collect()
    }

    fn led_by(&self, thread: u64) {
        for lead in &self.leads {
            lead.load().set_leader(thread);
        }
    }

    /// Commits what was loaded, or fails each key.
    #[track_caller]
    fn conclude<E, L>(
        self,
        loaded: Result<Vec<Option<L>>, E>,
        answers: &mut [Option<V>],
        put: &impl Fn(L) -> (V, LifetimeSource),
    ) -> Result<(), Arc<E>>
    where
        E: Send + Sync + 'static,
    {
        let values = match loaded {
            Ok(values) => values,
            Err(error) => {
                let error = Arc::new(error);
                for lead in self.leads {
                    lead.fail(Failure::Error(Arc::<E>::clone(&error)));
                }
                return Err(error);
            }
        };
        assert!(
            values.len() == self.leads.len(),
            "{}",
            wrong_number_of_values(self.leads.len(), values.len()),
        );
        for ((place, lead), value) in self.places.into_iter().zip(self.leads).zip(values) {
            match value {
                Some(value) => {
                    let (value, given) = put(value);
                    let got = lead.commit(value, given).got();
                    answers[place] = Some(got.value);
                }
                None => lead.fail(Failure::Absent),
            }
        }
        Ok(())
    }
}

/// What to say of a load that was given another number of keys than it returned values.
pub(crate) fn wrong_number_of_values(keys: usize, values: usize) -> String {
    format!(
        "the load of several keys was given {keys} keys and returned {values} values; it has to \
         return one for each key"
    )
}

/// A place among the waiters of another call's load, given up when it is dropped.
struct Joined<'a, K, V, S> {
    core: &'a Core<K, V, S>,
    place: usize,
    load: Arc<Load<K, V>>,
    ticket: Option<Ticket>,
}

impl<K, V, S> Drop for Joined<'_, K, V, S> {
    fn drop(&mut self) {
        if let Some(ticket) = self.ticket.take() {
            self.core.loads().give_up(&self.load, ticket);
        }
    }
}

/// A value about which its loader says nothing more.
fn plain<V>(value: V) -> (V, LifetimeSource) {
    (value, LifetimeSource::Policy)
}

const ASK: LoadRequest = LoadRequest::value(Want::Optional);

/// What it wants of a key that another call loads, while it has its own keys to load: that key must
/// not wait for those. Its closure might even wait for that key.
const REQUEST_LATER: LoadRequest = LoadRequest::value(Want::Later);

impl<K, V, S> Cache<K, V, S>
where
    K: Hash + Eq + Clone + Send + Sync + 'static,
    V: Clone + Send + Sync + 'static,
    S: BuildHasher + Send + Sync + 'static,
{
    /// The values of several keys, in their order; those that the cache does not have are loaded by
    /// one call of `load`, which returns a value or `None` for each key that it is given.
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
        load: impl FnMut(&[K]) -> Result<Vec<Option<V>>, E>,
    ) -> Result<Vec<Option<V>>, Arc<E>>
    where
        E: Send + Sync + 'static,
    {
        self.get_all_as(keys, load, plain)
    }

    /// As `get_all_with`; `put` says what to store of what was loaded.
    #[track_caller]
    pub(crate) fn get_all_as<E, L>(
        &self,
        keys: impl IntoIterator<Item = K>,
        mut load: impl FnMut(&[K]) -> Result<Vec<Option<L>>, E>,
        put: impl Fn(L) -> (V, LifetimeSource),
    ) -> Result<Vec<Option<V>>, Arc<E>>
    where
        E: Send + Sync + 'static,
    {
        let core = &*self.core;
        let mut keys = Keys::fold(keys);
        keys.look_up(self);
        let ask = LoadRequest {
            thread: thread_number(),
            ..ASK
        };
        let ask_later = LoadRequest {
            thread: ask.thread,
            ..REQUEST_LATER
        };
        let mut leads = Leads::new();
        let mut joined = Vec::new();
        for &place in &keys.missing {
            let mut ticket = None;
            let key = &keys.unique[place];
            let begun = core.loads().begin(
                &mut ByRef::new(key),
                core.hash(key),
                &ask_later,
                &mut ticket,
            );
            match begun {
                Role::Found(got) => keys.answers[place] = Some(got.value),
                Role::Lead(lead, _) => leads.push(place, lead),
                Role::Joined(load) => joined.push(Joined {
                    core,
                    place,
                    load,
                    ticket,
                }),
                Role::Busy => unreachable!("it waits"),
            }
        }
        if !leads.is_empty() {
            let loaded = load(&leads.keys());
            leads.conclude(loaded, &mut keys.answers, &put)?;
        }
        for mut waiter in joined {
            let place = waiter.place;
            if let Some(ticket) = waiter.ticket {
                waiter.load.wait_now(ticket);
            }
            let lead = loop {
                let Some(ticket) = waiter.ticket else {
                    unreachable!("a call that waits has a ticket");
                };
                let verdict = match core.loads().wait_until(&waiter.load, ticket, None) {
                    Ok(verdict) => verdict,
                    Err(ring) => panic!("{}", core.loads().ring_message(&waiter.load, ring)),
                };
                let next = match verdict {
                    Some(Verdict::Ended(outcome)) => {
                        keys.answers[place] = value_of(core, &outcome);
                        break None;
                    }
                    Some(Verdict::Leads) => core.loads().accept_lead(&waiter.load, &ask),
                    _ => None,
                };
                let key = &keys.unique[place];
                let next = next.unwrap_or_else(|| {
                    let hash = core.hash(key);
                    core.loads()
                        .begin(&mut ByRef::new(key), hash, &ask, &mut waiter.ticket)
                });
                match next {
                    Role::Found(got) => {
                        keys.answers[place] = Some(got.value);
                        break None;
                    }
                    Role::Lead(lead, _) => break Some(lead),
                    Role::Joined(load) => waiter.load = load,
                    Role::Busy => unreachable!("it waits"),
                }
            };
            waiter.ticket = None;
            if let Some(lead) = lead {
                let leads = Leads::one(place, lead);
                let loaded = load(&leads.keys());
                leads.conclude(loaded, &mut keys.answers, &put)?;
            }
        }
        Ok(keys.in_order())
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
        load: impl FnMut(Vec<K>) -> F,
    ) -> Result<Vec<Option<V>>, Arc<E>>
    where
        E: Send + Sync + 'static,
        F: Future<Output = Result<Vec<Option<V>>, E>>,
    {
        self.get_all_as_async(keys, load, plain).await
    }

    /// As `get_all_with_async`; `put` says what to store of what was loaded.
    pub(crate) async fn get_all_as_async<E, F, L>(
        &self,
        keys: impl IntoIterator<Item = K>,
        mut load: impl FnMut(Vec<K>) -> F,
        put: impl Fn(L) -> (V, LifetimeSource),
    ) -> Result<Vec<Option<V>>, Arc<E>>
    where
        E: Send + Sync + 'static,
        F: Future<Output = Result<Vec<Option<L>>, E>>,
    {
        let mut keys = Keys::fold(keys);
        keys.look_up(self);
        let mut leads = Leads::new();
        let mut waiters = Vec::new();
        // Each finds its part now; those that have to wait are asked again later.
        for &place in &keys.missing {
            let key = ByRef::new(&keys.unique[place]);
            let mut seeker = Seeker::new(self, key, REQUEST_LATER, None);
            let part = poll_fn(|cx| Poll::Ready(seeker.poll(cx))).await;
            match part {
                Poll::Pending => waiters.push((place, seeker)),
                Poll::Ready(Part::Lead(lead, _)) => leads.push(place, lead),
                Poll::Ready(Part::Found(got)) => keys.answers[place] = Some(got.value),
                Poll::Ready(Part::Shared(outcome)) => {
                    keys.answers[place] = value_of(&self.core, &outcome);
                }
                Poll::Ready(Part::Busy) => unreachable!("it waits"),
            }
        }
        if !leads.is_empty() {
            let loaded = led(&leads, load(leads.keys())).await;
            leads.conclude(loaded, &mut keys.answers, &put)?;
        }
        for (place, mut seeker) in waiters {
            seeker.wait_now(ASK);
            match poll_fn(|cx| seeker.poll(cx)).await {
                Part::Found(got) => keys.answers[place] = Some(got.value),
                Part::Shared(outcome) => keys.answers[place] = value_of(&self.core, &outcome),
                Part::Lead(lead, _) => {
                    let leads = Leads::one(place, lead);
                    let loaded = led(&leads, load(leads.keys())).await;
                    leads.conclude(loaded, &mut keys.answers, &put)?;
                }
                Part::Busy => unreachable!("it waits"),
            }
        }
        Ok(keys.in_order())
    }
}

/// Polls the future of several loads. The polling thread leads each of them until its poll ends,
/// also while the caller then commits what was loaded.
async fn led<K: CacheKey, V: CacheValue, S: BuildHasher, F: Future>(
    leads: &Leads<'_, K, V, S>,
    future: F,
) -> F::Output {
    let mut future = pin!(future);
    poll_fn(|cx| {
        leads.led_by(thread_number());
        let polled = future.as_mut().poll(cx);
        if polled.is_pending() {
            leads.led_by(0);
        }
        polled
    })
    .await
}

/// The value of another call's outcome, if there is one.
fn value_of<K: CacheKey, V: CacheValue, S: BuildHasher>(
    core: &Core<K, V, S>,
    outcome: &Outcome<V>,
) -> Option<V> {
    match End::<V, Infallible>::of_load(outcome, &core.shared.clock) {
        End::Found(got) => Some(got.value),
        _ => None,
    }
}
