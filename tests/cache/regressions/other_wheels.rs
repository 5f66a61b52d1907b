//! Failures that other timer wheels have had in public, each named after the failure and, if it has
//! one, its issue number there.

use std::time::Duration;

use crate::support::record::Record;
use crate::support::{Dice, HOUR, LONGEST, NS, SPAN, must_end, nanos, secs};
use wheelhouse::RemovalCause::Expired;
use wheelhouse::{Cache, ManualTicker};

/// The widths of the wheel's levels at the default resolution, and how many buckets each has.
const LEVELS: [(u32, u64); 5] = [(30, 64), (36, 64), (42, 32), (47, 4), (49, 1)];

fn cache_at(origin: u64) -> (Cache<u64, u64>, ManualTicker, Record<u64, u64>) {
    let (clock, heard) = (ManualTicker::starting_at(origin), Record::new());
    let cache = Cache::builder()
        .ticker(clock.clone())
        .removal_listener(heard.listener())
        .build();
    (cache, clock, heard)
}

/// Advances to each deadline in turn and finds its entries there until one nanosecond before, and
/// no longer at it. The passes run only where the walk stops, so the clock jumps from one deadline
/// to the next.
#[track_caller]
fn each_on_time(origin: u64, lives: &[Duration]) {
    let (cache, clock, heard) = cache_at(origin);
    for (key, life) in (0..).zip(lives) {
        cache.insert_with_ttl(key, 0, *life);
    }
    cache.run_pending_tasks();
    let mut stops: Vec<Duration> = lives.to_vec();
    stops.sort_unstable();
    stops.dedup();
    let (mut now, mut left) = (Duration::ZERO, lives.len());
    for stop in stops {
        if stop > now + NS {
            clock.advance(stop - NS - now);
            now = stop - NS;
            cache.run_pending_tasks();
            assert_eq!(
                heard.count(),
                0,
                "before {stop:?} from {origin}: {:?}",
                heard.take()
            );
        }
        clock.advance(stop - now);
        now = stop;
        cache.run_pending_tasks();
        for (key, value, cause) in heard.take() {
            assert_eq!(
                (lives[key as usize], value, cause),
                (stop, 0, Expired),
                "from {origin}"
            );
            left -= 1;
        }
        let due = lives.iter().filter(|life| **life > now).count();
        assert_eq!(left, due, "at {stop:?} from {origin}");
        assert_eq!(cache.entry_count(), due as u64);
    }
}

#[test]
fn tokio_8334_a_full_turn_of_the_top_level_does_not_hide_short_timers() {
    for turns in 1..=5u64 {
        for origin in [0, (1 << 49) - 1, 12_345_678_901_234] {
            let (cache, clock, heard) = cache_at(origin);
            cache.insert_with_ttl(0, 0, LONGEST);
            cache.run_pending_tasks();
            clock.advance(nanos(turns << 49));
            cache.insert_with_ttl(1, 0, secs(1));
            cache.insert_with_ttl(2, 0, HOUR);
            assert!(
                cache
                    .next_maintenance_in()
                    .is_some_and(|wait| wait <= secs(1) + SPAN)
            );
            cache.run_pending_tasks();
            assert!(
                cache
                    .next_maintenance_in()
                    .is_some_and(|wait| wait <= secs(1) + SPAN)
            );
            clock.advance(secs(1));
            cache.run_pending_tasks();
            assert_eq!(heard.take(), [(1, 0, Expired)]);
            clock.advance(HOUR - secs(1));
            cache.run_pending_tasks();
            assert_eq!(heard.take(), [(2, 0, Expired)]);
            assert_eq!(cache.entry_count(), 1);
        }
    }
}

#[test]
fn tikv_11940_no_remaining_time_is_past_the_last_level() {
    let lives: Vec<Duration> = LEVELS
        .iter()
        .flat_map(|&(bits, buckets)| [1 << bits, buckets << bits, (buckets + 1) << bits])
        .flat_map(|edge: u64| [edge - 1, edge, edge + 1].map(nanos))
        .chain([nanos(1 << 61), LONGEST - NS, LONGEST])
        .collect();
    for origin in [0, 1, (1 << 49) - 1, i64::MAX as u64 - 3, u64::MAX - 999] {
        each_on_time(origin, &lives);
    }
}

#[test]
fn theine_go_64_the_current_bucket_is_visited() {
    for (bits, _) in LEVELS {
        for part in [0, 1, 1 << (bits - 1), (1 << bits) - 1] {
            // The hand is inside a bucket; entries are due in that very bucket, and in the next
            // one.
            let lives = [1, 2, 1_000, 1 << (bits - 2), (1 << bits) - 1, 1 << bits].map(nanos);
            each_on_time((77 << bits) + part, &lives);
        }
    }
}

#[test]
fn nats_server_7070_a_jump_longer_than_a_turn_visits_every_bucket() {
    for (bits, buckets) in LEVELS {
        for turns in [1, 2, 5] {
            let (cache, clock, heard) = cache_at(1 << 20);
            for n in 0..buckets * 3 {
                cache.insert_with_ttl(n, 0, nanos((n << bits) / 3 + 1));
            }
            cache.run_pending_tasks();
            clock.advance(nanos((turns * buckets) << bits));
            cache.run_pending_tasks();
            assert_eq!(
                heard.take().len() as u64,
                buckets * 3,
                "level of 2^{bits} ns, {turns} turns"
            );
            assert_eq!(
                (cache.entry_count(), cache.next_maintenance_in()),
                (0, None)
            );
        }
    }
}

