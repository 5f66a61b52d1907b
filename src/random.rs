//! Pseudo-random numbers: the generator SplitMix64.

/// The next number, each of the 2^64 values once before any comes again.
#[inline]
pub(crate) fn next(state: &mut u64) -> u64 {
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
        next(&mut self.0)
    }

    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        self.roll() % bound
    }

    pub(crate) fn once_in(&mut self, times: u64) -> bool {
        self.below(times) == 0
    }
}
