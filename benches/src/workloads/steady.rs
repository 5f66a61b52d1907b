//! One operation over and over in a filled cache that has room for more: hits, replacements, and
//! mixes of both.

use super::prelude::*;

const STREAM: usize = 1 << 17;

/// What is done, with which keys, and how they are drawn.
struct Steady<'a, O> {
    bench: Bench<'a>,
    about: String,
    operation: O,
    resident: usize,
    threads: Vec<usize>,
    streams: Vec<Vec<u64>>,
    passes: usize,
}

impl<K: Key, V: Value, O: Operation<K, V>> Race<K, V> for Steady<'_, O> {
    fn also(heat: &mut Heat<'_, Self, Expiring>) {
        O::also(heat);
    }

    fn round<P: Peer<K, V>>(&self, setup: &Setup, expiring: Expiring) -> Outcome {
        let (operation, streams) = (&self.operation, &self.streams);
        let (resident, passes) = (self.resident, self.passes);
        let capacity = Some(resident as u64 * 4);
        let cache = P::build(&plan_of(expiring, resident, capacity, O::LIFETIME))?;
        let ranks = 0..resident as u32;
        fill(&cache, ranks.map(|rank| operation.entry(rank)))?;
        let mut readings = Vec::new();
        for &threads in &self.threads {
            let operations = passes * streams[0].len();
            let pass = |stream: &[u64]| operation.pass(&cache, stream);
            let warm = |worker: usize| {
                let stream = &streams[worker];
                pass(&stream[..stream.len() / 4]);
            };
            let run = |worker: usize| (0..passes).map(|_| pass(&streams[worker])).sum();
            let (reading, right) = timed(setup.cpu, threads, operations, warm, run);
            expect("right answers", right, (threads * operations) as u64)?;
            readings.push(reading);
        }
        expect_len(&cache, resident as u64)?;
        Ok(readings)
    }
}

/// Over `resident` keys, in the order of `ranks`, by no more workers than cores.
fn over<'a, K: Key, V: Value, O: Operation<K, V>>(
    bench: Bench<'a>,
    about: String,
    operation: O,
    resident: usize,
    ranks: impl Fn(usize) -> Vec<u32>,
) -> Steady<'a, O> {
    let items = |worker| ranks(worker).into_iter().map(O::item).collect();
    Steady {
        bench,
        about,
        operation,
        resident,
        threads: bench.threads_within_cores(),
        streams: (0..bench.most_threads()).map(items).collect(),
        passes: bench.size(O::PASSES, 1),
    }
}

/// Over the small set of keys, drawn by Zipf's law.
fn zipf<'a, K: Key, V: Value, O: Operation<K, V>>(
    bench: Bench<'a>,
    about: &str,
    operation: O,
) -> Steady<'a, O> {
    let ranks = |worker| keys::zipf_ranks(keys::SMALL, STREAM, worker);
    let about = format!("{about}; {} keys, Zipf {}", keys::SMALL, keys::SKEW);
    over(bench, about, operation, keys::SMALL, ranks)
}

impl<O> Steady<'_, O> {
    /// By as many workers as were asked for, even if there are fewer cores.
    fn by_all(mut self) -> Self {
        self.threads = self.bench.all_threads();
        self
    }

    fn run<K: Key, V: Value>(self)
    where
        O: Operation<K, V>,
    {
        // To fill a large cache takes longer than to read it.
        let is_large = self.resident > keys::SMALL;
        let rounds = if is_large { 3 } else { usize::MAX };
        let variants = by_expiring(O::VARIANTS);
        self.bench.race(&self.about, variants, rounds, &self);
    }
}

pub(super) fn hit_zipf(bench: Bench<'_>) {
    let about = "u64 -> u64, every read hits, room for four times as many entries";
    zipf(bench, about, Get).by_all().run();
}

pub(super) fn hit_1k(bench: Bench<'_>) {
    hit_equally(bench, 1_000);
}

pub(super) fn hit_100k(bench: Bench<'_>) {
    hit_equally(bench, 100_000);
}

