//! Callbacks that write the key they were called for, each time: the outer call still ends, with a
//! right answer.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use crate::support::{must_end, secs};
use wheelhouse::{Cache, Expiry, LoadingCache, ManualTicker, Refresh, expiry, loader_fn};

/// How often the cache calls a callback that calls back: once in each call that the cache has to
/// make, and a bounded number beyond.
const MOST_CALLS: u32 = 50;

/// What a callback does to the cache, and how often it was called.
type Act = fn(&Cache<u32, Value>, u32);

#[derive(Default)]
struct Stage {
    /// Emptied at the end of a test, so that nothing leaks.
    cache: Mutex<Option<Cache<u32, Value>>>,
    /// What a callback does; a callback inside it does nothing.
    cue: Mutex<Option<(Moment, Act)>>,
    called: Mutex<u32>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Moment {
    Create,
    Update,
    Read,
    Clone,
}

impl Stage {
    fn enter(&self, moment: Moment, key: u32) {
        let Some(cache) = self.cache.lock().unwrap().clone() else {
            return;
        };
        let cue = self.cue.lock().unwrap().take_if(|cue| cue.0 == moment);
        if let Some(cue) = cue {
            let called = {
                let mut called = self.called.lock().unwrap();
                *called += 1;
                *called
            };
            assert!(called <= MOST_CALLS, "called {called} times at {moment:?}");
            (cue.1)(&cache, key);
            *self.cue.lock().unwrap() = Some(cue);
        }
    }
}

/// A number whose clone runs the action.
struct Value(u32, Arc<Stage>);

impl Clone for Value {
    fn clone(&self) -> Self {
        self.1.enter(Moment::Clone, 1);
        Value(self.0, Arc::clone(&self.1))
    }
}

/// Ten seconds for each value on a write; a hundred on a read.
struct Policy(Arc<Stage>);

impl Expiry<u32, Value> for Policy {
    fn expire_after_create(&self, &key: &u32, _: &Value, _: Instant) -> Option<Duration> {
        self.0.enter(Moment::Create, key);
        Some(secs(10))
    }

    fn expire_after_update(
        &self,
        &key: &u32,
        _: &Value,
        _: Instant,
        _: Option<Duration>,
    ) -> Option<Duration> {
        self.0.enter(Moment::Update, key);
        Some(secs(10))
    }

    fn expire_after_read(
        &self,
        &key: &u32,
        _: &Value,
        _: Instant,
        _: Option<Duration>,
        _: Instant,
    ) -> Option<Duration> {
        self.0.enter(Moment::Read, key);
        Some(secs(100))
    }
}

/// Runs `call` on a cache where the callback at `moment` for key 1 runs `act`; returns the value of
/// the key afterwards, and the time it has left.
#[track_caller]
fn with(
    moment: Moment,
    act: Act,
    call: impl FnOnce(&Cache<u32, Value>) + Send + 'static,
) -> Option<(u32, Option<Duration>)> {
    let (stage, clock) = (Arc::<Stage>::default(), ManualTicker::new());
    let cache = Cache::builder()
        .ticker(clock.clone())
        .expire_after(Policy(Arc::clone(&stage)))
        .build();
    cache.insert(1, Value(1, Arc::clone(&stage)));
    clock.advance(secs(1));
    *stage.cache.lock().unwrap() = Some(cache.clone());
    *stage.cue.lock().unwrap() = Some((moment, act));
    let shared = cache.clone();
    must_end(move || call(&shared));
    assert!(
        *stage.called.lock().unwrap() > 0,
        "{moment:?} was never asked"
    );
    *stage.cue.lock().unwrap() = None;
    let fate = cache.peek_ref(&1).map(|entry| (entry.0, entry.time_left()));
    stage.cache.lock().unwrap().take();
    fate
}

/// Replaces the present value.
fn put(cache: &Cache<u32, Value>, key: u32) {
    let stage = cache.peek_ref(&1).map(|entry| Arc::clone(&entry.1));
    if let Some(stage) = stage {
        cache.insert_with_ttl(key, Value(2, stage), secs(3));
    }
}

fn take_out_and_put(cache: &Cache<u32, Value>, key: u32) {
    let stage = Arc::clone(&cache.peek_ref(&1).expect("it is there").1);
    cache.invalidate(&key);
    cache.insert_with_ttl(key, Value(2, stage), secs(3));
}

#[test]
fn a_read_whose_policy_replaces_the_value_ends_with_what_it_read_and_extends_nothing() {
    let get = |cache: &Cache<u32, Value>| assert_eq!(cache.get(&1).map(|value| value.0), Some(1));
    assert_eq!(with(Moment::Read, put, get), Some((2, Some(secs(3)))));
    let get_ref = |cache: &Cache<u32, Value>| {
        let entry = cache.get_ref(&1).expect("it was there");
        assert_eq!((entry.0, entry.time_left()), (1, Some(secs(9))));
    };
    assert_eq!(with(Moment::Read, put, get_ref), Some((2, Some(secs(3)))));
    let get_many = |cache: &Cache<u32, Value>| {
        let found = cache.get_many([&1]);
        assert_eq!(found[0].as_ref().map(|value| value.0), Some(1));
    };
    assert_eq!(with(Moment::Read, put, get_many), Some((2, Some(secs(3)))));
}

#[test]
fn a_read_whose_value_replaces_itself_when_cloned_ends() {
    let get = |cache: &Cache<u32, Value>| assert_eq!(cache.get(&1).map(|value| value.0), Some(1));
    let fate = with(Moment::Clone, put, get);
    assert_eq!(fate, Some((2, Some(secs(3)))));
}

#[test]
fn a_write_whose_policy_writes_the_key_each_time_ends_and_has_the_last_word() {
    for act in [put as Act, take_out_and_put] {
        let insert = |cache: &Cache<u32, Value>| {
            let stage = Arc::clone(&cache.peek_ref(&1).expect("it is there").1);
            cache.insert(1, Value(3, stage));
        };
        assert_eq!(with(Moment::Update, act, insert), Some((3, Some(secs(10)))));
    }
}

/// Keeps the deadline of a value that is replaced. Each time, a read moves that meanwhile.
struct Keeping {
    cache: Arc<Mutex<Option<Cache<u32, u32>>>>,
    clock: ManualTicker,
}

impl Expiry<u32, u32> for Keeping {
    fn expire_after_create(&self, _: &u32, _: &u32, _: Instant) -> Option<Duration> {
        Some(secs(10_000))
    }

