//! The sequential specification of one key of a cache, and where time may pass.
//!
//! An operation takes effect at one moment between its call and its return.
//!
//! - Whether an entry is alive is judged by the clock *at that moment*.
//! - A new life counts from *a reading of the clock between the call and that moment*. No cache can
//!   do better without stopping the clock: it reads the time, then publishes, and time may pass in
//!   between. It must not take a reading from before the call.
//! - A read extends only if the entry still holds the value that was read: one whose value is
//!   replaced during the call may find it without extending anything.
//! - A load finds a live value, or puts in its own, or takes that of another load that was under
//!   way. If an explicit write may have come meanwhile, its value may not be stored.
//! - A compute replaces exactly what its closure saw, or says that it did not.

use super::history::{Answer, Beside, Call, Ended, Op, Outcome, Value};

/// The deadline of an entry that never expires.
pub const NEVER: u64 = u64::MAX;

/// The settings of the cache.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Rules {
    /// Whether the policy takes lifetimes from the values.
    pub policy: bool,
    pub time_to_live: Option<u64>,
    pub time_to_idle: Option<u64>,
}

/// One key's entry and the clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct State {
    pub clock: u64,
    /// `None` also for an expired entry: no call can distinguish the two.
    pub entry: Option<Entry>,
}

/// An entry that is alive.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Entry {
    value: Value,
    /// The deadline that the policy or the caller gave.
    own: u64,
    /// The deadline by its time to live.
    limit: u64,
    /// The deadline that counts: the earliest of those and of the idle limit.
    deadline: u64,
}

impl State {
    pub fn at(clock: u64) -> State {
        State { clock, entry: None }
    }

    /// Advances the clock.
    pub fn advanced(self, now: u64) -> State {
        self.with_clock(now)
    }

    fn with_clock(self, clock: u64) -> State {
        let entry = self.entry.filter(|entry| clock < entry.deadline);
        State { clock, entry }
    }

    fn with(self, entry: Entry) -> State {
        State {
            entry: Some(entry),
            ..self
        }
        .with_clock(self.clock)
    }

    fn without(self) -> State {
        State {
            entry: None,
            ..self
        }
    }
}

impl Rules {
    /// The states that a call may lead to if it takes effect now; none if its outcome cannot be
    /// had. `readings` are the times that the clock has shown since the call began.
    pub fn step(&self, state: State, call: &Call, readings: &[u64], beside: &Beside) -> Vec<State> {
        let there = state.entry;
        let same = |holds: bool| if holds { vec![state] } else { Vec::new() };
        match (call.op, call.outcome) {
            (Op::Get, Outcome::Found(id)) => match there {
                Some(entry) if id == Some(entry.value.id) => {
                    let mut states = self.after_read(state, entry, readings);
                    if beside.replaced {
                        states.push(state);
                    }
                    states
                }
                Some(_) => Vec::new(),
                None => same(id.is_none()),
            },
            (Op::Contains, Outcome::Said(said)) => same(said == there.is_some()),
            (Op::Insert(value), Outcome::Done) => self.after_insert(state, value, readings),
            (Op::InsertWithTtl(value, life), Outcome::Done) => readings
                .iter()
                .map(|&now| state.with(self.entry(value, now + life, self.limit(now), now)))
                .collect(),
            (Op::SetExpiry(life), Outcome::Said(said)) => match there {
                None => same(!said),
                Some(_) if !said => Vec::new(),
                Some(entry) => readings
                    .iter()
                    .map(|&now| {
                        let own = life.map_or(NEVER, |life| now + life);
                        state.with(self.entry(entry.value, own, entry.limit, now))
                    })
                    .collect(),
            },
            (Op::Invalidate, Outcome::Done) => vec![state.without()],
            (Op::Remove, Outcome::Found(id)) => {
                if id == there.map(|entry| entry.value.id) {
                    vec![state.without()]
                } else {
                    Vec::new()
                }
            }
            (Op::Load(value), Outcome::Found(Some(id))) => {
                let mut states = match there {
                    // A hit, or a value that another call has put in meanwhile.
                    Some(entry) if entry.value.id == id => {
                        let mut states = self.after_read(state, entry, readings);
                        states.push(state);
                        states
                    }
                    None if id == value.id => self.after_insert(state, value, readings),
                    _ => Vec::new(),
                };
                let shared = id != value.id && beside.loaded.contains(&id);
                if shared || (id == value.id && beside.written) {
                    states.push(state);
                }
                states
            }
            (Op::Compute(Some(value)), Outcome::Computed(seen, ended)) => match ended {
                Ended::Inserted if there.is_none() => self.after_insert(state, value, readings),
                Ended::Replaced if there.is_some_and(|entry| Some(entry.value.id) == seen) => {
                    self.after_update(state, value, readings)
                }
                Ended::Before => {
                    let same_entry = there.is_none_or(|entry| Some(entry.value.id) == seen);
                    same(beside.written && same_entry)
                }
                Ended::Overtaken => same(beside.written),
                _ => Vec::new(),
            },
            (Op::Compute(None), Outcome::Computed(seen, ended)) => match ended {
                Ended::Removed if there.is_some_and(|entry| Some(entry.value.id) == seen) => {
                    vec![state.without()]
                }
                Ended::StillNone => same(there.is_none()),
                Ended::Overtaken => same(beside.written),
                _ => Vec::new(),
            },
            (Op::ReplaceIf(old, value), Outcome::Said(said)) => match there {
                Some(entry) if said && entry.value.id == old => {
                    self.after_update(state, value, readings)
                }
                _ if said => Vec::new(),
                there => same(there.is_none_or(|entry| entry.value.id != old)),
            },
            (op, outcome) => unreachable!("{op:?} does not return {outcome:?}"),
        }
    }

