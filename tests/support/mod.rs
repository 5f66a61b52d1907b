//! Helpers of the integration tests: hostile clocks and hashes, gates between threads, a watchdog
//! for tests that could hang; and, in files of their own, a recorder of removals, a scripted
//! policy, values that count their drops, values that act when they are cloned or dropped.
#![allow(
    dead_code,
    reason = "each test program uses its own part of this module"
)]

pub mod acting;
pub mod census;
pub mod record;
pub mod rig;
pub mod script;
pub mod spark;

use std::cell::RefCell;
use std::hash::{BuildHasher, Hasher};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Arc, Mutex, Once};
use std::time::{Duration, Instant};

use proptest::test_runner::{Config as ProptestConfig, RngAlgorithm};
use wheelhouse::Ticker;

/// The settings of a random test. No file is written beside the sources: a failure prints its
/// smallest sequence, which then becomes a test of its own. The numbers come from XorShift: without
/// optimization the usual generator, ChaCha, takes two thirds of a test's time.
pub fn cases(cases: u32) -> ProptestConfig {
    ProptestConfig {
        cases,
        failure_persistence: None,
        rng_algorithm: RngAlgorithm::XorShift,
        ..ProptestConfig::default()
    }
}

/// The width of the finest bucket at the default resolution.
pub const SPAN: Duration = nanos(1 << 30);
/// The longest lifetime of an entry; a longer one counts as this.
pub const LONGEST: Duration = nanos(1 << 62);
pub const NS: Duration = nanos(1);
pub const HOUR: Duration = secs(3600);
pub const YEAR: Duration = secs(365 * 24 * 3600);

pub const fn secs(n: u64) -> Duration {
    Duration::from_secs(n)
}

pub const fn millis(n: u64) -> Duration {
    Duration::from_millis(n)
}

pub const fn nanos(n: u64) -> Duration {
    Duration::from_nanos(n)
}

/// A clock that can be set to any reading and counts how often it is read.
#[derive(Clone, Default)]
pub struct Dial(Arc<(AtomicU64, AtomicU64)>);

impl Dial {
    pub fn at(reading: u64) -> Self {
        let dial = Dial::default();
        dial.set(reading);
        dial
    }

    pub fn set(&self, reading: u64) {
        self.0.0.store(reading, Ordering::SeqCst);
    }

    pub fn readings(&self) -> u64 {
        self.0.1.load(Ordering::SeqCst)
    }
}

impl Ticker for Dial {
    fn nanos(&self) -> u64 {
        self.0.1.fetch_add(1, Ordering::SeqCst);
        self.0.0.load(Ordering::SeqCst)
    }
}

/// Every key has the same hash.
#[derive(Clone, Copy, Default)]
pub struct OneHash;

impl BuildHasher for OneHash {
    type Hasher = OneHash;

    fn build_hasher(&self) -> OneHash {
        OneHash
    }
}

impl Hasher for OneHash {
    fn write(&mut self, _bytes: &[u8]) {}

    fn finish(&self) -> u64 {
        0x5555_5555_5555_5555
    }
}

/// A one-way gate between threads: `wait` returns once `open` was called, and returns whether that
/// was in time.
pub struct Gate {
    opened: Mutex<Receiver<()>>,
    open: Sender<()>,
}

impl Gate {
    pub fn new() -> Arc<Self> {
        let (open, opened) = mpsc::channel();
        Arc::new(Gate {
            opened: Mutex::new(opened),
            open,
        })
    }

    pub fn open(&self) {
        self.open.send(()).unwrap();
    }

    pub fn wait(&self) -> bool {
        let opened = self.opened.lock().unwrap().recv_timeout(secs(20)).is_ok();
        // Passes the next waiting thread as well.
        self.open.send(()).unwrap();
        opened
    }
}

/// Where the user code of a cache finds its own cache. Emptied at the drop: the cache would keep
/// itself alive otherwise.
pub struct OwnCache<C>(Place<C>);

/// The same for the user code: empty until the test has put the cache there.
pub struct Place<C>(Arc<Mutex<Option<C>>>);

impl<C: Clone> OwnCache<C> {
    pub fn new() -> Self {
        Self(Place(Arc::default()))
    }

    pub fn place(&self) -> Place<C> {
        Place(Arc::clone(&self.0.0))
    }

    pub fn set(&self, cache: &C) {
        let former = self.0.0.lock().unwrap().replace(cache.clone());
        assert!(former.is_none(), "there is one already");
    }
}

impl<C: Clone> Place<C> {
    pub fn get(&self) -> Option<C> {
        self.0.lock().unwrap().clone()
    }
}

impl<C> Drop for OwnCache<C> {
    fn drop(&mut self) {
        // With the lock released: user code may run.
        let cache = self.0.0.lock().unwrap().take();
        drop(cache);
    }
}

/// Waits until a condition holds, and leaves the processors to those that work meanwhile. Fails
/// after a time that no action of a test takes, even on a busy machine.
#[track_caller]
pub fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let began = Instant::now();
    while !holds() {
        assert!(began.elapsed() < secs(60), "{what}: waited for too long");
        std::thread::sleep(Duration::from_micros(100));
    }
}

/// Runs `body` on its own thread and fails the test, rather than hanging it, if it has not ended
/// after four minutes.
#[track_caller]
pub fn must_end<T: Send + 'static>(body: impl FnOnce() -> T + Send + 'static) -> T {
    let (done, ended) = mpsc::channel();
    let thread = std::thread::spawn(move || {
        let answer = body();
        done.send(answer).ok();
    });
    match ended.recv_timeout(secs(240)) {
        Ok(answer) => {
            thread.join().unwrap();
            answer
        }
        Err(mpsc::RecvTimeoutError::Timeout) => {
            panic!("still running after four minutes: deadlock or endless loop")
        }
        Err(mpsc::RecvTimeoutError::Disconnected) => match thread.join() {
            Err(panic) => std::panic::resume_unwind(panic),
            Ok(()) => unreachable!("the thread ended without an answer"),
        },
    }
}

/// Hides panics whose message begins with "told to" from the output of this test program.
pub fn hide_scripted_panics() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let usual = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            let file = info.location().map_or("", |at| at.file());
            // Not where the thread's variables are gone.
            let noted = PLACES.try_with(|places| {
                let mut places = places.borrow_mut();
                places.as_mut().map(|places| places.push(file.to_owned()))
            });
            if matches!(noted, Ok(Some(()))) {
                return;
            }
            let payload = info.payload();
            let text = payload
                .downcast_ref::<&str>()
                .copied()
                .or_else(|| payload.downcast_ref::<String>().map(String::as_str));
            if !text.is_some_and(|text| text.starts_with("told to")) {
                usual(info);
            }
        }));
    });
}

thread_local! {
    static PLACES: RefCell<Option<Vec<String>>> = const { RefCell::new(None) };
}

/// Runs `call`; hides every panic of this thread meanwhile, and returns the file of each.
pub fn files_of_panics<T>(call: impl FnOnce() -> T) -> (T, Vec<String>) {
    hide_scripted_panics();
    let before = PLACES.replace(Some(Vec::new()));
    let answer = call();
    let files = PLACES.replace(before);
    (answer, files.expect("only this function takes them"))
}

/// A small generator of repeatable pseudo-random numbers (the finaliser of SplitMix64).
pub struct Dice(u64);

impl Dice {
    pub fn new(seed: u64) -> Self {
        Dice(seed)
    }

    pub fn roll(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    pub fn below(&mut self, bound: u64) -> u64 {
        self.roll() % bound
    }
}
