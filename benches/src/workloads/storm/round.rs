//! One storm over one cache.

use std::sync::Mutex;

use super::caller::{self, Calls, RESIDENT};
use crate::workloads::prelude::*;

/// Lateness against the deadline, and its quantiles.
const LATE: [(Metric, f64); 3] = [
    (Metric::median("late p50 ms"), 0.5),
    (Metric::median("late p99 ms"), 0.99),
    (Metric::worst("late max ms"), 1.0),
];

/// How long after the last deadline the watch ends: a bucket of the default resolution and more.
const AFTER: u64 = 2_500_000_000;
/// How often the driven moka is driven.
const DRIVE: Duration = Duration::from_millis(10);

/// The plan of a storm. Times are nanoseconds.
#[derive(Clone, Copy)]
pub(super) struct Storm {
    pub(super) entries: u64,
    /// Deadlines are spread evenly over this.
    pub(super) window: u64,
    /// From the first insert to the first deadline; doubled if the cache cannot take the entries in
    /// that time.
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

/// What the listener was told.
struct Heard {
    late: Histogram<u64>,
    /// Sum of the keys, wrapping: right only if each came once.
    keys: u64,
}

/// What one storm gave, and what its caller saw.
pub(super) type Passed = (Vec<Reading>, Option<Calls>);

/// One storm; `None` if the cache took its entries too slowly.
pub(super) fn round<P: Peer>(storm: Storm, role: Role) -> Result<Option<Passed>, Problem> {
    let heard = Arc::new(Mutex::new(Heard {
        late: tail::histogram(),
        keys: 0,
    }));
    let (cache, listens) = built::<P>(&heard)?;
    let residents = keys::entries(keys::SMALL);
    fill(&cache, residents.map(|(key, _)| (key, RESIDENT)))?;
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
    let (cpu, pass, calls) = watch(&cache, storm, first + storm.window + AFTER);

    let heard = heard.lock().expect("no listener panics");
    let count = heard.late.len();
    if role == Role::Subject {
        expect("expired entries notified", count, storm.entries)?;
        expect("sum of the keys notified", heard.keys, sum)?;
    }
    let mut readings = Vec::new();
    if listens {
        let percent = 100.0 * count as f64 / storm.entries as f64;
        readings.push(Metric::median("notified %").of(percent));
    }
    if count > 0 {
        readings.extend(tail::readings(&heard.late, 1e6, &LATE));
        readings.push(Metric::median("CPU ns/entry").of(cpu.as_nanos() as f64 / count as f64));
    }
    if storm.driven {
        readings.push(Metric::worst("longest pass ms").of(pass as f64 / 1e6));
    }
    readings.extend(calls.iter().flat_map(Calls::readings));
    Ok(Some((readings, calls)))
}

/// Builds with a listener if the peer has one, else without; says which.
fn built<P: Peer>(heard: &Arc<Mutex<Heard>>) -> Result<(P, bool), Problem> {
    let hears = Arc::clone(heard);
    let listener: Listener<u64, u64> = Arc::new(move |key, deadline, expired| {
        if expired {
            let late = clock::nanos().saturating_sub(*deadline);
            let mut heard = hears.lock().expect("no listener panics");
            tail::record(&mut heard.late, late);
            heard.keys = heard.keys.wrapping_add(*key);
        }
    });
    let mut plan = plan_of(Expiring::Write, 1 << 16, None, lifetime);
    plan.uniform = None;
    plan.listener = Some(listener);
    if let Ok(cache) = P::build(&plan) {
        return Ok((cache, true));
    }
    plan.listener = None;
    Ok((P::build(&plan)?, false))
}

/// Lets the storm pass over the cache until `end`, with the driver and the caller it is to have.
/// CPU time without that of the caller, the longest pass of the driver, what the caller saw.
fn watch<P: Peer>(cache: &P, storm: Storm, end: u64) -> (Duration, u64, Option<Calls>) {
    let stream = keys::small_stream(1 << 16);
    let drive = |longest: &mut u64| {
        let began = clock::nanos();
        cache.settle();
        *longest = (clock::nanos() - began).max(*longest);
        thread::sleep(DRIVE);
    };
    let called = || {
        thread::scope(|scope| {
            let call = || caller::call(cache, &stream, RESIDENT, end);
            let caller = storm.called.then(|| scope.spawn(call));
            clock::sleep_until(end);
            caller.map(joined)
        })
    };
    let (process, own) = (cpu::process_time(), cpu::thread_time());
    let (calls, pass) = match storm.driven {
        true => watched(0, drive, called),
        false => (called(), 0),
    };
    let callers = calls.as_ref().map_or(Duration::ZERO, |calls| calls.cpu);
    let others = (cpu::thread_time() - own) + callers;
    let all = cpu::process_time() - process;
    (all.saturating_sub(others), pass, calls)
}
