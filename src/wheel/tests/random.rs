//! Random programs against the oracle.

use crate::hash::Dice;
use crate::wheel::oracle;

/// Each seed gives the same program on every machine; raise the count to search longer.
fn programs(seeds: std::ops::Range<u64>, len: usize) {
    for seed in seeds {
        let mut dice = Dice::new(seed);
        let program: Vec<u8> = (0..len).map(|_| dice.roll() as u8).collect();
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
