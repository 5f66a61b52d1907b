//! Iteration over the entries of a cache while other threads use it.
//!
//! The iterator reads the nodes of one group at a time. If a node was replaced since, the iterator
//! looks its key up again and yields the new value. So a key that is present all the time is
//! yielded once, with its old or its new value.
//!
//! A view, an iterator over some entries in an order (`snapshot/views.rs`), is made with all of its
//! nodes.

use crate::cache::Cache;
use crate::engine::Engine;
use crate::hash::RandomState;
use crate::map::Walk;
use crate::node::NodePtr;
use crate::operations::EntryRef;
use crate::reclaim::Pin;
use std::fmt;
use std::iter::FusedIterator;
use std::marker::PhantomData;

/// An iterator over the live entries of a cache, from [`Cache::iter`](crate::Cache::iter); or over
/// some of them in an order, from [`Policy::hottest`](crate::Policy::hottest),
/// [`first_to_evict`](crate::Policy::first_to_evict),
/// [`next_to_expire`](crate::Policy::next_to_expire) and others.
///
/// It holds no lock. Between two steps it may hold a pin, as an [`EntryRef`] does: the cache then
/// frees no memory that it removes. `Cache::iter` drops the pin after each group of the table. The
/// others show the entries as they were when the iterator was made, without those that have left
/// since, and keep the pin until the last one.
///
/// ```
/// use wheelhouse::Cache;
///
/// let cache: Cache<&str, u32> = Cache::new(100);
/// cache.insert("ada", 1815);
/// cache.insert("alan", 1912);
/// let pairs = cache.iter().map(|entry| (*entry.key(), *entry.value()));
/// let mut born: Vec<(&str, u32)> = pairs.collect();
/// born.sort_unstable();
/// assert_eq!(born, [("ada", 1815), ("alan", 1912)]);
///
/// // The cache may change meanwhile.
/// for entry in &cache {
///     cache.invalidate(entry.key());
/// }
/// assert_eq!(cache.iter().count(), 0);
/// ```
pub struct Iter<'a, K, V, S = RandomState> {
    engine: &'a Engine<K, V>,
    walk: Walk,
    /// The nodes of the current group, or of a view, that are not yet read, the next one last; and
    /// the pin that protects them.
    group: Vec<NodePtr<K, V>>,
    pin: Option<Pin>,
    _hasher: PhantomData<&'a S>,
}

impl<'a, K, V, S> Iter<'a, K, V, S> {
    /// Over these nodes, which the pin protects, in their order.
    pub(crate) fn of(engine: &'a Engine<K, V>, mut nodes: Vec<NodePtr<K, V>>, pin: Pin) -> Self {
        nodes.reverse();
        Self {
            engine,
            walk: Walk::ENDED,
            group: nodes,
            pin: Some(pin),
            _hasher: PhantomData,
        }
    }
}

impl<'a, K: Eq, V, S> Iterator for Iter<'a, K, V, S> {
    type Item = EntryRef<'a, K, V>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            while let Some(node) = self.group.pop() {
                if let Some(entry) = self.engine.entry_again(node) {
                    return Some(entry);
                }
            }
            // Between two groups the iterator holds no pin, so memory may be freed.
            self.pin = None;
            let pin = self.pin.insert(self.engine.pin());
            if !(self.engine.map).next_group(&mut self.walk, pin, &mut self.group) {
                self.pin = None;
                return None;
            }
            dedup_by_key(&mut self.group);
        }
    }
}

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
        Iter {
            engine: self.engine(),
            walk: Walk::default(),
            group: Vec::new(),
            pin: None,
            _hasher: PhantomData,
        }
    }
}

impl<'a, K: Eq, V, S> IntoIterator for &'a Cache<K, V, S> {
    type Item = EntryRef<'a, K, V>;
    type IntoIter = Iter<'a, K, V, S>;

    fn into_iter(self) -> Iter<'a, K, V, S> {
        self.iter()
    }
}

impl<K: Eq, V, S> FusedIterator for Iter<'_, K, V, S> {}

/// A key that was removed and inserted again while its group was read may occur twice.
fn dedup_by_key<K: Eq, V>(nodes: &mut Vec<NodePtr<K, V>>) {
    let same = |a: NodePtr<K, V>, b: NodePtr<K, V>| a.hash() == b.hash() && a.key() == b.key();
    let mut kept = 0;
    for at in 0..nodes.len() {
        let node = nodes[at];
        if !nodes[..kept].iter().any(|&other| same(node, other)) {
            nodes[kept] = node;
            kept += 1;
        }
    }
    nodes.truncate(kept);
}

impl<K, V, S> fmt::Debug for Iter<'_, K, V, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Iter").finish_non_exhaustive()
    }
}
