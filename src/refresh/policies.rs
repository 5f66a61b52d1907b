//! The ready policies.

use super::{LifetimeAndLoad, Refresh, forward_all};
use crate::atomic64::AtomicU64;
use crate::expiry::{Jittered, random_unit, shorten};
use crate::time::saturating_nanos;
use std::fmt;
use std::panic::{RefUnwindSafe, UnwindSafe};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// Makes entries stale a fixed time after they were written or reloaded. Zero is an error of
/// [`try_build`](crate::LoadingBuilder::try_build).
///
/// ```
/// use std::time::Duration;
/// use wheelhouse::{Cache, ManualTicker, loader_fn, refresh};
///
/// let time = ManualTicker::new();
/// let cache = Cache::builder()
///     .ticker(time.clone())
///     .loading(loader_fn(|key: &u32| Ok::<u32, ()>(key * 2)))
///     .refresh_after(refresh::after(Duration::from_secs(60)))
///     .build();
/// assert_eq!(cache.get(&4).unwrap(), 8);
/// ```
#[must_use]
pub fn after(time: Duration) -> Ready {
    Ready(Arc::new(move |_| Some(time)))
}

/// Makes entries stale when this fraction of their lifetime has passed. Entries without a deadline
/// never are.
///
/// # Panics
///
/// If `share` is not within 0.0 to 1.0.
///
/// ```
/// use std::time::Instant;
/// use std::time::Duration;
/// use wheelhouse::{Refresh, refresh};
///
/// let policy = refresh::fraction(0.8);
/// let lifetime = Some(Duration::from_secs(10));
/// let moment = policy.refresh_after_create(&1, &1, Instant::now(), lifetime);
/// assert_eq!(moment, Some(Duration::from_secs(8)));
/// ```
#[must_use]
#[track_caller]
pub fn fraction(share: f64) -> Ready {
    assert!(
        (0.0..=1.0).contains(&share),
        "refresh::fraction was given {share}; allowed is 0.0 (stale at once) to 1.0 (at the deadline)",
    );
    // Subtracted from the whole, so that a share of 1 is exactly the lifetime.
    Ready(Arc::new(move |(lifetime, _): LifetimeAndLoad| {
        let lifetime = lifetime?;
        Some(lifetime - seconds(lifetime.as_secs_f64() * (1.0 - share), lifetime))
    }))
}

/// Brings the moments of another policy forward by a random share of up to `fraction`, so that
/// entries that were written together are not reloaded together.
///
/// # Panics
///
/// If `fraction` is not within 0.0 to 1.0.
///
/// ```
/// use std::time::{Duration, Instant};
/// use wheelhouse::{Refresh, refresh};
///
/// let policy = refresh::jittered(refresh::after(Duration::from_secs(60)), 0.1);
/// let moment = policy.refresh_after_create(&1, &1, Instant::now(), None).unwrap();
/// assert!(moment > Duration::from_secs(53) && moment <= Duration::from_secs(60));
/// ```
#[must_use]
#[track_caller]
pub fn jittered<P>(policy: P, fraction: f64) -> Jittered<P> {
    assert!(
        (0.0..=1.0).contains(&fraction),
        "refresh::jittered was given the fraction {fraction}; allowed is 0.0 (moments as they are) to 1.0 (down to nothing)",
    );
    Jittered { policy, fraction }
}

