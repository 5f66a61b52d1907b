//! One caller at a steady pace, each call timed.

use std::hint::spin_loop;

use crate::workloads::prelude::*;

/// From the start of one call to the start of the next, in nanoseconds.
const PACE: u64 = 5_000;

/// What the caller saw.
pub(super) struct Calls {
    pub(super) get: Histogram<u64>,
    pub(super) insert: Histogram<u64>,
    /// From the moment at which a call was due, so that a pause counts for every call that it held
    /// up.
    waiting: Histogram<u64>,
    pub(super) cpu: Duration,
}

/// Calls until `end`: the keys of `stream` in turn, `get` and `insert` in turn. After a pause it
/// makes up for the calls that it missed.
pub(super) fn call<P: Peer>(cache: &P, stream: &[u64], value: u64, end: u64) -> Calls {
    cpu::pin(0);
    let mut calls = Calls {
        get: tail::histogram(),
        insert: tail::histogram(),
        waiting: tail::histogram(),
        cpu: Duration::ZERO,
    };
    let cpu = cpu::thread_time();
    let mut due = clock::nanos();
    for (number, key) in stream.iter().cycle().enumerate() {
        let began = wait(due);
        let kind = if number % 2 == 0 {
            let found = cache.get(key) == Some(value);
            assert!(found, "an entry that lives for an hour is not found");
            &mut calls.get
        } else {
            cache.insert(*key, value);
            &mut calls.insert
        };
        let ended = clock::nanos();
        tail::record(kind, ended - began);
        tail::record(&mut calls.waiting, ended - due);
        due += PACE;
        if ended >= end {
            break;
        }
    }
    calls.cpu = cpu::thread_time() - cpu;
    calls
}

fn wait(due: u64) -> u64 {
    loop {
        let now = clock::nanos();
        if now >= due {
            return now;
        }
        spin_loop();
    }
}

/// Longest single call, `get` or `insert`.
const PAUSE: Metric = Metric::worst("longest call us");
/// The worse of `get` and `insert`.
const P9999: Metric = Metric::median("p99.99 us");
const GET: [(Metric, f64); 4] = [
    (Metric::median("get p50 us"), 0.5),
    (Metric::median("get p99 us"), 0.99),
    (Metric::median("get p99.99 us"), 0.9999),
    (Metric::worst("get max us"), 1.0),
];
const INSERT: [(Metric, f64); 4] = [
    (Metric::median("insert p50 us"), 0.5),
    (Metric::median("insert p99 us"), 0.99),
    (Metric::median("insert p99.99 us"), 0.9999),
    (Metric::worst("insert max us"), 1.0),
];
const FROM_DUE: [(Metric, f64); 1] = [(Metric::median("p99.99 us from when due"), 0.9999)];

impl Calls {
    /// As readings: what the bars ask for, then percentiles of both kinds of call.
    pub(super) fn readings(&self) -> Vec<Reading> {
        let get = tail::readings(&self.get, 1e3, &GET);
        let insert = tail::readings(&self.insert, 1e3, &INSERT);
        let worse = |place: usize| get[place].value.max(insert[place].value);
        let worst = vec![PAUSE.of(worse(3)), P9999.of(worse(2))];
        let from_due = tail::readings(&self.waiting, 1e3, &FROM_DUE);
        [worst, get, insert, from_due].concat()
    }
}
