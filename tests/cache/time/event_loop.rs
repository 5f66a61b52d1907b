//! An event loop that asks `next_maintenance_in`, sleeps for so long, and runs the pending tasks.
//! It delivers every expiry within one span of the finest bucket: at any resolution, wherever its
//! clock began, and while callers move deadlines forward and back.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::support::record::Record;
use crate::support::{Dice, nanos, secs};
use wheelhouse::RemovalCause::Expired;
use wheelhouse::{Cache, ManualTicker};

const RESOLUTIONS: [Duration; 4] = [nanos(1 << 16), nanos(1 << 24), nanos(1 << 30), secs(60)];
const ORIGINS: [u64; 4] = [0, 1 << 63, u64::MAX - 30_000_000_000, u64::MAX];

/// A cache, its caller, and what the caller knows. Each value is a number of its own.
struct Loop {
    cache: Cache<u64, u64>,
    clock: ManualTicker,
    heard: Record<u64, u64>,
    dice: Dice,
    span: Duration,
    now: Duration,
    /// By key the value inserted last; by value its deadline.
    newest: BTreeMap<u64, u64>,
    ends: BTreeMap<u64, Option<Duration>>,
}

impl Loop {
    fn new(resolution: Duration, origin: u64) -> Loop {
        let (clock, heard) = (ManualTicker::starting_at(origin), Record::new());
        let cache = Cache::builder()
            .ticker(clock.clone())
            .expiry_resolution(resolution)
            .removal_listener(heard.listener())
            .build();
        Loop {
            span: cache.policy().expiry_resolution(),
            cache,
            clock,
            heard,
            dice: Dice::new(origin ^ resolution.as_nanos() as u64),
            now: Duration::ZERO,
            newest: BTreeMap::new(),
            ends: BTreeMap::new(),
        }
    }

    /// Of every order of magnitude: from a thousandth of the finest bucket to more than one turn of
    /// the top level.
    fn length(&mut self, most: u64) -> Duration {
        let bits = u64::from(self.span.as_nanos().ilog2()) - 10 + self.dice.below(most);
        nanos((1 << bits) + self.dice.below(1 << bits))
    }

    /// One operation of a caller.
    fn act(&mut self, serial: u64) {
        let (key, life) = (self.dice.below(300), self.length(32));
        match self.dice.below(6) {
            0..3 => {
                self.cache.insert_with_ttl(key, serial, life);
                self.newest.insert(key, serial);
                self.ends.insert(serial, Some(self.now + life));
            }
            kind @ (3 | 4) => {
                let life = (kind == 3).then_some(life);
                if self.cache.set_expiry(&key, life) {
                    let end = life.map(|life| self.now + life);
                    self.ends.insert(self.newest[&key], end);
                }
            }
            _ => self.cache.invalidate(&key),
        }
    }

    /// Sleeps until there is work, or until a caller's next operation; true if there was work.
    fn sleep(&mut self, most: Duration) -> bool {
        let wait = self.cache.next_maintenance_in();
        let woken = wait.is_some_and(|wait| wait <= most);
        let slept = wait.unwrap_or(most).min(most);
        self.clock.advance(slept);
        self.now += slept;
        if woken {
            self.cache.run_pending_tasks();
        }
        for (key, value, cause) in self.heard.take() {
            if cause == Expired {
                let end = self.ends[&value].expect("a lifetime without end");
                assert!(
                    end <= self.now && self.now <= end + self.span,
                    "{key} was due at {end:?}, delivered at {:?}, at {:?}",
                    self.now,
                    self.span
                );
            }
        }
        woken
    }
}

#[test]
fn sleeping_as_the_cache_says_delivers_every_expiry_within_a_span() {
    const ACTS: u64 = 1_500;
    for resolution in RESOLUTIONS {
        for origin in ORIGINS {
            let mut one = Loop::new(resolution, origin);
            let mut wakes = 0;
            for serial in 0..ACTS {
                one.act(serial);
                let rest = one.length(20);
                let comes = one.now + rest;
                while one.sleep(comes - one.now) {
                    wakes += 1;
                }
            }
            while one.cache.next_maintenance_in().is_some() {
                assert!(one.sleep(Duration::MAX));
                wakes += 1;
            }
            assert!(wakes < ACTS * 12, "{wakes} wake-ups for {ACTS} acts");
            let endless = one.cache.iter().filter(|entry| entry.time_left().is_none());
            assert_eq!(one.cache.entry_count(), endless.count() as u64);
        }
    }
}
