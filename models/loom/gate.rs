//! The gate of a cache: threads that enter it against the drop of the last handle, which closes it
//! and waits (gate 1).

use super::explore;
use crate::scheduler::Gate;
use loom::sync::Arc;
use loom::sync::atomic::{AtomicBool, Ordering};
use loom::thread;

/// A gate, and whether a thread works behind it.
struct Scene {
    gate: std::sync::Arc<Gate>,
    at_work: [AtomicBool; 2],
}

impl Scene {
    fn new() -> Arc<Self> {
        Arc::new(Self {
            gate: Gate::new(),
            at_work: [AtomicBool::new(false), AtomicBool::new(false)],
        })
    }

    fn work(&self, number: usize) {
        if let Some(_entered) = self.gate.enter(false) {
            // Relaxed: the gate has to order them before the end of the wait.
            self.at_work[number].store(true, Ordering::Relaxed);
            self.at_work[number].store(false, Ordering::Relaxed);
        }
    }

    fn close(&self) {
        self.gate.close();
        assert!(self.gate.await_visitors());
        for at_work in &self.at_work {
            assert!(!at_work.load(Ordering::Relaxed), "a thread is at work");
        }
        assert!(self.gate.enter(false).is_none(), "a thread may still enter");
    }
}

#[test]
fn a_thread_that_enters_against_a_close_is_waited_for_or_refused() {
    explore(|| {
        let scene = Scene::new();
        let theirs = Arc::clone(&scene);
        let worker = thread::spawn(move || theirs.work(0));
        scene.close();
        worker.join().unwrap();
    });
}

#[test]
fn two_threads_that_enter_against_a_close_are_waited_for_or_refused() {
    explore(|| {
        let scene = Scene::new();
        let workers = [0, 1].map(|number| {
            let scene = Arc::clone(&scene);
            thread::spawn(move || scene.work(number))
        });
        scene.close();
        for worker in workers {
            worker.join().unwrap();
        }
    });
}
