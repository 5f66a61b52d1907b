//! The other caches, and two maps, behind the same few methods.

use crate::caches::{Cache, Kind, Life, Plan};
use std::time::{Duration, Instant};

type Hasher = ahash::RandomState;

impl moka::Expiry<u64, u64> for Life {
    fn expire_after_create(&self, _: &u64, _: &u64, _: Instant) -> Option<Duration> {
        Some(self.0)
    }
    fn expire_after_update(
        &self,
        _: &u64,
        _: &u64,
        _: Instant,
        _: Option<Duration>,
    ) -> Option<Duration> {
        Some(self.0)
    }
}

pub struct Moka(moka::sync::Cache<u64, u64, Hasher>);
impl Cache for Moka {
    fn build(plan: Plan) -> Self {
        let builder = moka::sync::Cache::builder().max_capacity(plan.capacity);
        Self(
            match plan.kind {
                Kind::PerEntry(life) => builder.expire_after(Life(life)),
                Kind::Idle(life) => builder.time_to_idle(life),
            }
            .build_with_hasher(Hasher::default()),
        )
    }
    #[inline]
    fn get(&self, key: u64) -> Option<u64> {
        self.0.get(&key)
    }
    #[inline]
    fn insert(&self, key: u64, value: u64) {
        self.0.insert(key, value);
    }
    #[inline]
    fn get_with(&self, key: u64) -> u64 {
        self.0.get_with(key, || key)
    }
    fn settle(&self) {
        self.0.run_pending_tasks()
    }
}

pub struct MiniMoka(mini_moka::sync::Cache<u64, u64, Hasher>);
impl Cache for MiniMoka {
    fn build(plan: Plan) -> Self {
        let builder = mini_moka::sync::Cache::builder().max_capacity(plan.capacity);
        Self(
            match plan.kind {
                Kind::PerEntry(life) => builder.time_to_live(life),
                Kind::Idle(life) => builder.time_to_idle(life),
            }
            .build_with_hasher(Hasher::default()),
        )
    }
    #[inline]
    fn get(&self, key: u64) -> Option<u64> {
        self.0.get(&key)
    }
    #[inline]
    fn insert(&self, key: u64, value: u64) {
        self.0.insert(key, value);
    }
    fn settle(&self) {
        mini_moka::sync::ConcurrentCacheExt::sync(&self.0)
    }
}

/// Without expiry.
pub struct Quick(quick_cache::sync::Cache<u64, u64, quick_cache::UnitWeighter, Hasher>);
impl Cache for Quick {
    fn build(plan: Plan) -> Self {
        Self(quick_cache::sync::Cache::with(
            plan.capacity as usize,
            plan.capacity,
            quick_cache::UnitWeighter,
            Hasher::default(),
            Default::default(),
        ))
    }
    #[inline]
    fn get(&self, key: u64) -> Option<u64> {
        self.0.get(&key)
    }
    #[inline]
    fn insert(&self, key: u64, value: u64) {
        self.0.insert(key, value);
    }
    #[inline]
    fn get_with(&self, key: u64) -> u64 {
        self.0
            .get_or_insert_with(&key, || Ok::<_, ()>(key))
            .unwrap()
    }
}

pub struct Fibre(fibre_cache::Cache<u64, u64, Hasher>, Option<Duration>);
impl Cache for Fibre {
    fn build(plan: Plan) -> Self {
        let builder = fibre_cache::CacheBuilder::<u64, u64, Hasher>::default()
            .hasher(Hasher::default())
            .capacity(plan.capacity);
        match plan.kind {
            Kind::PerEntry(life) => Self(builder.build().unwrap(), Some(life)),
            Kind::Idle(life) => Self(builder.time_to_idle(life).build().unwrap(), None),
        }
    }
    #[inline]
    fn get(&self, key: u64) -> Option<u64> {
        self.0.get(&key, |value| *value)
    }
    #[inline]
    fn insert(&self, key: u64, value: u64) {
        match self.1 {
            None => self.0.insert(key, value, 1),
            Some(life) => self.0.insert_with_ttl(key, value, 1, life),
        };
    }
    #[inline]
    fn get_with(&self, key: u64) -> u64 {
        *self.0.entry(key).or_insert_with(|| key, 1)
    }
    fn settle(&self) {
        self.0.run_maintenance();
    }
}

/// A map: no bound, no expiry.
pub struct Papaya(papaya::HashMap<u64, u64, Hasher>);
impl Cache for Papaya {
    fn build(plan: Plan) -> Self {
        Self(papaya::HashMap::with_capacity_and_hasher(
            plan.capacity as usize,
            Hasher::default(),
        ))
    }
    #[inline]
    fn get(&self, key: u64) -> Option<u64> {
        self.0.pin().get(&key).copied()
    }
    #[inline]
    fn insert(&self, key: u64, value: u64) {
        self.0.pin().insert(key, value);
    }
    #[inline]
    fn get_with(&self, key: u64) -> u64 {
        *self.0.pin().get_or_insert_with(key, || key)
    }
}

/// A map: no bound, no expiry.
pub struct Dash(dashmap::DashMap<u64, u64, Hasher>);
impl Cache for Dash {
    fn build(_: Plan) -> Self {
        Self(dashmap::DashMap::with_hasher(Hasher::default()))
    }
    #[inline]
    fn get(&self, key: u64) -> Option<u64> {
        self.0.get(&key).map(|value| *value)
    }
    #[inline]
    fn insert(&self, key: u64, value: u64) {
        self.0.insert(key, value);
    }
    #[inline]
    fn get_with(&self, key: u64) -> u64 {
        *self.0.entry(key).or_insert_with(|| key)
    }
}
