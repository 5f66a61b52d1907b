use super::super::Stats;
use super::*;
use std::sync::Barrier;

#[test]
fn no_count_is_lost_with_more_threads_than_stripes() {
    let counters = Counters::new();
    let threads = counters.stripes.len() + 20;
    let all_here = Barrier::new(threads);
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                all_here.wait();
                for _ in 0..1_000 {
                    counters.add(Count::Hits, 1);
                    counters.removed(RemovalCause::Size, 3);
                    counters.late_by(5);
                }
            });
        }
    });
    let stats = Stats::of(&counters, 0);
    let all = threads as u64 * 1_000;
    assert_eq!((stats.hits(), stats.misses()), (all, 0));
    assert_eq!(stats.removals(RemovalCause::Size), all);
    assert_eq!(stats.removed_weight(RemovalCause::Size), 3 * all);
    assert_eq!(counters.lateness().iter().sum::<u64>(), all);
}

#[test]
fn no_count_is_lost_while_numbers_pass_from_thread_to_thread() {
    /// Counts once more while its thread ends, after its number was returned.
    struct Last<'a>(&'a Counters);
    impl Drop for Last<'_> {
        fn drop(&mut self) {
            self.0.add(Count::Misses, 1);
        }
    }
    thread_local! {
        static LAST: std::cell::RefCell<Option<Last<'static>>> = const { std::cell::RefCell::new(None) };
    }
    static COUNTERS: std::sync::LazyLock<Counters> = std::sync::LazyLock::new(Counters::new);
    let counters: &'static Counters = &COUNTERS;
    let threads: Vec<_> = (0..8)
        .map(|_| {
            std::thread::spawn(move || {
                for _ in 0..100 {
                    std::thread::spawn(move || {
                        // Made before the thread draws its number, so it is destroyed after the
                        // number is returned.
                        LAST.with(|last| *last.borrow_mut() = Some(Last(counters)));
                        for _ in 0..100 {
                            counters.add(Count::Misses, 1);
                        }
                    })
                    .join()
                    .unwrap();
                }
            })
        })
        .collect();
    for thread in threads {
        thread.join().unwrap();
    }
    assert_eq!(Stats::of(counters, 0).misses(), 8 * 100 * 101);
}
