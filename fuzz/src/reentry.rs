//! A cache near its bound, whose listener and policy call it back, while entries are held by
//! reference.
//!
//! What must hold whatever the callbacks do: each value that was inserted is delivered exactly once
//! or still stored, under its own key, in the order of the writes of that key; an entry held by
//! reference keeps its key and value; and at the end no value is left in memory.

use crate::hostile::Hostile;
use crate::model::bytes::Bytes;
use crate::model::{Answer, LONGEST, Op, many_keys};
use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, Weak};
use std::time::{Duration, Instant};
use wheelhouse::{Cache, Delivery, EntryRef, Expiry, ManualTicker, RemovalCause};

type Stock = Cache<u8, Item, Hostile>;

/// How deeply callbacks may call the cache from inside a callback.
const DEPTH: usize = 4;
/// The longest step of the clock that a callback makes while a call waits for its answer.
const SMALL_STEP: Duration = Duration::from_secs(3600);

/// A value that knows its content, on the heap, so that a sanitizer detects a read of a freed one.
struct Item {
    what: Box<(u64, u8)>,
    answers: [Answer; 3],
    counts: Arc<Counts>,
}

impl Drop for Item {
    fn drop(&mut self) {
        self.counts.dropped.fetch_add(1, Relaxed);
    }
}

#[derive(Default)]
struct Counts {
    made: AtomicU64,
    dropped: AtomicU64,
}

/// The state that the callbacks share with the program.
struct Stage {
    clock: ManualTicker,
    counts: Arc<Counts>,
    /// Operations for callbacks.
    cues: Mutex<VecDeque<Op>>,
    /// Nanoseconds since the last run of pending tasks.
    unseen: Mutex<u128>,
    told: Mutex<Vec<(u8, u64, RemovalCause)>>,
    /// The cache, for callbacks. Emptied at the end, otherwise the cache would own itself.
    cache: Mutex<Option<Stock>>,
}

thread_local! {
    static INSIDE: Cell<usize> = const { Cell::new(0) };
}

impl Stage {
    /// Runs the next operation that is reserved for callbacks.
    fn cue(&self) {
        let depth = INSIDE.get();
        if depth == DEPTH {
            return;
        }
        let Some(op) = self.cues.lock().unwrap().pop_front() else {
            return;
        };
        let cache = self.cache.lock().unwrap().clone();
        if let Some(cache) = cache {
            INSIDE.set(depth + 1);
            self.play(&cache, &op);
            INSIDE.set(depth);
        }
    }

    fn item(&self, key: u8, answers: [Answer; 3]) -> Item {
        let number = self.counts.made.fetch_add(1, Relaxed);
        Item {
            what: Box::new((number, key)),
            answers,
            counts: Arc::clone(&self.counts),
        }
    }

    fn play(&self, cache: &Stock, op: &Op) {
        match *op {
            Op::Insert(key, value) => {
                let answers = [value.on_create, value.on_update, value.on_read];
                cache.insert(key, self.item(key, answers));
            }
            Op::InsertWithTtl(key, value, ttl) => {
                let answers = [value.on_create, value.on_update, value.on_read];
                cache.insert_with_ttl(key, self.item(key, answers), ttl);
            }
            Op::Get(key) | Op::GetRef(key) => {
                if let Some(entry) = cache.get_ref(&key) {
                    assert_eq!(entry.what.1, key);
                }
            }
            // Its values cannot be cloned.
            Op::GetMany(first, count) => {
                for key in many_keys(first, count) {
                    drop(cache.get_ref(&key));
                }
            }
            Op::Peek(key) => {
                if let Some(entry) = cache.peek_ref(&key) {
                    assert_eq!(entry.what.1, key);
                    assert_ne!(entry.time_left(), Some(Duration::MAX));
                }
            }
            Op::Contains(key) => drop(cache.contains_key(&key)),
            Op::SetExpiry(key, life) => drop(cache.set_expiry(&key, life)),
            Op::Invalidate(key) | Op::Remove(key) => {
                cache.invalidate(&key);
            }
            Op::InvalidateAll => cache.invalidate_all(),
            Op::Retain(number) => {
                let mut shown = BTreeSet::new();
                cache.retain(|&key, item| {
                    assert_eq!(item.what.1, key);
                    assert!(shown.insert(item.what.0), "a value is shown twice");
                    self.cue();
                    !item.what.0.is_multiple_of(u64::from(number))
                });
            }
            Op::Iterate => {
                let mut shown = BTreeSet::new();
                for entry in cache {
                    assert_eq!(entry.what.1, *entry.key());
                    assert!(shown.insert(entry.what.0), "a value is shown twice");
                    self.cue();
                }
            }
            Op::Advance(step) => {
                let mut unseen = self.unseen.lock().unwrap();
                let inside = INSIDE.get() > 0;
                if *unseen + step.as_nanos() <= LONGEST && !(inside && step > SMALL_STEP) {
                    *unseen += step.as_nanos();
                    self.clock.advance(step);
                }
            }
            Op::RunPendingTasks => {
                cache.run_pending_tasks();
                if INSIDE.get() == 0 {
                    *self.unseen.lock().unwrap() = 0;
                }
            }
        }
    }

