//! A real cache on a manual clock, which runs the model's operations.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use wheelhouse::{Cache, Expiry, ManualTicker, Scheduler};

use super::{Answer, Asked, Delivered, LONGEST, Model, Op, Outcome, Settings, Value, many_keys};

/// The policy of the real cache: the answers are in the values.
pub struct AsWritten;

fn answer(answer: Answer, left: Option<Duration>) -> Option<Duration> {
    match answer {
        Answer::Keep => left,
        Answer::Never => None,
        Answer::After(life) => Some(life),
    }
}

impl Expiry<u8, Value> for AsWritten {
    fn expire_after_create(&self, _: &u8, value: &Value, _: Instant) -> Option<Duration> {
        answer(value.on_create, None)
    }

    fn expire_after_update(
        &self,
        _: &u8,
        value: &Value,
        _: Instant,
        left: Option<Duration>,
    ) -> Option<Duration> {
        answer(value.on_update, left)
    }

    fn expire_after_read(
        &self,
        _: &u8,
        value: &Value,
        _: Instant,
        left: Option<Duration>,
        _: Instant,
    ) -> Option<Duration> {
        answer(value.on_read, left)
    }
}

/// The same policy, which records its calls.
struct Noting(Arc<Mutex<Vec<Asked>>>);

impl Noting {
    fn note(&self, asked: Asked) {
        self.0.lock().unwrap().push(asked);
    }
}

impl Expiry<u8, Value> for Noting {
    fn expire_after_create(&self, key: &u8, value: &Value, at: Instant) -> Option<Duration> {
        self.note(Asked::Create(*key, value.id));
        AsWritten.expire_after_create(key, value, at)
    }

    fn expire_after_update(
        &self,
        key: &u8,
        value: &Value,
        at: Instant,
        left: Option<Duration>,
    ) -> Option<Duration> {
        self.note(Asked::Update(*key, value.id, left));
        AsWritten.expire_after_update(key, value, at, left)
    }

    fn expire_after_read(
        &self,
        key: &u8,
        value: &Value,
        at: Instant,
        left: Option<Duration>,
        modified: Instant,
    ) -> Option<Duration> {
        self.note(Asked::Read(*key, value.id, left, at - modified));
        AsWritten.expire_after_read(key, value, at, left, modified)
    }
}

/// A real cache on a manual clock, which runs the same operations.
pub struct Subject {
    settings: Settings,
    cache: Cache<u8, Value>,
    clock: ManualTicker,
    delivered: Arc<Mutex<Delivered>>,
    asked: Arc<Mutex<Vec<Asked>>>,
}

impl Subject {
    pub fn new(settings: Settings, parts: usize) -> Self {
        let clock = ManualTicker::starting_at(settings.origin);
        let delivered: Arc<Mutex<Delivered>> = Arc::default();
        let tell = Arc::clone(&delivered);
        let asked: Arc<Mutex<Vec<Asked>>> = Arc::default();
        let mut builder = Cache::builder()
            .parts(parts)
            .ticker(clock.clone())
            .scheduler(Scheduler::disabled())
            .expiry_resolution(Duration::from_nanos(1 << settings.resolution))
            .removal_listener(move |&key: &u8, value: &Value, cause| {
                tell.lock()
                    .unwrap()
                    .entry(key)
                    .or_default()
                    .push((value.id, cause));
            });
        if settings.weighs() {
            builder = builder
                .max_capacity(u64::MAX)
                .weigher(|_, value: &Value| value.weight());
        }
        if settings.policy {
            builder = builder.expire_after(Noting(Arc::clone(&asked)));
        }
        if let Some(life) = settings.time_to_live {
            builder = builder.time_to_live(life);
        }
        if let Some(life) = settings.time_to_idle {
            builder = builder.time_to_idle(life);
        }
        Subject {
            settings,
            cache: builder.build(),
            clock,
            delivered,
            asked,
        }
    }

    /// The calls of the policy, since the last call.
    fn take_asked(&self) -> Vec<Asked> {
        std::mem::take(&mut *self.asked.lock().unwrap())
    }

