//! Any combination of settings gives either a cache that works, or an error that names the setting.
//!
//! A cache works, whatever its settings, if: a look-up returns the value written last or none, and
//! none only if something could have ended the entry; each value leaves once, and is delivered once
//! if there is a listener; counts and weights agree with the content and with the bound; the alarm
//! is set as long as there is something to wait for; no value stays in memory. Programs may insert
//! thousands of entries with very different weights, and the ticker may panic.

mod chosen;

use crate::hostile::Hostile;
use chosen::{Bell, Clock, EXPECTED, Settings, Who, allow_expected_panics, length, settle, weight};
use std::collections::{BTreeMap, BTreeSet};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::Ordering::SeqCst;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use wheelhouse::{Cache, ManualTicker, RemovalCause};

/// A number that no other value has, and a token that is counted as long as the value is in memory.
#[derive(Clone)]
struct Item(u32, #[allow(dead_code)] Arc<()>);

type Stock = Cache<u16, Item, Hostile>;
type Heard = Arc<Mutex<Vec<(u16, u32, RemovalCause)>>>;

/// The most values that a program makes.
const MOST: u32 = 20_000;
/// How long to wait for a thread that must act within milliseconds.
const SOON: Duration = Duration::from_secs(20);

struct Script<'a>(&'a [u8]);

impl Script<'_> {
    fn next(&mut self) -> Option<u8> {
        let (&first, rest) = self.0.split_first()?;
        self.0 = rest;
        Some(first)
    }

    fn any(&mut self) -> u8 {
        self.next().unwrap_or(0)
    }
}

struct Bench {
    settings: Settings,
    cache: Stock,
    clock: Clock,
    heard: Heard,
    bell: Bell,
    counted: Arc<()>,
    /// The number of each key's last value, and whether the cache must still hold it.
    last: BTreeMap<u16, (u32, bool)>,
    told: BTreeSet<u32>,
    made: u32,
    looked: u64,
    waited: bool,
}

/// Runs a program; every string of bytes is one. The first bytes are the settings.
pub fn run(data: &[u8]) {
    allow_expected_panics();
    let mut script = Script(data);
    let clock = Clock {
        time: ManualTicker::starting_at(u64::from(script.any()) << 56),
        fuse: Arc::default(),
    };
    let (heard, bell) = (Heard::default(), Bell::default());
    let (settings, builder) = settle(&mut script, &clock, &heard, &bell);
    assert!(format!("{builder:?}").starts_with("CacheBuilder"));
    let refused = settings.refused();
    let cache = match builder.try_build() {
        Ok(cache) => {
            assert!(refused.is_empty(), "{refused:?} should be refused");
            cache
        }
        Err(error) => {
            let message = error.to_string();
            let prefix = settings
                .name
                .map_or_else(String::new, |name| format!("cache {name:?}: "));
            let reason = message.strip_prefix(&prefix).unwrap_or(&message);
            let named = |name: &&str| reason.starts_with(&format!("{name} is "));
            assert!(refused.iter().any(named), "{message:?}, not {refused:?}");
            return;
        }
    };
    assert_eq!(cache.policy().max_capacity(), settings.max);
    assert_eq!(cache.name(), settings.name);
    let counted = Arc::new(());
    let mut bench = Bench {
        settings,
        cache,
        clock,
        heard,
        bell,
        counted: Arc::clone(&counted),
        last: BTreeMap::new(),
        told: BTreeSet::new(),
        made: 0,
        looked: 0,
        waited: false,
    };
    bench.clock.fuse.store(bench.settings.fuse, SeqCst);
    while let Some(operation) = script.next() {
        let mut rest = Script(script.0);
        let outcome = catch_unwind(AssertUnwindSafe(|| bench.step(operation, &mut rest)));
        script = Script(rest.0);
        if outcome.is_err() {
            assert!(
                EXPECTED.replace(false),
                "an expected panic gets no further than here"
            );
            // It is unknown which of the values being inserted were stored.
            bench.last.clear();
            bench.clock.fuse.store(bench.settings.fuse, SeqCst);
        }
    }
    bench.finish();
    // Threads release the cache a little later than its last owner.
    let begun = Instant::now();
    while Arc::strong_count(&counted) > 1 {
        assert!(begun.elapsed() < SOON, "values that were never dropped");
        std::thread::yield_now();
    }
}

impl Bench {
    fn step(&mut self, operation: u8, script: &mut Script<'_>) {
        let key = u16::from(script.any());
        let kind = operation >> 4;
        match operation % 16 {
            0 | 1 => self.insert(key, kind, None),
            2 => self.insert(key, kind, Some(length(script.any()))),
            3 => {
                // If all hashes collide, a crowd of entries is one chain.
                let most = if self.settings.hashing % 6 == 5 {
                    16
                } else {
                    1
                };
                for number in 0..u16::from(script.any()) * most {
                    self.insert(key * 16 + number, kind, None);
                }
            }
            4 => (0..u16::from(script.any())).for_each(|number| self.look(key * 16 + number)),
            5 => self.look(key),
            6 => {
                self.last.remove(&key);
                self.cache.invalidate(&key);
            }
            7 => {
                let life = script.any();
                if let Some(last) = self.last.get_mut(&key) {
                    last.1 = false;
                }
                self.cache
                    .set_expiry(&key, (life > 20).then(|| length(life)));
            }
            8 | 9 => self.clock.time.advance(length(key as u8 & 0x7F)),
            10 => self.cache.run_pending_tasks(),
            11 => self.ring(),
            12 => self.move_bound(key),
            13 if kind == 0 => {
                self.last.clear();
                self.cache.invalidate_all();
            }
            13 => self.look_on(),
            14 => {
                let held = self.cache.peek_ref(&key).map(|entry| entry.0);
                self.compare(key, held);
                self.cache.retain(|key, _| key % 16 != u16::from(kind));
                self.last.retain(|key, _| key % 16 != u16::from(kind));
            }
            _ => self.wait(key),
        }
    }