    fn answer(&self, item: &Item, about: usize, left: Option<Duration>) -> Option<Duration> {
        self.cue();
        match item.answers[about] {
            Answer::Keep => left,
            Answer::Never => None,
            Answer::After(life) => Some(life),
        }
    }
}

/// The policy. Its reference is weak, because the cache that owns the policy is on the stage.
struct AsPlayed(Weak<Stage>);

impl AsPlayed {
    fn answer(&self, item: &Item, about: usize, left: Option<Duration>) -> Option<Duration> {
        let stage = self.0.upgrade().expect("the stage outlives every call");
        stage.answer(item, about, left)
    }
}

impl Expiry<u8, Item> for AsPlayed {
    fn expire_after_create(&self, &key: &u8, item: &Item, _: Instant) -> Option<Duration> {
        assert_eq!(item.what.1, key);
        self.answer(item, 0, None)
    }

    fn expire_after_update(
        &self,
        &key: &u8,
        item: &Item,
        _: Instant,
        left: Option<Duration>,
    ) -> Option<Duration> {
        assert_eq!(item.what.1, key);
        assert_ne!(
            left,
            Some(Duration::ZERO),
            "the policy is called for an expired entry"
        );
        self.answer(item, 1, left)
    }

    fn expire_after_read(
        &self,
        &key: &u8,
        item: &Item,
        _: Instant,
        left: Option<Duration>,
        _: Instant,
    ) -> Option<Duration> {
        assert_eq!(item.what.1, key);
        assert_ne!(
            left,
            Some(Duration::ZERO),
            "the policy is called for an expired entry"
        );
        self.answer(item, 2, left)
    }
}

/// The mode of a program; four bytes.
struct Flavour {
    hashing: u8,
    bound: Option<u64>,
    policy: bool,
    /// Whether every second operation is reserved for callbacks.
    calls_back: bool,
    pause: usize,
}

impl Flavour {
    fn new([hashing, bound, kind, pause]: [u8; 4]) -> Self {
        Self {
            hashing,
            bound: (bound < 200).then_some(u64::from(bound % 24)),
            policy: kind & 1 != 0,
            calls_back: kind & 2 != 0,
            pause: usize::from(pause % 32) + 1,
        }
    }
}

fn build(flavour: &Flavour, program: &mut Bytes<'_>) -> Option<Arc<Stage>> {
    let settings = program.settings()?;
    let stage = Arc::new(Stage {
        clock: ManualTicker::starting_at(settings.origin),
        counts: Arc::default(),
        cues: Mutex::default(),
        unseen: Mutex::default(),
        told: Mutex::default(),
        cache: Mutex::default(),
    });
    let heard = Arc::downgrade(&stage);
    let mut builder = Cache::builder()
        .hasher(Hostile(flavour.hashing))
        .ticker(stage.clock.clone())
        .expiry_resolution(Duration::from_nanos(1 << settings.resolution))
        // On the thread of the call: what the listener does must not fall into a check.
        .delivery(Delivery::Caller)
        .removal_listener(move |&key: &u8, item: &Item, cause| {
            assert_eq!(item.what.1, key);
            let stage = heard.upgrade().expect("the stage outlives the cache");
            stage.told.lock().unwrap().push((key, item.what.0, cause));
            stage.cue();
        });
    if let Some(bound) = flavour.bound {
        builder = builder.max_capacity(bound);
    }
    if flavour.policy {
        builder = builder.expire_after(AsPlayed(Arc::downgrade(&stage)));
    }
    if let Some(life) = settings.time_to_live {
        builder = builder.time_to_live(life);
    }
    if let Some(life) = settings.time_to_idle {
        builder = builder.time_to_idle(life);
    }
    *stage.cache.lock().unwrap() = Some(builder.build());
    Some(stage)
}

