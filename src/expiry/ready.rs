//! The ready-made policies, which the table of the parent module lists.
//!
//! Each has a named type, for a field or a function's return type. None has mutable state, so
//! threads that share one policy do not contend.

use std::convert::identity;
use std::fmt;
use std::hash::{BuildHasher, RandomState};
use std::time::{Duration, Instant};

use super::Expiry;
use super::erased::{Asks, Updates};
use crate::expiry::forward;
use crate::time::{MAX_LIFETIME_NANOS, saturating_nanos};

/// Gives each new entry the lifetime that `lifetime` returns; later reads and writes do not change
/// it.
///
/// `None` means that the entry never expires; for other special values see
/// [`Expiry`](Expiry#answers).
///
/// # Examples
///
/// Use it if the source of a value sets the deadline, and later writes of the key must not extend
/// it:
///
/// ```
/// use std::time::Duration;
/// use wheelhouse::{Cache, ManualTicker, expiry};
///
/// let time = ManualTicker::new();
/// let cache = Cache::builder()
///     .ticker(time.clone())
///     .expire_after(expiry::creating(|_: &&str, seconds: &u64| {
///         Some(Duration::from_secs(*seconds))
///     }))
///     .build();
///
/// cache.insert("a", 10);
/// time.advance(Duration::from_secs(9));
/// cache.insert("a", 10);
/// assert_eq!(cache.get("a"), Some(10));
/// time.advance(Duration::from_secs(1));
/// assert_eq!(cache.get("a"), None);
/// ```
///
/// # Cost
///
/// Hits and updates do not call the closure.
pub fn creating<K, V, F>(lifetime: F) -> Creating<F>
where
    F: Fn(&K, &V) -> Option<Duration> + Send + Sync + 'static,
{
    ByClosure { lifetime }
}

/// Gives an entry the lifetime that `lifetime` returns. Each write of a value gives a new one.
///
/// A read does not move the deadline. `None` means that the entry never expires; for other special
/// values see [`Expiry`](Expiry#answers).
///
/// The closure is not told the time. If the value knows the instant of its end, use [`until`].
///
/// # Examples
///
/// ```
/// use std::time::Duration;
/// use wheelhouse::{Cache, ManualTicker, expiry};
///
/// let time = ManualTicker::new();
/// let cache = Cache::builder()
///     .ticker(time.clone())
///     .expire_after(expiry::writing(|_: &&str, seconds: &u64| {
///         Some(Duration::from_secs(*seconds))
///     }))
///     .build();
///
/// cache.insert("a", 10);
/// time.advance(Duration::from_secs(9));
/// cache.insert("a", 5);
/// time.advance(Duration::from_secs(4));
/// assert_eq!(cache.get("a"), Some(5));
/// time.advance(Duration::from_secs(1));
/// assert_eq!(cache.get("a"), None);
/// ```
///
/// # Cost
///
/// Hits do not call the closure.
pub fn writing<K, V, F>(lifetime: F) -> Writing<F>
where
    F: Fn(&K, &V) -> Option<Duration> + Send + Sync + 'static,
{
    ByClosure { lifetime }
}

/// Ends an entry at exactly the instant that `end` returns. Each write of a value asks for a new
/// one.
///
/// Use it for values that know their end: a token, a lease, a response with a date. A read does not
/// move the deadline. `None` means that the entry never expires. An instant that has come makes the
/// entry due at once: no read finds it, and the listener gets it with the cause `Expired`.
///
/// Count the instant from [`Instant::now`]. With a ticker, count it from this cache's
/// [`Policy::now`](crate::Policy::now) instead. [`Ticker`](crate::Ticker#without-a-ticker) says
/// what a suspended machine does.
///
/// # Examples
///
/// ```
/// use std::time::{Duration, Instant};
/// use wheelhouse::{Cache, ManualTicker, expiry};
///
/// struct Token { valid_until: Instant }
///
/// let time = ManualTicker::new();
/// let tokens = Cache::builder()
///     .ticker(time.clone())
///     .expire_after(expiry::until(|_: &&str, token: &Token| Some(token.valid_until)))
///     .build();
///
/// let now = tokens.policy().now();
/// tokens.insert("ada", Token { valid_until: now + Duration::from_secs(60) });
/// tokens.insert("ada", Token { valid_until: now + Duration::from_secs(10) });
/// time.advance(Duration::from_nanos(9_999_999_999));
/// assert!(tokens.contains_key("ada"));
/// time.advance(Duration::from_nanos(1));
/// assert!(!tokens.contains_key("ada"));
/// ```
///
/// # Cost
///
/// Hits do not call the closure.
pub fn until<K, V, F>(end: F) -> Until<F>
where
    F: Fn(&K, &V) -> Option<Instant> + Send + Sync + 'static,
{
    Until { end }
}

