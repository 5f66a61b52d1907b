//! No cache: shows what the machine itself does to a caller.

use std::{
    hint::{black_box, spin_loop},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    },
    thread::{self, JoinHandle},
    time::Duration,
};

use crate::{
    clock, keys,
    peer::{Card, Peer, Plan, Problem, Role},
};

/// How long each call of [`Busy`] takes, ns: about what an insert takes here.
const BUSY: u64 = 400;

/// Answers every read with the resident value.
pub(super) type Nothing = Spending<0>;
/// Likewise, and spends some time: the longer a call, the more often the machine's own interruptions fall into one. Beside it a thread
/// is at work, as a cache's is in a storm: what else runs on the machine then has to take the caller's core.
pub(super) type Busy = Spending<BUSY>;

/// Spends so many nanoseconds in each call.
pub(super) struct Spending<const NANOS: u64> {
    beside: Option<Beside>,
}

impl<const NANOS: u64> Spending<NANOS> {
    fn spend(&self) {
        if NANOS > 0 {
            let end = clock::nanos() + NANOS;
            while clock::nanos() < end {
                spin_loop();
            }
        }
    }
}

/// A thread at work until this is dropped: a fifth of the time, in one piece each second or so.
///
/// It looks at the clock all the time: what it misses is for how long the system, or another guest of the machine, had its processor. A thread
/// that holds a lock then makes others wait for as long.
struct Beside {
    over: Arc<AtomicBool>,
    off: Arc<AtomicU64>,
    thread: Option<JoinHandle<()>>,
}

impl Beside {
    const WORK: u64 = 200_000_000;
    const REST: Duration = Duration::from_millis(800);
    /// More than the processor's caches hold, as a million entries are.
    const WORDS: usize = 8 << 20;

    fn start() -> Self {
        let over = Arc::new(AtomicBool::new(false));
        let off = Arc::new(AtomicU64::new(0));
        let (ended, missed) = (Arc::clone(&over), Arc::clone(&off));
        let thread = thread::spawn(move || {
            let mut words = vec![0u64; Self::WORDS];
            let mut rank = 0;
            while !ended.load(Relaxed) {
                let mut last = clock::nanos();
                let until = last + Self::WORK;
                while last < until && !ended.load(Relaxed) {
                    for _ in 0..100 {
                        words[keys::key(rank) as usize % Self::WORDS] += 1;
                        rank += 1;
                    }
                    let now = clock::nanos();
                    missed.fetch_max(now - last, Relaxed);
                    last = now;
                }
                black_box(&words);
                thread::park_timeout(Self::REST);
            }
        });
        Self {
            over,
            off,
            thread: Some(thread),
        }
    }
}

impl Drop for Beside {
    fn drop(&mut self) {
        self.over.store(true, Relaxed);
        if let Some(thread) = self.thread.take() {
            thread.thread().unpark();
            thread.join().expect("it only writes to its own memory");
        }
    }
}

impl<const NANOS: u64> Peer<u64, u64> for Spending<NANOS> {
    const CARD: Card = Card {
        name: match NANOS {
            0 => "no cache",
            BUSY => "no cache, 400 ns a call",
            _ => panic!("has no name"),
        },
        role: Role::Floor,
    };

    fn build(plan: &Plan<u64, u64>) -> Result<Self, Problem> {
        if plan.listener.is_some() {
            return Err(Problem::Unsupported("nothing is ever removed"));
        }
        Ok(Self {
            beside: (NANOS > 0).then(Beside::start),
        })
    }

    fn get(&self, key: &u64) -> Option<u64> {
        black_box(key);
        self.spend();
        Some(super::round::RESIDENT)
    }

    fn insert(&self, key: u64, value: u64) {
        black_box((key, value));
        self.spend();
    }

    fn remove(&self, key: &u64) {
        black_box(key);
        self.spend();
    }

    fn entries(&self) -> Option<u64> {
        None
    }

    fn thread_was_off(&self) -> Option<u64> {
        let beside = self.beside.as_ref()?;
        Some(beside.off.load(Relaxed))
    }
}
