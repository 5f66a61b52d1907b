//! When entries are stale, what a read then does, and what a reload stores.

use crate::support::{OwnCache, Place, until};
use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, mpsc};
use std::thread;
use std::time::{Duration, Instant};
use wheelhouse::compute::Op;
use wheelhouse::{
    Cache, LoadError, Loaded, Loader, LoadingCache, ManualTicker, Refresh, Reloaded, RemovalCause,
    loader_fn, refresh,
};

const SECOND: Duration = Duration::from_secs(1);
const NANO: Duration = Duration::from_nanos(1);

/// A loader whose answers a test gives one by one; a call waits for its answer.
#[derive(Clone, Default)]
struct Script(Arc<Inner>);

#[derive(Default)]
struct Inner {
    answers: Mutex<VecDeque<Result<Reloaded<u64>, String>>>,
    given: Condvar,
    loads: AtomicUsize,
    reloads: AtomicUsize,
}

impl Script {
    fn answer(&self, answer: Result<Reloaded<u64>, String>) {
        self.0.answers.lock().unwrap().push_back(answer);
        self.0.given.notify_all();
    }

    fn value(&self, value: u64) {
        self.answer(Ok(Reloaded::New(value.into())));
    }

    fn take(&self) -> Result<Reloaded<u64>, String> {
        let mut answers = self.0.answers.lock().unwrap();
        loop {
            if let Some(answer) = answers.pop_front() {
                return answer;
            }
            answers = self.0.given.wait(answers).unwrap();
        }
    }

    fn loads(&self) -> usize {
        self.0.loads.load(Ordering::SeqCst)
    }

    fn reloads(&self) -> usize {
        self.0.reloads.load(Ordering::SeqCst)
    }
}

impl Loader<u64, u64> for Script {
    type Error = String;

    fn load(&self, _: &u64) -> Result<Loaded<u64>, String> {
        self.0.loads.fetch_add(1, Ordering::SeqCst);
        match self.take()? {
            Reloaded::New(loaded) => Ok(loaded),
            other => panic!("no answer for a load: {other:?}"),
        }
    }

    fn reload(&self, _: &u64, _: &u64) -> Result<Reloaded<u64>, String> {
        self.0.reloads.fetch_add(1, Ordering::SeqCst);
        self.take()
    }
}

type Users = LoadingCache<u64, u64, String>;

/// A cache of lives of 10 s that are stale after 6 s; key 1 has the value 10.
fn rig() -> (Users, Script, ManualTicker) {
    rig_with(refresh::after(6 * SECOND))
}

fn rig_with(policy: impl Refresh<u64, u64>) -> (Users, Script, ManualTicker) {
    let (script, time) = (Script::default(), ManualTicker::new());
    let users = Cache::builder()
        .ticker(time.clone())
        .record_stats()
        .time_to_live(10 * SECOND)
        .loading(script.clone())
        .refresh_after(policy)
        .build();
    script.value(10);
    assert_eq!(users.get(&1), Ok(10));
    (users, script, time)
}

/// Waits until no reload of key 1 is at work.
fn settle(users: &Users) {
    until("the reload ends", || {
        let mut alone = false;
        let selector = users.cache().entry(1);
        let compute = selector.and_try_compute_if_nobody_else(|_| {
            alone = true;
            Ok::<_, ()>(Op::Nop)
        });
        compute.unwrap();
        alone
    });
}

fn is_stale(users: &Users) -> bool {
    users.cache().peek_ref(&1).unwrap().is_stale()
}

#[test]
fn an_entry_is_stale_exactly_at_its_moment() {
    let (users, script, time) = rig();
    time.advance(6 * SECOND - NANO);
    assert_eq!(users.get(&1), Ok(10));
    assert!(!is_stale(&users));
    time.advance(NANO);
    assert!(is_stale(&users));
    assert_eq!(
        users.cache().get(&1),
        Some(10),
        "reads there start no reload"
    );
    assert!(users.cache().contains_key(&1));
    assert_eq!(users.cache().stats().reloads(), 0);
    assert_eq!(users.get(&1), Ok(10), "the old value, at once");
    script.value(11);
    until("the new value comes", || users.get(&1) == Ok(11));
    assert_eq!((script.loads(), script.reloads()), (1, 1));
    // Stale again 6 s after the reload, not after the first load.
    settle(&users);
    time.advance(6 * SECOND - NANO);
    assert_eq!(users.get(&1), Ok(11));
    assert!(!is_stale(&users));
    time.advance(NANO);
    assert!(is_stale(&users));
    assert_eq!(users.cache().stats().reloads(), 1);
    assert_eq!(users.get_if_present(&1), Some(11));
    script.value(12);
    until("the newer value comes", || users.get(&1) == Ok(12));
}

#[test]
fn a_hundred_readers_start_one_reload_and_get_the_old_value() {
    let (users, script, time) = rig();
    time.advance(7 * SECOND);
    thread::scope(|scope| {
        for _ in 0..100 {
            scope.spawn(|| {
                for _ in 0..20 {
                    assert_eq!(users.get(&1), Ok(10));
                }
            });
        }
    });
    script.value(11);
    until("the new value comes", || users.get(&1) == Ok(11));
    assert_eq!(users.cache().stats().reloads(), 1);
    assert_eq!(script.reloads(), 1);
}

