use std::sync::Arc;

use super::*;

const SECOND: Duration = Duration::from_secs(1);
const LEFT: Option<Duration> = Some(Duration::from_millis(250));

/// The answers to create, update and read, and whether the policy is called on reads and
/// updates.
fn answers(policy: &dyn Expiry<u32, u64>) -> ([Option<Duration>; 3], [bool; 2]) {
    let asks = policy.__asks();
    let now = Instant::now();
    (
        [
            policy.expire_after_create(&1, &9, now),
            policy.expire_after_update(&1, &9, now, LEFT),
            policy.expire_after_read(&1, &9, now, LEFT, now),
        ],
        [asks.reads, asks.updates != Updates::Leave],
    )
}

fn seconds(_: &u32, seconds: &u64) -> Option<Duration> {
    Some(Duration::from_secs(*seconds))
}

#[test]
fn each_policy_is_called_for_what_its_name_says() {
    let nine = Some(9 * SECOND);
    assert_eq!(
        answers(&creating(seconds)),
        ([nine, LEFT, LEFT], [false, false])
    );
    assert_eq!(
        answers(&writing(seconds)),
        ([nine, nine, LEFT], [false, true])
    );
    assert_eq!(
        answers(&accessing(seconds)),
        ([nine, nine, nine], [true, true])
    );
    assert_eq!(answers(&never()), ([None, LEFT, LEFT], [false, false]));
    let past = until(|_: &u32, _: &u64| Instant::now().checked_sub(SECOND));
    let due = Some(Duration::ZERO);
    assert_eq!(answers(&past), ([due, due, LEFT], [false, true]));
    assert_eq!(
        answers(&writes_only(accessing(seconds))),
        ([nine, nine, LEFT], [false, true])
    );
}

#[test]
fn the_defaults_keep_the_deadline_and_are_called_for_every_event() {
    struct Defaults;
    impl Expiry<u32, u64> for Defaults {}
    assert_eq!(answers(&Defaults), ([None, LEFT, LEFT], [true, true]));
}

#[test]
fn pointers_forward_every_method() {
    for policy in [writing(seconds), writing(seconds)] {
        assert_eq!(answers(&Box::new(Arc::new(policy))), answers(&policy));
    }
    let shared: Arc<dyn Expiry<u32, u64>> = Arc::new(accessing(seconds));
    assert_eq!(answers(&Arc::clone(&shared)), answers(&*shared));
    let boxed: Box<dyn Expiry<u32, u64>> = Box::new(writes_only(jittered(shared, 0.0)));
    assert_eq!(answers(&boxed), answers(&writing(seconds)));
}

#[test]
fn jitter_shortens_by_at_most_the_fraction_and_spreads() {
    let policy = jittered(creating(|_: &u32, _: &u64| Some(SECOND)), 0.25);
    let now = Instant::now();
    let lifetimes: Vec<_> = (0..1000)
        .map(|_| policy.expire_after_create(&1, &1, now).unwrap())
        .collect();
    assert!(
        lifetimes
            .iter()
            .all(|lifetime| (SECOND * 3 / 4..=SECOND).contains(lifetime))
    );
    let (least, most) = (
        lifetimes.iter().min().unwrap(),
        lifetimes.iter().max().unwrap(),
    );
    // Each fails by chance once in 10^22 runs.
    assert!(*least < SECOND * 61 / 80, "{least:?}");
    assert!(*most > SECOND * 79 / 80, "{most:?}");
}

#[test]
fn jitter_leaves_unchanged_deadlines_and_special_values_alone() {
    assert_eq!(answers(&jittered(never(), 1.0)), answers(&never()));
    assert_eq!(
        answers(&jittered(accessing(|_: &u32, _: &u64| LEFT), 1.0)).0[1..],
        [LEFT, LEFT]
    );
    assert_eq!(
        answers(&jittered(
            accessing(|_: &u32, _: &u64| Some(Duration::ZERO)),
            1.0
        ))
        .0,
        [Some(Duration::ZERO); 3]
    );
    assert_eq!(
        answers(&jittered(
            accessing(|_: &u32, _: &u64| Some(Duration::MAX)),
            0.0
        ))
        .0,
        [Some(Duration::MAX); 3]
    );
    let longest = Duration::from_nanos(MAX_LIFETIME_NANOS);
    let huge = jittered(accessing(|_: &u32, _: &u64| Some(Duration::MAX)), 0.5);
    assert!(
        answers(&huge)
            .0
            .iter()
            .all(|lifetime| (longest / 2..=longest).contains(&lifetime.unwrap()))
    );
}

#[test]
fn a_fraction_out_of_range_is_refused() {
    for fraction in [-0.1, 1.1, f64::NAN, f64::INFINITY] {
        let refused = std::panic::catch_unwind(|| jittered(never(), fraction)).unwrap_err();
        let message = refused.downcast_ref::<String>().unwrap();
        assert!(message.contains(&fraction.to_string()), "{message}");
    }
}
