//! The server's own record of every connection, kept beside the cache and judged without asking it.
//!
//! Times are nanoseconds of the standard library's monotonic clock since the start; zero means "not
//! yet". Each field has one writer: `last_beat` and `refused` the server's thread, `dropped` and
//! `closed` the removal listener, `close_seen` the clients.

use std::fmt;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use crate::plan::Plan;

/// The cache's clock and the standard one are calibrated apart; over a few seconds they may
/// disagree by this much.
const CLOCK_SLACK: Duration = Duration::from_millis(2);

#[derive(Default)]
pub(crate) struct Record {
    silence: Duration,
    /// When the last heartbeat that the cache took was received: read before the cache was called,
    /// so the deadline is never before `last_beat + silence`.
    last_beat: AtomicU64,
    /// When a heartbeat came and the cache no longer knew the connection.
    refused: AtomicU64,
    /// When the listener heard `Expired`.
    dropped: AtomicU64,
    /// When the listener heard `Explicit`.
    closed: AtomicU64,
    /// Notifications of any cause.
    notices: AtomicU32,
    /// When the client saw the server's close.
    close_seen: AtomicU64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    NeverConnected,
    Kept,
    /// With the time from the deadline to the listener.
    Dropped(Duration),
    Closed,
    /// Dropped, or a heartbeat refused, this long before its deadline.
    WronglyDropped(Duration),
    /// Still held, or held for so long after its deadline, beyond resolution and allowance.
    WronglyKept(Duration),
}

pub(crate) struct Ledger {
    start: Instant,
    records: Vec<Record>,
    patience: Duration,
}

impl Ledger {
    pub(crate) fn new(plan: &Plan) -> Self {
        let record = |id| Record {
            silence: plan.silence(id),
            ..Record::default()
        };
        Self {
            start: Instant::now(),
            records: (0..plan.connections).map(record).collect(),
            patience: plan.resolution + plan.allowance,
        }
    }

    pub(crate) fn now(&self) -> Duration {
        self.start.elapsed()
    }

    /// A heartbeat received at `at` was taken: the entry was there and has a new deadline.
    pub(crate) fn beat(&self, id: u32, at: Duration) {
        self.records[id as usize]
            .last_beat
            .store(nanos(at), Relaxed);
    }

    pub(crate) fn refused(&self, id: u32, at: Duration) {
        self.records[id as usize].refused.store(nanos(at), Relaxed);
    }

    pub(crate) fn heard_expired(&self, id: u32) {
        let record = &self.records[id as usize];
        record.dropped.store(nanos(self.now()), Relaxed);
        record.notices.fetch_add(1, Relaxed);
    }

    pub(crate) fn heard_explicit(&self, id: u32) {
        let record = &self.records[id as usize];
        record.closed.store(nanos(self.now()), Relaxed);
        record.notices.fetch_add(1, Relaxed);
    }

    /// A cause that this program never brings about; only counted, so that the report shows it.
    pub(crate) fn heard_other(&self, id: u32) {
        self.records[id as usize].notices.fetch_add(2, Relaxed);
    }

    pub(crate) fn close_seen(&self, id: u32) {
        self.records[id as usize]
            .close_seen
            .store(nanos(self.now()), Relaxed);
    }

    pub(crate) fn all_closes_seen(&self) -> bool {
        self.unseen_closes() == 0
    }

    /// Connections dropped whose client has not seen it.
    pub(crate) fn unseen_closes(&self) -> usize {
        let unseen = |record: &&Record| {
            record.dropped.load(Relaxed) != 0 && record.close_seen.load(Relaxed) == 0
        };
        self.records.iter().filter(unseen).count()
    }

    /// From each deadline to the moment when the client saw the close.
    pub(crate) fn close_delays(&self) -> Vec<Duration> {
        let seen = |record: &Record| match record.close_seen.load(Relaxed) {
            0 => None,
            at => Some(Duration::from_nanos(at).saturating_sub(record.deadline())),
        };
        self.records.iter().filter_map(seen).collect()
    }

    /// Connections that were served and not notified exactly once. Meant for the very end, when all
    /// have left.
    pub(crate) fn wrongly_notified(&self) -> usize {
        let wrong = |record: &&Record| {
            let expected = u32::from(record.last_beat.load(Relaxed) != 0);
            record.notices.load(Relaxed) != expected
        };
        self.records.iter().filter(wrong).count()
    }

