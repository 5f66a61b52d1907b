//! Reloads: loads over live entries, by guards that keep no cache alive.

use super::guard::{Guard, Home, Keyless, OnDrop, Revoked};
use super::key::{CacheKey, CacheValue};
use super::state::{Load, Outcome, Phase};
use crate::contain::contain;
use crate::maintenance::WriteOutcome;
use crate::node::NodePtr;
use crate::operations::{Core, FromLoad, LifetimeSource, NextRefresh, set_refresh};
use crate::refresh::usual_pause;
use crate::stats::Count;
use crate::time::{self, NEVER};
use std::hash::BuildHasher;
use std::sync::Arc;
use std::time::Duration;

impl<K, V, H: Home<K, V>> Guard<K, V, H> {
    /// The guard of a load in the background, which no thread runs for now. `on_drop` says what
    /// waiters share if it is dropped.
    pub(crate) fn in_background(mut self, on_drop: OnDrop<K, V, H::Hasher>) -> Self {
        self.load().set_leader(0);
        self.on_drop = Some(on_drop);
        self
    }

    /// The load waits for a thread from now on. The thread that [takes it](Self::of_queued) leads,
    /// or a call that takes it over.
    pub(crate) fn into_queue(mut self) -> Arc<Load<K, V>> {
        self.ended = true;
        self.load().queue();
        Arc::clone(self.load())
    }

    /// The guard of a load that waits for a thread; `None` if another call has taken it over, or
    /// its run would be of no use.
    pub(crate) fn of_queued(
        home: H,
        load: &Arc<Load<K, V>>,
        on_drop: OnDrop<K, V, H::Hasher>,
    ) -> Option<Self> {
        // Its time begins in the same step: else it could be judged by how long it has waited.
        // The ticker may panic.
        let now = contain(|| home.visit().map(|core| core.shared.clock.now()));
        let now = now.flatten().unwrap_or_else(|| load.began());
        load.take_lead(|phase| phase == Phase::Queued, now)?;
        let mut guard = Self::new(home, Arc::clone(load)).in_background(on_drop);
        guard.runs = true;
        if load.is_wanted() {
            return Some(guard);
        }
        // It was revoked before its run, which is no failure.
        if let Some(core) = guard.core() {
            core.shared.count(Count::DiscardedLoads);
        }
        guard.keep();
        None
    }

    /// Whether the key had a live entry when the run began.
    fn is_reload(&self) -> bool {
        self.load().reload_until().is_some()
    }

    /// Starts the run, and its time: waiting for a thread or a task does not count. False if the
    /// cache is gone.
    pub(crate) fn begin_run(&self) -> bool {
        let core = self.core();
        if let Some(core) = &core {
            self.load().set_began(core.shared.clock.now());
            core.watch_load(self.load());
        }
        core.is_some()
    }

    /// What the policies are told of a value that the run has made: what the loader says about it,
    /// and how long it took.
    pub(crate) fn loaded(
        &self,
        lifetime: Option<Option<Duration>>,
        refresh: Option<Duration>,
    ) -> FromLoad {
        let began = self.load().began();
        let ended = self.core().map_or(began, |core| core.shared.clock.now());
        FromLoad {
            lifetime,
            refresh,
            reload: self.is_reload(),
            took: Duration::from_nanos(time::elapsed(ended, began)),
        }
    }
}

impl<K: CacheKey, V: CacheValue, H: Home<K, V, Hasher: BuildHasher>> Guard<K, V, H> {
    /// The value that a reload starts from, and the lifetime that it has again if it is unchanged;
    /// `None` if this is no reload, the key has no value, or the cache is gone.
    pub(crate) fn old(&self) -> Option<(Box<Keyless<V>>, Option<Duration>)> {
        let core = self.core().filter(|_| self.is_reload())?;
        let (load, shared) = (self.load(), &core.shared);
        let pin = shared.pin();
        let hit = shared.find_live(load.hash, load.key(), &pin)?;
        let lifetime = core.lifetimes.lifetime_of_unchanged(hit.node);
        Some((Keyless::of_node(shared, hit.node), lifetime))
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
    pub(crate) fn unchanged(mut self, mut old: Box<Keyless<V>>, from: FromLoad) {
        (old.left, old.stored) = (None, false);
        let Some(core) = self.core() else {
            drop(self.discard(None, old));
            return;
        };
        let (load, shared) = (self.load(), &core.shared);
        // The time, the deadline that the policies have seen (`None` if they are asked no more, and
        // any will do), and what they want.
        type Plan = (u64, Option<u64>, (u64, u64, Option<NextRefresh>));
        let ask = |found: Option<NodePtr<K, V>>, last: Option<Plan>| {
            // While it is current no write comes, so only expiry or eviction takes the node away.
            if !load.is_current() {
                return Err(Err(Revoked));
            }
            let now = shared.clock.now();
            let now = now + u64::from(now == NEVER);
            let live = found.and_then(|node| Some((node, node.deadline_if_live(now)?)));
            let (node, deadline) = live.ok_or(Ok(None))?;
            let asked = || (Some(deadline), core.ask_of_unchanged(node, from, now));
            let (judged, wants) = last.map_or_else(asked, |(.., wants)| (None, wants));
            Ok((now, judged, wants))
        };
        let moved = shared.change(load.hash, load.key(), ask, |plan, place, hold| {
            if !load.is_current() {
                return Ok(Err(Revoked));
            }
            let Some(node) = place.node() else {
                return Ok(Ok(None));
            };
            let (now, judged, (own, wanted, refresh)) = plan;
            let judged = judged.unwrap_or_else(|| node.deadline());
            if time::is_due(now, judged) {
                return Err(plan);
            }
            // Before the deadline, as a reader expects.
            let former = node.written();
            node.set_written(now);
            if !hold.shard.move_deadline(node, judged, own, wanted) {
                node.set_written(former);
                return Err(plan);
            }
            set_refresh(node, refresh);
            hold.shard.change_loads(|loads| loads.seal(load));
            let outcome = WriteOutcome::of_change(&hold.shard, wanted, Some(now));
            Ok(Ok(Some((wanted, outcome))))
        });
        match moved {
            Err(Revoked) => drop(self.discard(Some(&core), old)),
            Ok(None) => drop(self.fill(old, LifetimeSource::Loaded(from))),
            Ok(Some((deadline, outcome))) => {
                old.stored = true;
                // The value moves to the calls that share it, from box to box.
                self.end(&Outcome::Value(Arc::from(old), deadline), false);
                core.maintenance.after_write(&core.shared, outcome);
            }
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
        let Some(hit) = shared.find_live(load.hash, load.key(), &pin) else {
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
