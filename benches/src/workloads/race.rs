//! Ties a workload written over [`Peer`] to a contest of all peers.

use std::time::Duration;

use crate::{
    contest::{Bench, Contest},
    figure::{Outcome, Problem},
    keys,
    peer::{Expiring, Key, Lifetime, Peer, Plan, Value},
    peers::{self, Visit},
    setup::Setup,
};

/// A workload for every peer.
pub(super) trait Race<K: Key = u64, V: Value = u64> {
    /// In what the variants of the workload differ.
    type Variant: Copy;

    /// Shows the peers that take part in a variant of this workload beside those of all workloads.
    fn also(&self, _variant: Self::Variant, _visit: &mut impl Visit<K, V>) {}

    /// Builds one cache, runs it with each number of workers, checks what it did.
    fn round<P: Peer<K, V>>(&self, setup: &Setup, variant: Self::Variant) -> Outcome;
}

/// Variants that differ in what sets a deadline.
pub(super) fn by_expiring(all: &[Expiring]) -> Vec<(String, Expiring)> {
    let variant = |expiring: &Expiring| (expiring.label().into(), *expiring);
    all.iter().map(variant).collect()
}

struct Gather<'a, R, T> {
    race: &'a R,
    setup: &'a Setup,
    variant: T,
    contest: Contest<'a>,
}

impl<'a, K: Key, V: Value, R: Race<K, V>> Visit<K, V> for Gather<'a, R, R::Variant>
where
    R::Variant: 'a,
{
    fn meet<P: Peer<K, V>>(&mut self) {
        let (race, setup, variant) = (self.race, self.setup, self.variant);
        let round = move || race.round::<P>(setup, variant);
        self.contest.add(P::CARD, round);
    }
}

impl Bench<'_> {
    /// Runs all variants of a race, in turns, for at most so many rounds.
    pub(super) fn race<K: Key, V: Value, R: Race<K, V>>(
        &self,
        about: &str,
        variants: impl IntoIterator<Item = (String, R::Variant)>,
        rounds: usize,
        race: &R,
    ) {
        let contests = variants.into_iter().map(|(name, variant)| {
            let mut gather = Gather {
                race,
                setup: self.setup,
                variant,
                contest: self.contest(name, about),
            };
            peers::each(&mut gather);
            race.also(variant, &mut gather);
            gather.contest
        });
        self.run(self.rounds().min(rounds), contests);
    }
}

/// An hour or two: longer than any run, different for each entry.
pub(super) fn hours(key: &u64, _: &u64) -> Duration {
    Duration::from_secs(3600 + (key & 0xFFF))
}

/// A plan for `u64` to `u64` whose entries outlive the run.
pub(super) fn plan(expiring: Expiring, expected: usize, capacity: Option<u64>) -> Plan {
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

/// A plan for so many entries, and room for four times as many.
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
    let why = "keys are missing from a cache with room for all of them";
    Err(Problem::Wrong(why.into()))
}

/// A cache of the small set of keys, filled.
pub(super) fn small_cache<P: Peer>(expiring: Expiring) -> Result<P, Problem> {
    let cache = P::build(&roomy(expiring, keys::SMALL))?;
    fill(&cache, keys::entries(keys::SMALL))?;
    Ok(cache)
}

/// Makes the cache start its threads here: those that a pinned worker starts would be bound to its
/// core.
pub(super) fn waken(cache: &impl Peer) {
    let (key, value) = keys::entry(u64::MAX >> 1);
    cache.insert(key, value);
    cache.remove(&key);
    cache.settle();
}

/// Fails unless `right` is what was to be expected.
pub(super) fn expect(what: &str, right: u64, expected: u64) -> Result<(), Problem> {
    match right == expected {
        true => Ok(()),
        false => Err(Problem::Wrong(format!("{what}: {right} of {expected}"))),
    }
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
