//! Edges of promises that the other files test in the middle: a lifetime of zero from each source,
//! weights at their upper end, statistics before any event, a snapshot that is read slowly.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use crate::support::census::{Census, Counted};
use wheelhouse::{Cache, EvictionPolicy, Expiry, ManualTicker, RemovalCause, expiry};

const SECOND: Duration = Duration::from_secs(1);
const NANO: Duration = Duration::from_nanos(1);

type Heard = Arc<Mutex<Vec<(u32, u32, RemovalCause)>>>;

/// Which question a policy was asked, and what was left.
enum Asked {
    Create,
    Update(u32, Option<Duration>),
    Read(u32, Option<Duration>),
}
use Asked::{Create, Read, Update};

/// A policy that answers by a closure.
struct Answers<F>(F);
impl<F> Expiry<u32, u32> for Answers<F>
where
    F: Fn(Asked) -> Option<Duration> + Send + Sync + 'static,
{
    fn expire_after_create(&self, _: &u32, _: &u32, _: Instant) -> Option<Duration> {
        (self.0)(Create)
    }
    fn expire_after_update(
        &self,
        key: &u32,
        _: &u32,
        _: Instant,
        left: Option<Duration>,
    ) -> Option<Duration> {
        (self.0)(Update(*key, left))
    }
    fn expire_after_read(
        &self,
        key: &u32,
        _: &u32,
        _: Instant,
        left: Option<Duration>,
        _: Instant,
    ) -> Option<Duration> {
        (self.0)(Read(*key, left))
    }
}

#[test]
fn the_defaults_of_the_trait_are_never_and_unchanged() {
    struct Default;
    impl Expiry<u32, u32> for Default {}
    let at = Instant::now();
    assert_eq!(Default.expire_after_create(&1, &1, at), None);
    for left in [None, Some(SECOND)] {
        assert_eq!(Default.expire_after_update(&1, &1, at, left), left);
        assert_eq!(Default.expire_after_read(&1, &1, at, left, at), left);
    }
    fn object(_: &dyn Expiry<u32, u32>) {}
    object(&Default);
}

#[test]
fn a_lifetime_of_zero_on_update_and_on_read_and_by_hand() {
    let heard = Heard::default();
    let sink = heard.clone();
    let cache: Cache<u32, u32> = Cache::builder()
        .expire_after(Answers(|asked| match asked {
            Update(1, ..) | Read(2, ..) => Some(Duration::ZERO),
            _ => Some(10 * SECOND),
        }))
        .ticker(ManualTicker::new())
        .removal_listener(move |k, v, cause| sink.lock().unwrap().push((*k, *v, cause)))
        .build();
    cache.insert(1, 1);
    cache.insert(1, 2);
    assert!(!cache.contains_key(&1));
    cache.insert(2, 3);
    assert_eq!(cache.get(&2), Some(3), "this read saw a live entry");
    assert_eq!(cache.get(&2), None);
    cache.insert(3, 4);
    assert!(cache.set_expiry(&3, Some(Duration::ZERO)));
    assert!(!cache.contains_key(&3));
    assert!(
        !cache.set_expiry(&3, None),
        "an entry that is due is absent"
    );
    cache.run_pending_tasks();
    let mut heard = heard.lock().unwrap();
    heard.sort_by_key(|(key, value, _)| (*key, *value));
    let expected = [
        (1, 1, RemovalCause::Replaced),
        (1, 2, RemovalCause::Expired),
        (2, 3, RemovalCause::Expired),
        (3, 4, RemovalCause::Expired),
    ];
    assert_eq!(*heard, expected);
}

