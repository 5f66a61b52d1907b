use super::*;

#[test]
fn the_buckets_cover_everything_in_order_without_a_gap() {
    let mut next = 0;
    for bucket in 0..BUCKETS {
        let last = upper_edge(bucket);
        assert_eq!((bucket_of(next), bucket_of(last)), (bucket, bucket));
        assert!(last - next <= next / PARTS, "{next}..={last} is too wide");
        next = last.wrapping_add(1);
    }
    assert_eq!(next, 0, "the last bucket ends at the longest duration");
}

#[test]
fn quantiles_are_upper_edges_of_the_right_rank() {
    let mut counts = vec![0; BUCKETS];
    assert_eq!(quantile(&counts, 0.5), None);
    for nanos in [0, 1, 2, 3, 4, 5, 6, 7, 100, 1_000_000] {
        counts[bucket_of(nanos)] += 1;
    }
    let at = |q: f64| quantile(&counts, q).unwrap();
    assert_eq!([at(0.0), at(0.1), at(0.11), at(0.8)], [0, 0, 1, 7]);
    assert!((100..=112).contains(&at(0.9)), "{}", at(0.9));
    assert!((1_000_000..=1_125_000).contains(&at(1.0)), "{}", at(1.0));
    assert_eq!((at(-1.0), at(2.0)), (at(0.0), at(1.0)));
    assert_eq!(quantile(&counts, f64::NAN), None);
}
