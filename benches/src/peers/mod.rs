//! The peers. All that let the hasher be chosen get ahash, wheelhouse's own default,
//! so that a difference is the cache's and not the hash function's. Every other setting is the
//! peer's default.

/// The calls of a peer that has them under these names.
macro_rules! calls {
    ($insert:ident, $remove:ident
     $(, get: $get:ident)? $(, len: $len:ident)? $(, settle: $settle:ident)?) => {
        $(
            #[inline]
            fn get(&self, key: &K) -> Option<V> {
                self.0.$get(key)
            }
        )?

        #[inline]
        fn insert(&self, key: K, value: V) {
            self.0.$insert(key, value);
        }

        #[inline]
        fn remove(&self, key: &K) {
            self.0.$remove(key);
        }

        $(
            fn entries(&self) -> Option<u64> {
                Some(self.0.$len() as u64)
            }
        )?

        $(
            fn settle(&self) {
                self.0.$settle();
            }
        )?
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

mod maps;
mod moka;
mod quick_cache_deadline;
mod quick_cache_queue;
mod stretto;
mod wheelhouse;

pub use self::{
    maps::{DashMap, Foyer, Papaya, QuickCache, TinyUfo},
    moka::{MiniMoka, Moka},
    quick_cache_deadline::QuickCacheDeadline,
    quick_cache_queue::QuickCacheQueue,
    stretto::Stretto,
    wheelhouse::*,
};

use crate::peer::{Key, Peer, Value};

/// Meets each peer with its own type.
pub trait Visit<K: Key = u64, V: Value = u64> {
    /// Called once per peer.
    fn meet<P: Peer<K, V>>(&mut self);
}

/// Shows all peers to `visit`, wheelhouse first.
pub fn each<K: Key, V: Value>(visit: &mut impl Visit<K, V>) {
    visit.meet::<Wheelhouse<K, V>>();
    visit.meet::<Moka<K, V>>();
    visit.meet::<MiniMoka<K, V>>();
    visit.meet::<QuickCache<K, V>>();
    visit.meet::<QuickCacheDeadline<K, V, quanta::Instant>>();
    visit.meet::<QuickCacheDeadline<K, V, std::time::Instant>>();
    visit.meet::<QuickCacheQueue<K, V>>();
    visit.meet::<Stretto<K, V>>();
    visit.meet::<TinyUfo<K, V>>();
    visit.meet::<Foyer<K, V>>();
    visit.meet::<DashMap<K, V>>();
    visit.meet::<Papaya<K, V>>();
}

/// What to know about peers that do not do quite the same, as a list in Markdown.
pub const NOTES: &str = include_str!("notes.md");
