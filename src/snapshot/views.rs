//! Views of the entries in an order: by use, by eviction, or by deadline.
//!
//! They are for people who look at a running cache; they are not fast.

use crate::iter::Iter;
use crate::map::Walk;
use crate::node::NodePtr;
use crate::policy::Policy;
use crate::reclaim::Pin;
use crate::time::{self, NEVER};
use std::collections::HashSet;

impl<'a, K, V, S> Policy<'a, K, V, S> {
    /// Returns up to `n` entries that were used most, the most used first, as far as the size
    /// policy knows of use; in a cache without `max_capacity`, any entries.
    ///
    /// The [adaptive](crate::EvictionPolicy::Adaptive) policy counts uses, coarsely and with a
    /// short memory: many uses in quick succession count as one. Under
    /// [`Lru`](crate::EvictionPolicy::Lru) the entry that was used last is the first. For the order
    /// of eviction see [`last_to_evict`](Self::last_to_evict). It does not count as a read. In a
    /// cache of [several parts](Self::first_to_evict), the order of equally used entries of two
    /// parts is approximate.
    ///
    /// # Cost
    ///
    /// Proportional to the number of all entries. The maintenance lock is held for a bounded number
    /// of entries at a time; readers never wait.
    ///
    /// ```
    /// use wheelhouse::{Cache, EvictionPolicy};
    ///
    /// let cache = Cache::builder().max_capacity(10).eviction_policy(EvictionPolicy::Lru).build();
    /// for key in 0..10 {
    ///     cache.insert(key, key);
    /// }
    /// cache.run_pending_tasks();
    /// cache.get(&3);
    /// assert_eq!(cache.policy().hottest(1).map(|entry| *entry.key()).collect::<Vec<_>>(), [3]);
    /// ```
    pub fn hottest(&self, n: usize) -> Iter<'a, K, V, S> {
        self.bring_up_to_date();
        self.view(n, |pin| {
            let coldest_first = self.ranked(usize::MAX, pin, |order, uses| (uses, order));
            coldest_first.into_iter().rev()
        })
    }

    /// Returns up to `n` entries that were used least, the least used first, as far as the size
    /// policy knows of use; in a cache without `max_capacity`, any entries.
    ///
    /// This is the order of [`hottest`](Self::hottest), from its end. For the order of eviction see
    /// [`first_to_evict`](Self::first_to_evict). It does not count as a read.
    ///
    /// # Cost
    ///
    /// As `hottest`.
    ///
    /// ```
    /// use wheelhouse::{Cache, EvictionPolicy};
    ///
    /// let cache = Cache::builder().max_capacity(10).eviction_policy(EvictionPolicy::Lru).build();
    /// for key in 0..10 {
    ///     cache.insert(key, key);
    /// }
    /// let coldest: Vec<_> = cache.policy().coldest(2).map(|entry| *entry.key()).collect();
    /// assert_eq!(coldest, [0, 1]);
    /// ```
    pub fn coldest(&self, n: usize) -> Iter<'a, K, V, S> {
        self.bring_up_to_date();
        self.view(n, |pin| {
            self.ranked(usize::MAX, pin, |order, uses| (uses, order))
        })
    }

    /// Returns up to `n` entries that the size policy would evict last, the last one first; in a
    /// cache without `max_capacity`, any entries.
    ///
    /// It does not count as a read. Each use and each eviction may change the order. This is the
    /// order of [`first_to_evict`](Self::first_to_evict), from its end.
    ///
    /// # Cost
    ///
    /// As [`hottest`](Self::hottest).
    ///
    /// ```
    /// use wheelhouse::{Cache, EvictionPolicy};
    ///
    /// let cache = Cache::builder().max_capacity(10).eviction_policy(EvictionPolicy::Lru).build();
    /// for key in 0..10 {
    ///     cache.insert(key, key);
    /// }
    /// let last: Vec<_> = cache.policy().last_to_evict(2).map(|entry| *entry.key()).collect();
    /// assert_eq!(last, [9, 8]);
    /// ```
    pub fn last_to_evict(&self, n: usize) -> Iter<'a, K, V, S> {
        self.bring_up_to_date();
        self.view(n, |pin| {
            let first_to_evict = self.ranked(usize::MAX, pin, |order, _| order);
            first_to_evict.into_iter().rev()
        })
    }

    /// Returns up to `n` entries that the size policy would evict first, the next victim first; in
    /// a cache without `max_capacity`, any entries.
    ///
    /// It does not count as a read. Each use and each eviction may change the order. A large cache
    /// on many cores consists of parts, each of which evicts by an order of its own. Then an entry
    /// is shown by how near it is to the end of the order of its part.
    ///
    /// # Cost
    ///
    /// Proportional to `n`, and to the expired entries that would be evicted before and are not
    /// removed yet. The maintenance lock is held for a bounded number of entries at a time; readers
    /// never wait.
    ///
    /// ```
    /// use wheelhouse::{Cache, EvictionPolicy};
    ///
    /// let cache = Cache::builder().max_capacity(10).eviction_policy(EvictionPolicy::Lru).build();
    /// for key in 0..10 {
    ///     cache.insert(key, key);
    /// }
    /// let first: Vec<_> = cache.policy().first_to_evict(2).map(|entry| *entry.key()).collect();
    /// assert_eq!(first, [0, 1]);
    /// ```
    pub fn first_to_evict(&self, n: usize) -> Iter<'a, K, V, S> {
        self.bring_up_to_date();
        self.view(n, |pin| self.ranked(n, pin, |order, _| order))
    }

    /// Returns up to `n` entries whose deadlines come first, the next one first. Entries without a
    /// deadline are not shown.
    ///
    /// It does not count as a read.
    ///
    /// # Cost
    ///
    /// Proportional to the number of all entries, without a lock. It takes 16 bytes for each entry
    /// with a deadline.
    ///
    /// ```
    /// use std::time::Duration;
    ///
    /// let cache = wheelhouse::Cache::new(10);
    /// for seconds in [30, 10, 20] {
    ///     cache.insert_with_ttl(seconds, seconds, Duration::from_secs(seconds));
    /// }
    /// let next: Vec<_> = cache.policy().next_to_expire(2).map(|entry| *entry.key()).collect();
    /// assert_eq!(next, [10, 20]);
    /// ```
    pub fn next_to_expire(&self, n: usize) -> Iter<'a, K, V, S> {
        self.view(n, |pin| {
            let now = self.cache.engine().clock.now();
            let mut nodes = Vec::new();
            self.each(pin, |node| {
                let deadline = node.deadline();
                // Past deadlines, and those that a reader has claimed, come out as large numbers.
                let left = deadline.wrapping_sub(now);
                if deadline != NEVER && left as i64 > 0 {
                    nodes.push((left, node));
                }
                true
            });
            if n < nodes.len() {
                nodes.select_nth_unstable_by_key(n, |&(left, _)| left);
                nodes.truncate(n);
            }
            nodes.sort_by_key(|&(left, _)| left);
            nodes.into_iter().map(|(_, node)| node)
        })
    }

    /// Lets the size policy know of all uses and entries. Before this thread is pinned, since
    /// destructors run in it.
    fn bring_up_to_date(&self) {
        let engine = self.cache.engine();
        if engine.max_capacity().is_some() {
            engine.catch_up();
        }
    }

    /// The first `n` of the nodes that `in_order` returns.
    fn view<I: IntoIterator<Item = NodePtr<K, V>>>(
        &self,
        n: usize,
        in_order: impl FnOnce(&Pin) -> I,
    ) -> Iter<'a, K, V, S> {
        let pin = self.cache.engine().pin();
        // A walk may meet an entry twice.
        let mut seen = HashSet::new();
        let mut first = Vec::new();
        for node in in_order(&pin) {
            if first.len() == n {
                break;
            }
            if seen.insert(node.entry().address()) {
                first.push(node);
            }
        }
        Iter::of(self.cache.engine(), first, pin)
    }

    /// Live entries in the order of their ranks: at least the `most` that are evicted first. `rank`
    /// is told where an entry stands in the order of eviction, and how often it was used.
    fn ranked<R: Copy + Ord>(
        &self,
        most: usize,
        pin: &Pin,
        rank: impl Fn(u64, u8) -> R,
    ) -> Vec<NodePtr<K, V>> {
        let engine = self.cache.engine();
        let now = engine.clock.now();
        // A frozen deadline is that of a live entry, which is being replaced.
        let lives =
            |node: NodePtr<K, V>| !time::is_due(now, node.deadline()) || node.is_frozen(now);
        let mut nodes = Vec::new();
        if engine.max_capacity().is_some() {
            // Before the walk: that pushes under the maintenance lock.
            nodes.reserve((engine.map.len() as usize).min(most.saturating_mul(engine.parts())));
            engine.walk_by_eviction(most, |order, entry| {
                let lives = lives(entry.node());
                if lives {
                    nodes.push((rank(order, entry.uses.get()), entry.node()));
                }
                lives
            });
            // Those of one part are in the order of eviction already.
            nodes.sort_by_key(|&(rank, _)| rank);
        } else {
            self.each(pin, |node| {
                if lives(node) {
                    nodes.push((rank(0, 0), node));
                }
                nodes.len() < most
            });
        }
        nodes.into_iter().map(|(_, node)| node).collect()
    }

    /// Visits the nodes in the map until `visit` returns false.
    fn each(&self, pin: &Pin, mut visit: impl FnMut(NodePtr<K, V>) -> bool) {
        let mut walk = Walk::default();
        let mut group = Vec::new();
        while self
            .cache
            .engine()
            .map
            .next_group(&mut walk, pin, &mut group)
        {
            for node in &group {
                if !visit(*node) {
                    return;
                }
            }
        }
    }
}

#[cfg(all(test, not(wheelhouse_loom)))]
mod tests;
