//! The caches, each behind the same few methods.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

#[derive(Clone, Copy)]
pub enum Kind {
    PerEntry(Duration),
    Idle(Duration),
}
#[derive(Clone, Copy)]
pub struct Plan {
    pub capacity: u64,
    pub kind: Kind,
}

pub trait Cache: Sync {
    fn build(plan: Plan) -> Self;
    fn get(&self, key: u64) -> Option<u64>;
    fn insert(&self, key: u64, value: u64);
    fn get_with(&self, key: u64) -> u64 {
        self.get(key).unwrap_or_else(|| {
            self.insert(key, key);
            key
        })
    }
    fn settle(&self) {}
}

pub struct Life(pub Duration);
impl wheelhouse::Expiry<u64, u64> for Life {
    fn expire_after_create(&self, _: &u64, _: &u64, _: Instant) -> Option<Duration> {
        Some(self.0)
    }
    fn expire_after_update(
        &self,
        _: &u64,
        _: &u64,
        _: Instant,
        _: Option<Duration>,
    ) -> Option<Duration> {
        Some(self.0)
    }
}

pub struct Wheelhouse<const STATS: bool>(wheelhouse::Cache<u64, u64>);
impl<const STATS: bool> Cache for Wheelhouse<STATS> {
    fn build(plan: Plan) -> Self {
        let builder = wheelhouse::Cache::<u64, u64>::builder().max_capacity(plan.capacity);
        let builder = match plan.kind {
            Kind::PerEntry(life) => builder.expire_after(Life(life)),
            Kind::Idle(life) => builder.time_to_idle(life),
        };
        let builder = if STATS {
            builder.record_stats()
        } else {
            builder
        };
        let builder = match std::env::var("POLICY").as_deref() {
            Ok("lru") => builder.eviction_policy(wheelhouse::EvictionPolicy::Lru),
            _ => builder,
        };
        let builder = match std::env::var("PARTS") {
            Ok(parts) => builder.parts(parts.parse().expect("a number of parts")),
            Err(_) => builder,
        };
        Self(builder.build())
    }
    #[inline]
    fn get(&self, key: u64) -> Option<u64> {
        self.0.get(&key)
    }
    #[inline]
    fn insert(&self, key: u64, value: u64) {
        self.0.insert(key, value);
    }
    #[inline]
    fn get_with(&self, key: u64) -> u64 {
        self.0.get_with(key, || key)
    }
    fn settle(&self) {
        self.0.run_pending_tasks()
    }
}
/// Without a bound.
pub struct Unbounded(wheelhouse::Cache<u64, u64>);
impl Cache for Unbounded {
    fn build(plan: Plan) -> Self {
        let builder = wheelhouse::Cache::<u64, u64>::builder();
        Self(
            match plan.kind {
                Kind::PerEntry(life) => builder.expire_after(Life(life)),
                Kind::Idle(life) => builder.time_to_idle(life),
            }
            .build(),
        )
    }
    #[inline]
    fn get(&self, key: u64) -> Option<u64> {
        self.0.get(&key)
    }
    #[inline]
    fn insert(&self, key: u64, value: u64) {
        self.0.insert(key, value);
    }
    #[inline]
    fn get_with(&self, key: u64) -> u64 {
        self.0.get_with(key, || key)
    }
    fn settle(&self) {
        self.0.run_pending_tasks()
    }
}

// Toys with known answers.

/// One atomic counter: one transfer for each operation.
pub struct ToyCounter(AtomicU64);
impl Cache for ToyCounter {
    fn build(_: Plan) -> Self {
        Self(AtomicU64::new(0))
    }
    fn get(&self, _: u64) -> Option<u64> {
        Some(self.0.fetch_add(1, Ordering::Relaxed))
    }
    fn insert(&self, _: u64, _: u64) {}
}
#[repr(align(128))]
struct Line(AtomicU64);
thread_local!(static NUMBER: std::cell::Cell<usize> = const { std::cell::Cell::new(usize::MAX) });
/// A counter for each thread: none.
pub struct ToySharded(Vec<Line>, AtomicU64);
impl Cache for ToySharded {
    fn build(_: Plan) -> Self {
        Self(
            (0..256).map(|_| Line(AtomicU64::new(0))).collect(),
            AtomicU64::new(0),
        )
    }
    fn get(&self, _: u64) -> Option<u64> {
        if NUMBER.get() == usize::MAX {
            NUMBER.set(self.1.fetch_add(1, Ordering::Relaxed) as usize)
        }
        Some(self.0[NUMBER.get()].0.fetch_add(1, Ordering::Relaxed))
    }
    fn insert(&self, _: u64, _: u64) {}
}
/// A number behind `std`'s lock: at least one transfer, of the line of the lock.
pub struct ToyMutex(Mutex<u64>);
impl Cache for ToyMutex {
    fn build(_: Plan) -> Self {
        Self(Mutex::new(0))
    }
    fn get(&self, _: u64) -> Option<u64> {
        let mut n = self.0.lock().unwrap();
        *n += 1;
        Some(*n)
    }
    fn insert(&self, _: u64, _: u64) {}
}
/// A table that is only read: none.
pub struct ToyTable(Vec<u64>);
impl Cache for ToyTable {
    fn build(_: Plan) -> Self {
        Self((0..100_000).collect())
    }
    fn get(&self, key: u64) -> Option<u64> {
        self.0.get(key as usize).copied()
    }
    fn insert(&self, _: u64, _: u64) {}
}
/// A table that is read, with one cell that one operation in a hundred writes: each write makes all
/// others miss once, so (N - 1) / 100 + 1 / 100.
pub struct ToyFlag(AtomicU64);
impl Cache for ToyFlag {
    fn build(_: Plan) -> Self {
        Self(AtomicU64::new(0))
    }
    fn get(&self, key: u64) -> Option<u64> {
        if key % 100 == 7 {
            self.0.store(key, Ordering::Release)
        }
        Some(self.0.load(Ordering::Acquire))
    }
    fn insert(&self, _: u64, _: u64) {}
}

macro_rules! dispatch {
    ($name:expr, $run:ident($($arg:expr),*)) => {
        match $name {
            "wheelhouse" => $run::<caches::Wheelhouse<false>>($($arg),*),
            "wh-stats" => $run::<caches::Wheelhouse<true>>($($arg),*),
            "wh-unbounded" => $run::<caches::Unbounded>($($arg),*),
            #[cfg(feature = "peers")]
            "moka" => $run::<peers::Moka>($($arg),*),
            #[cfg(feature = "peers")]
            "mini-moka" => $run::<peers::MiniMoka>($($arg),*),
            #[cfg(feature = "peers")]
            "quick_cache" => $run::<peers::Quick>($($arg),*),
            #[cfg(feature = "peers")]
            "fibre" => $run::<peers::Fibre>($($arg),*),
            #[cfg(feature = "peers")]
            "papaya" => $run::<peers::Papaya>($($arg),*),
            #[cfg(feature = "peers")]
            "dashmap" => $run::<peers::Dash>($($arg),*),
            "toy-counter" => $run::<caches::ToyCounter>($($arg),*),
            "toy-sharded" => $run::<caches::ToySharded>($($arg),*),
            "toy-mutex" => $run::<caches::ToyMutex>($($arg),*),
            "toy-table" => $run::<caches::ToyTable>($($arg),*),
            "toy-flag" => $run::<caches::ToyFlag>($($arg),*),
            other => panic!("{other}"),
        }
    };
}
pub(crate) use dispatch;
