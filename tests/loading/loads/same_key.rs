//! What a load, a compute and a write of the same key do to each other, row by row; and where the
//! panic of a refused call points.

use std::panic::{AssertUnwindSafe, Location, catch_unwind};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use crate::support::files_of_panics;
use wheelhouse::compute::{CompResult, Entry, Op};
use wheelhouse::{Cache, ManualTicker, RemovalCause};

const SECOND: Duration = Duration::from_secs(1);

type C = Cache<String, u32>;
type Heard = Arc<Mutex<Vec<(String, u32, RemovalCause)>>>;

struct World {
    cache: C,
    ticker: ManualTicker,
    heard: Heard,
}

fn world() -> World {
    let (ticker, heard) = (ManualTicker::new(), Heard::default());
    let sink = heard.clone();
    let cache = Cache::builder()
        .name("world")
        .record_stats()
        .ticker(ticker.clone())
        .removal_listener(move |k: &String, v: &u32, cause| {
            sink.lock().unwrap().push((k.clone(), *v, cause));
        })
        .build();
    World {
        cache,
        ticker,
        heard,
    }
}

impl World {
    fn heard(&self) -> Vec<(String, u32, RemovalCause)> {
        self.cache.run_pending_tasks();
        std::mem::take(&mut self.heard.lock().unwrap())
    }
}

fn a() -> String {
    "a".to_owned()
}

fn message(result: thread::Result<impl Sized>) -> String {
    let panic = result.err().expect("a panic");
    match panic.downcast::<String>() {
        Ok(text) => *text,
        Err(panic) => (*panic.downcast_ref::<&str>().expect("text")).to_owned(),
    }
}

/// What a write does to the load that it meets, and what the caller of the load then gets.
#[test]
fn every_explicit_write_revokes_the_load_it_meets() {
    type Write = Box<dyn Fn(&World)>;
    let rows: Vec<(&str, bool, Write, u32)> = vec![
        ("insert", true, Box::new(|w| w.cache.insert(a(), 99)), 99),
        (
            "insert_with_ttl",
            true,
            Box::new(|w| w.cache.insert_with_ttl(a(), 98, SECOND)),
            98,
        ),
        (
            "invalidate",
            true,
            Box::new(|w| w.cache.invalidate("a")),
            10,
        ),
        (
            "remove",
            true,
            Box::new(|w| assert_eq!(w.cache.remove("a"), None)),
            10,
        ),
        (
            "invalidate_all",
            true,
            Box::new(|w| w.cache.invalidate_all()),
            10,
        ),
        (
            "restore",
            true,
            Box::new(|w| {
                let other: C = Cache::new(5);
                other.insert(a(), 97);
                w.cache
                    .restore(other.snapshot(), wheelhouse::Restore::default());
            }),
            97,
        ),
        (
            "retain",
            false,
            Box::new(|w| w.cache.retain(|_, _| false)),
            10,
        ),
        (
            "replace_if",
            false,
            Box::new(|w| _ = w.cache.replace_if("a", 1, |_| true)),
            10,
        ),
        (
            "remove_if",
            false,
            Box::new(|w| _ = w.cache.remove_if("a", |_| true)),
            10,
        ),
        (
            "set_expiry",
            false,
            Box::new(|w| _ = w.cache.set_expiry("a", Some(SECOND))),
            10,
        ),
        ("get", false, Box::new(|w| _ = w.cache.get("a")), 10),
        (
            "another key",
            false,
            Box::new(|w| w.cache.insert("b".into(), 1)),
            10,
        ),
    ];
    for (name, revokes, write, gets) in rows {
        let w = world();
        let entry = w.cache.entry(a()).or_insert_with(|| {
            write(&w);
            10
        });
        assert_eq!(*entry.value(), gets, "{name}");
        let live = w.cache.peek_ref("a").map(|entry| *entry);
        if revokes {
            assert!(!entry.is_stored(), "{name}");
            assert_eq!(live, (gets != 10).then_some(gets), "{name}");
            assert_eq!(entry.is_fresh(), gets == 10, "{name}");
        } else {
            assert!(entry.is_stored() && entry.is_fresh(), "{name}");
            assert_eq!(live, Some(10), "{name}");
        }
        assert_eq!(
            w.cache.stats().loads_discarded(),
            u64::from(revokes),
            "{name}"
        );
        assert_eq!(
            w.heard(),
            [],
            "{name}: nothing for what was never in the cache"
        );
    }
}

