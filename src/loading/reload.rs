//! Reloads over live entries, and the right to load as a value that keeps no cache alive.

use super::bounds::{CacheKey, CacheValue};
use super::commit::{Lead, publish};
use crate::contain::contain;
use crate::load::{Failure, Load, Outcome, RevokedBy, SameHashLoads, Ticket, wake_all};
use crate::maintenance::WriteOutcome;
use crate::node::NodePtr;
use crate::operations::{
    FromLoad, LifetimeSource, LoadView, MAX_ASKS, Visit, WeakHandle, set_refresh,
};
use crate::refresh::usual_pause;
use crate::stats::Counters;
use crate::time::{self, MAX_LIFETIME_NANOS, NEVER};
use equivalent::Equivalent;
use std::hash::BuildHasher;
use std::sync::Arc;
use std::time::Duration;

/// The result of a load or a reload.
#[derive(Debug)]
pub(crate) enum ReloadResult<V> {
    /// A value that is to be stored.
    New(V, FromLoad),
    /// The old value, which is still right.
    Unchanged(V, FromLoad),
    /// The key has no value any more.
    Gone,
    Failed(Failure),
}

/// The right to load a key in the background. If it is dropped before it is finished, that counts
/// as a failure.
pub(crate) struct Right<K: Eq + 'static, V: 'static, S> {
    core: WeakHandle<K, V, S>,
    /// `None` when the run has ended.
    load: Option<Arc<Load<K, V>>>,
    /// For a reload: the entry's moment of refresh while it is under way.
    until: Option<u64>,
    /// The failure that waiters get if this is dropped, or if user code panics before the commit.
    failure: fn() -> Failure,
    /// Whether it stands in a queue: then another call may have taken the load over.
    queued: bool,
}

impl<K: Eq + 'static, V: 'static, S> Right<K, V, S> {
    /// The right to load, from a lead. `until`: the entry's refresh moment while the reload runs.
    pub(crate) fn of(
        lead: Lead<'_, K, V, S>,
        core: WeakHandle<K, V, S>,
        until: Option<u64>,
        failure: fn() -> Failure,
    ) -> Self {
        lead.load().set_leader(0);
        Self {
            core,
            load: Some(lead.into_load()),
            until,
            failure,
            queued: false,
        }
    }

    /// Whether the key had a live entry when the run began.
    pub(crate) fn is_reload(&self) -> bool {
        self.until.is_some()
    }

    /// The load, until the run has ended.
    pub(crate) fn load(&self) -> &Arc<Load<K, V>> {
        let Some(load) = &self.load else {
            unreachable!("finishing takes the right");
        };
        load
    }

    pub(crate) fn core(&self) -> Option<Visit<K, V, S>> {
        self.core.visit()
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

    /// The right stands in a queue from now on: another call may take the load over.
    pub(crate) fn enter_queue(&mut self) {
        self.load().queue();
        self.queued = true;
    }

    /// Leaves the queue; `None` if another call has taken the load over, or its run would be of no
    /// use.
    pub(crate) fn leave_queue(mut self) -> Option<Self> {
        self.queued = false;
        if !self.load().take_queued() {
            self.load = None;
        } else if self.is_useless() {
            self.discard();
        }
        self.load.is_some().then_some(self)
    }

    /// Whether no call wants the outcome, and it would not be stored.
    fn is_useless(&self) -> bool {
        !self.load().is_current() && !self.load().has_waiters()
    }

    /// Whether it still has to stand in the queue.
    pub(crate) fn is_queued(&self) -> bool {
        self.load().is_queued() && !self.is_useless()
    }

    /// Ends a load that was revoked before its run, which is no failure.
    fn discard(&mut self) {
        if let (Some(core), Some(load)) = (self.core(), self.load.take()) {
            Lead::of_lease(&core, load).release_discarded();
        }
    }
}

impl<K: CacheKey, V: CacheValue, S: BuildHasher> Right<K, V, S> {
    /// The value that a reload starts from, and the lifetime that it has again if it is unchanged;
    /// `None` if the key has none, or the cache is gone.
    pub(crate) fn old(&self) -> Option<(V, Option<Duration>)> {
        let core = self.core()?;
        let (load, shared) = (self.load(), &core.shared);
        let pin = shared.pin();
        let hit = shared.find_live(load.hash(), load.key(), &pin)?;
        let lifetime = core.lifetimes.lifetime_of_unchanged(hit.node);
        Some((hit.node.value().clone(), lifetime))
    }

