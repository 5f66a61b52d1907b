//! A look at an entry without cloning it.

use crate::cache::{Core, Hit};
use crate::node::NodePtr;
use crate::reclaim::Pin;
use std::fmt;
use std::ops::Deref;
use std::time::Duration;

/// A look at one entry: its key, its value, and what is left of its life.
///
/// It shows the value as it was when it was looked up: an update or removal meanwhile does not
/// change it, and writers are never blocked by it. While it lives it keeps *all* memory that this
/// cache has removed since from being freed, so let it go soon; clone the value, or keep an
/// [`Arc`](std::sync::Arc) of it, to hold it for longer. It cannot be sent to another thread.
///
/// ```
/// use std::time::Duration;
/// use wheelhouse::Cache;
///
/// let cache: Cache<String, String> = Cache::new(100);
/// cache.insert_with_ttl("ada".into(), "lovelace".into(), Duration::from_secs(60));
///
/// let entry = cache.get_ref("ada").unwrap();
/// assert_eq!(entry.key(), "ada");
/// assert_eq!(entry.len(), 8); // derefs to the value
/// assert!(entry.time_left().unwrap() <= Duration::from_secs(60));
/// ```
pub struct EntryRef<'a, K, V> {
    node: NodePtr<K, V>,
    /// The deadline at the look-up: what holds once the entry was replaced or removed.
    deadline: u64,
    /// The time of the look-up; 0 where no clock was needed.
    now: u64,
    clock: &'a dyn Times<K, V>,
    _pin: Pin,
}

/// What an entry asks its cache, whatever the cache's hasher.
pub(crate) trait Times<K, V> {
    fn time_left(&self, node: NodePtr<K, V>, judged: u64) -> Option<Duration>;
    fn age(&self, node: NodePtr<K, V>) -> Duration;
}

impl<K, V, S> Times<K, V> for Core<K, V, S> {
    fn time_left(&self, node: NodePtr<K, V>, judged: u64) -> Option<Duration> {
        Core::time_left(self, node, judged)
    }

    fn age(&self, node: NodePtr<K, V>) -> Duration {
        Core::age(self, node)
    }
}

impl<'a, K, V> EntryRef<'a, K, V> {
    /// The pin was taken before the node was found and belongs to the domain of the node's cache.
    #[inline]
    pub(crate) fn new(hit: Hit<K, V>, clock: &'a dyn Times<K, V>, pin: Pin) -> Self {
        Self {
            node: hit.node,
            deadline: hit.node.present_deadline(hit.deadline, hit.now),
            now: hit.now,
            clock,
            _pin: pin,
        }
    }

    /// From when on the entry is stale, and the time of the look-up, 0 where none was read.
    #[inline]
    pub(crate) fn refresh(&self) -> Option<(u64, u64)> {
        self.node.refresh().map(|refresh| (refresh.at(), self.now))
    }

    /// The key as it stands in the cache.
    ///
    /// ```
    /// let cache = wheelhouse::Cache::new(10);
    /// cache.insert("k", 1);
    /// assert_eq!(*cache.get_ref("k").unwrap().key(), "k");
    /// ```
    pub fn key(&self) -> &K {
        self.node.key()
    }

    /// The value.
    ///
    /// ```
    /// let cache = wheelhouse::Cache::new(10);
    /// cache.insert("k", 1);
    /// assert_eq!(*cache.get_ref("k").unwrap().value(), 1);
    /// ```
    pub fn value(&self) -> &V {
        self.node.value()
    }

    /// What is left of the entry's life now: `None` if it never expires, zero once it is due.
    ///
    /// If the entry was replaced or removed meanwhile, it is what would be left of this value's
    /// life.
    ///
    /// # Cost
    ///
    /// One reading of the clock.
    ///
    /// ```
    /// let cache = wheelhouse::Cache::new(10);
    /// cache.insert("k", 1);
    /// assert_eq!(cache.get_ref("k").unwrap().time_left(), None);
    /// ```
    pub fn time_left(&self) -> Option<Duration> {
        self.clock.time_left(self.node, self.deadline)
    }

    /// Time since this value was written: zero from 2^63 ns (292 years) on, which look like a step
    /// backwards of the clock.
    ///
    /// # Cost
    ///
    /// One reading of the clock.
    ///
    /// ```
    /// use std::time::Duration;
    /// use wheelhouse::{Cache, ManualTicker};
    ///
    /// let ticker = ManualTicker::new();
    /// let cache = Cache::builder().ticker(ticker.clone()).time_to_live(Duration::from_secs(60)).build();
    /// cache.insert("k", 1);
    /// ticker.advance(Duration::from_secs(7));
    /// assert_eq!(cache.get_ref("k").unwrap().age(), Duration::from_secs(7));
    /// ```
    pub fn age(&self) -> Duration {
        self.clock.age(self.node)
    }
}

impl<K, V> Deref for EntryRef<'_, K, V> {
    type Target = V;

    fn deref(&self) -> &V {
        self.value()
    }
}

impl<K: fmt::Debug, V: fmt::Debug> fmt::Debug for EntryRef<'_, K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EntryRef")
            .field("key", self.key())
            .field("value", self.value())
            .finish()
    }
}