    fn after_insert(&self, state: State, value: Value, readings: &[u64]) -> Vec<State> {
        let mut states = Vec::new();
        for &now in readings {
            let owns = match (self.policy, state.entry) {
                (false, _) => vec![NEVER],
                (true, None) => match value.on_create {
                    Answer::After(life) => vec![now + life],
                    Answer::Keep | Answer::Never => vec![NEVER],
                },
                (true, Some(old)) => answered(value.on_update, old, now, readings),
            };
            for own in owns {
                states.push(state.with(self.entry(value, own, self.limit(now), now)));
            }
        }
        states
    }

    /// After a write of a value that was made from the present one: it keeps the deadline where
    /// neither a policy nor a limit gives another.
    fn after_update(&self, state: State, value: Value, readings: &[u64]) -> Vec<State> {
        match state.entry {
            Some(old) if !self.policy && self.time_to_live.is_none() => readings
                .iter()
                .map(|&now| state.with(self.entry(value, old.own, NEVER, now)))
                .collect(),
            _ => self.after_insert(state, value, readings),
        }
    }

    fn after_read(&self, state: State, entry: Entry, readings: &[u64]) -> Vec<State> {
        if !self.policy && self.time_to_idle.is_none() {
            return vec![state];
        }
        let mut states = Vec::new();
        for &now in readings {
            let owns = if self.policy {
                answered(entry.value.on_read, entry, now, readings)
            } else {
                vec![entry.own]
            };
            for own in owns {
                states.push(state.with(self.entry(entry.value, own, entry.limit, now)));
            }
        }
        states
    }

    fn limit(&self, now: u64) -> u64 {
        self.time_to_live.map_or(NEVER, |life| now + life)
    }

    /// An entry written or used at `now`.
    fn entry(&self, value: Value, own: u64, limit: u64, now: u64) -> Entry {
        let idle = self.time_to_idle.map_or(NEVER, |life| now + life);
        Entry {
            value,
            own,
            limit,
            deadline: own.min(limit).min(idle),
        }
    }
}

/// The own deadlines that the policy's answer about a live entry may mean. An answer that happens
/// to equal the time left when the policy was called is the same as `Keep`: the cache cannot
/// distinguish them, and need not.
fn answered(answer: Answer, entry: Entry, now: u64, readings: &[u64]) -> Vec<u64> {
    match answer {
        Answer::Keep => vec![entry.own],
        Answer::Never => vec![NEVER],
        Answer::After(life) => {
            let mut owns = vec![now + life];
            if readings
                .iter()
                .any(|&asked_at| asked_at + life == entry.deadline)
            {
                owns.push(entry.own);
            }
            owns
        }
    }
}