    /// Commits the outcome, and publishes it. A panic of user code on the way is a failure.
    pub(crate) fn finish(mut self, reload_result: ReloadResult<V>) {
        let Some(core) = self.core() else {
            return self.finish_without_cache(reload_result);
        };
        let Some(load) = self.load.take() else {
            return;
        };
        let until = self.until;
        let mut lead = Lead::of_lease(&core, Arc::clone(&load));
        lead.fails_as(self.failure);
        let done = contain(|| match reload_result {
            ReloadResult::New(value, from) => {
                drop(lead.commit(value, LifetimeSource::Loaded(from)))
            }
            ReloadResult::Unchanged(old, from) => lead.keep(old, from),
            ReloadResult::Gone => lead.gone(),
            ReloadResult::Failed(failure) => {
                // Before the failure is published: a caller that hears of it sees the next moment.
                core.loads().back_off(&load, until);
                lead.fail(failure);
            }
        });
        if done.is_none() {
            core.loads().back_off(&load, until);
        }
    }

    /// Tells the waiters, though there is no cache to store in.
    fn finish_without_cache(mut self, reload_result: ReloadResult<V>) {
        let Some(load) = self.load.take() else {
            return;
        };
        let outcome = match reload_result {
            ReloadResult::New(value, _) | ReloadResult::Unchanged(value, _) => {
                publish(Some(value), false, NEVER)
            }
            ReloadResult::Gone => Outcome::Failed(Failure::Absent),
            ReloadResult::Failed(failure) => Outcome::Failed(failure),
        };
        wake_all(load.end(&outcome, 0).wakers);
    }
}

impl<K: Eq + 'static, V: 'static, S> Drop for Right<K, V, S> {
    fn drop(&mut self) {
        let Some(load) = self.load.take() else {
            return;
        };
        if self.queued && !load.take_queued() {
            return;
        }
        let outcome = Outcome::Failed((self.failure)());
        match self.core.visit() {
            Some(core) => {
                contain(|| core.loads().back_off(&load, self.until));
                Lead::of_lease(&core, load).end(&outcome, true);
            }
            None => wake_all(load.end(&outcome, 0).wakers),
        }
    }
}

impl<K: Eq + 'static, V: 'static, S> std::fmt::Debug for Right<K, V, S> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Right")
            .field("load", &self.load)
            .finish_non_exhaustive()
    }
}

/// A waiter of a load gives up; a lead that it was told to take passes to the next one.
pub(crate) fn leave<K, V, S>(core: &WeakHandle<K, V, S>, load: &Arc<Load<K, V>>, ticket: Ticket) {
    if load.leave(ticket) {
        pass_on(core, load);
    }
}

/// A waiter that was told to lead does not: the next one does.
pub(crate) fn pass_on<K, V, S>(core: &WeakHandle<K, V, S>, load: &Arc<Load<K, V>>) {
    match core.visit() {
        Some(core) => drop(Lead::new(&core, Arc::clone(load))),
        None => wake_all(load.end(&Outcome::Nothing, 0).wakers),
    }
}

/// The outcome of a reload that left the value unchanged.
enum Kept {
    Moved(WriteOutcome, u64),
    /// The load is no longer current.
    Revoked,
    /// The entry has expired, or was evicted.
    Absent,
}

