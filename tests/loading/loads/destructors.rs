//! Destructors of values that panic inside a load or a compute: the caller hears nothing of it, and
//! no value is lost.

use crate::support::hide_scripted_panics;
use std::any::Any;
use std::cell::{Cell, RefCell};
use std::future::{Future, pending, ready};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Waker};
use wheelhouse::compute::Op;
use wheelhouse::{Cache, Leased, LoadError, LoadingCache, Scheduler, async_loader_fn, loader_fn};

thread_local! {
    /// Which drop from now on panics, on this thread; 0 for none.
    static PANICS_IN: Cell<usize> = const { Cell::new(0) };
    /// How many drops were left to go when the last call had returned.
    static LEFT: Cell<usize> = const { Cell::new(0) };
    /// What closures of the test keep until the call has returned.
    static KEPT: RefCell<Vec<Box<dyn Any>>> = const { RefCell::new(Vec::new()) };
}

/// A value that counts its copies. Its drop panics when it is its turn.
#[derive(Debug)]
struct Value(Arc<()>);

impl Clone for Value {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl Drop for Value {
    fn drop(&mut self) {
        let left = PANICS_IN.get();
        PANICS_IN.set(left.saturating_sub(1));
        assert!(left != 1, "told to panic in the drop of a value");
    }
}

type Values = Cache<u32, Value>;
/// A call. It stops the countdown before it drops what is its own.
type Call = fn(&Values, &Arc<()>);

fn own<T>(answer: T) {
    LEFT.set(PANICS_IN.replace(0));
    drop(answer);
}

fn keep<T: 'static>(value: T) {
    KEPT.with_borrow_mut(|kept| kept.push(Box::new(value)));
}

const CALLS: [(&str, Call); 17] = [
    ("get_with", |cache, count| {
        own(cache.get_with(2, || Value(Arc::clone(count))))
    }),
    ("get_with that is overtaken", |cache, count| {
        own(cache.get_with(2, || {
            cache.insert(2, Value(Arc::clone(count)));
            Value(Arc::clone(count))
        }))
    }),
    ("get_with that is revoked", |cache, count| {
        own(cache.get_with(2, || {
            cache.invalidate(&2);
            Value(Arc::clone(count))
        }))
    }),
    ("optionally_get_with", |cache, _| {
        own(cache.optionally_get_with(2, || None))
    }),
    ("or_insert_with_if that replaces", |cache, count| {
        let entry = cache.entry(1);
        own(entry.or_insert_with_if(|| Value(Arc::clone(count)), |_| true))
    }),
    ("or_insert_with_if that keeps", |cache, count| {
        let entry = cache.entry(1);
        own(entry.or_insert_with_if(|| Value(Arc::clone(count)), |_| false))
    }),
    ("or_try_insert_with", |cache, _| {
        own(cache.entry(2).or_try_insert_with(|| Err::<Value, _>(1)))
    }),
    ("and_upsert_with", |cache, count| {
        own(cache.entry(1).and_upsert_with(|seen| {
            keep(seen);
            Value(Arc::clone(count))
        }))
    }),
    ("Op::Put", |cache, count| {
        own(cache.entry(1).and_compute_with(|seen| {
            keep(seen);
            Op::Put(Value(Arc::clone(count)))
        }))
    }),
    ("Op::Remove", |cache, _| {
        own(cache.entry(1).and_compute_with(|seen| {
            keep(seen);
            Op::Remove
        }))
    }),
    ("Op::Remove that is overtaken", |cache, _| {
        own(cache.entry(1).and_compute_with(|seen| {
            keep(seen);
            cache.invalidate(&1);
            Op::Remove
        }))
    }),
    ("Op::Put that is overtaken", |cache, count| {
        own(cache.entry(1).and_compute_with(|seen| {
            keep(seen);
            // What that drops is not the compute's.
            let turn = PANICS_IN.replace(0);
            keep(cache.remove_if(&1, |_| true));
            PANICS_IN.set(turn);
            Op::Put(Value(Arc::clone(count)))
        }))
    }),
    ("a compute that fails", |cache, _| {
        own(cache.entry(1).and_try_compute_with(|seen| {
            keep(seen);
            Err::<Op<Value>, _>(1)
        }))
    }),
    ("a lease", |cache, count| match cache.lease(2) {
        Leased::Lease(lease) => {
            cache.insert(2, Value(Arc::clone(count)));
            own(lease.fill(Value(Arc::clone(count))));
        }
        _ => unreachable!("the key is absent"),
    }),
    ("get_all_with", |cache, count| {
        let values = || vec![Some(Value(Arc::clone(count)))];
        own(cache.get_all_with([1, 2, 1], |_| Ok::<_, u8>(values())))
    }),
    ("get_all_with that fails", |cache, _| {
        own(cache.get_all_with([1, 2, 1], |_| Err::<_, u8>(1)))
    }),
    ("get_all_with of too many", |cache, count| {
        let values = || {
            vec![
                Some(Value(Arc::clone(count))),
                Some(Value(Arc::clone(count))),
            ]
        };
        let call = || cache.get_all_with([1, 2], |_| Ok::<_, u8>(values()));
        // The panic about their number is the call's own answer.
        own(catch_unwind(AssertUnwindSafe(call)).is_err())
    }),
];

