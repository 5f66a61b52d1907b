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

#[inline]
pub fn entry(rank: u64) -> (u64, u64) {
    (key(rank), value(key(rank)))
}

pub fn entries(count: usize) -> impl Iterator<Item = (u64, u64)> + Clone {
    (0..count as u64).map(entry)
}

/// `len` ranks below `of`, Zipf with [`SKEW`], rank 0 the most popular. Each worker has its own
/// stream.
pub fn zipf_ranks(of: usize, len: usize, worker: usize) -> Vec<u32> {
    let zipf = Zipf::new(of as f64, SKEW).expect("the set is not empty and the skew is positive");
    let mut random = StdRng::seed_from_u64(0x5EED_0001 + worker as u64);
    let draw = |_| zipf.sample(&mut random) as u32 - 1;
    (0..len).map(draw).collect()
}

/// Of all reads of a Zipf stream over `of` keys, the share that goes to the `top` most popular.
pub fn zipf_share(top: usize, of: usize) -> f64 {
    let share = |rank| f64::from(rank).powf(-SKEW);
    let harmonic = |count: usize| (1..=count as u32).map(share).sum::<f64>();
    harmonic(top) / harmonic(of)
}

/// `len` ranks below `of`, all equally likely.
pub fn uniform_ranks(of: usize, len: usize, worker: usize) -> Vec<u32> {
    let mut random = StdRng::seed_from_u64(0x5EED_1001 + worker as u64);
    let draw = |_| random.random_range(0..of as u32);
    (0..len).map(draw).collect()
}

pub fn keys_of(ranks: &[u32]) -> Vec<u64> {
    ranks.iter().map(|&rank| key(rank.into())).collect()
}

/// The keys of [`zipf_ranks`], for each of some workers.
pub fn zipf_streams(of: usize, len: usize, workers: usize) -> Vec<Vec<u64>> {
    let stream = |worker| keys_of(&zipf_ranks(of, len, worker));
    (0..workers).map(stream).collect()
}

/// The keys of [`zipf_ranks`] over the small set, for one worker.
pub fn small_stream(len: usize) -> Vec<u64> {
    keys_of(&zipf_ranks(SMALL, len, 0))
}

/// `len` new keys of a worker, from its number `first` on; no two workers share any.
pub fn new_keys(worker: usize, first: usize, len: usize) -> impl Iterator<Item = u64> + Clone {
    (first..first + len).map(move |number| key(((worker as u64) << 32) + number as u64))
}