    pub fn apply(&self, op: &Op) -> Outcome {
        let cache = &self.cache;
        match *op {
            Op::Insert(key, value) => cache.insert(key, value),
            Op::InsertWithTtl(key, value, ttl) => cache.insert_with_ttl(key, value, ttl),
            Op::Get(key) => return Outcome::Value(cache.get(&key)),
            Op::GetMany(first, count) => {
                return Outcome::Values(cache.get_many(&many_keys(first, count)));
            }
            Op::GetRef(key) => {
                let entry = cache.get_ref(&key);
                return Outcome::Entry(entry.map(|entry| (*entry, entry.time_left())));
            }
            Op::Peek(key) => {
                let entry = cache.peek_ref(&key);
                return Outcome::Entry(entry.map(|entry| (*entry, entry.time_left())));
            }
            Op::Contains(key) => return Outcome::Is(cache.contains_key(&key)),
            Op::SetExpiry(key, life) => return Outcome::Is(cache.set_expiry(&key, life)),
            Op::Invalidate(key) => cache.invalidate(&key),
            Op::Remove(key) => return Outcome::Value(cache.remove(&key)),
            Op::InvalidateAll => cache.invalidate_all(),
            Op::Retain(number) => {
                let mut shown = BTreeMap::new();
                cache.retain(|&key, value| {
                    let before = shown.insert(key, value.id);
                    assert_eq!(before, None, "key {key} is shown twice to retain");
                    value.id % number != 0
                });
                return Outcome::Shown(shown);
            }
            Op::Iterate => {
                let mut shown = BTreeMap::new();
                for entry in cache {
                    let before = shown.insert(*entry.key(), entry.id);
                    assert_eq!(before, None, "key {} is shown twice by iter", entry.key());
                }
                return Outcome::Shown(shown);
            }
            Op::Advance(step) => self.clock.advance(step),
            Op::RunPendingTasks => {
                cache.run_pending_tasks();
                let delivered = std::mem::take(&mut *self.delivered.lock().unwrap());
                return Outcome::Quiet {
                    count: cache.entry_count(),
                    weight: cache.weighted_size(),
                    delivered,
                };
            }
        }
        Outcome::Nothing
    }

    /// Whether the cache, after all pending tasks, asks to be woken in time for the nearest
    /// deadline, and not at all without one.
    fn wakes_for(&self, nearest: Option<Duration>) -> Result<(), String> {
        let span = Duration::from_nanos(1 << self.settings.resolution);
        match (nearest, self.cache.next_maintenance_in()) {
            (None, None) => Ok(()),
            (Some(nearest), Some(wait)) if wait > Duration::ZERO && wait <= nearest + span => {
                Ok(())
            }
            (_, wait) => Err(format!(
                "asks to be woken in {wait:?}, needed in {nearest:?}"
            )),
        }
    }
}

/// Runs the same operations on a cache and on the model, then clears both; says where they first
/// differ.
///
/// A step of the clock is skipped if, together with the steps since the last pending tasks, it
/// would exceed what a clock can distinguish.
///
/// The cache has one part, then several.
pub fn compare(settings: Settings, ops: &[Op]) -> Result<(), String> {
    for parts in [1, 2, 16] {
        compare_with(settings, parts, ops).map_err(|wrong| format!("{parts} parts: {wrong}"))?;
    }
    Ok(())
}

fn compare_with(settings: Settings, parts: usize, ops: &[Op]) -> Result<(), String> {
    let (mut model, subject) = (Model::new(settings), Subject::new(settings, parts));
    let end = [
        Op::RunPendingTasks,
        Op::Iterate,
        Op::InvalidateAll,
        Op::RunPendingTasks,
    ];
    let mut unseen = 0u128;
    for (step, op) in ops.iter().chain(&end).enumerate() {
        match op {
            Op::Advance(by) => {
                if unseen + by.as_nanos() > LONGEST {
                    continue;
                }
                unseen += by.as_nanos();
            }
            Op::RunPendingTasks => unseen = 0,
            _ => {}
        }
        let (expected, found) = (model.apply(op), subject.apply(op));
        if expected != found {
            return Err(format!(
                "step {step}, {op:?}: expected {expected:?}, found {found:?}"
            ));
        }
        let (expected, found) = (model.take_asked(), subject.take_asked());
        if expected != found {
            return Err(format!(
                "step {step}, {op:?}: the policy should be asked {expected:?}, was asked {found:?}"
            ));
        }
        if matches!(op, Op::RunPendingTasks) {
            let woken = subject.wakes_for(model.nearest());
            woken.map_err(|wrong| format!("step {step}, {op:?}: {wrong}"))?;
        }
    }
    match subject.cache.entry_count() {
        0 => Ok(()),
        count => Err(format!("{count} entries are counted in a cleared cache")),
    }
}
