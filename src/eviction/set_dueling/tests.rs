use super::super::ghosts::mix_bits_twice;
use super::*;

/// Keys that fall into slots of their own.
fn keys() -> impl Iterator<Item = u64> {
    let mut used = std::collections::HashSet::new();
    (0..)
        .map(mix_bits_twice)
        .filter(move |&hash| used.insert(slot_of(hash)))
}

fn chance(duels: &mut SetDueling, class: Class) -> f64 {
    (0..100_000).filter(|_| duels.grant(class)).count() as f64 / 100_000.0
}

#[test]
fn the_slots_fit_the_first_level_cache() {
    assert_eq!(size_of::<Slot>(), 12);
}

#[test]
fn the_key_that_is_used_first_wins() {
    let mut duels = SetDueling::new(1);
    let mut keys = keys();
    let (a, b) = (keys.next().unwrap(), keys.next().unwrap());
    let start = duels.score[0];
    duels.open(a, b, Class::Recent, 0, 0);
    duels.used(a, false);
    assert_eq!(duels.score[0], start + 1);
    duels.used(b, false);
    assert_eq!(duels.score[0], start + 1, "a duel is decided once");
    duels.open(a, b, Class::Recent, 0, 0);
    duels.used(b, false);
    assert_eq!(duels.score[0], start);
    duels.used(a, false);
    assert_eq!(duels.score[0], start);
}

#[test]
fn one_incumbent_meets_all_its_candidates() {
    let mut duels = SetDueling::new(1);
    let mut keys = keys();
    let incumbent = keys.next().unwrap();
    let candidates: Vec<u64> = keys.take(10).collect();
    for &candidate in &candidates {
        duels.open(candidate, incumbent, Class::Recent, 0, 0);
    }
    duels.used(candidates[3], true);
    duels.used(incumbent, false);
    assert_eq!(duels.score[0], 16 + 1 - 9);
}

#[test]
fn an_unknown_key_wins_by_a_miss_only() {
    let mut duels = SetDueling::new(1);
    let mut keys = keys();
    let (a, b, c) = (
        keys.next().unwrap(),
        keys.next().unwrap(),
        keys.next().unwrap(),
    );
    duels.score[2] = 0;
    duels.open(a, c, Class::Unknown, 0, 0);
    duels.open(b, c, Class::Unknown, 0, 0);
    duels.used(a, false);
    assert_eq!(duels.score[2], 0);
    duels.used(b, true);
    assert_eq!(duels.score[2], 1);
}

#[test]
fn the_score_sets_the_chance() {
    let mut duels = SetDueling::new(42);
    for (class, score, wanted) in [
        (Class::Recent, 32, 1.0),
        (Class::Recent, 16, 0.75),
        (Class::Late, 0, 0.5),
        (Class::Late, -32, 0.0),
        (Class::Unknown, 32, 0.0625),
        (Class::Unknown, 0, 0.0),
        (Class::Unknown, -32, 0.0),
    ] {
        duels.score[class as usize] = score;
        let met = chance(&mut duels, class);
        assert!((met - wanted).abs() < 0.01, "{class:?} at {score}: {met}");
    }
}

#[test]
fn duels_open_no_faster_than_their_share_of_a_turnover() {
    let mut duels = SetDueling::new(1);
    let resident = 256 * 100;
    let incumbent = mix_bits_twice(u64::MAX);
    let mut opened = 0;
    for key in 0..resident as u64 {
        let due = duels.due[0];
        duels.open(mix_bits_twice(key), incumbent, Class::Recent, key, resident);
        opened += u64::from(duels.due[0] != due);
    }
    assert!(
        (100..=256).contains(&opened),
        "{opened} duels in a turnover"
    );
}
