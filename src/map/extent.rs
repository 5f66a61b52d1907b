//! How many buckets a table has, and which of them a hash belongs to: linear hashing, as pure arithmetic.
//!
//! With `count` buckets and `n` the largest power of two not above it, buckets `0 .. count - n` have been split once more than
//! the rest. A hash belongs to its lowest `log2(2n)` bits where such a bucket exists, else to its lowest `log2(n)` bits. A
//! table grows and shrinks by one bucket at a time.
//!
//! Buckets live in *segments*, so none ever moves: the first has `base` buckets, the second as many, and each later one as many as
//! all before it. So a table of a power of two has no room that it does not use. A segment's name is the top bit of twice the index of
//! its buckets, the first's that of `base`.
//!
//! Origin: W. Litwin, "Linear hashing: a new tool for file and table addressing", VLDB 1980; the segments as in P.-Å. Larson,
//! "Dynamic hash tables", CACM 31(4), 1988.

/// Bucket count and version in one word, so that a reader sees both at once.
///
/// The version changes whenever a node is about to leave the place where a reader with the old extent would look for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Extent(pub(super) u64);

impl Extent {
    pub(super) fn new(count: u32) -> Self {
        Self(u64::from(count))
    }

    #[inline]
    pub(super) fn count(self) -> u32 {
        self.0 as u32
    }

    /// The same version, moved on by one, with another count.
    pub(super) fn next(self, count: u32) -> Self {
        let version = ((self.0 >> 32) as u32).wrapping_add(1);
        Self(u64::from(version) << 32 | u64::from(count))
    }

    /// The bucket that a hash belongs to.
    #[inline]
    pub(super) fn index(self, hash: u64) -> u32 {
        let count = self.count();
        // All ones up to the top bit of the count. There is always a bucket; saying so spares the processor a branch.
        let wide = u32::MAX >> (count | 1).leading_zeros();
        let index = hash as u32 & wide;
        if index >= count {
            index & (wide >> 1)
        } else {
            index
        }
    }

    /// How many low bits of the hash the entries of a bucket share.
    fn bits(self, index: u32) -> u32 {
        let log = self.count().ilog2();
        let n = 1u32 << log;
        if index >= n || index + n < self.count() {
            log + 1
        } else {
            log
        }
    }

    /// The bucket that the last one came from, and goes back to.
    pub(super) fn buddy(last: u32) -> u32 {
        last ^ (1 << last.ilog2())
    }
}

/// Segment, and offset within it, of a bucket.
#[inline]
pub(super) fn place(index: u32, base: u32) -> (usize, usize) {
    let twice = index << 1;
    // The `1` changes nothing, since there is a base; saying so spares the processor a branch.
    let segment = 31 - (twice | base | 1).leading_zeros();
    // Within the first segment this exchanges its halves, which is as good an order as any.
    (segment as usize, ((twice ^ (1 << segment)) >> 1) as usize)
}

/// How many buckets a segment has.
pub(super) fn size(segment: usize, base: u32) -> usize {
    if base == 1 << segment {
        base as usize
    } else {
        first(segment) as usize
    }
}

/// The index of a segment's first bucket, but for the first segment.
pub(super) fn first(segment: usize) -> u32 {
    1 << (segment - 1)
}

/// Where a hash stands in the order in which a table is visited.
///
/// Buckets split and merge, but the entries of a bucket are always neighbours in the order of the reversed low bits: a visit
/// that goes on from a position meets each entry that stays in the table once, whatever the table does meanwhile.
#[inline]
pub(super) fn position(hash: u64) -> u32 {
    (hash as u32).reverse_bits()
}

/// The bucket that holds a position, and the first position behind that bucket.
pub(super) fn visit(extent: Extent, position: u32) -> (u32, u64) {
    let index = extent.index(u64::from(position.reverse_bits()));
    let width = 1u64 << (32 - extent.bits(index));
    let start = u64::from(position) & !(width - 1);
    (index, start + width)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_split_moves_entries_of_one_bucket_only() {
        for count in 1..300u32 {
            let (before, after) = (Extent::new(count), Extent::new(count + 1));
            let buddy = Extent::buddy(count);
            for hash in 0..2048u64 {
                let (was, is) = (before.index(hash), after.index(hash));
                assert!(was < count && is <= count);
                if is == count {
                    assert_eq!(was, buddy, "count {count} hash {hash}");
                } else {
                    assert_eq!(was, is);
                }
            }
        }
    }

    #[test]
    fn every_bucket_has_one_place() {
        for base in [1u32, 2, 4, 64] {
            let mut places = std::collections::HashSet::new();
            let mut last = base.ilog2() as usize;
            for index in 0..5000u32 {
                let (segment, offset) = place(index, base);
                assert!(places.insert((segment, offset)), "two in one place");
                assert!(
                    offset < size(segment, base),
                    "{index} outside of its segment"
                );
                if segment != last {
                    assert_eq!((segment, offset), (last + 1, 0));
                    assert!(index.is_power_of_two() && index == first(segment));
                    last = segment;
                }
            }
        }
    }

    #[test]
    fn a_visit_covers_every_position_once() {
        for count in 1..200u32 {
            let extent = Extent::new(count);
            let mut at = 0u64;
            let mut seen = vec![0; count as usize];
            while at < 1 << 32 {
                let (index, next) = visit(extent, at as u32);
                seen[index as usize] += 1;
                assert!(next > at);
                // Everything in the interval belongs to this bucket, at both of its ends.
                for probe in [at as u32, (next - 1) as u32] {
                    assert_eq!(extent.index(u64::from(probe.reverse_bits())), index);
                }
                at = next;
            }
            assert_eq!(at, 1 << 32);
            assert!(seen.iter().all(|&n| n == 1), "count {count}: {seen:?}");
        }
    }

    #[test]
    fn the_version_moves_with_every_change() {
        let extent = Extent::new(7);
        let there = extent.next(8);
        let back = there.next(7);
        assert_eq!(back.count(), extent.count());
        assert_ne!(back, extent);
        assert_eq!(Extent(u64::MAX).next(3).count(), 3);
    }
}