impl<K: CacheKey, V: CacheValue, S: BuildHasher> Lead<'_, K, V, S> {
    /// Ends a reload that left the value unchanged: the entry's deadlines move as an update moves
    /// them. An entry that has expired meanwhile comes back.
    fn keep(mut self, old: V, from: FromLoad) {
        let core = self.core();
        match core.loads().move_unchanged(self.load(), &from) {
            Kept::Moved(outcome, deadline) => {
                let for_waiters = self.load().has_sharers().then_some(old);
                self.end(&publish(for_waiters, true, deadline), false);
                core.maintenance.after_write(&core.shared, outcome);
            }
            Kept::Revoked => drop(self.discard(old)),
            Kept::Absent => drop(self.commit(old, LifetimeSource::Loaded(from))),
        }
    }

    /// Ends a reload that found no value: the entry is removed.
    fn gone(mut self) {
        let core = self.core();
        let none = Outcome::Failed(Failure::Absent);
        let Some((_, outcome)) = self.take_out() else {
            core.shared.count(Counters::load_discarded);
            let live = core.loads().peek_got(self.load().hash(), self.load().key());
            let outcome = live.map_or(none, |got| publish(Some(got.value), false, NEVER));
            return self.end(&outcome, false);
        };
        self.end(&none, false);
        if let Some(outcome) = outcome {
            core.maintenance.after_write(&core.shared, outcome);
        }
    }
}

