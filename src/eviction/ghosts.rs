//! Ghosts: what the policy remembers of entries that left, four bytes each.
//!
//! # How it works
//!
//! A table of groups of eight ghosts, addressed by the hash. A ghost has 15 bits of fingerprint,
//! one bit that says whether the entry expired (else it was evicted), and two stamps. They are
//! those of its last use by the policy's `order`, and of its removal by its `evictions`. In a full
//! group, a new ghost replaces the one whose entry left first. The table has room for twice as many
//! ghosts as there are resident entries, so a key can be gone for two turnovers and still be known.
//!
//! # Periods
//!
//! The policy's measure of time is moves in the queues. A counter ([`Periods`]) counts events, such
//! as entries that pass some point of a queue. A *period* is a fixed number of events: a 64th of
//! the number of entries in that queue. So 64 periods are one turnover, whatever the size of the
//! cache, its hit ratio, or the speed of its callers. A stamp is the low byte of the period.
//!
//! The policy keeps two such counters. `order` counts protected entries that reached the tail.
//! Between a use of a protected entry and its arrival at the old end, at most as many such events
//! happen as there are protected entries. So its stamp is at most about 64 periods old, however
//! much time passes, and is never misread. `evictions` counts evictions.
//!
//! # Invariants
//!
//! 1. A slot whose fingerprint is 0 is free, and no key's fingerprint is 0.
//! 2. No stamp of a ghost is older than 192 periods, so none is misread. The end of a period of
//!    either kind visits a 64th of the table. It drops the ghosts that are more than
//!    [`GHOST_PERIODS`] periods old by either stamp.
//!
//! Cost: 8 bytes for each resident entry, 1 KiB at least; half a cache line for each eviction and
//! for each insert of a new key. The table is allocated at the first eviction, and anew only if the
//! number of entries leaves the bounds in [`fit`](Ghosts::fit); the old ghosts are then lost.

use crate::node;

/// Periods in one turnover.
pub(super) const TURNOVER: u64 = 64;

/// Counts events; see the module docs.
#[derive(Debug, Default)]
pub(super) struct Periods {
    /// Events so far.
    pub(super) count: u64,
    /// Events since the period began.
    within: u64,
    pub(super) period: u64,
}

impl Periods {
    /// The stamp of the current period.
    pub(super) fn stamp(&self) -> u8 {
        self.period as u8
    }

    /// Periods since `stamp` was taken, modulo 256.
    pub(super) fn age(&self, stamp: u8) -> u8 {
        self.stamp().wrapping_sub(stamp)
    }

    /// Counts one event of a queue with `nodes` entries. True if this event ends a period.
    pub(super) fn advance(&mut self, nodes: usize) -> bool {
        self.count += 1;
        self.within += 1;
        let ended = self.within >= nodes as u64 / TURNOVER;
        if ended {
            self.within = 0;
            self.period += 1;
        }
        ended
    }
}

/// Periods for which a ghost is kept: two turnovers.
pub(super) const GHOST_PERIODS: u8 = 2 * TURNOVER as u8;

/// Bytes for each resident entry, which has room for two ghosts.
pub(super) const BYTES_PER_ENTRY: f64 = 2.0 * (size_of::<Group>() / GHOSTS_PER_GROUP) as f64;

/// The table has room for the ghosts of this many entries at least. Keys that come back to a cache
/// of few entries have mostly been gone for many turnovers.
const FEWEST: usize = 128;

/// Ghosts in a group.
const GHOSTS_PER_GROUP: usize = 8;

/// The fingerprints of a group, and apart from them its stamps (of the last use, and of the
/// removal), so that eight fingerprints can be compared at once.
type Group = ([u16; GHOSTS_PER_GROUP], [[u8; 2]; GHOSTS_PER_GROUP]);

/// In a fingerprint: the entry expired.
const EXPIRED: u16 = 1 << 15;

/// A record of an entry that left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Ghost {
    /// Stamp of the last use, by `order`.
    pub(super) last_use: u8,
    /// Stamp of the removal, by `evictions`.
    pub(super) removed_at: u8,
    /// Whether it left because of its deadline.
    pub(super) expired: bool,
}

#[derive(Default)]
pub(super) struct Ghosts {
    groups: Vec<Group>,
    cursor: usize,
}

