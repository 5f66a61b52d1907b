use super::*;

fn parts_of(builder: &CacheBuilder<u32, u32>, cores: usize) -> usize {
    parts(&builder.settings, cores)
}

#[test]
fn the_number_of_parts_follows_from_the_bound_and_the_cores() {
    let bounded = CacheBuilder::new;
    for (max, cores, expected) in [
        (100, 64, 1),
        (3_999, 64, 1),
        (4_000, 64, 2),
        (31_999, 64, 8),
        (64_000, 64, 32),
        (u64::MAX, 64, 32),
        (u64::MAX, 1_000, 32),
        (u64::MAX, 1, 1),
        (u64::MAX, 2, 1),
        (u64::MAX, 3, 1),
        (u64::MAX, 4, 2),
        (u64::MAX, 31, 8),
    ] {
        assert_eq!(
            parts_of(&bounded(max), cores),
            expected,
            "{max}, {cores} cores"
        );
    }
    assert_eq!(parts_of(&Cache::builder(), 64), 32);
}

#[test]
fn one_part_where_the_order_or_the_number_of_entries_says_so() {
    let large = || CacheBuilder::<u32, u32>::new(1_000_000);
    let lru = large().eviction_policy(EvictionPolicy::Lru);
    assert_eq!(parts_of(&lru, 64), 1);
    let told = |delivery| large().removal_listener(|_, _, _| ()).delivery(delivery);
    assert_eq!(parts_of(&told(Delivery::Caller), 64), 1);
    assert_eq!(parts_of(&told(Delivery::Background), 64), 32);
    assert_eq!(parts_of(&large().ticker(crate::ManualTicker::new()), 64), 1);
    let weighed = large().weigher(|_, _| 10_000);
    assert_eq!(parts_of(&weighed, 64), 1);
    assert_eq!(parts_of(&weighed.initial_capacity(8_000), 64), 4);
}

#[test]
fn an_initial_capacity_is_not_more_than_the_shards_hold() {
    let one_shard = CacheBuilder::<u32, u32>::new(64);
    let most = MOST_INITIAL.min(MOST_PER_SHARD);
    let refused = one_shard.initial_capacity(most as usize + 1).try_build();
    let message = refused.expect_err("it is one too many").to_string();
    assert!(
        message.ends_with(&format!("must be at most {most}")),
        "{message}"
    );
}

#[test]
fn a_forced_number_holds_on_each_machine() {
    for (forced, parts) in [(0, 1), (1, 1), (3, 4), (16, 16), (100, 32)] {
        let cache: Cache<u32, u32> = CacheBuilder::new(10).parts(forced).build();
        assert_eq!(cache.engine().parts(), parts, "{forced}");
    }
}