    pub(crate) fn judge(&self, now: Duration) -> Vec<Verdict> {
        self.records
            .iter()
            .map(|record| record.judge(now, self.patience))
            .collect()
    }

    pub(crate) fn counts(&self) -> Counts {
        let mut counts = Counts::default();
        for record in &self.records {
            if record.dropped.load(Relaxed) != 0 {
                counts.dropped += 1;
            } else if record.closed.load(Relaxed) != 0 {
                counts.closed += 1;
            } else if record.last_beat.load(Relaxed) != 0 {
                counts.open += 1;
            }
        }
        counts
    }
}

impl Record {
    /// The earliest deadline that the cache can have had.
    fn deadline(&self) -> Duration {
        Duration::from_nanos(self.last_beat.load(Relaxed)) + self.silence
    }

    fn judge(&self, now: Duration, patience: Duration) -> Verdict {
        if self.last_beat.load(Relaxed) == 0 {
            return Verdict::NeverConnected;
        }
        let deadline = self.deadline();
        let moment = |field: &AtomicU64| match field.load(Relaxed) {
            0 => None,
            at => Some(Duration::from_nanos(at)),
        };
        let dropped = moment(&self.dropped);
        for gone in dropped.into_iter().chain(moment(&self.refused)) {
            let early = deadline.saturating_sub(gone);
            if early > CLOCK_SLACK {
                return Verdict::WronglyDropped(early);
            }
        }
        let closed = moment(&self.closed);
        let held_until = dropped.or(closed).unwrap_or(now);
        let late = held_until.saturating_sub(deadline);
        if late > patience {
            return Verdict::WronglyKept(late);
        }
        match (dropped, closed) {
            (Some(_), _) => Verdict::Dropped(late),
            (None, Some(_)) => Verdict::Closed,
            (None, None) => Verdict::Kept,
        }
    }
}

/// What the live line shows.
#[derive(Default)]
pub(crate) struct Counts {
    open: usize,
    dropped: usize,
    closed: usize,
}

impl fmt::Display for Counts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "open {:6}  dropped {:6}  closed {:6}",
            self.open, self.dropped, self.closed
        )
    }
}

/// Never zero, which means "not yet".
fn nanos(at: Duration) -> u64 {
    (at.as_nanos() as u64).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    const PATIENCE: Duration = Duration::from_millis(50);

    fn ms(n: u64) -> Duration {
        Duration::from_millis(n)
    }

    fn record(beat: u64, dropped: u64, refused: u64, closed: u64) -> Record {
        let at = |n| AtomicU64::new(ms(n).as_nanos() as u64);
        Record {
            silence: ms(100),
            last_beat: at(beat),
            dropped: at(dropped),
            refused: at(refused),
            closed: at(closed),
            ..Record::default()
        }
    }

    #[test]
    fn right_outcomes() {
        let judge = |record: Record| record.judge(ms(1000), PATIENCE);
        assert_eq!(judge(record(0, 0, 0, 0)), Verdict::NeverConnected);
        assert_eq!(judge(record(950, 0, 0, 0)), Verdict::Kept);
        assert_eq!(judge(record(500, 620, 0, 0)), Verdict::Dropped(ms(20)));
        assert_eq!(judge(record(500, 620, 605, 0)), Verdict::Dropped(ms(20)));
        assert_eq!(judge(record(500, 0, 0, 550)), Verdict::Closed);
    }

    #[test]
    fn wrong_outcomes() {
        let judge = |record: Record| record.judge(ms(1000), PATIENCE);
        assert_eq!(
            judge(record(500, 590, 0, 0)),
            Verdict::WronglyDropped(ms(10))
        );
        // Refused a heartbeat early, though the drop itself came late enough.
        assert_eq!(
            judge(record(500, 620, 570, 0)),
            Verdict::WronglyDropped(ms(30))
        );
        assert_eq!(judge(record(500, 700, 0, 0)), Verdict::WronglyKept(ms(100)));
        assert_eq!(judge(record(500, 0, 0, 0)), Verdict::WronglyKept(ms(400)));
    }
}
