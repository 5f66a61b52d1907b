//! Whether the alarm alone wakes maintenance in time, and what the last drop waits for.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use shuttle::thread;
use wheelhouse::{Alarm, Cache, MaintenanceTask, ManualTicker, Scheduler};

use crate::support::Dice;
use crate::support::census::Census;
use crate::{dice, explore};

const SECOND: Duration = Duration::from_secs(1);

/// A timer with one request: the last one counts, as the contract of `Alarm` says.
#[derive(Clone, Default)]
struct Timer(Arc<Mutex<Option<(Duration, MaintenanceTask)>>>);

impl Alarm for Timer {
    fn set(&self, after: Duration, task: MaintenanceTask) {
        *self.0.lock().unwrap() = Some((after, task));
    }
}

impl Timer {
    fn take(&self) -> Option<(Duration, MaintenanceTask)> {
        self.0.lock().unwrap().take()
    }
}

fn write(cache: &Cache<u64, u64>, mut dice: Dice) {
    for _ in 0..4 {
        let (key, life) = (dice.below(3), SECOND * dice.below(100) as u32);
        match dice.below(6) {
            0..=2 => cache.insert_with_ttl(key, 0, life),
            3 | 4 => drop(cache.set_expiry(&key, Some(life))),
            _ => cache.invalidate(&key),
        }
    }
}

/// Writers leave deadlines, earlier ones after later ones; a timer thread runs the tasks that it
/// receives, at any moment in between. When the writers have ended, the alarm alone makes
/// maintenance remove every entry, at its time.
#[test]
fn following_the_alarm_removes_every_entry() {
    explore(|| {
        let mut dice = dice();
        let (time, timer) = (ManualTicker::new(), Timer::default());
        let cache: Cache<u64, u64> = Cache::builder()
            .ticker(time.clone())
            .scheduler(Scheduler::custom(timer.clone()))
            .build();
        let writers: Vec<_> = (0..2)
            .map(|_| {
                let (cache, dice) = (cache.clone(), Dice::new(dice.roll()));
                thread::spawn(move || write(&cache, dice))
            })
            .collect();
        for _ in 0..3 {
            if let Some((_, task)) = timer.take() {
                task.run();
            }
            thread::yield_now();
        }
        for writer in writers {
            writer.join().unwrap();
        }
        let mut runs = 0;
        while let Some((after, task)) = timer.take() {
            runs += 1;
            assert!(runs < 200, "the alarm rings for nothing");
            time.advance(after);
            task.run();
        }
        assert_eq!(
            cache.entry_count(),
            0,
            "entries for whose deadline no run was made"
        );
    });
}

/// Two threads run the task while others drop their handles. When the drop of the last one returns,
/// each removal was delivered and every value dropped.
#[test]
fn the_last_drop_ends_after_all_runs_of_the_alarm() {
    explore(|| {
        let (census, timer) = (Census::default(), Timer::default());
        let told: Arc<Mutex<u64>> = Arc::default();
        let count = Arc::clone(&told);
        let cache = Cache::builder()
            .ticker(ManualTicker::new())
            .scheduler(Scheduler::custom(timer.clone()))
            .removal_listener(move |_: &u64, _: &_, _| {
                thread::yield_now();
                *count.lock().unwrap() += 1;
            })
            .build();
        for key in 0..4 {
            cache.insert(key, census.counted(key));
        }
        cache.invalidate(&0);
        cache.invalidate(&1);
        let (_, task) = timer.take().expect("a removal is to be delivered");
        let runs = [task.clone(), task].map(|task| thread::spawn(move || _ = task.run()));
        // Whichever thread drops the last handle: afterwards, one of the two has seen the end.
        let other = cache.clone();
        let seen =
            |census: &Census, told: &Arc<Mutex<u64>>| (census.alive(), *told.lock().unwrap());
        let (theirs, heard) = (census.clone(), Arc::clone(&told));
        let dropping = thread::spawn(move || {
            drop(other);
            seen(&theirs, &heard)
        });
        drop(cache);
        let here = seen(&census, &told);
        let there = dropping.join().unwrap();
        assert!(
            here == (0, 2) || there == (0, 2),
            "values alive and removals delivered: {here:?}, {there:?}"
        );
        for run in runs {
            run.join().unwrap();
        }
        assert_eq!(seen(&census, &told), (0, 2));
    });
}
