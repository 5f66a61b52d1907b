//! A table's array of buckets: where it is, how large, and whether entries are leaving it, all in
//! one word.
//!
//! # How it works
//!
//! An array has a power of two of buckets, and a hash belongs to the bucket that its lowest bits
//! number. Since buckets are cache lines, six low bits of the array's address are free: five hold
//! the logarithm of its size, the sixth says that entries are *resizing* to another array. So a
//! look-up learns all that it must know about the table by one load, and is at its bucket a few
//! instructions later.
//!
//! The buckets of two arrays that share their entries' lowest bits, as many as number the smaller
//! array, are a *unit*: what moves in one piece from one array to the other.
//!
//! Pure arithmetic on addresses; reading and writing buckets is `table`'s.

use super::bucket::Bucket;

/// The largest array has two to the power of this many buckets.
pub(super) const MOST: u32 = 30;

const LOG: usize = 31;
const MOVING: usize = 32;

/// An array of buckets by its word; see the module docs.
pub(super) struct Array<K, V>(*mut Bucket<K, V>);

impl<K, V> Clone for Array<K, V> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<K, V> Copy for Array<K, V> {}

impl<K, V> PartialEq for Array<K, V> {
    fn eq(&self, other: &Self) -> bool {
        self.at() == other.at()
    }
}

impl<K, V> Array<K, V> {
    /// The array of `1 << log` buckets at this address, which no entry is leaving.
    pub(super) fn new(at: *mut Bucket<K, V>, log: u32) -> Self {
        debug_assert!(log <= MOST && at.addr() & (LOG | MOVING) == 0);
        Self(at.map_addr(|at| at | log as usize))
    }

    #[inline]
    pub(super) fn from_raw(word: *mut Bucket<K, V>) -> Self {
        Self(word)
    }

    pub(super) fn as_raw(self) -> *mut Bucket<K, V> {
        self.0
    }

    /// The same array, with entries leaving it.
    pub(super) fn resizing(self) -> Self {
        Self(self.0.map_addr(|word| word | MOVING))
    }

    #[inline]
    pub(super) fn is_resizing(self) -> bool {
        self.0.addr() & MOVING != 0
    }

    /// Where it is, whatever else the word says.
    #[inline]
    pub(super) fn at(self) -> *mut Bucket<K, V> {
        self.0.map_addr(|word| word & !(LOG | MOVING))
    }

    pub(super) fn log(self) -> u32 {
        (self.0.addr() & LOG) as u32
    }

    /// How many buckets it has.
    pub(super) fn buckets(self) -> u32 {
        1 << self.log()
    }

    /// The number of the bucket that a hash belongs to.
    #[inline]
    pub(super) fn index(self, hash: u64) -> u32 {
        // A shift looks at five bits, those of the logarithm; saying so spares the processor an
        // instruction.
        let buckets = 1u32.wrapping_shl(self.0.addr() as u32);
        hash as u32 & (buckets - 1)
    }

    /// The address of the bucket that a hash belongs to.
    #[inline]
    pub(super) fn bucket(self, hash: u64) -> *mut Bucket<K, V> {
        self.at().wrapping_add(self.index(hash) as usize)
    }

    /// How many units there are between this array and another.
    pub(super) fn units(self, other: Self) -> u32 {
        self.buckets().min(other.buckets())
    }

    /// The addresses of this array's buckets of a unit that it shares with another.
    #[inline]
    pub(super) fn each_of_lot(
        self,
        other: Self,
        unit: u64,
        mut each: impl FnMut(*mut Bucket<K, V>),
    ) {
        let mut number = unit;
        while number < u64::from(self.buckets()) {
            each(self.bucket(number));
            number += u64::from(self.units(other));
        }
    }

    /// The bucket that holds a position of a visit, by its number, and the first position behind
    /// that bucket.
    pub(super) fn visit(self, position: u32) -> (u32, u64) {
        let index = self.index(u64::from(position.reverse_bits()));
        let width = 1u64 << (32 - self.log());
        let start = u64::from(position) & !(width - 1);
        (index, start + width)
    }
}

/// Where a hash stands in the order in which a table is visited.
///
/// Entries move from array to array, but those of a bucket are neighbours in the order of the
/// reversed low bits, however large the array: a visit that goes on from a position meets each
/// entry that stays in the table once, whatever the table does meanwhile.
#[inline]
pub(super) fn position(hash: u64) -> u32 {
    (hash as u32).reverse_bits()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn array(log: u32) -> Array<u8, u8> {
        Array::new(std::ptr::without_provenance_mut(0x7fff_1234_5640), log)
    }

    #[test]
    fn a_word_tells_all_of_an_array() {
        for log in 0..=MOST {
            let array = array(log);
            let resizing = array.resizing();
            assert!(!array.is_resizing() && resizing.is_resizing());
            for array in [array, resizing, Array::from_raw(resizing.as_raw())] {
                assert_eq!(array.at().addr(), 0x7fff_1234_5640);
                assert_eq!((array.log(), array.buckets()), (log, 1 << log));
            }
        }
    }

    #[test]
    fn a_hash_belongs_to_the_bucket_of_its_lowest_bits() {
        for log in 0..=MOST {
            let array = array(log).resizing();
            for hash in [0, 1, 5, 0x1234_5678, 0xFFFF_FFFF_FFFF, u64::MAX] {
                let index = array.index(hash);
                assert_eq!(u64::from(index), hash % (1 << log));
                let offset = array.bucket(hash).addr() - array.at().addr();
                assert_eq!(offset, index as usize * size_of::<Bucket<u8, u8>>());
            }
        }
    }

    #[test]
    fn a_lot_is_a_lot_in_either_array() {
        let (small, large) = (array(3), array(4));
        assert_eq!((small.units(large), large.units(small)), (8, 8));
        for hash in 0..64 {
            assert_eq!(small.index(hash), large.index(hash) % 8);
        }
    }

    #[test]
    fn a_visit_covers_every_position_once() {
        for log in 0..8 {
            let array = array(log);
            let (mut at, mut seen) = (0u64, vec![0; 1 << log]);
            while at < 1 << 32 {
                let (index, next) = array.visit(at as u32);
                seen[index as usize] += 1;
                assert!(next > at);
                // Everything in the interval belongs to this bucket, at both of its ends.
                for probe in [at as u32, (next - 1) as u32] {
                    assert_eq!(array.index(u64::from(probe.reverse_bits())), index);
                    assert_eq!(position(u64::from(probe.reverse_bits())), probe);
                }
                at = next;
            }
            assert_eq!(at, 1 << 32);
            assert!(seen.iter().all(|&n| n == 1), "log {log}: {seen:?}");
        }
    }

    #[test]
    fn a_visit_goes_on_where_another_array_left_it() {
        // The end of a bucket is the beginning of one in an array of any size, or lies within one
        // that begins there.
        for (from, to) in [(2, 3), (3, 2), (5, 1)] {
            let mut at = 0u64;
            while at < 1 << 32 {
                let (_, next) = array(from).visit(at as u32);
                if next < 1 << 32 && to >= from {
                    let (_, after) = array(to).visit(next as u32);
                    assert_eq!(after - next, 1 << (32 - to));
                }
                at = next;
            }
        }
    }
}
