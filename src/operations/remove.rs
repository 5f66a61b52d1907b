//! Taking out one entry, the entries that a closure refuses, or all entries. Every explicit removal
//! goes through [`Shared::take_out`].

use super::condition::Explicit;
use super::core::Core;
use crate::contain::contain;
use crate::listener::RemovalCause;
use crate::load::{Load, RevokedBy};
use crate::maintenance::WriteOutcome;
use crate::map::{END, Occupied, Revalidated, Shard};
use crate::node::NodePtr;
use crate::shared::Shared;
use crate::time::NEVER;
use equivalent::Equivalent;
use std::hash::{BuildHasher, Hash};
use std::sync::Arc;

/// Removals under one hold of a shard's lock when many are taken out.
const REMOVALS_PER_LOCK: usize = 64;
/// How often a removal calls `look` before it removes. If the node is replaced each time, perhaps
/// by `look` itself (a value's `clone`), it then removes first and looks afterwards.
const MAX_LOOKS: u32 = 16;

/// A removal that has to be tried again: the key was inserted, replaced or removed since it was
/// looked up, or has loads that were not compared yet.
struct RetryRemoval;

impl<K, V, S> Core<K, V, S>
where
    K: Hash + Eq,
    S: BuildHasher,
{
    /// Removes a key's entry and revokes the key's load. Returns what `look` saw of the node that
    /// was removed, unless that was due.
    ///
    /// `look` sees the node before its removal, perhaps several times, with no lock held. `None`
    /// cancels the removal. With `must_look`, no removal precedes `look`.
    pub(crate) fn take<Q, R>(
        &self,
        key: &Q,
        by: RevokedBy,
        must_look: bool,
        mut look: impl FnMut(NodePtr<K, V>) -> Option<R>,
    ) -> Option<R>
    where
        Q: Equivalent<K> + Hash + ?Sized,
    {
        let removal = Removal {
            core: self,
            key,
            hash: self.hash(key),
            must_look,
        };
        let mut condition = Explicit::new(by);
        match removal.attempt(1, &mut condition, &mut look) {
            Ok(taken) => taken,
            Err(RetryRemoval) => removal.attempt_again(condition, look),
        }
    }

    /// Removes all entries that are present now. Entries that are inserted meanwhile may or may not
    /// be removed. Each shard is visited once, so the call ends under constant writes.
    pub(crate) fn take_all(&self) {
        let map = &self.shared.map;
        let mut nodes = Vec::new();
        for number in 0..map.shards() {
            let mut at = 0;
            while at < END {
                // Both are dropped after the pin, also if the ticker panics.
                let mut after = AfterWrite {
                    core: self,
                    outcome: None,
                };
                let mut revoked = Revoked(Vec::new());
                let pin = self.shared.pin();
                let mut shard = map.lock_shard(number);
                // Revoke the loads that began before this call. What they have stored already is
                // removed below.
                if at == 0 && !shard.loads().is_empty() {
                    revoked.0 = shard.loads_mut().revoke_all(RevokedBy::Overwrite);
                }
                let (mut taken, mut visited) = (0, 0);
                while at < END && taken < REMOVALS_PER_LOCK && visited < REMOVALS_PER_LOCK {
                    visited += 1;
                    at = map.collect(number, at as u32, &pin, &mut nodes);
                    for node in nodes.drain(..) {
                        if self.shared.take_node(&mut shard, node) {
                            taken += 1;
                            after.outcome = Some(WriteOutcome::of_removal(&shard, None));
                        }
                    }
                }
            }
        }
    }

    /// Removes the live entries for which `keep` returns false. `keep` runs with no lock held.
    pub(crate) fn retain(&self, mut keep: impl FnMut(&K, &V) -> bool) {
        let map = &self.shared.map;
        let mut nodes = Vec::new();
        for number in 0..map.shards() {
            let mut at = 0;
            while at < END {
                // Dropped after the pin, also if `keep` panics: what follows a write may run
                // destructors and listeners.
                let mut after = AfterWrite {
                    core: self,
                    outcome: None,
                };
                let mut conditions = Vec::new();
                let pin = self.shared.pin();
                at = map.collect(number, at as u32, &pin, &mut nodes);
                for node in nodes.drain(..) {
                    if !self.shared.is_live(node) || keep(node.key(), node.value()) {
                        continue;
                    }
                    let mut condition = Explicit::new(RevokedBy::Conditional);
                    loop {
                        let mut shard = map.lock_shard(number);
                        if !condition.knows_loads(&mut shard, node.hash()) {
                            drop(shard);
                            condition.compare(|other| other == node.key());
                            continue;
                        }
                        if self.shared.take_node(&mut shard, node) {
                            condition.revoke(&mut shard);
                            after.outcome = Some(WriteOutcome::of_removal(&shard, None));
                        }
                        break;
                    }
                    if condition.has_revoked() {
                        conditions.push(condition);
                    }
                }
            }
        }
    }
}

