//! Building a cache: its settings are checked, then its parts are made.

use super::{Cache, CacheBuilder, House};
use crate::contain::with_name;
use crate::engine::{Engine, Settings};
use crate::eviction::EvictionPolicy;
use crate::listener::Delivery;
use crate::map::{MOST_PER_SHARD, Map};
use crate::scheduler::CacheRef;
use crate::stripe;
use crate::wheel;
use std::fmt;
use std::hash::{BuildHasher, Hash};
use std::sync::{Arc, Weak};
use std::time::Duration;

/// The largest `initial_capacity` of any number of shards: no memory holds more entries. With
/// pointers of 32 bits, the table for more would not fit one allocation.
const MOST_INITIAL: u64 = if cfg!(target_pointer_width = "32") {
    1 << 26
} else {
    1 << 36
};

impl<K, V, S> CacheBuilder<K, V, S>
where
    K: Hash + Eq + Send + Sync + 'static,
    V: Send + Sync + 'static,
    S: BuildHasher + Send + Sync + 'static,
{
    /// Builds the cache.
    ///
    /// # Panics
    ///
    /// If a setting is invalid; the message names the setting, its value, and the values allowed.
    /// See [`try_build`](Self::try_build).
    ///
    /// # Cost
    ///
    /// A few kilobytes.
    ///
    /// ```
    /// let cache: wheelhouse::Cache<u8, u8> = wheelhouse::Cache::builder().build();
    /// assert_eq!(cache.entry_count(), 0);
    /// ```
    #[track_caller]
    pub fn build(self) -> Cache<K, V, S> {
        match self.try_build() {
            Ok(cache) => cache,
            Err(error) => panic!("{error}"),
        }
    }

    /// Builds the cache, or returns an error that names the invalid setting.
    ///
    /// # Errors
    ///
    /// [`BuildError`] if
    ///
    /// - `expiry_resolution` is finer or wider than the wheel can be,
    /// - `initial_capacity` is more than the table can hold, or than the allocator gives,
    /// - `name` contains a NUL,
    /// - `weigher`, `eviction_policy` or `eviction_seed` is set and `max_capacity` is not,
    /// - `load_timeout` is zero,
    /// - the target has no clock (`wasm32-unknown-unknown`).
    ///
    /// # Cost
    ///
    /// As [`build`](Self::build).
    ///
    /// ```
    /// use std::time::Duration;
    /// use wheelhouse::Cache;
    ///
    /// let too_fine = Duration::from_nanos(1);
    /// let error = Cache::<u8, u8>::builder()
    ///     .expiry_resolution(too_fine)
    ///     .try_build()
    ///     .unwrap_err();
    /// assert_eq!(
    ///     error.to_string(),
    ///     "expiry_resolution is 1ns, but must be between 65.536µs and 8796.093022208s"
    /// );
    /// ```
    pub fn try_build(self) -> Result<Cache<K, V, S>, BuildError> {
        self.validate().map_err(|fault| self.fault(&fault))?;
        let Self { settings, hasher } = self;
        let parts = match settings.parts {
            Some(forced) => forced.clamp(1, MOST_PARTS).next_power_of_two(),
            // Tests of private parts look into one part, on each machine.
            None if cfg!(test) => 1,
            // Those of whole caches also run with many.
            None if cfg!(wheelhouse_parts) => 16,
            None => parts(&settings, stripe::cores()),
        };
        let capacity = settings.initial_capacity;
        let shards = shards(settings.max_capacity).max(parts);
        let most = MOST_INITIAL.min(shards as u64 * MOST_PER_SHARD);
        if capacity as u64 > most {
            let fault = format!("initial_capacity is {capacity}, but must be at most {most}");
            return Err(BuildError(with_name(settings.name.as_deref(), &fault)));
        }
        let map = Map::new(shards, capacity, settings.columns()).map_err(|refused| {
            let fault = format!(
                "initial_capacity is {capacity}, but must be so small that its table fits the \
                 memory: {refused}"
            );
            BuildError(with_name(settings.name.as_deref(), &fault))
        })?;
        let house = Arc::new_cyclic(|weak: &Weak<House<K, V, S>>| {
            let engine = Engine::new(settings, map, parts, CacheRef::new(weak.clone()));
            House { hasher, engine }
        });
        Ok(Cache { house })
    }

    fn validate(&self) -> Result<(), String> {
        if cfg!(all(target_family = "wasm", target_os = "unknown")) {
            return Err(
                "the target is wasm32-unknown-unknown, whose `Instant::now` panics, but must be \
                 one with a clock, such as wasm32-wasip1"
                    .into(),
            );
        }
        let settings = &self.settings;
        let (width, finest, widest) = (settings.resolution, wheel::FINEST, wheel::WIDEST);
        let rounded = width.as_nanos().next_power_of_two();
        if !(finest.as_nanos()..=widest.as_nanos()).contains(&rounded) {
            return Err(format!(
                "expiry_resolution is {width:?}, but must be between {finest:?} and {widest:?}"
            ));
        }
        if settings.load_timeout == Some(Duration::ZERO) {
            return Err("load_timeout is 0ns, but must be more than zero".into());
        }
        if settings.max_capacity.is_none() {
            let advice = "max_capacity is not, but must be given too: \
                          u64::MAX is a bound that evicts nothing";
            if settings.weigher.is_some() {
                return Err(format!("weigher is set and {advice}"));
            }
            if let Some(policy) = settings.eviction_policy {
                return Err(format!("eviction_policy is {policy:?} and {advice}"));
            }
            if let Some(seed) = settings.eviction_seed {
                return Err(format!("eviction_seed is {seed} and {advice}"));
            }
        }
        if let Some(name) = &settings.name {
            if name.contains('\0') {
                return Err(format!(
                    "name is {name:?}, but must be without NUL: it names a thread"
                ));
            }
        }
        Ok(())
    }
}

