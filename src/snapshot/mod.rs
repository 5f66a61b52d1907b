//! Snapshots: the entries of a cache with their remaining lifetimes, to be kept over a restart.
//!
//! [`Cache::snapshot`](crate::Cache::snapshot) copies the entries out (`take`), the program stores
//! the [`Snapshot`] as it likes, and [`Cache::restore`](crate::Cache::restore) puts the entries
//! into a cache of the next process (`restore`). With the cargo feature `serde`, a snapshot can be
//! serialized (`format`).

#[cfg(feature = "serde")]
mod format;
mod restore;
mod take;
mod views;

use std::fmt;
use std::time::{Duration, SystemTime};

/// The entries of a cache at a moment, the hottest first; see
/// [`Cache::snapshot`](crate::Cache::snapshot).
///
/// It owns clones of keys and values, so the cache can free its own. Durations count from
/// [`taken_at`](Self::taken_at). To restore only some entries, call [`retain`](Self::retain). To
/// make a snapshot of other entries, `collect` them; it counts as taken at that moment.
///
/// With the cargo feature `serde` it implements `Serialize` and `Deserialize`, with a version of
/// the format in front: deserializing an unknown version is an error that names it.
///
/// ```
/// use std::time::Duration;
/// use wheelhouse::{Cache, Restore};
///
/// let old: Cache<String, u32> = Cache::new(100);
/// old.insert_with_ttl("ada".into(), 1815, Duration::from_secs(60));
/// old.insert("alan".into(), 1912);
///
/// // Keep what has a deadline.
/// let mut snapshot = old.snapshot();
/// snapshot.retain(|entry| entry.time_left.is_some());
///
/// let new: Cache<String, u32> = Cache::new(100);
/// let restored = new.restore(snapshot, Restore::default());
/// assert_eq!(restored.restored, 1);
/// assert!(new.get_ref("ada").unwrap().time_left().unwrap() <= Duration::from_secs(60));
/// ```
#[derive(Clone, PartialEq, Eq)]
pub struct Snapshot<K, V> {
    taken_at: SystemTime,
    entries: Vec<SavedEntry<K, V>>,
}

/// One entry of a [`Snapshot`].
///
/// [`new`](Self::new) makes one, and each field can be set. Later versions may add fields, hence
/// `#[non_exhaustive]`.
///
/// ```
/// use std::time::Duration;
/// use wheelhouse::{Cache, Restore, SavedEntry, Snapshot};
///
/// // Rows of a table that another program has written.
/// let rows = [("ada", 1815, 60), ("alan", 1912, 30)];
/// let saved: Snapshot<&str, u32> = rows
///     .into_iter()
///     .map(|(key, value, seconds)| {
///         let mut entry = SavedEntry::new(key, value);
///         entry.time_left = Some(Duration::from_secs(seconds));
///         entry
///     })
///     .collect();
/// let cache = Cache::new(100);
/// cache.restore(saved, Restore::default());
/// assert_eq!(cache.get("ada"), Some(1815));
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[non_exhaustive]
pub struct SavedEntry<K, V> {
    /// The key.
    pub key: K,
    /// The value.
    pub value: V,
    /// The time left until the deadline, without the idle limit; `None` if there was no deadline.
    pub time_left: Option<Duration>,
    /// The time left until `time_to_idle` would have ended the entry, or another deadline before
    /// that; `None` if the cache had no such limit.
    pub idle_left: Option<Duration>,
    /// The time left until the entry was due for a reload, zero while it was being reloaded; `None`
    /// outside of a `LoadingCache`, and for an entry that is never reloaded.
    pub refresh_in: Option<Duration>,
    /// The time since the last write.
    pub age: Duration,
}

impl<K, V> SavedEntry<K, V> {
    /// Makes an entry that has just been written and never ends: without a deadline, without a
    /// moment of a reload, and of age zero. Set the fields for all else.
    ///
    /// ```
    /// use std::time::Duration;
    /// use wheelhouse::SavedEntry;
    ///
    /// let mut entry = SavedEntry::new("ada", 1815);
    /// assert_eq!((entry.time_left, entry.age), (None, Duration::ZERO));
    /// entry.time_left = Some(Duration::from_secs(60));
    /// ```
    #[must_use]
    pub fn new(key: K, value: V) -> Self {
        Self {
            key,
            value,
            time_left: None,
            idle_left: None,
            refresh_in: None,
            age: Duration::ZERO,
        }
    }
}

