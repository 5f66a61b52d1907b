//! Limits for the whole cache, alone and beside the deadlines of a policy or of the caller: the
//! earliest counts.

use std::time::{Duration, Instant};

use crate::support::record::Record;
use crate::support::script::{Answer, Script};
use crate::support::{HOUR, LONGEST, NS, secs};
use wheelhouse::RemovalCause::Expired;
use wheelhouse::expiry::creating;
use wheelhouse::{Cache, Expiry, ManualTicker};

fn left(cache: &Cache<u32, u32>, key: u32) -> Option<Option<Duration>> {
    cache.peek_ref(&key).map(|entry| entry.time_left())
}

#[test]
fn time_to_live_counts_from_the_last_write() {
    let clock = ManualTicker::new();
    let cache = Cache::builder()
        .time_to_live(secs(10))
        .ticker(clock.clone())
        .build();
    cache.insert(1, 1);
    clock.advance(secs(6));
    assert_eq!(cache.get(&1), Some(1));
    assert_eq!(
        left(&cache, 1),
        Some(Some(secs(4))),
        "a read changes nothing"
    );
    cache.insert(1, 2);
    assert_eq!(left(&cache, 1), Some(Some(secs(10))));
    clock.advance(secs(10) - NS);
    assert_eq!(cache.get(&1), Some(2));
    clock.advance(NS);
    assert_eq!(cache.get(&1), None);
    assert_eq!(cache.policy().time_to_live(), Some(secs(10)));
    assert_eq!(cache.policy().time_to_idle(), None);
}

#[test]
fn time_to_idle_counts_from_the_last_read_or_write() {
    let clock = ManualTicker::new();
    let cache = Cache::builder()
        .time_to_idle(secs(10))
        .ticker(clock.clone())
        .build();
    let idle = |wait| {
        clock.advance(wait);
        left(&cache, 1)
    };
    cache.insert(1, 1);
    assert_eq!(idle(secs(10) - NS), Some(Some(NS)));
    assert_eq!(cache.get(&1), Some(1));
    assert_eq!(idle(secs(10) - NS), Some(Some(NS)));
    assert!(cache.get_ref(&1).is_some());
    assert_eq!(idle(secs(10) - NS), Some(Some(NS)));
    cache.insert(1, 2);
    assert_eq!(idle(secs(3)), Some(Some(secs(7))));

    // Calls that do not count as reads.
    assert!(cache.contains_key(&1));
    assert_eq!(cache.iter().count(), 1);
    cache.retain(|_, _| true);
    assert_eq!(idle(secs(7) - NS), Some(Some(NS)));
    assert_eq!(idle(NS), None);
    assert_eq!(cache.get(&1), None);
    assert_eq!(cache.policy().time_to_idle(), Some(secs(10)));
}

#[test]
fn reads_reset_the_idle_time_but_not_the_time_to_live() {
    let clock = ManualTicker::new();
    let heard = Record::new();
    let cache = Cache::builder()
        .time_to_live(secs(25))
        .time_to_idle(secs(10))
        .ticker(clock.clone())
        .removal_listener(heard.listener())
        .build();
    cache.insert(1, 1);
    for (seconds_left, wait) in [
        (10, secs(9)),
        (10, secs(9)),
        (7, secs(6)),
        (1, secs(1) - NS),
    ] {
        assert_eq!(cache.get(&1), Some(1));
        assert_eq!(left(&cache, 1), Some(Some(secs(seconds_left))));
        clock.advance(wait);
        cache.run_pending_tasks();
    }
    assert_eq!(left(&cache, 1), Some(Some(NS)));
    assert_eq!(heard.take(), []);
    clock.advance(NS);
    assert_eq!(cache.get(&1), None);
    cache.run_pending_tasks();
    assert_eq!(heard.take(), [(1, 1, Expired)]);

    cache.insert(2, 2);
    clock.advance(secs(10));
    assert_eq!(
        cache.get(&2),
        None,
        "idle for ten seconds, although its lifetime is longer"
    );
}

#[test]
fn the_earliest_of_policy_and_time_to_live_counts() {
    let clock = ManualTicker::new();
    let script = Script::new(Answer::After(secs(5)), Answer::After(HOUR), Answer::Keep);
    let cache = Cache::builder()
        .expire_after(script.clone())
        .time_to_live(secs(60))
        .ticker(clock.clone())
        .build();
    cache.insert(1, 1);
    assert_eq!(left(&cache, 1), Some(Some(secs(5))));
    cache.insert(1, 2);
    assert_eq!(left(&cache, 1), Some(Some(secs(60))));
    clock.advance(secs(20));
    script.on_read(Answer::After(HOUR));
    assert_eq!(cache.get(&1), Some(2));
    assert_eq!(
        left(&cache, 1),
        Some(Some(secs(40))),
        "no read outlives the time to live"
    );
    script.on_read(Answer::After(secs(4)));
    assert_eq!(cache.get(&1), Some(2));
    assert_eq!(left(&cache, 1), Some(Some(secs(4))));
    script.on_read(Answer::Never);
    assert_eq!(cache.get(&1), Some(2));
    assert_eq!(left(&cache, 1), Some(Some(secs(40))));
    clock.advance(secs(40));
    assert_eq!(cache.get(&1), None);
}

