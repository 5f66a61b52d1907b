use super::*;

const SECOND: u64 = 1_000_000_000;

/// Moments around every place where the arithmetic could go wrong.
const MOMENTS: [u64; 9] = [
    0,
    1,
    SECOND,
    i64::MAX as u64,
    1 << 63,
    NEVER - SECOND,
    NEVER,
    u64::MAX - 1,
    u64::MAX,
];

#[test]
fn due_at_exactly_the_deadline_from_any_origin() {
    for now in MOMENTS {
        let deadline = deadline_after(now, Duration::from_nanos(SECOND + 1));
        assert!(!is_due(now, deadline));
        assert!(!is_due(deadline.wrapping_sub(1), deadline));
        assert!(is_due(deadline, deadline));
        assert!(is_due(deadline.wrapping_add(MAX_LIFETIME_NANOS), deadline));
        assert!(
            !is_due(now.wrapping_sub(MAX_LIFETIME_NANOS), deadline),
            "time ran backwards"
        );
    }
}

#[test]
fn never_is_not_due_and_has_no_time_left() {
    for now in MOMENTS {
        assert!(!is_due(now, NEVER));
        assert_eq!(time_left(now, NEVER), None);
        assert_eq!(deadline_in(now, None), NEVER);
    }
}

#[test]
fn a_lifetime_of_zero_is_due_at_once() {
    for now in MOMENTS {
        let deadline = deadline_after(now, Duration::ZERO);
        assert!(is_due(now, deadline));
        assert_eq!(time_left(now, deadline), Some(Duration::ZERO));
    }
}

#[test]
fn a_huge_lifetime_counts_as_the_longest() {
    for now in MOMENTS {
        let longest = deadline_after(now, Duration::from_nanos(MAX_LIFETIME_NANOS));
        assert_eq!(deadline_after(now, Duration::MAX), longest);
        assert_eq!(
            deadline_in(now, Some(Duration::from_nanos(u64::MAX))),
            longest
        );
        assert_eq!(
            time_left(now, longest),
            Some(Duration::from_nanos(MAX_LIFETIME_NANOS))
        );
    }
    assert_eq!(saturating_nanos(Duration::MAX), u64::MAX);
    assert_eq!(saturating_nanos(Duration::from_nanos(u64::MAX)), u64::MAX);
}

#[test]
fn a_deadline_steps_over_the_reserved_value() {
    let second = Duration::from_nanos(SECOND);
    assert_eq!(deadline_after(NEVER - SECOND, second), NEVER - 1);
    assert_eq!(deadline_after(NEVER, Duration::ZERO), NEVER - 1);
}

#[test]
fn an_entry_keeps_its_bucket_if_its_deadline_moves_later() {
    for now in MOMENTS {
        let soon = deadline_after(now, Duration::from_secs(1));
        let late = deadline_after(now, Duration::MAX);
        for (from, to, keeps) in [
            (soon, soon, true),
            (soon, late, true),
            (late, soon, false),
            (soon, NEVER, false),
            (NEVER, soon, false),
            (NEVER, NEVER, true),
        ] {
            assert_eq!(keeps_bucket(from, to), keeps, "{from} to {to} at {now}");
        }
    }
}

#[test]
fn the_earlier_deadline_wins_across_the_wrap() {
    for now in MOMENTS {
        let past = deadline_after(now.wrapping_sub(2 * SECOND), Duration::from_secs(1));
        let soon = deadline_after(now, Duration::from_secs(1));
        let late = deadline_after(now, Duration::MAX);
        let sorted = [past, soon, late, NEVER];
        for (i, &a) in sorted.iter().enumerate() {
            for (j, &b) in sorted.iter().enumerate() {
                assert_eq!(is_before(now, a, b), i < j, "{i} {j} at {now}");
                assert_eq!(earlier(now, a, b), sorted[i.min(j)], "{i} {j} at {now}");
            }
        }
    }
}
