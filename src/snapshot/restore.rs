//! Restoring a snapshot.
//!
//! # How it works
//!
//! The entries come hottest first. A first pass subtracts the downtime from their lifetimes and
//! decides, in that order, which of them fit: so the bound refuses the coldest. All remaining
//! lifetimes count from one reading of the clock, at the beginning, however long the restore takes.
//! Of entries with the same key it takes the first. A second pass puts them in, coldest first, so
//! that the size policy sees the hottest as the newest.

use super::{Downtime, Ended, Restore, Restored, SavedEntry, Snapshot};
use crate::cache::Cache;
use crate::contain::LetGo;
use crate::engine::Lifetimes;
use crate::hash::RandomState;
use crate::node::{NewNode, Times};
use crate::time::{self, MAX_LIFETIME_NANOS};
use std::collections::HashSet;
use std::hash::{BuildHasher, Hash};
use std::time::Duration;

/// What the second pass does with an entry.
enum Treatment {
    /// It is put in with this weight and these times, and is stale from `stale_at` on.
    PutBack {
        weight: u32,
        times: Times,
        stale_at: u64,
    },
    /// It has ended. The listener hears of it, and of this weight.
    Tell(u32),
    Skip,
}

impl<K: Hash + Eq + Clone + 'static, V: Clone + 'static, S: BuildHasher> Cache<K, V, S> {
    /// Inserts the entries of a snapshot, each in one step with its remaining lifetime, and says
    /// what became of them.
    ///
    /// A key that is present keeps its entry. Of several entries with the same key the first
    /// counts, the hottest. By default the time since the snapshot was taken counts, by the
    /// system's clock; a clock that was set back counts as no downtime. The limits of this cache
    /// hold: `time_to_live` counts from the last write, so an entry that is older has ended.
    /// Without a `time_to_idle`, the time since the last read does not matter. Of entries that do
    /// not fit the bound, the coldest are refused; with a weigher, a light one may fit where a
    /// hotter, heavier one did not. The order of use is that of the snapshot. What an entry has
    /// left is its own deadline from then on, which a policy may keep at an update.
    ///
    /// The expiry policy is not asked. A refresh policy is asked, as about a new entry, at the time
    /// of the entry's last write. The earlier one of its moment and the saved one holds.
    ///
    /// All lifetimes count from the beginning of the call. An entry whose lifetime ends while the
    /// call runs is stored as expired, and the listener is called for it:
    /// see [when](crate#when-is-a-removal-told-and-a-value-dropped).
    ///
    /// An entry that is restored counts as written: statistics count an insertion, and a load of
    /// its key that is under way is revoked.
    ///
    /// # Panics
    ///
    /// If the key's `Hash` or `Eq`, the weigher or the refresh policy panics: entries that were put
    /// in before stay.
    ///
    /// # Cost
    ///
    /// An insert for each entry. Other callers are not held up.
    ///
    /// ```
    /// use std::time::Duration;
    /// use wheelhouse::{Cache, Downtime, Restore};
    ///
    /// let old: Cache<u8, u8> = Cache::new(100);
    /// old.insert_with_ttl(1, 10, Duration::from_secs(60));
    /// old.insert(2, 20);
    ///
    /// let new: Cache<u8, u8> = Cache::new(100);
    /// new.insert(2, 22); // newer than the snapshot
    /// let restored = new.restore(old.snapshot(), Restore::default().downtime(Downtime::Ignored));
    /// assert_eq!((restored.restored, restored.present), (1, 1));
    /// assert_eq!((new.get(&1), new.get(&2)), (Some(10), Some(22)));
    /// ```
    pub fn restore(&self, snapshot: Snapshot<K, V>, how: Restore) -> Restored {
        // What does not come back is let go.
        let mut entries: Vec<_> = snapshot.entries.into_iter().map(LetGo::new).collect();
        if self.weighted_size() > 0 && self.engine().max_capacity().is_some() {
            // What is due, or over the bound, takes up no room.
            self.run_pending_tasks();
        }
        // Read once: a restore of many entries takes time, which counts for the last entry, too.
        let (now, system_time) = self.engine().clock.now_and_system_time();
        let downtime = match how.downtime {
            Downtime::Ignored => Duration::ZERO,
            Downtime::Counts => (system_time.duration_since(snapshot.taken_at)).unwrap_or_default(),
        };
        let mut used = self.weighted_size();
        let mut counts = Restored::default();
        let mut seen = HashSet::with_capacity_and_hasher(entries.len(), RandomState::default());
        let mut treatments = Vec::with_capacity(entries.len());
        let lifetimes = &self.engine().lifetimes;
        let max = self.engine().max_capacity().unwrap_or(u64::MAX);
        for entry in entries.iter().map(LetGo::get) {
            let SavedEntry { key, value, .. } = entry;
            if !seen.insert(key) || self.contains_key(key) {
                counts.present += 1;
                treatments.push(Treatment::Skip);
                continue;
            }
            let Some(times) = entry.times_left(lifetimes, downtime, now) else {
                counts.expired += 1;
                treatments.push(match how.ended {
                    Ended::Tell => Treatment::Tell(self.engine().weigh(key, value)),
                    Ended::Skip => Treatment::Skip,
                });
                continue;
            };
            let weight = self.engine().weigh(key, value);
            let with = used.saturating_add(weight.into());
            if with > max {
                counts.refused += 1;
                treatments.push(Treatment::Skip);
                continue;
            }
            used = with;
            let moment = self.engine().ask_of_restored(key, value, &times);
            let refresh = moment_of(entry.refresh_in, downtime, now);
            treatments.push(Treatment::PutBack {
                weight,
                times,
                stale_at: time::earlier(now, refresh, moment),
            });
        }
        drop(seen);
        while let (Some(mut entry), Some(treatment)) = (entries.pop(), treatments.pop()) {
            let hash = self.hash(&entry.get().key);
            let mut take = |weight| {
                let SavedEntry { key, value, .. } = entry.take();
                NewNode::new(key, value, hash, weight)
            };
            match treatment {
                Treatment::PutBack {
                    weight,
                    times,
                    stale_at,
                } => {
                    if self.engine().put_back(take(weight), &times, stale_at) {
                        counts.restored += 1;
                    } else if self.engine().is_too_heavy(weight) {
                        // The bound has shrunk since the first pass.
                        counts.refused += 1;
                    } else {
                        counts.present += 1;
                    }
                }
                Treatment::Tell(weight) => self.engine().notify_ended(take(weight)),
                Treatment::Skip => {}
            }
        }
        counts
    }
}

