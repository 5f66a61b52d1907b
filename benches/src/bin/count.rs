//! A fixed number of one operation on one thread, for an instruction counter: `count.sh` runs it
//! under callgrind, which counts only what happens inside [`measured`]. Time, threads and hash
//! seeds are fixed, so two runs differ by next to nothing.

use std::{
    hint::black_box,
    process::ExitCode,
    time::{Duration, Instant},
};

use wheelhouse::{Cache, CacheBuilder, Expiry, ManualTicker, Scheduler, expiry};
use wheelhouse_bench::{
    keys,
    peer::Hasher,
    peers::{AsTold, OnCreate},
};

/// Entries there before the counting starts.
const RESIDENT: u64 = 10_000;
/// Operations counted.
const COUNTED: u64 = 20_000;

type Counted = Cache<u64, u64, Hasher>;

/// Callgrind counts while this function runs.
#[inline(never)]
fn measured(run: &mut dyn FnMut()) {
    run();
}

/// The operations by name.
const OPERATIONS: &[(&str, fn())] = &[
    ("get-hit", || each(cache(Expire::Never), get)),
    ("get-hit-expiry", || each(cache(Expire::Create), get)),
    ("get-hit-user-policy", || each(cache(Expire::ByUser), get)),
    ("get-hit-user-read-policy", || {
        each(cache(Expire::ByUserAsTold), get)
    }),
    ("get-hit-user-extend", || {
        each(cache(Expire::OrdinaryExtend), get)
    }),
    ("get-hit-writes-only", || {
        each(cache(Expire::WritesOnly), get)
    }),
    ("get-hit-extend", || each(cache(Expire::Access), get)),
    ("get-ref-hit", || each(cache(Expire::Create), get_ref)),
    ("get-many-hit-expiry", get_many),
    ("get-miss", || each(cache(Expire::Create), miss)),
    ("get-with-hit", || each(cache(Expire::Create), get_with_hit)),
    ("get-with-miss", || {
        each(cache(Expire::Never), get_with_miss)
    }),
    ("contains-key", || each(cache(Expire::Create), contains_key)),
    ("replace", || each(cache(Expire::Never), replace)),
    ("replace-expiry", || each(cache(Expire::Write), replace)),
    ("replace-bounded-expiry", || {
        let roomy = builder(Expire::Write).max_capacity(RESIDENT * 4);
        each(filled(roomy), replace)
    }),
    ("insert-new", || each(cache(Expire::Never), insert)),
    ("insert-new-expiry", || each(cache(Expire::Write), insert)),
    ("insert-at-capacity", || {
        let full = builder(Expire::Never).max_capacity(RESIDENT);
        each(filled(full), insert)
    }),
    ("insert-invalidate", || {
        each(cache(Expire::Write), insert_and_invalidate)
    }),
    ("set-expiry", || each(cache(Expire::Create), set_expiry)),
    ("run-pending-idle", || {
        each(cache(Expire::Create), |cache, _, _| {
            cache.run_pending_tasks()
        })
    }),
    ("expire", expire),
];

fn get(cache: &Counted, key: u64, _: u64) -> Option<u64> {
    cache.get(&key)
}

fn get_ref(cache: &Counted, key: u64, _: u64) -> Option<u64> {
    cache.get_ref(&key).map(|entry| *entry)
}

fn miss(cache: &Counted, _: u64, fresh: u64) -> Option<u64> {
    cache.get(&fresh)
}

fn get_with_hit(cache: &Counted, key: u64, fresh: u64) -> u64 {
    cache.get_with(key, || fresh)
}

fn get_with_miss(cache: &Counted, _: u64, fresh: u64) -> u64 {
    cache.get_with(fresh, || fresh)
}

fn contains_key(cache: &Counted, key: u64, _: u64) -> bool {
    cache.contains_key(&key)
}

fn replace(cache: &Counted, key: u64, _: u64) {
    cache.insert(key, 1);
}

fn insert(cache: &Counted, _: u64, fresh: u64) {
    cache.insert(fresh, 1);
}

fn insert_and_invalidate(cache: &Counted, _: u64, fresh: u64) {
    cache.insert(fresh, 1);
    cache.invalidate(&fresh);
}

fn set_expiry(cache: &Counted, key: u64, fresh: u64) -> bool {
    cache.set_expiry(&key, Some(Duration::from_secs(60 + fresh % 1024)))
}

/// A policy as a user writes it, with a new lifetime on each read.
struct OrdinaryExtend;

impl Expiry<u64, u64> for OrdinaryExtend {
    fn expire_after_create(&self, key: &u64, value: &u64, _: Instant) -> Option<Duration> {
        lifetime(key, value)
    }

