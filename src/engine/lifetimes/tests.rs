use super::*;
use crate::{Cache, Expiry, expiry};
use std::sync::Arc;

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

#[test]
fn a_policy_that_inherits_reads_is_asked_about_one_read_whatever_wraps_it() {
    struct Inherits;
    impl Expiry<u8, u8> for Inherits {}
    /// Not all of its reads are those of the policy that it wraps.
    struct PassesOn<P>(P);
    impl<P: Expiry<u8, u8>> Expiry<u8, u8> for PassesOn<P> {
        fn expire_after_read(
            &self,
            key: &u8,
            value: &u8,
            at: Instant,
            left: Option<Duration>,
            modified: Instant,
        ) -> Option<Duration> {
            self.0.expire_after_read(key, value, at, left, modified)
        }
    }
    fn asks_on(policy: impl Expiry<u8, u8>) -> bool {
        let cache = Cache::builder().expire_after(policy).build();
        cache.insert(1, 1);
        assert!(cache.get(&1).is_some());
        cache.engine().lifetimes.reads_ask()
    }
    type Dyn = dyn Expiry<u8, u8>;
    assert!(!asks_on(Inherits));
    assert!(!asks_on(Box::new(Inherits)));
    assert!(!asks_on(Arc::new(expiry::jittered(Inherits, 0.1))));
    let inherits: Arc<Dyn> = Arc::new(Inherits);
    assert!(!asks_on(expiry::jittered(inherits, 0.1)));
    assert!(asks_on(PassesOn(Inherits)));
    assert!(asks_on(PassesOn(Box::new(Inherits))));
    let passes_on: Box<Dyn> = Box::new(PassesOn(Inherits));
    assert!(asks_on(expiry::jittered(passes_on, 0.1)));
}
