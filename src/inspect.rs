//! Methods that show a cache's entries, name, statistics and settings.

use crate::cache::Cache;
use crate::iter::Iter;
use crate::operations::EntryRef;
use crate::policy::Policy;
use crate::stats::Stats;
use std::fmt;

impl<K, V, S> Cache<K, V, S> {
    /// Iterates over the live entries, in no particular order.
    ///
    /// Weakly consistent: a key that is present during the whole iteration is shown exactly once,
    /// with the value of some moment of the iteration. A key that comes or goes meanwhile may be
    /// shown or not. Does not count as a read: no policy is asked, no use is noted. Expired entries
    /// are skipped.
    ///
    /// # Panics
    ///
    /// This call does not panic. A step of the iterator panics if the key's `Eq` or the
    /// [`Ticker`](crate::Ticker) panics.
    ///
    /// # Cost
    ///
    /// Proportional to the number of entries, without locks.
    ///
    /// ```
    /// let cache = wheelhouse::Cache::new(100);
    /// cache.insert(1, 10);
    /// cache.insert(2, 20);
    /// assert_eq!(cache.iter().map(|entry| *entry).sum::<i32>(), 30);
    /// for entry in &cache {
    ///     assert_eq!(*entry.key() * 10, *entry.value());
    /// }
    /// ```
    pub fn iter(&self) -> Iter<'_, K, V, S> {
        Iter::new(self.core())
    }

    /// Returns the name given to the builder.
    ///
    /// ```
    /// let cache: wheelhouse::Cache<u8, u8> = wheelhouse::Cache::builder().name("dns").build();
    /// assert_eq!(cache.name(), Some("dns"));
    /// ```
    pub fn name(&self) -> Option<&str> {
        self.core().shared.name.as_deref()
    }

    /// Returns the statistics so far: hits, misses, removals by cause, how late entries expired.
    /// All are 0 unless the cache was built with
    /// [`record_stats`](crate::CacheBuilder::record_stats).
    ///
    /// # Cost
    ///
    /// Takes no lock. Sums up dozens of counters and copies hundreds: call it every few seconds,
    /// not with every look-up.
    ///
    /// ```
    /// let cache = wheelhouse::Cache::builder().record_stats().build();
    /// cache.insert("ada", 1815);
    /// cache.get("ada");
    /// cache.get("bob");
    /// let stats = cache.stats();
    /// assert_eq!((stats.hits(), stats.misses(), stats.insertions()), (1, 1, 1));
    /// ```
    pub fn stats(&self) -> Stats {
        self.core().maintenance.stats(&self.core().shared)
    }

    /// Returns the settings in force.
    ///
    /// ```
    /// let cache: wheelhouse::Cache<u8, u8> = wheelhouse::Cache::new(100);
    /// assert_eq!(cache.policy().max_capacity(), Some(100));
    /// ```
    pub fn policy(&self) -> Policy<'_, K, V, S> {
        Policy::new(self.core())
    }
}

impl<'a, K: Eq, V, S> IntoIterator for &'a Cache<K, V, S> {
    type Item = EntryRef<'a, K, V>;
    type IntoIter = Iter<'a, K, V, S>;

    fn into_iter(self) -> Iter<'a, K, V, S> {
        self.iter()
    }
}

impl<K, V, S> fmt::Debug for Cache<K, V, S> {
    /// Name and number of entries, never the entries.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut cache = f.debug_struct("Cache");
        if let Some(name) = self.name() {
            cache.field("name", &name);
        }
        cache
            .field("entry_count", &self.core().shared.map.len())
            .field("max_capacity", &self.core().shared.max_capacity())
            .finish_non_exhaustive()
    }
}
