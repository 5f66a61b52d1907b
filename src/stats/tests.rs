use super::*;

#[test]
fn debug_shows_counts_by_name_and_no_histogram() {
    let counters = Counters::new();
    counters.add(Count::Hits, 1);
    counters.removed(RemovalCause::Size, 7);
    counters.late_by(5);
    assert_eq!(
        format!("{:?}", Stats::of(&counters, 0)),
        "Stats { hits: 1, misses: 0, insertions: 0, updates: 0, maintenance_passes: 0, \
         loads: 0, load_failures: 0, loads_discarded: 0, load_waits: 0, reloads: 0, \
         reload_failures: 0, remembered_failures: 0, listener_panics: 0, \
         removals(expired): 0, removals(explicit): 0, removals(replaced): 0, \
         removals(size): 1, removed_weight(expired): 0, removed_weight(explicit): 0, \
         removed_weight(replaced): 0, removed_weight(size): 7, \
         maintenance_time: 0ns, load_time: 0ns, expired_by_maintenance: 1, \
         median_lateness: Some(5ns), most_lateness: Some(5ns) }"
    );
}

#[test]
fn a_difference_is_taken_count_by_count_and_never_below_zero() {
    let counters = Counters::new();
    counters.add(Count::Hits, 1);
    counters.removed(RemovalCause::Expired, 7);
    counters.late_by(100);
    counters.add(Count::Passes, 1);
    counters.add(Count::PassNanos, 30);
    let earlier = Stats::of(&counters, 1);
    counters.add(Count::Hits, 1);
    counters.add(Count::Misses, 1);
    counters.add(Count::Insertions, 1);
    counters.add(Count::Updates, 1);
    counters.removed(RemovalCause::Expired, 5);
    counters.removed(RemovalCause::Explicit, 9);
    counters.late_by(5);
    counters.add(Count::Passes, 1);
    counters.add(Count::PassNanos, 12);
    let later = Stats::of(&counters, 3);
    let between = later.clone() - earlier.clone();
    assert_eq!((between.hits(), between.misses()), (1, 1));
    assert_eq!((between.insertions(), between.updates()), (1, 1));
    assert_eq!(between.removals(RemovalCause::Expired), 1);
    assert_eq!(between.removals(RemovalCause::Explicit), 1);
    assert_eq!(between.removed_weight(RemovalCause::Expired), 5);
    assert_eq!(between.removed_weight(RemovalCause::Explicit), 9);
    assert_eq!(
        between.evicted_weight(),
        5,
        "explicit removals are no evictions"
    );
    assert_eq!(between.listener_panics(), 2);
    assert_eq!(between.maintenance_passes(), 1);
    assert_eq!(between.maintenance_time(), Duration::from_nanos(12));
    assert_eq!(between.expiry_lateness(1.0), Some(Duration::from_nanos(5)));
    let backwards = earlier - later.clone();
    assert_eq!(
        (backwards.hits(), backwards.expiry_lateness(1.0)),
        (0, None)
    );
    assert_eq!(later.clone() - Stats::default(), later);
    assert_eq!(Stats::default() - later, Stats::default());
}

#[test]
fn the_ratio_of_nothing_is_one() {
    assert!((Stats::default().hit_ratio() - 1.0).abs() < f64::EPSILON);
}
