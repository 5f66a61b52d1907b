//! Settings: their effects, which values are refused, and the messages.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use crate::support::record::Record;
use crate::support::{LONGEST, NS, OneHash, SPAN, files_of_panics, nanos, secs};
use wheelhouse::expiry::{creating, never};
use wheelhouse::{Cache, EvictionPolicy, ManualTicker, Scheduler};

/// The error message, the same from `build` and `try_build`.
macro_rules! refusal {
    ($builder:expr) => {{
        let refused = $builder
            .try_build()
            .err()
            .expect("this setting must be refused");
        fn is_error<E: std::error::Error + Send + Sync + 'static>(_: &E) {}
        is_error(&refused);
        let message = refused.to_string();
        let panic =
            catch_unwind(AssertUnwindSafe(|| $builder.build())).expect_err("build must panic");
        let panic = panic
            .downcast_ref::<String>()
            .expect("a panic with a message")
            .clone();
        assert!(
            panic.contains(&message),
            "build panics with {panic:?}, try_build returns {message:?}"
        );
        message
    }};
}

/// A message names the setting, the value met and the limits.
#[track_caller]
fn names(message: &str, parts: &[&str]) {
    for part in parts {
        assert!(message.contains(part), "{message:?} does not say {part:?}");
    }
    let first = message.chars().next().unwrap();
    assert!(
        !first.is_uppercase() && !message.ends_with('.'),
        "{message:?} is a phrase, not a sentence"
    );
}

fn resolution(asked: Duration) -> Result<Duration, String> {
    let built = Cache::<u32, u32>::builder()
        .expiry_resolution(asked)
        .ticker(ManualTicker::new())
        .try_build();
    built
        .map(|cache| cache.policy().expiry_resolution())
        .map_err(|refused| refused.to_string())
}

#[test]
fn a_resolution_finer_than_the_finest_is_refused() {
    for (asked, shown) in [
        (Duration::ZERO, "0ns"),
        (NS, "1ns"),
        (nanos(1 << 15), "32.768µs"),
    ] {
        let message = refusal!(Cache::<u32, u32>::builder().expiry_resolution(asked));
        names(&message, &["expiry_resolution", shown, "65.536µs"]);
    }
}

#[test]
fn a_resolution_too_coarse_for_the_wheel_is_refused() {
    for asked in [Duration::MAX, nanos(u64::MAX), nanos(1 << 62)] {
        let message = refusal!(Cache::<u32, u32>::builder().expiry_resolution(asked));
        names(
            &message,
            &["expiry_resolution", &format!("{asked:?}"), "65.536µs"],
        );
    }
}

#[test]
fn an_initial_capacity_beyond_all_memory_is_refused() {
    for asked in [usize::MAX, usize::MAX / 2] {
        let message = refusal!(Cache::<u32, u32>::builder().initial_capacity(asked));
        names(&message, &["initial_capacity", &asked.to_string()]);
    }
}

#[test]
fn a_setting_of_the_bound_without_a_bound_is_refused() {
    let message = refusal!(Cache::<u32, u32>::builder().weigher(|_, _| 1));
    names(&message, &["weigher", "max_capacity", "u64::MAX"]);
    for policy in [EvictionPolicy::Adaptive, EvictionPolicy::Lru] {
        let message = refusal!(Cache::<u32, u32>::builder().eviction_policy(policy));
        let value = format!("{policy:?}");
        names(&message, &["eviction_policy", &value, "max_capacity"]);
    }
    let message = refusal!(Cache::<u32, u32>::builder().eviction_seed(7));
    names(&message, &["eviction_seed", "7", "max_capacity"]);
    // As the messages advise, in any order.
    let cache: Cache<u32, u32> = Cache::builder()
        .weigher(|_, weight| *weight)
        .eviction_policy(EvictionPolicy::Lru)
        .max_capacity(u64::MAX)
        .build();
    cache.insert(1, 7);
    assert_eq!(cache.weighted_size(), 7);
    let by_settings = Cache::<u32, u32>::builder()
        .max_capacity(0)
        .weigher(|_, _| 1);
    assert!(by_settings.try_build().is_ok());
}

#[test]
fn a_load_timeout_of_nothing_is_refused() {
    let message = refusal!(Cache::<u32, u32>::builder().load_timeout(Duration::ZERO));
    names(&message, &["load_timeout", "0ns", "more than zero"]);
    let shortest = Cache::<u32, u32>::builder().load_timeout(NS);
    assert!(shortest.try_build().is_ok());
}

