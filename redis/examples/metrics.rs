//! The counts of a near cache for the crate `metrics`, and so for each of its exporters.
//!
//! ```sh
//! cargo run -p wheelhouse-redis --example metrics
//! ```
//!
//! A service installs an exporter (`metrics-exporter-prometheus`, for example) and calls `export`
//! every few seconds. Here a recorder prints what it is told.

#[path = "../tests/support/mod.rs"]
#[allow(unreachable_pub, reason = "shared with the tests")]
mod support;

use metrics::{
    Counter, CounterFn, Gauge, Histogram, Key, KeyName, Metadata, Recorder, SharedString, Unit,
};
use std::sync::Arc;
use support::server::{Server, installed};
use wheelhouse::Cache;
use wheelhouse_redis::NearCache;

/// Hands all counts and gauges over. Counts only grow, as those of an exporter must.
fn export(near: &NearCache<String, String>) {
    for (name, count) in near.stats().list() {
        match name {
            "connected" | "local_entries" => {
                metrics::gauge!(format!("near_cache_{name}")).set(count as f64);
            }
            _ => metrics::counter!(format!("near_cache_{name}_total")).absolute(count),
        }
    }
}

#[tokio::main]
async fn main() {
    let Some(program) = installed().into_iter().next() else {
        // `installed` has said what to install.
        return;
    };
    metrics::set_global_recorder(Printer).expect("no other recorder is installed");
    let server = Server::start(&program, &[]).await;
    let near = NearCache::<String, String>::builder(support::client(server.port))
        .local(Cache::builder().max_capacity(1_000).record_stats())
        .connect()
        .await
        .unwrap();
    near.set("user:1", "Ada".to_string(), None).await.unwrap();
    for _ in 0..10 {
        near.get("user:1").await.unwrap();
    }
    export(&near);
    near.close().await;
}

/// A recorder that prints counters.
struct Printer;

struct Printed(String);

impl CounterFn for Printed {
    fn increment(&self, by: u64) {
        println!("{} +{by}", self.0);
    }

    fn absolute(&self, count: u64) {
        println!("{} {count}", self.0);
    }
}

impl Recorder for Printer {
    fn describe_counter(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
    fn describe_gauge(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
    fn describe_histogram(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn register_counter(&self, key: &Key, _: &Metadata<'_>) -> Counter {
        Counter::from_arc(Arc::new(Printed(key.name().to_string())))
    }

    fn register_gauge(&self, _: &Key, _: &Metadata<'_>) -> Gauge {
        Gauge::noop()
    }

    fn register_histogram(&self, _: &Key, _: &Metadata<'_>) -> Histogram {
        Histogram::noop()
    }
}
