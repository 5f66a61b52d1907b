//! The policy's measure of time: it counts moves in the queues. Its stamps are one byte.
//!
//! # How it works
//!
//! A counter counts events, such as entries that pass some point of a queue. A *period* is a fixed
//! number of events: a 64th of the number of entries in that queue. So 64 periods are one turnover,
//! whatever the size of the cache, its hit ratio, or the speed of its callers. A stamp is the low
//! byte of the period.
//!
//! The policy keeps two such counters. `order` counts protected entries that reached the tail.
//! Between a use of a protected entry and its arrival at the old end, at most as many such events
//! happen as there are protected entries. So its stamp is at most about 64 periods old, however
//! much time passes, and is never misread. `evictions` counts evictions.
//!
//! Cost: an addition and a comparison for each event.

/// Periods in one turnover.
pub(super) const TURNOVER: u64 = 64;

#[derive(Debug, Default)]
pub(super) struct Periods {
    /// Events so far.
    count: u64,
    /// Events since the period began.
    within: u64,
    period: u64,
}

impl Periods {
    pub(super) fn count(&self) -> u64 {
        self.count
    }

    pub(super) fn period(&self) -> u64 {
        self.period
    }

    /// The stamp of the current period.
    pub(super) fn stamp(&self) -> u8 {
        self.period as u8
    }

    /// Periods since `stamp` was taken, modulo 256.
    pub(super) fn age(&self, stamp: u8) -> u8 {
        self.stamp().wrapping_sub(stamp)
    }

    /// Counts one event of a queue with `nodes` entries. True if this event ends a period.
    pub(super) fn advance(&mut self, nodes: usize) -> bool {
        self.count += 1;
        self.within += 1;
        let ended = self.within >= nodes as u64 / TURNOVER;
        if ended {
            self.within = 0;
            self.period += 1;
        }
        ended
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_turnover_is_64_periods_at_any_size() {
        for nodes in [64, 640, 64_000] {
            let mut periods = Periods::default();
            let ended: u64 = (0..nodes).map(|_| u64::from(periods.advance(nodes))).sum();
            assert_eq!(
                (ended, periods.period()),
                (TURNOVER, TURNOVER),
                "{nodes} nodes"
            );
            assert_eq!(periods.count(), nodes as u64);
        }
    }

    #[test]
    fn with_few_nodes_every_event_is_a_period() {
        let mut periods = Periods::default();
        assert!(periods.advance(0));
        assert!(periods.advance(1));
        assert!(periods.advance(127));
        assert!(!periods.advance(128));
    }

    #[test]
    fn ages_survive_the_wrap_of_the_byte() {
        let mut periods = Periods::default();
        for _ in 0..250 {
            periods.advance(1);
        }
        let stamp = periods.stamp();
        assert_eq!(periods.age(stamp), 0);
        for _ in 0..255 {
            periods.advance(1);
        }
        assert_eq!(periods.age(stamp), 255);
    }
}
