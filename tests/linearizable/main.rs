//! Look-ups and writes of several threads on a few keys, while the clock advances, return what they
//! would return one after the other.
//!
//! `linear` records histories, specifies the operations and searches for an order.
//! `WHEELHOUSE_HISTORIES` sets the number of histories; `ci/linear.sh` runs many.

mod examples;
#[path = "../support/linear/mod.rs"]
mod linear;
#[path = "../support/mod.rs"]
mod support;
mod workers;

use std::time::Instant;

use linear::check::check;
use linear::history::{History, Op, Outcome};
use linear::record::SETUPS;
use workers::Workers;

fn from_environment(name: &str) -> Option<u64> {
    let text = std::env::var(name).ok()?;
    Some(
        text.parse()
            .unwrap_or_else(|_| panic!("{name} is {text:?}, not a number")),
    )
}

#[test]
fn recorded_histories_are_linearizable() {
    let count = from_environment("WHEELHOUSE_HISTORIES").unwrap_or(10_000);
    let first = from_environment("WHEELHOUSE_SEED").unwrap_or(0);
    let began = Instant::now();
    let (mut calls, mut overlaps, mut looked_at) = (0, 0, 0);
    record(first, count, |setup, seed, history| {
        match check(history) {
            Ok(states) => looked_at += states,
            Err(refusal) => panic!("{setup}, seed {seed}: {refusal}"),
        }
        calls += history.calls.len();
        overlaps += history.overlaps();
    });
    println!(
        "{count} histories, {calls} calls, {overlaps} pairs of calls for the same key at the same time, {looked_at} states, {:.1} s",
        began.elapsed().as_secs_f64()
    );
    // Run one after the other, they would prove nothing.
    assert!(
        overlaps as u64 >= count,
        "{overlaps} overlaps in {count} histories: too few"
    );
}

/// A recorded history in which one answer is replaced by a value that was never inserted.
#[test]
fn a_recorded_history_with_a_forged_answer_is_refused() {
    let mut forged = 0;
    record(1 << 32, 200, |_, _, history| {
        for at in 0..history.calls.len() {
            if let (Op::Get | Op::Remove, Outcome::Found(Some(id))) =
                (history.calls[at].op, history.calls[at].outcome)
            {
                let mut history: History = history.clone();
                history.calls[at].outcome = Outcome::Found(Some(id + 1_000));
                assert!(check(&history).is_err(), "accepted:\n{history}");
                forged += 1;
            }
        }
    });
    assert!(forged > 100, "only {forged} answers to forge");
}

/// Records each history while the one before is checked.
fn record(first: u64, count: u64, mut look: impl FnMut(&str, u64, &History)) {
    let workers = Workers::new();
    let setup = |seed: u64| &SETUPS[(seed % SETUPS.len() as u64) as usize];
    let mut pending = None;
    for seed in first..=first + count {
        let last = pending.take().map(|pending| workers.finish(&pending));
        if seed < first + count {
            pending = Some(workers.begin(setup(seed), seed));
        }
        if let Some(history) = last {
            look(setup(seed - 1).name, seed - 1, &history);
        }
    }
}
