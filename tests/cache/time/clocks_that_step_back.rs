//! A clock that often steps back: what is due at the present reading is removed by
//! `run_pending_tasks`, and what was due at no reading stays visible with the right time left.

use std::collections::{BTreeMap, BTreeSet};

use crate::support::record::Record;
use crate::support::{Dice, nanos};
use wheelhouse::RemovalCause::Expired;
use wheelhouse::{Cache, ManualTicker};

/// Whether a deadline is due at a reading: in wrapping arithmetic, as the documentation says.
fn due(now: u64, deadline: u64) -> bool {
    now.wrapping_sub(deadline) as i64 >= 0
}

/// A length whose order of magnitude is random as well, below 2^`bits` nanoseconds.
fn length(dice: &mut Dice, bits: u64) -> u64 {
    let most = 1 << (5 + dice.below(bits - 5));
    1 + dice.below(most)
}

fn run(seed: u64, start: u64) {
    let mut dice = Dice::new(seed);
    let (clock, heard) = (ManualTicker::starting_at(start), Record::new());
    let cache: Cache<u64, u64> = Cache::builder()
        .ticker(clock.clone())
        .removal_listener(heard.listener())
        .build();
    let mut now = start;
    // The deadline of each entry that was not delivered, and the keys that were due at any reading.
    let mut stored = BTreeMap::new();
    let mut seen_due = BTreeSet::new();
    for key in 0..400 {
        match dice.below(8) {
            0..=3 => {
                let life = length(&mut dice, 50);
                cache.insert_with_ttl(key, key, nanos(life));
                stored.insert(key, now.wrapping_add(life));
            }
            4 | 5 => now = now.wrapping_add(length(&mut dice, 50)),
            6 => now = now.wrapping_sub(length(&mut dice, 47)),
            _ => {
                cache.run_pending_tasks();
                for (key, _, cause) in heard.take() {
                    assert_eq!(cause, Expired);
                    assert!(stored.remove(&key).is_some(), "{key} was delivered twice");
                    assert!(seen_due.contains(&key), "seed {seed}: {key} left early");
                }
                let late: Vec<_> = stored.iter().filter(|entry| due(now, *entry.1)).collect();
                assert!(
                    late.is_empty(),
                    "seed {seed}: due but not removed: {late:?}"
                );
                assert_eq!(cache.entry_count(), stored.len() as u64);
            }
        }
        clock.set_nanos(now);
        for (key, &deadline) in &stored {
            if due(now, deadline) {
                seen_due.insert(*key);
            }
        }
        let some = dice.below(1 + stored.len() as u64) as usize;
        if let Some((key, &deadline)) = stored.iter().nth(some) {
            let entry = cache.peek_ref(key);
            if due(now, deadline) {
                assert!(entry.is_none(), "seed {seed}: {key} is due and visible");
            } else if !seen_due.contains(key) {
                let left = entry.expect("it was never due").time_left();
                assert_eq!(left, Some(nanos(deadline.wrapping_sub(now))));
            }
        }
    }
}

#[test]
fn nothing_leaves_early_or_stays_too_long_on_a_clock_that_steps_back() {
    for seed in 1..=60 {
        for start in [0, u64::MAX - 20_000_000_000, (1 << 63) - 7] {
            run(seed, start);
        }
    }
}
