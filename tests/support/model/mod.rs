//! A simple model of a cache: one thread, sorted maps, no buffers, no wheel. `subject` runs the
//! same operations on a real cache, so that a property test or a fuzzer can compare the two step by
//! step; `bytes` is for the fuzzer.
//!
//! Compared are: the result of each operation; each call of the policy, with the time left and the
//! age of the value; after `run_pending_tasks` also the number of entries and their weight, every
//! notification in its order for each key, and that the cache asks to be woken in time, or not at
//! all.
//!
//! The policy of both is encoded in the values: each contains the policy's answers for it.

pub mod bytes;
pub mod subject;

use std::collections::BTreeMap;
use std::time::Duration;

use wheelhouse::RemovalCause;

/// The longest lifetime, in nanoseconds; a longer one counts as this.
pub const LONGEST: u128 = 1 << 62;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// The duration that was passed in.
    Keep,
    Never,
    After(Duration),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Value {
    pub id: u32,
    pub on_create: Answer,
    pub on_update: Answer,
    pub on_read: Answer,
}

impl Value {
    /// The weight of an entry with this value: from 0 to the maximum.
    pub fn weight(&self) -> u32 {
        let weights = [1, 0, 2, 1_000, u32::MAX, 7, 1 << 31, u32::MAX - 1];
        weights[self.id as usize % weights.len()]
    }
}

#[derive(Clone, Copy, Debug)]
pub enum Op {
    Insert(u8, Value),
    InsertWithTtl(u8, Value, Duration),
    Get(u8),
    /// This many keys at once, from this one on and wrapping round.
    GetMany(u8, u8),
    GetRef(u8),
    Peek(u8),
    Contains(u8),
    SetExpiry(u8, Option<Duration>),
    Invalidate(u8),
    Remove(u8),
    InvalidateAll,
    /// Keeps the values whose id this number does not divide.
    Retain(u32),
    Iterate,
    Advance(Duration),
    RunPendingTasks,
}

/// The keys of a [`GetMany`](Op::GetMany): those that other operations use, some of them more than
/// once if there are many.
pub fn many_keys(first: u8, count: u8) -> Vec<u8> {
    (0..count).map(|n| first.wrapping_add(n) % 16).collect()
}

/// The settings of a cache.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// The clock's first reading.
    pub origin: u64,
    /// The width of the finest bucket is two to the power of this, in nanoseconds.
    pub resolution: u32,
    /// Whether the cache calls the policy of the values at all.
    pub policy: bool,
    pub time_to_live: Option<Duration>,
    pub time_to_idle: Option<Duration>,
}

impl Settings {
    /// Whether the cache has a weigher, and a bound that it never reaches.
    pub fn weighs(&self) -> bool {
        self.origin % 2 == 1
    }
}

/// The values that left, by key, in the order in which they left.
pub type Delivered = BTreeMap<u8, Vec<(u32, RemovalCause)>>;

/// A call of the policy: the key and the value, the time left, the time since the value was
/// written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Asked {
    Create(u8, u32),
    Update(u8, u32, Option<Duration>),
    Read(u8, u32, Option<Duration>, Duration),
}

/// The result of an operation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    Nothing,
    Is(bool),
    Value(Option<Value>),
    Values(Vec<Option<Value>>),
    /// The value, and the time it has left; outer none: no entry.
    Entry(Option<(Value, Option<Duration>)>),
    /// The entries that an iteration yielded.
    Shown(BTreeMap<u8, u32>),
    /// After all pending tasks: the entries in the cache and their weight, and the notifications
    /// since, by key.
    Quiet {
        count: u64,
        weight: u64,
        delivered: Delivered,
    },
}

/// One entry of the model. Times are nanoseconds since the model began, and never wrap.
#[derive(Clone, Copy)]
struct Entry {
    value: Value,
    written: u128,
    own_deadline: Option<u128>,
    live_deadline: Option<u128>,
    idle_deadline: Option<u128>,
}

impl Entry {
    fn deadline(&self) -> Option<u128> {
        let deadlines = [self.own_deadline, self.live_deadline, self.idle_deadline];
        deadlines.into_iter().flatten().min()
    }
}

pub struct Model {
    settings: Settings,
    now: u128,
    entries: BTreeMap<u8, Entry>,
    delivered: Delivered,
    asked: Vec<Asked>,
}

impl Model {
    pub fn new(settings: Settings) -> Self {
        Model {
            settings,
            now: 0,
            entries: BTreeMap::new(),
            delivered: BTreeMap::new(),
            asked: Vec::new(),
        }
    }

    /// The expected calls of the policy, since the last call.
    pub fn take_asked(&mut self) -> Vec<Asked> {
        std::mem::take(&mut self.asked)
    }