#[test]
fn a_destructor_that_panics_inside_a_call_reaches_no_caller() {
    hide_scripted_panics();
    let mut panics = 0;
    for (name, call) in CALLS {
        for turn in 1..20 {
            let count = Arc::new(());
            let cache: Values = Cache::builder().scheduler(Scheduler::disabled()).build();
            cache.insert(1, Value(Arc::clone(&count)));
            PANICS_IN.set(turn);
            let ended = catch_unwind(AssertUnwindSafe(|| call(&cache, &count)));
            PANICS_IN.set(0);
            assert!(ended.is_ok(), "{name}: drop {turn} reaches the caller");
            KEPT.with_borrow_mut(Vec::clear);
            drop(cache);
            assert_eq!(
                Arc::strong_count(&count),
                1,
                "{name}: drop {turn} loses a value"
            );
            if LEFT.get() > 0 {
                break;
            }
            panics += 1;
        }
    }
    assert!(panics >= 10, "{panics} drops have panicked");
}

#[test]
fn a_destructor_that_panics_while_the_code_of_a_call_panics_does_not_end_the_process() {
    hide_scripted_panics();
    let count = Arc::new(());
    let cache: Values = Cache::builder().scheduler(Scheduler::disabled()).build();
    cache.insert(1, Value(Arc::clone(&count)));
    let calls: [fn(&Values); 2] = [
        |cache| {
            own(cache.entry(1).or_insert_with_if(
                || {
                    PANICS_IN.set(1);
                    panic!("told to panic in the closure")
                },
                |_| true,
            ))
        },
        |cache| {
            own(cache.entry(1).and_upsert_with(|seen| -> Value {
                keep(seen);
                PANICS_IN.set(1);
                panic!("told to panic in the closure")
            }))
        },
    ];
    for call in calls {
        let panic = catch_unwind(AssertUnwindSafe(|| call(&cache))).unwrap_err();
        let drops = PANICS_IN.replace(0);
        assert!(panic.downcast_ref::<&str>().unwrap().contains("closure"));
        assert_eq!(drops, 0, "the copy was dropped");
        KEPT.with_borrow_mut(Vec::clear);
        assert_eq!(
            cache.get(&1).map(|value| Arc::strong_count(&value.0)),
            Some(3)
        );
    }
}

#[test]
fn a_destructor_that_panics_while_a_task_is_dropped_reaches_no_caller() {
    hide_scripted_panics();
    let count = Arc::new(());
    let cache: Values = Cache::builder().scheduler(Scheduler::disabled()).build();
    cache.insert(1, Value(Arc::clone(&count)));
    let mut call = Box::pin(cache.entry(1).and_upsert_with_async(|seen| {
        keep(seen);
        pending::<Value>()
    }));
    let polled = call.as_mut().poll(&mut Context::from_waker(Waker::noop()));
    assert!(polled.is_pending());
    PANICS_IN.set(1);
    let dropped = catch_unwind(AssertUnwindSafe(|| drop(call)));
    assert_eq!(PANICS_IN.replace(0), 0, "the copy was dropped");
    assert!(dropped.is_ok(), "the caller hears of it");
    KEPT.with_borrow_mut(Vec::clear);
    assert_eq!(Arc::strong_count(&count), 2);
}

