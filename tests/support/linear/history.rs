//! What threads did to one cache and what they were answered, with the moves of the clock in
//! between.
//!
//! Every call carries two *stamps*, drawn before it began and after it returned; every move of the
//! clock carries one. All come from one counter, so a call that returned before another began has
//! the smaller stamps, and a move of the clock lies before, after or inside a call for everybody
//! alike. That is what makes the check by key exact: a clock that each key's check could move at a
//! moment of its own choice would hide contradictions between keys.

use std::fmt;

use super::spec::Rules;

/// Answer of the policy about a value, in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Answer {
    /// What is left now, so the deadline stays where it is; on creation the same as `Never`.
    Keep,
    Never,
    After(u64),
}

/// A value says itself what the policy is to answer about it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Value {
    /// Different for each write of a history.
    pub id: u32,
    pub on_create: Answer,
    pub on_update: Answer,
    pub on_read: Answer,
}

impl Value {
    /// A value for caches without a policy.
    pub const fn plain(id: u32) -> Value {
        Value {
            id,
            on_create: Answer::Never,
            on_update: Answer::Never,
            on_read: Answer::Keep,
        }
    }
}

/// An operation on one key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Op {
    Get,
    Contains,
    Insert(Value),
    InsertWithTtl(Value, u64),
    SetExpiry(Option<u64>),
    Invalidate,
    Remove,
}

/// What it returned; of a value the number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    Done,
    Said(bool),
    Found(Option<u32>),
}

/// One operation of one thread.
#[derive(Clone, Copy, Debug)]
pub struct Call {
    pub thread: usize,
    pub key: u8,
    pub op: Op,
    pub outcome: Outcome,
    /// Stamps before and after.
    pub from: u64,
    pub to: u64,
    /// What the clock showed at `from`.
    pub clock: u64,
}

impl Call {
    pub fn overlaps(&self, other: &Call) -> bool {
        self.from < other.to && other.from < self.to
    }
}

/// The clock moves, at one moment, to `now`.
#[derive(Clone, Copy, Debug)]
pub struct Advance {
    pub at: u64,
    pub now: u64,
}

/// A run, over.
#[derive(Clone, Debug, Default)]
pub struct History {
    pub rules: Rules,
    pub calls: Vec<Call>,
    /// In the order of their stamps.
    pub advances: Vec<Advance>,
}

impl History {
    /// Whether a value may come in under the call's key while it runs.
    pub fn may_replace_during(&self, call: &Call) -> bool {
        self.calls.iter().any(|other| {
            matches!(other.op, Op::Insert(_) | Op::InsertWithTtl(..))
                && other.key == call.key
                && other.overlaps(call)
        })
    }

    /// Pairs of calls for the same key that were under way at the same time.
    pub fn overlaps(&self) -> usize {
        let calls = &self.calls;
        let later = |at: usize| calls[at + 1..].iter();
        (0..calls.len())
            .map(|at| {
                let one = &calls[at];
                later(at)
                    .filter(|other| other.key == one.key && other.overlaps(one))
                    .count()
            })
            .sum()
    }

    /// The part that concerns one key: its calls and all moves of the clock.
    pub fn of_key(&self, key: u8) -> History {
        History {
            rules: self.rules,
            calls: self
                .calls
                .iter()
                .filter(|call| call.key == key)
                .copied()
                .collect(),
            advances: self.advances.clone(),
        }
    }

    /// The keys, each once.
    pub fn keys(&self) -> Vec<u8> {
        let mut keys: Vec<u8> = self.calls.iter().map(|call| call.key).collect();
        keys.sort_unstable();
        keys.dedup();
        keys
    }
}

/// In the order in which things began.
impl fmt::Display for History {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{:?}", self.rules)?;
        let mut lines: Vec<(u64, String)> = Vec::new();
        for call in &self.calls {
            let Call {
                thread,
                key,
                op,
                outcome,
                from,
                to,
                clock,
            } = call;
            lines.push((
                *from,
                format!(
                    "{from:4}..{to:<4} thread {thread}, at {clock}: key {key} {op:?} -> {outcome:?}"
                ),
            ));
        }
        for Advance { at, now } in &self.advances {
            lines.push((*at, format!("{at:4}       the clock moves to {now}")));
        }
        lines.sort();
        for (_, line) in lines {
            writeln!(f, "{line}")?;
        }
        Ok(())
    }
}
