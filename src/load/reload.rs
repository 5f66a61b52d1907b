//! Reloads: loads over live entries, by guards that keep no cache alive.

use super::guard::{Keyless, OnDrop, OwnedGuard, Revoked};
use super::key::{CacheKey, CacheValue};
use super::state::{Load, Outcome};
use crate::contain::contain;
use crate::maintenance::WriteOutcome;
use crate::map::Revalidated;
use crate::node::NodePtr;
use crate::operations::{Change, Core, FromLoad, Hold, LifetimeSource, NextRefresh, set_refresh};
use crate::refresh::usual_pause;
use crate::stats::Count;
use crate::time::{self, MAX_LIFETIME_NANOS, NEVER};
use std::hash::BuildHasher;
use std::sync::Arc;
use std::time::Duration;

impl<K, V, S> OwnedGuard<K, V, S> {
    /// The guard of a load in the background, which no thread runs for now. `on_drop` says what
    /// waiters share if it is dropped.
    pub(crate) fn in_background(mut self, on_drop: OnDrop<K, V, S>) -> Self {
        self.load().set_leader(0);
        self.on_drop = Some(on_drop);
        self
    }

    /// Makes the waiters of the load wake when it becomes overdue.
    pub(crate) fn watch(&self) {
        if let Some(core) = self.core() {
            core.watch_load(self.load(), core.load_clock());
        }
    }

    /// Whether the key had a live entry when the run began.
    pub(crate) fn is_reload(&self) -> bool {
        self.load().reload_until().is_some()
    }

    /// Starts the run, and its time: waiting in the queue does not count. Returns the cache's time,
    /// or `None` if the cache was dropped.
    pub(crate) fn begin_run(&self) -> Option<u64> {
        let now = self.now()?;
        self.load().set_began(now);
        Some(now)
    }

    /// The cache's time; `None` if the cache is gone.
    pub(crate) fn now(&self) -> Option<u64> {
        self.core().map(|core| core.shared.clock.now())
    }

    /// The guard stands in a queue from now on: another call may take the load over.
    pub(crate) fn enter_queue(&mut self) {
        self.load().queue();
        self.queued = true;
    }

    /// Leaves the queue; `None` if another call has taken the load over, or its run would be of no
    /// use.
    pub(crate) fn leave_queue(mut self) -> Option<Self> {
        if !self.load().take_queued() {
            // The load may come into the queue once more: by another guard.
            self.ended = true;
            return None;
        }
        self.queued = false;
        if !self.is_useless() {
            return Some(self);
        }
        // It was revoked before its run, which is no failure.
        if let Some(core) = self.core() {
            core.shared.count(Count::DiscardedLoads);
        }
        self.keep();
        None
    }

    /// Whether no call wants the outcome, and it would not be stored.
    fn is_useless(&self) -> bool {
        !self.load().is_current() && !self.load().has_waiters()
    }

    /// Whether it still has to stand in the queue.
    pub(crate) fn is_queued(&self) -> bool {
        self.load().is_queued() && !self.is_useless()
    }
}

impl<K: CacheKey, V: CacheValue, S: BuildHasher> OwnedGuard<K, V, S> {
    /// The value that a reload starts from, and the lifetime that it has again if it is unchanged;
    /// `None` if this is no reload, the key has no value, or the cache is gone.
    pub(crate) fn old(&self) -> Option<(V, Option<Duration>)> {
        let core = self.core().filter(|_| self.is_reload())?;
        let (load, shared) = (self.load(), &core.shared);
        let pin = shared.pin();
        let hit = shared.find_live(load.hash(), load.key(), &pin)?;
        let lifetime = core.lifetimes.lifetime_of_unchanged(hit.node);
        Some((hit.node.value().clone(), lifetime))
    }

    /// Ends a load or a reload that has failed.
    pub(crate) fn give_up(self, failure: &Outcome<V>) {
        if let Some(core) = self.core() {
            // Before the failure is published: a caller that hears of it sees the next moment.
            core.back_off(self.load());
        }
        self.fail(failure);
    }

