//! One caller at a steady pace, each call timed.

use std::{hint::spin_loop, time::Duration};

use hdrhistogram::Histogram;

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
            let found = cache.get(key);
            assert_eq!(
                found,
                Some(value),
                "an entry that lives for an hour is not found"
            );
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
const GET: [Metric; 4] = [
    Metric::median("get p50 us"),
    Metric::median("get p99 us"),
    Metric::median("get p99.99 us"),
    Metric::worst("get max us"),
];
const INSERT: [Metric; 4] = [
    Metric::median("insert p50 us"),
    Metric::median("insert p99 us"),
    Metric::median("insert p99.99 us"),
    Metric::worst("insert max us"),
];
const FROM_DUE: Metric = Metric::median("p99.99 us from when due");
const QUANTILES: [f64; 4] = [0.5, 0.99, 0.9999, 1.0];

impl Calls {
    /// As readings: what the bars ask for, then percentiles of both kinds of call.
    pub(super) fn readings(&self) -> Vec<Reading> {
        let micros = |histogram: &Histogram<u64>, quantile| {
            histogram.value_at_quantile(quantile) as f64 / 1e3
        };
        let worse = |quantile| micros(&self.get, quantile).max(micros(&self.insert, quantile));
        let mut readings = vec![PAUSE.of(worse(1.0)), P9999.of(worse(0.9999))];
        for (metrics, histogram) in [(GET, &self.get), (INSERT, &self.insert)] {
            for (metric, quantile) in metrics.into_iter().zip(QUANTILES) {
                readings.push(metric.of(micros(histogram, quantile)));
            }
        }
        readings.push(FROM_DUE.of(micros(&self.waiting, 0.9999)));
        readings
    }
}
