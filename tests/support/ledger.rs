//! A sequential ledger beside a cache near its bound. It knows everything except which victims the
//! cache chooses.
//!
//! It checks that a look-up returns the newest value of its key or none, and none if the ledger has
//! none. After `run_pending_tasks` it checks that each pair that was inserted is stored or was
//! delivered once, for the right cause; that the weight is the sum of the weights stored and within
//! the bound; and that nothing was evicted if all live entries have fitted all the time.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use wheelhouse::RemovalCause::{self, Expired, Explicit, Replaced, Size};
use wheelhouse::{Cache, EvictionPolicy, ManualTicker};

/// Keys are below this.
pub const KEYS: u8 = 30;

/// A value is its number among all, and its weight.
type Value = (u32, u32);

type Heard = Arc<Mutex<Vec<(u8, Value, RemovalCause)>>>;

#[derive(Clone, Copy, Debug)]
pub enum Op {
    Insert(u8, u32),
    InsertWithTtl(u8, u32, Duration),
    Get(u8),
    Remove(u8),
    Clear,
    Advance(Duration),
    SetMax(u64),
    Settle,
}

#[derive(Clone, Copy)]
struct Entry {
    value: Value,
    deadline: Option<Duration>,
}

struct Ledger {
    max: u64,
    now: Duration,
    next: u32,
    /// The content of the cache, except victims since the last settling.
    entries: BTreeMap<u8, Entry>,
    /// Removals that must be delivered; and pairs that have to leave, which may be delivered with
    /// another cause before.
    left: BTreeMap<u32, RemovalCause>,
    /// Whether live entries ever exceeded the bound since the last settling.
    tight: bool,
    /// How many parts the cache has.
    parts: usize,
    /// The weight of what has left since the last settling.
    gone: u64,
}

impl Ledger {
    fn new(max: u64, parts: usize) -> Self {
        Self {
            max,
            now: Duration::ZERO,
            next: 0,
            entries: BTreeMap::new(),
            left: BTreeMap::new(),
            tight: false,
            parts,
            gone: 0,
        }
    }

    fn weight(&self) -> u64 {
        let weights = self.entries.values().map(|entry| entry.value.1);
        weights.map(u64::from).sum()
    }

    fn leave(&mut self, key: u8, cause: RemovalCause) {
        if let Some(entry) = self.entries.remove(&key) {
            self.left.insert(entry.value.0, cause);
            self.gone += u64::from(entry.value.1);
        }
    }

    /// What a pass may take for the weight of the cache. A pass over one of several parts may not
    /// know yet what has left the others.
    fn known_weight(&self) -> u64 {
        match self.parts {
            1 => self.weight(),
            _ => self.weight() + self.gone,
        }
    }

    fn expire(&mut self) {
        let now = self.now;
        let due = |entry: &Entry| entry.deadline.is_some_and(|deadline| deadline <= now);
        let keys: Vec<u8> = self
            .entries
            .iter()
            .filter_map(|(key, entry)| due(entry).then_some(*key))
            .collect();
        for key in keys {
            self.leave(key, Expired);
        }
    }

    fn insert(&mut self, key: u8, weight: u32, life: Option<Duration>) -> Value {
        let value = (self.next, weight);
        self.next += 1;
        self.leave(key, Replaced);
        if u64::from(weight) > self.max {
            self.left.insert(value.0, Size);
        } else {
            let deadline = life.map(|life| self.now + life);
            self.entries.insert(key, Entry { value, deadline });
            self.expire();
        }
        self.tight |= self.known_weight() > self.max;
        value
    }
}

type Judged = Result<(), String>;

fn alike<T: PartialEq + Debug>(what: &str, found: T, expected: T) -> Judged {
    if found == expected {
        Ok(())
    } else {
        Err(format!("{what}: found {found:?}, expected {expected:?}"))
    }
}

