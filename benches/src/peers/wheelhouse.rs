//! wheelhouse with its default settings and an ordinary policy, as a user writes it; then with
//! other policies and settings, each as a peer of its own.

use std::{
    marker::PhantomData,
    time::{Duration, Instant},
};

use wheelhouse::{Cache, CacheBuilder, Expiry, RemovalCause, compute::Entry, expiry};

use crate::peer::{
    Card, Expiring, Key, Left, Lifetime, Loads, LoadsByFuture, Peer, Plan, Problem, Role, Value,
};

/// A policy that sets a deadline when an entry is created, and overrides nothing else.
pub struct OnCreate<K, V>(pub Lifetime<K, V>);

impl<K: Key, V: Value> Expiry<K, V> for OnCreate<K, V> {
    fn expire_after_create(&self, key: &K, value: &V, _: Instant) -> Option<Duration> {
        Some((self.0)(key, value))
    }
}

/// A policy that sets a deadline with every write.
struct OnWrite<K, V>(Lifetime<K, V>);

impl<K: Key, V: Value> Expiry<K, V> for OnWrite<K, V> {
    fn expire_after_create(&self, key: &K, value: &V, _: Instant) -> Option<Duration> {
        Some((self.0)(key, value))
    }

    fn expire_after_update(
        &self,
        key: &K,
        value: &V,
        _: Instant,
        _: Option<Duration>,
    ) -> Option<Duration> {
        Some((self.0)(key, value))
    }
}

/// A policy that sets a deadline on create, and overrides the method for reads without changing
/// anything there.
pub struct AsTold<K, V>(pub Lifetime<K, V>);

impl<K: Key, V: Value> Expiry<K, V> for AsTold<K, V> {
    fn expire_after_create(&self, key: &K, value: &V, _: Instant) -> Option<Duration> {
        Some((self.0)(key, value))
    }

    fn expire_after_read(
        &self,
        _: &K,
        _: &V,
        _: Instant,
        left: Option<Duration>,
        _: Instant,
    ) -> Option<Duration> {
        left
    }
}

/// A policy by which every write and every read sets a deadline.
struct OnAccess<K, V>(Lifetime<K, V>);

impl<K: Key, V: Value> Expiry<K, V> for OnAccess<K, V> {
    fn expire_after_create(&self, key: &K, value: &V, _: Instant) -> Option<Duration> {
        Some((self.0)(key, value))
    }

    fn expire_after_update(
        &self,
        key: &K,
        value: &V,
        _: Instant,
        _: Option<Duration>,
    ) -> Option<Duration> {
        Some((self.0)(key, value))
    }

    fn expire_after_read(
        &self,
        key: &K,
        value: &V,
        _: Instant,
        _: Option<Duration>,
        _: Instant,
    ) -> Option<Duration> {
        Some((self.0)(key, value))
    }
}

/// The policy whose reads are never asked.
fn writes_only<K: Key, V: Value>(policy: impl Expiry<K, V>) -> Result<impl Expiry<K, V>, Problem> {
    Ok(wheelhouse::expiry::writes_only(policy))
}

type Built<K, V> = Result<CacheBuilder<K, V>, Problem>;

/// How a cache is set up beside what the plan asks for.
pub trait Style: Send + Sync + 'static {
    /// As the tables call it.
    const NAME: &'static str;
    /// Whether many look-ups are one call of `get_many` for each sixteen.
    const BATCHED: bool = false;

    /// Sets it up.
    fn set<K: Key, V: Value>(builder: CacheBuilder<K, V>, plan: &Plan<K, V>) -> Built<K, V> {
        Ok(ordinary(builder, plan))
    }
}

/// An ordinary policy for what the plan asks for.
fn ordinary<K: Key, V: Value>(
    builder: CacheBuilder<K, V>,
    plan: &Plan<K, V>,
) -> CacheBuilder<K, V> {
    match plan.expiring {
        Expiring::Never => builder,
        Expiring::Create => builder.expire_after(OnCreate(plan.lifetime)),
        Expiring::Write => builder.expire_after(OnWrite(plan.lifetime)),
        Expiring::Access => builder.expire_after(OnAccess(plan.lifetime)),
    }
}

/// Default settings and an ordinary policy.
pub struct Ordinary;
/// An ordinary policy that overrides the method for reads and changes nothing there.
pub struct ReadsAsTold;
/// The ordinary policy, its reads never asked.
pub struct WritesOnly;
/// The ready policy `expiry::creating`.
pub struct Ready;
/// Look-ups by a time that a thread stores every five milliseconds.
pub struct CoarseReads;
/// One idle limit for all entries in place of a policy.
pub struct IdleLimit;
/// Sixteen keys to a call, where many are looked up.
pub struct Batches;

impl Style for Ordinary {
    const NAME: &'static str = "wheelhouse";
}

impl Style for Batches {
    const NAME: &'static str = "wheelhouse, 16 at once";
    const BATCHED: bool = true;
}

impl Style for ReadsAsTold {
    const NAME: &'static str = "wheelhouse, reads as told";

    fn set<K: Key, V: Value>(builder: CacheBuilder<K, V>, plan: &Plan<K, V>) -> Built<K, V> {
        Ok(builder.expire_after(AsTold(plan.lifetime)))
    }
}

impl Style for WritesOnly {
    const NAME: &'static str = "wheelhouse, writes_only";

