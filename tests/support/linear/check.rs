//! The search for an order of calls, by Wing and Gong; it remembers the states that it has tried,
//! as Lowe proposed.
//!
//! A history is linearizable if its calls can be put in an order in which each returns what the
//! specification returns, and in which no call comes before one that had returned when it began.
//! The search repeatedly takes a call that no other call must precede, and goes back when it finds
//! none. Two paths that have taken the same calls and reached the same state have the same future,
//! so each such pair is tried once.
//!
//! Keys are independent, and the moves of the clock are fixed moments rather than calls to be
//! ordered. So a history is linearizable if the part of each key is.
//!
//! Origin: J. M. Wing, C. Gong, "Testing and verifying concurrent objects", 1993; G. Lowe, "Testing
//! for linearizability", 2017.

use std::collections::HashSet;
use std::fmt;

use super::history::{Call, History};
use super::spec::State;

/// A key's calls and the moves of the clock are bits of one word.
pub const MOST: usize = 64;

/// Why there is no order.
#[derive(Debug)]
pub struct Refusal {
    /// The part that concerns the key.
    history: History,
    /// Stamps of the calls in the longest order that was found.
    reached: Vec<u64>,
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "no order of these calls explains what they returned:\n{}",
            self.history
        )?;
        write!(
            f,
            "as far as it goes, by their first stamps: {:?}",
            self.reached
        )
    }
}

/// Checks a history key by key; returns the number of states visited, or the part of the first key
/// that has no order.
pub fn check(history: &History) -> Result<usize, Box<Refusal>> {
    let mut looked_at = 0;
    for key in history.keys() {
        looked_at += check_key(&history.of_key(key))?;
    }
    Ok(looked_at)
}

/// An item to put in order.
enum Item<'a> {
    Call(&'a Call),
    Advance(u64),
}

struct Search<'a> {
    history: &'a History,
    items: Vec<(u64, u64, Item<'a>)>,
    seen: HashSet<(u64, State)>,
    order: Vec<u64>,
    longest: Vec<u64>,
}

fn check_key(history: &History) -> Result<usize, Box<Refusal>> {
    let calls = history
        .calls
        .iter()
        .map(|call| (call.from, call.to, Item::Call(call)));
    let advances = history
        .advances
        .iter()
        .map(|advance| (advance.at, advance.at, Item::Advance(advance.now)));
    let items: Vec<_> = calls.chain(advances).collect();
    assert!(
        items.len() <= MOST,
        "{} calls and moves for one key",
        items.len()
    );
    let mut search = Search {
        history,
        items,
        seen: HashSet::new(),
        order: Vec::new(),
        longest: Vec::new(),
    };
    if search.goes_on(0, State::at(0)) {
        Ok(search.seen.len())
    } else {
        Err(Box::new(Refusal {
            history: history.clone(),
            reached: search.longest,
        }))
    }
}

impl Search<'_> {
    /// Whether the items that are not yet `taken` can be put in order from this state on.
    fn goes_on(&mut self, taken: u64, state: State) -> bool {
        if self.order.len() > self.longest.len() {
            self.longest.clone_from(&self.order);
        }
        let left: Vec<usize> = (0..self.items.len())
            .filter(|at| taken & (1 << at) == 0)
            .collect();
        // Items that began after this had to wait for the item that ended here.
        let Some(horizon) = left.iter().map(|&at| self.items[at].1).min() else {
            return true;
        };
        if !self.seen.insert((taken, state)) {
            return false;
        }
        for at in left {
            let (from, _, item) = &self.items[at];
            let from = *from;
            if from > horizon {
                continue;
            }
            let nexts = match item {
                Item::Advance(now) => vec![state.advanced(*now)],
                Item::Call(call) => {
                    let readings = readings(self.history, call, state.clock);
                    let beside = self.history.beside(call);
                    self.history.rules.step(state, call, &readings, &beside)
                }
            };
            for next in nexts {
                self.order.push(from);
                if self.goes_on(taken | 1 << at, next) {
                    return true;
                }
                self.order.pop();
            }
        }
        false
    }
}

/// What the clock has shown from the beginning of a call until `clock`, latest first.
pub fn readings(history: &History, call: &Call, clock: u64) -> Vec<u64> {
    let moved = history
        .advances
        .iter()
        .map(|advance| advance.now)
        .filter(|&now| call.clock < now && now <= clock);
    let mut readings: Vec<u64> = std::iter::once(call.clock).chain(moved).collect();
    readings.reverse();
    readings
}
