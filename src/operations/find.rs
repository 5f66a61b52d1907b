//! The live entry of a key: what one look at the map and one reading of the clock tell; and the
//! reference to it that a caller gets.

use crate::node::{NodePtr, NodeState};
use crate::reclaim::Pin;
use crate::shared::{EXACT_READS, Shared};
use crate::time::{self, Clock, NEVER};
use equivalent::Equivalent;
use std::fmt;
use std::marker::PhantomData;
use std::ops::Deref;
use std::time::Duration;

/// An entry that a look-up found. It is live, except where a function returns it as an error.
#[derive(Debug)]
pub(crate) struct Hit<K, V> {
    pub(crate) node: NodePtr<K, V>,
    /// The deadline by which it was judged.
    pub(crate) deadline: u64,
    /// The moment at which it was judged, see [`Clock::now_to_judge`]; 0 where none was needed.
    ///
    /// [`Clock::now_to_judge`]: crate::time::Clock::now_to_judge
    pub(crate) now: u64,
}

impl<K, V> Hit<K, V> {
    /// The node as a hit; as an error, if it is due.
    #[inline]
    pub(super) fn of(node: NodePtr<K, V>, deadline: u64, now: u64) -> Result<Self, Self> {
        let hit = Self {
            node,
            deadline,
            now,
        };
        if time::is_due(now, deadline) {
            Err(hit)
        } else {
            Ok(hit)
        }
    }
}

impl<K, V> Shared<K, V> {
    /// The live entry of a key. If there is none, the time at which its entry was found due;
    /// `None` if the key is absent.
    ///
    /// `found` is a node of the key that the caller has found. A read may need the exact time.
    #[inline]
    pub(super) fn find<Q>(
        &self,
        hash: u64,
        key: &Q,
        mut found: Option<NodePtr<K, V>>,
        pin: &Pin,
        is_read: bool,
    ) -> Result<Hit<K, V>, Option<u64>>
    where
        Q: Equivalent<K> + ?Sized,
    {
        loop {
            let search = || (self.map).find(hash, pin, |node| key.equivalent(node.key()));
            let node = found.take().or_else(search).ok_or(None)?;
            match self.judge(node, is_read) {
                Ok(hit) => return Ok(hit),
                Err(due) if self.is_dead(&due, pin) => return Err(Some(due.now)),
                Err(_) => {}
            }
        }
    }

    /// The live entry of a key.
    pub(crate) fn find_live<Q>(&self, hash: u64, key: &Q, pin: &Pin) -> Option<Hit<K, V>>
    where
        Q: Equivalent<K> + ?Sized,
    {
        self.find(hash, key, None, pin, false).ok()
    }

    /// The live entry of a node that was in the map a moment ago, or what its key has instead. With
    /// a pin of its own: an earlier pin, under which the node was seen, does not protect what is
    /// found.
    pub(crate) fn entry_again(&self, node: NodePtr<K, V>) -> Option<EntryRef<'_, K, V>>
    where
        K: Eq,
    {
        let pin = self.pin();
        // In this order: first the deadline says that the node is live, then its state says that it
        // is still in the map.
        let hit = match self.judge(node, false) {
            Ok(hit) if node.state() == NodeState::Live => hit,
            _ => self.find_live(node.hash(), node.key(), &pin)?,
        };
        Some(EntryRef::new(hit.node, hit.deadline, &self.clock, pin))
    }

    /// The node as a hit; as an error, if it is due.
    ///
    /// The clock is read after the deadline: so the entry was live at some moment of the call, and
    /// a read with an old reading does not overwrite a later extension by another thread. An entry
    /// without a deadline needs a reading only if the read may give it one.
    #[inline]
    pub(super) fn judge(&self, node: NodePtr<K, V>, is_read: bool) -> Result<Hit<K, V>, Hit<K, V>> {
        let deadline = node.deadline();
        let now = if deadline == NEVER && !self.reads_extend {
            0
        } else if is_read && self.has_detour(EXACT_READS) {
            self.clock.now_beside(deadline)
        } else {
            self.clock.now_to_judge(deadline)
        };
        Hit::of(node, deadline, now)
    }

    /// Whether an entry that was judged due is still the key's current entry, so that the key is
    /// absent. If it was replaced, or a reader with an earlier clock extended it, the look-up has
    /// to start over.
    fn is_dead(&self, due: &Hit<K, V>, pin: &Pin) -> bool {
        let (node, now) = (due.node, due.now);
        // This is final: either the claim succeeds, and no extension can follow, or an extension
        // came first, and the claim fails.
        if !node.claim(due.deadline, now) {
            return false;
        }
        let map = &self.map;
        if !self.reads_extend {
            return map.find(node.hash(), pin, |other| other == node).is_some();
        }
        // The deadline is claimed, by this thread or another. So no writer replaces the node and no
        // reader extends it: the key is absent. If the deadline is frozen instead, a writer is
        // replacing the node: the look-up has to start over until the new node is in place.
        !node.is_frozen(now)
            || (node.state() == NodeState::Live && {
                let hash = node.hash();
                map.lock(hash).find_node(hash, node).is_some()
            })
    }

    /// Whether the node is in the map and not due, just now.
    pub(crate) fn is_live(&self, node: NodePtr<K, V>) -> bool {
        // In the order of `entry_again`.
        self.judge(node, false).is_ok() && node.state() == NodeState::Live
    }
}

/// A reference to one entry: its key, its value, and the time it has left.
///
/// It shows the value as it was at the look-up: a later update or removal does not change it, and
/// it never blocks writers. As long as it exists, the cache frees *none* of the entries that it
/// removes meanwhile. So drop the reference soon. To keep the value for longer, clone the value, or
/// store it in an [`Arc`](std::sync::Arc). The reference cannot be sent to another thread.
///
/// # Methods of the value
///
/// A reference derefs to the value: `entry.len()` calls the value's `len`. Four methods of the
/// reference itself hide methods of the value with the same names: `key`, `value`, `time_left` and
/// `age`. For such a value write `entry.value().key()`. Later versions add no method that takes
/// `self`, and implement no trait that values usually have: what they add is called as
/// `EntryRef::name(&entry)`. So `entry.clone()` clones the value, also in the future.
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
    pub(crate) node: NodePtr<K, V>,
    /// The deadline at the look-up. It is used if the entry was replaced or removed since.
    pub(crate) deadline: u64,
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
    pub(super) fn new(node: NodePtr<K, V>, deadline: u64, clock: &'a Clock, pin: Pin) -> Self {
        Self {
            _marker: PhantomData,
            node,
            deadline,
            clock,
            _pin: pin,
        }
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

    /// Whether the entry's moment of refresh has come: a read of the
    /// [`LoadingCache`](crate::LoadingCache) would start a reload, or one is under way. After a
    /// reload that has failed it is false until the next try.
    ///
    /// # Cost
    ///
    /// One reading of the clock.
    ///
    /// ```
    /// let cache = wheelhouse::Cache::new(10);
    /// cache.insert("k", 1);
    /// assert!(!cache.get_ref("k").unwrap().is_stale()); // it is not reloaded
    /// ```
    pub fn is_stale(&self) -> bool {
        match self.node.refresh() {
            Some(refresh) => refresh.is_reloading() || refresh.is_stale(self.clock.now()),
            None => false,
        }
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
        self.node.age(self.clock.now())
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
