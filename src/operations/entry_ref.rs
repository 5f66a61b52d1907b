//! A view of an entry without cloning it.

use super::find::Hit;
use crate::node::NodePtr;
use crate::reclaim::Pin;
use crate::time::{self, Clock, NEVER};
use std::fmt;
use std::marker::PhantomData;
use std::ops::Deref;
use std::time::Duration;

/// A reference to one entry: its key, its value, and the time it has left.
///
/// It shows the value as it was at the look-up: a later update or removal does not change it, and
/// it never blocks writers. As long as it exists, the cache frees *none* of the entries that it
/// removes meanwhile. So drop the reference soon. To keep the value for longer, clone the value, or
/// store it in an [`Arc`](std::sync::Arc). The reference cannot be sent to another thread.
///
/// If a reference is leaked, for example by [`std::mem::forget`], the cache frees no key and no
/// value that it removes later, until the cache itself is dropped. The end of the thread that
/// leaked it changes nothing.
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
    _marker: PhantomData<AnEntryRefStaysOnTheThreadThatLookedItUp>,
    node: NodePtr<K, V>,
    /// The deadline at the look-up. It is used if the entry was replaced or removed since.
    deadline: u64,
    clock: &'a Clock,
    _pin: Pin,
}

/// Not `Send`: the pin of an [`EntryRef`] belongs to its thread. The compiler names this type where
/// a reference is held over an `.await`: clone what is needed, and drop the reference before.
struct AnEntryRefStaysOnTheThreadThatLookedItUp(
    #[allow(dead_code, reason = "it only makes the type not Send")] *const (),
);

impl<'a, K, V> EntryRef<'a, K, V> {
    /// The pin was taken before the node was found and belongs to the domain of the node's cache.
    #[inline]
    pub(crate) fn new(hit: Hit<K, V>, clock: &'a Clock, pin: Pin) -> Self {
        Self {
            _marker: PhantomData,
            node: hit.node,
            deadline: hit.deadline,
            clock,
            _pin: pin,
        }
    }

    pub(crate) fn node(&self) -> NodePtr<K, V> {
        self.node
    }

    /// The deadline at the look-up.
    pub(crate) fn deadline(&self) -> u64 {
        self.deadline
    }

    /// The key as the cache stores it.
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

    /// The time that the entry has left: `None` if it never expires, zero once it is due.
    ///
    /// If the entry was replaced or removed since the look-up, it is the time that this value would
    /// have left.
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
        if self.node.deadline() == NEVER {
            return None;
        }
        let now = self.clock.now();
        let deadline = self.node.present_deadline(self.deadline, now);
        time::time_left(now, deadline)
    }

    /// The time since this value was written. An age of 292 years or more reads as zero, because it
    /// looks like a step backwards of the clock.
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
    /// let cache = Cache::builder()
    ///     .ticker(ticker.clone())
    ///     .time_to_live(Duration::from_secs(60))
    ///     .build();
    /// cache.insert("k", 1);
    /// ticker.advance(Duration::from_secs(7));
    /// assert_eq!(cache.get_ref("k").unwrap().age(), Duration::from_secs(7));
    /// ```
    pub fn age(&self) -> Duration {
        let written = self.node.written();
        if written == NEVER {
            return Duration::ZERO;
        }
        let now = self.clock.now();
        Duration::from_nanos(time::elapsed(now, written))
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