/// Runs a program; every string of bytes is one.
pub fn run(data: &[u8]) {
    let Some((&flavour, program)) = data.split_first_chunk() else {
        return;
    };
    let flavour = Flavour::new(flavour);
    let mut program = Bytes(program);
    let Some(stage) = build(&flavour, &mut program) else {
        return;
    };
    let cache = stage.cache.lock().unwrap().clone().expect("just built");
    let mut held: VecDeque<EntryRef<'_, u8, Item>> = VecDeque::new();
    let mut step = 0usize;
    while let Some(op) = program.op() {
        step += 1;
        match op {
            _ if flavour.calls_back && step.is_multiple_of(2) => {
                stage.cues.lock().unwrap().push_back(op)
            }
            Op::GetRef(key) => {
                // References held for a while, whatever happens to the entries.
                held.extend(cache.get_ref(&key));
                if held.len() > 3 {
                    held.pop_front();
                }
            }
            _ => stage.play(&cache, &op),
        }
        for entry in &held {
            assert_eq!(entry.what.1, *entry.key());
            assert!(entry.what.0 < stage.counts.made.load(Relaxed));
        }
        if step.is_multiple_of(flavour.pause) {
            cache.check_invariants();
        }
    }
    drop(held);
    finish(&stage, &cache, &flavour);
    drop(cache);
    drop(stage.cache.lock().unwrap().take());
    let (made, dropped) = (&stage.counts.made, &stage.counts.dropped);
    assert_eq!(
        made.load(Relaxed),
        dropped.load(Relaxed),
        "values made and dropped"
    );
}

/// Checks the totals, once no callback calls back any more.
fn finish(stage: &Stage, cache: &Stock, flavour: &Flavour) {
    stage.cues.lock().unwrap().clear();
    for _ in 0..3 {
        cache.run_pending_tasks();
    }
    cache.check_invariants();
    let count = cache.entry_count();
    assert!(
        flavour.bound.is_none_or(|bound| count <= bound),
        "{count} are over the bound"
    );
    assert_ne!(
        cache.next_maintenance_in(),
        Some(Duration::ZERO),
        "work is left"
    );

    let told = stage.told.lock().unwrap();
    let mut last = BTreeMap::new();
    let mut accounted = BTreeSet::new();
    for &(key, number, cause) in told.iter() {
        assert!(
            accounted.insert(number),
            "value {number} was delivered twice"
        );
        assert!(cause != RemovalCause::Size || flavour.bound.is_some());
        let before = last.insert(key, number);
        // With a policy that writes, a write may end before another one that began earlier.
        if !(flavour.policy && flavour.calls_back) {
            assert!(
                before.is_none_or(|before| before < number),
                "key {key} out of order"
            );
        }
    }
    let here: BTreeSet<u64> = cache.iter().map(|entry| entry.what.0).collect();
    assert_eq!(
        here.len() as u64,
        count,
        "entries shown against entries counted"
    );
    assert!(here.is_disjoint(&accounted), "delivered, and still stored");
    let made = stage.counts.made.load(Relaxed);
    assert_eq!(
        (here.len() + accounted.len()) as u64,
        made,
        "a value was lost"
    );
    let dropped = stage.counts.dropped.load(Relaxed);
    assert_eq!(
        dropped,
        accounted.len() as u64,
        "delivered values that are still in memory"
    );
}
