//! The peers, one file each. All that let the hasher be chosen get ahash, wheelhouse's own default, so that a difference is the
//! cache's and not the hash function's; every other setting is the peer's default.

mod dashmap;
mod foyer;
mod mini_moka;
mod moka;
mod papaya;
mod quick_cache;
mod quick_cache_deadline;
mod stretto;
mod tinyufo;
mod wheelhouse;

pub use self::{
    dashmap::DashMap, foyer::Foyer, mini_moka::MiniMoka, moka::Moka, papaya::Papaya,
    quick_cache::QuickCache, quick_cache_deadline::QuickCacheDeadline, stretto::Stretto,
    tinyufo::TinyUfo, wheelhouse::Batches, wheelhouse::CoarseReads, wheelhouse::IdleLimit,
    wheelhouse::Wheelhouse,
};

use crate::peer::{Key, Peer, Value};

/// The hasher of every peer that takes one.
pub type Hasher = ahash::RandomState;

/// Meets each peer with its own type.
pub trait Visit<K: Key, V: Value> {
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
    visit.meet::<Stretto<K, V>>();
    visit.meet::<TinyUfo<K, V>>();
    visit.meet::<Foyer<K, V>>();
    visit.meet::<DashMap<K, V>>();
    visit.meet::<Papaya<K, V>>();
}

/// What the tables say below themselves about peers that do not do quite the same.
pub const NOTES: &[(&str, &str)] = &[
    (
        "wheelhouse, coarse reads",
        "look-ups go by a time that is up to 10 ms old, so a hit reads no clock; wheelhouse alone is exact",
    ),
    (
        "wheelhouse, 16 at once",
        "get_many in place of get: sixteen keys share a pin and a reading of the clock, and what comes from memory comes for all at once",
    ),
    (
        "wheelhouse, idle limit",
        "one idle limit for all entries in place of a policy: no user code runs between look-up and new deadline, so the clock is read once",
    ),
    (
        "quick_cache+deadline",
        "quick_cache with a deadline kept in each value and compared with quanta's clock on every hit; nothing is removed until it is read",
    ),
    (
        "quick_cache+Instant",
        "the same by the standard library's clock, as one would write it without another crate",
    ),
    (
        "moka",
        "has no thread of its own: unless somebody drives it, its callers do its work, and the storm's CPU ns/entry leaves theirs out",
    ),
    (
        "mini-moka",
        "knows one lifetime for all entries, not one per entry: time_to_live, or time_to_idle where reads extend",
    ),
    (
        "stretto",
        "writes and admission are asynchronous; deadlines are kept in whole seconds",
    ),
    ("TinyUFO", "keeps the hash of a key, not the key"),
    (
        "dashmap",
        "bare map, a floor: no bound, no order of use, no expiry",
    ),
    (
        "papaya",
        "bare map, a floor: no bound, no order of use, no expiry",
    ),
];