#[test]
fn each_explicit_write_revokes_and_nothing_else_does() {
    type Write = fn(&Cache<u64, u64>);
    let writes: [(&str, Write, Option<u64>); 9] = [
        ("insert", |cache| cache.insert(1, 99), Some(99)),
        (
            "insert_with_ttl",
            |cache| cache.insert_with_ttl(1, 99, SECOND),
            Some(99),
        ),
        ("invalidate", |cache| cache.invalidate(&1), None),
        (
            "remove",
            |cache| assert_eq!(cache.remove(&1), Some(10)),
            None,
        ),
        ("invalidate_all", Cache::invalidate_all, None),
        (
            "replace_if",
            |cache| cache.replace_if(&1, 99, |_| true).unwrap(),
            Some(99),
        ),
        (
            "remove_if",
            |cache| assert_eq!(cache.remove_if(&1, |_| true), Some(10)),
            None,
        ),
        ("retain", |cache| cache.retain(|_, _| false), None),
        // The same value again: a load is known by identity.
        (
            "ABA",
            |cache| {
                cache.insert(1, 5);
                cache.insert(1, 10)
            },
            Some(10),
        ),
    ];
    for (name, write, after) in writes {
        let (users, script, time) = rig();
        time.advance(7 * SECOND);
        assert_eq!(users.get(&1), Ok(10));
        until("the reload runs", || script.reloads() == 1);
        write(users.cache());
        let pending = users.refresh(2);
        script.value(11);
        script.value(20);
        assert_eq!(pending.wait(), Ok(Some(20)), "{name}");
        assert_eq!(users.cache().get(&1), after, "{name} revokes");
        assert_eq!(users.cache().stats().loads_discarded(), 1, "{name}");
    }
    let others: [(&str, Write); 6] = [
        ("get", |cache| assert_eq!(cache.get(&1), Some(10))),
        ("set_expiry", |cache| {
            assert!(cache.set_expiry(&1, Some(30 * SECOND)))
        }),
        ("failed replace_if", |cache| {
            assert!(cache.replace_if(&1, 5, |_| false).is_err())
        }),
        ("failed remove_if", |cache| {
            assert_eq!(cache.remove_if(&1, |_| false), None)
        }),
        ("retain that keeps", |cache| cache.retain(|_, _| true)),
        ("another key", |cache| cache.insert(3, 3)),
    ];
    for (name, act) in others {
        let (users, script, time) = rig();
        time.advance(7 * SECOND);
        assert_eq!(users.get(&1), Ok(10));
        until("the reload runs", || script.reloads() == 1);
        act(users.cache());
        script.value(11);
        until(name, || users.cache().get(&1) == Some(11));
    }
}

#[test]
fn a_miss_joins_the_reload_and_expiry_does_not_revoke_it() {
    let (users, script, time) = rig();
    time.advance(7 * SECOND);
    assert_eq!(users.get(&1), Ok(10));
    until("the reload runs", || script.reloads() == 1);
    time.advance(4 * SECOND);
    assert_eq!(
        users.get_if_present(&1),
        None,
        "past its deadline it is a miss"
    );
    thread::scope(|scope| {
        let reader = scope.spawn(|| users.get(&1));
        until("it waits", || users.cache().stats().load_waits() == 1);
        script.value(11);
        assert_eq!(reader.join().unwrap(), Ok(11));
    });
    assert_eq!((script.loads(), script.reloads()), (1, 1));
    assert_eq!(users.cache().get(&1), Some(11));
}

#[test]
fn eviction_does_not_revoke_a_reload() {
    let (script, time) = (Script::default(), ManualTicker::new());
    let users: Users = Cache::builder()
        .ticker(time.clone())
        .max_capacity(1)
        .weigher(|key, _| if *key == 1 { 1 } else { 5 })
        .loading(script.clone())
        .refresh_after(refresh::after(SECOND))
        .build();
    script.value(10);
    assert_eq!(users.get(&1), Ok(10));
    time.advance(SECOND);
    assert_eq!(users.get(&1), Ok(10));
    until("the reload runs", || script.reloads() == 1);
    users.cache().policy().set_max_capacity(0);
    users.cache().run_pending_tasks();
    assert_eq!(users.cache().get(&1), None, "evicted");
    users.cache().policy().set_max_capacity(1);
    script.value(11);
    until("it is stored", || users.cache().get(&1) == Some(11));
}

#[test]
fn a_reload_slower_than_both_lifetimes_makes_progress() {
    let (users, script, time) = rig();
    for round in 0..5 {
        time.advance(7 * SECOND);
        let old = 10 + round;
        // The load before may end a moment after its value can be read: until then no other begins.
        until("the reload runs", || {
            assert_eq!(users.get(&1), Ok(old));
            script.reloads() as u64 == round + 1
        });
        time.advance(60 * SECOND);
        script.value(old + 1);
        until("stored", || users.cache().get(&1) == Some(old + 1));
    }
    assert_eq!(script.loads(), 1);
}

