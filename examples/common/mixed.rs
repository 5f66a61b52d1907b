//! Numbers that look random and are the same in every run.

/// A stable 64-bit mix of `n` (the finaliser of SplitMix64): a small change of `n` changes half of
/// the bits.
pub(crate) fn mixed(n: u64) -> u64 {
    let mut z = n.wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// A stable number in `0.0..1.0` drawn for `n` and a `purpose`, so that one `n` gives independent
/// draws.
pub(crate) fn share(n: u64, purpose: u64) -> f64 {
    (mixed(n ^ mixed(purpose)) >> 11) as f64 / (1u64 << 53) as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_are_even_and_stable() {
        let mean = (0..10_000).map(|n| share(n, 1)).sum::<f64>() / 10_000.0;
        assert!((mean - 0.5).abs() < 0.01, "mean {mean}");
        assert_eq!(share(7, 1).to_bits(), share(7, 1).to_bits());
        assert_ne!(share(7, 1).to_bits(), share(7, 2).to_bits());
    }
}
