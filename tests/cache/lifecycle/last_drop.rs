//! The drop of the last handle: it returns when every earlier removal was delivered and every key
//! and value was dropped, even while a thread of the crate works on the cache. Inside a listener,
//! and on such a thread, it returns at once.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::{self, Sender};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use crate::support::acting::Acting;
use crate::support::census::{Census, Counted};
use crate::support::record::Record;
use crate::support::{Gate, HOUR, millis, must_end, secs, until};
use wheelhouse::{
    Alarm, Cache, Expiry, Leased, MaintenanceTask, ManualTicker, RemovalCause, Scheduler, loader_fn,
};

/// Longer than any action here takes, even on a loaded machine.
const SOON: Duration = secs(20);

type Slot<T> = Arc<Mutex<Option<T>>>;

/// A scheduler that keeps its last task.
#[derive(Clone, Default)]
struct Latest(Slot<MaintenanceTask>);

impl Alarm for Latest {
    fn set(&self, _: Duration, task: MaintenanceTask) {
        *self.0.lock().unwrap() = Some(task);
    }
}

impl Latest {
    fn task(&self) -> MaintenanceTask {
        self.0.lock().unwrap().take().expect("the alarm was set")
    }
}

/// A listener that reports each call, then waits for the gate.
fn slow(
    entered: Sender<u32>,
    gate: &Arc<Gate>,
) -> impl Fn(&u32, &Counted<u32>, RemovalCause) + use<> {
    let gate = Arc::clone(gate);
    move |&key, _, _| {
        entered.send(key).ok();
        gate.wait();
    }
}

#[test]
fn the_last_drop_waits_for_a_running_listener_and_all_pending_notifications() {
    for round in 0..5 {
        let (census, gate) = (Census::default(), Gate::new());
        let told = Arc::new(AtomicU32::new(0));
        let (entered, enters) = mpsc::channel();
        let (count, held) = (Arc::clone(&told), Arc::clone(&gate));
        let cache = Cache::builder()
            .removal_listener(move |_: &u32, _: &Counted<u32>, _| {
                if count.fetch_add(1, Ordering::SeqCst) == 17 {
                    entered.send(()).ok();
                    held.wait();
                }
            })
            .build();
        for key in 0..200 {
            cache.insert(key, census.counted(key));
        }
        (0..100).for_each(|key| cache.invalidate(&key));
        enters
            .recv_timeout(SOON)
            .expect("delivered by the notifier thread");
        let opener = std::thread::spawn(move || {
            std::thread::sleep(millis(20));
            gate.open();
        });
        drop(cache);
        assert_eq!(
            told.load(Ordering::SeqCst),
            100,
            "deliveries in round {round}"
        );
        assert_eq!(census.alive(), 0, "values alive, in round {round}");
        opener.join().unwrap();
    }
}

/// The program may wait for that token further up the stack, as a `block_on` does.
#[test]
fn the_last_drop_leaves_the_token_of_park_alone() {
    let me = std::thread::current();
    let cache = Cache::builder()
        .scheduler(Scheduler::disabled())
        .removal_listener(move |_: &u32, _: &u32, _| {
            // The drop waits by then, and if the token woke it, it waits again.
            std::thread::sleep(millis(50));
            me.unpark();
            std::thread::sleep(millis(50));
        })
        .build();
    cache.insert(1, 1);
    cache.invalidate(&1);
    drop(cache);
    let began = Instant::now();
    std::thread::park_timeout(SOON);
    assert!(began.elapsed() < SOON, "the token has gone");
}

/// A value that drops what it holds.
fn holding<T: Send + Sync + 'static>(held: T) -> Acting {
    Acting::when_dropped(0, move || drop(held))
}