/// Makes reloads early by chance: an entry is stale a random time before its deadline. The longer a
/// value takes to load, the longer that time.
///
/// That time is `δ·β·X`: `δ` is how long the load of the value took by the cache's ticker, `β` the
/// factor `beta`, and `X` is exponentially distributed with mean 1, drawn once per write. It is at
/// most half of the entry's lifetime. For a value that was not loaded, `δ` is that of the last load
/// that the policy has seen. Entries without a deadline are never stale. A `beta` of 1 suits most;
/// a larger one reloads earlier.
///
/// This is XFetch: Vattani, Chierichetti and Lowenstein, "Optimal Probabilistic Cache Stampede
/// Prevention", VLDB 2015.
///
/// # Panics
///
/// If `beta` is negative, infinite or not a number.
///
/// ```
/// use std::time::Duration;
/// use wheelhouse::{Cache, loader_fn, refresh};
///
/// let cache = Cache::builder()
///     .time_to_live(Duration::from_secs(60))
///     .loading(loader_fn(|key: &u32| Ok::<u32, ()>(key * 2)))
///     .refresh_after(refresh::early(1.0))
///     .build();
/// assert_eq!(cache.get(&4).unwrap(), 8);
/// ```
#[must_use]
#[track_caller]
pub fn early(beta: f64) -> Ready {
    assert!(
        beta.is_finite() && beta >= 0.0,
        "refresh::early was given the factor {beta}; allowed is any that is finite and not negative",
    );
    // How long the last load took, in nanoseconds.
    let last = AtomicU64::new(0);
    Ready(Arc::new(move |(lifetime, took): LifetimeAndLoad| {
        let took = match took {
            Some(took) => {
                last.store(saturating_nanos(took), Ordering::Relaxed);
                took
            }
            None => Duration::from_nanos(last.load(Ordering::Relaxed)),
        };
        let lifetime = lifetime?;
        // `1 - u` is within (0, 1], so the draw is finite.
        let draw = -(1.0 - random_unit()).ln();
        Some(lifetime - seconds(took.as_secs_f64() * beta * draw, lifetime / 2))
    }))
}

/// Makes no entry stale, with two exceptions: the loader returned
/// [`Loaded::refresh_in`](crate::Loaded::refresh_in) for it, or a
/// [`refresh`](crate::LoadingCache::refresh) of it has failed and is tried again.
///
/// ```
/// use wheelhouse::{Cache, loader_fn, refresh};
///
/// let cache = Cache::builder()
///     .loading(loader_fn(|key: &u32| Ok::<u32, ()>(key * 2)))
///     .refresh_after(refresh::never())
///     .build();
/// assert_eq!(cache.get(&4).unwrap(), 8);
/// ```
#[must_use]
pub fn never() -> Ready {
    Ready(Arc::new(|_| None))
}

/// Pauses for [`failure_backoff`](crate::LoadingBuilder::failure_backoff) that double with each
/// failure in a row: `first`, twice as long, and so on, up to `longest`.
///
/// ```
/// use std::time::Duration;
/// use wheelhouse::refresh;
///
/// let pause = refresh::doubling(Duration::from_secs(1), Duration::from_secs(60));
/// let seconds = [1, 2, 3, 6, 7, 100].map(|failures| pause(failures).unwrap().as_secs());
/// assert_eq!(seconds, [1, 2, 4, 32, 60, 60]);
/// ```
pub fn doubling(
    first: Duration,
    longest: Duration,
) -> impl Fn(u32) -> Option<Duration> + Clone + Send + Sync + 'static {
    move |failures| match 1_u32.checked_shl(failures.saturating_sub(1)) {
        Some(times) => Some(first.saturating_mul(times).min(longest)),
        None => Some(longest),
    }
}

/// A ready policy, made by [`after`], [`fraction`], [`early`] or [`never()`]; they have examples.
///
/// Clones of [`early`] share the time of the last load.
#[derive(Clone)]
pub struct Ready(Arc<Moment>);

/// When an entry becomes stale.
type Moment =
    dyn Fn(LifetimeAndLoad) -> Option<Duration> + Send + Sync + UnwindSafe + RefUnwindSafe;

impl fmt::Debug for Ready {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Ready").finish_non_exhaustive()
    }
}

/// A time in seconds, `most` at most.
fn seconds(time: f64, most: Duration) -> Duration {
    match Duration::try_from_secs_f64(time) {
        Ok(time) => time.min(most),
        Err(_) => most,
    }
}

impl<K, V> Refresh<K, V> for Ready {
    fn refresh_after_create(
        &self,
        _: &K,
        _: &V,
        _: Instant,
        lifetime: Option<Duration>,
    ) -> Option<Duration> {
        (self.0)((lifetime, None))
    }

    fn by_times(&self, times: LifetimeAndLoad) -> Option<Option<Duration>> {
        Some((self.0)(times))
    }
}

impl<K, V, P: Refresh<K, V>> Refresh<K, V> for Jittered<P> {
    forward_all!(self => self.policy, |moment| shorten(moment, self.fraction));
}

#[cfg(all(test, not(wheelhouse_loom), not(wheelhouse_shuttle)))]
mod tests;