    /// Runs one operation. Due entries leave at once: a real cache may remove them later, but must
    /// not show it.
    pub fn apply(&mut self, op: &Op) -> Outcome {
        let mut outcome = Outcome::Nothing;
        match *op {
            Op::Insert(key, value) => self.insert(key, value, None),
            Op::InsertWithTtl(key, value, ttl) => self.insert(key, value, Some(ttl)),
            Op::Get(key) => outcome = Outcome::Value(self.read(key).map(|entry| entry.value)),
            Op::GetMany(first, count) => {
                let mut values = Vec::new();
                for key in many_keys(first, count) {
                    values.push(self.read(key).map(|entry| entry.value));
                    // A read may have made an entry expire.
                    self.expire();
                }
                outcome = Outcome::Values(values);
            }
            Op::GetRef(key) => {
                let entry = self.read(key);
                outcome = Outcome::Entry(entry.map(|entry| (entry.value, self.left(&entry))));
            }
            Op::Peek(key) => {
                let entry = self.entries.get(&key);
                outcome = Outcome::Entry(entry.map(|entry| (entry.value, self.left(entry))));
            }
            Op::Contains(key) => outcome = Outcome::Is(self.entries.contains_key(&key)),
            Op::SetExpiry(key, life) => {
                let own_deadline = life.map(|life| self.after(life));
                let idle_deadline = self.settings.time_to_idle.map(|life| self.after(life));
                let entry = self.entries.get_mut(&key);
                outcome = Outcome::Is(entry.is_some());
                if let Some(entry) = entry {
                    *entry = Entry {
                        own_deadline,
                        idle_deadline,
                        ..*entry
                    };
                }
            }
            Op::Invalidate(key) => drop(self.take(key, RemovalCause::Explicit)),
            Op::Remove(key) => outcome = Outcome::Value(self.take(key, RemovalCause::Explicit)),
            Op::InvalidateAll => self.take_where(RemovalCause::Explicit, |_, _| true),
            Op::Retain(number) => {
                let mut shown = BTreeMap::new();
                self.take_where(RemovalCause::Explicit, |key, entry| {
                    shown.insert(key, entry.value.id);
                    entry.value.id % number == 0
                });
                outcome = Outcome::Shown(shown);
            }
            Op::Iterate => {
                let shown = self
                    .entries
                    .iter()
                    .map(|(&key, entry)| (key, entry.value.id));
                outcome = Outcome::Shown(shown.collect());
            }
            Op::Advance(step) => self.now += step.as_nanos(),
            Op::RunPendingTasks => {
                let delivered = std::mem::take(&mut self.delivered);
                let weighs = self.settings.weighs();
                let weight = |value: Value| if weighs { value.weight() } else { 1 };
                let weights = self.entries.values().map(|entry| weight(entry.value));
                outcome = Outcome::Quiet {
                    count: self.entries.len() as u64,
                    weight: weights.map(u64::from).sum(),
                    delivered,
                };
            }
        }
        self.expire();
        outcome
    }

    /// The time until the nearest deadline.
    pub fn nearest(&self) -> Option<Duration> {
        let deadlines = self.entries.values().filter_map(Entry::deadline);
        deadlines.min().map(|deadline| nanos(deadline - self.now))
    }

    fn expire(&mut self) {
        let now = self.now;
        self.take_where(RemovalCause::Expired, |_, entry| {
            entry.deadline().is_some_and(|deadline| deadline <= now)
        });
    }

    fn take_where(&mut self, cause: RemovalCause, mut goes: impl FnMut(u8, &Entry) -> bool) {
        let keys: Vec<u8> = self
            .entries
            .iter()
            .filter_map(|(&key, entry)| goes(key, entry).then_some(key))
            .collect();
        for key in keys {
            self.take(key, cause);
        }
    }

    fn take(&mut self, key: u8, cause: RemovalCause) -> Option<Value> {
        let entry = self.entries.remove(&key)?;
        self.delivered
            .entry(key)
            .or_default()
            .push((entry.value.id, cause));
        Some(entry.value)
    }

    fn insert(&mut self, key: u8, value: Value, ttl: Option<Duration>) {
        let before = self.entries.get(&key).copied();
        let own_deadline = match (ttl, before) {
            (Some(ttl), _) => Some(self.after(ttl)),
            (None, _) if !self.settings.policy => None,
            (None, Some(before)) => {
                let left = self.left(&before);
                self.asked.push(Asked::Update(key, value.id, left));
                self.answered(value.on_update, before.own_deadline)
            }
            (None, None) => {
                self.asked.push(Asked::Create(key, value.id));
                self.answered(value.on_create, None)
            }
        };
        self.take(key, RemovalCause::Replaced);
        let live_deadline = self.settings.time_to_live.map(|life| self.after(life));
        let idle_deadline = self.settings.time_to_idle.map(|life| self.after(life));
        self.entries.insert(
            key,
            Entry {
                value,
                written: self.now,
                own_deadline,
                live_deadline,
                idle_deadline,
            },
        );
    }

    fn read(&mut self, key: u8) -> Option<Entry> {
        let mut entry = *self.entries.get(&key)?;
        if self.settings.policy {
            let (left, age) = (self.left(&entry), age(self.now - entry.written));
            self.asked.push(Asked::Read(key, entry.value.id, left, age));
            entry.own_deadline = self.answered(entry.value.on_read, entry.own_deadline);
        }
        entry.idle_deadline = self.settings.time_to_idle.map(|life| self.after(life));
        self.entries.insert(key, entry);
        Some(entry)
    }

    fn answered(&self, answer: Answer, before: Option<u128>) -> Option<u128> {
        match answer {
            Answer::Keep => before,
            Answer::Never => None,
            Answer::After(life) => Some(self.after(life)),
        }
    }

    fn after(&self, life: Duration) -> u128 {
        self.now + life.as_nanos().min(LONGEST)
    }

    fn left(&self, entry: &Entry) -> Option<Duration> {
        entry.deadline().map(|deadline| nanos(deadline - self.now))
    }
}

/// The time since a value was written, as far as 64 bits can express it: half their range or more
/// looks like a step backwards of the clock.
fn age(nanos: u128) -> Duration {
    let since = nanos as u64;
    Duration::from_nanos(if since as i64 >= 0 { since } else { 0 })
}

fn nanos(n: u128) -> Duration {
    Duration::from_nanos(u64::try_from(n).expect("no deadline is as far away"))
}
