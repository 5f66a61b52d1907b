//! What listeners receive, and when.

use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use shuttle::thread;
use wheelhouse::RemovalCause::{self, Expired};
use wheelhouse::{Cache, ManualTicker};

use crate::support::Dice;
use crate::support::census::{Census, Counted};
use crate::{dice, explore, explore_fairly};

const THREADS: u64 = 3;
const STEPS: u64 = 6;
const SECOND: Duration = Duration::from_secs(1);

/// The notifications: key, number of the value, cause. The lock is never held where shuttle may
/// switch threads.
type Told = Arc<Mutex<Vec<(u64, u64, RemovalCause)>>>;

struct Scene {
    cache: Cache<u64, Counted<u64>>,
    time: ManualTicker,
    told: Told,
    census: Census,
    bounded: bool,
}

impl Scene {
    fn new(dice: &mut Dice) -> Scene {
        let (time, told) = (ManualTicker::new(), Told::default());
        let book = Arc::clone(&told);
        let listener = move |key: &u64, value: &Counted<u64>, cause| {
            book.lock().unwrap().push((*key, value.payload, cause));
        };
        let bounded = dice.below(2) == 0;
        // Two parts share the bound.
        let builder = Cache::builder()
            .parts(1 << dice.below(2))
            .ticker(time.clone())
            .removal_listener(listener);
        let builder = match dice.below(3) {
            0 => builder.time_to_live(SECOND * 3),
            1 => builder.time_to_idle(SECOND * 2),
            _ => builder,
        };
        let cache = if bounded {
            builder.max_capacity(2).build()
        } else {
            builder.build()
        };
        Scene {
            cache,
            time,
            told,
            census: Census::default(),
            bounded,
        }
    }

    /// What one thread does. It alone writes its own key, with growing numbers.
    fn act(&self, own: u64, mut dice: Dice) {
        for number in own * 100..own * 100 + STEPS {
            let any = dice.below(THREADS);
            match dice.below(12) {
                0..=2 => self.cache.insert(own, self.census.counted(number)),
                3 | 4 => {
                    let life = SECOND * dice.below(3) as u32;
                    let value = self.census.counted(number);
                    self.cache.insert_with_ttl(own, value, life);
                }
                5 => self.cache.invalidate(&any),
                6 => drop(self.cache.get(&any)),
                7 => drop(self.cache.set_expiry(&any, Some(SECOND))),
                8 => self.time.advance(SECOND),
                9 => self.cache.run_pending_tasks(),
                10 => drop(self.cache.get_ref(&any).map(|entry| entry.payload)),
                _ if self.bounded => self.cache.policy().set_max_capacity(1 + dice.below(3)),
                _ => drop(self.cache.contains_key(&any)),
            }
        }
    }

    fn check(self) {
        let Scene {
            cache,
            told,
            census,
            bounded,
            ..
        } = self;
        cache.run_pending_tasks();
        if bounded {
            let max = cache.policy().max_capacity().unwrap();
            assert!(cache.entry_count() <= max, "over the bound at rest");
        }
        let alive: Vec<(u64, u64)> = cache.iter().map(|e| (*e.key(), e.payload)).collect();
        for (key, number) in &alive {
            let gone = told.lock().unwrap().clone();
            assert!(
                !gone.iter().any(|(k, n, _)| (k, n) == (key, number)),
                "delivered, and still stored"
            );
        }
        cache.invalidate_all();
        for _ in 0..3 {
            cache.run_pending_tasks();
        }
        assert_eq!(cache.entry_count(), 0);
        assert_eq!(census.alive(), 0, "values left in memory");
        let told = told.lock().unwrap().clone();
        for key in 0..THREADS {
            let numbers: Vec<u64> = told
                .iter()
                .filter(|(k, ..)| *k == key)
                .map(|(_, number, _)| *number)
                .collect();
            // In the order in which they were inserted: each once, too.
            assert!(
                numbers.windows(2).all(|pair| pair[0] < pair[1]),
                "the values of key {key} were delivered as {numbers:?}"
            );
        }
    }
}

#[test]
fn each_pair_is_delivered_once_and_in_order() {
    explore(|| {
        let mut dice = dice();
        let scene = Arc::new(Scene::new(&mut dice));
        let threads: Vec<_> = (0..THREADS)
            .map(|own| {
                let (scene, dice) = (Arc::clone(&scene), Dice::new(dice.roll()));
                thread::spawn(move || scene.act(own, dice))
            })
            .collect();
        for thread in threads {
            thread.join().unwrap();
        }
        Arc::into_inner(scene).unwrap().check();
    });
}

/// Two callers each remove a key of theirs and run all pending tasks, while the listener is slow
/// and uses the cache itself.
#[test]
fn run_pending_tasks_returns_after_its_notifications() {
    explore_fairly(|| {
        let handle: Arc<OnceLock<Cache<u64, u64>>> = Arc::default();
        let (told, inside) = (Told::default(), Arc::clone(&handle));
        let book = Arc::clone(&told);
        let cache: Cache<u64, u64> = Cache::builder()
            .ticker(ManualTicker::new())
            .removal_listener(move |key: &u64, value: &u64, cause| {
                thread::yield_now();
                let cache = inside.get().unwrap();
                assert_ne!(
                    cache.get(key),
                    Some(*value),
                    "delivered before it was removed"
                );
                book.lock().unwrap().push((*key, *value, cause));
            })
            .build();
        handle.set(cache.clone()).unwrap();
        let callers: Vec<_> = [1, 2]
            .map(|key| {
                let (cache, told) = (cache.clone(), Arc::clone(&told));
                thread::spawn(move || {
                    cache.insert(key, 0);
                    cache.insert(key, 1);
                    cache.invalidate(&key);
                    cache.run_pending_tasks();
                    let told = told.lock().unwrap().clone();
                    let mine = told.iter().filter(|(k, ..)| *k == key).count();
                    assert_eq!(mine, 2, "of key {key}, when its call returned");
                })
            })
            .into();
        for caller in callers {
            caller.join().unwrap();
        }
        assert_eq!(told.lock().unwrap().len(), 4);
        // The listener holds the cache: it has to be released, or no memory of this schedule is
        // freed.
        drop(handle);
    });
}

/// A reader that was in time extends the entry; a removal by expiry happens once and has the cause
/// `Expired`.
#[test]
fn an_entry_expires_once_whichever_call_finds_it_expired() {
    explore(|| {
        let (time, told) = (ManualTicker::new(), Told::default());
        let book = Arc::clone(&told);
        let cache: Cache<u64, u64> = Cache::builder()
            .ticker(time.clone())
            .max_capacity(10)
            .removal_listener(move |key: &u64, value: &u64, cause| {
                book.lock().unwrap().push((*key, *value, cause));
            })
            .build();
        cache.insert_with_ttl(1, 10, SECOND);
        time.advance(SECOND);
        let (one, two, three) = (cache.clone(), cache.clone(), cache.clone());
        let threads = [
            thread::spawn(move || assert_ne!(one.remove(&1), Some(10))),
            thread::spawn(move || two.run_pending_tasks()),
            thread::spawn(move || assert_ne!(three.get(&1), Some(10))),
        ];
        cache.insert(1, 11);
        for thread in threads {
            thread
                .join()
                .unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        }
        cache.run_pending_tasks();
        let told = told.lock().unwrap().clone();
        let first: Vec<_> = told.iter().filter(|(_, value, _)| *value == 10).collect();
        assert_eq!(first, [&(1, 10, Expired)], "of {told:?}");
    });
}
