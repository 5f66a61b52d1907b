//! The statistics of a cache, exported to Prometheus and to the `metrics` crate.
//!
//! `Stats::iter` gives each number with its name, its kind and its value. So an exporter knows no
//! names, and shows what a later version adds. All numbers only grow while the cache lives, which
//! is what a counter of Prometheus has to do; their changes over time are its business.
//!
//! `page` writes the text that Prometheus scrapes. `publish` hands the same numbers to the recorder
//! of the `metrics` crate that the program has installed. Here it is the one that `metrics-util`
//! has for tests, so that this program can compare what arrived with what the cache says.
//!
//! Run: `cargo run -p wheelhouse-examples --example metrics`
//!
//! Expect: the page of a cache, at once. It is checked; the program panics if a count is missing.

use std::fmt::Write;
use std::time::Duration;

use metrics::counter;
use metrics_util::debugging::{DebugValue, DebuggingRecorder};
use wheelhouse::{Cache, ManualTicker, RemovalCause, StatValue, expiry};

/// The statistics of a cache in the text format of Prometheus.
fn page(cache: &Cache<u64, u64>) -> String {
    let (mut page, mut family) = (String::new(), String::new());
    for stat in &cache.stats() {
        let cause = stat
            .cause
            .map_or(String::new(), |c| format!("{{cause=\"{c}\"}}"));
        let (kind, unit) = match stat.value {
            StatValue::Count(_) => ("counter", "_total"),
            StatValue::Time(_) => ("counter", "_seconds_total"),
            _ => ("histogram", "_seconds"),
        };
        let name = format!("cache_{}{unit}", stat.name);
        if name != family {
            _ = writeln!(page, "# TYPE {name} {kind}");
        }
        _ = match stat.value {
            StatValue::Count(count) => writeln!(page, "{name}{cause} {count}"),
            StatValue::Time(time) => writeln!(page, "{name}{cause} {}", time.as_secs_f64()),
            StatValue::Buckets { below, count } => {
                for (edge, below) in below {
                    _ = writeln!(
                        page,
                        "{name}_bucket{{le=\"{}\"}} {below}",
                        edge.as_secs_f64()
                    );
                }
                writeln!(
                    page,
                    "{name}_bucket{{le=\"+Inf\"}} {count}\n{name}_count {count}"
                )
            }
            _ => Ok(()),
        };
        family = name;
    }
    page
}

/// Hands the counts and times to the recorder of the `metrics` crate; the times in nanoseconds.
fn publish(cache: &Cache<u64, u64>) {
    for stat in &cache.stats() {
        let cause = stat.cause.map_or(String::new(), |cause| cause.to_string());
        let value = match stat.value {
            StatValue::Count(count) => count,
            StatValue::Time(time) => u64::try_from(time.as_nanos()).unwrap_or(u64::MAX),
            _ => continue,
        };
        counter!(format!("cache_{}", stat.name), "cause" => cause).absolute(value);
    }
}

fn main() {
    let recorder = DebuggingRecorder::new();
    let arrived = recorder.snapshotter();
    recorder.install().expect("no other recorder is installed");

    let ticker = ManualTicker::new();
    let cache: Cache<u64, u64> = Cache::builder()
        .max_capacity(1_000)
        .expire_after(expiry::writing(|key: &u64, _: &u64| {
            Some(Duration::from_millis(500 + key % 2_000))
        }))
        .ticker(ticker.clone())
        .record_stats()
        .build();
    for round in 0..10 {
        for request in 0..2_000_u64 {
            let key = request * request % (1_500 + round);
            if cache.get(&key).is_none() {
                cache.insert(key, key * key);
            }
        }
        ticker.advance(Duration::from_millis(300));
        cache.run_pending_tasks();
        publish(&cache);
    }

    let page = page(&cache);
    print!("{page}");
    let stats = cache.stats();
    let expired = stats.removals(RemovalCause::Expired);
    let late = stats.expired_by_maintenance();
    assert!(expired > 0 && late > 0 && stats.hits() > 0);
    for line in [
        format!("cache_hits_total {}", stats.hits()),
        format!("cache_removals_total{{cause=\"expired\"}} {expired}"),
        format!("cache_expiry_lateness_seconds_bucket{{le=\"+Inf\"}} {late}"),
    ] {
        assert!(page.lines().any(|shown| shown == line), "{line} is missing");
    }
    let families = page.matches("# TYPE cache_removals_total").count();
    assert_eq!(families, 1, "a family has one type");
    let hits = arrived
        .snapshot()
        .into_vec()
        .into_iter()
        .find_map(|(key, _, _, value)| {
            let DebugValue::Counter(count) = value else {
                return None;
            };
            (key.key().name() == "cache_hits").then_some(count)
        });
    assert_eq!(hits, Some(stats.hits()));
}