    /// Ends a reload that left the value unchanged: the entry's deadlines move as an update moves
    /// them. An entry that has expired meanwhile comes back.
    pub(crate) fn unchanged(mut self, old: V, from: FromLoad) {
        let Some(core) = self.core() else {
            drop(self.discard(None, Keyless::made(old)));
            return;
        };
        let load = self.load();
        let (core, hash) = (&*core, load.hash());
        let moved = (core.shared).transact(hash, MoveUnchanged { core, load, from });
        match moved.end() {
            Err(Revoked) => drop(self.discard(Some(core), Keyless::made(old))),
            Ok(None) => drop(self.fill(Keyless::made(old), LifetimeSource::Loaded(from))),
            Ok(Some((deadline, outcome))) => {
                let shared = self.load().has_sharers();
                let for_waiters = shared.then(|| Outcome::of(old, true, deadline));
                self.end(&for_waiters.unwrap_or(Outcome::Nothing), false);
                core.maintenance.after_write(&core.shared, outcome);
            }
        }
    }
}

/// The deadlines of an entry that a reload has left unchanged move, as a change.
struct MoveUnchanged<'l, K, V, S> {
    core: &'l Core<K, V, S>,
    load: &'l Arc<Load<K, V>>,
    from: FromLoad,
}

/// The deadline to which an entry was moved; `None` if it has expired, or was evicted.
type Moved = Result<Option<(u64, WriteOutcome)>, Revoked>;

/// The deadlines that the policies want.
struct Deadlines {
    now: u64,
    /// The deadline that they have seen; `None` if they are asked no more, and any will do.
    judged: Option<u64>,
    own: u64,
    wanted: u64,
    refresh: Option<NextRefresh>,
}

impl<K: CacheKey, V: CacheValue, S> Change<K, V> for MoveUnchanged<'_, K, V, S> {
    type Key = K;
    type Plan = Deadlines;
    type Done = Moved;
    const KNOWS_LOADS: bool = false;

    fn key(&self) -> &K {
        self.load.key()
    }

    fn ask(
        &mut self,
        found: Option<NodePtr<K, V>>,
        last: Option<Deadlines>,
    ) -> Result<Deadlines, Moved> {
        // While it is current no write comes, so only expiry or eviction takes the node away.
        if !self.load.is_current() {
            return Err(Err(Revoked));
        }
        let now = self.core.shared.clock.now();
        let now = now + u64::from(now == NEVER);
        let live = found.and_then(|node| Some((node, node.deadline_if_live(now)?)));
        let (node, deadline) = live.ok_or(Ok(None))?;
        if let Some(last) = last {
            return Ok(Deadlines {
                now,
                judged: None,
                ..last
            });
        }
        let (own, wanted, refresh) = self.core.ask_of_unchanged(node, self.from, now);
        Ok(Deadlines {
            now,
            judged: Some(deadline),
            own,
            wanted,
            refresh,
        })
    }

    fn apply<'s>(
        &mut self,
        plan: Deadlines,
        place: Revalidated<'s, K, V>,
        hold: &mut Hold<'_, 's, K, V>,
    ) -> Result<Moved, Deadlines> {
        if !self.load.is_current() {
            return Ok(Err(Revoked));
        }
        let Some(node) = place.node() else {
            return Ok(Ok(None));
        };
        let judged = plan.judged.unwrap_or_else(|| node.deadline());
        if time::is_due(plan.now, judged) {
            return Err(plan);
        }
        // Before the deadline, as a reader expects.
        let former = node.written();
        node.set_written(plan.now);
        if !hold
            .shard
            .move_deadline(node, judged, plan.own, plan.wanted)
        {
            node.set_written(former);
            return Err(plan);
        }
        set_refresh(node, plan.refresh);
        hold.shard.change_loads(|loads| loads.seal(self.load));
        let outcome = WriteOutcome::of_change(&hold.shard, plan.wanted, Some(plan.now));
        Ok(Ok(Some((plan.wanted, outcome))))
    }
}