    fn insert(&mut self, key: u16, kind: u8, life: Option<Duration>) {
        if self.made == MOST {
            return;
        }
        self.made += 1;
        let item = Item(
            self.made | u32::from(kind % 4) << 16,
            Arc::clone(&self.counted),
        );
        // Set before the call: if the call panics, the outcome is unknown.
        let sure = life.is_none() && !self.settings.lives_end;
        self.last.insert(key, (item.0, sure));
        match life {
            Some(life) => self.cache.insert_with_ttl(key, item, life),
            None => self.cache.insert(key, item),
        }
    }

    fn look(&mut self, key: u16) {
        self.looked += 1;
        let found = self.cache.get(&key).map(|item| item.0);
        self.compare(key, found);
    }

    fn compare(&self, key: u16, found: Option<u32>) {
        match (found, self.last.get(&key)) {
            (Some(found), Some(&(last, _))) => assert_eq!(found, last, "key {key}"),
            (None, Some(&(last, sure))) => assert!(!sure, "{last} of key {key} is gone"),
            // A call that panicked has left the content unknown.
            (found, None) => assert!(found.is_none() || self.settings.fuse > 0),
        }
    }

    /// What the program's event loop does when its timer fires, or earlier.
    fn ring(&mut self) {
        let task = self.bell.0.lock().unwrap().clone();
        if let Some((_, task)) = task {
            let next = task.run();
            assert!(self.settings.who == Who::Bell);
            if next.is_some() {
                let (after, _) = self
                    .bell
                    .0
                    .lock()
                    .unwrap()
                    .clone()
                    .expect("it is set again");
                assert_eq!(Some(after), next);
            }
        }
    }

    fn move_bound(&mut self, to: u16) {
        if self.settings.max.is_some() {
            let to = [0, 3, 50, 700, 4_000, u64::MAX][usize::from(to % 6)];
            self.cache.policy().set_max_capacity(to);
            self.settings.max = Some(to);
        }
    }

    /// Reads that change nothing.
    fn look_on(&mut self) {
        let wheel = self.cache.policy().wheel();
        let hung: usize = wheel.iter().flat_map(|level| &level.2).sum();
        assert!(hung as u64 <= u64::from(self.made));
        assert!(format!("{:?} {:?}", self.cache, self.cache.policy()).contains("Policy"));
        let stats = self.cache.stats();
        let looked = if self.settings.counts { self.looked } else { 0 };
        if self.settings.fuse == 0 {
            assert_eq!(stats.hits() + stats.misses(), looked);
        }
        assert_eq!(stats.listener_panics(), 0);
        let wait = self.cache.next_maintenance_in();
        assert!(wait.is_none_or(|wait| wait < Duration::MAX));
    }

    /// With a thread, a removal is delivered even if the cache is not used. Done once in a program,
    /// because it may take milliseconds.
    fn wait(&mut self, key: u16) {
        let threads = matches!(self.settings.who, Who::Thread | Who::Shared);
        if !threads || !self.settings.listens || std::mem::replace(&mut self.waited, true) {
            return;
        }
        let other = self.settings.scheduler.clone().map(|shared| {
            let other: Cache<u16, u16> = Cache::builder().scheduler(shared).build();
            other
        });
        self.insert(key, 3, None);
        let number = self.made | 3 << 16;
        self.last.remove(&key);
        self.cache.invalidate(&key);
        let begun = Instant::now();
        let told = || {
            self.heard
                .lock()
                .unwrap()
                .iter()
                .any(|told| told.1 == number)
        };
        while !told() {
            assert!(begun.elapsed() < SOON, "no removal was delivered");
            std::thread::yield_now();
        }
        drop(other);
    }

    fn finish(mut self) {
        // From here on the clock does not panic.
        self.clock.fuse.store(0, SeqCst);
        for key in 0..300 {
            self.look(key);
        }
        for _ in 0..3 {
            self.cache.run_pending_tasks();
        }
        self.cache.check_invariants();
        let (mut here, mut weight) = (BTreeSet::new(), 0);
        for entry in &self.cache {
            assert!(here.insert(entry.0), "a value is shown twice");
            weight += if self.settings.weighs {
                self::weight(&entry)
            } else {
                1
            } as u64;
        }
        let count = self.cache.entry_count();
        if !self.settings.lives_end {
            assert_eq!(here.len() as u64, count);
        }
        assert!(self.settings.max.is_none_or(|max| weight <= max));
        assert!(
            self.settings
                .max
                .is_none_or(|max| self.cache.weighted_size() <= max)
        );
        let threads = matches!(self.settings.who, Who::Thread | Who::Shared);
        if self.settings.listens && !threads {
            for &(_, number, _) in &*self.heard.lock().unwrap() {
                assert!(self.told.insert(number), "told twice");
                assert!(!here.contains(&number), "delivered, and still stored");
            }
            if self.settings.fuse == 0 && !self.settings.lives_end {
                assert_eq!((self.told.len() + here.len()) as u32, self.made);
            }
        }
    }
}
