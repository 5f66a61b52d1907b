//! Ties a workload written over [`Peer`] to a contest of all peers.

use std::time::Duration;

use crate::{
    contest::{Contest, contests},
    figure::Outcome,
    keys,
    measure::{Done, timed},
    peer::{Expiring, Key, Lifetime, Peer, Plan, Problem, Value},
    peers::{self, Visit},
    report::Report,
    setup::Setup,
};

/// A workload for every peer.
pub(crate) trait Race<K: Key = u64, V: Value = u64> {
    /// In what the variants of the workload differ.
    type Variant: Copy;

    /// Shows the peers that take part in a variant of this workload beside those of all workloads.
    fn also(&self, _variant: Self::Variant, _visit: &mut impl Visit<K, V>) {}

    /// Builds one cache, runs it with each number of workers, checks what it did.
    fn round<P: Peer<K, V>>(&self, setup: &Setup, variant: Self::Variant) -> Outcome;
}

/// Variants that differ in what sets a deadline.
pub(crate) fn by_expiring(all: &[Expiring]) -> Vec<(String, Expiring)> {
    all.iter()
        .map(|expiring| (expiring.label().into(), *expiring))
        .collect()
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
        self.contest
            .add(P::CARD, move || race.round::<P>(setup, variant));
    }
}

/// Runs all variants of a race, in turns, for at most so many rounds.
pub(crate) fn run<K: Key, V: Value, R: Race<K, V>>(
    race: &R,
    (workload, about): (&str, String),
    variants: Vec<(String, R::Variant)>,
    rounds: usize,
    setup: &Setup,
    report: &mut Report,
) {
    let variants = variants.into_iter().map(|(name, variant)| {
        let contest = Contest::new(workload, name, &*about);
        let mut gather = Gather {
            race,
            setup,
            variant,
            contest,
        };
        peers::each(&mut gather);
        race.also(variant, &mut gather);
        gather.contest
    });
    contests(setup, report, setup.rounds.min(rounds), variants.collect());
}

/// Runs a piece of work as the setup says.
pub(crate) fn time(
    setup: &Setup,
    threads: usize,
    operations: usize,
    warm: impl Fn(usize) + Sync,
    run: impl Fn(usize) -> u64 + Sync,
) -> Done {
    timed(setup.cpu, threads, operations, warm, run)
}

/// An hour or two: longer than any run, different for each entry.
pub(crate) fn hours(key: &u64, _: &u64) -> Duration {
    Duration::from_secs(3600 + (key & 0xFFF))
}

/// A plan for `u64` to `u64` whose entries outlive the run.
pub(crate) fn plan(expiring: Expiring, expected: usize, capacity: Option<u64>) -> Plan {
    plan_of(expiring, expected, capacity, hours)
}

/// A plan for other types; `lifetime` must outlive the run, too.
pub(crate) fn plan_of<K, V>(
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

/// Inserts `entries` until each is there: some peers drop writes under pressure, or put them off.
pub(crate) fn fill<K: Key, V: Value, P: Peer<K, V>>(
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

/// A plan for the small set of keys, with room for four times as many.
pub(crate) fn small(expiring: Expiring) -> Plan {
    plan(expiring, keys::SMALL, Some(keys::SMALL as u64 * 4))
}

/// A cache of the small set of keys, filled.
pub(crate) fn small_cache<P: Peer>(expiring: Expiring) -> Result<P, Problem> {
    let cache = P::build(&small(expiring))?;
    fill(&cache, entries(keys::SMALL))?;
    Ok(cache)
}

/// Makes the cache start its threads here: those that a pinned worker starts would be bound to its
/// core.
pub(crate) fn waken(cache: &impl Peer) {
    let key = keys::key(u64::MAX >> 1);
    cache.insert(key, keys::value(key));
    cache.remove(&key);
    cache.settle();
}

/// The entries of ranks `0..count`.
pub(crate) fn entries(count: usize) -> impl Iterator<Item = (u64, u64)> + Clone {
    (0..count as u64)
        .map(keys::key)
        .map(|key| (key, keys::value(key)))
}

/// Fails unless `right` is what was to be expected.
pub(crate) fn expect(what: &str, right: u64, expected: u64) -> Result<(), Problem> {
    if right == expected {
        Ok(())
    } else {
        Err(Problem::Wrong(format!("{what}: {right} of {expected}")))
    }
}

/// Fails unless the cache holds `expected` entries when it has done all its work. A peer that
/// cannot tell passes.
pub(crate) fn expect_len<K: Key, V: Value>(
    cache: &impl Peer<K, V>,
    expected: u64,
) -> Result<(), Problem> {
    cache.settle();
    cache
        .entries()
        .map_or(Ok(()), |len| expect("entries at the end", len, expected))
}