#[test]
fn the_key_of_a_call_is_dropped_contained_while_its_code_panics() {
    hide_scripted_panics();
    let cache: Cache<Key, u32> = Cache::new(10);
    let call = AssertUnwindSafe(|| {
        cache.entry(Key(1)).or_insert_with(|| {
            ARMED.set(true);
            panic!("told to panic in the closure")
        })
    });
    let panic = catch_unwind(call).unwrap_err();
    ARMED.set(false);
    assert!(panic.downcast_ref::<&str>().unwrap().contains("closure"));
}

/// A key whose drop panics while the cache drops keys, on this thread.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Key(u32);

thread_local! {
    static ARMED: Cell<bool> = const { Cell::new(false) };
}

impl Drop for Key {
    fn drop(&mut self) {
        assert!(!ARMED.get(), "told to panic in the drop of a key");
    }
}

type Loads = LoadingCache<Key, u32, ()>;

fn load(key: &Key) -> u32 {
    ARMED.set(true);
    key.0 * 10
}

fn loads_by_threads() -> Loads {
    let loader = loader_fn(|key: &Key| Ok(load(key)));
    Cache::builder().loading(loader).build()
}

/// Its tasks run at once.
fn loads_by_tasks() -> Loads {
    let loader = async_loader_fn(|key: &Key| ready(Ok(load(key))));
    let polls = |mut task: Pin<Box<dyn Future<Output = ()> + Send>>| {
        let polled = task.as_mut().poll(&mut Context::from_waker(Waker::noop()));
        assert!(polled.is_ready());
    };
    Cache::builder().loading(loader).spawner(polls).build()
}

#[test]
fn destructors_of_the_keys_of_a_task_that_is_dropped_reach_no_spawner() {
    hide_scripted_panics();
    let heard = Arc::new(AtomicUsize::new(0));
    let hears = Arc::clone(&heard);
    let users: Loads = Cache::builder()
        .loading(async_loader_fn(|key: &Key| ready(Ok(load(key)))))
        .spawner(move |task| {
            ARMED.set(true);
            let dropped = catch_unwind(AssertUnwindSafe(|| drop(task)));
            ARMED.set(false);
            hears.fetch_add(if dropped.is_ok() { 1 } else { 100 }, Ordering::SeqCst);
        })
        .build();
    let all = users.get_all([Key(1), Key(2)]);
    assert_eq!(all, Err(LoadError::Abandoned));
    assert_eq!(heard.load(Ordering::SeqCst), 1, "one task, and no panic");
}

#[test]
fn destructors_of_the_keys_of_a_call_that_panic_reach_no_caller() {
    hide_scripted_panics();
    for users in [loads_by_threads(), loads_by_tasks()] {
        let call = AssertUnwindSafe(|| users.get_all([Key(1), Key(2), Key(1)]));
        let all = catch_unwind(call);
        ARMED.set(false);
        let all = all.expect("the caller hears nothing of it");
        assert_eq!(all, Ok(vec![Some(10), Some(20), Some(10)]));
        assert_eq!(users.cache().entry_count(), 2);
    }
    let cache: Cache<Key, u32> = Cache::new(10);
    for fails in [false, true] {
        let call = AssertUnwindSafe(|| {
            cache.get_all_with([Key(1), Key(2), Key(1)], |keys| {
                assert_eq!(keys.len(), 2);
                ARMED.set(true);
                if fails { Err(7) } else { Ok(vec![None, None]) }
            })
        });
        let all = catch_unwind(call);
        ARMED.set(false);
        let all = all.expect("the caller hears nothing of it");
        assert_eq!(
            all.map_err(|error| *error),
            if fails { Err(7) } else { Ok(vec![None; 3]) }
        );
    }
    let call = AssertUnwindSafe(|| {
        cache.get_all_with([Key(1), Key(2)], |_| -> Result<_, ()> {
            ARMED.set(true);
            panic!("told to panic in the closure")
        })
    });
    let panic = catch_unwind(call).unwrap_err();
    ARMED.set(false);
    assert!(panic.downcast_ref::<&str>().unwrap().contains("closure"));
}