#[test]
fn the_last_drop_waits_for_a_run_of_the_scheduler_thread() {
    for listens in [false, true] {
        let (census, gate) = (Census::default(), Gate::new());
        let (entered, enters) = mpsc::channel();
        let told = Arc::new(AtomicU32::new(0));
        let mut builder = Cache::builder().expiry_resolution(millis(1));
        if listens {
            let count = Arc::clone(&told);
            builder = builder.removal_listener(move |_: &u32, _: &Acting, _| {
                std::thread::sleep(millis(1));
                count.fetch_add(1, Ordering::SeqCst);
            });
        }
        let cache = builder.build();
        for key in 0..200 {
            cache.insert(key, holding(census.counted(key)));
        }
        // Its destructor reports that it runs, and then waits.
        let (held, counted) = (Arc::clone(&gate), census.counted(0));
        let slow = move || {
            entered.send(()).ok();
            held.wait();
            drop(counted);
        };
        cache.insert_with_ttl(1_000, Acting::when_dropped(0, slow), millis(1));
        enters.recv_timeout(SOON).expect("dropped by the scheduler");
        (0..50).for_each(|key| cache.invalidate(&key));
        let opener = std::thread::spawn(move || {
            std::thread::sleep(millis(20));
            gate.open();
        });
        drop(cache);
        assert_eq!(told.load(Ordering::SeqCst), u32::from(listens) * 51);
        assert_eq!(census.alive(), 0);
        opener.join().unwrap();
    }
}

#[test]
fn the_last_drop_waits_for_a_task_that_an_event_loop_runs() {
    let (census, gate, alarm) = (Census::default(), Gate::new(), Latest::default());
    let (entered, enters) = mpsc::channel();
    let cache = Cache::builder()
        .scheduler(Scheduler::custom(alarm.clone()))
        .removal_listener(slow(entered, &gate))
        .build();
    (0..50).for_each(|key| cache.insert(key, census.counted(key)));
    (0..10).for_each(|key| cache.invalidate(&key));
    let task = alarm.task();
    let again = task.clone();
    let event_loop = std::thread::spawn(move || task.run());
    enters
        .recv_timeout(SOON)
        .expect("delivered by the event loop");
    let dropping = std::thread::spawn({
        let census = census.clone();
        move || {
            drop(cache);
            census.alive()
        }
    });
    std::thread::sleep(millis(20));
    assert!(!dropping.is_finished(), "a listener runs");
    assert_eq!(
        again.run(),
        None,
        "the last handle was dropped: nothing to run"
    );
    gate.open();
    assert_eq!(dropping.join().unwrap(), 0);
    assert_eq!(event_loop.join().unwrap(), None);
    assert_eq!(enters.try_iter().count(), 9, "each removal is delivered");
}

/// Tasks may be kept for longer than the cache: by an alarm, say.
#[test]
fn the_last_drop_drops_what_the_listener_has_captured_though_tasks_are_kept() {
    must_end(|| {
        let alarm = Latest::default();
        let captured = Arc::new(());
        let outlives = Arc::downgrade(&captured);
        let heard = Record::new();
        let record = heard.clone();
        let cache: Cache<u32, u32> = Cache::builder()
            .scheduler(Scheduler::custom(alarm.clone()))
            .removal_listener(move |key: &u32, value: &u32, cause| {
                let _captured = &captured;
                record.note(key, value, cause);
            })
            .build();
        cache.insert(1, 1);
        cache.invalidate(&1);
        let maintenance = alarm.task();
        maintenance.run();
        drop(cache);
        assert_eq!(heard.take(), [(1, 1, RemovalCause::Explicit)]);
        assert!(outlives.upgrade().is_none(), "the listener is kept");
        assert_eq!(maintenance.run(), None);
    });
}

#[test]
fn handles_that_are_not_the_last_do_not_wait() {
    let (census, gate) = (Census::default(), Gate::new());
    let (entered, enters) = mpsc::channel();
    let cache = Cache::builder()
        .removal_listener(slow(entered, &gate))
        .build();
    cache.insert(1, census.counted(1));
    cache.invalidate(&1);
    enters
        .recv_timeout(SOON)
        .expect("delivered by the notifier thread");
    let began = Instant::now();
    for _ in 0..1_000 {
        drop(cache.clone());
    }
    assert!(began.elapsed() < secs(10));
    gate.open();
    drop(cache);
    assert_eq!(census.alive(), 0);
}

