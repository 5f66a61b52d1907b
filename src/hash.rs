//! Words that look random: the default hasher, the mixing of hashes, and pseudo-random numbers.
//!
//! The type of the hasher is opaque: this is the only file that names ahash.

use crate::identity::id_of;
use std::any::TypeId;
use std::collections::HashMap;
use std::hash::{BuildHasher, BuildHasherDefault, Hasher};

/// The hasher of a cache whose builder sets no other: fast, randomly keyed, resistant to flooding.
///
/// Each `RandomState` has its own keys, so two caches hash differently. The algorithm may change
/// with any release.
///
/// ```
/// use std::hash::BuildHasher;
/// use wheelhouse::RandomState;
///
/// let state = RandomState::new();
/// assert_eq!(state.hash_one("ada"), state.hash_one("ada"));
/// assert_ne!(state.hash_one("ada"), RandomState::new().hash_one("ada"));
/// ```
#[derive(Clone, Debug, Default)]
pub struct RandomState(ahash::RandomState);

/// A map by numbers that the crate gives out, or by addresses: no user chooses the keys.
pub(crate) type NumberMap<N, T> = HashMap<N, T, BuildHasherDefault<ahash::AHasher>>;

impl RandomState {
    /// Makes a state with fresh random keys.
    ///
    /// ```
    /// let cache: wheelhouse::Cache<u64, u64> =
    ///     wheelhouse::Cache::builder().hasher(wheelhouse::RandomState::new()).build();
    /// cache.insert(1, 2);
    /// assert_eq!(cache.get(&1), Some(2));
    /// ```
    pub fn new() -> Self {
        Self(ahash::RandomState::new())
    }
}

impl BuildHasher for RandomState {
    type Hasher = DefaultHasher;

    #[inline]
    fn build_hasher(&self) -> DefaultHasher {
        DefaultHasher(self.0.build_hasher())
    }
}

/// The hasher that [`RandomState`] builds.
///
/// ```
/// use std::hash::{BuildHasher, Hasher};
/// use wheelhouse::{DefaultHasher, RandomState};
///
/// let state = RandomState::new();
/// let hash = |text: &str| {
///     let mut hasher: DefaultHasher = state.build_hasher();
///     hasher.write(text.as_bytes());
///     hasher.finish()
/// };
/// assert_eq!(hash("ada"), hash("ada"));
/// assert_ne!(hash("ada"), hash("bob"));
/// ```
#[derive(Clone, Debug)]
pub struct DefaultHasher(ahash::AHasher);

macro_rules! forward {
    ($($write:ident($type:ty);)*) => {
        $(#[inline]
        fn $write(&mut self, value: $type) {
            self.0.$write(value);
        })*
    };
}

impl Hasher for DefaultHasher {
    #[inline]
    fn finish(&self) -> u64 {
        self.0.finish()
    }

    // Signed numbers are written as unsigned ones.
    forward! {
        write(&[u8]);
        write_u8(u8);
        write_u16(u16);
        write_u32(u32);
        write_u64(u64);
        write_u128(u128);
        write_usize(usize);
    }
}

/// Whether the hashes of this hasher are known to be evenly distributed in all 64 bits, so that
/// they need no mixing.
// A constant of each type, also to the compiler.
#[inline]
pub(crate) fn fills_all_bits<S>() -> bool {
    let known = [
        TypeId::of::<RandomState>(),
        TypeId::of::<ahash::RandomState>(),
        TypeId::of::<std::hash::RandomState>(),
    ];
    known.contains(&id_of::<S>())
}

/// Mixes a hash so that all 64 bits depend on it. The map takes shard, group and tag from different
/// bits, some of which a user's hasher may leave constant.
#[inline]
pub(crate) fn mix_bits(hash: u64) -> u64 {
    // The finalizer of a multiply-xorshift hash; the constant is 2^64 divided by the golden ratio,
    // made odd.
    let mixed = (hash ^ (hash >> 32)).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    mixed ^ (mixed >> 29)
}

/// The next number of the pseudo-random generator SplitMix64: each of the 2^64 values once before
/// any comes again.
#[inline]
pub(crate) fn next_random(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9E37_79B9_7F4A_7C15);
    let mut mixed = *state;
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    mixed ^ (mixed >> 31)
}

/// The numbers of a unit test: a seed gives the same ones everywhere.
#[cfg(all(test, not(wheelhouse_loom)))]
#[derive(Clone, Debug)]
pub(crate) struct Dice(u64);

#[cfg(all(test, not(wheelhouse_loom)))]
impl Dice {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub(crate) fn roll(&mut self) -> u64 {
        next_random(&mut self.0)
    }

    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        self.roll() % bound
    }

    pub(crate) fn once_in(&mut self, times: u64) -> bool {
        self.below(times) == 0
    }
}

#[cfg(test)]
mod tests;