impl<K, V> SavedEntry<K, V> {
    /// Its times at `now`, after the downtime, from what is left of its lifetimes; `None` if one of
    /// them has ended.
    fn times_left(
        &self,
        lifetimes: &Lifetimes<K, V>,
        downtime: Duration,
        now: u64,
    ) -> Option<Times> {
        let idle = match (lifetimes.time_to_idle, self.idle_left) {
            (Some(limit), Some(left)) => Some(left.min(limit)),
            _ => None,
        };
        let longest = Duration::from_nanos(MAX_LIFETIME_NANOS);
        let live = lifetimes.time_to_live;
        let live = live.map(|live| live.min(longest).saturating_sub(self.age));
        for left in [self.time_left, idle, live] {
            match left {
                Some(left) if left <= downtime => return None,
                _ => {}
            }
        }
        let age = time::deadline_after(0, self.age.saturating_add(downtime));
        let written = time::of_write(now.wrapping_sub(age));
        let own = moment_of(self.time_left, downtime, now);
        let wanted = lifetimes.wanted(own, || written, now);
        Some(Times {
            written,
            deadline: time::earlier(now, wanted, moment_of(idle, downtime, now)),
            own,
        })
    }
}

/// The moment that was so far away when the snapshot was taken, `now` after the downtime.
fn moment_of(left: Option<Duration>, downtime: Duration, now: u64) -> u64 {
    time::deadline_in(now, left.map(|left| left.saturating_sub(downtime)))
}
