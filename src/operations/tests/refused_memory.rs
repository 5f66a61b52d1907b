//! Memory at an address that does not fit the tags of the map: the call panics, and the cache is as
//! it was before the call.

use crate::node::REFUSES;
use crate::{Cache, ManualTicker};
use std::hash::{BuildHasherDefault, Hasher};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::time::Duration;

/// All keys have one hash, so they are in one shard.
#[derive(Default)]
struct OneHash;

impl Hasher for OneHash {
    fn write(&mut self, _: &[u8]) {}

    fn finish(&self) -> u64 {
        7
    }
}

/// Makes calls until one panics; returns how many succeeded, and checks the cache.
fn refused(cache: &Cache<u64, u64>, call: impl Fn(u64)) -> u64 {
    for made in 0..100_000 {
        let before = cache.entry_count();
        REFUSES.set(true);
        let outcome = catch_unwind(AssertUnwindSafe(|| call(made)));
        REFUSES.set(false);
        if let Err(message) = outcome {
            let message = message.downcast_ref::<String>().expect("a message");
            assert!(message.contains("bits 48 to"), "{message}");
            assert_eq!(cache.entry_count(), before, "the write became visible");
            cache.engine().check_invariants();
            return made;
        }
    }
    panic!("nothing was refused");
}

#[test]
fn an_insert_whose_memory_is_refused_changes_nothing() {
    let cache: Cache<u64, u64> = Cache::builder().ticker(ManualTicker::new()).build();
    let mut first = 0;
    // Each time another allocation fails: room for nodes, or a table that has to grow.
    for _ in 0..20 {
        let made = refused(&cache, |n| cache.insert(first + n, n));
        assert_eq!(cache.get(&(first + made)), None);
        (0..made).for_each(|n| assert_eq!(cache.get(&(first + n)), Some(n)));
        // The same call works as soon as the memory fits.
        cache.insert(first + made, made);
        assert_eq!(cache.get(&(first + made)), Some(made));
        first += made + 1;
    }
    assert_eq!(cache.entry_count(), first);
}

#[test]
fn a_removal_does_without_the_memory_to_shrink() {
    let cache: Cache<u64, u64> = Cache::builder().ticker(ManualTicker::new()).build();
    (0..20_000).for_each(|key| cache.insert(key, key));
    cache.run_pending_tasks();
    REFUSES.set(true);
    (0..19_990).for_each(|key| cache.invalidate(&key));
    REFUSES.set(false);
    assert!((19_990..20_000).all(|key| cache.get(&key) == Some(key)));
    assert_eq!(cache.engine().map.units_left(), 0, "a table had memory");
    // The next removals of each shard try again.
    (19_990..20_000).for_each(|key| cache.invalidate(&key));
    assert!(cache.engine().map.units_left() > 0, "no table shrinks");
    cache.run_pending_tasks();
    assert_eq!(cache.entry_count(), 0);
    cache.engine().check_invariants();
}

#[test]
fn a_refused_replacement_keeps_the_old_value_where_reads_extend() {
    const KEYS: u64 = 2_000;
    let (hour, clock) = (Duration::from_secs(3_600), ManualTicker::new());
    let builder = Cache::builder().ticker(clock.clone()).time_to_idle(hour);
    let cache: Cache<u64, u64> = builder.record_stats().build();
    (0..KEYS).for_each(|key| cache.insert(key, 0));
    // Nothing is freed while this is held: replacements need more and more memory.
    let _held = cache.peek_ref(&0);
    let mut refusals = 0;
    for key in 0..KEYS {
        let updates = cache.stats().updates();
        REFUSES.set(true);
        let outcome = catch_unwind(AssertUnwindSafe(|| cache.insert(key, 1)));
        REFUSES.set(false);
        refusals += u64::from(outcome.is_err());
        assert_eq!(cache.get(&key), Some(u64::from(outcome.is_ok())));
        let counted = cache.stats().updates() - updates;
        assert_eq!(
            counted,
            u64::from(outcome.is_ok()),
            "what is counted was made"
        );
    }
    assert!(refusals > 0, "nothing was refused");
    // A value that a refused call left in place lives on, and is extended.
    clock.advance(hour / 2);
    assert!((0..KEYS).all(|key| cache.get(&key).is_some()));
    clock.advance(hour * 3 / 4);
    assert!((0..KEYS).all(|key| cache.get(&key).is_some()));
}

/// A value whose drop, while it is `armed`, waits for a write of another thread to the same shard.
struct Dropped(Arc<Wait>);

struct Wait {
    armed: AtomicBool,
    in_time: AtomicBool,
    write: mpsc::SyncSender<()>,
    written: Mutex<mpsc::Receiver<()>>,
}

impl Drop for Dropped {
    fn drop(&mut self) {
        if self.0.armed.swap(false, Ordering::SeqCst) {
            self.0.write.send(()).expect("the writer is there");
            let written = self.0.written.lock().unwrap();
            let wait = Duration::from_secs(10);
            let in_time = written.recv_timeout(wait).is_ok();
            self.0.in_time.store(in_time, Ordering::SeqCst);
        }
    }
}

#[test]
fn a_refused_value_is_dropped_with_no_lock_held() {
    let cache: Cache<u64, Dropped, _> = Cache::builder()
        .ticker(ManualTicker::new())
        .hasher(BuildHasherDefault::<OneHash>::default())
        .build();
    let ((write, writes), (tell, written)) = (mpsc::sync_channel(1), mpsc::channel());
    let wait = Arc::new(Wait {
        armed: AtomicBool::new(false),
        in_time: AtomicBool::new(false),
        write,
        written: Mutex::new(written),
    });
    cache.insert(0, Dropped(Arc::clone(&wait)));
    let other = cache.clone();
    let writer = std::thread::spawn(move || {
        if writes.recv().is_ok() {
            other.set_expiry(&0, None);
            tell.send(()).ok();
        }
    });
    wait.armed.store(true, Ordering::SeqCst);
    let refused = (1..10_000).any(|key| {
        REFUSES.set(true);
        let insert = || cache.insert(key, Dropped(Arc::clone(&wait)));
        let outcome = catch_unwind(AssertUnwindSafe(insert));
        REFUSES.set(false);
        outcome.is_err()
    });
    assert!(refused && !wait.armed.load(Ordering::SeqCst));
    let in_time = wait.in_time.load(Ordering::SeqCst);
    assert!(in_time, "the value is dropped under the shard's lock");
    writer.join().expect("no panic");
}