/// Gives an entry the lifetime that `lifetime` returns. Each write and each read gives a new one.
///
/// `None` means that the entry never expires; for other special values see
/// [`Expiry`](Expiry#answers).
///
/// From ten seconds on, it counts as coarsely as a
/// [`time_to_idle`](crate::CacheBuilder::time_to_idle).
///
/// # Examples
///
/// ```
/// use std::time::Duration;
/// use wheelhouse::{Cache, ManualTicker, expiry};
///
/// let time = ManualTicker::new();
/// let cache = Cache::builder()
///     .ticker(time.clone())
///     .expire_after(expiry::accessing(|_: &&str, seconds: &u64| {
///         Some(Duration::from_secs(*seconds))
///     }))
///     .build();
///
/// cache.insert("a", 10);
/// time.advance(Duration::from_secs(9));
/// assert_eq!(cache.get("a"), Some(10));
/// time.advance(Duration::from_secs(9));
/// assert_eq!(cache.get("a"), Some(10));
/// time.advance(Duration::from_secs(10));
/// assert_eq!(cache.get("a"), None);
/// ```
///
/// # Cost
///
/// Each hit calls the closure, and stores the new deadline in the entry if it differs.
pub fn accessing<K, V, F>(lifetime: F) -> Accessing<F>
where
    F: Fn(&K, &V) -> Option<Duration> + Send + Sync + 'static,
{
    ByClosure { lifetime }
}

/// Sets no deadline: an entry expires only if a caller sets its deadline.
///
/// Use it for a cache whose lifetimes all come from `insert_with_ttl` and `set_expiry`. A deadline
/// set by these calls stays when a plain `insert` replaces the value.
///
/// # Examples
///
/// ```
/// use std::time::Duration;
/// use wheelhouse::{Cache, ManualTicker, expiry};
///
/// let time = ManualTicker::new();
/// let cache: Cache<&str, u32> =
///     Cache::builder().ticker(time.clone()).expire_after(expiry::never()).build();
///
/// cache.insert("a", 1);
/// cache.insert_with_ttl("b", 2, Duration::from_secs(60));
/// time.advance(Duration::from_secs(60));
/// assert_eq!(cache.get("a"), Some(1));
/// assert_eq!(cache.get("b"), None);
/// ```
///
/// # Cost
///
/// Neither hits nor updates call it.
#[must_use]
pub fn never() -> Never {
    Never
}

/// Shortens the lifetimes that `policy` gives by a random fraction, at most `fraction`.
///
/// Entries written together then expire at different times, and the source that refills them is not
/// asked for all of them at once. With a `fraction` of 0.1 a lifetime of 60 s becomes one between
/// 54 s and 60 s, uniformly distributed. A lifetime is never made longer than `policy` said.
///
/// - An answer equal to `duration_until_expiry` passes through unchanged, so the deadline stays
///   where it is and repeated reads do not shorten it.
/// - `None` and `Some(Duration::ZERO)` pass through unchanged.
/// - A lifetime above the [longest one](Expiry#answers) is first cut to it.
///
/// The fractions are pseudo-random, from a random origin of the calling thread: they cannot be
/// reproduced, and must not be used for secrets.
///
/// # Examples
///
/// ```
/// use std::time::Duration;
/// use wheelhouse::{Cache, expiry};
///
/// let minute = expiry::writing(|_: &u8, _: &u8| Some(Duration::from_secs(60)));
/// let cache = Cache::builder().expire_after(expiry::jittered(minute, 0.1)).build();
///
/// cache.insert(1, 1);
/// let left = cache.get_ref(&1).unwrap().time_left().unwrap();
/// assert!(left > Duration::from_secs(50) && left <= Duration::from_secs(60));
/// ```
///
/// # Panics
///
/// If `fraction` is not within 0.0 to 1.0.
///
/// # Cost
///
/// A short hash for each new lifetime; no lock, no shared state.
#[track_caller]
pub fn jittered<P>(policy: P, fraction: f64) -> Jittered<P> {
    assert!(
        (0.0..=1.0).contains(&fraction),
        "jittered was given the fraction {fraction}; allowed is 0.0 (lifetimes as they are) to 1.0 (down to nothing)",
    );
    Jittered { policy, fraction }
}

