//! When entries of a [`LoadingCache`](crate::LoadingCache) are reloaded: the [`Refresh`] trait, and
//! ready policies.
//!
//! | policy | an entry is stale |
//! |---|---|
//! | [`after(d)`](after) | `d` after it was written |
//! | [`fraction(f)`](fraction) | when this fraction of its lifetime has passed |
//! | [`jittered(policy, f)`](jittered) | as `policy` says, earlier by a random share |
//! | [`early(beta)`](early) | at a random moment shortly before its deadline |
//! | [`never()`](fn@never) | never |
//!
//! [Stale and due](crate::LoadingCache#stale-and-due) says what follows.

mod policies;

pub use policies::{Ready, after, doubling, early, fraction, jittered, never};

use std::convert::identity;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The default pause after this many failures in a row.
pub(crate) fn usual_pause(failures: u32) -> Option<Duration> {
    doubling(Duration::from_secs(1), Duration::from_secs(64))(failures)
}

/// An entry's lifetime, and the time that the load of its value took, if it was loaded.
type LifetimeAndLoad = (Option<Duration>, Option<Duration>);

/// Decides for each entry when to reload it.
///
/// Each answer counts from `at`, or, for a failure, from the moment of the call; `None` means that
/// the entry is never stale. `lifetime` is the time left until the entry's deadline, `None` if it
/// has none. A refresh moment at or after the deadline has no effect. The policy is not asked about
/// a [`Loaded`](crate::Loaded) that carries [`refresh_in`](crate::Loaded::refresh_in).
///
/// The methods run with no lock held, on the thread that writes.
///
/// # Panics
///
/// As for an [`Expiry`](crate::Expiry#panics). If
/// [`refresh_after_failure`](Self::refresh_after_failure) panics, its default answer holds.
///
/// # Cost
///
/// A call for each write, and none for reads.
///
/// ```
/// use std::time::{Duration, Instant};
/// use wheelhouse::Refresh;
///
/// /// Reloads large values less often.
/// struct BySize;
/// impl Refresh<String, Vec<u8>> for BySize {
///     fn refresh_after_create(
///         &self, _: &String, value: &Vec<u8>, _: Instant, _: Option<Duration>,
///     ) -> Option<Duration> {
///         Some(Duration::from_secs(if value.len() > 1_000 { 600 } else { 60 }))
///     }
/// }
/// ```
pub trait Refresh<K, V>: Send + Sync + 'static {
    /// When a new entry becomes stale.
    fn refresh_after_create(
        &self,
        key: &K,
        value: &V,
        at: Instant,
        lifetime: Option<Duration>,
    ) -> Option<Duration>;

    /// When an entry becomes stale after a write has replaced its value; by default as a new entry.
    fn refresh_after_update(
        &self,
        key: &K,
        value: &V,
        at: Instant,
        lifetime: Option<Duration>,
    ) -> Option<Duration> {
        self.refresh_after_create(key, value, at, lifetime)
    }

    /// When an entry becomes stale after a reload; by default as a new entry.
    fn refresh_after_reload(
        &self,
        key: &K,
        value: &V,
        at: Instant,
        lifetime: Option<Duration>,
    ) -> Option<Duration> {
        self.refresh_after_create(key, value, at, lifetime)
    }

    /// When a reload that has failed is tried again: by default after 1 s, doubling to 64 s.
    /// `failures` counts failures in a row, from 1 on; `left` is the time left until the old
    /// value's deadline.
    #[allow(unused_variables, reason = "the names are documentation")]
    fn refresh_after_failure(
        &self,
        key: &K,
        value: &V,
        failures: u32,
        left: Option<Duration>,
    ) -> Option<Duration> {
        usual_pause(failures)
    }

    /// The answer of a policy that goes by these times alone; `None` if the methods above decide.
    #[doc(hidden)]
    fn by_times(&self, _: LifetimeAndLoad) -> Option<Option<Duration>> {
        None
    }
}

/// Every method of [`Refresh`], as another policy answers it.
macro_rules! forward_all {
    ($self:ident => $policy:expr, $then:expr) => {
        fn by_times(&$self, times: LifetimeAndLoad) -> Option<Option<Duration>> {
            Refresh::<K, V>::by_times(&$policy, times).map($then)
        }

        $crate::expiry::forward! {
            $self => $policy, $then;
            fn refresh_after_create(key: &K, value: &V, at: Instant, lifetime: Option<Duration>)
                -> Option<Duration>;
            fn refresh_after_update(key: &K, value: &V, at: Instant, lifetime: Option<Duration>)
                -> Option<Duration>;
            fn refresh_after_reload(key: &K, value: &V, at: Instant, lifetime: Option<Duration>)
                -> Option<Duration>;
            fn refresh_after_failure(key: &K, value: &V, failures: u32, left: Option<Duration>)
                -> Option<Duration>;
        }
    };
}

use forward_all;

impl<K, V, P: Refresh<K, V> + ?Sized> Refresh<K, V> for Arc<P> {
    forward_all!(self => **self, identity);
}

impl<K, V, P: Refresh<K, V> + ?Sized> Refresh<K, V> for Box<P> {
    forward_all!(self => **self, identity);
}
