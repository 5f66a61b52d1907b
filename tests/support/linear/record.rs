//! A cache whose calls are recorded, and plans of what threads do to it.
//!
//! Calls are short and would seldom overlap. So all user code that runs inside of them, the
//! comparison of keys, the clone of values, the policy and the clock itself, sometimes lets other
//! threads run: between the reading of a clock and its use, between a look-up and the lock.

use std::cell::Cell;
use std::hash::{BuildHasher, BuildHasherDefault, DefaultHasher, Hash, Hasher};
use std::sync::Arc;
use std::time::{Duration, Instant};

#[cfg(wheelhouse_shuttle)]
use shuttle::sync::atomic::AtomicU64;
#[cfg(not(wheelhouse_shuttle))]
use std::sync::atomic::AtomicU64;

use std::sync::atomic::Ordering::SeqCst;

use wheelhouse::compute::{CompResult, Entry, Op as Then};
use wheelhouse::{Cache, Expiry, Scheduler, Ticker, expiry};

use super::history::{Advance, Answer, Call, Ended, Op, Outcome, Value};
use super::spec::Rules;
use crate::support::{Dice, OneHash};

/// Half of the finest bucket at the default resolution: deadlines fall on the edges of buckets and
/// between them.
pub const UNIT: u64 = 1 << 29;

thread_local! {
    static LUCK: Cell<u64> = const { Cell::new(0) };
}

/// From here on, this thread pauses where this seed says.
pub fn pauses(seed: u64) {
    LUCK.set(seed | 1);
}

/// Lets other threads run, sometimes; never on a thread that has not called `pauses`.
fn pause() {
    let mut luck = LUCK.get();
    if luck == 0 {
        return;
    }
    luck ^= luck << 13;
    luck ^= luck >> 7;
    luck ^= luck << 17;
    LUCK.set(luck);
    match luck >> 58 {
        0..=7 => std::thread::yield_now(),
        8..=15 => (0..luck >> 40 & 127).for_each(|_| std::hint::spin_loop()),
        _ => (),
    }
}

/// The clock of a history and the counter of its stamps, in one word: each move of the clock is one
/// moment among the beginnings and ends of the calls.
#[derive(Clone)]
pub struct Clock {
    /// Units of time in the upper bits, stamps in the lower.
    word: Arc<AtomicU64>,
    origin: u64,
}

const STAMPS: u32 = 16;

impl Clock {
    /// Shows `origin` to the cache and 0 to the history.
    pub fn new(origin: u64) -> Clock {
        Clock {
            word: Arc::new(AtomicU64::new(0)),
            origin,
        }
    }

    /// A stamp, and the time in nanoseconds at that moment.
    fn stamp(&self) -> (u64, u64) {
        let word = self.word.fetch_add(1, SeqCst);
        let stamp = word & ((1 << STAMPS) - 1);
        assert!(stamp < (1 << STAMPS) - 1, "a history without end");
        (stamp, (word >> STAMPS) * UNIT)
    }

    pub fn advance(&self, units: u64) -> Advance {
        let word = self.word.fetch_add((units << STAMPS) + 1, SeqCst);
        Advance {
            at: word & ((1 << STAMPS) - 1),
            now: ((word >> STAMPS) + units) * UNIT,
        }
    }
}

impl Ticker for Clock {
    fn nanos(&self) -> u64 {
        pause();
        let word = self.word.load(SeqCst);
        pause();
        self.origin.wrapping_add((word >> STAMPS) * UNIT)
    }
}

/// A key with a slow comparison.
#[derive(Clone, Copy, Debug)]
pub struct Key(pub u8);

impl PartialEq for Key {
    fn eq(&self, other: &Key) -> bool {
        pause();
        self.0 == other.0
    }
}

impl Eq for Key {}

impl Hash for Key {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.0.hash(state);
    }
}

/// A value with a slow clone.
#[derive(Debug)]
pub struct Stored(Value);

impl Clone for Stored {
    fn clone(&self) -> Stored {
        pause();
        Stored(self.0)
    }
}

/// A policy that takes its answers from the values.
struct AsWritten;

fn answer(answer: Answer, left: Option<Duration>) -> Option<Duration> {
    pause();
    match answer {
        Answer::Keep => left,
        Answer::Never => None,
        Answer::After(life) => Some(Duration::from_nanos(life)),
    }
}

impl Expiry<Key, Stored> for AsWritten {
    fn expire_after_create(&self, _: &Key, value: &Stored, _: Instant) -> Option<Duration> {
        answer(value.0.on_create, None)
    }