/// Counts of what [`Cache::restore`](crate::Cache::restore) did with the entries of a snapshot.
///
/// ```
/// use wheelhouse::{Cache, Restore};
///
/// let old = Cache::new(100);
/// (0..10).for_each(|n| old.insert(n, n));
/// let new = Cache::new(6);
/// new.insert(0, 1_000);
/// let counts = new.restore(old.snapshot(), Restore::default());
/// assert_eq!((counts.restored, counts.present, counts.refused), (5, 1, 4));
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Restored {
    /// Entries that are in the cache now, with their remaining lifetimes.
    pub restored: u64,
    /// Entries that ended during the downtime.
    pub expired: u64,
    /// Entries whose key was in the cache already, or came before in the snapshot. The cache's own
    /// entry stays, and of the snapshot's entries the first counts.
    pub present: u64,
    /// Entries that did not fit the bound, the coldest ones.
    pub refused: u64,
}

/// How [`Cache::restore`](crate::Cache::restore) treats the time that has passed since the
/// snapshot.
///
/// ```
/// use wheelhouse::{Downtime, Ended, Restore};
///
/// // Orders that became due while the program was down are closed now.
/// let how = Restore::default().downtime(Downtime::Counts).ended(Ended::Tell);
/// # let _ = how;
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Restore {
    downtime: Downtime,
    ended: Ended,
}

/// Whether lifetimes continue while the program is down.
///
/// ```
/// use std::time::Duration;
/// use wheelhouse::{Cache, Downtime, Restore};
///
/// let old = Cache::new(100);
/// old.insert_with_ttl("game", 1, Duration::from_secs(60));
/// let snapshot = old.snapshot();
/// let new: Cache<&str, u32> = Cache::new(100);
/// // A player gets all the time that was left, however long the server was down.
/// new.restore(snapshot, Restore::default().downtime(Downtime::Ignored));
/// assert!(new.get_ref("game").unwrap().time_left() > Some(Duration::from_secs(50)));
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Downtime {
    /// Lifetimes continue: the time since the snapshot counts, by the system's clock. A clock that
    /// was set back counts as no downtime.
    #[default]
    Counts,
    /// The time since the snapshot does not count.
    Ignored,
}

/// The treatment of entries that ended during the downtime.
///
/// ```
/// use std::{sync::mpsc, time::Duration};
/// use wheelhouse::{Cache, Ended, ManualTicker, RemovalCause, Restore};
///
/// let old = Cache::builder().ticker(ManualTicker::new()).build();
/// old.insert_with_ttl("order", 7, Duration::from_millis(1));
/// let snapshot = old.snapshot();
/// std::thread::sleep(Duration::from_millis(2));
///
/// let (heard, ended) = mpsc::channel();
/// let new: Cache<&str, u32> = Cache::builder()
///     .removal_listener(move |_: &&str, order: &u32, cause| heard.send((*order, cause)).unwrap())
///     .build();
/// new.restore(snapshot, Restore::default().ended(Ended::Tell));
/// new.run_pending_tasks();
/// assert_eq!(ended.try_recv(), Ok((7, RemovalCause::Expired)));
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Ended {
    /// They are left out, and the listener is not called.
    #[default]
    Skip,
    /// The removal listener is called once for each of them, with the cause `Expired`.
    Tell,
}

impl Restore {
    /// Sets whether the time since the snapshot counts. By default it does.
    ///
    /// ```
    /// use wheelhouse::{Downtime, Restore};
    ///
    /// let by_default = Restore::default().downtime(Downtime::Counts);
    /// assert_eq!(by_default, Restore::default());
    /// ```
    #[must_use]
    pub fn downtime(mut self, downtime: Downtime) -> Self {
        self.downtime = downtime;
        self
    }

    /// Sets what is done with entries that ended meanwhile. By default they are left out.
    ///
    /// ```
    /// use wheelhouse::{Ended, Restore};
    ///
    /// assert_ne!(Restore::default().ended(Ended::Tell), Restore::default());
    /// ```
    #[must_use]
    pub fn ended(mut self, ended: Ended) -> Self {
        self.ended = ended;
        self
    }
}

impl<K, V> Snapshot<K, V> {
    /// Returns when the snapshot was taken, by the system's clock.
    ///
    /// ```
    /// let cache = wheelhouse::Cache::<u8, u8>::new(10);
    /// assert!(cache.snapshot().taken_at() <= std::time::SystemTime::now());
    /// ```
    pub fn taken_at(&self) -> SystemTime {
        self.taken_at
    }

