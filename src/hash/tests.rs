use super::*;

#[test]
fn mix_bits_is_a_bijection_on_what_it_is_given() {
    let mixed: std::collections::HashSet<_> = (0..100_000).map(mix_bits).collect();
    assert_eq!(mixed.len(), 100_000);
}

#[test]
fn only_known_hashers_are_taken_as_they_are() {
    assert!(fills_all_bits::<RandomState>() && fills_all_bits::<ahash::RandomState>());
    assert!(!fills_all_bits::<
        std::hash::BuildHasherDefault<ahash::AHasher>,
    >());
}

#[test]
fn small_numbers_reach_the_upper_bits() {
    let tags: std::collections::HashSet<_> = (0..1000).map(|n| mix_bits(n) >> 48).collect();
    assert!(tags.len() > 900, "{} different tags", tags.len());
}
