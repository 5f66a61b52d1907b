use super::super::Counters;
use super::*;
use std::collections::HashSet;

#[test]
fn every_count_is_listed_once() {
    let mut stats = Stats::default();
    for (number, count) in (1..).zip(&mut stats.counts) {
        *count = number;
    }
    let all = stats.counts.len();
    let mut listed: Vec<u64> = (&stats)
        .into_iter()
        .filter_map(|stat| match stat.value {
            StatValue::Count(count) => Some(count),
            StatValue::Time(time) => Some(time.as_nanos() as u64),
            StatValue::Buckets { .. } => None,
        })
        .collect();
    listed.sort_unstable();
    assert_eq!(listed, (1..=all as u64).collect::<Vec<_>>());
    let names: HashSet<_> = stats.iter().map(|stat| (stat.name, stat.cause)).collect();
    assert_eq!(names.len(), all + 1, "no name stands twice");
}

#[test]
fn buckets_count_what_is_shorter_than_their_edges() {
    let counters = Counters::new();
    for nanos in [0, (1 << 16) - 1, 1 << 16, 1 << 30, u64::MAX] {
        counters.late_by(nanos);
    }
    let stats = Stats::of(&counters, 0);
    let Some(StatValue::Buckets { below, count }) = stats.iter().last().map(|stat| stat.value)
    else {
        panic!("the lateness comes last");
    };
    assert_eq!((below.len(), count), (13, 5));
    let at = |edge| {
        let edge = Duration::from_nanos(1_u64 << edge);
        below.iter().find(|bucket| bucket.0 == edge).unwrap().1
    };
    assert_eq!([at(16), at(18), at(30), at(32), at(40)], [2, 3, 3, 4, 4]);
    assert!(below.is_sorted());
    // Nothing is recorded without `record_stats`, and the edges are the same.
    let Some(StatValue::Buckets { below: none, count }) =
        Stats::default().iter().last().map(|stat| stat.value)
    else {
        panic!("the lateness comes last");
    };
    assert!(none.iter().zip(&below).all(|(a, b)| a.0 == b.0 && a.1 == 0));
    assert_eq!((none.len(), count), (13, 0));
}