    fn expire_after_update(
        &self,
        _: &Key,
        value: &Stored,
        _: Instant,
        left: Option<Duration>,
    ) -> Option<Duration> {
        answer(value.0.on_update, left)
    }

    fn expire_after_read(
        &self,
        _: &Key,
        value: &Stored,
        _: Instant,
        left: Option<Duration>,
        _: Instant,
    ) -> Option<Duration> {
        answer(value.0.on_read, left)
    }
}

/// The source of lifetimes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Policy {
    Nobody,
    /// The values, at every moment.
    Values,
    /// The values, which give the same answer at every moment: the cache passes them no times.
    EntryAlone,
    /// The values, on creation only: a cache that knows that reads change nothing.
    OnCreation,
}

/// A kind of cache.
#[derive(Clone, Copy, Debug)]
pub struct Setup {
    pub name: &'static str,
    pub policy: Policy,
    /// Limits in units.
    pub time_to_live: Option<u64>,
    pub time_to_idle: Option<u64>,
    /// Every key has the same hash.
    pub collide: bool,
    /// With a bound, far away: reads leave events.
    pub bounded: bool,
    /// With a thread that runs maintenance.
    pub background: bool,
}

const BARE: Setup = Setup {
    name: "bare",
    policy: Policy::Nobody,
    time_to_live: None,
    time_to_idle: None,
    collide: false,
    bounded: false,
    background: false,
};

/// One kind for each path that the cache takes through a read or a write.
///
/// The last one has a thread of its own, which controlled schedules must not have.
pub const SETUPS: [Setup; 10] = [
    BARE,
    Setup {
        name: "time to live",
        time_to_live: Some(3),
        bounded: true,
        ..BARE
    },
    Setup {
        name: "time to idle",
        time_to_idle: Some(2),
        ..BARE
    },
    Setup {
        name: "both limits",
        time_to_live: Some(5),
        time_to_idle: Some(2),
        bounded: true,
        ..BARE
    },
    Setup {
        name: "policy",
        policy: Policy::Values,
        bounded: true,
        ..BARE
    },
    Setup {
        name: "policy on creation",
        policy: Policy::OnCreation,
        ..BARE
    },
    Setup {
        name: "policy of the entry alone",
        policy: Policy::EntryAlone,
        ..BARE
    },
    Setup {
        name: "policy and limits",
        policy: Policy::Values,
        time_to_live: Some(5),
        time_to_idle: Some(3),
        ..BARE
    },
    Setup {
        name: "one hash",
        time_to_live: Some(3),
        collide: true,
        ..BARE
    },
    Setup {
        name: "background",
        time_to_live: Some(2),
        background: true,
        ..BARE
    },
];

impl Setup {
    pub fn rules(&self) -> Rules {
        let nanos = |units: Option<u64>| units.map(|units| units * UNIT);
        Rules {
            policy: self.policy != Policy::Nobody,
            time_to_live: nanos(self.time_to_live),
            time_to_idle: nanos(self.time_to_idle),
        }
    }
}

/// The default hasher, or the worst.
#[derive(Clone, Default)]
pub struct Hashing {
    /// Not randomly keyed: the same seed has to do the same.
    fair: BuildHasherDefault<DefaultHasher>,
    collide: bool,
}

impl BuildHasher for Hashing {
    type Hasher = Box<dyn Hasher>;

    fn build_hasher(&self) -> Box<dyn Hasher> {
        if self.collide {
            Box::new(OneHash.build_hasher())
        } else {
            Box::new(self.fair.build_hasher())
        }
    }
}

/// One operation of a thread.
#[derive(Clone, Copy, Debug)]
pub enum Step {
    Call(u8, Op),
    /// Looks up all keys up to this one at once, behind this many others that are absent.
    GetMany(u8, u8),
    /// Advances the clock by this many units.
    Advance(u64),
    /// Runs maintenance, which must not change any answer.
    Maintain,
    /// Inserts this many other keys and removes them: the table grows and shrinks.
    Crowd(u8),
}

/// The result of the operation.
pub enum Happened {
    /// One call, or for a look-up of many keys one for each: they were in progress at the same
    /// time.
    Calls(Vec<Call>),
    Advance(Advance),
    Nothing,
}

/// A cache under observation.
pub struct Subject {
    cache: Cache<Key, Stored, Hashing>,
    clock: Clock,
}