#[test]
fn the_earliest_of_policy_and_time_to_idle_counts() {
    let clock = ManualTicker::new();
    let cache = Cache::builder()
        .expire_after(creating(|_: &u32, _: &u32| Some(secs(60))))
        .time_to_idle(secs(10))
        .ticker(clock.clone())
        .build();
    cache.insert(1, 1);
    assert_eq!(left(&cache, 1), Some(Some(secs(10))));
    // The policy leaves its own deadline at 60 s; each read moves the idle deadline, until the
    // policy's comes first.
    let mut now = 0;
    for (read_at, seconds_left) in [
        (9, 10),
        (18, 10),
        (27, 10),
        (36, 10),
        (45, 10),
        (54, 6),
        (59, 1),
    ] {
        clock.advance(secs(read_at - now));
        now = read_at;
        assert_eq!(cache.get(&1), Some(1), "at {read_at} s");
        assert_eq!(
            left(&cache, 1),
            Some(Some(secs(seconds_left))),
            "at {read_at} s"
        );
        cache.run_pending_tasks();
    }
    clock.advance(secs(1));
    assert_eq!(cache.get(&1), None);
    cache.run_pending_tasks();
    assert_eq!(cache.entry_count(), 0);
}

#[test]
fn the_earliest_of_policy_live_and_idle_limit_counts() {
    let clock = ManualTicker::new();
    let script = Script::new(Answer::After(secs(50)), Answer::Keep, Answer::Keep);
    let cache = Cache::builder()
        .expire_after(script.clone())
        .time_to_live(secs(30))
        .time_to_idle(secs(20))
        .ticker(clock.clone())
        .build();
    cache.insert(1, 1);
    assert_eq!(left(&cache, 1), Some(Some(secs(20))));
    clock.advance(secs(15));
    assert_eq!(cache.get(&1), Some(1));
    assert_eq!(
        left(&cache, 1),
        Some(Some(secs(15))),
        "time to live: 30 s from the write"
    );
    clock.advance(secs(14));
    cache.insert(1, 2);
    assert_eq!(
        left(&cache, 1),
        Some(Some(secs(20))),
        "idle: 20 s from now; the policy's is 21 s away"
    );
    clock.advance(secs(19));
    assert_eq!(cache.get(&1), Some(2));
    assert_eq!(
        left(&cache, 1),
        Some(Some(secs(2))),
        "the policy's own, 50 s from creation"
    );
    clock.advance(secs(2));
    assert_eq!(cache.get(&1), None);
}

#[test]
fn fixed_lifetimes_of_zero_and_more_than_the_longest() {
    let clock = ManualTicker::new();
    let cache: Cache<u32, u32> = Cache::builder()
        .time_to_live(Duration::ZERO)
        .ticker(clock.clone())
        .build();
    cache.insert(1, 1);
    assert_eq!(cache.get(&1), None);

    let cache = Cache::builder()
        .time_to_live(Duration::MAX)
        .time_to_idle(Duration::MAX)
        .ticker(clock.clone())
        .build();
    cache.insert(1, 1);
    assert_eq!(left(&cache, 1), Some(Some(LONGEST)));
    clock.advance(LONGEST - NS);
    cache.run_pending_tasks();
    assert!(cache.contains_key(&1));
    clock.advance(NS);
    assert!(!cache.contains_key(&1));
}

#[test]
fn an_idle_deadline_counts_from_the_instant_that_the_policy_received() {
    /// A policy that changes nothing, and takes two seconds.
    struct Ponders(ManualTicker);
    impl Expiry<u32, u32> for Ponders {
        fn expire_after_read(
            &self,
            _: &u32,
            _: &u32,
            _: Instant,
            left: Option<Duration>,
            _: Instant,
        ) -> Option<Duration> {
            self.0.advance(secs(2));
            left
        }
    }
    let clock = ManualTicker::new();
    let cache = Cache::builder()
        .expire_after(Ponders(clock.clone()))
        .time_to_idle(secs(10))
        .ticker(clock.clone())
        .build();
    cache.insert(1, 1);
    clock.advance(secs(5));
    assert_eq!(cache.get(&1), Some(1));
    assert_eq!(left(&cache, 1), Some(Some(secs(8))));
}

#[test]
fn limits_apply_beside_lifetimes_set_by_hand() {
    let clock = ManualTicker::new();
    let cache = Cache::builder()
        .time_to_live(secs(30))
        .time_to_idle(secs(20))
        .ticker(clock.clone())
        .build();
    cache.insert_with_ttl(1, 1, HOUR);
    assert_eq!(left(&cache, 1), Some(Some(secs(20))));
    cache.insert_with_ttl(1, 1, secs(5));
    assert_eq!(left(&cache, 1), Some(Some(secs(5))));
    clock.advance(secs(4));
    assert_eq!(cache.get(&1), Some(1));
    assert_eq!(
        left(&cache, 1),
        Some(Some(secs(1))),
        "a read does not change the fixed lifetime"
    );
    assert!(cache.set_expiry(&1, Some(HOUR)));
    assert_eq!(left(&cache, 1), Some(Some(secs(20))), "setting it is a use");
    clock.advance(secs(14));
    assert!(cache.set_expiry(&1, None));
    assert_eq!(left(&cache, 1), Some(Some(secs(12))), "30 s from the write");
    cache.insert(1, 2);
    assert_eq!(left(&cache, 1), Some(Some(secs(20))));
}
