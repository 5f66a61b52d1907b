use super::*;

const SECOND: u64 = 1_000_000_000;

#[test]
fn the_earliest_deadline_counts() {
    let (live, idle) = (Duration::from_secs(10), Duration::from_secs(3));
    let both = Lifetimes::<u8, u8>::new(None, Some(live), Some(idle));
    assert_eq!(both.wanted(NEVER, || 0, 0), 3 * SECOND);
    assert_eq!(both.wanted(2 * SECOND, || 0, 0), 2 * SECOND);
    assert_eq!(both.wanted(NEVER, || 0, 8 * SECOND), 10 * SECOND);
    let none = Lifetimes::<u8, u8>::new(None, None, None);
    assert_eq!(none.wanted(5, || 0, 0), 5);
    assert_eq!(none.wanted(NEVER, || 0, 0), NEVER);
}
