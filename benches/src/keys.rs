//! Key streams with fixed seeds, drawn before anything is timed.
//!
//! A key is the mixed number of its rank, so popular keys do not lie side by side in any table, and
//! distinct ranks give distinct keys.

use rand::{RngExt, SeedableRng, rngs::StdRng};
use rand_distr::{Distribution, Zipf};

/// The set that the small Zipf workloads draw from.
pub const SMALL: usize = 10_922;
/// The skew of every Zipf stream here.
pub const SKEW: f64 = 0.99;

/// The key of rank `rank`: a bijection on 64 bits.
#[inline]
pub fn key(rank: u64) -> u64 {
    let mut x = rank.wrapping_add(0x9E37_79B9_7F4A_7C15);
    x = (x ^ (x >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    x ^ (x >> 31)
}

/// The value that belongs to a key, so that every hit can be checked.
#[inline]
pub fn value(key: u64) -> u64 {
    !key
}

/// `len` ranks below `of`, Zipf with [`SKEW`], rank 0 the most popular. Each worker has its own
/// stream.
pub fn zipf_ranks(of: usize, len: usize, worker: usize) -> Vec<u32> {
    let zipf = Zipf::new(of as f64, SKEW).expect("the set is not empty and the skew is positive");
    let mut random = StdRng::seed_from_u64(0x5EED_0001 + worker as u64);
    (0..len)
        .map(|_| zipf.sample(&mut random) as u32 - 1)
        .collect()
}

/// Of all reads of a Zipf stream over `of` keys, the share that goes to the `top` most popular.
pub fn zipf_share(top: usize, of: usize) -> f64 {
    let harmonic = |count: usize| {
        (1..=count)
            .map(|rank| (rank as f64).powf(-SKEW))
            .sum::<f64>()
    };
    harmonic(top) / harmonic(of)
}

/// `len` ranks below `of`, all equally likely.
pub fn uniform_ranks(of: usize, len: usize, worker: usize) -> Vec<u32> {
    let mut random = StdRng::seed_from_u64(0x5EED_1001 + worker as u64);
    (0..len)
        .map(|_| random.random_range(0..of as u32))
        .collect()
}

/// The keys of some ranks.
pub fn keys_of(ranks: &[u32]) -> Vec<u64> {
    ranks.iter().map(|&rank| key(u64::from(rank))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn zipf_streams_are_skewed_in_range_and_repeatable() {
        let ranks = zipf_ranks(SMALL, 100_000, 0);
        assert_eq!(ranks, zipf_ranks(SMALL, 100_000, 0));
        assert_ne!(ranks, zipf_ranks(SMALL, 100_000, 1));
        assert!(ranks.iter().all(|&rank| (rank as usize) < SMALL));
        for top in [1, 100] {
            let drawn = ranks.iter().filter(|&&rank| (rank as usize) < top).count() as f64
                / ranks.len() as f64;
            let expected = zipf_share(top, SMALL);
            assert!(
                (drawn - expected).abs() < 0.005,
                "the top {top}: {drawn}, expected {expected}"
            );
        }
    }

    #[test]
    fn uniform_streams_reach_all_of_the_range() {
        let mut seen = [false; 100];
        for rank in uniform_ranks(100, 10_000, 3) {
            seen[rank as usize] = true;
        }
        assert!(seen.iter().all(|&seen| seen));
    }
}