/// Asks `policy` about writes only: no read calls it or moves a deadline.
///
/// Use it for a policy that has an `expire_after_read`, if reads of this cache need not move
/// deadlines. A hit then costs the same as with a deadline fixed by
/// [`insert_with_ttl`](crate::Cache::insert_with_ttl). The adaptor works in either order with
/// [`jittered`].
///
/// # Examples
///
/// ```
/// use std::time::Duration;
/// use wheelhouse::{Cache, ManualTicker, expiry};
///
/// // A lease lives as long as it was granted, counted from its last use; in this cache, counted
/// // from its creation.
/// let leases = expiry::accessing(|_: &u32, granted: &Duration| Some(*granted));
/// let time = ManualTicker::new();
/// let cache = Cache::builder()
///     .ticker(time.clone())
///     .expire_after(expiry::writes_only(leases))
///     .build();
///
/// cache.insert(1, Duration::from_secs(10));
/// time.advance(Duration::from_secs(9));
/// assert!(cache.get(&1).is_some());
/// time.advance(Duration::from_secs(1));
/// assert!(cache.get(&1).is_none());
/// ```
///
/// # Cost
///
/// Hits do not call the policy.
pub fn writes_only<P>(policy: P) -> WritesOnly<P> {
    WritesOnly { policy }
}

/// A policy that asks a closure: about new entries, if `UPDATES` about updates, and if `READS`
/// about reads. [`creating`], [`writing`] and [`accessing`] make it, and have examples.
#[derive(Clone, Copy)]
pub struct ByClosure<F, const UPDATES: bool, const READS: bool> {
    lifetime: F,
}

/// The policy made by [`creating`], which has an example.
pub type Creating<F> = ByClosure<F, false, false>;

/// The policy made by [`writing`], which has an example.
pub type Writing<F> = ByClosure<F, true, false>;

/// The policy made by [`accessing`], which has an example.
pub type Accessing<F> = ByClosure<F, true, true>;

/// The policy made by [`until`], which has an example.
#[derive(Clone, Copy)]
pub struct Until<F> {
    end: F,
}

/// The policy made by [`never()`], which has an example.
#[derive(Clone, Copy, Debug, Default)]
pub struct Never;

/// A policy whose answers are made shorter by chance, from [`jittered`] or
/// [`refresh::jittered`](crate::refresh::jittered), which have examples.
#[derive(Clone, Copy, Debug)]
pub struct Jittered<P> {
    pub(crate) policy: P,
    pub(crate) fraction: f64,
}

/// The policy made by [`writes_only`], which has an example.
#[derive(Clone, Copy, Debug)]
pub struct WritesOnly<P> {
    policy: P,
}

impl<F, const UPDATES: bool, const READS: bool> fmt::Debug for ByClosure<F, UPDATES, READS> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ByClosure")
            .field("updates", &UPDATES)
            .field("reads", &READS)
            .finish_non_exhaustive()
    }
}

impl<F> fmt::Debug for Until<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Until").finish_non_exhaustive()
    }
}