/// A removal: what its attempts have in common.
struct Removal<'a, K, V, S, Q: ?Sized> {
    core: &'a Core<K, V, S>,
    key: &'a Q,
    hash: u64,
    must_look: bool,
}

impl<K, V, S, Q> Removal<'_, K, V, S, Q>
where
    K: Eq,
    Q: Equivalent<K> + ?Sized,
{
    /// The rest of a removal whose first attempt was overtaken.
    // Separate from the first attempt, as in a write.
    #[cold]
    #[inline(never)]
    fn attempt_again<R>(
        self,
        mut condition: Explicit<K, V>,
        mut look: impl FnMut(NodePtr<K, V>) -> Option<R>,
    ) -> Option<R> {
        for number in 2_u32.. {
            condition.compare(|other| self.key.equivalent(other));
            if let Ok(taken) = self.attempt(number, &mut condition, &mut look) {
                return taken;
            }
        }
        unreachable!("a loop without an end");
    }

    /// One attempt of a removal, of that number. The condition is to be dropped after it.
    #[inline(always)]
    fn attempt<R>(
        &self,
        number: u32,
        condition: &mut Explicit<K, V>,
        look: &mut impl FnMut(NodePtr<K, V>) -> Option<R>,
    ) -> Result<Option<R>, RetryRemoval> {
        let &Self {
            core,
            key,
            hash,
            must_look,
        } = self;
        let cell = core.shared.map.cell(hash);
        // Before the pin, whose fence delays the memory loads after it.
        cell.prefetch(hash);
        let pin = core.shared.pin();
        // Asked before the look-up. In the other order, a load could store its value after the
        // look-up and end before this question, and the removal would miss both.
        let may_load = cell.may_load();
        let probe = cell.probe(hash, &pin, |node| key.equivalent(node.key()));
        let Some(node) = probe.found else {
            if must_look || !may_load {
                return Ok(None);
            }
            let mut shard = probe.lock();
            if shard.revalidate(hash, &probe).is_none() || !condition.knows_loads(&mut shard, hash)
            {
                return Err(RetryRemoval);
            }
            condition.revoke(&mut shard);
            return Ok(None);
        };
        let seen = if must_look || number <= MAX_LOOKS {
            match look(node) {
                None => return Ok(None),
                seen => seen,
            }
        } else {
            None
        };
        let mut shard = probe.lock();
        let Some(Revalidated::Occupied(spot)) = shard.revalidate(hash, &probe) else {
            return Err(RetryRemoval);
        };
        if !condition.knows_loads(&mut shard, hash) {
            return Err(RetryRemoval);
        }
        condition.revoke(&mut shard);
        let (cause, now) = core.shared.take_out(&mut shard, spot, node);
        let outcome = WriteOutcome::of_removal(&shard, now);
        drop(shard);
        drop(probe);
        let seen = match seen {
            Some(seen) => {
                drop(pin);
                seen
            }
            None => {
                // The guard runs `after_write` even if `look` panics.
                let mut after = AfterWrite {
                    core,
                    outcome: Some(outcome),
                };
                // Keeps what was removed. Dropped before `after`, in any case.
                let _pin = pin;
                let Some(seen) = look(node) else {
                    return Ok(None);
                };
                after.outcome = None;
                seen
            }
        };
        // Called here and not by the guard: if a guard's drop panicked, the compiler would leak the
        // return value.
        core.maintenance.after_write(&core.shared, outcome);
        Ok((cause == RemovalCause::Explicit).then_some(seen))
    }
}