    fn expire_after_update(
        &self,
        key: &u32,
        _: &u32,
        _: Instant,
        left: Option<Duration>,
    ) -> Option<Duration> {
        self.clock.advance(secs(1));
        if let Some(cache) = &*self.cache.lock().unwrap() {
            assert_eq!(cache.get(key), Some(0));
        }
        left
    }
}

#[test]
fn a_write_whose_policy_keeps_the_deadline_in_the_end_keeps_the_one_without_the_idle_limit() {
    let (known, clock) = (Arc::<Mutex<_>>::default(), ManualTicker::new());
    let cache: Cache<u32, u32> = Cache::builder()
        .ticker(clock.clone())
        .time_to_idle(secs(100))
        .expire_after(Keeping {
            cache: Arc::clone(&known),
            clock: clock.clone(),
        })
        .build();
    cache.insert(1, 0);
    *known.lock().unwrap() = Some(cache.clone());
    cache.insert(1, 1);
    known.lock().unwrap().take();
    for _ in 0..5 {
        clock.advance(secs(60));
        assert_eq!(cache.get(&1), Some(1), "it is read often enough");
    }
}

/// Replaces the value about which it is asked.
struct Replacing {
    cache: Arc<Mutex<Option<LoadingCache<u32, u32, ()>>>>,
    asked: AtomicU32,
}

impl Refresh<u32, u32> for Replacing {
    fn refresh_after_create(
        &self,
        &key: &u32,
        _: &u32,
        _: Instant,
        _: Option<Duration>,
    ) -> Option<Duration> {
        let asked = self.asked.fetch_add(1, Ordering::Relaxed);
        assert!(asked < 2 * MOST_CALLS, "asked {asked} times");
        let cache = self.cache.lock().unwrap().take();
        if let Some(cache) = cache {
            cache.cache().insert(key, 2);
            *self.cache.lock().unwrap() = Some(cache);
        }
        None
    }
}

/// The expiry policy is asked about new entries only, so it has no answer that would be the last.
#[test]
fn a_write_whose_refresh_policy_writes_the_key_each_time_ends_and_has_the_last_word() {
    let known = Arc::<Mutex<_>>::default();
    let cache: LoadingCache<u32, u32, ()> = Cache::builder()
        .ticker(ManualTicker::new())
        .expire_after(expiry::creating(|_, _| Some(secs(10))))
        .loading(loader_fn(|&key: &u32| Ok::<u32, ()>(key)))
        .refresh_after(Replacing {
            cache: Arc::clone(&known),
            asked: AtomicU32::new(0),
        })
        .build();
    cache.cache().insert(1, 0);
    *known.lock().unwrap() = Some(cache.clone());
    let shared = cache.clone();
    must_end(move || shared.cache().insert(1, 1));
    known.lock().unwrap().take();
    assert_eq!(cache.get(&1).unwrap(), 1);
}

#[test]
fn a_removal_whose_value_is_put_back_when_cloned_ends() {
    let removed = with(Moment::Clone, put, |cache| {
        assert!(cache.remove(&1).is_some_and(|value| value.0 == 2));
    });
    assert_eq!(removed, None);
}

/// More attempts than a policy is asked in one call.
const MANY: u32 = 100;

/// A predicate decides whether the change is made at all, so it is asked about each new value.
#[test]
fn a_predicate_is_asked_about_each_value_that_the_key_gets() {
    let cache: Cache<u32, u32> = Cache::new(10);
    cache.insert(1, 0);
    let replaced = cache.replace_if(&1, 1_000, |value| {
        if *value < MANY {
            cache.insert(1, value + 1);
        }
        true
    });
    assert_eq!(replaced, Ok(()));
    assert_eq!(cache.get(&1), Some(1_000));

    cache.insert(1, 0);
    let refused = cache.replace_if(&1, 1_000, |value| {
        if *value < MANY {
            cache.insert(1, value + 1);
        }
        *value < MANY
    });
    assert_eq!(refused, Err(1_000));
    assert_eq!(cache.get(&1), Some(MANY));

    cache.insert(1, 0);
    let removed = cache.remove_if(&1, |value| {
        if *value < MANY {
            cache.insert(1, value + 1);
        }
        true
    });
    assert_eq!(removed, Some(MANY));
    assert_eq!(cache.get(&1), None);
}