impl<'a, K: CacheKey, V: CacheValue, S: BuildHasher> LoadView<'a, K, V, S> {
    /// The right to reload a key, if it has a stale entry, and no load or an overdue one. Also the
    /// moment of refresh that the entry has while the reload is under way.
    pub(crate) fn begin_reload<Q>(self, hash: u64, key: &Q) -> Option<(Lead<'a, K, V, S>, u64)>
    where
        Q: Equivalent<K> + ?Sized,
    {
        let map = &self.core.shared.map;
        let mut same_hash = SameHashLoads::new();
        loop {
            let pin = self.core.shared.pin();
            let probe = map.probe(hash, &pin, |node| key.equivalent(node.key()));
            let node = probe.found?;
            let now = self.core.shared.clock.now();
            let stale = |node: NodePtr<K, V>| {
                let lives = !time::is_due(now, node.deadline());
                lives && node.refresh().is_some_and(|refresh| refresh.is_stale(now))
            };
            if !stale(node) {
                return None;
            }
            let owned = node.key().clone();
            let mut shard = probe.lock();
            if shard.revalidate(hash, &probe).is_none() {
                continue;
            }
            // A reload may have ended since.
            if !stale(node) {
                return None;
            }
            let mut overdue = None;
            if !shard.loads().is_empty() {
                if !shard.loads().classify(hash, &mut same_hash) {
                    drop((shard, probe));
                    drop(pin);
                    same_hash.compare(|other| key.equivalent(other));
                    continue;
                }
                if let Some(load) = same_hash.mine() {
                    if !self.is_overdue(load, now) {
                        return None;
                    }
                    overdue = Some(Arc::clone(load));
                }
            }
            let load = Arc::new(Load::new(hash, owned, 0, now));
            if let Some(overdue) = &overdue {
                shard.loads_mut().revoke(overdue, RevokedBy::NewerLoad);
            }
            let until = self.reload_until(now);
            if let Some(refresh) = node.refresh() {
                refresh.begin(until);
            }
            shard.list_load(Arc::clone(&load));
            drop(probe);
            drop(pin);
            let lead = Lead::of_run(self.core, load);
            self.core.shared.count(Counters::reload_began);
            if let Some(overdue) = overdue {
                overdue.release_waiters();
            }
            return Some((lead, until));
        }
    }

    /// Notes that a lead over a live entry is a reload; `None` if the entry has gone.
    pub(crate) fn mark_reload(self, load: &Arc<Load<K, V>>) -> Option<u64> {
        let pin = self.core.shared.pin();
        let node = self
            .core
            .shared
            .find_live(load.hash(), load.key(), &pin)?
            .node;
        let until = self.reload_until(self.core.shared.clock.now());
        let mut shard = self.core.shared.map.lock(load.hash());
        // Current, under the lock: so no write has replaced the node that the key has now.
        if load.is_current()
            && shard.find_node(load.hash(), node).is_some()
            && let Some(refresh) = node.refresh()
        {
            refresh.begin(until);
        }
        drop(shard);
        self.core.shared.count(Counters::reload_began);
        Some(until)
    }

    /// When the right to a reload that begins now can be taken again.
    fn reload_until(self, now: u64) -> u64 {
        let most = self.core.lifetimes.limits.load_timeout;
        let most = most.unwrap_or(Duration::from_nanos(MAX_LIFETIME_NANOS));
        time::deadline_after(now, most)
    }

    /// Moves the deadlines of an entry that a reload has left unchanged, if the load is current.
    ///
    /// Another thread may move the deadline meanwhile, and the policy itself may. Then the policy
    /// is asked again, up to [`MAX_ASKS`] times; after that its last answer holds.
    fn move_unchanged(self, load: &Arc<Load<K, V>>, from: &FromLoad) -> Kept {
        let map = &self.core.shared.map;
        let (hash, clock) = (load.hash(), &self.core.shared.clock);
        let mut asks = 0;
        let mut answer = None;
        loop {
            // While it is current no write comes, so only expiry or eviction takes the node away.
            if !load.is_current() {
                return Kept::Revoked;
            }
            let pin = self.core.shared.pin();
            let found = map.find(hash, &pin, |node| load.key() == node.key());
            let live = found.and_then(|node| {
                let now = clock.now();
                Some((node, now, node.deadline_if_live(now)?))
            });
            let Some((node, now, deadline)) = live else {
                return Kept::Absent;
            };
            let (own, wanted, refresh) = match answer {
                Some(answer) if asks >= MAX_ASKS => answer,
                _ => {
                    asks += 1;
                    let lifetimes = &self.core.lifetimes;
                    let (own, wanted) =
                        lifetimes.deadlines_of_unchanged(node, now, deadline, from.lifetime, clock);
                    let refresh = self.core.refresh.as_ref().map(|policy| {
                        let entry = (node.key(), node.value());
                        let given = LifetimeSource::Loaded(*from);
                        lifetimes.ask_refresh(
                            &**policy,
                            entry,
                            Some(node),
                            given,
                            (now, own),
                            clock,
                        )
                    });
                    *answer.insert((own, wanted, refresh))
                }
            };
            let mut shard = map.lock(hash);
            if !load.is_current() {
                return Kept::Revoked;
            }
            let judged = if asks < MAX_ASKS {
                deadline
            } else {
                node.deadline()
            };
            if shard.find_node(hash, node).is_none() || time::is_due(now, judged) {
                drop(shard);
                continue;
            }
            node.set_written(if now == NEVER { now + 1 } else { now });
            if !shard.move_deadline(node, judged, own, wanted) {
                drop(shard);
                continue;
            }
            set_refresh(node, refresh);
            _ = shard.loads_mut().seal(load);
            let outcome = WriteOutcome::of_change(&shard, wanted, Some(now));
            return Kept::Moved(outcome, wanted);
        }
    }
}

impl<K: Eq + 'static, V: 'static, S> LoadView<'_, K, V, S> {
    /// A reload has failed: the policy says when it is tried again. `until` is the entry's moment
    /// of refresh while the reload was under way.
    fn back_off(self, load: &Load<K, V>, until: Option<u64>) {
        let Some(until) = until else { return };
        self.core.shared.count(Counters::reload_failed);
        if load.revoked().is_some() {
            // What the key has now is not what this reload began from.
            return;
        }
        let pin = self.core.shared.pin();
        let Some(hit) = self.core.shared.find_live(load.hash(), load.key(), &pin) else {
            return;
        };
        let (Some(refresh), Some(policy)) = (hit.node.refresh(), &self.core.refresh) else {
            return;
        };
        let failures = refresh.failures().saturating_add(1);
        let left = self.core.shared.clock.time_until(hit.node.deadline());
        let (key, value) = (hit.node.key(), hit.node.value());
        // The right to reload comes back also if the policy panics.
        let next = contain(|| policy.refresh_after_failure(key, value, failures, left))
            .unwrap_or_else(|| Some(usual_pause(failures)));
        let now = self.core.shared.clock.now();
        let next = time::deadline_in(now, next);
        refresh.fail(until, next);
    }
}