impl Subject {
    pub fn new(setup: &Setup, origin: u64, parts: usize) -> Subject {
        let clock = Clock::new(origin);
        let nanos = |units: u64| Duration::from_nanos(units * UNIT);
        let builder = Cache::builder().parts(parts).ticker(clock.clone());
        let mut builder = builder.hasher(Hashing {
            collide: setup.collide,
            ..Hashing::default()
        });
        if setup.background {
            builder = builder.scheduler(Scheduler::background());
        }
        if setup.bounded {
            builder = builder.max_capacity(10_000);
        }
        if let Some(units) = setup.time_to_live {
            builder = builder.time_to_live(nanos(units));
        }
        if let Some(units) = setup.time_to_idle {
            builder = builder.time_to_idle(nanos(units));
        }
        builder = match setup.policy {
            Policy::Nobody => builder,
            Policy::Values => builder.expire_after(AsWritten),
            Policy::EntryAlone => {
                builder.expire_after(expiry::accessing(|_: &Key, value: &Stored| {
                    answer(value.0.on_create, None)
                }))
            }
            Policy::OnCreation => {
                builder.expire_after(expiry::creating(|_: &Key, value: &Stored| {
                    answer(value.0.on_create, None)
                }))
            }
        };
        Subject {
            cache: builder.build(),
            clock,
        }
    }

    pub fn perform(&self, thread: usize, step: Step) -> Happened {
        pause();
        match step {
            Step::Call(key, op) => {
                return self.observed(thread, op, || vec![(key, self.call(Key(key), op))]);
            }
            Step::GetMany(last, others) => {
                return self.observed(thread, Op::Get, || self.get_many(last, others));
            }
            Step::Advance(units) => return Happened::Advance(self.clock.advance(units)),
            Step::Maintain => self.cache.run_pending_tasks(),
            Step::Crowd(size) => {
                for key in 0..size {
                    self.cache.insert(Key(!key), Stored(Value::plain(0)));
                }
                for key in 0..size {
                    self.cache.invalidate(&Key(!key));
                }
            }
        }
        Happened::Nothing
    }

    /// Runs an operation that returns a result for each key.
    fn observed(
        &self,
        thread: usize,
        op: Op,
        act: impl FnOnce() -> Vec<(u8, Outcome)>,
    ) -> Happened {
        let (from, clock) = self.clock.stamp();
        let outcomes = act();
        let (to, _) = self.clock.stamp();
        let call = |(key, outcome)| Call {
            thread,
            key,
            op,
            outcome,
            from,
            to,
            clock,
        };
        Happened::Calls(outcomes.into_iter().map(call).collect())
    }

    fn get_many(&self, last: u8, others: u8) -> Vec<(u8, Outcome)> {
        const ABSENT: u8 = 100;
        let mut asked = vec![Key(ABSENT); others.into()];
        asked.extend((0..=last).rev().map(Key));
        let mut answers = self.cache.get_many(&asked);
        let found = answers.split_off(others.into());
        assert!(
            answers.iter().all(Option::is_none),
            "a value that was never inserted"
        );
        assert_eq!(found.len(), usize::from(last) + 1);
        let keys = asked[others.into()..].iter().map(|key| key.0);
        keys.zip(found.into_iter().map(id)).collect()
    }

    fn call(&self, key: Key, op: Op) -> Outcome {
        match op {
            Op::Get => id(self.cache.get(&key)),
            Op::Remove => id(self.cache.remove(&key)),
            Op::Contains => Outcome::Said(self.cache.contains_key(&key)),
            Op::SetExpiry(life) => {
                Outcome::Said(self.cache.set_expiry(&key, life.map(Duration::from_nanos)))
            }
            Op::Insert(value) => {
                self.cache.insert(key, Stored(value));
                Outcome::Done
            }
            Op::InsertWithTtl(value, life) => {
                self.cache
                    .insert_with_ttl(key, Stored(value), Duration::from_nanos(life));
                Outcome::Done
            }
            Op::Invalidate => {
                self.cache.invalidate(&key);
                Outcome::Done
            }
            Op::Load(value) => {
                let load = || {
                    pause();
                    Stored(value)
                };
                id(Some(self.cache.get_with(key, load)))
            }
            Op::Compute(value) => self.compute(key, value),
            Op::ReplaceIf(old, value) => {
                let matches = |there: &Stored| {
                    pause();
                    there.0.id == old
                };
                Outcome::Said(self.cache.replace_if(&key, Stored(value), matches).is_ok())
            }
        }
    }

