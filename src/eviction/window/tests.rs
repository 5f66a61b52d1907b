use super::*;

#[test]
fn a_vote_moves_the_window_by_one_entry() {
    let mut sizer = WindowSizer::new(1000);
    assert_eq!(sizer.window, 10);
    for _ in 0..40 {
        sizer.widen(0.001);
    }
    assert_eq!(sizer.window, 50);
    for _ in 0..2000 {
        sizer.widen(0.001);
        sizer.check_invariants();
    }
    assert_eq!(sizer.window, 990);
    for _ in 0..3000 {
        sizer.narrow(0.001);
        sizer.check_invariants();
    }
    assert_eq!(sizer.window, 10);
}

#[test]
fn a_burst_against_a_long_trend_moves_nothing() {
    let mut sizer = WindowSizer::new(1000);
    for _ in 0..100 {
        for _ in 0..990 {
            sizer.narrow(0.001);
        }
        for _ in 0..21 {
            sizer.widen(0.001);
            assert_eq!(sizer.window, 10);
        }
    }
}

#[test]
fn any_maximum_has_a_window() {
    for (max, window, protected) in [(0, 1, 0), (1, 1, 0), (2, 1, 1), (99, 1, 98), (200, 2, 198)] {
        let sizer = WindowSizer::new(max);
        assert_eq!((sizer.window, sizer.for_protected()), (window, protected));
    }
    assert!(WindowSizer::new(u64::MAX).window > u64::MAX / 101);
}

#[test]
fn another_maximum_keeps_the_part() {
    let mut sizer = WindowSizer::new(1000);
    sizer.widen(0.24);
    assert_eq!((sizer.window, sizer.for_protected()), (250, 750));
    sizer.set_max(100);
    sizer.check_invariants();
    assert_eq!((sizer.window, sizer.for_protected()), (25, 75));
}
