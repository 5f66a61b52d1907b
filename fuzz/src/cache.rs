//! A cache compared with the model of the integration tests; also checks the cache's invariants.

use crate::hostile::Hostile;
use crate::model::bytes::Bytes;
use crate::model::subject::AsWritten;
use crate::model::{Delivered, LONGEST, Model, Op, Outcome, Settings, Value, many_keys};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use wheelhouse::{Cache, ManualTicker};

struct Subject {
    cache: Cache<u8, Value, Hostile>,
    clock: ManualTicker,
    delivered: Arc<Mutex<Delivered>>,
}

impl Subject {
    /// `flavour` chooses what the model does not contain: the hashes, and whether there is a bound,
    /// far away.
    fn new(settings: Settings, flavour: u8) -> Self {
        let clock = ManualTicker::starting_at(settings.origin);
        let delivered: Arc<Mutex<Delivered>> = Arc::default();
        let tell = Arc::clone(&delivered);
        let mut builder = Cache::builder()
            .hasher(Hostile(flavour))
            .ticker(clock.clone())
            .expiry_resolution(Duration::from_nanos(1 << settings.resolution))
            .removal_listener(move |&key: &u8, value: &Value, cause| {
                let mut delivered = tell.lock().unwrap();
                delivered.entry(key).or_default().push((value.id, cause));
            });
        if flavour & 0x80 != 0 {
            builder = builder.max_capacity(1 << 40);
        }
        if settings.weighs() {
            builder = builder
                .max_capacity(1 << 40)
                .weigher(|_, value: &Value| value.weight());
        }
        if settings.policy {
            builder = builder.expire_after(AsWritten);
        }
        if let Some(life) = settings.time_to_live {
            builder = builder.time_to_live(life);
        }
        if let Some(life) = settings.time_to_idle {
            builder = builder.time_to_idle(life);
        }
        Self {
            cache: builder.build(),
            clock,
            delivered,
        }
    }

    fn apply(&self, op: &Op) -> Outcome {
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
                    assert_eq!(shown.insert(key, value.id), None, "shown twice");
                    !value.id.is_multiple_of(number)
                });
                return Outcome::Shown(shown);
            }
            Op::Iterate => {
                let mut shown = BTreeMap::new();
                for entry in cache {
                    assert_eq!(shown.insert(*entry.key(), entry.id), None, "shown twice");
                }
                return Outcome::Shown(shown);
            }
            Op::Advance(step) => self.clock.advance(step),
            Op::RunPendingTasks => {
                cache.run_pending_tasks();
                return Outcome::Quiet {
                    count: cache.entry_count(),
                    weight: cache.weighted_size(),
                    delivered: std::mem::take(&mut *self.delivered.lock().unwrap()),
                };
            }
        }
        Outcome::Nothing
    }

    /// After all pending tasks: the cache asks to be woken in time for the nearest deadline, and
    /// not at all if there is none.
    fn check_wake(&self, nearest: Option<Duration>, span: Duration) {
        let wait = self.cache.next_maintenance_in();
        let in_time = match (wait, nearest) {
            (Some(wait), Some(nearest)) => wait > Duration::ZERO && wait <= nearest + span,
            (None, None) => true,
            _ => false,
        };
        assert!(
            in_time,
            "asks to be woken in {wait:?}, needed in {nearest:?}"
        );
    }
}

/// Runs a program on both. The first two bytes are the flavour, and how often the invariants are
/// checked. Each check drains the waiting writes, so with a check after every operation no writes
/// would wait.
pub fn run(data: &[u8]) {
    let [flavour, pause, program @ ..] = data else {
        return;
    };
    let mut bytes = Bytes(program);
    let Some(settings) = bytes.settings() else {
        return;
    };
    let pause = usize::from(pause % 32) + 1;
    let (mut model, subject) = (Model::new(settings), Subject::new(settings, *flavour));
    let span = Duration::from_nanos(1 << settings.resolution);
    let mut unseen = 0u128;
    let end = [Op::RunPendingTasks, Op::InvalidateAll, Op::RunPendingTasks];
    let ops = std::iter::from_fn(|| bytes.op()).chain(end);
    for (step, op) in ops.enumerate() {
        match op {
            // A step greater than the clock can distinguish.
            Op::Advance(by) if unseen + by.as_nanos() > LONGEST => continue,
            Op::Advance(by) => unseen += by.as_nanos(),
            Op::RunPendingTasks => unseen = 0,
            _ => {}
        }
        assert_eq!(subject.apply(&op), model.apply(&op), "step {step}, {op:?}");
        if matches!(op, Op::RunPendingTasks) {
            subject.check_wake(model.nearest(), span);
        }
        if step % pause == 0 {
            subject.cache.check_invariants();
        }
    }
    assert_eq!(subject.cache.entry_count(), 0);
    subject.cache.check_invariants();
}
