//! The peers. All that let the hasher be chosen get ahash, wheelhouse's own default,
//! so that a difference is the cache's and not the hash function's. Every other setting is the
//! peer's default.

/// Calls of a peer that are calls of its cache, by the cache's names for them.
macro_rules! calls {
    ($($call:ident: $name:ident),+) => { $(calls!(@ $call $name);)+ };
    (@ get $name:ident) => {
        #[inline]
        fn get(&self, key: &K) -> Option<V> {
            self.0.$name(key)
        }
    };
    (@ insert $name:ident) => {
        #[inline]
        fn insert(&self, key: K, value: V) {
            self.0.$name(key, value);
        }
    };
    (@ remove $name:ident) => {
        #[inline]
        fn remove(&self, key: &K) {
            self.0.$name(key);
        }
    };
    (@ entries $name:ident) => {
        fn entries(&self) -> Option<u64> {
            Some(self.0.$name() as u64)
        }
    };
    (@ settle $name:ident) => {
        fn settle(&self) {
            self.0.$name();
        }
    };
}

/// `get` and `look` of a peer whose values can be read in place.
macro_rules! get_in_place {
    (|$cache:ident, $key:ident, $read:ident| $look:expr) => {
        #[inline]
        fn get(&self, key: &K) -> Option<V> {
            self.look(key, V::clone)
        }

        #[inline]
        fn look<R>(&self, $key: &K, $read: impl FnOnce(&V) -> R) -> Option<R> {
            let $cache = &self.0;
            $look
        }
    };
}

/// [`Loads`](crate::peer::Loads) of a peer whose methods have moka's names.
macro_rules! loads_as_moka {
    ($entry:ty, $pair:expr) => {
        #[inline]
        fn get_with(&self, key: u64, load: impl FnOnce() -> u64) -> u64 {
            self.0.get_with(key, load)
        }

        fn try_get_with(&self, key: u64, load: impl FnOnce() -> Result<u64, ()>) -> Option<u64> {
            self.0.try_get_with(key, load).ok()
        }

        #[inline]
        fn add_one(&self, key: u64) {
            let add = |old: Option<$entry>| old.map_or(1, |old| old.into_value() + 1);
            self.0.entry(key).and_upsert_with(add);
        }

        fn copy(&self) -> Vec<(u64, u64)> {
            self.0.iter().map($pair).collect()
        }
    };
}

mod fibre;
mod maps;
mod moka;
mod policies;
mod quick_cache_deadline;
mod quick_cache_queue;
mod wheelhouse;

pub use self::{
    fibre::Fibre,
    maps::{Foyer, Papaya, QuickCache},
    moka::Moka,
    policies::*,
    quick_cache_deadline::QuickCacheDeadline,
    quick_cache_queue::QuickCacheQueue,
    wheelhouse::*,
};

/// What to know about peers that do not do quite the same, as a list in Markdown.
pub const NOTES: &str = include_str!("notes.md");
