//! What is remembered of evicted nodes: when they were last used and when they went, four bytes
//! each.
//!
//! # How it works
//!
//! A table of buckets of eight places, addressed by the hash. A place has 16 bits of fingerprint
//! and two stamps: of the last use by the policy's `order`, of the eviction by its `evictions`
//! ([`epochs`](super::epochs)). A full bucket forgets its longest gone. Twice as many places as
//! resident nodes are kept, so a key can be gone for two turnovers and still be known.
//!
//! # Invariants
//!
//! 1. A place whose fingerprint is 0 is free, and no key's is 0.
//! 2. No stamp of a taken place is older than 192 epochs, so none is misread: the end of an epoch
//!    of either kind sweeps a 64th of the table of the places that are more than [`HORIZON`] epochs
//!    old by either.
//!
//! Cost: 8 bytes a resident node; one half cache line for each eviction and for each insert of a
//! new key. Two keys are taken for one with a chance of 8 in 65,536, which costs nothing but a
//! wrong guess. Allocated at the first eviction and again only if the number of nodes leaves the
//! bounds in [`fit`](Ghosts::fit); what was remembered is then lost.

use super::epochs::{Epochs, TURNOVER};
use crate::node;

/// Epochs for which a ghost is kept: two turnovers.
pub(super) const HORIZON: u8 = 2 * TURNOVER as u8;

/// Places in a bucket.
const PLACES: usize = 8;

/// A bucket's fingerprints, and apart from them its stamps: so that eight fingerprints are compared
/// in one go.
type Bucket = [[u16; PLACES]; 2];

/// A remembered eviction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Ghost {
    /// Stamp of the last use, by `order`.
    pub(super) used: u8,
    /// Stamp of the eviction, by `evictions`.
    pub(super) gone: u8,
}

impl Ghost {
    fn from_stamps(stamps: u16) -> Self {
        let [used, gone] = stamps.to_le_bytes();
        Self { used, gone }
    }

    fn to_stamps(self) -> u16 {
        u16::from_le_bytes([self.used, self.gone])
    }
}

pub(super) struct Ghosts {
    buckets: Vec<Bucket>,
    swept: usize,
}

impl Ghosts {
    pub(super) const fn new() -> Self {
        Self {
            buckets: Vec::new(),
            swept: 0,
        }
    }

    /// Sizes the table for `resident` nodes: rebuilt, empty, if it has less than 4/5 or more than
    /// four times the places wanted.
    pub(super) fn fit(&mut self, resident: usize) {
        let wanted = (2 * resident).div_ceil(PLACES).max(1);
        let have = self.buckets.len();
        if have * 5 < wanted * 4 || have > wanted * 4 {
            // Plain numbers: the allocator has zeroed memory at hand, so a large table costs the
            // pass no long step.
            self.buckets = vec![[[0; PLACES]; 2]; wanted];
            self.swept = 0;
        }
    }

    /// Asks the processor for what [`take`](Self::take) and [`put`](Self::put) will look at.
    pub(super) fn prefetch(&self, hash: u64) {
        if let Some(at) = self.bucket(hash) {
            node::prefetch(&raw const self.buckets[at]);
        }
    }

    /// Forgets and returns what is known of the key; `hash` is spread over all 64 bits.
    pub(super) fn take(&mut self, hash: u64) -> Option<Ghost> {
        let fingerprint = fingerprint(hash);
        let at = self.bucket(hash)?;
        let [fingerprints, stamps] = &mut self.buckets[at];
        let place = first(fingerprints, |known| known == fingerprint)?;
        fingerprints[place] = 0;
        Some(Ghost::from_stamps(stamps[place]))
    }

    /// Remembers an eviction of now of a node last used at `used`. The table was [`fit`](Self::fit)
    /// before.
    pub(super) fn put(&mut self, hash: u64, used: u8, evictions: &Epochs) {
        let fingerprint = fingerprint(hash);
        let Some(at) = self.bucket(hash) else { return };
        let [fingerprints, stamps] = &mut self.buckets[at];
        let age = |place: &usize| evictions.age(Ghost::from_stamps(stamps[*place]).gone);
        let place = first(fingerprints, |known| (known == 0) | (known == fingerprint))
            .or_else(|| (0..PLACES).max_by_key(age));
        if let Some(place) = place {
            let gone = evictions.stamp();
            fingerprints[place] = fingerprint;
            stamps[place] = Ghost { used, gone }.to_stamps();
        }
    }

    /// What the end of an epoch sweeps (ghosts 2).
    pub(super) fn sweep(&mut self, order: &Epochs, evictions: &Epochs) {
        for _ in 0..self.buckets.len().div_ceil(TURNOVER as usize) {
            self.swept = (self.swept + 1) % self.buckets.len();
            let [fingerprints, stamps] = &mut self.buckets[self.swept];
            for (fingerprint, &stamps) in fingerprints.iter_mut().zip(&*stamps) {
                let Ghost { used, gone } = Ghost::from_stamps(stamps);
                if order.age(used) > HORIZON || evictions.age(gone) > HORIZON {
                    *fingerprint = 0;
                }
            }
        }
    }

