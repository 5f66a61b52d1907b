//! What threads did to one cache and the answers they received, with the moves of the clock in
//! between.
//!
//! Every call carries two *stamps*, drawn before it began and after it returned; every move of the
//! clock carries one. All come from one counter, so a call that returned before another began has
//! the smaller stamps, and a move of the clock is before, after or inside a call for all threads
//! alike. That makes the check by key exact: if each key's check could place the moves of the clock
//! itself, contradictions between keys would stay hidden.

use std::fmt;

use super::spec::Rules;

/// The answer of the policy for a value, in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Answer {
    /// The time left now, so the deadline stays where it is; on creation the same as `Never`.
    Keep,
    Never,
    After(u64),
}

/// A value contains the answers of the policy for it.
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
    /// The key's value, or this one.
    Load(Value),
    /// Puts this value in the place of what its closure sees, or removes that.
    Compute(Option<Value>),
    /// Puts the value in if the key has the one with this number.
    ReplaceIf(u32, Value),
}

/// What it returned; for a value its number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    Done,
    Said(bool),
    Found(Option<u32>),
    /// Of a compute: the number of the value that its closure saw, and its end.
    Computed(Option<u32>, Ended),
}

/// How a compute ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// The key was absent, or what the closure saw had expired.
    Inserted,
    Replaced,
    Removed,
    /// There was nothing to remove.
    StillNone,
    /// A write that came meanwhile counts as having come just after: the value was not stored.
    Before,
    /// It had no effect.
    Overtaken,
}

/// What else happened during a call.
#[derive(Clone, Debug, Default)]
pub struct Beside {
    /// A value may have come in.
    pub replaced: bool,
    /// An explicit write may have been made.
    pub written: bool,
    /// Numbers of the values that other calls may have loaded or computed.
    pub loaded: Vec<u32>,
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

/// A recorded run.
#[derive(Clone, Debug, Default)]
pub struct History {
    pub rules: Rules,
    pub calls: Vec<Call>,
    /// In the order of their stamps.
    pub advances: Vec<Advance>,
}

impl History {
    /// What other calls of the call's key may have done while it ran.
    pub fn beside(&self, call: &Call) -> Beside {
        let mut beside = Beside::default();
        let same = |other: &&Call| other.key == call.key && other.overlaps(call);
        for other in self.calls.iter().filter(same) {
            match other.op {
                Op::Insert(_) | Op::InsertWithTtl(..) | Op::ReplaceIf(..) => {
                    (beside.replaced, beside.written) = (true, true);
                }
                Op::Invalidate | Op::Remove => beside.written = true,
                // Itself overlaps itself.
                Op::Load(value) | Op::Compute(Some(value)) => {
                    beside.replaced = true;
                    beside.loaded.push(value.id);
                }
                Op::Compute(None) | Op::Get | Op::Contains | Op::SetExpiry(_) => (),
            }
        }
        beside
    }

    /// Pairs of concurrent calls for the same key.
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