impl<K: CacheKey, V: CacheValue, S> Core<K, V, S> {
    /// A reload of this entry begins. Under the shard's lock.
    pub(super) fn begin_refresh(&self, load: &Load<K, V>, node: NodePtr<K, V>, now: u64) {
        // When the right to a reload that begins now can be taken again.
        let most = self.lifetimes.limits.load_timeout;
        let most = most.unwrap_or(Duration::from_nanos(MAX_LIFETIME_NANOS));
        let until = time::deadline_after(now, most);
        load.set_reload(until);
        if let Some(refresh) = node.refresh() {
            refresh.begin(until);
        }
    }
}

impl<K: Eq + 'static, V: 'static, S> Core<K, V, S> {
    /// A reload has failed: the policy says when it is tried again.
    pub(crate) fn back_off(&self, load: &Load<K, V>) {
        let Some(until) = load.reload_until() else {
            return;
        };
        let shared = &self.shared;
        shared.count(Count::FailedReloads);
        if load.revoked().is_some() {
            // What the key has now is not what this reload began from.
            return;
        }
        let pin = shared.pin();
        let Some(hit) = shared.find_live(load.hash(), load.key(), &pin) else {
            return;
        };
        let (Some(refresh), Some(policy)) = (hit.node.refresh(), &self.refresh) else {
            return;
        };
        let failures = refresh.failures().saturating_add(1);
        let left = shared.clock.time_until(hit.node.deadline());
        let (key, value) = (hit.node.key(), hit.node.value());
        // The right to reload comes back also if the policy panics.
        let next = contain(|| policy.refresh_after_failure(key, value, failures, left))
            .unwrap_or_else(|| Some(usual_pause(failures)));
        refresh.end(until, time::deadline_in(shared.clock.now(), next), true);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Cache;

    /// Judges by a deadline that the entry does not have.
    struct Outrun<'l>(MoveUnchanged<'l, u64, u64, crate::RandomState>);

    impl Change<u64, u64> for Outrun<'_> {
        type Key = u64;
        type Plan = Deadlines;
        /// When the entry was written: before the move was tried, and after it.
        type Done = Option<(u64, u64)>;
        const KNOWS_LOADS: bool = false;

        fn key(&self) -> &u64 {
            self.0.key()
        }

        fn ask(
            &mut self,
            found: Option<NodePtr<u64, u64>>,
            last: Option<Deadlines>,
        ) -> Result<Deadlines, Self::Done> {
            let plan = self.0.ask(found, last).map_err(|_| None)?;
            let judged = plan.judged.map(|deadline| deadline - 1);
            Ok(Deadlines { judged, ..plan })
        }

        fn apply<'s>(
            &mut self,
            plan: Deadlines,
            place: Revalidated<'s, u64, u64>,
            hold: &mut Hold<'_, 's, u64, u64>,
        ) -> Result<Self::Done, Deadlines> {
            let found = place.node();
            let written = found.map(|node| node.written());
            let moved = self.0.apply(plan, place, hold);
            assert!(moved.is_err(), "its deadline was outrun");
            Ok(written.zip(found.map(|node| node.written())))
        }
    }

    #[test]
    fn a_move_that_is_outrun_changes_nothing() {
        let time = crate::ManualTicker::new();
        let minute = Duration::from_secs(60);
        let builder = Cache::builder().ticker(time.clone());
        let cache: Cache<u64, u64> = builder.time_to_live(minute).build();
        cache.insert(1, 1);
        time.advance(minute / 2);
        let core = cache.core();
        let hash = core.hash(&1);
        let load = &Arc::new(Load::new(hash, 1, 0, 0));
        let from = FromLoad {
            lifetime: None,
            refresh: None,
            reload: true,
            took: Duration::ZERO,
        };
        let outrun = Outrun(MoveUnchanged { core, load, from });
        let seen = core.shared.transact(hash, outrun).end();
        let (before, after) = seen.expect("the entry is there");
        assert_eq!(before, after);
    }
}
