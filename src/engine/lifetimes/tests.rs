use super::*;

const SECOND: u64 = 1_000_000_000;

#[test]
fn the_earliest_deadline_counts() {
    let limits = Limits {
        time_to_live: Some(Duration::from_secs(10)),
        time_to_idle: Some(Duration::from_secs(3)),
        load_timeout: None,
    };
    let both = Lifetimes::<u8, u8>::new(None, limits);
    assert_eq!(both.wanted(NEVER, || 0, 0), 3 * SECOND);
    assert_eq!(both.wanted(2 * SECOND, || 0, 0), 2 * SECOND);
    assert_eq!(both.wanted(NEVER, || 0, 8 * SECOND), 10 * SECOND);
    let none = Lifetimes::<u8, u8>::new(None, Limits::default());
    assert_eq!(none.wanted(5, || 0, 0), 5);
    assert_eq!(none.wanted(NEVER, || 0, 0), NEVER);
}
