//! The loads of one shard, found by the hash of the key.
//!
//! Keys are compared outside of the shard's lock. A transaction may find loads with its key's full
//! hash, whose keys it has not compared yet. Then it copies their addresses, releases the lock,
//! compares the keys, and starts again.

use super::load::{Load, RevokedBy};
use crate::sync::block::wake_all;
use std::collections::BTreeMap;
use std::sync::Arc;

/// The current loads of one shard; under its lock.
pub(crate) struct Loads<K, V> {
    /// One of them, if there is any: all that a write reads of a shard without loads. Mostly there
    /// is one at a time.
    first: Option<Arc<Load<K, V>>>,
    /// The others.
    others: BTreeMap<LoadPlace, Arc<Load<K, V>>>,
}

/// Loads that were revoked. The drop tells the calls that are to look again: no lock and no pin may
/// be held.
#[must_use]
pub(crate) struct RevokedLoads<K, V>(Vec<Arc<Load<K, V>>>);

impl<K, V> RevokedLoads<K, V> {
    /// None.
    pub(crate) fn new() -> Self {
        Self(Vec::new())
    }

    /// Takes others in, and leaves none there.
    pub(crate) fn append(&mut self, others: &mut Self) {
        self.0.append(&mut others.0);
    }
}

impl<K, V> Drop for RevokedLoads<K, V> {
    fn drop(&mut self) {
        let loads = self.0.iter();
        wake_all(loads.flat_map(|load| load.release_waiters().wakers()));
    }
}

/// Where a load stands among the others: by the hash of its key and its address.
pub(crate) type LoadPlace = (u64, usize);

/// No load stands before it.
pub(crate) const FIRST_PLACE: LoadPlace = (0, 0);

fn place<K, V>(load: &Arc<Load<K, V>>) -> LoadPlace {
    (load.hash, Arc::as_ptr(load).addr())
}

impl<K, V> Loads<K, V> {
    pub(crate) fn new() -> Self {
        Self {
            first: None,
            others: BTreeMap::new(),
        }
    }

    /// Whether there is no load.
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.first.is_none()
    }

    /// Whether a key with this hash may have a current load.
    #[inline]
    pub(crate) fn has(&self, hash: u64) -> bool {
        !self.is_empty() && self.of_hash(hash).next().is_some()
    }

    /// How many loads there are.
    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.first.iter().count() + self.others.len()
    }

    /// The loads of the keys with this hash.
    pub(crate) fn of_hash(&self, hash: u64) -> impl Iterator<Item = &Arc<Load<K, V>>> {
        let first = self.first.iter().filter(move |load| load.hash == hash);
        let others = self.others.range((hash, 0)..=(hash, usize::MAX));
        first.chain(others.map(|(_, load)| load))
    }

    pub(crate) fn add(&mut self, load: Arc<Load<K, V>>) {
        if self.first.is_none() {
            self.first = Some(load);
        } else {
            self.others.insert(place(&load), load);
        }
    }

    /// A leader has made its own write: the load leaves the table unless it goes on. True if calls
    /// wait.
    pub(crate) fn seal(&mut self, load: &Arc<Load<K, V>>) -> bool {
        let waited = load.seal();
        self.drop_if_outdated(load);
        waited
    }

    /// Takes a load out that is no longer current, if it still stands here. The caller holds
    /// another reference, so that its key is not dropped here.
    pub(crate) fn remove(&mut self, load: &Arc<Load<K, V>>) {
        match &self.first {
            Some(first) if Arc::ptr_eq(first, load) => {
                self.first = self.others.pop_first().map(|(_, next)| next);
            }
            _ => _ = self.others.remove(&place(load)),
        }
    }

    /// The run of a load has made its write, or has ended: the load leaves the table, unless it
    /// goes on. The caller holds another reference.
    pub(crate) fn drop_if_outdated(&mut self, load: &Arc<Load<K, V>>) {
        if !load.is_current() {
            self.remove(load);
        }
    }

    /// Revokes a current load.
    #[cold]
    pub(crate) fn revoke(&mut self, load: Arc<Load<K, V>>, by: RevokedBy) -> RevokedLoads<K, V> {
        self.take_out(&load, by);
        RevokedLoads(vec![load])
    }

    fn take_out(&mut self, load: &Arc<Load<K, V>>, by: RevokedBy) {
        load.revoke(by);
        self.remove(load);
    }

    /// Revokes at most so many loads, from a place on. Returns them, and from which place on the
    /// next call has to go on; `None` once each load that was here at the first call is revoked.
    /// The first call begins at the [first place](FIRST_PLACE).
    #[cold]
    pub(crate) fn revoke_from(
        &mut self,
        from: LoadPlace,
        most: usize,
        by: RevokedBy,
    ) -> (RevokedLoads<K, V>, Option<LoadPlace>) {
        let next = self.others.range(from..).take(most);
        let mut revoked: Vec<_> = next.map(|(_, load)| Arc::clone(load)).collect();
        let mut rest = None;
        match revoked.last() {
            Some(last) if revoked.len() == most => {
                let (hash, address) = place(last);
                rest = Some((hash, address + 1));
            }
            _ => {}
        }
        for load in &revoked {
            self.take_out(load, by);
        }
        if rest.is_none() {
            // At last: one of the others may have become the first since the first call.
            if let Some(first) = self.first.clone() {
                self.take_out(&first, by);
                revoked.push(first);
            }
        }
        (RevokedLoads(revoked), rest)
    }
}

#[cfg(test)]
mod tests;
