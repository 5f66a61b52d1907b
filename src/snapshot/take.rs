//! Taking a snapshot.
//!
//! # How it works
//!
//! First a walk through the size policy gives each entry its rank: its uses, and its place in the
//! order of eviction. The walk holds the maintenance lock for a bounded time in each step. Then an
//! iteration over the map clones key and value of each live entry, with no lock held, and with a
//! pin for one group at a time. The map decides which entries there are; the walk only orders them.
//! An entry without a rank came in meanwhile, or weighs nothing: it counts as hot.

use super::{SavedEntry, Snapshot};
use crate::cache::Cache;
use crate::engine::Engine;
use crate::hash::RandomState;
use crate::node::NodePtr;
use crate::operations::EntryRef;
use crate::time;
use std::cmp::Reverse;
use std::collections::HashMap;
use std::hash::{BuildHasher, Hash};

/// The rank of an entry that the walk did not visit.
const HOT: (u8, u64) = (u8::MAX, u64::MAX);

impl<K: Hash + Eq + Clone + 'static, V: Clone + 'static, S: BuildHasher> Cache<K, V, S> {
    /// Copies all live entries, with their remaining lifetimes, the hottest first.
    ///
    /// It is as consistent as [`iter`](Cache::iter): an entry that is there during the whole call
    /// is copied exactly once; one that comes or goes meanwhile may be copied or not. It does not
    /// count as a read, and asks no policy. A cache without `max_capacity` does not track the order
    /// of use, so the order is arbitrary.
    ///
    /// # A stop that ends nothing twice
    ///
    /// If the listener ends something, such as an order, then two kinds of entries need care when a
    /// program stops. One that expires during the call would be both saved and told to the
    /// listener. One that expired just before, but is not removed yet, would be neither. So:
    ///
    /// 1. Let no other thread use the cache, and let the listener only collect from now on.
    /// 2. Take the snapshot.
    /// 3. Call [`run_pending_tasks`](Cache::run_pending_tasks): it removes all that is due.
    /// 4. Drop the last handle. When the drop returns, the listener has heard of every removal.
    /// 5. End what was collected, and save the rest of the snapshot. What falls due after step 3 is
    ///    saved, and [`Ended::Tell`](crate::Ended::Tell) reports it after the restart.
    ///
    /// ```
    /// use std::collections::HashSet;
    /// use std::sync::atomic::{AtomicBool, Ordering};
    /// use std::sync::{Arc, mpsc};
    /// use wheelhouse::Cache;
    ///
    /// fn end(order: u64) { /* … */ }
    ///
    /// let stopping = Arc::new(AtomicBool::new(false));
    /// let (removed, removals) = mpsc::channel();
    /// let stops = Arc::clone(&stopping);
    /// let orders: Cache<u64, String> = Cache::builder()
    ///     .removal_listener(move |order: &u64, _: &String, _| {
    ///         if stops.load(Ordering::SeqCst) {
    ///             removed.send(*order).unwrap();
    ///         } else {
    ///             end(*order);
    ///         }
    ///     })
    ///     .build();
    /// orders.insert(7, "two tickets".into());
    ///
    /// // No other thread uses the cache any more.
    /// stopping.store(true, Ordering::SeqCst);
    /// let mut snapshot = orders.snapshot();
    /// orders.run_pending_tasks();
    /// drop(orders);
    /// let ended: HashSet<u64> = removals.try_iter().collect();
    /// snapshot.retain(|saved| !ended.contains(&saved.key));
    /// ended.into_iter().for_each(end);
    /// assert_eq!(snapshot.len(), 1); // to be stored
    /// ```
    ///
    /// # Panics
    ///
    /// If `Clone` of a key or a value, or the [`Ticker`](crate::Ticker), panics. The cache stays as
    /// it is.
    ///
    /// # Cost
    ///
    /// Proportional to the number of entries, and memory for all of them. Readers never wait for
    /// it. The maintenance lock is held for a bounded number of entries at a time, and no lock
    /// while user code runs.
    ///
    /// ```
    /// use std::time::Duration;
    /// use wheelhouse::{Cache, ManualTicker, Restore};
    ///
    /// let clock = ManualTicker::new();
    /// let old: Cache<&str, u32> = Cache::builder().ticker(clock.clone()).build();
    /// old.insert_with_ttl("ada", 1815, Duration::from_secs(60));
    /// clock.advance(Duration::from_secs(20));
    /// let snapshot = old.snapshot();
    /// assert_eq!(snapshot.iter().next().unwrap().time_left, Some(Duration::from_secs(40)));
    ///
    /// let new: Cache<&str, u32> = Cache::builder().build();
    /// assert_eq!(new.restore(snapshot, Restore::default()).restored, 1);
    /// assert_eq!(new.get("ada"), Some(1815));
    /// ```
    pub fn snapshot(&self) -> Snapshot<K, V> {
        let engine = self.engine();
        let count = self.entry_count() as usize;
        let mut ranks = HashMap::with_capacity_and_hasher(count, RandomState::default());
        engine.catch_up();
        engine.walk_by_eviction(usize::MAX, |rank, entry| {
            // An entry that was used during the walk is visited again: the later rank holds.
            ranks.insert(entry.address(), (entry.uses.get(), rank));
            true
        });
        let (now, taken_at) = engine.clock.now_and_system_time();
        let mut entries = Vec::with_capacity(count);
        for entry in self {
            let node = entry.node;
            let rank = ranks.get(&node.entry().address()).copied();
            entries.push((rank.unwrap_or(HOT), saved(engine, &entry, node, now)));
        }
        drop(ranks);
        // Sorts the ranks, and then moves each entry once.
        entries.sort_by_cached_key(|&(rank, _)| Reverse(rank));
        Snapshot {
            taken_at,
            entries: entries.into_iter().map(|(_, entry)| entry).collect(),
        }
    }
}

/// An entry as of `now`.
fn saved<K: Clone, V: Clone>(
    engine: &Engine<K, V>,
    entry: &EntryRef<'_, K, V>,
    node: NodePtr<K, V>,
    now: u64,
) -> SavedEntry<K, V> {
    let lifetimes = &engine.lifetimes;
    let wanted = entry.deadline;
    let hard = engine.lifetimes.deadline_without_idle(node, wanted, now);
    SavedEntry {
        key: entry.key().clone(),
        value: entry.value().clone(),
        time_left: time::time_left(now, hard),
        idle_left: match lifetimes.time_to_idle {
            Some(_) => time::time_left(now, wanted),
            None => None,
        },
        refresh_in: match node.refresh() {
            Some(refresh) => time::time_left(now, refresh.at_without_reload(now)),
            None => None,
        },
        age: node.age(now),
    }
}

#[cfg(all(test, not(wheelhouse_loom)))]
mod tests;