    fn bucket(&self, hash: u64) -> Option<usize> {
        let n = self.buckets.len() as u64;
        (n > 0).then(|| (((hash >> 32) * n) >> 32) as usize)
    }
}

/// The first place whose fingerprint is wanted. Looks at all of them: where it stands is anybody's
/// guess, the processor's too.
#[inline]
fn first(fingerprints: &[u16; PLACES], wanted: impl Fn(u16) -> bool) -> Option<usize> {
    // A bit for each, none of them the lowest: then the compiler sees eight times the same, and
    // keeps all in one register.
    let bits: [u16; PLACES] =
        std::array::from_fn(|at| if wanted(fingerprints[at]) { 2 << at } else { 0 });
    let found = bits.into_iter().fold(0, |found, bit| found | bit);
    (found != 0).then(|| found.trailing_zeros() as usize - 1)
}

fn fingerprint(hash: u64) -> u16 {
    (hash as u16).max(1)
}

#[cfg(test)]
mod tests {
    use super::super::spread;
    use super::*;

    #[test]
    fn remembers_once_what_was_put() {
        let evictions = Epochs::default();
        let mut ghosts = Ghosts::new();
        assert_eq!(ghosts.take(spread(1)), None, "before the table exists");
        ghosts.fit(100);
        ghosts.put(spread(1), 7, &evictions);
        assert_eq!(ghosts.take(spread(1)), Some(Ghost { used: 7, gone: 0 }));
        assert_eq!(ghosts.take(spread(1)), None);
    }

    #[test]
    fn keeps_most_of_a_turnover_and_nothing_beyond_the_horizon() {
        let order = Epochs::default();
        let mut evictions = Epochs::default();
        let mut ghosts = Ghosts::new();
        let resident = 6400;
        ghosts.fit(resident);
        for key in 0..4 * resident as u64 {
            ghosts.put(spread(key), 0, &evictions);
            if evictions.advance(resident) {
                ghosts.sweep(&order, &evictions);
            }
        }
        let mut known = |keys: std::ops::Range<u64>| {
            keys.filter(|&key| ghosts.take(spread(key)).is_some())
                .count()
        };
        let n = resident as u64;
        assert!(known(3 * n..4 * n) > resident * 9 / 10);
        assert!(known(0..n) < resident / 50, "all but chance likenesses");
    }

    #[test]
    fn regular_keys_of_a_plain_hasher_find_room() {
        let evictions = Epochs::default();
        let mut ghosts = Ghosts::new();
        let keys = 0..200_000;
        ghosts.fit(keys.end as usize);
        // The keys are their own hashes; the cache spreads these for the map.
        let hash = |key: u64| spread(crate::hash::spread(key << 16));
        for key in keys.clone() {
            ghosts.put(hash(key), 0, &evictions);
        }
        let known = keys.filter(|&key| ghosts.take(hash(key)).is_some()).count();
        assert!(known > 195_000, "{known} are known");
    }

    #[test]
    fn no_stamp_grows_old_enough_to_be_misread() {
        for by_order in [false, true] {
            let (mut order, mut evictions) = (Epochs::default(), Epochs::default());
            let mut ghosts = Ghosts::new();
            ghosts.fit(1000);
            for key in 0..100 {
                ghosts.put(spread(key), order.stamp(), &evictions);
            }
            for _ in 0..192 {
                let epochs = if by_order { &mut order } else { &mut evictions };
                assert!(epochs.advance(1));
                ghosts.sweep(&order, &evictions);
            }
            let known = (0..100).filter(|&key| ghosts.take(spread(key)).is_some());
            assert_eq!(known.count(), 0);
        }
    }

    #[test]
    fn a_full_bucket_forgets_its_longest_gone() {
        let mut evictions = Epochs::default();
        let mut ghosts = Ghosts::new();
        ghosts.fit(1);
        for key in 0..9 {
            ghosts.put(spread(key), 0, &evictions);
            evictions.advance(1);
        }
        assert_eq!(ghosts.take(spread(0)), None);
        assert_eq!(
            (1..9)
                .filter(|&key| ghosts.take(spread(key)).is_some())
                .count(),
            8
        );
    }

    #[test]
    fn follows_the_number_of_nodes() {
        let mut ghosts = Ghosts::new();
        ghosts.fit(1000);
        assert_eq!(ghosts.buckets.len(), 250);
        ghosts.fit(1100);
        assert_eq!(ghosts.buckets.len(), 250, "a small drift changes nothing");
        ghosts.fit(2000);
        assert_eq!(ghosts.buckets.len(), 500);
        ghosts.fit(10);
        assert_eq!(ghosts.buckets.len(), 3);
    }
}
