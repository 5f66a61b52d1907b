//! The drain status: threads that request a pass against a thread that runs one.

// The file is private to `maintenance`; compiled here a second time from the same source.
#[path = "../../src/maintenance/status.rs"]
mod source;

use super::explore;
use loom::sync::Arc;
use loom::sync::atomic::{AtomicUsize, Ordering};
use loom::thread;
use source::Status;

/// The status, and the work that it has to make visible: hence all accesses to the work are
/// relaxed.
struct Scene {
    status: Status,
    work: AtomicUsize,
}

impl Scene {
    fn new() -> Arc<Self> {
        Arc::new(Self {
            status: Status::new(),
            work: AtomicUsize::new(0),
        })
    }

    /// Leaves work and requests a pass; returns whether the caller has to run it.
    fn ask(&self) -> bool {
        self.work.fetch_add(1, Ordering::Relaxed);
        self.status.require()
    }

    /// A pass: returns the work it has seen, and whether another pass was requested.
    fn pass(&self) -> (usize, bool) {
        self.status.begin();
        let seen = self.work.load(Ordering::Relaxed);
        (seen, self.status.end())
    }
}

#[test]
fn a_requirement_against_a_pass_is_seen_or_answered_by_another() {
    explore(|| {
        let scene = Scene::new();
        let theirs = Arc::clone(&scene);
        let asker = thread::spawn(move || theirs.ask());
        let (seen, again) = scene.pass();
        let told_to_run = asker.join().unwrap();
        assert!(
            seen == 1 || again || told_to_run,
            "the requirement was lost"
        );
    });
}

#[test]
fn two_requirements_against_a_pass_are_seen_or_answered_by_another() {
    explore(|| {
        let scene = Scene::new();
        let ask = || {
            let theirs = Arc::clone(&scene);
            thread::spawn(move || theirs.ask())
        };
        let (one, other) = (ask(), ask());
        let (seen, again) = scene.pass();
        let told_to_run = one.join().unwrap() | other.join().unwrap();
        assert!(seen == 2 || again || told_to_run, "a requirement was lost");
    });
}

#[test]
fn a_requirement_against_the_end_of_a_pass_is_met_by_the_repeated_pass() {
    explore(|| {
        let scene = Scene::new();
        let theirs = Arc::clone(&scene);
        let asker = thread::spawn(move || theirs.ask());
        let mut seen = 0;
        for _ in 0..2 {
            let again;
            (seen, again) = scene.pass();
            if !again {
                break;
            }
        }
        if !asker.join().unwrap() {
            assert_eq!(seen, 1, "left to the runner, which ended without it");
        }
    });
}
