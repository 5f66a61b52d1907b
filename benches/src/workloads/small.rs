//! Small caches under several threads: how far beyond the bound they are at any moment, how many
//! values are alive, and what an operation costs.

use super::prelude::*;

/// Entries beyond the bound, and values that were made and not yet dropped, over all samples.
const SAMPLED: [[Metric; 2]; 2] = [
    [
        Metric::median("over the bound, median"),
        Metric::worst("over the bound, max"),
    ],
    [
        Metric::median("values alive, median"),
        Metric::worst("values alive, max"),
    ],
];

const PAUSE: Duration = Duration::from_micros(100);

/// What is done to a cache.
#[derive(Clone, Copy)]
enum Workload {
    /// Each key is read, and inserted on a miss: of a hundred times as many as there is room for.
    ReadThrough,
    NewKeys,
}

impl Workload {
    fn how(self) -> &'static str {
        match self {
            Workload::ReadThrough => "get, then insert on a miss",
            Workload::NewKeys => "new keys",
        }
    }

    /// Does it to a cache of this many entries, by two functions.
    fn run(
        self,
        cpu: bool,
        length: usize,
        threads: usize,
        capacity: u64,
        has: impl Fn(&u64) -> bool + Sync,
        insert: impl Fn(u64) + Sync,
    ) -> Reading {
        let new = |worker| keys::new_keys(worker, 0, length).collect();
        let streams: Vec<Vec<u64>> = match self {
            Workload::ReadThrough => keys::zipf_streams(100 * capacity as usize, length, threads),
            Workload::NewKeys => (0..threads).map(new).collect(),
        };
        let run = |worker: usize| {
            for key in &streams[worker] {
                if matches!(self, Workload::NewKeys) || !has(key) {
                    insert(*key);
                }
            }
            0
        };
        timed(cpu, threads, length, |_| (), run).0
    }
}

pub(super) fn run(bench: Bench<'_>) {
    let (length, pause) = (bench.size(500_000, 150_000), PAUSE.as_micros());
    let about = format!(
        "{length} operations of each thread; a thread beside them counts every {pause} us or so"
    );
    let workloads = [(100, 2), (1_000, 4)].into_iter();
    let workloads = workloads.flat_map(|(capacity, threads)| {
        [Workload::ReadThrough, Workload::NewKeys].map(|workload| {
            let how = workload.how();
            let name = format!("{capacity} entries, {threads} threads, {how}");
            (name, (capacity, threads, workload))
        })
    });
    bench.race(&about, workloads, 3, &Bounds(length));
    let about =
        "u64 -> u64, from empty; a hundred times as many keys as there is room for, or all new";
    let length = bench.size(250_000, 100_000);
    let variant = |workload: Workload| (format!("10,000 entries, {}", workload.how()), workload);
    let workloads = [Workload::ReadThrough, Workload::NewKeys].map(variant);
    bench.race(about, workloads, 3, &Speed(length));
}

/// With the number of operations of each thread.
struct Bounds(usize);

impl Race<u64, Arc<()>, (u64, usize, Workload)> for Bounds {
    fn round<P: Peer<u64, Arc<()>>>(
        &self,
        setup: &Setup,
        (capacity, threads, workload): (u64, usize, Workload),
    ) -> Outcome {
        P::EVICTS?;
        // Each value is a clone of this, which counts them.
        let root = Arc::new(());
        let lifetime = |_: &u64, _: &Arc<()>| Duration::from_secs(3600);
        let plan = plan_of(Expiring::Never, capacity as usize, Some(capacity), lifetime);
        let cache = P::build(&plan)?;
        let watch = |samples: &mut [Vec<f64>; 2]| {
            if let Some(entries) = cache.entries() {
                samples[0].push(entries.saturating_sub(capacity) as f64);
            }
            samples[1].push((Arc::strong_count(&root) - 1) as f64);
            thread::sleep(PAUSE);
        };
        let has = |key: &u64| cache.look(key, |_| ()).is_some();
        let insert = |key| cache.insert(key, Arc::clone(&root));
        let run = || workload.run(setup.cpu, self.0, threads, capacity, has, insert);
        let samples = watched(<[Vec<f64>; 2]>::default(), watch, run).1;
        let mut readings = Vec::new();
        for (mut samples, [median, max]) in samples.into_iter().zip(SAMPLED) {
            samples.sort_unstable_by(f64::total_cmp);
            if let Some(most) = samples.last() {
                readings.extend([median.of(samples[samples.len() / 2]), max.of(*most)]);
            }
        }
        Ok(readings)
    }
}

/// With the number of operations of each thread.
struct Speed(usize);

impl Race<u64, u64, Workload> for Speed {
    fn round<P: Peer>(&self, setup: &Setup, workload: Workload) -> Outcome {
        P::EVICTS?;
        let mut readings = Vec::new();
        for threads in [2, 8] {
            let cache = P::build(&plan(Expiring::Never, 10_000, Some(10_000)))?;
            let has = |key: &u64| cache.get(key).is_some();
            let insert = |key| cache.insert(key, keys::value(key));
            readings.push(workload.run(setup.cpu, self.0, threads, 10_000, has, insert));
        }
        Ok(readings)
    }
}