#[test]
fn a_moment_at_or_after_the_deadline_has_no_effect() {
    for moment in [10 * SECOND, 11 * SECOND] {
        let (users, script, time) = rig_with(refresh::after(moment));
        time.advance(10 * SECOND - NANO);
        assert_eq!(users.get(&1), Ok(10));
        time.advance(NANO);
        script.value(11);
        assert_eq!(users.get(&1), Ok(11));
        assert_eq!((script.loads(), script.reloads()), (2, 0));
    }
    let (users, script, time) = rig_with(refresh::never());
    time.advance(10 * SECOND - NANO);
    assert_eq!(users.get(&1), Ok(10));
    assert_eq!((script.loads(), script.reloads()), (1, 0));
}

#[test]
fn unchanged_moves_the_deadlines_and_calls_no_listener() {
    let (script, time) = (Script::default(), ManualTicker::new());
    let (heard, told) = mpsc::channel();
    let users: Users = Cache::builder()
        .ticker(time.clone())
        .record_stats()
        .time_to_live(10 * SECOND)
        .time_to_idle(9 * SECOND)
        .removal_listener(move |key: &u64, value: &u64, cause| {
            heard.send((*key, *value, cause)).unwrap();
        })
        .loading(script.clone())
        .refresh_after(refresh::after(6 * SECOND))
        .build();
    script.value(10);
    assert_eq!(users.get(&1), Ok(10));
    time.advance(6 * SECOND);
    script.answer(Ok(Reloaded::Unchanged));
    assert_eq!(users.refresh(1).wait(), Ok(Some(10)));
    // Stale again 6 s later, due 10 s later; reads in between keep it from being idle.
    time.advance(6 * SECOND - NANO);
    assert_eq!(users.get(&1), Ok(10));
    assert!(!is_stale(&users));
    time.advance(4 * SECOND);
    assert_eq!(users.cache().get(&1), Some(10));
    time.advance(NANO);
    assert_eq!(users.cache().get(&1), None);
    users.cache().run_pending_tasks();
    let all: Vec<_> = told.try_iter().collect();
    assert_eq!(all, [(1, 10, RemovalCause::Expired)]);
}

#[test]
fn unchanged_for_sets_both_moments() {
    let (users, script, time) = rig();
    script.answer(Ok(Reloaded::UnchangedFor {
        expires_in: Some(5 * SECOND),
        refresh_in: Some(2 * SECOND),
    }));
    assert_eq!(users.refresh(1).wait(), Ok(Some(10)));
    time.advance(2 * SECOND - NANO);
    assert_eq!(users.get(&1), Ok(10));
    assert_eq!(users.cache().stats().reloads(), 1);
    time.advance(3 * SECOND);
    assert_eq!(users.cache().get(&1), Some(10));
    time.advance(NANO);
    assert_eq!(users.cache().get(&1), None);
}

#[test]
fn unchanged_brings_an_entry_back_that_has_expired_meanwhile() {
    let (users, script, time) = rig();
    time.advance(7 * SECOND);
    assert_eq!(users.get(&1), Ok(10));
    until("the reload runs", || script.reloads() == 1);
    time.advance(5 * SECOND);
    assert_eq!(users.cache().get(&1), None);
    script.answer(Ok(Reloaded::Unchanged));
    until("it is back", || users.cache().get(&1) == Some(10));
}

#[test]
fn gone_removes_as_explicit() {
    let (script, time) = (Script::default(), ManualTicker::new());
    let (heard, told) = mpsc::channel();
    let users: Users = Cache::builder()
        .ticker(time.clone())
        .removal_listener(move |key: &u64, value: &u64, cause| {
            heard.send((*key, *value, cause)).unwrap();
        })
        .loading(script.clone())
        .refresh_after(refresh::after(6 * SECOND))
        .build();
    script.value(10);
    assert_eq!(users.get(&1), Ok(10));
    script.answer(Ok(Reloaded::Gone));
    assert_eq!(users.refresh(1).wait(), Ok(None));
    assert_eq!(users.cache().get(&1), None);
    users.cache().run_pending_tasks();
    assert_eq!(told.try_recv(), Ok((1, 10, RemovalCause::Explicit)));
    script.value(11);
    assert_eq!(users.get(&1), Ok(11), "the key is usable");
}

#[test]
fn a_reloaded_value_leaves_as_replaced() {
    let (script, time) = (Script::default(), ManualTicker::new());
    let (heard, told) = mpsc::channel();
    let users: Users = Cache::builder()
        .ticker(time)
        .removal_listener(move |key: &u64, value: &u64, cause| {
            heard.send((*key, *value, cause)).unwrap();
        })
        .loading(script.clone())
        .build();
    script.value(10);
    assert_eq!(users.refresh(1).wait(), Ok(Some(10)), "absent: a load");
    assert_eq!((script.loads(), script.reloads()), (1, 0));
    script.value(11);
    assert_eq!(users.refresh(1).wait(), Ok(Some(11)));
    assert_eq!((script.loads(), script.reloads()), (1, 1));
    users.cache().run_pending_tasks();
    assert_eq!(told.try_recv(), Ok((1, 10, RemovalCause::Replaced)));
}

