//! Random programs against the oracle.

use crate::wheel::oracle;

/// A generator of random numbers (SplitMix64) that gives the same sequence everywhere.
pub(super) struct Random(pub(super) u64);

impl Random {
    pub(super) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }

    fn program(&mut self, len: usize) -> Vec<u8> {
        (0..len).map(|_| self.next() as u8).collect()
    }
}

/// Each seed gives the same program on every machine; raise the count to search longer.
fn programs(seeds: std::ops::Range<u64>, len: usize) {
    for seed in seeds {
        let program = Random(seed).program(len);
        let ran = std::panic::catch_unwind(|| oracle::run(&program));
        assert!(ran.is_ok_and(|operations| operations > 0), "seed {seed}");
    }
}

#[test]
fn many_short_programs_agree_with_the_oracle() {
    programs(0..300, 300);
}

#[test]
fn long_programs_agree_with_the_oracle() {
    programs(1_000_000..1_000_006, 4_000);
}
