//! Plays requests against a cache on a virtual clock, and keeps the score.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use wheelhouse::{Cache, ManualTicker, RemovalCause, Ticker, expiry};

use crate::mix::Mix;
use crate::progress::Progress;
use wheelhouse_examples::trace::{Op, Request, Requests};

/// Requests read before they are played, so that the clock can be stopped while the next are read.
const CHUNK: usize = 1 << 16;

pub(crate) struct Player<'a> {
    /// `None`: unbounded.
    pub(crate) capacity: Option<u64>,
    pub(crate) mix: &'a Mix,
    pub(crate) rate: u32,
}

#[derive(Default)]
pub(crate) struct Outcome {
    requests: u64,
    lookups: u64,
    hits: u64,
    expired: u64,
    evicted: u64,
    left: u64,
    lifetimes_from_trace: u64,
    busy: Duration,
    virtual_time: Duration,
    /// Look-ups that returned a value at or past its deadline.
    pub(crate) stale_hits: u64,
    /// Values put in, less those in the cache at the end and those notified.
    pub(crate) unaccounted: i128,
}

/// Removals heard of, by cause.
#[derive(Default)]
struct Heard {
    expired: AtomicU64,
    evicted: AtomicU64,
    other: AtomicU64,
}

/// A cached value: only what is needed to give it its life and to check it.
struct Entry {
    lifetime: Option<Duration>,
    due: Option<Duration>,
}

impl Player<'_> {
    pub(crate) fn play(
        &self,
        mut requests: Requests,
        progress: &Progress,
    ) -> Result<Outcome, String> {
        let heard = Arc::new(Heard::default());
        let ticker = ManualTicker::new();
        let cache = self.cache(&ticker, &heard);
        let mut game = Game {
            clock: Clock::new(ticker, cache.policy().expiry_resolution(), self.rate),
            cache,
            mix: self.mix,
            values: 0,
            outcome: Outcome::default(),
        };

        let mut chunk = Vec::with_capacity(CHUNK);
        loop {
            chunk.clear();
            for request in requests.by_ref().take(CHUNK) {
                chunk.push(request?);
            }
            if chunk.is_empty() {
                break;
            }
            let started = Instant::now();
            chunk.iter().for_each(|request| game.play(request));
            game.outcome.busy += started.elapsed();
            progress.played(chunk.len(), game.outcome.per_second());
        }
        if game.outcome.requests == 0 {
            return Err("no request in it".to_owned());
        }

        game.cache.run_pending_tasks();
        let mut outcome = game.outcome;
        outcome.expired = heard.expired.load(Relaxed);
        outcome.evicted = heard.evicted.load(Relaxed);
        outcome.left = game.cache.entry_count();
        outcome.virtual_time = game.clock.elapsed();
        let gone = outcome.expired + outcome.evicted + heard.other.load(Relaxed);
        outcome.unaccounted = i128::from(game.values) - i128::from(outcome.left) - i128::from(gone);
        Ok(outcome)
    }

    fn cache(&self, ticker: &ManualTicker, heard: &Arc<Heard>) -> Cache<u64, Entry> {
        let heard = Arc::clone(heard);
        let builder = Cache::builder()
            .name("replay")
            .expire_after(expiry::writing(|_key: &u64, entry: &Entry| entry.lifetime))
            .removal_listener(move |_: &u64, _: &Entry, cause: RemovalCause| {
                let count = match cause {
                    RemovalCause::Expired => &heard.expired,
                    RemovalCause::Size => &heard.evicted,
                    _ => &heard.other,
                };
                count.fetch_add(1, Relaxed);
            })
            .ticker(ticker.clone());
        match self.capacity {
            Some(capacity) => builder.max_capacity(capacity).build(),
            None => builder.build(),
        }
    }
}

struct Game<'a> {
    cache: Cache<u64, Entry>,
    clock: Clock,
    mix: &'a Mix,
    values: u64,
    outcome: Outcome,
}

