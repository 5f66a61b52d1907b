//! Keys, values, a hasher, a policy, a weigher and a listener of which any call can be made to
//! misbehave: the n-th of one kind panics, or calls the cache.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::hash::{BuildHasher, DefaultHasher, Hash, Hasher};
use std::time::{Duration, Instant};

use wheelhouse::expiry::writes_only;
use wheelhouse::{Cache, Expiry, ManualTicker, RemovalCause};

use super::secs;

/// The callbacks of a cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Create,
    Update,
    Read,
    Weigh,
    BuildHasher,
    Hash,
    Eq,
    Clone,
    Retain,
    Keys,
    Listener,
    DropKey,
    DropValue,
}

pub const KINDS: [Kind; 13] = [
    Kind::Create,
    Kind::Update,
    Kind::Read,
    Kind::Weigh,
    Kind::BuildHasher,
    Kind::Hash,
    Kind::Eq,
    Kind::Clone,
    Kind::Retain,
    Kind::Keys,
    Kind::Listener,
    Kind::DropKey,
    Kind::DropValue,
];

/// What the armed call does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Deed {
    Panic,
    CallTheCache,
}

/// What `Eq` of the keys returns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Says {
    Truth,
    Yes,
    No,
    Now(u32),
}

pub type Sparky = Cache<Key, Value, Spread>;

thread_local! {
    static ARMED: Cell<Option<(Kind, Deed, u32)>> = const { Cell::new(None) };
    static CACHE: RefCell<Option<Sparky>> = const { RefCell::new(None) };
    static ALIVE: Cell<[i64; 2]> = const { Cell::new([0; 2]) };
    static SERIAL: Cell<u32> = const { Cell::new(0) };
    static LEFT: RefCell<BTreeMap<u32, Vec<RemovalCause>>> = const { RefCell::new(BTreeMap::new()) };
    static SAYS: Cell<Says> = const { Cell::new(Says::Truth) };
}

/// Makes call number `at`, from 1, of a kind misbehave.
pub fn arm(kind: Kind, deed: Deed, at: u32) {
    ARMED.set(Some((kind, deed, at)));
}

/// Whether nothing has happened yet.
pub fn is_armed() -> bool {
    ARMED.get().is_some()
}

/// Disarms it; true if nothing has happened.
pub fn disarm() -> bool {
    ARMED.take().is_some()
}

/// Runs `call` without any misbehaviour.
pub fn calmly<T>(call: impl FnOnce() -> T) -> T {
    let armed = ARMED.take();
    let answer = call();
    ARMED.set(armed);
    answer
}

fn spark(kind: Kind) {
    let Some((armed, deed, left)) = ARMED.get() else {
        return;
    };
    if armed != kind {
        return;
    }
    if left > 1 {
        ARMED.set(Some((armed, deed, left - 1)));
        return;
    }
    ARMED.set(None);
    match deed {
        Deed::Panic => panic!("told to panic in {kind:?}"),
        Deed::CallTheCache => {
            let cache = CACHE.with_borrow(|cache| cache.clone());
            if let Some(cache) = cache {
                call_everything(&cache);
            }
        }
    }
}

/// Calls every method, on keys that the running program uses too.
fn call_everything(cache: &Sparky) {
    for n in [1, 3, 7, 1_000] {
        drop(cache.get(&key(n)));
        cache.insert(key(n), value());
        cache.insert_with_ttl(key(n + 1), value(), secs(2));
        cache.set_expiry(&key(n), Some(secs(1)));
        _ = cache.contains_key(&key(n));
        drop(cache.peek_ref(&key(n)));
        drop(cache.get_ref(&key(n)));
        drop(cache.get_many(&[key(n), key(n + 1), key(n)]));
        drop(cache.remove(&key(n + 1)));
        cache.invalidate(&key(n + 2));
    }
    cache.retain(|key, _| key.0 % 5 != 0);
    _ = cache.iter().count();
    _ = (
        cache.entry_count(),
        cache.next_maintenance_in(),
        cache.stats(),
    );
    cache.run_pending_tasks();
}

/// Lends the cache to the callbacks; `None` takes it back.
pub fn lend(cache: Option<Sparky>) {
    drop(CACHE.replace(cache));
}

pub fn says(says: Says) {
    SAYS.set(says);
}

#[derive(Debug)]
pub struct Key(pub u32);

pub fn key(n: u32) -> Key {
    count(0, 1);
    Key(n)
}

/// A value with its own number, from which its lifetime follows.
#[derive(Debug)]
pub struct Value {
    pub serial: u32,
    pub copy: bool,
}

pub fn value() -> Value {
    let serial = SERIAL.get();
    SERIAL.set(serial + 1);
    count(1, 1);
    Value {
        serial,
        copy: false,
    }
}

/// The number of the next value.
pub fn next_serial() -> u32 {
    SERIAL.get()
}

fn count(of: usize, by: i64) {
    let mut alive = ALIVE.get();
    alive[of] += by;
    ALIVE.set(alive);
}

