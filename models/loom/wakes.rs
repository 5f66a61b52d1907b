//! Requests for a run: a writer against a run that clears them, drains, and arranges the next
//! (waking 1 and 2).

// The file is private to `engine`; compiled here a second time from the same source.
#[allow(dead_code)]
#[path = "../../src/engine/waking.rs"]
mod waking;

use super::explore;
use crate::ManualTicker;
use crate::scheduler::{Alarm, CacheRef, MaintenanceTask, Scheduler};
use crate::sync::Mutex;
use crate::time::{Clock, NEVER};
use loom::sync::Arc;
use loom::thread;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use waking::Waking;

/// A scheduler that counts its requests. The counter is no part of the model, hence not loom's.
#[derive(Clone, Default)]
struct RecordingAlarm(std::sync::Arc<AtomicUsize>);

impl Alarm for RecordingAlarm {
    fn set(&self, _: Duration, _: MaintenanceTask) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

/// A shard's batch (of deadlines), the requests, and the alarm.
struct Scene {
    batch: Mutex<Vec<u64>>,
    waking: Waking,
    alarm: RecordingAlarm,
    clock: Clock,
}

impl Scene {
    fn new() -> Arc<Self> {
        let alarm = RecordingAlarm::default();
        let scheduler = Scheduler::custom(alarm.clone());
        Arc::new(Self {
            batch: Mutex::new(Vec::new()),
            waking: Waking::new(scheduler, CacheRef::idle()),
            alarm,
            clock: Clock::custom(Box::new(ManualTicker::new())),
        })
    }

    /// A write: first the event, then the requests.
    fn write(&self, deadline: u64) {
        self.batch.lock().push(deadline);
        if deadline == NEVER {
            self.waking.request_soon(&self.clock);
        } else {
            self.waking.request_by(0, deadline);
        }
    }

    /// A run: clears the requests, drains, arranges the next for what it found.
    fn run(&self) {
        let run = self.waking.begin();
        let drained = std::mem::take(&mut *self.batch.lock());
        let next = drained.into_iter().filter(|d| *d != NEVER).min();
        run.end(next, None, &steady());
    }

    /// Whether another run is requested.
    fn has_next(&self) -> bool {
        !self.waking.is_unrequested()
    }

    fn left(&self) -> Vec<u64> {
        self.batch.lock().clone()
    }
}

#[test]
fn a_request_for_soon_against_a_run_is_held_if_the_run_missed_the_event() {
    explore(|| {
        let scene = Scene::new();
        let theirs = Arc::clone(&scene);
        let writer = thread::spawn(move || theirs.write(NEVER));
        scene.run();
        writer.join().unwrap();
        if !scene.left().is_empty() {
            assert!(
                scene.alarm.0.load(Ordering::Relaxed) > 0,
                "the alarm was not set"
            );
            assert!(scene.has_next(), "no run is arranged");
        }
    });
}

#[test]
fn two_requests_for_soon_against_a_run_are_held_if_the_run_missed_an_event() {
    explore(|| {
        let scene = Scene::new();
        let theirs = Arc::clone(&scene);
        let writer = thread::spawn(move || {
            theirs.write(NEVER);
            theirs.write(NEVER);
        });
        scene.run();
        writer.join().unwrap();
        if !scene.left().is_empty() {
            assert!(scene.has_next(), "no run is arranged");
        }
    });
}

#[test]
fn a_request_by_a_deadline_against_a_run_arms_no_later_than_that() {
    explore(|| {
        let scene = Scene::new();
        let theirs = Arc::clone(&scene);
        let writer = thread::spawn(move || {
            theirs.write(100);
            theirs.write(50);
        });
        scene.run();
        writer.join().unwrap();
        // Whether drained or not: the earliest deadline is arranged for.
        assert!(scene.waking.is_run_due(50), "armed too late");
        assert!(
            scene.alarm.0.load(Ordering::Relaxed) > 0,
            "the alarm was not set"
        );
    });
}

#[test]
fn requests_of_two_writers_arm_the_earlier_deadline() {
    explore(|| {
        let scene = Scene::new();
        let theirs = Arc::clone(&scene);
        let writer = thread::spawn(move || theirs.write(100));
        scene.write(50);
        writer.join().unwrap();
        assert!(scene.waking.is_run_due(50), "armed too late");
    });
}

/// A clock that converts one to one.
fn steady() -> crate::time::Clock {
    crate::time::Clock::custom(Box::new(crate::ManualTicker::new()))
}
