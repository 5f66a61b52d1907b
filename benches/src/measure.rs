//! Runs a piece of work on workers, each bound to a core, and times it.

use std::{
    hint,
    panic::{AssertUnwindSafe, catch_unwind, resume_unwind},
    sync::{
        Barrier,
        atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed},
    },
    thread::{self, ScopedJoinHandle},
    time::Duration,
};

use crate::{
    clock, cpu,
    figure::{NS_PER_OP, Reading},
};

/// Times a piece of work on bound workers. Each, given its number, calls `warm` before the clock
/// starts, then `run`, which does this number of operations. With `cpu` the time is the CPU time of
/// the workers in place of elapsed time.
///
/// Returns the core time per operation, which is the elapsed time, times the cores that could work,
/// over all operations; and the sum of what the workers returned.
pub fn timed(
    cpu: bool,
    threads: usize,
    operations: usize,
    warm: impl Fn(usize) + Sync,
    run: impl Fn(usize) -> u64 + Sync,
) -> (Reading, u64) {
    let (asleep, awake) = (Barrier::new(threads), AtomicUsize::new(0));
    // Starts all workers at the same moment, awake: threads that slept wake up one after the other.
    let start = || {
        asleep.wait();
        // Nothing else is published here.
        awake.fetch_add(1, Relaxed);
        while awake.load(Relaxed) < threads {
            if threads > cpu::count() {
                thread::yield_now();
            }
            hint::spin_loop();
        }
    };
    let lap = |number| {
        cpu::bind(number);
        // A peer that panics must not leave the other workers waiting.
        let warm = catch_unwind(AssertUnwindSafe(|| warm(number)));
        start();
        warm.unwrap_or_else(|panic| resume_unwind(panic));
        let (used, began) = (cpu::thread_time(), clock::nanos());
        let sum = run(number);
        let ended = clock::nanos();
        (began, ended, cpu::thread_time() - used, sum)
    };
    let (mut began, mut ended) = (u64::MAX, 0);
    let (mut used, mut sum) = (Duration::ZERO, 0);
    thread::scope(|scope| {
        let lap = &lap;
        let spawn = |number| scope.spawn(move || lap(number));
        let workers: Vec<_> = (0..threads).map(spawn).collect();
        for worker in workers {
            let lap = joined(worker);
            (began, ended) = (lap.0.min(began), lap.1.max(ended));
            (used, sum) = (lap.2 + used, lap.3 + sum);
        }
    });
    let spent = match cpu {
        true => used.as_nanos() as f64,
        false => (ended - began) as f64 * threads.min(cpu::count()) as f64,
    };
    let nanos = spent / (threads * operations) as f64;
    (NS_PER_OP.by(threads, nanos), sum)
}

/// Nanoseconds per operation of `run` on the calling thread, elapsed or of CPU time as asked for,
/// and what it returned.
pub fn timed_here<T>(cpu: bool, operations: usize, run: impl FnOnce() -> T) -> (f64, T) {
    let now = || match cpu {
        true => cpu::thread_time().as_nanos() as u64,
        false => clock::nanos(),
    };
    let began = now();
    let returned = run();
    ((now() - began) as f64 / operations as f64, returned)
}

/// Runs `body` on a thread of its own that is bound to the last core, so that the calling thread
/// stays free to run anywhere.
pub fn on_a_core<T: Send>(body: impl FnOnce() -> T + Send) -> T {
    thread::scope(|scope| {
        let bound = || {
            cpu::bind(0);
            body()
        };
        joined(scope.spawn(bound))
    })
}

/// What a thread returned; its panic continues in the calling thread.
pub fn joined<T>(thread: ScopedJoinHandle<'_, T>) -> T {
    thread.join().unwrap_or_else(|panic| resume_unwind(panic))
}

/// Runs `body` while another thread calls `watch` again and again, at least once, to update `seen`.
/// Returns the result of `body`, and `seen`.
pub fn watched<S: Send, T>(
    mut seen: S,
    watch: impl Fn(&mut S) + Sync,
    body: impl FnOnce() -> T,
) -> (T, S) {
    let (ready, over) = (AtomicBool::new(false), AtomicBool::new(false));
    let watching = || {
        while !over.load(Relaxed) {
            watch(&mut seen);
            ready.store(true, Relaxed);
        }
        seen
    };
    thread::scope(|scope| {
        let watcher = scope.spawn(watching);
        // A watcher that panics must not leave the body waiting, nor the other way round.
        while !ready.load(Relaxed) && !watcher.is_finished() {
            thread::yield_now();
        }
        let done = catch_unwind(AssertUnwindSafe(body));
        over.store(true, Relaxed);
        let seen = joined(watcher);
        (done.unwrap_or_else(|panic| resume_unwind(panic)), seen)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[should_panic(expected = "a peer's fault")]
    fn a_worker_that_panics_holds_up_no_other() {
        let fail = |worker| match worker {
            0 => panic!("a peer's fault"),
            _ => 0,
        };
        timed(false, 2, 10, |_| (), fail);
    }
}