#[test]
fn the_last_drop_inside_the_listener_returns_and_that_thread_does_the_rest() {
    let (census, heard) = (Census::default(), Record::new());
    let slot: Slot<Cache<u32, Counted<u32>>> = Arc::default();
    let (last, record) = (Arc::clone(&slot), heard.clone());
    let cache = Cache::builder()
        .removal_listener(move |key: &u32, value: &Counted<u32>, cause| {
            let last = last.lock().unwrap().take();
            drop(last);
            record.note(key, &value.payload, cause);
        })
        .build();
    (0..100).for_each(|key| cache.insert(key, census.counted(key)));
    let mut held = slot.lock().unwrap();
    (0..50).for_each(|key| cache.invalidate(&key));
    *held = Some(cache);
    drop(held);
    until("values outlived the cache", || census.alive() == 0);
    assert_eq!(heard.take().len(), 50);
}

#[test]
fn the_last_handle_may_live_in_a_value_that_the_thread_drops() {
    let census = Census::default();
    let cache: Cache<u32, Acting> = Cache::builder().expiry_resolution(millis(1)).build();
    for key in 0..100 {
        cache.insert(key, holding(census.counted(key)));
    }
    let own = holding((cache.clone(), census.counted(0)));
    cache.insert_with_ttl(1_000, own, millis(5));
    drop(cache);
    until("values outlived the cache", || census.alive() == 0);
}

/// The drop returns at once, since the thread is at work on the cache, and the crew does the rest.
#[test]
fn a_run_in_which_the_last_handle_is_dropped_leaves_the_rest_to_the_crew() {
    let (census, heard, alarm) = (Census::default(), Record::new(), Latest::default());
    let slot: Slot<Cache<u32, Acting>> = Arc::default();
    let (last, record) = (Arc::clone(&slot), heard.clone());
    let cache = Cache::builder()
        .scheduler(Scheduler::custom(alarm.clone()))
        .removal_listener(move |key: &u32, _: &Acting, cause| record.note(key, &(), cause))
        .build();
    (0..10).for_each(|key| cache.insert(key, holding(census.counted(key))));
    let act = move || {
        let Some(cache) = last.lock().unwrap().take() else {
            return;
        };
        // Heard of all the same.
        cache.invalidate(&1);
        drop(cache);
    };
    cache.insert(20, Acting::when_dropped(20, act));
    cache.invalidate(&20);
    let task = alarm.task();
    *slot.lock().unwrap() = Some(cache);
    // Readers may delay the freeing.
    until("the value is not freed", || {
        task.run();
        slot.lock().unwrap().is_none()
    });
    until("values outlived the cache", || census.alive() == 0);
    assert_eq!(heard.take().len(), 2);
}

/// Each listener holds the last handle of the other cache.
#[test]
fn two_listeners_may_drop_the_last_handles_of_each_others_caches() {
    type Held = Slot<Cache<u32, Counted<u32>>>;
    for _ in 0..20 {
        let census = Census::default();
        let meet = Arc::new(std::sync::Barrier::new(2));
        let slots: [Held; 2] = Default::default();
        let told: Arc<AtomicU32> = Arc::default();
        let caches = [0, 1].map(|own: usize| {
            let (other, meet) = (Arc::clone(&slots[1 - own]), Arc::clone(&meet));
            let told = Arc::clone(&told);
            Cache::builder()
                .removal_listener(move |&key: &u32, _: &Counted<u32>, _| {
                    if key == 0 {
                        // Both listeners run when both last handles are dropped.
                        meet.wait();
                        let last = other.lock().unwrap().take();
                        drop(last);
                    }
                    told.fetch_add(1, Ordering::SeqCst);
                })
                .build()
        });
        let mut held = slots.each_ref().map(|slot| slot.lock().unwrap());
        for (cache, held) in caches.into_iter().zip(&mut held) {
            (0..40).for_each(|key| cache.insert(key, census.counted(key)));
            (0..20).for_each(|key| cache.invalidate(&key));
            **held = Some(cache);
        }
        drop(held);
        until("they wait for each other", || {
            told.load(Ordering::SeqCst) == 40 && census.alive() == 0
        });
    }
}

