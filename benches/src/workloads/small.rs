//! Small caches under several threads: how far beyond the bound they are at any moment, how many
//! values are alive, and what an operation costs.

use super::prelude::*;

/// Entries beyond the bound, over all samples.
const OVER: [Metric; 2] = [
    Metric::median("over the bound, median"),
    Metric::worst("over the bound, max"),
];
/// Values that were made and not yet dropped, over all samples.
const ALIVE: [Metric; 2] = [
    Metric::median("values alive, median"),
    Metric::worst("values alive, max"),
];

/// Time between two samples.
const PAUSE: Duration = Duration::from_micros(100);

/// What is done to a cache.
#[derive(Clone, Copy, Debug)]
struct Load {
    /// Entries allowed.
    capacity: u64,
    /// Workers.
    threads: usize,
    /// Whether all keys are new; else each key is read, and inserted on a miss.
    new_keys: bool,
}

fn load(capacity: u64, threads: usize, new_keys: bool) -> Load {
    Load {
        capacity,
        threads,
        new_keys,
    }
}

fn how(new_keys: bool) -> &'static str {
    ["get, then insert on a miss", "new keys"][usize::from(new_keys)]
}

impl Load {
    /// As the tables call it.
    fn label(&self) -> String {
        let (capacity, threads, how) = (self.capacity, self.threads, how(self.new_keys));
        format!("{capacity} entries, {threads} threads, {how}")
    }

    fn streams(&self, length: usize) -> Vec<Vec<u64>> {
        if self.new_keys {
            let stream = |worker| keys::new_keys(worker, 0, length).collect();
            return (0..self.threads).map(stream).collect();
        }
        // A hundred times as many keys as there is room for.
        keys::zipf_streams(100 * self.capacity as usize, length, self.threads)
    }

    /// Does it to a cache, by two functions.
    fn run(
        &self,
        cpu: bool,
        length: usize,
        has: impl Fn(&u64) -> bool + Sync,
        insert: impl Fn(u64) + Sync,
    ) -> Reading {
        let streams = self.streams(length);
        let run = |worker: usize| {
            for key in &streams[worker] {
                if self.new_keys || !has(key) {
                    insert(*key);
                }
            }
            0
        };
        timed(cpu, self.threads, length, |_| (), run).reading()
    }
}

/// Runs all loads.
pub(super) fn run(bench: Bench<'_>) {
    let bounds = Bounds(bench.size(500_000, 150_000));
    let about = format!(
        "{} operations of each thread; a thread beside them counts every {} us or so",
        bounds.0,
        PAUSE.as_micros()
    );
    let loads = [(100, 2), (1_000, 4)]
        .into_iter()
        .flat_map(|(capacity, threads)| {
            [false, true].map(|new_keys| load(capacity, threads, new_keys))
        });
    let variants = loads.map(|load| (load.label(), load));
    bench.race(&about, variants, 3, &bounds);
    let about =
        "u64 -> u64, from empty; a hundred times as many keys as there is room for, or all new";
    let variant = |new_keys| (format!("10,000 entries, {}", how(new_keys)), new_keys);
    let speed = Speed(bench.size(250_000, 100_000));
    bench.race(about, [false, true].map(variant), 3, &speed);
}

struct Bounds(usize);

impl Race<u64, Arc<()>> for Bounds {
    type Variant = Load;

    fn round<P: Peer<u64, Arc<()>>>(&self, setup: &Setup, load: Load) -> Outcome {
        sits_out::<P, Arc<()>>()?;
        // Each value is a clone of this, which counts them.
        let root = Arc::new(());
        let capacity = load.capacity;
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
        let run = || load.run(setup.cpu, self.0, has, insert);
        let samples = watched(<[Vec<f64>; 2]>::default(), watch, run).1;
        let mut readings = Vec::new();
        for (mut samples, [median, max]) in samples.into_iter().zip([OVER, ALIVE]) {
            samples.sort_unstable_by(f64::total_cmp);
            if let Some(most) = samples.last() {
                readings.extend([median.of(samples[samples.len() / 2]), max.of(*most)]);
            }
        }
        Ok(readings)
    }
}

struct Speed(usize);

impl Race for Speed {
    type Variant = bool;

    fn round<P: Peer>(&self, setup: &Setup, new_keys: bool) -> Outcome {
        sits_out::<P, u64>()?;
        let mut readings = Vec::new();
        for threads in [2, 8] {
            let load = load(10_000, threads, new_keys);
            let cache = P::build(&plan(Expiring::Never, 10_000, Some(load.capacity)))?;
            let has = |key: &u64| cache.get(key).is_some();
            let insert = |key| cache.insert(key, keys::value(key));
            readings.push(load.run(setup.cpu, self.0, has, insert));
        }
        Ok(readings)
    }
}

fn sits_out<P: Peer<u64, V>, V: Value>() -> Result<(), Problem> {
    let why = match P::CARD.role {
        Role::Floor => Some("no bound"),
        _ => P::SITS_OUT_EVICTION,
    };
    why.map_or(Ok(()), |why| Err(Problem::Unsupported(why)))
}
