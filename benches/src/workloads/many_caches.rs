//! Many caches used by one thread: what a `get` costs in turns over all of them, and the first
//! insert into each.

use super::prelude::*;

/// Numbers of caches, and what a `get` costs in turns over as many.
const GETS: [(usize, Metric); 4] = [
    (10, Metric::ranked("ns/get, 10 caches")),
    (40, Metric::ranked("ns/get, 40 caches")),
    (400, Metric::ranked("ns/get, 400 caches")),
    (4_000, Metric::ranked("ns/get, 4,000 caches")),
];

/// Entries of each cache.
const ENTRIES: u64 = 8;

struct ManyCaches;

pub(super) fn run(bench: Bench<'_>) {
    let variants = [("in turns".into(), Expiring::Never)];
    let about = "u64 -> u64, 8 entries in each cache, room for 100, every read hits; 1 thread";
    bench.race(about, variants, 3, &ManyCaches);
}

impl Race for ManyCaches {
    fn round<P: Peer>(&self, setup: &Setup, _: Expiring) -> Outcome {
        if P::CARD.name == "stretto" {
            return Err(Problem::Unsupported("a thread for each cache"));
        }
        let most = setup.size(4_000, 400);
        let mut readings = Vec::new();
        for (count, metric) in GETS.into_iter().filter(|(count, _)| *count <= most) {
            // A thread of its own: it knows these caches and no others.
            let (first, get) = on_a_core(|| measure::<P>(setup, count))?;
            readings.push(metric.of(get));
            if count == GETS[3].0 {
                let first = Metric::median("ns/first insert into each of 4,000").of(first);
                readings.push(first);
            }
        }
        Ok(readings)
    }
}

/// Nanoseconds of a first insert and of a `get`.
fn measure<P: Peer>(setup: &Setup, count: usize) -> Result<(f64, f64), Problem> {
    let plan = plan(Expiring::Never, ENTRIES as usize, Some(100));
    let caches: Result<Vec<P>, Problem> = (0..count).map(|_| P::build(&plan)).collect();
    let caches = caches?;
    let insert = |rank: u64| {
        let (key, value) = keys::entry(rank);
        for cache in &caches {
            cache.insert(key, value);
        }
    };
    let (first, ()) = timed_here(setup.cpu, count, || insert(0));
    (1..ENTRIES).for_each(insert);
    caches.iter().for_each(Peer::settle);
    let turns = setup.size(400_000, 40_000) / count;
    let read = |turns: usize| {
        let mut right = 0;
        for turn in 0..turns as u64 {
            let (key, value) = keys::entry(turn % ENTRIES);
            for cache in &caches {
                right += u64::from(cache.get(&key) == Some(value));
            }
        }
        right
    };
    read(turns.div_ceil(8));
    let (get, right) = timed_here(setup.cpu, turns * count, || read(turns));
    expect("right answers", right, (turns * count) as u64)?;
    Ok((first, get))
}