pub(super) fn hit_uniform(bench: Bench<'_>) {
    let resident = bench.size(1_000_000, 50_000);
    hit_equally(bench, resident);
}

/// Every read hits one of so many keys, all equally likely.
fn hit_equally(bench: Bench<'_>, resident: usize) {
    let ranks = |worker| keys::uniform_ranks(resident, STREAM * 2, worker);
    let about = format!("u64 -> u64, every read hits; {resident} keys, all equally likely");
    let mut hit = over(bench, about, Get, resident, ranks);
    hit.passes = 1;
    hit.run();
}

pub(super) fn hit_one(bench: Bench<'_>) {
    let count = keys::SMALL;
    let about = format!("u64 -> u64, every read hits the same key, of {count} present");
    over(bench, about, Get, count, |_| vec![0; STREAM]).run();
}

pub(super) fn replace(bench: Bench<'_>) {
    let about = "u64 -> u64, inserts of keys that are there";
    zipf(bench, about, Writes { reads: false }).by_all().run();
}

pub(super) fn mix(bench: Bench<'_>) {
    let about = "u64 -> u64, every fourth operation replaces, the others read";
    zipf(bench, about, Writes { reads: true }).by_all().run();
}

/// What is done with each rank of a stream.
trait Operation<K: Key = u64, V: Value = u64>: Sync {
    const VARIANTS: &'static [Expiring] = &[Expiring::Never, Expiring::Create];
    /// Longer than any run.
    const LIFETIME: Lifetime<K, V>;
    /// How often a stream is run through in a turn.
    const PASSES: usize = 4;

    fn entry(&self, rank: u32) -> (K, V);

    /// What a stream has in place of a rank.
    fn item(rank: u32) -> u64 {
        keys::key(rank.into())
    }

    /// The measured loop; counts right answers.
    fn pass<P: Peer<K, V>>(&self, cache: &P, stream: &[u64]) -> u64;

    fn also<R: Race<K, V>>(_: &mut Heat<'_, R, Expiring>) {}
}

struct Get;

impl Operation for Get {
    const VARIANTS: &'static [Expiring] = &[Expiring::Never, Expiring::Create, Expiring::Access];
    const LIFETIME: Lifetime<u64, u64> = hours;

    fn entry(&self, rank: u32) -> (u64, u64) {
        keys::entry(rank.into())
    }

    fn pass<P: Peer>(&self, cache: &P, stream: &[u64]) -> u64 {
        hits(cache, stream)
    }

    fn also<R: Race>(heat: &mut Heat<'_, R, Expiring>) {
        match heat.variant {
            Expiring::Create => {
                heat.enter::<_, _, Wheelhouse<u64, u64, READS_AS_TOLD>>();
                heat.enter::<_, _, Wheelhouse<u64, u64, WRITES_ONLY>>();
                heat.enter::<_, _, Wheelhouse<u64, u64, READY>>();
                heat.enter::<_, _, Wheelhouse<u64, u64, BATCHES>>();
                heat.enter::<_, _, Wheelhouse<u64, u64, RECENT>>();
            }
            Expiring::Access => heat.enter::<_, _, Wheelhouse<u64, u64, IDLE_LIMIT>>(),
            Expiring::Never | Expiring::Write => (),
        }
    }
}

/// Writes, and three reads before each if `reads`.
struct Writes {
    reads: bool,
}

impl Operation for Writes {
    const VARIANTS: &'static [Expiring] = &[Expiring::Never, Expiring::Write];
    const LIFETIME: Lifetime<u64, u64> = hours;
    const PASSES: usize = 2;

    fn entry(&self, rank: u32) -> (u64, u64) {
        keys::entry(rank.into())
    }

    /// A write counts as right.
    #[inline(never)]
    fn pass<P: Peer>(&self, cache: &P, stream: &[u64]) -> u64 {
        let mut right = stream.len() as u64;
        if self.reads {
            for four in stream.chunks_exact(4) {
                for key in &four[..3] {
                    right -= u64::from(cache.get(key) != Some(keys::value(*key)));
                }
                cache.insert(four[3], keys::value(four[3]));
            }
        } else {
            inserts(cache, stream);
        }
        right
    }
}