/// Runs the operations on a cache and in the ledger, then clears both; says where they first
/// differ.
///
/// The cache has one part, then several.
pub fn compare(policy: EvictionPolicy, max: u64, ops: &[Op]) -> Judged {
    for parts in [1, 2, 16] {
        compare_with(parts, policy, max, ops).map_err(|wrong| format!("{parts} parts: {wrong}"))?;
    }
    Ok(())
}

fn compare_with(parts: usize, policy: EvictionPolicy, max: u64, ops: &[Op]) -> Judged {
    let (clock, heard) = (ManualTicker::new(), Heard::default());
    let hear = Arc::clone(&heard);
    let cache: Cache<u8, Value> = Cache::builder()
        .parts(parts)
        .max_capacity(max)
        .eviction_policy(policy)
        .ticker(clock.clone())
        .weigher(|_, value: &Value| value.1)
        .removal_listener(move |&key: &u8, &value: &Value, cause| {
            hear.lock().unwrap().push((key, value, cause));
        })
        .build();
    let mut ledger = Ledger::new(max, parts);
    for op in ops.iter().chain(&[Op::Settle, Op::Clear, Op::Settle]) {
        match *op {
            Op::Insert(key, weight) => cache.insert(key, ledger.insert(key, weight, None)),
            Op::InsertWithTtl(key, weight, life) => {
                cache.insert_with_ttl(key, ledger.insert(key, weight, Some(life)), life);
            }
            Op::Get(key) => {
                let known = ledger.entries.get(&key).map(|entry| entry.value);
                let found = cache.get(&key);
                let may_be_gone = ledger.tight && found.is_none();
                if !may_be_gone {
                    alike("a look-up", found, known)?;
                }
            }
            Op::Remove(key) => {
                cache.invalidate(&key);
                ledger.leave(key, Explicit);
            }
            Op::Clear => {
                cache.invalidate_all();
                for key in 0..KEYS {
                    ledger.leave(key, Explicit);
                }
            }
            Op::Advance(step) => {
                clock.advance(step);
                ledger.now += step;
                ledger.expire();
            }
            Op::SetMax(max) => {
                cache.policy().set_max_capacity(max);
                ledger.max = max;
                ledger.tight |= ledger.known_weight() > max;
            }
            Op::Settle => settle(&cache, &mut ledger, &heard)?,
        }
    }
    alike(
        "weight and count of a cleared cache",
        (cache.weighted_size(), cache.entry_count()),
        (0, 0),
    )?;
    Ok(())
}

fn settle(cache: &Cache<u8, Value>, ledger: &mut Ledger, heard: &Heard) -> Judged {
    cache.run_pending_tasks();
    for (key, value, cause) in std::mem::take(&mut *heard.lock().unwrap()) {
        match ledger.left.remove(&value.0) {
            // A victim that the ledger saw leave in another way, later.
            Some(known) if cause == Size && known != Size => {
                if !ledger.tight || value.1 == 0 {
                    return Err(format!("{value:?} was evicted without need"));
                }
            }
            Some(known) => alike("a cause", (key, value, cause), (key, value, known))?,
            None => {
                let entry = ledger.entries.remove(&key);
                alike("what left", Some(value), entry.map(|entry| entry.value))?;
                if cause != Size || !ledger.tight || value.1 == 0 {
                    return Err(format!("{value:?} of key {key} left as {cause}"));
                }
            }
        }
    }
    alike(
        "removals that were not delivered",
        &ledger.left,
        &BTreeMap::new(),
    )?;
    let there: BTreeMap<u8, Value> = cache.iter().map(|entry| (*entry.key(), *entry)).collect();
    let known: BTreeMap<u8, Value> = ledger
        .entries
        .iter()
        .map(|(key, entry)| (*key, entry.value))
        .collect();
    alike("entries stored", &there, &known)?;
    alike("the count", cache.entry_count(), known.len() as u64)?;
    alike("the weight", cache.weighted_size(), ledger.weight())?;
    if ledger.weight() > ledger.max {
        return Err(format!("{} is over {}", ledger.weight(), ledger.max));
    }
    ledger.tight = false;
    ledger.gone = 0;
    Ok(())
}
