//! Computes that wait for a turn at a load that a write has revoked.

use crate::support::{hide_scripted_panics, until};
use std::cell::Cell;
use std::future::{Future, poll_fn};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc;
use std::task::{Context, Poll, Wake, Waker};
use std::thread;
use std::time::Duration;
use wheelhouse::compute::Op;
use wheelhouse::{Cache, Ticker};

const SOON: Duration = Duration::from_secs(20);

thread_local! {
    /// How many readings of the clock this thread makes until one of them waits.
    static READINGS: Cell<usize> = const { Cell::new(0) };
}

/// A ticker in which a thread can be held.
#[derive(Clone, Default)]
struct Holds(Arc<(AtomicBool, AtomicBool)>);

impl Ticker for Holds {
    fn nanos(&self) -> u64 {
        let left = READINGS.get();
        READINGS.set(left.saturating_sub(1));
        if left == 1 {
            let (held, goes_on) = &*self.0;
            held.store(true, Ordering::SeqCst);
            until("the thread is let go", || goes_on.load(Ordering::SeqCst));
        }
        0
    }
}

#[derive(Default)]
struct Wakes(AtomicUsize);

impl Wake for Wakes {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

/// A compute that is done when this says so.
fn compute(cache: &Cache<u32, u32>, may_end: Arc<AtomicBool>) -> impl Future<Output = ()> + use<> {
    let cache = cache.clone();
    async move {
        let ends = poll_fn(move |_| {
            if may_end.load(Ordering::SeqCst) {
                Poll::Ready(Op::Nop)
            } else {
                Poll::Pending
            }
        });
        _ = cache.entry(1).and_compute_with_async(|_| ends).await;
    }
}

fn poll_once(task: Pin<&mut impl Future<Output = ()>>, waker: &Waker) -> bool {
    task.poll(&mut Context::from_waker(waker)).is_ready()
}

/// A waiter that was told to look again joins a newer load. That load is revoked and ends before
/// the waiter has said that others wait behind it: those are called all the same. `readings` says
/// at which reading of the clock the waiter's thread stops.
fn joins_a_load_that_ends(readings: usize) {
    let ticker = Holds::default();
    let cache = Cache::builder()
        .ticker(ticker.clone())
        .load_timeout(Duration::from_secs(1_000))
        .build();
    let [first_ends, newer_ends, now] = [false, false, true].map(|ends| {
        let may_end = AtomicBool::new(ends);
        Arc::new(may_end)
    });
    let mut first = pin!(compute(&cache, Arc::clone(&first_ends)));
    let mut told = Box::pin(compute(&cache, Arc::clone(&now)));
    let mut behind = pin!(compute(&cache, now));
    let mut newer = pin!(compute(&cache, Arc::clone(&newer_ends)));
    let noop = Waker::noop();
    let wakes = Arc::<Wakes>::default();
    let waker = Waker::from(Arc::clone(&wakes));
    assert!(!poll_once(first.as_mut(), noop));
    assert!(!poll_once(told.as_mut(), noop));
    assert!(!poll_once(behind.as_mut(), &waker));
    cache.insert(1, 10);
    assert!(!poll_once(newer.as_mut(), noop));
    let thread = thread::spawn(move || {
        READINGS.set(readings);
        let mut ends = false;
        for _ in 0..10 {
            ends = ends || poll_once(told.as_mut(), Waker::noop());
        }
        READINGS.set(0);
    });
    let (held, goes_on) = &*ticker.0;
    until("the thread is held, or has ended", || {
        held.load(Ordering::SeqCst) || thread.is_finished()
    });
    cache.insert(1, 11);
    newer_ends.store(true, Ordering::SeqCst);
    assert!(poll_once(newer.as_mut(), noop));
    goes_on.store(true, Ordering::SeqCst);
    thread.join().unwrap();
    first_ends.store(true, Ordering::SeqCst);
    _ = poll_once(first.as_mut(), noop);
    assert!(wakes.0.load(Ordering::SeqCst) > 0, "at reading {readings}");
    assert!(poll_once(behind.as_mut(), &waker), "at reading {readings}");
}

#[test]
fn computes_behind_a_load_that_ends_at_once_are_called() {
    (1..6).for_each(joins_a_load_that_ends);
}

/// A thread waits for a turn at a revoked load. Later its turn comes behind a newer load, whose
/// leader waits for that thread: one of them panics.
#[test]
fn a_cycle_through_a_turn_behind_a_newer_load_is_found() {
    hide_scripted_panics();
    let cache: Cache<u32, u32> = Cache::new(100);
    let (release, released) = mpsc::channel::<()>();
    let (ended, ends) = mpsc::channel();
    let leader = cache.clone();
    let (leads, led) = mpsc::channel();
    let first = thread::spawn(move || {
        leader.entry(1).and_compute_with(|_| {
            leads.send(()).unwrap();
            released.recv().unwrap();
            Op::Nop
        });
    });
    led.recv_timeout(SOON).expect("the first load runs");
    let now = Arc::new(AtomicBool::new(true));
    let mut task = Box::pin(compute(&cache, now));
    assert!(!poll_once(task.as_mut(), Waker::noop()));
    let waits = |of_nine: Arc<AtomicBool>| {
        let (cache, ended) = (cache.clone(), ended.clone());
        thread::spawn(move || {
            let call = || {
                cache.get_with(9, || {
                    of_nine.store(true, Ordering::SeqCst);
                    cache.entry(1).and_upsert_with(|_| 5).into_value()
                })
            };
            ended
                .send(catch_unwind(AssertUnwindSafe(call)).is_ok())
                .unwrap();
        })
    };
    let leads_nine = Arc::new(AtomicBool::new(false));
    let second = waits(Arc::clone(&leads_nine));
    until("the second thread leads", || {
        leads_nine.load(Ordering::SeqCst)
    });
    // Until it waits for its turn.
    thread::sleep(Duration::from_millis(100));
    cache.insert(1, 10);
    let (newer, of_newer) = (cache.clone(), ended.clone());
    let (leads, led) = mpsc::channel();
    let third = thread::spawn(move || {
        let call = || {
            newer.entry(1).and_compute_with(|_| {
                leads.send(()).unwrap();
                newer.get_with(9, || 6);
                Op::Nop
            })
        };
        let ok = catch_unwind(AssertUnwindSafe(call)).is_ok();
        of_newer.send(ok).unwrap();
    });
    led.recv_timeout(SOON).expect("the newer load runs");
    thread::sleep(Duration::from_millis(100));
    _ = poll_once(task.as_mut(), Waker::noop());
    drop(task);
    release.send(()).unwrap();
    let outcomes: Vec<bool> = (0..2)
        .map(|_| ends.recv_timeout(SOON).expect("no thread waits for ever"))
        .collect();
    assert!(outcomes.contains(&true), "one of them has what it wanted");
    for thread in [first, second, third] {
        thread.join().unwrap();
    }
}