    fn expire_after_read(
        &self,
        key: &u64,
        value: &u64,
        _: Instant,
        _: Option<Duration>,
        _: Instant,
    ) -> Option<Duration> {
        lifetime(key, value)
    }
}

enum Expire {
    OrdinaryExtend,
    WritesOnly,
    Never,
    /// By the ready policies.
    Create,
    Write,
    Access,
    /// By a policy as a user writes it, which overrides create alone.
    ByUser,
    /// The same, which also overrides read and returns what it was told.
    ByUserAsTold,
}

fn life(key: &u64, _: &u64) -> Duration {
    Duration::from_secs(1 + key % 3600)
}

fn lifetime(key: &u64, value: &u64) -> Option<Duration> {
    Some(life(key, value))
}

fn cache(expire: Expire) -> Counted {
    filled(builder(expire))
}

fn builder(expire: Expire) -> CacheBuilder<u64, u64, Hasher> {
    let builder = Cache::<u64, u64>::builder()
        .ticker(ManualTicker::new())
        .scheduler(Scheduler::disabled())
        .hasher(fixed());
    match expire {
        Expire::Never => builder,
        Expire::Create => builder.expire_after(expiry::creating(lifetime)),
        Expire::OrdinaryExtend => builder.expire_after(OrdinaryExtend),
        Expire::WritesOnly => builder.expire_after(expiry::writes_only(OrdinaryExtend)),
        Expire::Write => builder.expire_after(expiry::writing(lifetime)),
        Expire::Access => builder.expire_after(expiry::accessing(lifetime)),
        Expire::ByUser => builder.expire_after(OnCreate(life)),
        Expire::ByUserAsTold => builder.expire_after(AsTold(life)),
    }
}

fn fixed() -> Hasher {
    Hasher::with_seeds(1, 2, 3, 4)
}

fn filled(builder: CacheBuilder<u64, u64, Hasher>) -> Counted {
    let cache = builder.build();
    for rank in 0..RESIDENT {
        cache.insert(keys::key(rank), rank);
    }
    cache.run_pending_tasks();
    cache
}

/// Runs `operation` on every resident key in turn, with a fresh key beside it, and lets the cache
/// finish: what an operation puts off is counted with it.
fn each<T>(cache: Counted, operation: impl Fn(&Counted, u64, u64) -> T) {
    let pairs: Vec<(u64, u64)> = (0..COUNTED)
        .map(|turn| (keys::key(turn % RESIDENT), keys::key(RESIDENT + turn)))
        .collect();
    measured(&mut || {
        for &(key, fresh) in &pairs {
            black_box(operation(&cache, key, fresh));
        }
        cache.run_pending_tasks();
    });
}

/// As `get-hit-expiry`, sixteen keys with each call.
fn get_many() {
    let cache = cache(Expire::Create);
    let asked: Vec<u64> = (0..COUNTED)
        .map(|turn| keys::key(turn % RESIDENT))
        .collect();
    measured(&mut || {
        for keys in asked.chunks(16) {
            black_box(cache.get_many(keys));
        }
        cache.run_pending_tasks();
    });
}

/// All of [`COUNTED`] entries expire, a minute at a time, cascades and a listener included.
fn expire() {
    let ticker = ManualTicker::new();
    let cache: Counted = Cache::<u64, u64>::builder()
        .ticker(ticker.clone())
        .scheduler(Scheduler::disabled())
        .expire_after(expiry::creating(lifetime))
        .removal_listener(|key: &u64, _: &u64, _| {
            black_box(*key);
        })
        .hasher(fixed())
        .build();
    for rank in 0..COUNTED {
        cache.insert(keys::key(rank), rank);
    }
    cache.run_pending_tasks();
    measured(&mut || {
        for _ in 0..61 {
            ticker.advance(Duration::from_secs(60));
            cache.run_pending_tasks();
        }
    });
    assert_eq!(
        cache.entry_count(),
        0,
        "entries are left after their deadlines"
    );
}

fn main() -> ExitCode {
    let asked = std::env::args().nth(1).unwrap_or_default();
    if asked == "--list" {
        for (name, _) in OPERATIONS {
            println!("{name} {COUNTED}");
        }
        return ExitCode::SUCCESS;
    }
    match OPERATIONS.iter().find(|(name, _)| *name == asked) {
        Some((_, run)) => {
            run();
            ExitCode::SUCCESS
        }
        None => {
            eprintln!("usage: count --list | OPERATION");
            ExitCode::FAILURE
        }
    }
}
