//! A stand-in for the leases of `wheelhouse`, until these are on the main branch.
//!
//! It has the names of the core and the part of its semantics that this crate uses: at most one
//! current load for a key, `invalidate` and `remove_if` revoke it, a dropped lease lets the next
//! waiter lead. One mutex guards the table of loads. To switch: delete this file and import
//! `Cache`, `Leased` and `Filled` from `wheelhouse`.

use std::collections::HashMap;
use std::hash::{BuildHasher, Hash};
use std::ops::Deref;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tokio::sync::watch;
use wheelhouse::{CacheBuilder, Equivalent, RandomState};

/// The state of one load: how it ended, once it has.
#[derive(Clone)]
enum Outcome<V> {
    Running,
    Value(V),
    Failed,
}

type Loads<K, V> = Mutex<HashMap<K, Arc<watch::Sender<Outcome<V>>>>>;

/// The cache and the table of its current loads.
pub(crate) struct Cache<K, V, S = RandomState> {
    cache: wheelhouse::Cache<K, V, S>,
    loads: Arc<Loads<K, V>>,
}

pub(crate) enum Leased<K: Eq + Hash, V, S> {
    Found(V),
    Lease(Lease<K, V, S>),
    Busy,
}

pub(crate) struct Lease<K: Eq + Hash, V, S> {
    cache: wheelhouse::Cache<K, V, S>,
    loads: Arc<Loads<K, V>>,
    key: K,
    outcome: Arc<watch::Sender<Outcome<V>>>,
}

pub(crate) enum Filled<V> {
    Stored,
    Lost { current: V, yours: V },
    Revoked(V),
}

impl<K, V, S> Clone for Cache<K, V, S> {
    fn clone(&self) -> Self {
        Self {
            cache: self.cache.clone(),
            loads: self.loads.clone(),
        }
    }
}

impl<K, V, S> Deref for Cache<K, V, S> {
    type Target = wheelhouse::Cache<K, V, S>;

    fn deref(&self) -> &Self::Target {
        &self.cache
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl<K, V, S> Cache<K, V, S>
where
    K: Hash + Eq + Clone + Send + Sync + 'static,
    V: Clone + Send + Sync + 'static,
    S: BuildHasher + Send + Sync + 'static,
{
    pub(crate) fn try_build(
        builder: CacheBuilder<K, V, S>,
    ) -> Result<Self, wheelhouse::BuildError> {
        Ok(Self {
            cache: builder.try_build()?,
            loads: Arc::default(),
        })
    }

    pub(crate) fn now(&self) -> Instant {
        Instant::now()
    }

    pub(crate) async fn lease_async(&self, key: K) -> Leased<K, V, S> {
        loop {
            let mut waiting = match self.step(&key) {
                Ok(leased) => return leased,
                Err(waiting) => waiting,
            };
            let ended = waiting.wait_for(|o| !matches!(o, Outcome::Running)).await;
            if let Ok(outcome) = ended
                && let Outcome::Value(value) = outcome.clone()
            {
                return Leased::Found(value);
            }
        }
    }

    pub(crate) fn lease_timeout(&self, key: K, wait: Duration) -> Leased<K, V, S> {
        debug_assert_eq!(wait, Duration::ZERO, "the stand-in does not wait");
        self.step(&key).unwrap_or(Leased::Busy)
    }

    fn step(&self, key: &K) -> Result<Leased<K, V, S>, watch::Receiver<Outcome<V>>> {
        let mut loads = locked(&self.loads);
        if let Some(found) = self.cache.get(key) {
            return Ok(Leased::Found(found));
        }
        if let Some(load) = loads.get(key) {
            return Err(load.subscribe());
        }
        let outcome = Arc::new(watch::Sender::new(Outcome::Running));
        loads.insert(key.clone(), outcome.clone());
        Ok(Leased::Lease(Lease {
            cache: self.cache.clone(),
            loads: self.loads.clone(),
            key: key.clone(),
            outcome,
        }))
    }

    pub(crate) fn invalidate(&self, key: &K) {
        let mut loads = locked(&self.loads);
        loads.remove(key);
        self.cache.invalidate(key);
    }

    pub(crate) fn remove_if<Q>(&self, key: &Q, matches: impl Fn(&V) -> bool) -> Option<V>
    where
        Q: Equivalent<K> + Hash + ?Sized,
    {
        let mut loads = locked(&self.loads);
        let found = self.cache.peek_ref(key)?;
        if !matches(&found) {
            return None;
        }
        let key = found.key().clone();
        drop(found);
        loads.remove(&key);
        self.cache.remove(&key)
    }
}

impl<K, V, S> Lease<K, V, S>
where
    K: Hash + Eq + Clone + Send + Sync + 'static,
    V: Clone + Send + Sync + 'static,
    S: BuildHasher + Send + Sync + 'static,
{
    pub(crate) fn key(&self) -> &K {
        &self.key
    }

    pub(crate) fn fill(self, value: V) -> Filled<V> {
        let mut loads = locked(&self.loads);
        let current = is_current(&loads, &self.key, &self.outcome);
        let filled = if current {
            loads.remove(&self.key);
            self.cache.insert(self.key.clone(), value.clone());
            Filled::Stored
        } else if let Some(there) = self.cache.get(&self.key) {
            Filled::Lost {
                current: there,
                yours: value.clone(),
            }
        } else {
            Filled::Revoked(value.clone())
        };
        drop(loads);
        self.outcome.send_replace(Outcome::Value(value));
        filled
    }
}

fn is_current<K: Eq + Hash, V>(
    loads: &HashMap<K, Arc<watch::Sender<Outcome<V>>>>,
    key: &K,
    outcome: &Arc<watch::Sender<Outcome<V>>>,
) -> bool {
    loads.get(key).is_some_and(|load| Arc::ptr_eq(load, outcome))
}

impl<K: Eq + Hash, V, S> Drop for Lease<K, V, S> {
    fn drop(&mut self) {
        let mut loads = locked(&self.loads);
        if is_current(&loads, &self.key, &self.outcome) {
            loads.remove(&self.key);
        }
        drop(loads);
        self.outcome.send_if_modified(|outcome| {
            let running = matches!(outcome, Outcome::Running);
            if running {
                *outcome = Outcome::Failed;
            }
            running
        });
    }
}