#[test]
fn refreshes_join_what_is_under_way() {
    let (users, script, _) = rig();
    let one = users.refresh(1);
    let other = users.refresh(1);
    until("the reload runs", || script.reloads() == 1);
    users.cache().insert(2, 2);
    script.value(11);
    assert_eq!((one.wait(), other.wait()), (Ok(Some(11)), Ok(Some(11))));
    assert_eq!(script.reloads(), 1);
    // A write wins, and the caller hears of it.
    let late = users.refresh(1);
    until("the reload runs", || script.reloads() == 2);
    users.cache().insert(1, 99);
    script.value(12);
    assert_eq!(late.wait(), Ok(Some(99)));
    assert_eq!(users.cache().get(&1), Some(99));
}

#[test]
fn the_loader_says_how_long_its_value_is_good() {
    let time = ManualTicker::new();
    let load = loader_fn(|key: &u64| {
        let loaded = Loaded::new(key * 10)
            .expires_in(4 * SECOND)
            .refresh_in(2 * SECOND);
        Ok::<_, String>(if *key == 9 {
            loaded.never_expires()
        } else {
            loaded
        })
    });
    let users: LoadingCache<u64, u64, String> = Cache::builder()
        .ticker(time.clone())
        .record_stats()
        .loading(load)
        .refresh_after(refresh::never())
        .build();
    assert_eq!((users.get(&1), users.get(&9)), (Ok(10), Ok(90)));
    time.advance(2 * SECOND - NANO);
    assert_eq!(users.get(&1), Ok(10));
    assert!(!is_stale(&users));
    time.advance(2 * SECOND + NANO);
    assert_eq!(users.cache().get(&1), None);
    assert_eq!(users.cache().get(&9), Some(90));
}

#[test]
fn an_explicit_write_gets_a_moment_of_its_own() {
    struct Kinds;
    impl Refresh<u64, u64> for Kinds {
        fn refresh_after_create(
            &self,
            _: &u64,
            _: &u64,
            _: Instant,
            life: Option<Duration>,
        ) -> Option<Duration> {
            assert_eq!(life, Some(10 * SECOND));
            Some(2 * SECOND)
        }

        fn refresh_after_update(
            &self,
            _: &u64,
            _: &u64,
            _: Instant,
            _: Option<Duration>,
        ) -> Option<Duration> {
            Some(4 * SECOND)
        }

        fn refresh_after_reload(
            &self,
            _: &u64,
            _: &u64,
            _: Instant,
            _: Option<Duration>,
        ) -> Option<Duration> {
            Some(6 * SECOND)
        }
    }
    let (users, script, time) = rig_with(Kinds);
    let stale_after = |moment: Duration| {
        time.advance(moment - NANO);
        assert!(!is_stale(&users), "stale before {moment:?}");
        time.advance(NANO);
        assert!(is_stale(&users), "not stale after {moment:?}");
        assert!(users.get_if_present(&1).is_some());
    };
    stale_after(2 * SECOND);
    until("the reload runs", || script.reloads() == 1);
    users.cache().insert(1, 50);
    script.value(11);
    // Its thread is free then.
    until("the loader has returned", || {
        users.cache().stats().loads_discarded() == 1
    });
    stale_after(4 * SECOND);
    script.value(12);
    until("stored", || users.cache().get(&1) == Some(12));
    settle(&users);
    stale_after(6 * SECOND);
    script.value(13);
    until("stored", || users.cache().get(&1) == Some(13));
}

/// To the nanosecond, and for as long as the loader said.
#[test]
fn unchanged_gives_the_whole_lifetime_again() {
    struct Versions(Duration);
    impl Loader<u64, u64> for Versions {
        type Error = ();
        fn load(&self, key: &u64) -> Result<Loaded<u64>, ()> {
            Ok(Loaded::new(*key).expires_in(self.0))
        }
        fn reload(&self, _: &u64, _: &u64) -> Result<Reloaded<u64>, ()> {
            Ok(Reloaded::Unchanged)
        }
    }
    let ten_years = Duration::from_secs(10 * 365 * 86_400);
    for lifetime in [ten_years, 60 * SECOND + NANO, 500 * NANO] {
        let time = ManualTicker::new();
        let users = Cache::builder()
            .ticker(time.clone())
            .loading(Versions(lifetime))
            .build();
        assert_eq!(users.get(&1), Ok(1));
        time.advance(300 * NANO);
        // A deadline that is set by hand is not what the loader said.
        assert!(users.cache().set_expiry(&1, Some(400 * NANO)));
        assert_eq!(users.refresh(1).wait(), Ok(Some(1)));
        let left = users.cache().peek_ref(&1).unwrap().time_left();
        assert_eq!(left, Some(lifetime));
    }
}

