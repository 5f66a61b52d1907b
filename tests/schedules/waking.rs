//! Whether maintenance is woken in time, by nobody but the alarm.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use shuttle::thread;
use wheelhouse::{Alarm, Cache, MaintenanceTask, ManualTicker, Scheduler};

use crate::support::Dice;
use crate::{dice, explore};

const SECOND: Duration = Duration::from_secs(1);

/// A timer with one wish: the last one counts, as the contract has it.
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

/// Writers leave deadlines, earlier ones after later ones; a timer thread runs what it is told,
/// when it is told, at any moment in between. When the writers have gone, following the alarm alone
/// removes every entry, at its time.
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
            "entries whose deadline nobody was woken for"
        );
    });
}
