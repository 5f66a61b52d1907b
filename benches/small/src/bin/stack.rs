//! One call of a cache on a thread of its own, whose use of its stack `ci/small.sh` reads.
//! Without an argument: the names of the calls.

use std::thread;
use std::time::Duration;

use wheelhouse::{Cache, RemovalCause};

type Numbers = Cache<u64, u64>;

const CALLS: [(&str, fn(&Numbers)); 9] = [
    ("nothing", |_| ()),
    ("get", |cache| assert_eq!(cache.get(&1), Some(1))),
    ("insert", |cache| cache.insert(2, 2)),
    ("insert_with_ttl", |cache| {
        cache.insert_with_ttl(2, 2, Duration::from_secs(1));
    }),
    ("remove", |cache| assert_eq!(cache.remove(&1), Some(1))),
    ("get_with", |cache| {
        assert_eq!(nested(cache, 10, 1), 10);
    }),
    ("get_with, two levels", |cache| {
        assert_eq!(nested(cache, 10, 2), 11);
    }),
    ("get_with, three levels", |cache| {
        assert_eq!(nested(cache, 10, 3), 12);
    }),
    ("run_pending_tasks", Cache::run_pending_tasks),
];

/// The last of so many keys, each loaded inside the load of the key before it.
fn nested(cache: &Numbers, key: u64, levels: u64) -> u64 {
    cache.get_with(key, || {
        if levels == 1 {
            key
        } else {
            nested(cache, key + 1, levels - 1)
        }
    })
}

fn main() {
    let Some(name) = std::env::args().nth(1) else {
        for (name, _) in CALLS {
            println!("{name}");
        }
        return;
    };
    let (_, call) = CALLS
        .into_iter()
        .find(|call| call.0 == name)
        .expect("the name of a call");
    let cache: Numbers = Cache::builder()
        .max_capacity(100)
        .removal_listener(|_: &u64, _: &u64, _: RemovalCause| ())
        .scheduler(wheelhouse::Scheduler::disabled())
        .delivery(wheelhouse::Delivery::Caller)
        .build();
    cache.insert(1, 1);
    let called = cache.clone();
    // The only other thread of the process.
    thread::spawn(move || call(&called))
        .join()
        .expect("the call returns");
}