/// Loads that were revoked: their waiters are released when this is dropped.
struct Revoked<K, V>(Vec<Arc<Load<K, V>>>);

impl<K, V> Drop for Revoked<K, V> {
    fn drop(&mut self) {
        self.0.iter().for_each(|load| load.release_waiters());
    }
}

/// Calls `after_write` when it is dropped.
struct AfterWrite<'a, K, V, S> {
    core: &'a Core<K, V, S>,
    outcome: Option<WriteOutcome>,
}

impl<K, V, S> Drop for AfterWrite<'_, K, V, S> {
    fn drop(&mut self) {
        let Some(outcome) = self.outcome.take() else {
            return;
        };
        let after = || {
            self.core
                .maintenance
                .after_write(&self.core.shared, outcome)
        };
        if std::thread::panicking() {
            // A second panic, a ticker's or an alarm's, must not end the process.
            contain(after);
        } else {
            after();
        }
    }
}

impl<K, V> Shared<K, V> {
    /// Takes a node of this shard out. False if it had left the map before.
    fn take_node(&self, shard: &mut Shard<'_, K, V>, node: NodePtr<K, V>) -> bool {
        let spot = shard.find_node(node.hash(), node);
        spot.is_some_and(|spot| {
            self.take_out(shard, spot, node);
            true
        })
    }

    /// Takes a node out and returns the cause, and the time if that was looked at: the one place
    /// where an entry leaves the map by an explicit call.
    #[inline]
    pub(crate) fn take_out<'a>(
        &self,
        shard: &mut Shard<'a, K, V>,
        spot: Occupied<'a, K, V>,
        node: NodePtr<K, V>,
    ) -> (RemovalCause, Option<u64>) {
        let (cause, now) = self.cause_of_leaving(node);
        shard.remove(spot, node, cause);
        self.note_removed(|| node.weight(), cause);
        (cause, now)
    }

    /// `Expired` if the node is due now: its deadline is then claimed. Else `Explicit`. Under the
    /// shard's lock.
    fn cause_of_leaving(&self, node: NodePtr<K, V>) -> (RemovalCause, Option<u64>) {
        if node.deadline() == NEVER {
            return (RemovalCause::Explicit, None);
        }
        let now = self.clock.now();
        let cause = if node.deadline_if_live(now).is_none() {
            RemovalCause::Expired
        } else {
            RemovalCause::Explicit
        };
        (cause, Some(now))
    }
}

#[cfg(all(test, not(wheelhouse_loom)))]
mod tests {
    use crate::{Cache, Ticker};
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU64, Ordering};
    use std::time::Duration;

    /// A clock that stands still and counts how often it is read.
    #[derive(Clone, Default)]
    struct Counting(Arc<AtomicU64>);

    impl Ticker for Counting {
        fn nanos(&self) -> u64 {
            self.0.fetch_add(1, Ordering::SeqCst);
            0
        }
    }

    #[test]
    fn clearing_a_shard_lets_its_writers_in() {
        const MANY: u64 = 200_000;
        let clock = Counting::default();
        let cache: Cache<u64, u64> = Cache::builder().ticker(clock.clone()).build();
        let core = &cache.core;
        let mut keys = (0..).filter(|key| core.shared.map.shard_of(core.hash(key)) == 0);
        for key in keys.by_ref().take(MANY as usize) {
            cache.insert_with_ttl(key, key, Duration::from_secs(1));
        }
        let late: Vec<u64> = keys.take(5).collect();
        cache.run_pending_tasks();
        let before = clock.0.load(Ordering::SeqCst);
        let (other, readings) = (cache.clone(), Arc::clone(&clock.0));
        let writer = std::thread::spawn(move || {
            // Each removal reads the clock once, under the lock of the shard: so this many are
            // done.
            while readings.load(Ordering::SeqCst) < before + 100 {
                std::hint::spin_loop();
            }
            late.into_iter().for_each(|key| other.insert(key, 0));
            readings.load(Ordering::SeqCst) - before
        });
        cache.invalidate_all();
        let taken = writer.join().expect("no panic");
        assert!(
            taken < MANY / 2,
            "a writer got in after {taken} of {MANY} removals"
        );
    }
}