impl Game<'_> {
    fn play(&mut self, request: &Request) {
        if self.clock.advance_to(request.at) {
            self.cache.run_pending_tasks();
        }
        self.outcome.requests += 1;
        match request.op {
            Op::Access => {
                if !self.look_up(request.key) {
                    self.put(request);
                }
            }
            Op::Write => self.put(request),
            Op::Delete => self.cache.invalidate(&request.key),
        }
    }

    fn look_up(&mut self, key: u64) -> bool {
        self.outcome.lookups += 1;
        let Some(entry) = self.cache.get_ref(&key) else {
            return false;
        };
        self.outcome.hits += 1;
        if entry.due.is_some_and(|due| due <= self.clock.elapsed()) {
            self.outcome.stale_hits += 1;
        }
        true
    }

    fn put(&mut self, request: &Request) {
        self.outcome.lifetimes_from_trace += u64::from(request.ttl.is_some());
        let lifetime = request.ttl.or_else(|| self.mix.lifetime(request.key));
        let due = lifetime.map(|lifetime| self.clock.elapsed() + lifetime);
        self.values += 1;
        self.cache.insert(request.key, Entry { lifetime, due });
    }
}

/// Virtual time: that of the trace, or the arrivals made up for it.
struct Clock {
    ticker: ManualTicker,
    /// The cache is given a chance to work each time this much has gone by.
    step: u64,
    between_arrivals: Duration,
    first_stamp: Option<Duration>,
}

impl Clock {
    fn new(ticker: ManualTicker, step: Duration, rate: u32) -> Self {
        let step = step.as_nanos() as u64;
        Self {
            ticker,
            step,
            between_arrivals: Duration::from_secs(1) / rate,
            first_stamp: None,
        }
    }

    fn elapsed(&self) -> Duration {
        Duration::from_nanos(self.ticker.nanos())
    }

    /// Moves on to the next arrival; true if a step has been completed. Stamps that go back leave
    /// the time where it is.
    fn advance_to(&mut self, stamp: Option<Duration>) -> bool {
        let forward = match stamp {
            Some(stamp) => {
                let first = *self.first_stamp.get_or_insert(stamp);
                stamp.saturating_sub(first).saturating_sub(self.elapsed())
            }
            None => self.between_arrivals,
        };
        let before = self.ticker.nanos() / self.step;
        self.ticker.advance(forward);
        self.ticker.nanos() / self.step != before
    }
}

impl Outcome {
    pub(crate) const HEADER: &str = "trace                       requests       hits   hit %    expired    evicted     left  virtual time  requests/s";

    fn per_second(&self) -> f64 {
        self.requests as f64 / self.busy.as_secs_f64().max(1e-9)
    }

    pub(crate) fn row(&self, name: &str) -> String {
        let ratio = 100.0 * self.hits as f64 / self.lookups.max(1) as f64;
        let from_trace = match self.lifetimes_from_trace {
            0 => String::new(),
            count => format!("  ({count} lifetimes from the trace)"),
        };
        format!(
            "{name:<25} {:>10} {:>10} {ratio:>7.2} {:>10} {:>10} {:>8} {:>11} s {:>11.0}{from_trace}",
            self.requests,
            self.hits,
            self.expired,
            self.evicted,
            self.left,
            self.virtual_time.as_secs(),
            self.per_second(),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_follows_the_stamps_and_never_goes_back() {
        let mut clock = Clock::new(ManualTicker::new(), Duration::from_secs(1), 10);
        let at = |seconds| Some(Duration::from_secs_f64(seconds));
        assert!(!clock.advance_to(at(1000.0)));
        assert_eq!(clock.elapsed(), Duration::ZERO);
        assert!(!clock.advance_to(at(1000.5)));
        assert!(clock.advance_to(at(1001.5)));
        assert!(!clock.advance_to(at(1000.7)));
        assert_eq!(clock.elapsed(), Duration::from_millis(1500));
    }

    #[test]
    fn requests_without_stamps_arrive_at_the_rate() {
        let mut clock = Clock::new(ManualTicker::new(), Duration::from_secs(1), 10);
        let steps = (0..20).filter(|_| clock.advance_to(None)).count();
        assert_eq!(clock.elapsed(), Duration::from_secs(2));
        assert_eq!(steps, 2);
    }
}