impl Ghosts {
    /// Sizes the table for `resident` entries, at least for [`FEWEST`]. It is made anew, empty, if
    /// it has less than 4/5 of the room that is needed, or more than four times as much.
    pub(super) fn fit(&mut self, resident: usize) {
        let wanted = (2 * resident.max(FEWEST)).div_ceil(GHOSTS_PER_GROUP);
        let have = self.groups.len();
        if have * 5 < wanted * 4 || have > wanted * 4 {
            // Zeroed memory: the system supplies large blocks of it page by page, so the allocation
            // of a large table does not make the pass long.
            self.groups = vec![Group::default(); wanted];
            self.cursor = 0;
        }
    }

    /// Prefetches what [`take`](Self::take) and [`put`](Self::put) will look at and change.
    pub(super) fn prefetch(&self, hash: u64) {
        if let Some(at) = self.group(hash) {
            node::prefetch_to_write(&raw const self.groups[at]);
        }
    }

    /// Removes and returns the ghost of a key; `hash` is mixed over all 64 bits.
    pub(super) fn take(&mut self, hash: u64) -> Option<Ghost> {
        let fingerprint = fingerprint(hash);
        let at = self.group(hash)?;
        let (fingerprints, stamps) = &mut self.groups[at];
        let place = first(fingerprints, |known| known & !EXPIRED == fingerprint)?;
        let known = std::mem::take(&mut fingerprints[place]);
        let [last_use, removed_at] = stamps[place];
        Some(Ghost {
            last_use,
            removed_at,
            expired: known & EXPIRED != 0,
        })
    }

    /// Remembers a ghost. Does nothing before the first [`fit`](Self::fit).
    pub(super) fn put(&mut self, hash: u64, ghost: Ghost, evictions: &Periods) {
        let fingerprint = fingerprint(hash);
        let Some(at) = self.group(hash) else { return };
        let (fingerprints, stamps) = &mut self.groups[at];
        let free = first(fingerprints, |known| {
            (known == 0) | (known & !EXPIRED == fingerprint)
        });
        let place = match free {
            Some(place) => place,
            // The oldest ghost leaves.
            None => (0..GHOSTS_PER_GROUP)
                .max_by_key(|&place| evictions.age(stamps[place][1]))
                .unwrap_or(0),
        };
        fingerprints[place] = fingerprint | if ghost.expired { EXPIRED } else { 0 };
        stamps[place] = [ghost.last_use, ghost.removed_at];
    }

    /// Drops old ghosts in a 64th of the table, at the end of a period (ghosts 2).
    pub(super) fn drop_old(&mut self, order: &Periods, evictions: &Periods) {
        for _ in 0..self.groups.len().div_ceil(TURNOVER as usize) {
            self.cursor = (self.cursor + 1) % self.groups.len();
            let (fingerprints, stamps) = &mut self.groups[self.cursor];
            for (fingerprint, &[last_use, removed_at]) in fingerprints.iter_mut().zip(&*stamps) {
                if order.age(last_use) > GHOST_PERIODS || evictions.age(removed_at) > GHOST_PERIODS
                {
                    *fingerprint = 0;
                }
            }
        }
    }

    fn group(&self, hash: u64) -> Option<usize> {
        let n = self.groups.len() as u64;
        if n == 0 {
            return None;
        }
        Some((((hash >> 32) * n) >> 32) as usize)
    }
}

/// The first slot with this fingerprint. The search compares all slots without a branch, since no
/// branch predictor could guess which one matches.
#[inline]
fn first(fingerprints: &[u16; GHOSTS_PER_GROUP], wanted: impl Fn(u16) -> bool) -> Option<usize> {
    // One bit for each, never the lowest: the compiler then does the same work eight times in one
    // vector register.
    let bits: [u16; GHOSTS_PER_GROUP] =
        std::array::from_fn(|at| if wanted(fingerprints[at]) { 2 << at } else { 0 });
    let found = bits.into_iter().fold(0, |found, bit| found | bit);
    if found == 0 {
        return None;
    }
    Some(found.trailing_zeros() as usize - 1)
}

fn fingerprint(hash: u64) -> u16 {
    (hash as u16 & !EXPIRED).max(1)
}

/// Mixes a hash once more, for the ghosts and the duels.
///
/// `hash::mix_bits` mixes the hashes of an unknown hasher by one multiplication. Regular keys stay
/// regular under it. The map can bear that, since its groups can overflow; a group of eight
/// ghosts cannot. This function is a bijection, so hashes that are random already lose nothing.
///
/// It multiplies by an odd number (2^64 over the golden ratio) and crosses the halves, twice.
#[inline]
pub(super) fn mix_bits_twice(hash: u64) -> u64 {
    let once = hash.wrapping_mul(0x9E37_79B9_7F4A_7C15);
    let crossed = (once ^ once >> 32).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    crossed ^ crossed >> 29
}

#[cfg(test)]
mod tests;