#[test]
fn a_call_after_the_write_loads_anew() {
    let w = world();
    let value = w.cache.get_with(a(), || {
        w.cache.invalidate("a");
        thread::scope(|scope| {
            let later = scope.spawn(|| w.cache.get_with(a(), || 20));
            assert_eq!(
                later.join().unwrap(),
                20,
                "it does not wait for the revoked load"
            );
        });
        10
    });
    assert_eq!(
        value, 20,
        "a live entry is there now: everybody gets that value"
    );
    assert_eq!(w.cache.get("a"), Some(20));
}

/// Each row: what is there, what the closure does, the result, and what is there afterwards.
#[test]
fn a_compute_that_nothing_disturbs_does_what_its_op_says() {
    let run = |before: Option<u32>, op: Op<u32>| {
        let w = world();
        if let Some(value) = before {
            w.cache.insert(a(), value);
        }
        let result = w.cache.entry(a()).and_compute_with(|old| {
            assert_eq!(old.map(Entry::into_value), before);
            assert_eq!(w.cache.get("a"), before, "get sees the old value meanwhile");
            op
        });
        let text = match result {
            CompResult::Inserted(e) => format!("Inserted {} {}", e.value(), e.is_stored()),
            CompResult::ReplacedWith(e) => {
                format!("Replaced {} {}", e.value(), e.is_old_value_replaced())
            }
            CompResult::Removed(e) => format!("Removed {}", e.value()),
            CompResult::Unchanged(e) => format!("Unchanged {}", e.value()),
            CompResult::StillNone(key) => format!("None {key}"),
            CompResult::Overtaken(value) => format!("Overtaken {value:?}"),
        };
        let left = w.cache.peek_ref("a").map(|entry| entry.time_left());
        (
            text,
            w.cache.get("a"),
            left,
            w.heard().into_iter().map(|gone| gone.2).next(),
        )
    };
    use RemovalCause::{Explicit, Replaced};
    let row = |text: &str, value, left, cause| (text.to_owned(), value, left, cause);
    assert_eq!(run(None, Op::Nop), row("None a", None, None, None));
    assert_eq!(run(None, Op::Remove), row("None a", None, None, None));
    assert_eq!(
        run(None, Op::Put(1)),
        row("Inserted 1 true", Some(1), Some(None), None)
    );
    let ttl = Some(Some(SECOND));
    assert_eq!(
        run(None, Op::PutWithTtl(1, SECOND)),
        row("Inserted 1 true", Some(1), ttl, None)
    );
    assert_eq!(
        run(Some(5), Op::Nop),
        row("Unchanged 5", Some(5), Some(None), None)
    );
    assert_eq!(
        run(Some(5), Op::Remove),
        row("Removed 5", None, None, Some(Explicit))
    );
    let replaced = row("Replaced 1 true", Some(1), Some(None), Some(Replaced));
    assert_eq!(run(Some(5), Op::Put(1)), replaced);
    let replaced = row("Replaced 1 true", Some(1), ttl, Some(Replaced));
    assert_eq!(run(Some(5), Op::PutWithTtl(1, SECOND)), replaced);
}

