//! Pool 1, 2, 3 and 5, as assertions.
//!
//! # The bound of the recycled slots (`Pool::has_few_recycled`)
//!
//! If it held, it holds again after `n` slots have come and `2n` were returned to their regions,
//! given `l` recycled slots of `u` that are not free. 2(l - n) <= u - 2n follows from 2l <= u.
//! (l - n)^2 <= 32 (u - 2n) follows from l^2 <= 32 u if l is 64 or more, since n(2l - n) >= 64 n;
//! if l is less, from the first. One more recycled slot taken away does not change it:
//! 2(l - 1) <= u - 1, and (l - 1)^2 <= 32 (u - 1) in the same two ways.

#![allow(unsafe_code)]

use super::{Next, Pool, Recycled, next};
use std::collections::HashSet;
use std::ptr::NonNull;

impl Pool {
    /// The number of slots of a chain, each of which is in no other place: `seen` has none of them
    /// before, and all afterwards. The caller holds the owner's lock.
    fn walk(mut at: Next, seen: &mut HashSet<NonNull<u8>>) -> usize {
        let mut count = 0;
        while let Some(slot) = NonNull::new(at) {
            assert!(seen.insert(slot), "a slot that is free twice (pool 1)");
            // SAFETY: pool 1: the chain's slots hold its links.
            at = unsafe { next(slot) };
            count += 1;
        }
        count
    }

    /// Asserts pool 1, 2, 3 and 5.
    pub(in crate::node) fn check_invariants(&self, recycled: &Recycled) {
        let left = { recycled.left } as usize;
        let taken = self.taking.len() - left;
        assert!(left == 0 || { recycled.next } == self.taking[taken..].as_ptr());
        let count = self.recycled(recycled);
        assert!(self.has_few_recycled(recycled), "{count} recycled slots");
        let mut seen = HashSet::new();
        for &slot in self.taking[taken..].iter().chain(&self.returned) {
            assert!(seen.insert(slot), "a slot that is recycled twice (pool 1)");
        }
        let mut named = vec![0; self.regions.len()];
        for &number in &self.partial {
            named[number as usize] += 1;
        }
        let (mut slots, mut used) = (0, 0);
        for (number, region) in self.regions.iter().enumerate() {
            let Some(region) = region else { continue };
            let all = region.chunks * self.shape.slots;
            let handed_out = region.fresh_chunk * self.shape.slots + region.fresh;
            let free = all - handed_out + Self::walk(region.free, &mut seen);
            assert_eq!(region.used + free, all, "slots of region {number}");
            assert_eq!(
                named[number],
                usize::from(free > 0),
                "region {number} in `partial` (pool 3)"
            );
            slots += all;
            used += region.used;
        }
        assert_eq!((slots, used), (self.slots, self.used));
    }
}