#[test]
fn early_reloads_fall_before_the_deadline_by_the_load_time() {
    let time = ManualTicker::new();
    let slow = time.clone();
    let load = loader_fn(move |key: &u64| {
        slow.advance(SECOND);
        Ok::<_, String>(*key)
    });
    let users: LoadingCache<u64, u64, String> = Cache::builder()
        .ticker(time.clone())
        .record_stats()
        .time_to_live(10_000_000 * SECOND)
        .loading(load)
        .refresh_after(refresh::early(1_000.0))
        .build();
    for key in 0..400 {
        assert_eq!(users.get(&key), Ok(key));
    }
    // 400 s of loads. Each is stale `1 s · 1000 · X` before its deadline; X is above 4 for 2 %,
    // above 0.5 for 61 %.
    time.advance(9_995_600 * SECOND);
    let stale = |users: &LoadingCache<u64, u64, String>| {
        let entries: Vec<_> = users.cache().snapshot().into_iter().collect();
        assert_eq!(entries.len(), 400, "never past its deadline");
        let moments = entries.into_iter().filter_map(|entry| entry.refresh_in);
        moments.filter(Duration::is_zero).count()
    };
    let first = stale(&users);
    assert!(first < 40, "{first} of 400 are stale far too early");
    // At most 560 s before the deadlines: X is above 0.56 for 57 %.
    time.advance(3_800 * SECOND);
    let second = stale(&users);
    assert!(
        second > 100,
        "{second} of 400 are stale shortly before the deadline"
    );
}

#[test]
fn get_all_loads_what_is_absent_and_reloads_what_is_stale() {
    struct Bulk(Arc<Mutex<Vec<Vec<u64>>>>);
    impl Loader<u64, u64> for Bulk {
        type Error = String;
        fn load(&self, key: &u64) -> Result<Loaded<u64>, String> {
            Ok((key * 100).into())
        }
        fn load_many(&self, keys: &[u64]) -> Result<Vec<Option<Loaded<u64>>>, String> {
            self.0.lock().unwrap().push(keys.to_vec());
            if keys.contains(&13) {
                return Err("13".into());
            }
            let value = |key: &u64| (*key != 7).then(|| Loaded::new(key * 10).expires_in(SECOND));
            Ok(keys.iter().map(value).collect())
        }
    }
    let (asked, time) = (Arc::default(), ManualTicker::new());
    let users: LoadingCache<u64, u64, String> = Cache::builder()
        .ticker(time.clone())
        .record_stats()
        .loading(Bulk(Arc::clone(&asked)))
        .refresh_after(refresh::after(SECOND / 2))
        .build();
    users.cache().insert(1, 1);
    assert_eq!(
        users.get_all([3, 1, 7, 3]).unwrap(),
        [Some(30), Some(1), None, Some(30)]
    );
    assert_eq!(*asked.lock().unwrap(), [[3, 7]]);
    let error = users.get_all([1, 13]).unwrap_err();
    assert_eq!(error, LoadError::Failed(Arc::new("13".to_string())));
    time.advance(SECOND / 2);
    assert_eq!(users.get_all([1]).unwrap(), [Some(1)]);
    until("1 is reloaded", || users.cache().get(&1) == Some(100));
    time.advance(SECOND / 2);
    assert_eq!(
        users.cache().get(&3),
        None,
        "it expired when its loader said"
    );
}

#[test]
fn restoring_a_key_and_a_newer_commit_revoke_a_reload() {
    use wheelhouse::{Restore, SavedEntry};
    // The entry has expired meanwhile: what is restored in its place counts as a write.
    let (users, script, time) = rig();
    time.advance(7 * SECOND);
    assert_eq!(users.get(&1), Ok(10));
    until("the reload runs", || script.reloads() == 1);
    time.advance(4 * SECOND);
    let saved = SavedEntry::new(1, 77);
    let told = users
        .cache()
        .restore([saved].into_iter().collect(), Restore::default());
    assert_eq!(told.restored, 1);
    script.value(11);
    until("the late value is dropped", || {
        users.cache().stats().loads_discarded() == 1
    });
    assert_eq!(users.cache().get(&1), Some(77));
    // A key that is present is kept: no write, and nothing is revoked.
    let (users, script, time) = rig();
    time.advance(7 * SECOND);
    assert_eq!(users.get(&1), Ok(10));
    until("the reload runs", || script.reloads() == 1);
    let snapshot = users.cache().snapshot();
    let told = users.cache().restore(snapshot, Restore::default());
    assert_eq!(told.present, 1);
    script.value(11);
    until("it is stored", || users.cache().get(&1) == Some(11));
}