#[test]
fn a_compute_that_something_disturbs_tells_the_truth() {
    type Meanwhile = fn(&World);
    let put: fn() -> Op<u32> = || Op::Put(1);
    let remove: fn() -> Op<u32> = || Op::Remove;
    let nop: fn() -> Op<u32> = || Op::Nop;
    let insert: Meanwhile = |w| w.cache.insert(a(), 99);
    let invalidate: Meanwhile = |w| w.cache.invalidate("a");
    let take: Meanwhile = |w| assert_eq!(w.cache.remove("a"), Some(5));
    let expire: Meanwhile = |w| {
        w.cache.set_expiry("a", Some(Duration::ZERO));
    };
    let expire_and_sweep: Meanwhile = |w| {
        w.cache.set_expiry("a", Some(Duration::ZERO));
        w.ticker.advance(5 * SECOND);
        w.cache.run_pending_tasks();
    };
    // meanwhile, op, the result, stored?, what is there at the end
    type Row = (
        &'static str,
        Meanwhile,
        fn() -> Op<u32>,
        &'static str,
        Option<u32>,
    );
    let rows: Vec<Row> = vec![
        ("insert, put", insert, put, "ReplacedWith 1 false", Some(99)),
        (
            "invalidate, put",
            invalidate,
            put,
            "ReplacedWith 1 false",
            None,
        ),
        ("insert, remove", insert, remove, "Overtaken None", Some(99)),
        (
            "invalidate, remove",
            invalidate,
            remove,
            "Overtaken None",
            None,
        ),
        ("take, put", take, put, "Overtaken Some(1)", None),
        ("take, remove", take, remove, "Overtaken None", None),
        ("take, nop", take, nop, "Unchanged 5", None),
        ("insert, nop", insert, nop, "Unchanged 5", Some(99)),
        ("invalidate, nop", invalidate, nop, "Unchanged 5", None),
        ("expire, put", expire, put, "Inserted 1 true", Some(1)),
        ("expire, remove", expire, remove, "StillNone", None),
        (
            "sweep, put",
            expire_and_sweep,
            put,
            "Inserted 1 true",
            Some(1),
        ),
        ("sweep, remove", expire_and_sweep, remove, "StillNone", None),
    ];
    for (name, meanwhile, op, expected, end) in rows {
        let w = world();
        w.cache.insert(a(), 5);
        let result = w.cache.entry(a()).and_compute_with(|old| {
            assert_eq!(old.map(Entry::into_value), Some(5));
            meanwhile(&w);
            op()
        });
        let text = match result {
            CompResult::Inserted(e) => format!("Inserted {} {}", e.value(), e.is_stored()),
            CompResult::ReplacedWith(e) => format!("ReplacedWith {} {}", e.value(), e.is_stored()),
            CompResult::Removed(e) => format!("Removed {}", e.value()),
            CompResult::Unchanged(e) => format!("Unchanged {}", e.value()),
            CompResult::StillNone(_) => "StillNone".to_owned(),
            CompResult::Overtaken(value) => format!("Overtaken {value:?}"),
        };
        assert_eq!(text, expected, "{name}");
        assert_eq!(w.cache.get("a"), end, "{name}");
        let heard = w.heard();
        assert_eq!(
            heard.len(),
            1,
            "{name}: 5 left once, and nothing else did: {heard:?}"
        );
        assert_eq!(heard[0].1, 5, "{name}");
    }
}

#[test]
fn a_compute_over_an_absent_key_that_something_disturbs() {
    let w = world();
    let insert = |op: fn() -> Op<u32>| {
        w.cache.invalidate("a");
        w.cache.entry(a()).and_compute_with(|old| {
            assert!(old.is_none());
            w.cache.insert(a(), 99);
            op()
        })
    };
    match insert(|| Op::Put(1)) {
        CompResult::Inserted(e) => assert_eq!((*e.value(), e.is_stored()), (1, false)),
        _ => panic!("just before the insert"),
    }
    assert_eq!(w.cache.get("a"), Some(99));
    assert!(matches!(insert(|| Op::Nop), CompResult::StillNone(_)));
    match insert(|| Op::Remove) {
        CompResult::StillNone(_) | CompResult::Overtaken(None) => {}
        _ => panic!("it removed nothing"),
    }
    assert_eq!(w.cache.get("a"), Some(99));
}

#[test]
fn insert_if_replaces_what_the_closure_accepts() {
    let w = world();
    let fresh = w
        .cache
        .entry(a())
        .or_insert_with_if(|| 1, |_| panic!("absent"));
    assert!(fresh.is_fresh() && !fresh.is_old_value_replaced());
    let kept = w
        .cache
        .entry(a())
        .or_insert_with_if(|| panic!("run"), |old| *old == 9);
    assert!(!kept.is_fresh());
    assert_eq!(kept.into_value(), 1);
    let replaced = w.cache.entry(a()).or_insert_with_if(|| 2, |old| *old == 1);
    assert!(replaced.is_fresh() && replaced.is_old_value_replaced());
    assert_eq!(w.cache.get("a"), Some(2));
    assert_eq!(w.heard(), [(a(), 1, RemovalCause::Replaced)]);
}