/// Drops the last handle of another cache, and notes whether that cache's listener has ended by
/// then.
struct Drops {
    other: Slot<Cache<u32, u32>>,
    drops: Arc<AtomicU32>,
    told: Arc<AtomicU32>,
    waited: Arc<AtomicU32>,
}

impl Expiry<u32, u32> for Drops {
    fn expire_after_create(&self, _: &u32, _: &u32, _: Instant) -> Option<Duration> {
        let other = self.other.lock().unwrap().take();
        self.drops.store(1, Ordering::SeqCst);
        drop(other);
        let told = self.told.load(Ordering::SeqCst);
        self.waited.store(told, Ordering::SeqCst);
        None
    }
}

#[test]
fn a_last_drop_by_the_policy_of_a_loading_cache_waits() {
    must_end(|| {
        let [drops, told, waited]: [Arc<AtomicU32>; 3] = Default::default();
        let (dropping, tell) = (Arc::clone(&drops), Arc::clone(&told));
        let other = Cache::builder()
            .removal_listener(move |_: &u32, _: &u32, _| {
                while dropping.load(Ordering::SeqCst) == 0 {
                    std::thread::yield_now();
                }
                // Enough for a drop that does not wait to return.
                (0..1_000).for_each(|_| std::thread::yield_now());
                tell.store(1, Ordering::SeqCst);
            })
            .build();
        other.insert(1, 1);
        other.invalidate(&1);
        let policy = Drops {
            other: Slot::new(Mutex::new(Some(other))),
            drops,
            told,
            waited: Arc::clone(&waited),
        };
        let users = Cache::builder()
            .expire_after(policy)
            .loading(loader_fn(|key: &u32| Ok::<_, ()>(*key)))
            .build();
        assert_eq!(users.get(&1), Ok(1));
        assert_eq!(waited.load(Ordering::SeqCst), 1);
    });
}

/// The thread that drops the last handle holds a lease, and a thread at work on the cache needs the
/// leased key.
#[test]
fn a_last_drop_by_the_holder_of_a_lease_that_a_filler_needs_ends() {
    let (done, ended) = mpsc::channel();
    let census = Census::default();
    let counted = census.clone();
    std::thread::spawn(move || {
        let census = counted;
        let needed: Cache<u32, u32> = Cache::new(10);
        let needs = needed.clone();
        let (entered, enters) = mpsc::channel();
        let cache: Cache<u32, Counted<u32>> = Cache::builder()
            .max_capacity(100)
            .weigher(move |&key: &u32, _: &Counted<u32>| {
                if key == 2 {
                    entered.send(()).ok();
                    assert_eq!(needs.get_with(7, || 0), 70);
                }
                1
            })
            .build();
        cache.insert(1, census.counted(1));
        let Leased::Lease(filled) = cache.lease(2) else {
            panic!("absent");
        };
        let Leased::Lease(held) = needed.lease(7) else {
            panic!("absent");
        };
        let value = census.counted(2);
        let filler = std::thread::spawn(move || drop(filled.fill(value)));
        enters.recv_timeout(SOON).expect("the weigher runs");
        let began = Instant::now();
        drop(cache);
        done.send(began.elapsed()).ok();
        _ = held.fill(70);
        filler.join().expect("the filler has the value");
    });
    let took = ended.recv_timeout(SOON).expect("both wait");
    println!("the drop has waited {took:?}");
    until("values outlived the cache", || census.alive() == 0);
}

