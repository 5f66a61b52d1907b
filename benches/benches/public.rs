//! Public operations one by one, by criterion: for watching a change, where the tables of the package compare peers.

use std::{hint::black_box, time::Duration};

use criterion::{BatchSize, Criterion, Throughput, criterion_group, criterion_main};
use wheelhouse::{Cache, ManualTicker, Scheduler, expiry};
use wheelhouse_bench::keys;

const RESIDENT: usize = keys::SMALL;

fn lifetime(key: &u64, _: &u64) -> Option<Duration> {
    Some(Duration::from_secs(3600 + key % 3600))
}

fn filled(cache: Cache<u64, u64>) -> Cache<u64, u64> {
    for rank in 0..RESIDENT as u64 {
        cache.insert(keys::key(rank), rank);
    }
    cache.run_pending_tasks();
    cache
}

fn plain() -> Cache<u64, u64> {
    filled(Cache::builder().build())
}

fn expiring() -> Cache<u64, u64> {
    filled(
        Cache::builder()
            .expire_after(expiry::writing(lifetime))
            .build(),
    )
}

fn coarse() -> Cache<u64, u64> {
    filled(
        Cache::builder()
            .expire_after(expiry::writing(lifetime))
            .coarse_reads(Duration::from_millis(10))
            .build(),
    )
}

fn extending() -> Cache<u64, u64> {
    filled(
        Cache::builder()
            .expire_after(expiry::accessing(lifetime))
            .build(),
    )
}

/// One key after the other, drawn before.
struct Keys {
    stream: Vec<u64>,
    at: usize,
}

impl Keys {
    fn zipf() -> Self {
        Self {
            stream: keys::keys_of(&keys::zipf_ranks(RESIDENT, 1 << 16, 0)),
            at: 0,
        }
    }

    fn next(&mut self) -> u64 {
        self.at = (self.at + 1) % self.stream.len();
        self.stream[self.at]
    }
}

fn reads(criterion: &mut Criterion) {
    for (variant, cache) in [
        ("plain", plain()),
        ("expiring", expiring()),
        ("expiring, coarse", coarse()),
        ("extending", extending()),
    ] {
        let mut group = criterion.benchmark_group(format!("read/{variant}"));
        let mut keys = Keys::zipf();
        group.bench_function("get", |bencher| bencher.iter(|| cache.get(&keys.next())));
        group.bench_function("get_ref", |bencher| {
            bencher.iter(|| cache.get_ref(&keys.next()).map(|entry| *entry))
        });
        group.bench_function("peek_ref", |bencher| {
            bencher.iter(|| cache.peek_ref(&keys.next()).map(|entry| *entry))
        });
        group.bench_function("contains_key", |bencher| {
            bencher.iter(|| cache.contains_key(&keys.next()))
        });
        group.bench_function("get miss", |bencher| {
            bencher.iter(|| cache.get(&!keys.next()))
        });
        group.finish();
    }
}

/// Hits of several keys at once; a time is that of a whole batch, the throughput is in keys.
fn batches(criterion: &mut Criterion) {
    const DRAWN: usize = 100_000;
    for (set, resident, ranks) in [
        ("11k keys", RESIDENT, keys::zipf_ranks(RESIDENT, DRAWN, 0)),
        (
            "1M keys",
            1_000_000,
            keys::uniform_ranks(1_000_000, DRAWN, 0),
        ),
    ] {
        let cache = Cache::builder()
            .expire_after(expiry::writing(lifetime))
            .build();
        for rank in 0..resident as u64 {
            cache.insert(keys::key(rank), rank);
        }
        cache.run_pending_tasks();
        let drawn = keys::keys_of(&ranks);
        let mut group = criterion.benchmark_group(format!("batch/{set}"));
        for size in [4, 16, 100] {
            group.throughput(Throughput::Elements(size as u64));
            let mut batch = drawn.chunks_exact(size).cycle();
            let mut next = || batch.next().expect("goes round");
            group.bench_function(format!("get, {size} times"), |bencher| {
                bencher.iter(|| next().iter().map(|key| cache.get(key)).collect::<Vec<_>>());
            });
            group.bench_function(format!("get_many of {size}"), |bencher| {
                bencher.iter(|| cache.get_many(next()));
            });
        }
        group.finish();
    }
}

fn writes(criterion: &mut Criterion) {
    for (variant, cache) in [("plain", plain()), ("expiring", expiring())] {
        let mut group = criterion.benchmark_group(format!("write/{variant}"));
        let mut keys = Keys::zipf();
        let mut fresh = 1u64 << 40;
        group.bench_function("replace", |bencher| {
            bencher.iter(|| cache.insert(keys.next(), 1))
        });
        group.bench_function("insert_with_ttl", |bencher| {
            bencher.iter(|| cache.insert_with_ttl(keys.next(), 1, Duration::from_secs(7200)));
        });
        group.bench_function("set_expiry", |bencher| {
            bencher.iter(|| cache.set_expiry(&keys.next(), Some(Duration::from_secs(7200))));
        });
        group.bench_function("insert, invalidate", |bencher| {
            bencher.iter(|| {
                fresh += 1;
                cache.insert(keys::key(fresh), 1);
                cache.invalidate(&keys::key(fresh));
            });
        });
        group.bench_function("insert, remove", |bencher| {
            bencher.iter(|| {
                fresh += 1;
                cache.insert(keys::key(fresh), 1);
                cache.remove(&keys::key(fresh))
            });
        });
        group.finish();
    }
}

fn whole_cache(criterion: &mut Criterion) {
    let cache = expiring();
    criterion.bench_function("whole/iterate over 10,922", |bencher| {
        bencher.iter(|| cache.iter().map(|entry| *entry).sum::<u64>())
    });
    criterion.bench_function("whole/entry_count", |bencher| {
        bencher.iter(|| cache.entry_count())
    });
    criterion.bench_function("whole/run_pending_tasks, nothing to do", |bencher| {
        bencher.iter(|| cache.run_pending_tasks())
    });
    criterion.bench_function("whole/expire 10,922", |bencher| {
        let due = || {
            let ticker = ManualTicker::new();
            let cache = filled(
                Cache::builder()
                    .ticker(ticker.clone())
                    .scheduler(Scheduler::disabled())
                    .expire_after(expiry::writing(lifetime))
                    .build(),
            );
            ticker.advance(Duration::from_secs(7300));
            cache
        };
        bencher.iter_batched(
            due,
            |cache| {
                cache.run_pending_tasks();
                assert_eq!(cache.entry_count(), 0);
                black_box(cache)
            },
            BatchSize::LargeInput,
        );
    });
}

criterion_group!(benches, reads, batches, writes, whole_cache);
criterion_main!(benches);