impl<K, V, F, const UPDATES: bool, const READS: bool> Expiry<K, V> for ByClosure<F, UPDATES, READS>
where
    F: Fn(&K, &V) -> Option<Duration> + Send + Sync + 'static,
{
    fn expire_after_create(&self, key: &K, value: &V, _: Instant) -> Option<Duration> {
        (self.lifetime)(key, value)
    }

    fn expire_after_update(
        &self,
        key: &K,
        value: &V,
        _: Instant,
        left: Option<Duration>,
    ) -> Option<Duration> {
        if UPDATES {
            (self.lifetime)(key, value)
        } else {
            left
        }
    }

    fn expire_after_read(
        &self,
        key: &K,
        value: &V,
        _: Instant,
        left: Option<Duration>,
        _: Instant,
    ) -> Option<Duration> {
        if READS {
            (self.lifetime)(key, value)
        } else {
            left
        }
    }

    fn __asks(&self) -> Asks {
        Asks {
            reads: READS,
            updates: if UPDATES {
                Updates::AsNew
            } else {
                Updates::Leave
            },
            times: false,
        }
    }
}

impl<K, V, F> Expiry<K, V> for Until<F>
where
    F: Fn(&K, &V) -> Option<Instant> + Send + Sync + 'static,
{
    fn expire_after_create(&self, key: &K, value: &V, created_at: Instant) -> Option<Duration> {
        let end = (self.end)(key, value)?;
        Some(end.saturating_duration_since(created_at))
    }

    fn expire_after_update(
        &self,
        key: &K,
        value: &V,
        updated_at: Instant,
        _: Option<Duration>,
    ) -> Option<Duration> {
        self.expire_after_create(key, value, updated_at)
    }

    // `expire_after_read` is the trait's default, which leaves the deadline.

    fn __asks(&self) -> Asks {
        Asks {
            reads: false,
            updates: Updates::AsNew,
            times: true,
        }
    }
}

impl<K, V> Expiry<K, V> for Never {
    fn __asks(&self) -> Asks {
        Asks::ONLY_NEW
    }
}

impl<K, V, P: Expiry<K, V>> Expiry<K, V> for Jittered<P> {
    forward! {
        self => self.policy, |lifetime| shorten(lifetime, self.fraction);
        fn expire_after_create(key: &K, value: &V, created_at: Instant) -> Option<Duration>;
    }

    forward! {
        self => self.policy, |lifetime| {
            // An answer that leaves the deadline passes unchanged.
            if lifetime == duration_until_expiry {
                lifetime
            } else {
                shorten(lifetime, self.fraction)
            }
        };
        fn expire_after_update(
            key: &K, value: &V, updated_at: Instant, duration_until_expiry: Option<Duration>
        ) -> Option<Duration>;
        fn expire_after_read(
            key: &K, value: &V, read_at: Instant, duration_until_expiry: Option<Duration>,
            last_modified_at: Instant
        ) -> Option<Duration>;
    }

    forward! {
        self => self.policy, identity;
        fn __asks() -> Asks;
        fn __inherits_reads() -> bool;
    }
}

impl<K, V, P: Expiry<K, V>> Expiry<K, V> for WritesOnly<P> {
    forward! {
        self => self.policy, identity;
        fn expire_after_create(key: &K, value: &V, created_at: Instant) -> Option<Duration>;
        fn expire_after_update(
            key: &K, value: &V, updated_at: Instant, duration_until_expiry: Option<Duration>
        ) -> Option<Duration>;
    }

    // `expire_after_read` is the trait's default, which leaves the deadline.

    fn __asks(&self) -> Asks {
        Asks {
            reads: false,
            ..self.policy.__asks()
        }
    }
}

/// A lifetime, or the moment of a refresh, made shorter by a random part of this fraction.
pub(crate) fn shorten(lifetime: Option<Duration>, fraction: f64) -> Option<Duration> {
    if fraction == 0.0 {
        return lifetime;
    }
    // First limit it to the longest lifetime: the cache would do so afterwards and remove the
    // jitter.
    let nanos = saturating_nanos(lifetime?).min(MAX_LIFETIME_NANOS);
    let cut = nanos as f64 * fraction * random_unit();
    // Rounding a lifetime of many days to f64 may make the cut longer than the lifetime.
    Some(Duration::from_nanos(nanos.saturating_sub(cut as u64)))
}

/// A pseudo-random number in `[0, 1)`: the hash of nothing by keys that are new for each call.
pub(crate) fn random_unit() -> f64 {
    let number = RandomState::new().hash_one(());
    // The upper 53 bits: as many as an f64 holds exactly.
    (number >> 11) as f64 / (1_u64 << 53) as f64
}

#[cfg(test)]
mod tests;