    fn compute(&self, key: Key, value: Option<Value>) -> Outcome {
        let mut seen = None;
        let result = self.cache.entry(key).and_compute_with(|entry| {
            seen = entry.map(|entry| entry.value().0.id);
            pause();
            value.map_or(Then::Remove, |value| Then::Put(Stored(value)))
        });
        let ended = match result {
            // One whose life is over at once was stored, too: no call can tell.
            CompResult::Inserted(entry) if entry.is_stored() || is_due(&entry) => Ended::Inserted,
            CompResult::ReplacedWith(entry) if entry.is_old_value_replaced() => Ended::Replaced,
            CompResult::Inserted(_) | CompResult::ReplacedWith(_) => Ended::Before,
            CompResult::Removed(_) => Ended::Removed,
            CompResult::StillNone(_) => Ended::StillNone,
            CompResult::Overtaken(_) => Ended::Overtaken,
            CompResult::Unchanged(entry) => unreachable!("it was to change {entry:?}"),
        };
        Outcome::Computed(seen, ended)
    }
}

/// Whether a value was stored with a life that was over at once.
fn is_due(entry: &Entry<Key, Stored>) -> bool {
    entry.time_left() == Some(Duration::ZERO)
}

fn id(found: Option<Stored>) -> Outcome {
    Outcome::Found(found.map(|value| value.0.id))
}

/// Some units of time: mostly few, sometimes enough for another level of the wheel.
fn units(dice: &mut Dice, least: u64) -> u64 {
    match dice.below(20) {
        0 => 64 * (1 + dice.below(3)),
        1 => 1 << (10 + dice.below(8)),
        _ => least + dice.below(5 - least),
    }
}

/// The plan of each of `threads` in a history; `steps` each.
pub fn plans(dice: &mut Dice, setup: &Setup, threads: usize, steps: usize) -> Vec<Vec<Step>> {
    let keys = 1 + dice.below(3);
    let mut id = 0;
    (0..threads)
        .map(|_| {
            (0..steps)
                .map(|_| {
                    let key = dice.below(keys) as u8;
                    step(dice, setup, key, &mut id)
                })
                .collect()
        })
        .collect()
}

fn step(dice: &mut Dice, setup: &Setup, key: u8, id: &mut u32) -> Step {
    let op = match dice.below(100) {
        0..=9 => Op::Get,
        10..=16 => Op::Load(value(dice, setup, id)),
        // The last of them are a look-up of their own: they go by sixteen.
        17..=24 => return Step::GetMany(key, dice.below(18) as u8),
        25..=32 => Op::Contains,
        33..=44 => Op::Insert(value(dice, setup, id)),
        45..=51 => Op::Compute((dice.below(4) > 0).then(|| value(dice, setup, id))),
        52..=53 => {
            // One of those that came in before, perhaps of this key.
            let old = 1 + dice.below(u64::from(*id).max(1)) as u32;
            Op::ReplaceIf(old, value(dice, setup, id))
        }
        54..=61 => Op::InsertWithTtl(value(dice, setup, id), units(dice, 0) * UNIT),
        62..=72 => Op::SetExpiry((dice.below(4) > 0).then(|| units(dice, 0) * UNIT)),
        73..=78 => Op::Invalidate,
        79..=85 => Op::Remove,
        86..=94 => return Step::Advance(units(dice, 1)),
        95..=97 => return Step::Maintain,
        _ => return Step::Crowd(8 + dice.below(40) as u8),
    };
    Step::Call(key, op)
}

/// A value with a number of its own. Its lifetimes differ in the last digits from all others', so
/// that an answer equals the time left only if it was given before.
fn value(dice: &mut Dice, setup: &Setup, id: &mut u32) -> Value {
    *id += 1;
    let number = *id;
    let mut life = |occasion: u64| match dice.below(6) {
        0 => Answer::Keep,
        1 => Answer::Never,
        _ => Answer::After(units(dice, 0) * UNIT + 3 * u64::from(number) + occasion),
    };
    let mut value = Value {
        id: number,
        on_create: life(0),
        on_update: life(1),
        on_read: life(2),
    };
    if setup.policy == Policy::OnCreation {
        (value.on_update, value.on_read) = (Answer::Keep, Answer::Keep);
    }
    if setup.policy == Policy::EntryAlone {
        if value.on_create == Answer::Keep {
            value.on_create = Answer::Never;
        }
        (value.on_update, value.on_read) = (value.on_create, value.on_create);
    }
    value
}