#[test]
fn what_a_reload_found_does_not_touch_a_newer_value() {
    let answers = [
        Reloaded::Gone,
        Reloaded::Unchanged,
        Reloaded::UnchangedFor {
            expires_in: Some(100 * SECOND),
            refresh_in: Some(100 * SECOND),
        },
    ];
    for answer in answers {
        let (users, script, time) = rig();
        time.advance(7 * SECOND);
        assert_eq!(users.get(&1), Ok(10));
        until("the reload runs", || script.reloads() == 1);
        let joined = users.refresh(1);
        users.cache().insert(1, 99);
        time.advance(SECOND);
        script.answer(Ok(answer.clone()));
        assert_eq!(joined.wait(), Ok(Some(99)), "{answer:?}");
        // Its life of 10 s, and its moment after 6 s, count from the insert.
        time.advance(5 * SECOND - NANO);
        assert_eq!(users.get(&1), Ok(99));
        assert!(!is_stale(&users), "{answer:?}");
        time.advance(NANO);
        assert!(is_stale(&users), "{answer:?}");
        assert_eq!(users.cache().stats().reloads(), 1, "{answer:?}");
        time.advance(4 * SECOND);
        assert_eq!(users.cache().get(&1), None, "{answer:?}");
    }
}

#[test]
fn unchanged_asks_the_policies_as_an_update_does() {
    type Asked = Arc<Mutex<Vec<(&'static str, u64, Option<Duration>)>>>;
    struct Lives(Asked);
    impl wheelhouse::Expiry<u64, u64> for Lives {
        fn expire_after_create(&self, _: &u64, value: &u64, _: Instant) -> Option<Duration> {
            self.0.lock().unwrap().push(("create", *value, None));
            Some(10 * SECOND)
        }

        fn expire_after_update(
            &self,
            _: &u64,
            value: &u64,
            _: Instant,
            left: Option<Duration>,
        ) -> Option<Duration> {
            self.0.lock().unwrap().push(("update", *value, left));
            Some(20 * SECOND)
        }
    }
    let (script, time, asked) = (Script::default(), ManualTicker::new(), Asked::default());
    let users: Users = Cache::builder()
        .ticker(time.clone())
        .record_stats()
        .expire_after(Lives(Arc::clone(&asked)))
        .loading(script.clone())
        .refresh_after(refresh::fraction(0.5))
        .build();
    script.value(10);
    assert_eq!(users.get(&1), Ok(10));
    time.advance(4 * SECOND);
    script.answer(Ok(Reloaded::Unchanged));
    assert_eq!(users.refresh(1).wait(), Ok(Some(10)));
    assert_eq!(
        *asked.lock().unwrap(),
        [("create", 10, None), ("update", 10, Some(6 * SECOND))]
    );
    assert_eq!(users.cache().stats().updates(), 0, "no value was replaced");
    let left = || users.cache().peek_ref(&1).unwrap().time_left();
    assert_eq!(left(), Some(20 * SECOND));
    // What the loader leaves open is the policies' to say; what it says, they are not asked.
    script.answer(Ok(Reloaded::UnchangedFor {
        expires_in: None,
        refresh_in: Some(SECOND),
    }));
    time.advance(5 * SECOND);
    assert_eq!(users.refresh(1).wait(), Ok(Some(10)));
    assert_eq!(left(), Some(20 * SECOND));
    assert_eq!(asked.lock().unwrap().len(), 3);
    script.answer(Ok(Reloaded::UnchangedFor {
        expires_in: Some(8 * SECOND),
        refresh_in: None,
    }));
    assert_eq!(users.refresh(1).wait(), Ok(Some(10)));
    assert_eq!(left(), Some(8 * SECOND));
    assert_eq!(asked.lock().unwrap().len(), 3);
    time.advance(4 * SECOND - NANO);
    assert!(!is_stale(&users));
    time.advance(NANO);
    assert!(is_stale(&users), "half of the life that the loader named");
}

#[test]
fn a_miss_that_joined_a_reload_shares_its_failure_and_loads_after_gone() {
    let (users, script, time) = rig();
    time.advance(7 * SECOND);
    assert_eq!(users.get(&1), Ok(10));
    until("the reload runs", || script.reloads() == 1);
    time.advance(4 * SECOND);
    thread::scope(|scope| {
        let miss = scope.spawn(|| users.get(&1));
        until("it waits", || users.cache().stats().load_waits() == 1);
        script.answer(Err("down".into()));
        let error = LoadError::Failed(Arc::new("down".to_string()));
        assert_eq!(miss.join().unwrap(), Err(error));
    });
    assert_eq!(script.loads(), 1);
    // `Gone` is no value: the miss loads by itself.
    let (users, script, time) = rig();
    time.advance(7 * SECOND);
    assert_eq!(users.get(&1), Ok(10));
    until("the reload runs", || script.reloads() == 1);
    time.advance(4 * SECOND);
    thread::scope(|scope| {
        let miss = scope.spawn(|| users.get(&1));
        until("it waits", || users.cache().stats().load_waits() == 1);
        script.answer(Ok(Reloaded::Gone));
        script.value(12);
        assert_eq!(miss.join().unwrap(), Ok(12));
    });
    assert_eq!(script.loads(), 2);
}

#[test]
fn entries_that_are_not_read_are_not_reloaded() {
    let (users, script, time) = rig();
    time.advance(10 * SECOND - NANO);
    users.cache().run_pending_tasks();
    for entry in users.cache() {
        assert_eq!(*entry, 10);
    }
    assert_eq!(users.cache().get(&1), Some(10));
    assert_eq!(users.cache().get_with(1, || 66), 10);
    assert!(users.cache().peek_ref(&1).is_some());
    assert_eq!(users.cache().stats().reloads(), 0);
    assert_eq!(script.reloads(), 0);
    time.advance(NANO);
    users.cache().run_pending_tasks();
    assert_eq!(users.cache().entry_count(), 0);
    assert_eq!(users.cache().stats().reloads(), 0);
}

#[test]
fn a_stale_entry_of_any_kind_of_read_is_reloaded() {
    type Read = fn(&Users);
    let reads: [(&str, Read); 3] = [
        ("get", |users| assert_eq!(users.get(&1), Ok(10))),
        ("get_if_present", |users| {
            assert_eq!(users.get_if_present(&1), Some(10))
        }),
        ("get_all", |users| {
            assert_eq!(users.get_all([1, 1]), Ok(vec![Some(10); 2]))
        }),
    ];
    for (name, read) in reads {
        let (users, script, time) = rig();
        time.advance(6 * SECOND);
        read(&users);
        read(&users);
        script.value(11);
        until(name, || users.cache().get(&1) == Some(11));
        assert_eq!(users.cache().stats().reloads(), 1, "{name}");
    }
}

/// A policy that is asked by a reload, and then does something to the entry.
type Meddle = Arc<dyn Fn() + Send + Sync>;

struct Meddling(Place<Meddle>, Arc<AtomicUsize>);

impl wheelhouse::Expiry<u64, u64> for Meddling {
    fn expire_after_create(&self, _: &u64, _: &u64, _: Instant) -> Option<Duration> {
        Some(10 * SECOND)
    }

    fn expire_after_update(
        &self,
        _: &u64,
        _: &u64,
        _: Instant,
        _: Option<Duration>,
    ) -> Option<Duration> {
        thread_local!(static INSIDE: std::cell::Cell<bool> = const { std::cell::Cell::new(false) });
        let reloads = thread::current()
            .name()
            .is_some_and(|name| name.ends_with("reload"));
        if reloads && !INSIDE.replace(true) {
            self.1.fetch_add(1, Ordering::SeqCst);
            if let Some(meddle) = self.0.get() {
                meddle();
            }
            INSIDE.set(false);
        }
        Some(20 * SECOND)
    }
}

/// The reload that answers `Unchanged` ends, whatever the policy does to its key meanwhile.
#[test]
fn unchanged_ends_though_its_key_is_written_or_moved_each_time_the_policy_is_asked() {
    for (what, asks) in [("writes", 1), ("moves", 16)] {
        let (script, time) = (Script::default(), ManualTicker::new());
        let (own, asked) = (OwnCache::<Meddle>::new(), Arc::<AtomicUsize>::default());
        let users: Users = Cache::builder()
            .ticker(time.clone())
            .record_stats()
            .expire_after(Meddling(own.place(), Arc::clone(&asked)))
            .loading(script.clone())
            .refresh_after(refresh::after(SECOND))
            .build();
        script.value(10);
        assert_eq!(users.get(&1), Ok(10));
        time.advance(5 * SECOND);
        let (inner, number) = (users.cache().clone(), AtomicUsize::new(0));
        let act: Meddle = Arc::new(move || {
            let number = number.fetch_add(1, Ordering::SeqCst) as u64 + 1;
            // An attempt that was overtaken has changed nothing.
            assert_eq!(inner.peek_ref(&1).unwrap().age(), 5 * SECOND);
            match what {
                "writes" => inner.insert(1, number),
                _ => assert!(inner.set_expiry(&1, Some(Duration::from_secs(number)))),
            }
        });
        own.set(&act);
        script.answer(Ok(Reloaded::Unchanged));
        let (done, end) = mpsc::channel();
        let waiter = users.refresh(1);
        thread::spawn(move || done.send(waiter.wait()));
        let end = end.recv_timeout(20 * SECOND).expect("the reload ends");
        let (value, left) = match what {
            "writes" => (1, 20 * SECOND),
            _ => (10, 20 * SECOND),
        };
        assert_eq!(end, Ok(Some(value)), "{what}");
        assert_eq!(users.cache().peek_ref(&1).unwrap().time_left(), Some(left));
        assert_eq!(asked.load(Ordering::SeqCst), asks, "{what}");
    }
}

#[test]
fn unchanged_gives_the_lifetime_of_the_last_load_again() {
    let minute = 60 * SECOND;
    for limit in [None, Some(100 * SECOND)] {
        let (script, time) = (Script::default(), ManualTicker::new());
        let mut builder = Cache::builder().ticker(time.clone()).record_stats();
        if let Some(limit) = limit {
            builder = builder.time_to_live(limit);
        }
        let users: Users = builder.loading(script.clone()).build();
        let left = || users.cache().peek_ref(&1).unwrap().time_left();
        let unchanged = |answer| {
            script.answer(Ok(answer));
            assert_eq!(users.refresh(1).wait(), Ok(Some(10)));
        };
        let loaded = |answer: Loaded<u64>| {
            script.answer(Ok(Reloaded::New(answer)));
            assert_eq!(users.refresh(1).wait(), Ok(Some(10)));
        };
        loaded(Loaded::new(10).expires_in(minute));
        for _ in 0..3 {
            time.advance(50 * SECOND);
            unchanged(Reloaded::Unchanged);
            assert_eq!(left(), Some(minute));
        }
        // A deadline that was set by hand is not the load's.
        assert!(users.cache().set_expiry(&1, Some(5 * SECOND)));
        unchanged(Reloaded::Unchanged);
        assert_eq!(left(), Some(minute));
        // What the loader says of an unchanged value holds for the next time as well.
        unchanged(Reloaded::UnchangedFor {
            expires_in: Some(30 * SECOND),
            refresh_in: None,
        });
        time.advance(20 * SECOND);
        unchanged(Reloaded::UnchangedFor {
            expires_in: None,
            refresh_in: Some(SECOND),
        });
        assert_eq!(left(), Some(30 * SECOND));
        // Also if it has expired meanwhile.
        let waiter = users.refresh(1);
        until("it runs", || script.reloads() == 7);
        time.advance(40 * SECOND);
        script.answer(Ok(Reloaded::Unchanged));
        assert_eq!(waiter.wait(), Ok(Some(10)));
        assert_eq!(left(), Some(30 * SECOND));
        // A load that says nothing, and one that says for ever.
        loaded(10.into());
        unchanged(Reloaded::Unchanged);
        assert_eq!(left(), limit);
        loaded(Loaded::new(10).expires_in(minute));
        loaded(Loaded::new(10).never_expires());
        unchanged(Reloaded::Unchanged);
        assert_eq!(left(), limit);
        // A write that named a lifetime.
        users.cache().insert_with_ttl(1, 10, 40 * SECOND);
        time.advance(30 * SECOND);
        unchanged(Reloaded::Unchanged);
        assert_eq!(left(), limit.or(Some(40 * SECOND)));
    }
}

/// A value that is made from the present one keeps its deadline; the reload that leaves it
/// unchanged gives it the lifetime again from which that deadline came.
#[test]
fn unchanged_after_an_update_has_the_loaders_lifetime() {
    struct Lasting;

    impl Loader<u64, u64> for Lasting {
        type Error = ();

        fn load(&self, key: &u64) -> Result<Loaded<u64>, ()> {
            let loaded = Loaded::new(*key).expires_in(60 * SECOND);
            Ok(loaded.refresh_in(55 * SECOND))
        }

        fn reload(&self, _: &u64, _: &u64) -> Result<Reloaded<u64>, ()> {
            Ok(Reloaded::Unchanged)
        }
    }

    for by_loader in [true, false] {
        let time = ManualTicker::new();
        let users = Cache::builder()
            .ticker(time.clone())
            .loading(Lasting)
            .refresh_after(refresh::after(5 * SECOND))
            .build();
        let left = || users.cache().peek_ref(&1).unwrap().time_left();
        if by_loader {
            users.get(&1).unwrap();
        } else {
            users.cache().insert_with_ttl(1, 1, 60 * SECOND);
        }
        for (passed, value) in [(30 * SECOND, 2), (20 * SECOND, 3)] {
            time.advance(passed);
            users.cache().entry(1).and_upsert_with(|_| value);
        }
        assert_eq!(left(), Some(10 * SECOND));
        assert_eq!(users.refresh(1).wait(), Ok(Some(3)));
        assert_eq!(left(), Some(60 * SECOND), "by the loader: {by_loader}");
    }
}

/// Counts its clones.
struct Cloned(Arc<AtomicUsize>);

impl Clone for Cloned {
    fn clone(&self) -> Self {
        self.0.fetch_add(1, Ordering::SeqCst);
        Self(Arc::clone(&self.0))
    }
}

#[test]
fn a_value_that_is_unchanged_is_not_weighed_and_is_cloned_for_the_loader_and_the_waiter_alone() {
    struct Keeper;

    impl Loader<u64, Cloned> for Keeper {
        type Error = ();

        fn load(&self, _: &u64) -> Result<Loaded<Cloned>, ()> {
            unreachable!("the key is present")
        }

        fn reload(&self, _: &u64, _: &Cloned) -> Result<Reloaded<Cloned>, ()> {
            Ok(Reloaded::Unchanged)
        }
    }

    let (clones, weighed) = (Arc::<AtomicUsize>::default(), Arc::<AtomicUsize>::default());
    let weighs = Arc::clone(&weighed);
    let users = Cache::builder()
        .max_capacity(10)
        .weigher(move |_: &u64, _: &Cloned| {
            weighs.fetch_add(1, Ordering::SeqCst);
            1
        })
        .loading(Keeper)
        .build();
    users.cache().insert(1, Cloned(Arc::clone(&clones)));
    assert_eq!(weighed.load(Ordering::SeqCst), 1);
    assert!(users.refresh(1).wait().is_ok_and(|value| value.is_some()));
    assert_eq!(weighed.load(Ordering::SeqCst), 1);
    assert_eq!(clones.load(Ordering::SeqCst), 2);
}
