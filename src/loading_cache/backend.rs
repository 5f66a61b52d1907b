//! The loader of a cache, with what the cache remembers of its failures.
//!
//! # The failures of loads
//!
//! The error of a load of an absent key is remembered if the loader or the program's policy names a
//! time. A small cache of its own keeps it, by the key. Calls for the key get it until the time has
//! passed, or until a load of the key succeeds, whichever method has led that. The number of
//! failures in a row is kept beyond that time, and also if no time is named. It is not kept where
//! nothing asks for it: without a policy, of a loader with the provided
//! [`retry_after`](crate::Loader::retry_after).
//!
//! A failing load is noted before its outcome is published. So a call that leads the next load of
//! the key finds it noted. A load that a write or a newer load has revoked is not noted: the newer
//! load may have ended already. Whether it is revoked is asked before it is noted, and once more
//! afterwards. In between a newer load may have succeeded, and found nothing to forget: so the load
//! then takes its own failure back, and no other one.

use super::kinds::AnyLoader;
use super::loader::LoadError;
use crate::cache::Cache;
use crate::contain::contain;
use crate::eviction::EvictionPolicy;
use crate::flight::Load;
use crate::load::Loadable;
use crate::scheduler::Scheduler;
use crate::time;
use equivalent::Equivalent;
use std::hash::Hash;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

/// For how many keys a failure is remembered at least, before the first one is forgotten.
const LEAST_BOUND: u64 = 16_384;

/// The program's answer how long a failure is remembered, from the number of failures in a row.
pub(super) type FailurePolicy = Box<dyn Fn(u32) -> Option<Duration> + Send + Sync>;

/// See the module docs.
pub(super) struct Backend<K, V, E> {
    pub(super) loader: Arc<dyn AnyLoader<K, V, E>>,
    policy: Option<FailurePolicy>,
    failures: Arc<Failures<K, E>>,
    /// For how many keys a failure is remembered.
    most_failures: u64,
}

/// The failures that are remembered. Empty before the first.
pub(super) type Failures<K, E> = OnceLock<Cache<K, Arc<Failure<E>>>>;

/// The last failure of a key's load. It is known by its address.
pub(super) struct Failure<E> {
    /// How often the key's loads have failed in a row.
    count: u32,
    /// What calls get, and until when, in cache time; `None` if only the count is kept.
    remembered: Option<(Arc<E>, u64)>,
}

/// A load of the key has succeeded.
pub(super) fn forget<K, E>(failures: &Failures<K, E>, key: &K)
where
    K: Loadable + Hash + Eq,
    E: Send + Sync + 'static,
{
    if let Some(failures) = failures.get() {
        if failures.contains_key(key) {
            failures.invalidate(key);
            free(failures);
        }
    }
}

/// Drops what was removed: the program's keys and errors.
fn free<K: Loadable + Hash + Eq, E: Send + Sync + 'static>(failures: &Cache<K, Arc<Failure<E>>>) {
    (0..3).for_each(|_| failures.run_pending_tasks());
}

impl<K: Loadable + Hash + Eq, V, E: Send + Sync + 'static> Backend<K, V, E> {
    /// Of a cache that holds this many entries at most, as far as that is known.
    pub(super) fn new(
        loader: Arc<dyn AnyLoader<K, V, E>>,
        policy: Option<FailurePolicy>,
        failures: Arc<Failures<K, E>>,
        entries: Option<u64>,
    ) -> Self {
        Self {
            loader,
            policy,
            failures,
            most_failures: LEAST_BOUND.max(entries.unwrap_or(0)),
        }
    }

    /// The failure that a call for this key gets instead of a load. `now` is cache time.
    #[inline]
    pub(super) fn failure<Q>(&self, key: &Q, now: impl FnOnce() -> u64) -> Option<LoadError<E>>
    where
        Q: Equivalent<K> + Hash + ?Sized,
    {
        let failure = self.failures.get()?.get_ref(key)?;
        let (error, until) = failure.remembered.as_ref()?;
        if time::is_due(now(), *until) {
            return None;
        }
        Some(LoadError::Failed(Arc::clone(error)))
    }

    /// How often the key's loads have failed in a row.
    fn count(&self, key: &K) -> u32 {
        let Some(failures) = self.failures.get() else {
            return 0;
        };
        match failures.peek_ref(key) {
            Some(failure) => failure.count,
            None => 0,
        }
    }

    /// A load of an absent key has failed. If user code panics, the failure is counted and not
    /// remembered.
    pub(super) fn note_failure(
        &self,
        load: &Load<K, V>,
        error: &Arc<E>,
        now: impl FnOnce() -> u64,
    ) {
        let key = load.key();
        let count = self.count(key).saturating_add(1);
        let mut pause = contain(|| self.loader.retry_after(error, count)).unwrap_or_default();
        if pause.is_none() {
            match &self.policy {
                Some(policy) => pause = contain(|| policy(count)).unwrap_or_default(),
                None if self.loader.counts_failures() => {}
                // Nothing wants to know of the failure.
                None => return,
            }
        }
        contain(|| {
            let remembered = match pause {
                Some(pause) => Some((Arc::clone(error), time::deadline_after(now(), pause))),
                None => None,
            };
            // A write may have come while the program's code ran.
            if load.revoked().is_none() {
                let failure = Arc::new(Failure { count, remembered });
                let failures = self.insert(key, Arc::clone(&failure));
                if load.revoked().is_some() {
                    failures.remove_if(key, |last| Arc::ptr_eq(last, &failure));
                    free(failures);
                }
            }
        });
    }

    fn insert(&self, key: &K, failure: Arc<Failure<E>>) -> &Cache<K, Arc<Failure<E>>> {
        let failures = self.failures.get_or_init(|| {
            Cache::builder()
                .max_capacity(self.most_failures)
                .eviction_policy(EvictionPolicy::Lru)
                .scheduler(Scheduler::disabled())
                .build()
        });
        let replaces = failure.count > 1;
        failures.insert(key.clone(), failure);
        if replaces {
            free(failures);
        }
        failures
    }
}
