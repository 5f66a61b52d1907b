//! A fixed number of one operation on one thread, for an instruction counter: `count.sh` runs it under callgrind, which counts only what
//! happens inside [`measured`]. Time, threads and hash seeds are fixed, so two runs differ by next to nothing.

use std::{
    hint::black_box,
    process::ExitCode,
    time::{Duration, Instant},
};

use wheelhouse::{Cache, CacheBuilder, Expiry, ManualTicker, Scheduler, expiry};
use wheelhouse_bench::{keys, peers::Hasher};

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

struct Operation {
    name: &'static str,
    run: fn(),
}

const OPERATIONS: &[Operation] = &[
    Operation {
        name: "get-hit",
        run: || each(cache(Expire::Never), |cache, key, _| cache.get(&key)),
    },
    Operation {
        name: "get-hit-expiry",
        run: || each(cache(Expire::Create), |cache, key, _| cache.get(&key)),
    },
    Operation {
        name: "get-hit-extend",
        run: || each(cache(Expire::Access), |cache, key, _| cache.get(&key)),
    },
    Operation {
        name: "get-hit-ordinary",
        run: || each(cache(Expire::Ordinary), |cache, key, _| cache.get(&key)),
    },
    Operation {
        name: "get-hit-ordinary-extend",
        run: || {
            each(cache(Expire::OrdinaryExtend), |cache, key, _| {
                cache.get(&key)
            })
        },
    },
    Operation {
        name: "get-hit-writes-only",
        run: || each(cache(Expire::WritesOnly), |cache, key, _| cache.get(&key)),
    },
    Operation {
        name: "get-ref-hit",
        run: || {
            each(cache(Expire::Create), |cache, key, _| {
                cache.get_ref(&key).map(|entry| *entry)
            })
        },
    },
    Operation {
        name: "get-many-hit-expiry",
        run: get_many,
    },
    Operation {
        name: "get-miss",
        run: || each(cache(Expire::Create), |cache, _, fresh| cache.get(&fresh)),
    },
    Operation {
        name: "contains-key",
        run: || {
            each(cache(Expire::Create), |cache, key, _| {
                cache.contains_key(&key)
            })
        },
    },
    Operation {
        name: "replace",
        run: || each(cache(Expire::Never), |cache, key, _| cache.insert(key, 1)),
    },
    Operation {
        name: "replace-expiry",
        run: || each(cache(Expire::Write), |cache, key, _| cache.insert(key, 1)),
    },
    Operation {
        name: "replace-bounded-expiry",
        run: || {
            let roomy = builder(Expire::Write).max_capacity(RESIDENT * 4);
            each(filled(roomy), |cache, key, _| cache.insert(key, 1))
        },
    },
    Operation {
        name: "insert-new",
        run: || {
            each(cache(Expire::Never), |cache, _, fresh| {
                cache.insert(fresh, 1)
            })
        },
    },
    Operation {
        name: "insert-new-expiry",
        run: || {
            each(cache(Expire::Write), |cache, _, fresh| {
                cache.insert(fresh, 1)
            })
        },
    },
    Operation {
        name: "insert-at-capacity",
        run: || each(bounded(), |cache, _, fresh| cache.insert(fresh, 1)),
    },
    Operation {
        name: "insert-invalidate",
        run: || each(cache(Expire::Write), insert_and_invalidate),
    },
    Operation {
        name: "set-expiry",
        run: || each(cache(Expire::Create), set_expiry),
    },
    Operation {
        name: "run-pending-idle",
        run: || {
            each(cache(Expire::Create), |cache, _, _| {
                cache.run_pending_tasks()
            })
        },
    },
    Operation {
        name: "expire",
        run: expire,
    },
];

fn insert_and_invalidate(cache: &Counted, _: u64, fresh: u64) {
    cache.insert(fresh, 1);
    cache.invalidate(&fresh);
}

fn set_expiry(cache: &Counted, key: u64, fresh: u64) -> bool {
    cache.set_expiry(&key, Some(Duration::from_secs(60 + fresh % 1024)))
}

/// A policy as a user writes it: a lifetime on creation.
struct Ordinary;

impl Expiry<u64, u64> for Ordinary {
    fn expire_after_create(&self, key: &u64, value: &u64, _: Instant) -> Option<Duration> {
        lifetime(key, value)
    }
}

/// The same, and a new lifetime with each read.
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
    Ordinary,
    OrdinaryExtend,
    WritesOnly,
    Never,
    Create,
    Write,
    Access,
}

fn lifetime(key: &u64, _: &u64) -> Option<Duration> {
    Some(Duration::from_secs(1 + key % 3600))
}

fn cache(expire: Expire) -> Counted {
    filled(builder(expire))
}

fn bounded() -> Counted {
    filled(builder(Expire::Never).max_capacity(RESIDENT))
}

fn builder(expire: Expire) -> CacheBuilder<u64, u64, Hasher> {
    let builder = Cache::<u64, u64>::builder()
        .ticker(ManualTicker::new())
        .scheduler(Scheduler::disabled())
        .hasher(fixed());
    match expire {
        Expire::Never => builder,
        Expire::Create => builder.expire_after(expiry::creating(lifetime)),
        Expire::Ordinary => builder.expire_after(Ordinary),
        Expire::OrdinaryExtend => builder.expire_after(OrdinaryExtend),
        Expire::WritesOnly => builder.expire_after(expiry::writes_only(OrdinaryExtend)),
        Expire::Write => builder.expire_after(expiry::writing(lifetime)),
        Expire::Access => builder.expire_after(expiry::accessing(lifetime)),
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

/// Runs `operation` on every resident key in turn, with a fresh key beside it, and lets the cache finish: what an operation puts off is
/// counted with it.
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

/// All of [`COUNTED`] entries expire, a minute at a time, cascades and an idle listener included.
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
    let asked = std::env::args().nth(1);
    match asked.as_deref() {
        Some("--list") => {
            for operation in OPERATIONS {
                println!("{} {COUNTED}", operation.name);
            }
            ExitCode::SUCCESS
        }
        Some(name) if OPERATIONS.iter().any(|operation| operation.name == name) => {
            OPERATIONS
                .iter()
                .filter(|operation| operation.name == name)
                .for_each(|operation| (operation.run)());
            ExitCode::SUCCESS
        }
        _ => {
            eprintln!("usage: count --list | OPERATION");
            ExitCode::FAILURE
        }
    }
}
