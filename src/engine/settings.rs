//! What a cache was told: its settings, but for the hasher.

use super::lifetimes::needs_own_column;
use crate::eviction::EvictionPolicy;
use crate::expiry::ErasedExpiry;
use crate::listener::{Delivery, Listener};
use crate::node::Columns;
use crate::refresh::Refresh;
use crate::scheduler::Scheduler;
use crate::time::Ticker;
use std::time::Duration;

/// The settings of a cache, but for the hasher.
pub(crate) struct Settings<K, V> {
    pub(crate) name: Option<String>,
    pub(crate) initial_capacity: usize,
    pub(crate) max_capacity: Option<u64>,
    pub(crate) weigher: Option<Weigher<K, V>>,
    pub(crate) eviction_policy: Option<EvictionPolicy>,
    pub(crate) eviction_seed: Option<u64>,
    /// How many parts; if not set, the cache chooses.
    pub(crate) parts: Option<usize>,
    pub(crate) policy: Option<Box<dyn ErasedExpiry<K, V>>>,
    pub(crate) time_to_live: Option<Duration>,
    pub(crate) time_to_idle: Option<Duration>,
    /// How old a load may become before another one may replace it.
    pub(crate) load_timeout: Option<Duration>,
    pub(crate) resolution: Duration,
    pub(crate) ticker: Option<Box<dyn Ticker>>,
    pub(crate) scheduler: Option<Scheduler>,
    pub(crate) listener: Option<Listener<K, V>>,
    pub(crate) delivery: Delivery,
    pub(crate) record_stats: bool,
    /// Decides when entries become stale. Of a `LoadingCache`.
    pub(crate) refresh: Option<Box<dyn Refresh<K, V>>>,
    /// If failures of loads are remembered. Of a `LoadingCache`.
    pub(crate) forget_failure: Option<ForgetFailure<K>>,
}

impl<K, V> Settings<K, V> {
    /// What the nodes and entries of such a cache have.
    pub(crate) fn columns(&self) -> Columns {
        Columns {
            queue: self.max_capacity.is_some(),
            own: needs_own_column(self.time_to_live, self.time_to_idle, self.policy.is_some()),
            weight: self.weigher.is_some(),
            refresh: self.refresh.is_some(),
        }
    }
}

/// Called when the code of a load has answered: with a value, or that there is none.
pub(crate) type ForgetFailure<K> = Box<dyn Fn(&K) + Send + Sync>;

/// The weigher, as the cache keeps it.
pub(crate) type Weigher<K, V> = Box<dyn Fn(&K, &V) -> u32 + Send + Sync>;
