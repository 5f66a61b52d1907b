//! The caches by name, and the loop that all of them run.

use wheelhouse::{EvictionPolicy, ManualTicker};

use super::{limits, requests::Requests};
use crate::workloads::prelude::*;

/// Deadline and lifetime of a value.
type Life = (u64, u64);

/// One request in this many is followed by a look at the number of entries.
const CHECKED: u64 = 61;

/// A cache and how to replay requests with it; the answer is the number of hits.
pub(super) struct Entrant {
    pub(super) card: Card,
    /// Whether it has a curve: too many hide one another.
    pub(super) curve: bool,
    pub(super) play: Play,
}

type Play = fn(&Requests, usize) -> Result<u64, Problem>;

const fn entrant(card: Card, curve: bool, play: Play) -> Entrant {
    Entrant { card, curve, play }
}

const fn of_peer<P: Peer<u64, Life>>(curve: bool) -> Entrant {
    entrant(P::CARD, curve, peer::<P>)
}

/// All caches in the order of the table, then two that no user can have.
pub(super) static CACHES: [Entrant; 8] = [
    entrant(Card::subject("wheelhouse"), true, |requests, size| {
        wheelhouse(requests, size, EvictionPolicy::default())
    }),
    entrant(Card::subject("wheelhouse, Lru"), false, |requests, size| {
        wheelhouse(requests, size, EvictionPolicy::Lru)
    }),
    of_peer::<Moka<u64, Life>>(true),
    of_peer::<QuickCache<u64, Life>>(true),
    of_peer::<Foyer<u64, Life>>(false),
    entrant(Card::cache("foyer-memory, LFU"), true, |requests, size| {
        let cache = Foyer::tiny_lfu(&plan(Expiring::Never, size))?;
        Ok(play(&cache, requests, |_| ()))
    }),
    entrant(Card::floor("exact LRU"), true, |requests, size| {
        Ok(limits::lru(requests, size))
    }),
    entrant(Card::floor("optimum"), true, |requests, size| {
        Ok(limits::optimum(requests, size))
    }),
];

fn plan(expiring: Expiring, size: usize) -> Plan<u64, Life> {
    let life = |_: &u64, life: &Life| Duration::from_nanos(life.1);
    plan_of(expiring, size, Some(size as u64), life)
}

/// With deadlines of its own, on a clock that follows the requests. Without a scheduler, whose
/// timing would depend on the load of the machine.
fn wheelhouse(requests: &Requests, size: usize, policy: EvictionPolicy) -> Result<u64, Problem> {
    let ticker = ManualTicker::new();
    let expiring = match requests.expire() {
        true => Expiring::Write,
        false => Expiring::Never,
    };
    let cache: Wheelhouse<u64, Life> = Wheelhouse::with(&plan(expiring, size), |builder| {
        builder.eviction_policy(policy).ticker(ticker.clone())
    })?;
    let (mut now, mut asked) = (0, 0_u64);
    let hits = play(&cache, requests, |at| {
        ticker.advance(Duration::from_nanos(at - now));
        now = at;
        asked += 1;
        if asked.is_multiple_of(CHECKED) {
            assert!(cache.entries() <= Some(size as u64), "beyond its bound");
        }
    });
    Ok(hits)
}

/// A peer; deadlines are in its values, and compared by hand.
fn peer<P: Peer<u64, Life>>(requests: &Requests, size: usize) -> Result<u64, Problem> {
    let cache = P::build(&plan(Expiring::Never, size))?;
    Ok(play(&cache, requests, |_| ()))
}

/// Calls `before` with the time of each request before it.
fn play<P: Peer<u64, Life>>(cache: &P, requests: &Requests, mut before: impl FnMut(u64)) -> u64 {
    let mut hits = 0;
    for (key, at, deadline) in requests.all() {
        before(at);
        if cache.get(&key).is_some_and(|(deadline, _)| deadline > at) {
            hits += 1;
        } else {
            cache.insert(key, (deadline, deadline - at));
            cache.settle();
        }
    }
    hits
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_cache_hits_what_it_has_room_for_until_it_expires() {
        let keys: Vec<u64> = (0..4_000).map(|request| request % 100).collect();
        let plain = Requests::without_deadlines(keys.clone());
        // Each value serves three requests: at 100, 200 and 300 after its own.
        let expiring = Requests {
            life: |_| 301,
            ..Requests::without_deadlines(keys)
        };
        for entrant in &CACHES {
            let name = entrant.card.name;
            assert_eq!((entrant.play)(&plain, 1_000).unwrap(), 3_900, "{name}");
            assert_eq!((entrant.play)(&expiring, 1_000).unwrap(), 3_000, "{name}");
        }
    }
}
