use super::*;

#[test]
fn indexes_of_ended_threads_are_used_again() {
    let mine = index();
    assert_eq!(mine, index());
    // There are at most as many indexes as threads that were alive at the same time. So threads
    // that run one after the other soon draw a index again, whatever else the process does.
    let mut drawn = std::collections::HashSet::new();
    let mut threads = (0..10_000).map(|_| std::thread::spawn(index).join().unwrap());
    assert!(
        threads.any(|index| !drawn.insert(index)),
        "10,000 threads one after another drew a index each"
    );
}

#[test]
fn live_threads_have_different_indexes() {
    let barrier = std::sync::Barrier::new(8);
    let mut indexes: Vec<usize> = std::thread::scope(|s| {
        let threads: Vec<_> = (0..8)
            .map(|_| {
                s.spawn(|| {
                    let n = index();
                    barrier.wait();
                    n
                })
            })
            .collect();
        threads.into_iter().map(|t| t.join().unwrap()).collect()
    });
    indexes.sort_unstable();
    indexes.dedup();
    assert_eq!(indexes.len(), 8);
}

#[test]
fn stripes_is_a_power_of_two() {
    for per_core in 1..10 {
        assert!(stripes(per_core).is_power_of_two());
    }
}