#[test]
fn compare_and_set_and_compare_and_remove() {
    let w = world();
    assert_eq!(
        w.cache.replace_if("a", 1, |_| true),
        Err(1),
        "absent: the value comes back"
    );
    w.cache.insert(a(), 1);
    assert_eq!(w.cache.replace_if("a", 2, |old| *old == 7), Err(2));
    assert_eq!(w.cache.replace_if("a", 2, |old| *old == 1), Ok(()));
    assert_eq!(w.cache.remove_if("a", |old| *old == 1), None);
    assert_eq!(w.cache.remove_if("a", |old| *old == 2), Some(2));
    let expected = [
        (a(), 1, RemovalCause::Replaced),
        (a(), 2, RemovalCause::Explicit),
    ];
    assert_eq!(w.heard(), expected);
    w.cache.insert_with_ttl(a(), 3, SECOND);
    w.ticker.advance(SECOND);
    assert_eq!(
        w.cache.replace_if("a", 4, |_| true),
        Err(4),
        "due is absent"
    );
    assert_eq!(w.cache.remove_if("a", |_| true), None);
    assert_eq!(w.heard(), [(a(), 3, RemovalCause::Expired)]);
    // Eight threads count by compare and set.
    w.cache.insert(a(), 0);
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for _ in 0..200 {
                    loop {
                        let seen = w.cache.get("a").unwrap();
                        if w.cache
                            .replace_if("a", seen + 1, |now| *now == seen)
                            .is_ok()
                        {
                            break;
                        }
                    }
                }
            });
        }
    });
    assert_eq!(w.cache.get("a"), Some(800));
}

#[test]
fn a_result_gives_its_entry() {
    let c: C = Cache::new(10);
    let compute = |op: Op<u32>| c.entry(a()).and_compute_with(|_| op);
    assert!(compute(Op::Nop).into_entry().is_none());
    assert_eq!(
        compute(Op::Put(1)).into_entry().map(Entry::into_value),
        Some(1)
    );
    assert_eq!(compute(Op::Put(2)).unwrap().into_value(), 2);
    assert_eq!(compute(Op::Nop).unwrap().into_value(), 2);
    assert_eq!(compute(Op::Remove).unwrap().into_value(), 2);
    let text = message(catch_unwind(AssertUnwindSafe(|| compute(Op::Nop).unwrap())));
    assert!(text.contains("StillNone"), "{text}");
    c.insert(a(), 5);
    let overtaken = c.entry(a()).and_compute_with(|_| {
        c.remove("a");
        Op::Put(6)
    });
    let text = message(catch_unwind(AssertUnwindSafe(|| overtaken.unwrap())));
    assert!(text.contains("Overtaken"), "{text}");
}

/// Each row begins a call that would wait for the load that its own thread leads.
#[test]
fn a_refused_call_panics_at_its_caller() {
    let c: &Cache<u32, u32> = &Cache::new(10);
    type Call<'a> = Box<dyn Fn() -> u32 + 'a>;
    macro_rules! rows {
        ($($call:expr),* $(,)?) => {
            vec![$((stringify!($call), Box::new(|| { _ = $call; 1_u32 }) as Call<'_>)),*]
        };
    }
    let rows: Vec<(&str, Call<'_>)> = rows![
        c.get_with(1, || 2),
        c.get_with_by_ref(&1, || 2),
        c.optionally_get_with(1, || None),
        c.optionally_get_with_by_ref(&1, || None),
        c.try_get_with(1, || Err::<u32, _>(())),
        c.try_get_with_by_ref(&1, || Err::<u32, _>(())),
        c.get_all_with([1], |_| Err::<Vec<_>, _>(())),
        c.lease(1),
        c.entry(1).or_default(),
        c.entry(1).or_insert(2),
        c.entry(1).or_insert_with(|| 2),
        c.entry(1).or_insert_with_ttl(|| (2, SECOND)),
        c.entry(1).or_insert_with_if(|| 2, |_| true),
        c.entry(1).or_optionally_insert_with(|| None),
        c.entry(1).or_try_insert_with(|| Err::<u32, _>(())),
        c.entry(1).and_upsert_with(|_| 2),
        c.entry(1).and_compute_with(|_| Op::Nop),
        c.entry(1).and_try_compute_with(|_| Err::<Op<u32>, _>(())),
        c.entry_by_ref(&1).or_default(),
        c.entry_by_ref(&1).or_insert(2),
        c.entry_by_ref(&1).and_upsert_with(|_| 2),
    ];
    let file = Location::caller().file();
    for (name, call) in &rows {
        let (refused, files) =
            files_of_panics(|| catch_unwind(AssertUnwindSafe(|| c.get_with(1, call))));
        let text = message(refused);
        assert!(text.contains("deadlock"), "{name}: {text}");
        assert!(
            files.iter().any(|f| f == file),
            "{name} points at {files:?}"
        );
        assert_eq!(c.get_with(1, || 5), 5, "{name}: the key stays usable");
        c.invalidate(&1);
    }
}
