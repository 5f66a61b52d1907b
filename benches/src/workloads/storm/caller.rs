//! One caller at a steady pace, each call timed; and no cache, which shows what the machine itself
//! does to a caller.

use std::hint::{black_box, spin_loop};

use crate::workloads::prelude::*;

/// A value that belongs to no storm: lives for an hour.
pub(super) const RESIDENT: u64 = u64::MAX;

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
    cpu::bind(0);
    let mut calls = Calls {
        get: tail::histogram(),
        insert: tail::histogram(),
        waiting: tail::histogram(),
        cpu: Duration::ZERO,
    };
    let used = cpu::thread_time();
    let mut due = clock::nanos();
    for (number, key) in stream.iter().cycle().enumerate() {
        while clock::nanos() < due {
            spin_loop();
        }
        let began = clock::nanos();
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
    calls.cpu = cpu::thread_time() - used;
    calls
}

/// Quantiles of one kind of call.
macro_rules! quantiles {
    ($call:literal) => {
        [
            (Metric::median(concat!($call, " p50 us")), 0.5),
            (Metric::median(concat!($call, " p99 us")), 0.99),
            (Metric::median(concat!($call, " p99.99 us")), 0.9999),
            (Metric::worst(concat!($call, " max us")), 1.0),
        ]
    };
}

impl Calls {
    /// As readings: what the bars ask for, then percentiles of both kinds of call.
    pub(super) fn readings(&self) -> Vec<Reading> {
        let get = tail::readings(&self.get, 1e3, &quantiles!("get"));
        let insert = tail::readings(&self.insert, 1e3, &quantiles!("insert"));
        let worse = |place: usize| get[place].value.max(insert[place].value);
        let worst = vec![
            Metric::worst("longest call us").of(worse(3)),
            Metric::median("p99.99 us").of(worse(2)),
        ];
        let from_due = [(Metric::median("p99.99 us from when due"), 0.9999)];
        let from_due = tail::readings(&self.waiting, 1e3, &from_due);
        [worst, get, insert, from_due].concat()
    }
}

/// Answers every read with the resident value. Each call spends this many nanoseconds: the longer a
/// call takes, the more often an interruption of the machine's own falls into one.
pub(super) struct Nothing<const NANOS: u64>;

impl<const NANOS: u64> Nothing<NANOS> {
    fn spend<T>(&self, on: T) {
        black_box(on);
        let end = clock::nanos() + NANOS;
        while NANOS > 0 && clock::nanos() < end {
            spin_loop();
        }
    }
}

impl<const NANOS: u64> Peer for Nothing<NANOS> {
    const CARD: Card = Card::floor("no cache");

    fn build(plan: &Plan) -> Result<Self, Problem> {
        plan.without_listener("nothing is ever removed")?;
        Ok(Self)
    }

    fn get(&self, key: &u64) -> Option<u64> {
        self.spend(key);
        Some(RESIDENT)
    }

    fn insert(&self, key: u64, value: u64) {
        self.spend((key, value));
    }

    fn remove(&self, key: &u64) {
        self.spend(key);
    }
}