#[test]
fn messages_name_the_cache() {
    let named = || Cache::<u32, u32>::builder().name("sundial");
    let message = refusal!(named().expiry_resolution(NS));
    names(&message, &["sundial", "expiry_resolution", "1ns"]);
    let cache = named().ticker(ManualTicker::new()).build();
    let refused = catch_unwind(AssertUnwindSafe(|| cache.policy().set_max_capacity(7)));
    let panic = refused.expect_err("it has no bound to move");
    let message = panic.downcast_ref::<String>().expect("a formatted message");
    names(message, &["sundial", "set_max_capacity", "7"]);
}

#[test]
fn a_refusal_points_at_the_caller_of_build() {
    let builder = Cache::<u32, u32>::builder().expiry_resolution(Duration::ZERO);
    let (refused, files) = files_of_panics(|| catch_unwind(AssertUnwindSafe(|| builder.build())));
    assert!(refused.is_err());
    assert_eq!(files, [file!()]);
}

#[test]
fn the_resolution_is_rounded_up_to_a_power_of_two() {
    assert_eq!(
        Cache::<u32, u32>::builder()
            .build()
            .policy()
            .expiry_resolution(),
        SPAN
    );
    for (asked, given) in [
        (1 << 16, 1 << 16),
        ((1 << 16) + 1, 1 << 17),
        (1_000_000, 1 << 20),
        ((1 << 30) - 1, 1 << 30),
        (1 << 30, 1 << 30),
        ((1 << 30) + 1, 1 << 31),
        (60_000_000_000, 1 << 36),
    ] {
        assert_eq!(resolution(nanos(asked)), Ok(nanos(given)), "{asked}");
    }
}

#[test]
fn entries_expire_exactly_at_every_resolution() {
    for bits in 16..=36 {
        let clock = ManualTicker::starting_at(u64::MAX - 12_345);
        let cache: Cache<u32, u32> = Cache::builder()
            .expiry_resolution(nanos(1 << bits))
            .ticker(clock.clone())
            .build();
        let lives: Vec<Duration> = (0..62)
            .flat_map(|n| [nanos(1 << n), nanos((1 << n) + 12_345)])
            .collect();
        for (key, life) in (0..).zip(&lives) {
            cache.insert_with_ttl(key, 0, *life);
        }
        cache.run_pending_tasks();
        let mut now = Duration::ZERO;
        for life in &lives {
            if *life <= now {
                continue;
            }
            clock.advance(*life - now - NS);
            cache.run_pending_tasks();
            now = *life - NS;
            let waiting = |now| lives.iter().filter(|&&life| life > now).count();
            assert_eq!(cache.iter().count(), waiting(now), "at {now:?} of 2^{bits}");
            assert_eq!(
                cache.entry_count(),
                waiting(now) as u64,
                "at {now:?} of 2^{bits}"
            );
            clock.advance(NS);
            cache.run_pending_tasks();
            now = *life;
            assert_eq!(
                cache.entry_count(),
                waiting(now) as u64,
                "at {now:?} of 2^{bits}"
            );
        }
    }
}

#[test]
fn a_finer_resolution_wakes_closer_to_the_deadline() {
    for bits in [16, 20, 25, 30] {
        let span = nanos(1 << bits);
        let clock = ManualTicker::new();
        let cache: Cache<u32, u32> = Cache::builder()
            .expiry_resolution(span)
            .ticker(clock.clone())
            .build();
        cache.insert_with_ttl(1, 1, secs(100));
        // An event loop that sleeps as long as the cache says delivers the removal within one span
        // of the deadline.
        let (mut slept, mut wakes) = (Duration::ZERO, 0);
        while let Some(wait) = cache.next_maintenance_in() {
            clock.advance(wait);
            slept += wait;
            cache.run_pending_tasks();
            wakes += 1;
            assert!(wakes < 50, "{wakes} wake-ups for one entry at {span:?}");
        }
        assert_eq!(cache.entry_count(), 0);
        assert!(
            slept >= secs(100) && slept <= secs(100) + span,
            "delivered after {slept:?} at {span:?}"
        );
    }
}

