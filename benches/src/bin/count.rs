//! A fixed number of one operation on one thread, for an instruction counter: `count.sh` runs it
//! under callgrind, which counts only what happens inside [`measured`]. Time, threads and hash
//! seeds are fixed, so two runs differ by next to nothing.

use std::{
    hint::black_box,
    process::ExitCode,
    sync::{Arc, Mutex},
    time::Duration,
};

use wheelhouse::{
    Cache, CacheBuilder, Expiry, ManualTicker, Scheduler,
    expiry::{accessing, creating, writes_only, writing},
    loader_fn, refresh,
};
use wheelhouse_bench::{
    keys,
    peer::Hasher,
    peers::{AsTold, OnCreate, OnRead},
};

/// Entries there before the counting starts.
const RESIDENT: u64 = 10_000;
/// Operations counted.
const COUNTED: u64 = 20_000;

type Counted = Cache<u64, u64, Hasher>;
type Builder = CacheBuilder<u64, u64, Hasher>;
/// A name, and what runs that many operations.
type Operation = (&'static str, fn());

/// Callgrind counts while this function runs.
#[inline(never)]
fn measured(run: &mut dyn FnMut()) {
    run();
}

/// Makes a table of operations: name, cache, and what is done with a resident and a fresh key.
macro_rules! operations {
    ($($name:literal: $cache:expr, $operation:expr;)+) => {
        &[$(($name, || each($cache, $operation))),+]
    };
}

/// The operations by name, but those of [`OTHERS`].
const OPERATIONS: &[Operation] = operations! {
    "get-hit": never(), |cache, key, _| cache.get(&key);
    "get-hit-expiry": by(creating(lifetime)), |cache, key, _| cache.get(&key);
    "get-hit-user-policy": by(OnCreate(life)), |cache, key, _| cache.get(&key);
    "get-hit-user-read-policy": by(AsTold(life)), |cache, key, _| cache.get(&key);
    "get-hit-user-extend": by(OnRead(life)), |cache, key, _| cache.get(&key);
    "get-hit-writes-only": by(writes_only(OnRead(life))), |cache, key, _| cache.get(&key);
    "get-hit-extend": by(accessing(lifetime)), |cache, key, _| cache.get(&key);
    "get-ref-hit": by(creating(lifetime)), |cache, key, _| cache.get_ref(&key).map(|entry| *entry);
    "get-miss": by(creating(lifetime)), |cache, _, fresh| cache.get(&fresh);
    "get-with-hit": by(creating(lifetime)), |cache, key, fresh| cache.get_with(key, || fresh);
    "get-with-miss": never(), |cache, _, fresh| cache.get_with(fresh, || fresh);
    "contains-key": by(creating(lifetime)), |cache, key, _| cache.contains_key(&key);
    "replace": never(), replace;
    "replace-expiry": by(writing(lifetime)), replace;
    "replace-bounded-expiry": by(writing(lifetime)).max_capacity(RESIDENT * 4), replace;
    "insert-new": never(), insert;
    "insert-new-expiry": by(writing(lifetime)), insert;
    "insert-at-capacity": never().max_capacity(RESIDENT), insert;
    "insert-invalidate": by(writing(lifetime)), |cache, _, fresh| {
        cache.insert(fresh, 1);
        cache.invalidate(&fresh);
    };
    "set-expiry": by(creating(lifetime)), |cache, key, fresh| {
        cache.set_expiry(&key, Some(Duration::from_secs(60 + fresh % 1024)))
    };
    "run-pending-idle": by(creating(lifetime)), |cache, _, _| cache.run_pending_tasks();
};

fn replace(cache: &Counted, key: u64, _: u64) {
    cache.insert(key, 1);
}

fn insert(cache: &Counted, _: u64, fresh: u64) {
    cache.insert(fresh, 1);
}

/// Operations that do not take one key after the other.
const OTHERS: &[Operation] = &[
    ("get-many-hit-expiry", get_many),
    ("expire", expire),
    ("loading-get-hit", || loading_get(false)),
    ("loading-get-hit-stale", || loading_get(true)),
];

fn life(key: &u64, _: &u64) -> Duration {
    Duration::from_secs(1 + key % 3600)
}

fn lifetime(key: &u64, value: &u64) -> Option<Duration> {
    Some(life(key, value))
}

/// A cache without expiry, to be built.
fn never() -> Builder {
    Cache::<u64, u64>::builder()
        .ticker(ManualTicker::new())
        .scheduler(Scheduler::disabled())
        .hasher(Hasher::with_seeds(1, 2, 3, 4))
}

/// A cache with expiry, to be built.
fn by(policy: impl Expiry<u64, u64>) -> Builder {
    never().expire_after(policy)
}

fn filled(builder: Builder, entries: u64) -> Counted {
    let cache = builder.build();
    for rank in 0..entries {
        cache.insert(keys::key(rank), rank);
    }
    cache.run_pending_tasks();
    cache
}

/// Runs `operation` on every resident key in turn, with a fresh key beside it, and lets the cache
/// finish: what an operation puts off is counted with it.
fn each<T>(builder: Builder, operation: impl Fn(&Counted, u64, u64) -> T) {
    let cache = filled(builder, RESIDENT);
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
    let cache = filled(by(creating(lifetime)), RESIDENT);
    let turns = 0..COUNTED;
    let asked: Vec<u64> = turns.map(|turn| keys::key(turn % RESIDENT)).collect();
    measured(&mut || {
        for keys in asked.chunks(16) {
            black_box(cache.get_many(keys));
        }
        cache.run_pending_tasks();
    });
}

/// As `get-hit-expiry`, by a loading cache. If its entries are stale, the thread that reloads is
/// busy throughout.
fn loading_get(is_stale: bool) {
    let busy = Arc::new(Mutex::new(()));
    let held = busy.lock();
    let (ticker, reload) = (ManualTicker::new(), Arc::clone(&busy));
    let cache = by(creating(|_, _| Some(Duration::from_secs(7200))))
        .ticker(ticker.clone())
        .loading(loader_fn(move |key: &u64| {
            drop(reload.lock());
            Ok::<u64, ()>(*key)
        }))
        .refresh_after(refresh::after(Duration::from_secs(3600)))
        .build();
    let keys: Vec<u64> = (0..RESIDENT).map(keys::key).collect();
    keys.iter().for_each(|key| cache.cache().insert(*key, *key));
    cache.cache().run_pending_tasks();
    if is_stale {
        ticker.advance(Duration::from_secs(3600));
        // As many keys as may wait for the thread.
        keys.iter().for_each(|key| _ = cache.get(key));
    }
    measured(&mut || {
        for turn in 0..COUNTED {
            _ = black_box(cache.get(&keys[(turn % RESIDENT) as usize]));
        }
    });
    drop(held);
}

/// All of [`COUNTED`] entries expire, a minute at a time, cascades and a listener included.
fn expire() {
    let ticker = ManualTicker::new();
    let listener = |key: &u64, _: &u64, _| {
        black_box(*key);
    };
    let builder = by(creating(lifetime)).ticker(ticker.clone());
    let cache = filled(builder.removal_listener(listener), COUNTED);
    measured(&mut || {
        for _ in 0..61 {
            ticker.advance(Duration::from_secs(60));
            cache.run_pending_tasks();
        }
    });
    assert_eq!(cache.entry_count(), 0, "entries are left");
}

fn main() -> ExitCode {
    let asked = std::env::args().nth(1).unwrap_or_default();
    let mut operations = OPERATIONS.iter().chain(OTHERS);
    if asked == "--list" {
        operations.for_each(|(name, _)| println!("{name} {COUNTED}"));
    } else if let Some((_, run)) = operations.find(|(name, _)| *name == asked) {
        run();
    } else {
        eprintln!("usage: count --list | OPERATION");
        return ExitCode::FAILURE;
    }
    ExitCode::SUCCESS
}