#[test]
fn a_policy_for_writes_only_beside_an_idle_limit() {
    let ticker = ManualTicker::new();
    let cache: Cache<u32, u32> = Cache::builder()
        .expire_after(expiry::writes_only(expiry::accessing(
            |_: &u32, _: &u32| Some(5 * SECOND),
        )))
        .time_to_idle(2 * SECOND)
        .ticker(ticker.clone())
        .build();
    cache.insert(1, 1);
    cache.insert(2, 2);
    for _ in 0..2 {
        ticker.advance(2 * SECOND - NANO);
        assert_eq!(cache.get(&1), Some(1), "a read still defers the idle limit");
    }
    assert_eq!(cache.get(&2), None);
    ticker.advance(SECOND + 2 * NANO);
    assert_eq!(cache.get(&1), None, "and never the policy's deadline");
}

/// "Returning `duration_until_expiry` leaves the deadline exactly where it is", also the idle one.
#[test]
fn an_unchanged_answer_leaves_the_policys_own_deadline() {
    let ticker = ManualTicker::new();
    let cache: Cache<u32, u32> = Cache::builder()
        .expire_after(Answers(|asked| match asked {
            Create => Some(10 * SECOND),
            Update(_, left) | Read(_, left) => left,
        }))
        .time_to_idle(3 * SECOND)
        .ticker(ticker.clone())
        .build();
    cache.insert(1, 1);
    for _ in 0..4 {
        ticker.advance(2 * SECOND);
        assert_eq!(cache.get(&1), Some(1));
    }
    ticker.advance(2 * SECOND - NANO);
    assert_eq!(cache.get(&1), Some(1));
    ticker.advance(NANO);
    assert_eq!(cache.get(&1), None);
}

#[test]
fn weights_at_the_upper_end_do_not_overflow() {
    let cache: Cache<u32, u32> = Cache::builder()
        .max_capacity(u64::MAX)
        .weigher(|_, _| u32::MAX)
        .build();
    for key in 0..100 {
        cache.insert(key, key);
    }
    cache.run_pending_tasks();
    assert_eq!(cache.entry_count(), 100);
    assert_eq!(cache.weighted_size(), 100 * u64::from(u32::MAX));
    let small: Cache<u32, u32> = Cache::builder()
        .max_capacity(10)
        .weigher(|_, _| u32::MAX)
        .build();
    small.insert(1, 1);
    small.run_pending_tasks();
    assert_eq!(small.entry_count(), 0);
}

#[test]
fn a_weight_of_zero_is_never_a_victim() {
    for policy in [EvictionPolicy::Adaptive, EvictionPolicy::Lru] {
        let cache: Cache<u32, u32> = Cache::builder()
            .max_capacity(50)
            .eviction_policy(policy)
            .weigher(|_, value: &u32| *value)
            .build();
        for key in 0..100 {
            cache.insert(key, 0);
        }
        for key in 1_000..5_000 {
            cache.insert(key, 1);
        }
        cache.run_pending_tasks();
        assert_eq!(
            (0..100).filter(|key| cache.contains_key(key)).count(),
            100,
            "{policy:?}"
        );
        assert!(cache.weighted_size() <= 50);
        cache.policy().set_max_capacity(0);
        cache.run_pending_tasks();
        assert_eq!(cache.weighted_size(), 0, "{policy:?}");
        assert_eq!(
            (0..100).filter(|key| cache.contains_key(key)).count(),
            100,
            "{policy:?}"
        );
    }
}

#[test]
fn quantiles_and_ratios_at_their_ends_do_not_panic() {
    let cache: Cache<u32, u32> = Cache::builder().record_stats().build();
    let stats = cache.stats();
    let ratio = stats.hit_ratio();
    assert!(ratio.is_finite() && (0.0..=1.0).contains(&ratio), "{ratio}");
    assert_eq!(stats.expiry_lateness(0.5), None);
}

#[test]
fn no_pin_is_held_over_a_slow_consumer() {
    let census = Census::default();
    let cache: Cache<u32, Counted<u32>> = Cache::builder().build();
    for key in 0..1_000 {
        cache.insert(key, census.counted(key));
    }
    let mut entries = cache.snapshot().into_iter();
    let first = entries.next();
    cache.invalidate_all();
    for _ in 0..3 {
        cache.run_pending_tasks();
    }
    drop((first, entries));
    assert_eq!(census.alive(), 0);
}