#[test]
fn rpc_perf_180_far_timers_do_not_fire_early() {
    // The entry is filed by the time that remains at each step, not by the level that holds it now.
    for (bits, _) in LEVELS {
        let life = nanos((1 << bits) + (1 << (bits - 1)) + 12_345);
        let (cache, clock, heard) = cache_at((1 << bits) - 7);
        cache.insert_with_ttl(0, 0, life);
        let step = life / 97;
        for _ in 0..97 {
            cache.run_pending_tasks();
            assert_eq!(heard.take(), []);
            clock.advance(step);
        }
        clock.advance(life - step * 97 - NS);
        cache.run_pending_tasks();
        assert_eq!(heard.take(), [], "one nanosecond before {life:?}");
        clock.advance(NS);
        cache.run_pending_tasks();
        assert_eq!(heard.take(), [(0, 0, Expired)]);
    }
}

#[test]
fn moka_248_zero_durations_in_the_current_bucket_do_not_loop() {
    must_end(|| {
        for origin in [0, 1, (1 << 30) - 1, 1 << 30, u64::MAX] {
            let (cache, clock, heard) = cache_at(origin);
            for key in 0..1_000 {
                cache.insert_with_ttl(key, 0, Duration::ZERO);
                cache.insert_with_ttl(key + 1_000, 0, NS);
            }
            cache.run_pending_tasks();
            assert_eq!(cache.entry_count(), 1_000);
            clock.advance(NS);
            cache.run_pending_tasks();
            assert_eq!(cache.entry_count(), 0);
            assert_eq!(heard.take().len(), 2_000);
        }
    });
}

#[test]
fn moka_549_no_expiry_is_not_already_expired() {
    for origin in [
        0,
        1,
        i64::MAX as u64,
        i64::MIN as u64,
        u64::MAX - 1,
        u64::MAX,
    ] {
        let (cache, clock, heard) = cache_at(origin);
        cache.insert(1, 0);
        cache.insert_with_ttl(2, 0, secs(1));
        assert!(cache.set_expiry(&2, None));
        for step in [
            Duration::ZERO,
            NS,
            secs(1),
            HOUR,
            LONGEST,
            LONGEST,
            LONGEST,
            LONGEST,
        ] {
            clock.advance(step);
            cache.run_pending_tasks();
            assert_eq!(
                (cache.get(&1), cache.get(&2)),
                (Some(0), Some(0)),
                "{step:?} from {origin}"
            );
        }
        assert_eq!(heard.take(), []);
    }
}

#[test]
fn a_span_of_two_to_the_32_ticks_is_not_cut_to_nothing() {
    for (bits, ticks) in [
        (16, 1u64 << 32),
        (16, (1 << 32) + 1),
        (20, 1 << 32),
        (30, 1 << 32),
        (30, 3 << 30),
    ] {
        let clock = ManualTicker::new();
        let cache: Cache<u32, u32> = Cache::builder()
            .expiry_resolution(nanos(1 << bits))
            .ticker(clock.clone())
            .build();
        let life = nanos(ticks << bits).min(LONGEST);
        cache.insert_with_ttl(1, 1, life);
        cache.insert_with_ttl(2, 2, secs(1));
        cache.run_pending_tasks();
        assert_eq!(cache.entry_count(), 2);
        clock.advance(life - NS);
        cache.run_pending_tasks();
        assert_eq!((cache.entry_count(), cache.contains_key(&1)), (1, true));
        clock.advance(NS);
        cache.run_pending_tasks();
        assert_eq!(cache.entry_count(), 0);
    }
}

#[test]
fn an_occupied_current_bucket_does_not_hide_a_nearer_one() {
    let mut dice = Dice::new(9);
    for round in 0..300 {
        let (cache, clock, _heard) = cache_at(dice.roll());
        let mut deadlines = Vec::new();
        let mut now = Duration::ZERO;
        for key in 0..12 {
            let (bits, _) = LEVELS[dice.below(5) as usize];
            // Nearly a full turn of a level away is the bucket under that level's hand.
            let life = nanos(((dice.below(64) + 1) << bits) - dice.below(1 << 20));
            cache.insert_with_ttl(key, 0, life);
            deadlines.push(now + life);
            if dice.below(3) == 0 {
                let step = nanos(dice.below(1 << bits));
                clock.advance(step);
                now += step;
            }
            cache.run_pending_tasks();
            let nearest = deadlines.iter().filter(|deadline| **deadline > now).min();
            let wait = cache.next_maintenance_in();
            match nearest {
                Some(nearest) => assert!(
                    wait.is_some_and(|wait| wait > Duration::ZERO && wait <= *nearest - now + SPAN),
                    "round {round}: wakes in {wait:?}, needed in {:?}",
                    *nearest - now
                ),
                None => assert_eq!(wait, None),
            }
        }
    }
}
