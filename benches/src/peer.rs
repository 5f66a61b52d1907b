//! What every cache here can be asked to do. A workload is written once over [`Peer`] and compiled
//! for each cache: no virtual call and no shared wrapper in a measured loop.

use std::{hash::Hash, sync::Arc, time::Duration};

use serde::{Deserialize, Serialize};

use crate::figure::{Problem, Text, leaked};

/// The hasher of every peer that takes one.
pub type Hasher = ahash::RandomState;

pub trait Key: Hash + Eq + Clone + Send + Sync + 'static {}
impl<T: Hash + Eq + Clone + Send + Sync + 'static> Key for T {}

pub trait Value: Clone + Send + Sync + 'static {}
impl<T: Clone + Send + Sync + 'static> Value for T {}

pub type Lifetime<K, V> = fn(&K, &V) -> Duration;

#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Expiring {
    /// Nothing expires.
    Never,
    /// Set when an entry is created.
    Create,
    /// Set when an entry is created or replaced.
    Write,
    /// Set by every write and every read.
    Access,
}

impl Expiring {
    /// As the tables call it.
    pub fn label(self) -> &'static str {
        match self {
            Expiring::Never => "no expiry",
            Expiring::Create => "per-entry expiry",
            Expiring::Write => "per-entry expiry, set by each write",
            Expiring::Access => "expiry that every read extends",
        }
    }
}

/// Called with key and value of what leaves a cache, and whether its deadline had come.
pub type Listener<K, V> = Arc<dyn Fn(&K, &V, bool) + Send + Sync>;

/// What a workload wants built.
#[derive(Clone)]
pub struct Plan<K = u64, V = u64> {
    /// Upper bound in entries; `None` for no bound.
    pub capacity: Option<u64>,
    /// How many entries the cache is told to expect.
    pub expected: usize,
    pub expiring: Expiring,
    pub lifetime: Lifetime<K, V>,
    /// One lifetime for all, for a peer that knows no other; `None` where that would not be the
    /// same work.
    pub uniform: Option<Duration>,
    pub listener: Option<Listener<K, V>>,
}

impl<K, V> Plan<K, V> {
    /// The upper bound, for a peer that must be given one. A plan without a bound gives one far
    /// above what any workload inserts.
    pub fn bound(&self) -> u64 {
        self.capacity.unwrap_or(1 << 40)
    }

    /// For a peer without expiry, and without a listener for the reason `why`.
    pub fn plain(&self, why: &'static str) -> Result<(), Problem> {
        match self.expiring {
            Expiring::Never => self.without_listener(why),
            _ => Err(Problem::Unsupported("no expiry")),
        }
    }

    /// For a quick_cache whose expiry is made by hand. `why` says why reads cannot extend a
    /// deadline.
    pub fn by_hand(&self, why: &'static str) -> Result<(), Problem> {
        match self.expiring {
            Expiring::Never => Err(Problem::Unsupported("without expiry it is quick_cache")),
            Expiring::Access => Err(Problem::Unsupported(why)),
            Expiring::Create | Expiring::Write => Ok(()),
        }
    }

    /// For a peer that reports no removals, or not as workloads need it, for the reason `why`.
    pub fn without_listener(&self, why: &'static str) -> Result<(), Problem> {
        match self.listener {
            None => Ok(()),
            Some(_) => Err(Problem::Unsupported(why)),
        }
    }
}

/// How a peer is compared.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub enum Role {
    /// wheelhouse itself.
    Subject,
    /// A cache, or a timer structure: what "the best peer" is chosen from.
    Cache,
    /// A bare map, or no cache at all: shown, but never "the best".
    Floor,
}

/// Name and role of a peer.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Card {
    /// As the tables call it.
    #[serde(deserialize_with = "leaked")]
    pub name: Text,
    pub role: Role,
}

impl Card {
    pub const fn subject(name: Text) -> Self {
        let role = Role::Subject;
        Self { name, role }
    }

    pub const fn cache(name: Text) -> Self {
        let role = Role::Cache;
        Self { name, role }
    }

    pub const fn floor(name: Text) -> Self {
        let role = Role::Floor;
        Self { name, role }
    }
}

pub trait Peer<K: Key = u64, V: Value = u64>: Sized + Send + Sync + 'static {
    const CARD: Card;

    /// Why it sits out a workload that evicts all the time, if it does.
    const EVICTS: Result<(), Problem> = Ok(());

    /// Builds it, or says which part of the plan it cannot do.
    fn build(plan: &Plan<K, V>) -> Result<Self, Problem>;

    /// Reads a clone of the value.
    fn get(&self, key: &K) -> Option<V>;

    /// Reads the value in place where the peer allows that, else through a clone.
    fn look<R>(&self, key: &K, read: impl FnOnce(&V) -> R) -> Option<R> {
        self.get(key).map(|value| read(&value))
    }

    /// Looks all of them up, several at once where that is what the peer is for, and counts the
    /// answers that are `right`.
    #[inline]
    fn count_right(&self, keys: &[K], right: impl Fn(&K, &V) -> bool) -> u64 {
        let mut count = 0;
        for key in keys {
            count += u64::from(self.get(key).is_some_and(|value| right(key, &value)));
        }
        count
    }

    fn insert(&self, key: K, value: V);

    /// Removes, dropping the value.
    fn remove(&self, key: &K);

    /// Finishes all work that the peer has put off.
    fn settle(&self) {}

    /// Number of entries, if the peer can tell.
    fn entries(&self) -> Option<u64> {
        None
    }
}

/// A cache that loads what is absent, and computes what is there, itself.
pub trait Loads: Peer {
    /// Why its loads cannot have deadlines, if so.
    const LOADS_EXPIRE: Result<(), Problem> = Ok(());

    /// The value of a key, made by `load` if it is absent.
    fn get_with(&self, key: u64, load: impl FnOnce() -> u64) -> u64;

    /// The same with a load that may fail.
    fn try_get_with(&self, key: u64, load: impl FnOnce() -> Result<u64, ()>) -> Option<u64>;

    /// Adds one to the value of a key; an absent key gets 1.
    fn add_one(&self, key: u64);

    /// A copy of all entries, made by the cache's iterator.
    fn copy(&self) -> Vec<(u64, u64)>;
}

/// A cache that loads what is absent by a future.
pub trait LoadsByFuture: Send + Sync {
    /// The value of a key, made by `load` if it is absent.
    fn get_with_future(
        &self,
        key: u64,
        load: impl Future<Output = u64> + Send,
    ) -> impl Future<Output = u64> + Send;
}
