//! Ties a workload written over [`Peer`] to a contest of all peers.

use std::time::Duration;

use crate::{
    contest::{Bench, Contest},
    figure::{Outcome, Problem, ensure},
    keys,
    peer::{Expiring, Key, Lifetime, Peer, Plan, Value},
    peers::*,
    setup::Setup,
};

/// A workload for every peer, in variants that differ in an `X`.
pub(super) trait Race<K: Key = u64, V: Value = u64, X: Copy = Expiring>: Sized {
    /// Enters the peers that take part beside those of all workloads.
    fn also(_: &mut Heat<'_, Self, X>) {}

    /// Builds one cache, runs it with each number of workers, checks what it did.
    fn round<P: Peer<K, V>>(&self, setup: &Setup, variant: X) -> Outcome;
}

/// Variants that differ in what sets a deadline.
pub(super) fn by_expiring(all: &[Expiring]) -> Vec<(String, Expiring)> {
    let variant = |expiring: &Expiring| (expiring.label().into(), *expiring);
    all.iter().map(variant).collect()
}

/// One variant of a race, and the contest of its peers.
pub(super) struct Heat<'a, R, X> {
    race: &'a R,
    setup: &'a Setup,
    pub(super) variant: X,
    contest: Contest<'a>,
}

impl<'a, R, X: Copy + 'a> Heat<'a, R, X> {
    pub(super) fn enter<K: Key, V: Value, P: Peer<K, V>>(&mut self)
    where
        R: Race<K, V, X>,
    {
        let (race, setup, variant) = (self.race, self.setup, self.variant);
        let round = move || race.round::<P>(setup, variant);
        self.contest.add(P::CARD, round);
    }
}

impl<'a> Bench<'a> {
    /// All peers in one variant of a race, wheelhouse first.
    pub(super) fn heat<K: Key, V: Value, X: Copy + 'a, R: Race<K, V, X>>(
        &self,
        name: String,
        about: &str,
        variant: X,
        race: &'a R,
    ) -> Contest<'a> {
        let mut heat = Heat {
            race,
            setup: self.setup,
            variant,
            contest: self.contest(name, about),
        };
        heat.enter::<K, V, Wheelhouse<K, V>>();
        heat.enter::<K, V, Moka<K, V>>();
        heat.enter::<K, V, QuickCache<K, V>>();
        heat.enter::<K, V, QuickCacheDeadline<K, V, quanta::Instant>>();
        heat.enter::<K, V, QuickCacheDeadline<K, V, std::time::Instant>>();
        heat.enter::<K, V, QuickCacheQueue<K, V>>();
        heat.enter::<K, V, Fibre<K, V>>();
        heat.enter::<K, V, Foyer<K, V>>();
        heat.enter::<K, V, Papaya<K, V>>();
        R::also(&mut heat);
        heat.contest
    }

    /// Runs all variants of a race, in turns, for at most this many rounds.
    pub(super) fn race<K: Key, V: Value, X: Copy + 'a>(
        self,
        about: &str,
        variants: impl IntoIterator<Item = (String, X)>,
        rounds: usize,
        race: &'a impl Race<K, V, X>,
    ) {
        let variants = variants.into_iter();
        let heats = variants.map(|(name, variant)| self.heat(name, about, variant, race));
        self.run(self.rounds().min(rounds), heats);
    }
}

/// An hour or two: longer than any run, different for each entry.
pub(super) fn hours(key: &u64, _: &u64) -> Duration {
    Duration::from_secs(3600 + (key & 0xFFF))
}

/// A plan for `u64` to `u64` whose entries outlive the run.
pub(crate) fn plan(expiring: Expiring, expected: usize, capacity: Option<u64>) -> Plan {
    plan_of(expiring, expected, capacity, hours)
}

/// A plan for other types; `lifetime` must outlive the run, too.
pub(super) fn plan_of<K, V>(
    expiring: Expiring,
    expected: usize,
    capacity: Option<u64>,
    lifetime: Lifetime<K, V>,
) -> Plan<K, V> {
    Plan {
        capacity,
        expected,
        expiring,
        lifetime,
        uniform: Some(Duration::from_secs(3600)),
        listener: None,
    }
}

/// A plan for this many entries, and room for four times as many.
pub(super) fn roomy(expiring: Expiring, entries: usize) -> Plan {
    plan(expiring, entries, Some(entries as u64 * 4))
}

/// Inserts `entries` until each is there: some peers drop writes under pressure, or put them off.
pub(super) fn fill<K: Key, V: Value, P: Peer<K, V>>(
    cache: &P,
    entries: impl Iterator<Item = (K, V)> + Clone,
) -> Result<(), Problem> {
    for (key, value) in entries.clone() {
        cache.insert(key, value);
    }
    for _ in 0..20 {
        cache.settle();
        let mut missing = 0;
        for (key, value) in entries.clone() {
            if cache.look(&key, |_| ()).is_none() {
                cache.insert(key, value);
                missing += 1;
            }
        }
        if missing == 0 {
            return Ok(());
        }
    }
    Err(Problem::Wrong(
        "keys are missing from a cache with room for all of them".into(),
    ))
}

/// A cache of the small set of keys, filled.
pub(super) fn small_cache<P: Peer>(expiring: Expiring) -> Result<P, Problem> {
    let cache = P::build(&roomy(expiring, keys::SMALL))?;
    fill(&cache, keys::entries(keys::SMALL))?;
    Ok(cache)
}

/// Makes the cache start its threads here: those that a bound worker starts would be bound to its
/// core.
pub(super) fn waken(cache: &impl Peer) {
    let (key, value) = keys::entry(u64::MAX >> 1);
    cache.insert(key, value);
    cache.remove(&key);
    cache.settle();
}

/// A measured loop: reads keys and counts right answers.
#[inline(never)]
pub(super) fn hits<P: Peer>(cache: &P, stream: &[u64]) -> u64 {
    cache.count_right(stream, |key, value| *value == keys::value(*key))
}

/// A measured loop: inserts keys.
#[inline(never)]
pub(super) fn inserts<P: Peer>(cache: &P, stream: &[u64]) -> u64 {
    for &key in stream {
        cache.insert(key, keys::value(key));
    }
    0
}

/// Fails unless `right` is what was to be expected.
pub(super) fn expect(what: &str, right: u64, expected: u64) -> Result<(), Problem> {
    ensure!(right == expected, "{what}: {right} of {expected}");
    Ok(())
}

/// Fails unless the cache holds `expected` entries when it has done all its work. A peer that
/// cannot tell passes.
pub(super) fn expect_len<K: Key, V: Value>(
    cache: &impl Peer<K, V>,
    expected: u64,
) -> Result<(), Problem> {
    cache.settle();
    let len = cache.entries().unwrap_or(expected);
    expect("entries at the end", len, expected)
}
