//! One storm over one cache.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    thread,
    time::Duration,
};

use super::{
    super::race::{expect, fill},
    Built, CPU, LATE_MAX, LATE_P50, LATE_P99, NOTIFIED, OFF, PASS,
    caller::{self, Calls},
    listener::Heard,
};
use crate::{
    clock,
    contest::Reading,
    cpu, keys,
    peer::{Expiring, Left, Listener, Peer, Plan, Problem, Role},
};

/// A value that belongs to no storm: lives for an hour.
pub(super) const RESIDENT: u64 = u64::MAX;
/// How long after the last deadline the watch ends: a bucket of the default resolution and more.
const AFTER: u64 = 2_500_000_000;
/// How often the driven moka is driven.
const DRIVE: Duration = Duration::from_millis(10);

/// What is to come over a cache.
#[derive(Clone, Copy)]
pub(super) struct Storm {
    pub(super) entries: u64,
    /// Deadlines are spread evenly over this, ns.
    pub(super) window: u64,
    /// From the first insert to the first deadline, ns; doubled if the cache cannot take the entries in that time.
    pub(super) lead: u64,
    /// Whether a thread calls `run_pending_tasks` again and again.
    pub(super) driven: bool,
    /// Whether there is a caller.
    pub(super) called: bool,
}

fn lifetime(_: &u64, value: &u64) -> Duration {
    match *value {
        RESIDENT => Duration::from_secs(3600),
        due => Duration::from_nanos(due.saturating_sub(clock::nanos())),
    }
}

/// What one storm gave, and what its caller saw.
pub(super) type Passed = (Vec<Reading>, Option<Calls>);

/// One storm; `None` if the cache took its entries too slowly.
pub(super) fn round<P: Peer<u64, u64>>(
    storm: Storm,
    role: Role,
    build: Built<P>,
) -> Result<Option<Passed>, Problem> {
    let heard = Arc::new(Heard::default());
    let (cache, listens) = built(build, &heard)?;
    fill(
        &cache,
        (0..keys::SMALL as u64).map(|rank| (keys::key(rank), RESIDENT)),
    )?;
    let first = clock::nanos() + storm.lead;
    let mut sum = 0u64;
    for rank in 0..storm.entries {
        let key = keys::key((1 << 32) + rank);
        sum = sum.wrapping_add(key);
        cache.insert(key, first + key % storm.window);
    }
    cache.settle();
    if clock::nanos() + 100_000_000 > first {
        return Ok(None);
    }
    clock::sleep_until(first - 50_000_000);
    let watch = watch(&cache, storm, first + storm.window + AFTER);

    if role == Role::Subject {
        expect("expired entries notified", heard.count(), storm.entries)?;
        expect("sum of the keys notified", heard.sum(), sum)?;
    }
    let mut readings = Vec::new();
    if listens {
        let share = 100.0 * heard.count() as f64 / storm.entries as f64;
        readings.push(Reading::new(1, NOTIFIED, share));
    }
    if let Some((p50, p99, longest)) = heard.lateness() {
        readings.push(Reading::new(1, LATE_P50, p50));
        readings.push(Reading::new(1, LATE_P99, p99));
        readings.push(Reading::new(1, LATE_MAX, longest));
        let cpu = watch.cpu.as_nanos() as f64 / heard.count() as f64;
        readings.push(Reading::new(1, CPU, cpu));
    }
    if storm.driven {
        readings.push(Reading::new(1, PASS, watch.pass as f64 / 1e6));
    }
    if let Some(calls) = &watch.calls {
        readings.extend(calls.readings());
    }
    if let Some(off) = cache.thread_was_off() {
        readings.push(Reading::new(1, OFF, off as f64 / 1e3));
    }
    Ok(Some((readings, watch.calls)))
}

/// Builds with a listener if the peer has one, else without; says which.
fn built<P: Peer<u64, u64>>(build: Built<P>, heard: &Arc<Heard>) -> Result<(P, bool), Problem> {
    let hears = Arc::clone(heard);
    let listener: Listener<u64, u64> = Arc::new(move |key, value, left| {
        if left == Left::Expired {
            hears.expired(*key, *value);
        }
    });
    let plan = Plan {
        capacity: None,
        expected: 1 << 16,
        expiring: Expiring::Write,
        lifetime,
        uniform: None,
        listener: Some(listener),
    };
    match build(&plan) {
        Ok(cache) => Ok((cache, true)),
        Err(_) => Ok((
            build(&Plan {
                listener: None,
                ..plan
            })?,
            false,
        )),
    }
}

struct Watch {
    cpu: Duration,
    pass: u64,
    calls: Option<Calls>,
}

/// Lets the storm pass over the cache until `end`, with the driver and the caller it is to have.
fn watch<P: Peer<u64, u64>>(cache: &P, storm: Storm, end: u64) -> Watch {
    let over = AtomicBool::new(false);
    let stream = keys::keys_of(&keys::zipf_ranks(keys::SMALL, 1 << 16, 0));
    thread::scope(|scope| {
        let (process, own) = (cpu::process_time(), cpu::thread_time());
        let driver = storm.driven.then(|| {
            scope.spawn(|| {
                let mut longest = 0;
                while !over.load(Relaxed) {
                    let began = clock::nanos();
                    cache.settle();
                    longest = longest.max(clock::nanos() - began);
                    thread::sleep(DRIVE);
                }
                longest
            })
        });
        let caller = storm
            .called
            .then(|| scope.spawn(|| caller::call(cache, &stream, RESIDENT, end)));
        clock::sleep_until(end);
        over.store(true, Relaxed);
        let calls = caller.map(|caller| {
            caller
                .join()
                .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        });
        let pass = driver.map_or(0, |driver| {
            driver
                .join()
                .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        });
        let others =
            (cpu::thread_time() - own) + calls.as_ref().map_or(Duration::ZERO, |calls| calls.cpu);
        Watch {
            cpu: (cpu::process_time() - process).saturating_sub(others),
            pass,
            calls,
        }
    })
}