    fn set<K: Key, V: Value>(builder: CacheBuilder<K, V>, plan: &Plan<K, V>) -> Built<K, V> {
        Ok(builder.expire_after(writes_only(OnCreate(plan.lifetime))?))
    }
}

impl Style for Ready {
    const NAME: &'static str = "wheelhouse, creating";

    fn set<K: Key, V: Value>(builder: CacheBuilder<K, V>, plan: &Plan<K, V>) -> Built<K, V> {
        let lifetime = plan.lifetime;
        let lives = move |key: &K, value: &V| Some(lifetime(key, value));
        Ok(builder.expire_after(expiry::creating(lives)))
    }
}

impl Style for CoarseReads {
    const NAME: &'static str = "wheelhouse, coarse reads";

    fn set<K: Key, V: Value>(builder: CacheBuilder<K, V>, plan: &Plan<K, V>) -> Built<K, V> {
        Ok(ordinary(builder, plan).coarse_reads(Duration::from_millis(10)))
    }
}

impl Style for IdleLimit {
    const NAME: &'static str = "wheelhouse, idle limit";

    fn set<K: Key, V: Value>(builder: CacheBuilder<K, V>, plan: &Plan<K, V>) -> Built<K, V> {
        let idle = plan.uniform.filter(|_| plan.expiring == Expiring::Access);
        let idle = idle.ok_or(Problem::Unsupported("not the same work"))?;
        Ok(builder.time_to_idle(idle))
    }
}

/// The cache that this package is about.
pub struct Wheelhouse<K, V, S = Ordinary> {
    pub(crate) cache: Cache<K, V>,
    style: PhantomData<S>,
}

impl<K: Key, V: Value, S: Style> Wheelhouse<K, V, S> {
    /// Builds what `plan` asks for, with settings that a plan does not know.
    pub fn with(
        plan: &Plan<K, V>,
        set: impl FnOnce(CacheBuilder<K, V>) -> CacheBuilder<K, V>,
    ) -> Result<Self, Problem> {
        let mut builder = Cache::<K, V>::builder();
        if let Some(capacity) = plan.capacity {
            builder = builder.max_capacity(capacity);
        }
        if let Some(listener) = plan.listener.clone() {
            builder = builder.removal_listener(move |key: &K, value: &V, cause| {
                listener(key, value, Left::of(cause == RemovalCause::Expired));
            });
        }
        Ok(Self {
            cache: set(S::set(builder, plan)?).build(),
            style: PhantomData,
        })
    }
}

/// As many as `get_many` looks up together.
const BATCH: usize = 16;

impl<K: Key, V: Value, S: Style> Peer<K, V> for Wheelhouse<K, V, S> {
    const CARD: Card = Card {
        name: S::NAME,
        role: Role::Subject,
    };

    fn build(plan: &Plan<K, V>) -> Result<Self, Problem> {
        Self::with(plan, |builder| builder)
    }

    #[inline]
    fn get(&self, key: &K) -> Option<V> {
        self.cache.get(key)
    }

    #[inline]
    fn look<R>(&self, key: &K, read: impl FnOnce(&V) -> R) -> Option<R> {
        self.cache.get_ref(key).map(|entry| read(&entry))
    }

    #[inline]
    fn count_right(&self, keys: &[K], right: impl Fn(&K, &V) -> bool) -> u64 {
        let is_right = |key, value: Option<V>| value.is_some_and(|value| right(key, &value));
        let mut count = 0;
        if S::BATCHED {
            for keys in keys.chunks(BATCH) {
                for (key, value) in keys.iter().zip(self.cache.get_many(keys)) {
                    count += u64::from(is_right(key, value));
                }
            }
        } else {
            for key in keys {
                count += u64::from(is_right(key, self.cache.get(key)));
            }
        }
        count
    }

    #[inline]
    fn insert(&self, key: K, value: V) {
        self.cache.insert(key, value);
    }

    #[inline]
    fn remove(&self, key: &K) {
        self.cache.invalidate(key);
    }

    fn settle(&self) {
        self.cache.run_pending_tasks();
    }

    fn entries(&self) -> Option<u64> {
        Some(self.cache.entry_count())
    }
}

impl<S: Style> Loads for Wheelhouse<u64, u64, S> {
    #[inline]
    fn get_with(&self, key: u64, load: impl FnOnce() -> u64) -> u64 {
        self.cache.get_with(key, load)
    }

    fn fails_with(&self, key: u64, load: impl FnOnce()) -> bool {
        let failing = || {
            load();
            Err::<u64, ()>(())
        };
        self.cache.try_get_with(key, failing).is_err()
    }

    #[inline]
    fn add_one(&self, key: u64) {
        let add = |old: Option<Entry<u64, u64>>| old.map_or(1, |old| old.into_value() + 1);
        self.cache.entry(key).and_upsert_with(add);
    }

    fn copy(&self) -> Vec<(u64, u64)> {
        self.cache
            .iter()
            .map(|entry| (*entry.key(), *entry.value()))
            .collect()
    }
}

impl<S: Style> LoadsByFuture for Wheelhouse<u64, u64, S> {
    async fn get_with_future(&self, key: u64, load: impl Future<Output = u64> + Send) -> u64 {
        self.cache.get_with_async(key, load).await
    }
}
