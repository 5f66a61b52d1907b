//! What readers check and count.

use crate::support::Writer;
use hdrhistogram::Histogram;
use std::sync::Arc;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};
use wheelhouse_redis::NearCache;

/// A read is wrong if it returns what was outdated for longer than this.
const BOUND: Duration = Duration::from_secs(2);
/// A reader rests after this many reads, so that both nodes and the server share the cores.
const READS_IN_A_ROW: u64 = 2_000;

/// The versions of all keys, and when each was acknowledged.
pub(crate) struct Versions(Vec<Mutex<Vec<Instant>>>);

impl Versions {
    pub(crate) fn new(keys: u64) -> Self {
        Self((0..keys).map(|_| Mutex::default()).collect())
    }

    fn of(&self, key: u64) -> std::sync::MutexGuard<'_, Vec<Instant>> {
        self.0[key as usize].lock().unwrap()
    }

    /// The version that is written next; one writer writes a key.
    pub(crate) fn next(&self, key: u64) -> u64 {
        self.of(key).len() as u64 + 1
    }

    pub(crate) fn acknowledged(&self, key: u64) {
        self.of(key).push(Instant::now());
    }

    /// How long a version was outdated at a moment.
    fn staleness(&self, key: u64, version: u64, at: Instant) -> Duration {
        let next = self.of(key).get(version as usize).copied();
        next.map_or(Duration::ZERO, |next| at.saturating_duration_since(next))
    }
}

/// One near cache and what its readers saw.
pub(crate) struct Node {
    name: &'static str,
    pub(crate) near: NearCache<u64, u64>,
    failed: AtomicU64,
    /// The failed reads at the last row.
    failed_before: AtomicU64,
    wrong: AtomicU64,
    staleness: Mutex<Histogram<u64>>,
    /// The hits at the last row.
    hits: AtomicU64,
    /// The hits between the last two rows.
    last_hits: AtomicU64,
}

/// Staleness is in microseconds.
pub(crate) const HEADING: &str =
    "second node       hits  failed commands  stale p50 µs   p99 µs   max µs  wrong";

impl Node {
    pub(crate) fn new(name: &'static str, near: NearCache<u64, u64>) -> Self {
        Self {
            name,
            near,
            failed: AtomicU64::new(0),
            failed_before: AtomicU64::new(0),
            wrong: AtomicU64::new(0),
            staleness: Mutex::new(Histogram::new(3).unwrap()),
            hits: AtomicU64::new(0),
            last_hits: AtomicU64::new(0),
        }
    }

    pub(crate) fn wrong(&self) -> u64 {
        self.wrong.load(Ordering::Relaxed)
    }

    pub(crate) fn all_failed(&self) -> u64 {
        self.failed.load(Ordering::Relaxed)
    }

    /// The hits of the last second that has a row.
    pub(crate) fn hits_at_the_end(&self) -> u64 {
        self.last_hits.load(Ordering::Relaxed)
    }

    /// Reads all the time, and checks each answer: versions never go back, and none is served
    /// long after it was outdated.
    pub(crate) async fn read(
        self: Arc<Self>,
        versions: Arc<Versions>,
        done: Arc<AtomicBool>,
        seed: u64,
    ) {
        let mut seen = vec![0u64; versions.0.len()];
        let mut key = seed;
        while !done.load(Ordering::Relaxed) {
            for _ in 0..READS_IN_A_ROW {
                key = (key * 31 + 7) % seen.len() as u64;
                let begun = Instant::now();
                let version = match self.near.get(&key).await {
                    Ok(version) => version.unwrap_or(0),
                    Err(_) => {
                        self.failed.fetch_add(1, Ordering::Relaxed);
                        break;
                    }
                };
                let stale = versions.staleness(key, version, begun);
                let back = version < seen[key as usize];
                if back || stale > BOUND {
                    self.wrong.fetch_add(1, Ordering::Relaxed);
                }
                seen[key as usize] = version;
                if !stale.is_zero() {
                    let micros = stale.as_micros() as u64;
                    self.staleness
                        .lock()
                        .unwrap()
                        .record(micros.max(1))
                        .unwrap();
                }
            }
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }

    /// The row of the last second. Staleness is that of the reads that were not up to date.
    pub(crate) fn row(&self, second: u64, commands: u64) -> String {
        let all = self.near.stats().local().hits();
        let hits = all - self.hits.swap(all, Ordering::Relaxed);
        self.last_hits.store(hits, Ordering::Relaxed);
        let failed = self.all_failed();
        let failed = failed - self.failed_before.swap(failed, Ordering::Relaxed);
        let mut stale = self.staleness.lock().unwrap();
        let row = format!(
            "{second:>6} {:>4} {hits:>10} {failed:>7} {commands:>8} {:>13} {:>8} {:>8} {:>6}",
            self.name,
            stale.value_at_quantile(0.5),
            stale.value_at_quantile(0.99),
            stale.max(),
            self.wrong(),
        );
        stale.reset();
        row
    }
}

/// How many commands the server has executed.
pub(crate) async fn commands(writer: &mut Writer) -> u64 {
    let stats: String = writer.send(&["INFO", "stats"]).await;
    let count = stats
        .lines()
        .find_map(|line| line.strip_prefix("total_commands_processed:"));
    count
        .and_then(|count| count.trim().parse().ok())
        .unwrap_or(0)
}