    /// Returns the number of entries.
    ///
    /// ```
    /// let cache = wheelhouse::Cache::new(10);
    /// cache.insert("ada", 1815);
    /// assert_eq!(cache.snapshot().len(), 1);
    /// ```
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Returns whether the snapshot holds no entry.
    ///
    /// ```
    /// assert!(wheelhouse::Cache::<u8, u8>::new(10).snapshot().is_empty());
    /// ```
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Changes the values and their type, and keeps all else: keys, lifetimes, order, and
    /// [`taken_at`](Self::taken_at). A snapshot that is collected from changed entries would count
    /// as taken now, and their time in between would not count.
    ///
    /// # Cost
    ///
    /// Proportional to the number of entries.
    ///
    /// ```
    /// use wheelhouse::{Cache, Snapshot};
    ///
    /// let cache: Cache<u64, String> = Cache::new(10);
    /// cache.insert(1, "one".into());
    /// let saved = cache.snapshot();
    /// let taken_at = saved.taken_at();
    ///
    /// // The form that a file holds.
    /// let bytes: Snapshot<u64, Vec<u8>> = saved.map_values(String::into_bytes);
    /// assert_eq!(bytes.iter().next().unwrap().value, b"one");
    /// assert_eq!(bytes.taken_at(), taken_at);
    /// ```
    pub fn map_values<W>(self, mut change: impl FnMut(V) -> W) -> Snapshot<K, W> {
        let change = |entry: SavedEntry<K, V>| SavedEntry {
            key: entry.key,
            value: change(entry.value),
            time_left: entry.time_left,
            idle_left: entry.idle_left,
            refresh_in: entry.refresh_in,
            age: entry.age,
        };
        Snapshot {
            taken_at: self.taken_at,
            entries: self.entries.into_iter().map(change).collect(),
        }
    }

    /// Keeps the entries for which `keep` returns true, in their order.
    /// [`taken_at`](Self::taken_at) stays; a snapshot collected from the same entries would be
    /// taken now.
    ///
    /// # Cost
    ///
    /// Proportional to the number of entries.
    ///
    /// ```
    /// let cache = wheelhouse::Cache::new(10);
    /// cache.insert("ada", 1815);
    /// cache.insert("alan", 1912);
    /// let mut snapshot = cache.snapshot();
    /// let taken_at = snapshot.taken_at();
    /// snapshot.retain(|entry| entry.value > 1900);
    /// assert_eq!((snapshot.len(), snapshot.taken_at()), (1, taken_at));
    /// ```
    pub fn retain(&mut self, keep: impl FnMut(&SavedEntry<K, V>) -> bool) {
        self.entries.retain(keep);
    }

    /// Iterates over the entries, the hottest first.
    ///
    /// ```
    /// let cache = wheelhouse::Cache::new(10);
    /// cache.insert("ada", 1815);
    /// assert!(cache.snapshot().iter().all(|entry| entry.value == 1815));
    /// ```
    pub fn iter(&self) -> std::slice::Iter<'_, SavedEntry<K, V>> {
        self.entries.iter()
    }
}

impl<K, V> IntoIterator for Snapshot<K, V> {
    type Item = SavedEntry<K, V>;
    type IntoIter = std::vec::IntoIter<SavedEntry<K, V>>;

    fn into_iter(self) -> Self::IntoIter {
        self.entries.into_iter()
    }
}

impl<'a, K, V> IntoIterator for &'a Snapshot<K, V> {
    type Item = &'a SavedEntry<K, V>;
    type IntoIter = std::slice::Iter<'a, SavedEntry<K, V>>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

impl<K, V> FromIterator<SavedEntry<K, V>> for Snapshot<K, V> {
    /// A snapshot of these entries, the hottest first, taken now.
    fn from_iter<I: IntoIterator<Item = SavedEntry<K, V>>>(entries: I) -> Self {
        Self {
            entries: entries.into_iter().collect(),
            taken_at: SystemTime::now(),
        }
    }
}

impl<K, V> fmt::Debug for Snapshot<K, V> {
    /// When it was taken and the number of entries, never the entries.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Snapshot")
            .field("taken_at", &self.taken_at)
            .field("len", &self.entries.len())
            .finish_non_exhaustive()
    }
}
