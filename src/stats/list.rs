//! The statistics as a list of names and values, for exporters.

use super::counters::Count;
use super::{Stats, histogram};
use crate::listener::RemovalCause;
use std::time::Duration;

/// One number of [`Stats`], with its name; from [`Stats::iter`].
///
/// ```
/// use wheelhouse::{Cache, Stat, StatValue};
///
/// let cache = Cache::builder().record_stats().build();
/// cache.insert("ada", 1815);
/// let is_insertions = |stat: &Stat| stat.name == "insertions";
/// let insertions = cache.stats().iter().find(is_insertions).unwrap();
/// assert_eq!((insertions.cause, insertions.value), (None, StatValue::Count(1)));
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Stat {
    /// The name of the method of [`Stats`] that returns it, such as `hits`.
    pub name: &'static str,
    /// For `removals` and `removed_weight`, which stand in the list once for each cause.
    pub cause: Option<RemovalCause>,
    /// Its kind and its value. Each kind only grows while the cache lives.
    pub value: StatValue,
}

/// The kind and the value of a [`Stat`].
///
/// ```
/// use wheelhouse::{Cache, StatValue};
///
/// let stats = Cache::<u8, u8>::new(10).stats();
/// for stat in &stats {
///     match stat.value {
///         StatValue::Count(count) => assert_eq!(count, 0),
///         StatValue::Time(time) => assert!(time.is_zero()),
///         StatValue::Buckets { count, .. } => assert_eq!(count, 0),
///         _ => {} // later versions may add kinds
///     }
/// }
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum StatValue {
    /// A number of events, or a sum of weights.
    Count(u64),
    /// A sum of durations.
    Time(Duration),
    /// A number of durations, sorted into buckets.
    Buckets {
        /// How many durations were shorter than an edge, for each edge in rising order. The edges
        /// are the same for all caches: powers of four, from 65.536 µs to 18 minutes.
        below: Vec<(Duration, u64)>,
        /// How many durations there were.
        count: u64,
    },
}

/// The edges of the buckets, as powers of two nanoseconds: edges of the histogram, too.
const EDGES: [u32; 13] = [16, 18, 20, 22, 24, 26, 28, 30, 32, 34, 36, 38, 40];

/// The names of the counts that are numbers of events.
const COUNTS: [(&str, Count); 13] = [
    ("hits", Count::Hits),
    ("misses", Count::Misses),
    ("insertions", Count::Insertions),
    ("updates", Count::Updates),
    ("maintenance_passes", Count::Passes),
    ("loads", Count::Loads),
    ("load_failures", Count::FailedLoads),
    ("loads_discarded", Count::DiscardedLoads),
    ("load_waits", Count::LoadWaits),
    ("reloads", Count::Reloads),
    ("reload_failures", Count::FailedReloads),
    ("remembered_failures", Count::RememberedFailures),
    ("listener_panics", Count::ListenerPanics),
];

/// The names of the counts that stand in the list once for each cause.
const BY_CAUSE: [(&str, Count); 2] = [
    ("removals", Count::Removals),
    ("removed_weight", Count::Weights),
];

impl Stats {
    /// Returns all statistics, each with its name, its kind and its value, so that an exporter need
    /// not know them. Later versions may add some.
    ///
    /// # Cost
    ///
    /// Two allocations; some thousand additions.
    ///
    /// An exporter in the text format of Prometheus:
    ///
    /// ```
    /// use std::fmt::Write;
    /// use wheelhouse::{Cache, RemovalCause, StatValue};
    ///
    /// let cache = Cache::builder().record_stats().build();
    /// cache.insert("ada", 1815);
    /// cache.invalidate("ada");
    ///
    /// let mut page = String::new();
    /// for stat in &cache.stats() {
    ///     let label = stat.cause.map_or(String::new(), |cause| format!("{{cause=\"{cause}\"}}"));
    ///     match stat.value {
    ///         StatValue::Count(n) => writeln!(page, "cache_{}{label} {n}", stat.name),
    ///         StatValue::Time(t) => {
    ///             writeln!(page, "cache_{}_seconds{label} {}", stat.name, t.as_secs_f64())
    ///         }
    ///         _ => Ok(()), // the buckets: see the example `metrics`
    ///     }?;
    /// }
    /// assert!(page.contains("cache_insertions 1\n"));
    /// assert!(page.contains("cache_removals{cause=\"explicit\"} 1\n"));
    /// # Ok::<(), std::fmt::Error>(())
    /// ```
    pub fn iter(&self) -> std::vec::IntoIter<Stat> {
        let mut list = Vec::new();
        let mut add = |name, cause, value| list.push(Stat { name, cause, value });
        for (name, count) in COUNTS {
            add(name, None, StatValue::Count(self.counts[count as usize]));
        }
        for (name, first) in BY_CAUSE {
            for &cause in RemovalCause::ALL {
                let count = self.counts[first as usize + cause as usize];
                add(name, Some(cause), StatValue::Count(count));
            }
        }
        let time = StatValue::Time(self.maintenance_time());
        add("maintenance_time", None, time);
        add("load_time", None, StatValue::Time(self.load_time()));
        let below = EDGES.map(|edge| {
            let nanos = 1_u64 << edge;
            let below = histogram::shorter_than(&self.lateness, nanos);
            (Duration::from_nanos(nanos), below)
        });
        let buckets = StatValue::Buckets {
            below: below.into(),
            count: self.expired_by_maintenance(),
        };
        add("expiry_lateness", None, buckets);
        list.into_iter()
    }
}

impl IntoIterator for &Stats {
    type Item = Stat;
    type IntoIter = std::vec::IntoIter<Stat>;

    /// Iterates over all statistics, as [`Stats::iter`] does.
    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

#[cfg(all(test, not(wheelhouse_loom)))]
mod tests;