#[test]
fn settings_are_shown_by_the_policy() {
    let cache = Cache::<u32, u32>::builder()
        .name("sessions")
        .max_capacity(77)
        .initial_capacity(1_000)
        .time_to_live(secs(60))
        .time_to_idle(secs(30))
        .expiry_resolution(nanos(1 << 20))
        .ticker(ManualTicker::new())
        .build();
    assert_eq!(cache.name(), Some("sessions"));
    assert!(format!("{cache:?}").contains("sessions"));
    assert_eq!(cache.policy().max_capacity(), Some(77));
    assert_eq!(cache.policy().time_to_live(), Some(secs(60)));
    assert_eq!(cache.policy().time_to_idle(), Some(secs(30)));
    assert_eq!(cache.policy().expiry_resolution(), nanos(1 << 20));

    let cache = Cache::<u32, u32>::new(5);
    assert_eq!(cache.name(), None);
    assert_eq!(cache.policy().max_capacity(), Some(5));
    assert_eq!(cache.policy().time_to_live(), None);
    assert_eq!(cache.policy().time_to_idle(), None);
    assert_eq!(
        Cache::<u32, u32>::builder().build().policy().max_capacity(),
        None
    );
}

#[test]
fn if_a_setting_is_given_twice_the_later_counts() {
    let (early, late) = (Record::new(), Record::new());
    let (still, clock) = (ManualTicker::starting_at(5), ManualTicker::new());
    let cache = Cache::builder()
        .name("one")
        .name("two")
        .max_capacity(1)
        .max_capacity(50)
        .expiry_resolution(Duration::ZERO)
        .expiry_resolution(SPAN)
        .initial_capacity(usize::MAX)
        .initial_capacity(10)
        .time_to_live(secs(1))
        .time_to_live(secs(20))
        .time_to_idle(secs(1))
        .time_to_idle(secs(15))
        .expire_after(creating(|_: &u32, _: &u32| Some(secs(1))))
        .expire_after(never())
        .removal_listener(early.listener())
        .removal_listener(late.listener())
        .scheduler(Scheduler::background())
        .scheduler(Scheduler::disabled())
        .hasher(OneHash)
        .hasher(std::collections::hash_map::RandomState::new())
        .ticker(still)
        .ticker(clock.clone())
        .build();
    assert_eq!(cache.name(), Some("two"));
    assert_eq!(cache.policy().max_capacity(), Some(50));
    for key in 0..50 {
        cache.insert(key, key);
    }
    cache.run_pending_tasks();
    assert_eq!(cache.entry_count(), 50);
    assert_eq!(cache.peek_ref(&1).unwrap().time_left(), Some(secs(15)));
    clock.advance(secs(15));
    cache.run_pending_tasks();
    assert_eq!(cache.entry_count(), 0);
    assert_eq!((early.count(), late.count()), (0, 50));
}

#[test]
fn a_builder_passes_through_every_order_of_generic_settings() {
    let clock = ManualTicker::new();
    let heard = Record::new();
    let cache = Cache::builder()
        .hasher(OneHash)
        .removal_listener(heard.listener())
        .expire_after(creating(|_: &String, _: &u32| Some(LONGEST)))
        .ticker(clock)
        .try_build()
        .expect("nothing here is refused");
    cache.insert("a".to_string(), 1);
    assert_eq!(cache.get("a"), Some(1));
    assert_eq!(cache.remove("a"), Some(1));
    cache.run_pending_tasks();
    assert_eq!(heard.count(), 1);
}

#[test]
fn with_a_custom_ticker_a_cache_has_no_scheduler_by_default() {
    // If a thread did the removing, it would read the machine's clock, not this one, and find no
    // entry due.
    let clock = ManualTicker::new();
    let heard = Record::new();
    let cache: Cache<u32, u32> = Cache::builder()
        .ticker(clock.clone())
        .removal_listener(heard.listener())
        .expiry_resolution(nanos(1 << 16))
        .build();
    cache.insert_with_ttl(1, 1, nanos(1 << 20));
    clock.advance(secs(1));
    assert_eq!((cache.entry_count(), heard.count()), (1, 0));
    cache.run_pending_tasks();
    assert_eq!((cache.entry_count(), heard.count()), (0, 1));
}

/// On 32 bits the number of shards was computed beyond the end of `usize`.
#[test]
fn every_bound_can_be_set() {
    for power in 0..64 {
        for bound in [(1_u64 << power) - 1, 1 << power, u64::MAX << power] {
            let cache: Cache<u32, u32> = Cache::new(bound);
            assert_eq!(cache.policy().max_capacity(), Some(bound));
        }
    }
}
