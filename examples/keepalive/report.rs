//! The table at the end, and whether all was right.

use std::fmt;
use std::time::Duration;

use crate::ledger::{Ledger, Verdict};
use crate::plan::{Plan, Role};
use crate::quantiles::Quantiles;

pub(crate) struct Report {
    connections: usize,
    never_connected: usize,
    kept: usize,
    closed: usize,
    lateness: Quantiles,
    dropped: usize,
    /// Clients that meant to beat on time and could not: the machine was too busy. Their drop is
    /// right all the same.
    dropped_steady: usize,
    close_delay: Quantiles,
    wrongly_dropped: Vec<Duration>,
    wrongly_kept: Vec<Duration>,
    unseen_closes: usize,
    wrongly_notified: usize,
    left_over: u64,
    run_time: Duration,
    cache_cpu: Option<Duration>,
}

impl Report {
    pub(crate) fn new(
        plan: &Plan,
        verdicts: &[Verdict],
        ledger: &Ledger,
        left_over: u64,
        cache_cpu: Option<Duration>,
    ) -> Self {
        let count = |wanted: Verdict| {
            verdicts
                .iter()
                .filter(|&&verdict| verdict == wanted)
                .count()
        };
        let pick = |matching: fn(&Verdict) -> Option<Duration>| {
            verdicts.iter().filter_map(matching).collect::<Vec<_>>()
        };
        let lateness = pick(|verdict| {
            if let Verdict::Dropped(late) = verdict {
                Some(*late)
            } else {
                None
            }
        });
        let dropped_steady = |(id, verdict): &(u32, &Verdict)| {
            matches!(verdict, Verdict::Dropped(_)) && plan.role(*id) == Role::Steady
        };
        Self {
            connections: verdicts.len(),
            never_connected: count(Verdict::NeverConnected),
            kept: count(Verdict::Kept),
            closed: count(Verdict::Closed),
            dropped: lateness.len(),
            dropped_steady: (0..).zip(verdicts).filter(dropped_steady).count(),
            lateness: Quantiles::of(lateness),
            close_delay: Quantiles::of(ledger.close_delays()),
            wrongly_dropped: pick(|verdict| {
                if let Verdict::WronglyDropped(by) = verdict {
                    Some(*by)
                } else {
                    None
                }
            }),
            wrongly_kept: pick(|verdict| {
                if let Verdict::WronglyKept(by) = verdict {
                    Some(*by)
                } else {
                    None
                }
            }),
            unseen_closes: ledger.unseen_closes(),
            wrongly_notified: ledger.wrongly_notified(),
            left_over,
            run_time: ledger.now(),
            cache_cpu,
        }
    }

    pub(crate) fn is_right(&self) -> bool {
        self.never_connected == 0
            && self.wrongly_dropped.is_empty()
            && self.wrongly_kept.is_empty()
            && self.unseen_closes == 0
            && self.wrongly_notified == 0
            && self.left_over == 0
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut row = |name: &str, value: &dyn fmt::Display| writeln!(f, "{name:<44} {value}");
        row("connections", &self.connections)?;
        row("  kept to the end", &self.kept)?;
        row("  dropped when silent for too long", &self.dropped)?;
        if self.dropped_steady > 0 {
            row(
                "    of these meant to beat, and did so too late",
                &self.dropped_steady,
            )?;
        }
        row("  closed by the client", &self.closed)?;
        row("  never connected", &self.never_connected)?;
        row("wrongly dropped", &Wrong(&self.wrongly_dropped))?;
        row("wrongly kept", &Wrong(&self.wrongly_kept))?;
        row("dropped, and the client saw no close", &self.unseen_closes)?;
        row("not notified exactly once", &self.wrongly_notified)?;
        row("entries left after the last close", &self.left_over)?;
        row(
            "lateness of the drop  p50 / p99 / max",
            &Spread(&self.lateness),
        )?;
        row(
            "close seen by client  p50 / p99 / max",
            &Spread(&self.close_delay),
        )?;
        match self.cache_cpu {
            Some(used) => {
                let share = 100.0 * used.as_secs_f64() / self.run_time.as_secs_f64();
                let used = format!("{:.1} ms ({share:.2} % of one core)", millis(used));
                row("CPU time of the cache's own threads", &used)?;
            }
            None => row(
                "CPU time of the cache's own threads",
                &"not available on this system",
            )?,
        }
        row(
            "outcome",
            if self.is_right() {
                &"all as it should be"
            } else {
                &"WRONG, see above"
            },
        )
    }
}

/// How many, and by how much at most.
struct Wrong<'a>(&'a [Duration]);

impl fmt::Display for Wrong<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0.iter().max() {
            Some(&most) => write!(f, "{} (by up to {:.1} ms)", self.0.len(), millis(most)),
            None => f.write_str("0"),
        }
    }
}

/// Three quantiles in milliseconds.
struct Spread<'a>(&'a Quantiles);

impl fmt::Display for Spread<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [p50, p99, max] = [self.0.at(0.5), self.0.at(0.99), self.0.max()].map(millis);
        write!(f, "{p50:.1} / {p99:.1} / {max:.1} ms")
    }
}

fn millis(duration: Duration) -> f64 {
    1000.0 * duration.as_secs_f64()
}
