//! The caches by name, and the loop that all of them run.

use std::num::NonZeroUsize;

use wheelhouse::{EvictionPolicy, Scheduler};

use crate::{
    peer::{Card, Expiring, Peer, Plan, Problem, Role},
    peers::{Foyer, Moka, QuickCache, TinyUfo, Wheelhouse},
    workloads::race,
};

/// Requests between two looks at how much a cache holds.
const LOOK: usize = 61;

/// What a replay came to.
pub(super) struct Played {
    pub(super) hits: u64,
    /// Entries beyond the bound: the mean and the most of all looks. `None` if the cache cannot tell.
    pub(super) over: Option<(f64, u64)>,
}

/// A cache and how to replay a trace with it.
pub(super) struct Entrant {
    pub(super) card: Card,
    /// Whether it has a curve: too many hide one another.
    pub(super) curve: bool,
    pub(super) play: fn(&[u64], NonZeroUsize) -> Result<Played, Problem>,
}

/// All of them, in the order of the table.
pub(super) const CACHES: [Entrant; 8] = [
    Entrant {
        card: Wheelhouse::<u64, u64>::CARD,
        curve: true,
        play: |keys, size| {
            Ok(play(
                &wheelhouse(size, EvictionPolicy::Adaptive),
                keys,
                size,
            ))
        },
    },
    Entrant {
        card: named("wheelhouse, Lru", Role::Subject),
        curve: false,
        play: |keys, size| Ok(play(&wheelhouse(size, EvictionPolicy::Lru), keys, size)),
    },
    Entrant {
        // Never over its bound: what of a result is due to holding more for a while.
        card: named("wheelhouse, settled", Role::Subject),
        curve: false,
        play: |keys, size| {
            let cache = Settled(wheelhouse(size, EvictionPolicy::Adaptive));
            Ok(play(&cache, keys, size))
        },
    },
    Entrant {
        card: Moka::<u64, u64>::CARD,
        curve: true,
        play: peer::<Moka<u64, u64>>,
    },
    Entrant {
        card: QuickCache::<u64, u64>::CARD,
        curve: true,
        play: peer::<QuickCache<u64, u64>>,
    },
    Entrant {
        card: TinyUfo::<u64, u64>::CARD,
        curve: true,
        play: peer::<TinyUfo<u64, u64>>,
    },
    Entrant {
        card: Foyer::<u64, u64>::CARD,
        curve: false,
        play: peer::<Foyer<u64, u64>>,
    },
    Entrant {
        card: named("foyer-memory, LFU", Role::Cache),
        curve: true,
        play: |keys, size| Ok(play(&Foyer::tiny_lfu(&plan(size))?, keys, size)),
    },
];

const fn named(name: &'static str, role: Role) -> Card {
    Card { name, role }
}

fn plan(size: NonZeroUsize) -> Plan<u64, u64> {
    race::plan(Expiring::Never, size.get(), Some(size.get() as u64))
}

fn wheelhouse(size: NonZeroUsize, policy: EvictionPolicy) -> Wheelhouse<u64, u64> {
    Wheelhouse::with(&plan(size), |builder| {
        builder
            .eviction_policy(policy)
            .scheduler(Scheduler::disabled())
    })
}

fn peer<P: Peer<u64, u64>>(keys: &[u64], size: NonZeroUsize) -> Result<Played, Problem> {
    Ok(play(&P::build(&plan(size))?, keys, size))
}

/// Finishes its maintenance in every insert.
struct Settled<P>(P);

impl<P: Peer<u64, u64>> Peer<u64, u64> for Settled<P> {
    const CARD: Card = P::CARD;

    fn build(plan: &Plan<u64, u64>) -> Result<Self, Problem> {
        P::build(plan).map(Self)
    }

    fn get(&self, key: &u64) -> Option<u64> {
        self.0.get(key)
    }

    fn insert(&self, key: u64, value: u64) {
        self.0.insert(key, value);
        self.0.settle();
    }

    fn remove(&self, key: &u64) {
        self.0.remove(key);
    }

    fn entries(&self) -> Option<u64> {
        self.0.entries()
    }
}

/// Reads each key, and inserts it on a miss.
fn play<P: Peer<u64, u64>>(cache: &P, keys: &[u64], size: NonZeroUsize) -> Played {
    let (mut hits, mut looks, mut sum, mut most) = (0, 0_u64, 0, 0);
    for some in keys.chunks(LOOK) {
        for &key in some {
            match cache.get(&key) {
                Some(value) => {
                    assert_eq!(value, key, "a value of another key");
                    hits += 1;
                }
                None => cache.insert(key, key),
            }
        }
        if let Some(entries) = cache.entries() {
            let over = entries.saturating_sub(size.get() as u64);
            looks += 1;
            sum += over;
            most = most.max(over);
        }
    }
    Played {
        hits,
        over: (looks > 0).then(|| (sum as f64 / looks as f64, most)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_cache_hits_what_it_has_room_for() {
        let keys: Vec<u64> = (0..4_000).map(|request| request % 100).collect();
        for entrant in CACHES {
            let played = (entrant.play)(&keys, NonZeroUsize::new(1_000).unwrap());
            assert_eq!(played.unwrap().hits, 3_900, "{}", entrant.card.name);
        }
    }
}
