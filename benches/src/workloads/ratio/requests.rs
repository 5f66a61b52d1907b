//! What is asked of a cache, and when: all keys of a trace, or requests for values that expire, in
//! virtual time, with lifetimes from a second to an hour by a hash of the key, and hot keys that
//! live briefly.

use rand::{RngExt, SeedableRng, rngs::StdRng};
use rand_distr::{Distribution, Zipf};

use crate::{keys, traces::Trace};

/// A sequence of requests. Times are nanoseconds.
pub(super) struct Requests {
    pub(super) keys: Vec<u64>,
    /// When each request comes; ascending.
    pub(super) times: Vec<u64>,
    /// How long the value of a key lives, from the request that missed it; `u64::MAX` for ever.
    pub(super) life: fn(u64) -> u64,
}

impl Requests {
    /// Requests for values that live for ever.
    pub(super) fn without_deadlines(keys: Vec<u64>) -> Self {
        Self {
            times: (0..keys.len() as u64).collect(),
            keys,
            life: |_| u64::MAX,
        }
    }

    /// Key, time and, for a value that is made now, deadline.
    pub(super) fn all(&self) -> impl Iterator<Item = (u64, u64, u64)> {
        let pairs = self.keys.iter().zip(&self.times);
        pairs.map(|(&key, &at)| (key, at, at.saturating_add((self.life)(key))))
    }

    /// Whether any value has a deadline.
    pub(super) fn expire(&self) -> bool {
        self.keys.iter().any(|&key| (self.life)(key) != u64::MAX)
    }
}

/// Nanoseconds of a second.
const SECOND: u64 = 1_000_000_000;
/// The hot keys of [`short_lived`] are those below this.
const HOT: u64 = 500;

/// From a second to an hour, uniform in its logarithm, by the key.
fn log_uniform(key: u64) -> u64 {
    let share = keys::key(key) as f64 / u64::MAX as f64;
    (3600_f64.powf(share) * SECOND as f64) as u64
}

/// A trace at its own times.
pub(super) fn of_trace(trace: Trace) -> Option<Requests> {
    let nanos = trace.times?.into_iter().map(|time| time.as_nanos() as u64);
    // Stamps of traces may go back a little.
    let ascending = nanos.scan(0, |latest, at| {
        *latest = at.max(*latest);
        Some(*latest)
    });
    Some(Requests {
        times: ascending.collect(),
        keys: trace.keys,
        life: log_uniform,
    })
}

/// Keys by Zipf's law, a thousand requests a second.
pub(super) fn zipf(requests: usize) -> Requests {
    let ranks = keys::zipf_ranks(200_000, requests, 0);
    Requests {
        times: (0..requests as u64).map(|n| n * SECOND / 1_000).collect(),
        keys: ranks.into_iter().map(u64::from).collect(),
        life: log_uniform,
    }
}

/// Every second request is for one of 500 keys whose values live for half a second; the others are
/// for 10,000 keys by Zipf's law, whose values live for an hour. 5,000 requests a second.
pub(super) fn short_lived(requests: usize) -> Requests {
    let zipf = Zipf::new(10_000.0, keys::SKEW).expect("both are positive");
    let mut random = StdRng::seed_from_u64(0x5EED_3001);
    let mut draw = |n: usize| match n % 2 {
        0 => random.random_range(0..HOT),
        _ => HOT + zipf.sample(&mut random) as u64,
    };
    Requests {
        keys: (0..requests).map(&mut draw).collect(),
        times: (0..requests as u64).map(|n| n * SECOND / 5_000).collect(),
        life: |key| if key < HOT { SECOND / 2 } else { 3600 * SECOND },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lives_are_spread_over_all_magnitudes() {
        let lives: Vec<u64> = (0..10_000).map(log_uniform).collect();
        assert!(
            lives
                .iter()
                .all(|life| (SECOND..=3600 * SECOND).contains(life))
        );
        let below_a_minute = lives.iter().filter(|life| **life < 60 * SECOND).count();
        assert!((4_800..5_200).contains(&below_a_minute), "{below_a_minute}");
    }

    #[test]
    fn every_second_request_is_for_a_key_that_lives_briefly() {
        let requests = short_lived(1_000);
        let hot = requests.keys.iter().filter(|key| **key < HOT).count();
        assert_eq!(hot, 500);
        assert!(requests.times.is_sorted() && requests.expire());
    }
}
