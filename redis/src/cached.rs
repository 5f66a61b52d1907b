//! The value that the local cache stores for a key.

use crate::error::NearError;
use std::fmt;
use std::num::NonZeroU64;
use std::sync::{Arc, LazyLock};
use std::time::{Duration, Instant};
use wheelhouse::Expiry;

/// An entry of the local cache: a value, or the knowledge that the server has none.
///
/// Weighers and removal listeners of the local cache see this type.
///
/// ```
/// use wheelhouse::Cache;
/// use wheelhouse_redis::Cached;
///
/// let local = Cache::<String, Cached<String>>::builder()
///     .max_capacity(1 << 20)
///     .weigher(|key, cached| {
///         (key.len() + cached.value().map_or(0, String::len)).try_into().unwrap_or(u32::MAX)
///     });
/// # drop(local);
/// ```
#[derive(Clone)]
pub struct Cached<V> {
    pub(crate) content: Content<V>,
    pub(crate) stamp: u64,
    pub(crate) until: Option<Moment>,
    /// The moment from which `get_with` loads the value anew.
    pub(crate) stale_from: Option<Moment>,
}

/// A moment, in nanoseconds after the first use. It takes half of the memory of an `Instant`: an
/// entry has two, and a hit reads fewer lines of memory.
#[derive(Clone, Copy)]
pub(crate) struct Moment(NonZeroU64);

static FIRST_USE: LazyLock<Instant> = LazyLock::new(Instant::now);

impl Moment {
    /// `None`: it is too far away to be counted.
    pub(crate) fn of(at: Instant) -> Option<Self> {
        let nanos = at.saturating_duration_since(*FIRST_USE).as_nanos();
        let nanos = u64::try_from(nanos).ok()?.max(1);
        NonZeroU64::new(nanos).map(Self)
    }

    /// How long it is until then.
    pub(crate) fn left(self) -> Duration {
        Duration::from_nanos(self.0.get()).saturating_sub(FIRST_USE.elapsed())
    }
}

/// The result of a load.
#[derive(Clone)]
pub(crate) enum Content<V> {
    Value(V),
    Absent,
    /// The server has no value, but this placeholder, until this moment: a process loads one.
    Loading(Box<(Arc<[u8]>, Option<Instant>)>),
    /// For the waiters of the load alone: it is never stored.
    Failed(Box<NearError>),
}

impl<V> Cached<V> {
    /// What to serve to calls that accept `stamp`; `until` is `None` for no deadline of its own.
    pub(crate) fn new(content: Content<V>, stamp: u64, until: Option<Instant>) -> Self {
        Self {
            content,
            stamp,
            until: until.and_then(Moment::of),
            stale_from: None,
        }
    }

    /// The outcome of a load that has failed, for its waiters alone.
    pub(crate) fn failed(error: NearError, stamp: u64) -> Self {
        let content = Content::Failed(Box::new(error));
        Self::new(content, stamp, Some(Instant::now()))
    }

    /// Returns the value; `None` if the server had none.
    ///
    /// ```
    /// # use wheelhouse_redis::Cached;
    /// fn weight(_: &String, cached: &Cached<String>) -> u32 {
    ///     cached.value().map_or(1, |text| text.len().try_into().unwrap_or(u32::MAX))
    /// }
    /// # let _ = weight;
    /// ```
    pub fn value(&self) -> Option<&V> {
        match &self.content {
            Content::Value(value) => Some(value),
            Content::Absent | Content::Loading(..) | Content::Failed(_) => None,
        }
    }

    /// Returns whether the server had no value for the key.
    ///
    /// ```
    /// # use wheelhouse_redis::Cached;
    /// fn log(key: &String, cached: &Cached<String>, _: wheelhouse::RemovalCause) {
    ///     println!("{key} left, {}", if cached.is_absent() { "an absence" } else { "a value" });
    /// }
    /// # let _ = log;
    /// ```
    pub fn is_absent(&self) -> bool {
        matches!(self.content, Content::Absent | Content::Loading(..))
    }

    pub(crate) fn into_result(self) -> Result<Option<V>, NearError> {
        match self.content {
            Content::Value(value) => Ok(Some(value)),
            Content::Absent | Content::Loading(..) => Ok(None),
            Content::Failed(error) => Err(*error),
        }
    }
}

impl<V> fmt::Debug for Cached<V> {
    /// Whether there is a value, never the value.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let content = match &self.content {
            Content::Value(_) => "value",
            Content::Absent => "absent",
            Content::Loading(..) => "loading",
            Content::Failed(_) => "failed",
        };
        f.debug_tuple("Cached").field(&content).finish()
    }
}

/// The expiry of the local cache: an entry ends at the moment that it carries, or earlier if the
/// user's policy says so.
pub(crate) struct EntryDeadline<K, V> {
    pub(crate) users: Box<dyn Expiry<K, Cached<V>>>,
}

impl<K, V> EntryDeadline<K, V> {
    /// The shorter of what the entry's own deadline leaves and what the user's policy allows.
    ///
    /// What is left is read from the system's clock, whatever the cache's ticker is. The cache
    /// counts it from the moment that it read just before it asked, so an entry never outlives
    /// its deadline.
    fn shorter(cached: &Cached<V>, users: Option<Duration>) -> Option<Duration> {
        let own = cached.until.map(Moment::left);
        match (own, users) {
            (Some(own), Some(users)) => Some(own.min(users)),
            (own, users) => own.or(users),
        }
    }
}

impl<K: 'static, V: Send + Sync + 'static> Expiry<K, Cached<V>> for EntryDeadline<K, V> {
    fn expire_after_create(&self, key: &K, cached: &Cached<V>, at: Instant) -> Option<Duration> {
        Self::shorter(cached, self.users.expire_after_create(key, cached, at))
    }

    fn expire_after_update(
        &self,
        key: &K,
        cached: &Cached<V>,
        at: Instant,
        left: Option<Duration>,
    ) -> Option<Duration> {
        // The deadline of the old value says nothing about the new one.
        let users = self.users.expire_after_update(key, cached, at, left);
        Self::shorter(cached, users)
    }

    fn expire_after_read(
        &self,
        key: &K,
        cached: &Cached<V>,
        at: Instant,
        left: Option<Duration>,
        modified_at: Instant,
    ) -> Option<Duration> {
        let users = self
            .users
            .expire_after_read(key, cached, at, left, modified_at);
        if users == left {
            return left;
        }
        Self::shorter(cached, users)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_moment_is_no_later_than_the_instant() {
        let second = Duration::from_secs(1);
        let hour = Duration::from_secs(3600);
        for at in [
            None,
            Instant::now().checked_sub(second),
            Some(Instant::now()),
        ] {
            let past = at.and_then(Moment::of);
            assert!(past.is_none_or(|past| past.left().is_zero()), "{at:?}");
        }
        let left = Moment::of(Instant::now() + hour).unwrap().left();
        assert!((hour - 60 * second..=hour).contains(&left), "{left:?}");
        // After 2^64 ns: 584 years.
        let far = Instant::now().checked_add(Duration::from_secs(1 << 35));
        assert!(far.and_then(Moment::of).is_none());
    }

    #[test]
    fn an_entry_is_small() {
        assert!(size_of::<Cached<Arc<[u8]>>>() <= 48);
    }
}
