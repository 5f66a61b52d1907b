//! Look-ups by a coarse time that the test sets, beside a manual clock.

use crate::Cache;
use crate::RemovalCause::{self, Expired};
use crate::builder::CacheBuilder;
use crate::time::coarse::Keeper;
use crate::time::{Clock, Ticker};
use crate::{ManualTicker, Scheduler, expiry};
use std::sync::mpsc::{self, Receiver};
use std::time::Duration;

const SECOND: Duration = Duration::from_secs(1);

struct Rig {
    cache: Cache<u32, u32>,
    clock: ManualTicker,
    keeper: &'static Keeper,
    heard: Receiver<(u32, RemovalCause)>,
}

/// A cache that holds 1 for a second and 2 for a minute, and whose coarse time stands still until
/// the test renews it.
fn rig(settings: impl FnOnce(CacheBuilder<u32, u32>) -> CacheBuilder<u32, u32>) -> Rig {
    let keeper = Keeper::of_a_test(|_| Ok(()));
    let clock = ManualTicker::new();
    let ticker = clock.clone();
    let coarse = keeper.add(move || ticker.nanos(), SECOND).unwrap();
    let exact = Clock::custom(Box::new(clock.clone()));
    let (tell, heard) = mpsc::channel();
    let builder =
        Cache::builder().removal_listener(move |&key: &u32, _: &u32, cause: RemovalCause| {
            tell.send((key, cause)).ok();
        });
    let cache = settings(builder).build_on(exact.glancing_at(coarse), Scheduler::disabled());
    cache.insert_with_ttl(1, 10, SECOND);
    cache.insert_with_ttl(2, 20, SECOND * 60);
    Rig {
        cache,
        clock,
        keeper,
        heard,
    }
}

/// Every kind of look-up that uses the coarse time, for key 1.
#[track_caller]
fn all_find_it(cache: &Cache<u32, u32>, there: bool) {
    let found = there.then_some(10);
    assert_eq!(cache.get(&1), found, "get");
    assert_eq!(cache.get_many(&[2, 1]), [Some(20), found], "get_many");
    assert_eq!(cache.get_ref(&1).map(|e| *e), found, "get_ref");
    assert_eq!(cache.peek_ref(&1).map(|e| *e), found, "peek_ref");
    assert_eq!(cache.contains_key(&1), there, "contains_key");
    assert_eq!(cache.iter().any(|e| *e.key() == 1), there, "iter");
    assert_eq!(cache.policy().weight_of(&1), there.then_some(1));
}

#[test]
fn look_ups_see_an_entry_until_the_coarse_time_has_come_to_its_deadline() {
    for stats in [false, true] {
        let rig = rig(|builder| {
            if stats {
                builder.record_stats()
            } else {
                builder
            }
        });
        rig.clock.advance(SECOND - Duration::from_nanos(1));
        rig.keeper.renew();
        all_find_it(&rig.cache, true);
        rig.clock.advance(SECOND);
        all_find_it(&rig.cache, true);
        let held = rig.cache.peek_ref(&1).unwrap();
        assert_eq!(held.time_left(), Some(Duration::ZERO), "exact");
        drop(held);
        rig.keeper.renew();
        all_find_it(&rig.cache, false);
    }
}

#[test]
fn no_look_up_finds_an_entry_that_an_exact_call_found_expired() {
    type Call = fn(&Cache<u32, u32>);
    let calls: [Call; 4] = [
        |cache| assert_eq!(cache.remove(&1), None),
        |cache| cache.invalidate(&1),
        |cache| assert!(!cache.set_expiry(&1, None)),
        |cache| cache.run_pending_tasks(),
    ];
    for call in calls {
        let rig = rig(|builder| builder);
        rig.clock.advance(SECOND);
        all_find_it(&rig.cache, true);
        call(&rig.cache);
        all_find_it(&rig.cache, false);
        rig.cache.run_pending_tasks();
        assert_eq!(rig.heard.try_recv(), Ok((1, Expired)));
    }
}

#[test]
fn maintenance_is_as_prompt_as_without_coarse_reads() {
    let rig = rig(|builder| builder);
    rig.clock.advance(SECOND);
    rig.cache.run_pending_tasks();
    assert_eq!(rig.cache.entry_count(), 1);
    assert_eq!(rig.heard.try_recv(), Ok((1, Expired)));
}

#[test]
fn writes_use_the_exact_clock() {
    let rig = rig(|builder| {
        builder.expire_after(expiry::creating(|_: &u32, seconds: &u32| {
            Some(SECOND * *seconds)
        }))
    });
    rig.clock.advance(SECOND);
    all_find_it(&rig.cache, true);
    // Created again, for five seconds from now: not an update, and not counted from the coarse
    // time.
    rig.cache.insert(1, 5);
    assert_eq!(
        rig.cache.peek_ref(&1).unwrap().time_left(),
        Some(SECOND * 5)
    );
    rig.cache.run_pending_tasks();
    assert_eq!(rig.heard.try_recv(), Ok((1, Expired)));
    rig.cache.set_expiry(&1, Some(SECOND * 2));
    rig.clock.advance(SECOND * 2 - Duration::from_nanos(1));
    rig.keeper.renew();
    assert_eq!(rig.cache.get(&1), Some(5));
    rig.clock.advance(Duration::from_nanos(1));
    rig.keeper.renew();
    assert_eq!(rig.cache.get(&1), None);
}

#[test]
fn retain_is_exact_and_skips_entries_that_look_ups_still_find() {
    let rig = rig(|builder| builder);
    rig.clock.advance(SECOND);
    rig.cache.retain(|key, _| {
        assert_eq!(*key, 2);
        true
    });
    all_find_it(&rig.cache, true);
}

#[test]
fn a_cache_whose_reads_extend_has_no_coarse_time() {
    let builder = || Cache::<u32, u32>::builder().coarse_reads(SECOND);
    let accessing = expiry::accessing(|_: &u32, _: &u32| Some(SECOND));
    for (coarse, builder) in [
        (true, builder()),
        (true, builder().time_to_live(SECOND)),
        (false, builder().time_to_idle(SECOND)),
        (false, builder().expire_after(accessing)),
    ] {
        assert_eq!(builder.build().core.shared.clock.is_coarse(), coarse);
    }
}