/// The number of living keys and values.
pub fn alive() -> [i64; 2] {
    ALIVE.get()
}

/// What the listener received: for each value the causes.
pub fn take_left() -> BTreeMap<u32, Vec<RemovalCause>> {
    LEFT.take()
}

impl Hash for Key {
    fn hash<H: Hasher>(&self, state: &mut H) {
        spark(Kind::Hash);
        self.0.hash(state);
    }
}

impl PartialEq for Key {
    fn eq(&self, other: &Self) -> bool {
        spark(Kind::Eq);
        match SAYS.get() {
            Says::Truth => self.0 == other.0,
            Says::Yes => true,
            Says::No => false,
            Says::Now(n) => {
                let n = n.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                SAYS.set(Says::Now(n));
                n >> 30 == 0
            }
        }
    }
}

impl Eq for Key {}

impl Drop for Key {
    fn drop(&mut self) {
        count(0, -1);
        spark(Kind::DropKey);
    }
}

impl Clone for Value {
    fn clone(&self) -> Self {
        spark(Kind::Clone);
        count(1, 1);
        Value {
            serial: self.serial,
            copy: true,
        }
    }
}

impl Drop for Value {
    fn drop(&mut self) {
        count(1, -1);
        // A clone belongs to the caller of the cache, which may drop it anywhere.
        if !self.copy {
            spark(Kind::DropValue);
        }
    }
}

/// How a hasher treats its keys.
#[derive(Clone, Copy, Debug)]
pub enum Spread {
    Well,
    AllEqual,
    /// Only this many bits differ, from that bit on.
    Bits(u32, u32),
    /// Another hash for each call.
    Never,
}

pub struct SpreadHasher(Spread, DefaultHasher);

impl BuildHasher for Spread {
    type Hasher = SpreadHasher;

    fn build_hasher(&self) -> SpreadHasher {
        spark(Kind::BuildHasher);
        SpreadHasher(*self, DefaultHasher::new())
    }
}

impl Hasher for SpreadHasher {
    fn write(&mut self, bytes: &[u8]) {
        self.1.write(bytes);
    }

    fn finish(&self) -> u64 {
        match self.0 {
            Spread::Well => self.1.finish(),
            Spread::AllEqual => 0x5555_5555_5555_5555,
            Spread::Bits(bits, from) => (self.1.finish() & ((1 << bits) - 1)) << from,
            Spread::Never => {
                let serial = SERIAL.get();
                SERIAL.set(serial + 1);
                u64::from(serial)
            }
        }
    }
}

/// Lifetimes of one to five seconds, by the value; most reads move the deadlines.
pub struct ByValue;

impl ByValue {
    fn life(value: &Value) -> Option<Duration> {
        let n = value.serial % 7;
        (n < 6).then(|| secs(u64::from(n)))
    }
}

impl Expiry<Key, Value> for ByValue {
    fn expire_after_create(&self, _: &Key, value: &Value, _: Instant) -> Option<Duration> {
        spark(Kind::Create);
        Self::life(value)
    }

    fn expire_after_update(
        &self,
        _: &Key,
        value: &Value,
        _: Instant,
        left: Option<Duration>,
    ) -> Option<Duration> {
        spark(Kind::Update);
        if value.serial % 3 == 0 {
            left
        } else {
            Self::life(value)
        }
    }

    fn expire_after_read(
        &self,
        _: &Key,
        value: &Value,
        _: Instant,
        left: Option<Duration>,
        _: Instant,
    ) -> Option<Duration> {
        spark(Kind::Read);
        match value.serial % 4 {
            0 => left,
            1 => Some(secs(1)),
            _ => left.map(|left| left + secs(1)),
        }
    }
}

/// A cache with every callback, the one on reads only if `reads`: without it, look-ups take other
/// paths.
pub fn sparky(spread: Spread, capacity: Option<u64>, reads: bool) -> (Sparky, ManualTicker) {
    let clock = ManualTicker::new();
    let mut builder = Cache::builder()
        .hasher(spread)
        .ticker(clock.clone())
        .record_stats()
        .delivery(wheelhouse::Delivery::Caller)
        .removal_listener(|_: &Key, value: &Value, cause| {
            LEFT.with_borrow_mut(|left| left.entry(value.serial).or_default().push(cause));
            spark(Kind::Listener);
        });
    builder = if reads {
        builder.expire_after(ByValue)
    } else {
        builder.expire_after(writes_only(ByValue))
    };
    if let Some(capacity) = capacity {
        builder = builder
            .max_capacity(capacity)
            .weigher(|_: &Key, value: &Value| {
                spark(Kind::Weigh);
                value.serial % 3
            });
    }
    (builder.build(), clock)
}

/// Yields keys to `get_many`.
pub fn hand_out(keys: &[Key]) -> impl Iterator<Item = &Key> {
    keys.iter().inspect(|_| spark(Kind::Keys))
}

/// Decides for a closure of `retain` whether to keep an entry.
pub fn keeps(key: &Key) -> bool {
    spark(Kind::Retain);
    key.0 % 6 != 0
}