impl<K, V, S> CacheBuilder<K, V, S> {
    /// An error that names the cache, if it has a name.
    pub(crate) fn fault(&self, fault: &str) -> BuildError {
        BuildError(with_name(self.settings.name.as_deref(), fault))
    }
}

/// The number of shards of a cache: many, so that two writers seldom need the same one. A small
/// cache has few, because each shard makes the bound less exact.
fn shards(max_capacity: Option<u64>) -> usize {
    let most = stripe::stripes(4);
    match max_capacity {
        Some(max) => (usize::try_from(max / 64).unwrap_or(most))
            .clamp(1, most)
            .next_power_of_two(),
        None => most,
    }
}

/// The most parts of a cache.
const MOST_PARTS: usize = 32;

/// A part of fewer entries would make the order of eviction coarse.
const LEAST_PER_PART: u64 = 2_000;

/// The number of parts of a cache, a power of two: about one for two cores, and one where something
/// matters more than many cores. That is the order of use under `Lru`; or a listener that each call
/// tells of what it evicts. Where no thread wakes the cache, it is that each call's help reaches
/// all that is due, and all that waits to be freed.
fn parts<K, V>(settings: &Settings<K, V>, cores: usize) -> usize {
    let is_lru = settings.eviction_policy == Some(EvictionPolicy::Lru);
    let tells = settings.listener.is_some() && settings.delivery == Delivery::Caller;
    // With a weigher, the bound does not say how many entries there will be.
    let entries = if settings.weigher.is_some() {
        settings.initial_capacity as u64
    } else {
        settings.max_capacity.unwrap_or(u64::MAX)
    };
    let is_alone = match &settings.scheduler {
        Some(scheduler) => scheduler.is_disabled(),
        None => settings.ticker.is_some(),
    };
    if is_lru || is_alone || (tells && settings.max_capacity.is_some()) {
        return 1;
    }
    let most = (entries / LEAST_PER_PART).min(MOST_PARTS as u64) as usize;
    let wanted = (cores / 2).min(most).max(1);
    // The power of two at or below.
    1 << wanted.ilog2()
}

/// The error of an invalid setting: its name, its value, and the values allowed.
///
/// ```
/// use wheelhouse::Cache;
///
/// let settings = Cache::<u8, u8>::builder().initial_capacity(usize::MAX);
/// let error = settings.try_build().unwrap_err();
/// let named = format!("initial_capacity is {}", usize::MAX);
/// assert!(error.to_string().starts_with(&named));
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BuildError(String);

impl fmt::Display for BuildError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for BuildError {}

#[cfg(all(test, not(wheelhouse_loom)))]
mod tests;