/// The same with threads of event loops, which run the listeners themselves.
#[test]
fn two_tasks_may_drop_the_last_handles_of_each_others_caches() {
    must_end(|| {
        let meet = Arc::new(std::sync::Barrier::new(2));
        let slots: [Slot<Cache<u32, u32>>; 2] = Default::default();
        let told: Arc<AtomicU32> = Arc::default();
        let tasks = [0, 1].map(|own: usize| {
            let (other, meet) = (Arc::clone(&slots[1 - own]), Arc::clone(&meet));
            let (told, alarm) = (Arc::clone(&told), Latest::default());
            let cache = Cache::builder()
                .scheduler(Scheduler::custom(alarm.clone()))
                .removal_listener(move |_: &u32, _: &u32, _| {
                    meet.wait();
                    let last = other.lock().unwrap().take();
                    drop(last);
                    told.fetch_add(1, Ordering::SeqCst);
                })
                .build();
            cache.insert(0, 0);
            cache.invalidate(&0);
            *slots[own].lock().unwrap() = Some(cache);
            alarm.task()
        });
        std::thread::scope(|threads| {
            for task in tasks {
                threads.spawn(move || task.run());
            }
        });
        // A cache that ends meanwhile tells the rest on a thread of its own.
        while told.load(Ordering::SeqCst) < 2 {
            std::thread::yield_now();
        }
    });
}

/// The drop of a cache runs a listener, which drops another cache's last handle.
#[test]
fn a_drop_may_end_one_cache_after_the_other() {
    must_end(|| {
        let (census, heard) = (Census::default(), Record::new());
        let mut next: Option<Cache<u32, Counted<u32>>> = None;
        for number in 0..20 {
            let inner = Mutex::new(next.take());
            let record = heard.clone();
            let cache = Cache::builder()
                .ticker(ManualTicker::new())
                .removal_listener(move |key: &u32, value: &Counted<u32>, cause| {
                    drop(inner.lock().unwrap().take());
                    record.note(key, &value.payload, cause);
                })
                .build();
            cache.insert(number, census.counted(number));
            cache.invalidate(&number);
            next = Some(cache);
        }
        drop(next);
        // A drop inside a listener returns at once.
        until("values outlived the caches", || census.alive() == 0);
        assert_eq!(heard.take().len(), 20);
    });
}

/// The scheduler thread drops a value that holds the last handle of a cache with a slow listener.
#[test]
fn a_cache_dropped_on_the_scheduler_thread_does_not_delay_others_by_its_listener() {
    let gate = Gate::new();
    let (entered, enters) = mpsc::channel();
    let held = Arc::clone(&gate);
    let slow = Cache::builder()
        // Its own notifications wait until the last handle is dropped.
        .scheduler(Scheduler::disabled())
        .removal_listener(move |&key: &u32, _: &u32, _| {
            entered.send(key).ok();
            held.wait();
        })
        .build();
    slow.insert(1, 1);
    slow.invalidate(&1);
    let holder: Cache<u32, Acting> = Cache::builder().expiry_resolution(millis(1)).build();
    holder.insert_with_ttl(1, holding(slow), millis(5));
    enters
        .recv_timeout(SOON)
        .expect("delivered by its last drop");
    let (heard, hears) = mpsc::channel();
    let quick = Cache::builder()
        .expiry_resolution(millis(1))
        .removal_listener(move |&key: &u32, _: &u32, _| _ = heard.send(key))
        .build();
    quick.insert_with_ttl(2, 2, millis(5));
    let told = hears.recv_timeout(secs(10));
    gate.open();
    assert_eq!(told, Ok(2), "held up by the listener of another cache");
}

#[test]
fn many_threads_race_for_the_last_drop() {
    let census = Census::default();
    for round in 0..200u32 {
        let told = Arc::new(AtomicU32::new(0));
        let count = Arc::clone(&told);
        let cache = Cache::builder()
            .expiry_resolution(millis(1))
            .removal_listener(move |_: &u32, _: &Counted<u32>, _| {
                count.fetch_add(1, Ordering::SeqCst);
            })
            .build();
        for key in 0..50 {
            cache.insert_with_ttl(key, census.counted(key), HOUR);
        }
        (0..25).for_each(|key| cache.invalidate(&key));
        std::thread::scope(|threads| {
            for _ in 0..4 {
                let cache = cache.clone();
                threads.spawn(move || drop(cache));
            }
            drop(cache);
        });
        assert_eq!(told.load(Ordering::SeqCst), 25, "in round {round}");
        assert_eq!(census.alive(), 0, "in round {round}");
    }
}
