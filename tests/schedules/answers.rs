//! The answers that callers receive.

use std::sync::Arc;
use std::time::Duration;

use shuttle::thread;
use wheelhouse::expiry::writing;
use wheelhouse::{Cache, ManualTicker};

use crate::linear::check::check;
use crate::linear::history::History;
use crate::linear::record::{Happened, SETUPS, Subject, plans};
use crate::{dice, explore};

/// Short histories, each of one kind of cache, checked like those of real threads.
#[test]
fn histories_are_linearizable() {
    explore(|| {
        let mut dice = dice();
        let setup = &SETUPS[dice.below(SETUPS.len() as u64 - 1) as usize];
        let threads = 2 + dice.below(2) as usize;
        let steps = 2 + dice.below(4) as usize;
        let subject = Arc::new(Subject::new(setup, dice.roll(), 1 << dice.below(2)));
        let threads: Vec<_> = plans(&mut dice, setup, threads, steps)
            .into_iter()
            .enumerate()
            .map(|(number, plan)| {
                let subject = Arc::clone(&subject);
                let perform = move |step| subject.perform(number, step);
                thread::spawn(move || plan.into_iter().map(perform).collect::<Vec<_>>())
            })
            .collect();
        let mut history = History {
            rules: setup.rules(),
            ..History::default()
        };
        for happened in threads.into_iter().flat_map(|t| t.join().unwrap()) {
            match happened {
                Happened::Calls(calls) => history.calls.extend(calls),
                Happened::Advance(advance) => history.advances.push(advance),
                Happened::Nothing => (),
            }
        }
        history.advances.sort_by_key(|advance| advance.at);
        if let Err(refusal) = check(&history) {
            panic!("{}: {refusal}", setup.name);
        }
    });
}

/// Two writers make one shard's table grow by many steps and shrink again; keys that stay are never
/// missed, by look-up or iteration.
#[test]
fn keys_that_stay_are_found_while_the_table_grows_and_shrinks() {
    const STAY: u64 = 6;
    explore(|| {
        // So small that there is one shard, so large that it evicts nothing.
        let cache: Cache<u64, u64> = Cache::builder()
            .max_capacity(64)
            .ticker(ManualTicker::new())
            .build();
        for key in 0..STAY {
            cache.insert(key, key);
        }
        let writers: Vec<_> = [100, 200]
            .map(|first| {
                let cache = cache.clone();
                thread::spawn(move || {
                    for key in first..first + 22 {
                        cache.insert(key, key);
                    }
                    for key in first..first + 22 {
                        assert_eq!(cache.remove(&key), Some(key));
                    }
                })
            })
            .into();
        for _ in 0..6 {
            for key in 0..STAY {
                assert_eq!(cache.get(&key), Some(key));
            }
            let met = cache.iter().filter(|entry| *entry.key() < STAY).count();
            assert_eq!(met as u64, STAY, "met by a visit");
        }
        for writer in writers {
            writer.join().unwrap();
        }
        cache.run_pending_tasks();
        assert_eq!(cache.entry_count(), STAY);
    });
}

/// Reads extend the entry, whatever other calls see and whatever the pass does with the old
/// deadline.
#[test]
fn a_key_that_is_used_in_time_is_never_missed() {
    explore(|| {
        let time = ManualTicker::new();
        let idle = Duration::from_secs(10);
        let cache: Cache<u64, u64> = Cache::builder()
            .time_to_idle(idle)
            .ticker(time.clone())
            .build();
        cache.insert(1, 10);
        let (one, two) = (cache.clone(), cache.clone());
        let others = [
            thread::spawn(move || (0..4).for_each(|_| one.run_pending_tasks())),
            // Its clock may stand still while it looks the key up; an entry that it finds expired
            // must be expired by then.
            thread::spawn(move || (0..4).for_each(|_| assert!(two.contains_key(&1)))),
        ];
        for _ in 0..4 {
            assert_eq!(cache.get(&1), Some(10));
            time.advance(idle - Duration::from_nanos(1));
        }
        assert_eq!(cache.get(&1), Some(10));
        for other in others {
            other.join().unwrap();
        }
    });
}

const SECOND: Duration = Duration::from_secs(1);

/// A cache whose values live for as many seconds as they say; reads may extend them, or not.
fn of_seconds(time: &ManualTicker) -> Cache<u64, u64> {
    let seconds = |_: &u64, value: &u64| Some(SECOND * *value as u32);
    let builder = Cache::builder()
        .ticker(time.clone())
        .expire_after(writing(seconds));
    if dice().below(2) == 0 {
        builder.build()
    } else {
        builder.time_to_idle(SECOND * 1_000).build()
    }
}

/// Each value of the key is accepted, and it has one all the time.
#[test]
fn a_value_in_the_place_of_another_is_found() {
    explore(|| {
        let cache = of_seconds(&ManualTicker::new());
        cache.insert(1, 10);
        let writes = cache.clone();
        let writer = thread::spawn(move || writes.insert(1, 20));
        if dice().below(2) == 0 {
            assert!(cache.replace_if(&1, 100, |_| true).is_ok());
        } else {
            assert!(cache.remove_if(&1, |_| true).is_some());
        }
        writer.join().unwrap();
    });
}
