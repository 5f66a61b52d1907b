//! One caller at a steady pace, each call timed.

use std::{collections::BTreeMap, hint::spin_loop, time::Duration};

use hdrhistogram::Histogram;

use super::{P9999, PAUSE};
use crate::{
    clock,
    contest::{Metric, Reading, Shown},
    cpu,
    peer::Peer,
    tail::{self, histogram, record},
};

/// From the start of one call to the start of the next, ns.
const PACE: u64 = 5_000;

/// What the caller saw.
pub(super) struct Calls {
    get: Histogram<u64>,
    insert: Histogram<u64>,
    /// From the moment a call was due, so that a pause counts for every call that it held up.
    waiting: Histogram<u64>,
    pub(super) cpu: Duration,
}

/// Calls until `end`: the keys of `stream` in turn, `get` and `insert` in turn. After a pause it makes up for what it missed.
pub(super) fn call<P: Peer<u64, u64>>(cache: &P, stream: &[u64], value: u64, end: u64) -> Calls {
    cpu::pin(0);
    let mut calls = Calls {
        get: histogram(),
        insert: histogram(),
        waiting: histogram(),
        cpu: Duration::ZERO,
    };
    let cpu = cpu::thread_time();
    let mut due = clock::nanos();
    'calls: loop {
        for pair in stream.chunks_exact(2) {
            let began = wait(due);
            let found = cache.get(&pair[0]);
            let ended = clock::nanos();
            assert_eq!(
                found,
                Some(value),
                "an entry that lives for an hour is not found, or has another's value"
            );
            record(&mut calls.get, ended - began);
            record(&mut calls.waiting, ended - due);
            due += PACE;

            let began = wait(due);
            cache.insert(pair[1], value);
            let ended = clock::nanos();
            record(&mut calls.insert, ended - began);
            record(&mut calls.waiting, ended - due);
            due += PACE;
            if ended >= end {
                break 'calls;
            }
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

const GET: [&str; 6] = [
    "get p50 us",
    "get p90 us",
    "get p99 us",
    "get p99.9 us",
    "get p99.99 us",
    "get max us",
];
const INSERT: [&str; 6] = [
    "insert p50 us",
    "insert p90 us",
    "insert p99 us",
    "insert p99.9 us",
    "insert p99.99 us",
    "insert max us",
];
const QUANTILES: [f64; 6] = [0.5, 0.9, 0.99, 0.999, 0.9999, 1.0];

impl Calls {
    /// As readings: two rows of percentiles, then what the bars ask for.
    pub(super) fn readings(&self) -> Vec<Reading> {
        let micros = |histogram: &Histogram<u64>, quantile| {
            histogram.value_at_quantile(quantile) as f64 / 1e3
        };
        let mut readings = vec![
            Reading::new(1, PAUSE, self.get.max().max(self.insert.max()) as f64 / 1e3),
            Reading::new(
                1,
                P9999,
                micros(&self.get, 0.9999).max(micros(&self.insert, 0.9999)),
            ),
        ];
        for (block, names, histogram) in [(1, GET, &self.get), (2, INSERT, &self.insert)] {
            for (name, quantile) in names.into_iter().zip(QUANTILES) {
                let shown = if quantile == 1.0 {
                    Shown::Worst(block)
                } else {
                    Shown::Median(block)
                };
                readings.push(Reading::new(
                    1,
                    Metric { name, shown },
                    micros(histogram, quantile),
                ));
            }
        }
        let waiting = Metric {
            name: "p99.99 us from when due",
            shown: Shown::Median(0),
        };
        readings.push(Reading::new(1, waiting, micros(&self.waiting, 0.9999)));
        readings
    }

    /// Adds both kinds of call to the curves.
    pub(super) fn add_to(
        &self,
        peer: &'static str,
        curves: &mut BTreeMap<(&'static str, &'static str), Histogram<u64>>,
    ) {
        for (operation, histogram) in [("get", &self.get), ("insert", &self.insert)] {
            curves
                .entry((peer, operation))
                .or_insert_with(tail::histogram)
                .add(histogram)
                .expect("both have the same bounds");
        }
    }
}
