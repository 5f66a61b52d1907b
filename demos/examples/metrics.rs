//! The statistics of a cache, exported through the `metrics` crate.
//!
//! `Stats` is a snapshot, and the difference of two is what happened between them: what a counter
//! is incremented by. So an exporter keeps the last snapshot, and is called now and then, by a
//! timer or before each scrape. What it needs of the cache is a handle, which is a reference count.
//!
//! Any recorder does: install one for Prometheus, StatsD or what you have. Here it is the one that
//! `metrics-util` has for tests, so that this program can print what arrived, and compare it with
//! what the cache says.
//!
//! Run: `cargo run -p wheelhouse-examples --example metrics`
//!
//! Expect: a list of counters and gauges, at once. They are checked; the program panics if a count
//! got lost.

use std::collections::BTreeMap;
use std::time::Duration;

use metrics::{counter, describe_counter, describe_gauge, gauge};
use metrics_util::debugging::{DebugValue, DebuggingRecorder};
use wheelhouse::{Cache, ManualTicker, RemovalCause, Stats, expiry};

/// Brings the statistics of one cache to whatever recorder is installed.
struct Exporter {
    cache: Cache<u64, u64>,
    name: String,
    last: Stats,
}

impl Exporter {
    fn new(cache: &Cache<u64, u64>) -> Self {
        describe_counter!("cache_requests_total", "look-ups, by result");
        describe_counter!("cache_writes_total", "values that came in, by kind");
        describe_counter!("cache_removals_total", "pairs that left, by cause");
        describe_counter!("cache_removed_weight_total", "their weight, by cause");
        describe_counter!(
            "cache_expired_found_total",
            "expired pairs, by what found them"
        );
        describe_counter!(
            "cache_listener_panics_total",
            "panics of the removal listener"
        );
        describe_counter!("cache_maintenance_passes_total", "maintenance passes");
        describe_counter!("cache_maintenance_nanoseconds_total", "their time");
        describe_gauge!("cache_entries", "entries stored");
        describe_gauge!("cache_weight", "their weight");
        describe_gauge!(
            "cache_expiry_lateness_seconds",
            "removal against deadline, by quantile"
        );
        Self {
            cache: cache.clone(),
            name: cache.name().unwrap_or("unnamed").to_owned(),
            last: Stats::default(),
        }
    }

    /// Publishes what happened since the last call.
    fn publish(&mut self) {
        let now = self.cache.stats();
        let new = now.clone() - std::mem::replace(&mut self.last, now);
        let count = |metric: &'static str, label: &'static str, value: &'static str, by: u64| {
            counter!(metric, "cache" => self.name.clone(), label => value).increment(by);
        };
        count("cache_requests_total", "result", "hit", new.hits());
        count("cache_requests_total", "result", "miss", new.misses());
        count("cache_writes_total", "kind", "insert", new.insertions());
        count("cache_writes_total", "kind", "update", new.updates());
        for (cause, label) in [
            (RemovalCause::Expired, "expired"),
            (RemovalCause::Explicit, "explicit"),
            (RemovalCause::Replaced, "replaced"),
            (RemovalCause::Size, "size"),
        ] {
            count("cache_removals_total", "cause", label, new.removals(cause));
            let weight = new.removed_weight(cause);
            count("cache_removed_weight_total", "cause", label, weight);
        }
        let found = new.expired_by_maintenance();
        let met = new.removals(RemovalCause::Expired) - found;
        count("cache_expired_found_total", "by", "maintenance", found);
        count("cache_expired_found_total", "by", "writer", met);
        let total = |metric: &'static str, by: u64| {
            counter!(metric, "cache" => self.name.clone()).increment(by);
        };
        total("cache_listener_panics_total", new.listener_panics());
        total("cache_maintenance_passes_total", new.maintenance_passes());
        let nanos = u64::try_from(new.maintenance_time().as_nanos()).unwrap_or(u64::MAX);
        total("cache_maintenance_nanoseconds_total", nanos);

        let cache = || self.name.clone();
        gauge!("cache_entries", "cache" => cache()).set(self.cache.entry_count() as f64);
        gauge!("cache_weight", "cache" => cache()).set(self.cache.weighted_size() as f64);
        // Of this interval alone; an interval in which nothing expired leaves the gauge as it is.
        for (quantile, label) in [(0.5, "0.5"), (0.99, "0.99"), (1.0, "1")] {
            if let Some(late) = new.expiry_lateness(quantile) {
                gauge!("cache_expiry_lateness_seconds", "cache" => cache(), "quantile" => label)
                    .set(late.as_secs_f64());
            }
        }
    }
}

fn main() {
    let recorder = DebuggingRecorder::new();
    let arrived = recorder.snapshotter();
    recorder.install().expect("no other recorder is installed");

    let ticker = ManualTicker::new();
    let cache: Cache<u64, u64> = Cache::builder()
        .name("squares")
        .max_capacity(1_000)
        .expire_after(expiry::writing(|key: &u64, _: &u64| {
            Some(Duration::from_millis(500 + key % 2_000))
        }))
        .ticker(ticker.clone())
        .record_stats()
        .build();
    let mut exporter = Exporter::new(&cache);
    let mut totals: BTreeMap<String, u64> = BTreeMap::new();
    let mut gauges: BTreeMap<String, f64> = BTreeMap::new();
    for round in 0..10 {
        for request in 0..2_000_u64 {
            let key = request * request % (1_500 + round);
            if cache.get(&key).is_none() {
                cache.insert(key, key * key);
            }
        }
        ticker.advance(Duration::from_millis(300));
        cache.run_pending_tasks();
        exporter.publish();
        // What a scrape would see; this recorder gives out what came in since it was last asked.
        for (key, _, _, value) in arrived.snapshot().into_vec() {
            let labels = key.key().labels();
            let labels: Vec<String> = labels
                .map(|label| format!("{}=\"{}\"", label.key(), label.value()))
                .collect();
            let name = format!("{}{{{}}}", key.key().name(), labels.join(","));
            match value {
                DebugValue::Counter(by) => *totals.entry(name).or_default() += by,
                DebugValue::Gauge(at) => drop(gauges.insert(name, at.into_inner())),
                DebugValue::Histogram(_) => unreachable!("the exporter has none"),
            }
        }
    }

    for (name, total) in &totals {
        println!("{name} {total}");
    }
    for (name, value) in &gauges {
        println!("{name} {value}");
    }
    let stats = cache.stats();
    let total = |name: &str, label: &str| totals[&format!("{name}{{cache=\"squares\",{label}}}")];
    assert_eq!(
        total("cache_requests_total", "result=\"hit\""),
        stats.hits()
    );
    assert_eq!(
        total("cache_requests_total", "result=\"miss\""),
        stats.misses()
    );
    let expired = total("cache_removals_total", "cause=\"expired\"");
    assert_eq!(expired, stats.removals(RemovalCause::Expired));
    assert!(expired > 0 && stats.hits() > 0);
    let found = total("cache_expired_found_total", "by=\"maintenance\"");
    assert_eq!(found, stats.expired_by_maintenance());
}
