//! Reloads: loads of a `LoadingCache` over live entries. They begin and end as all loads do.
//!
//! The entry's moment of refresh says whether a reload is under way: from its begin on, it is the
//! moment at which the right to reload comes back by itself. The end of the reload sets it.

use super::Loadable;
use super::guard::{Guard, ToCache};
use crate::compute::Keyless;
use crate::contain::{contain, let_go};
use crate::engine::{Engine, FromLoad, LifetimeSource, TimedAnswer, WriteOutcome};
use crate::flight::{Load, Outcome};
use crate::node::NodePtr;
use crate::operations::{Decision, NextRefresh, Tried, set_refresh};
use crate::refresh::usual_pause;
use crate::stats::Count;
use crate::time::{self, MAX_LIFETIME_NANOS};
use std::sync::Arc;
use std::time::Duration;

impl<K: Loadable + Eq, V: Loadable, C: ToCache<K, V>> Guard<K, V, C> {
    /// The value that a reload is to replace. `left` is the lifetime to give it again if the loader
    /// says that it is unchanged. `None` if the key has no value, or the cache is gone.
    pub(crate) fn old(&self) -> Option<Box<Keyless<V>>> {
        let engine = self.engine()?;
        let load = self.load();
        let pin = engine.pin();
        let hit = engine.find_live(load.hash, load.key(), &pin)?;
        let mut old = Keyless::made(hit.node.value().clone());
        old.left = engine.lifetimes.lifetime_of_unchanged(hit.node);
        Some(old)
    }

    /// Ends a reload that left the value unchanged: the entry's deadlines move as an update moves
    /// them. An entry that has expired meanwhile comes back.
    pub(crate) fn unchanged(self, mut old: Box<Keyless<V>>, from: FromLoad) {
        let engine = self.enter();
        let mut guard = self;
        let mut moved = None;
        if let Some(engine) = engine.as_deref() {
            engine.forget_failure(guard.load().key());
            moved = engine.renew(guard.load(), from);
        }
        let Some(outcome) = moved else {
            // The entry is gone, or the cache; or the load was revoked.
            let_go(guard.fill(&mut old, LifetimeSource::Loaded(from)));
            return let_go(old);
        };
        old.fresh = false;
        old.stored = true;
        // The value moves to the calls that share it, from box to box.
        let shared = Outcome::Value(Arc::from(old), outcome.deadline);
        guard.end_run(engine.as_deref(), &shared, false);
        if let Some(engine) = engine.as_deref() {
            engine.after_write(outcome);
        }
        let_go(shared);
    }
}

impl<K: Loadable + Eq, V: Loadable> Engine<K, V> {
    /// Moves the deadlines of the live entry whose value this reload has left unchanged, as an
    /// update would, and seals the load. `None` if the key has no live entry, or the load is no
    /// longer current.
    fn renew(&self, load: &Arc<Load<K, V>>, from: FromLoad) -> Option<WriteOutcome> {
        // The deadline that moves; the policy's answer; and when the entry is stale.
        type Answers = (u64, TimedAnswer, Option<NextRefresh>);
        let ask = |found: Option<NodePtr<K, V>>, last: Option<Answers>| {
            // While it is current no write comes, so only expiry or eviction takes the node away.
            if !load.is_current() {
                return Decision::End(None);
            }
            let Some(node) = found else {
                return Decision::End(None);
            };
            let now = time::of_write(self.clock.now());
            let Some(deadline) = node.live_or_claim(now) else {
                return Decision::End(None);
            };
            let (mut asked, refresh) = match last {
                Some((_, asked, refresh)) => (asked, refresh),
                None => self.ask_of_unchanged(node, from, now),
            };
            asked.now = now;
            Decision::Apply((deadline, asked, refresh))
        };
        self.change(load.hash, load.key(), ask, |answers, place, shard| {
            if !load.is_current() {
                return Tried::Done(None);
            }
            let Some(node) = place.node() else {
                return Tried::Done(None);
            };
            let (deadline, asked, refresh) = answers;
            // Its own deadline is read under the lock: another call may have set it meanwhile.
            let times = asked.times(Some(node.own_deadline()), &self.lifetimes);
            // Before the deadline, as a reader expects.
            let former = node.written();
            node.set_written(times.written);
            if !shard.set_deadlines(node, deadline, times.own, times.deadline) {
                node.set_written(former);
                return Tried::Again(answers);
            }
            set_refresh(node, refresh);
            shard.change_loads(|loads| loads.seal(load));
            let outcome = WriteOutcome::of_change(shard, times.deadline, times.written);
            Tried::Done(Some(outcome))
        })
    }
}

impl<K, V> Engine<K, V> {
    /// A load begins over this live entry. Under the shard's lock.
    pub(super) fn begin_reload(&self, load: &Load<K, V>, live: NodePtr<K, V>, now: u64) {
        let most = match &self.timeouts {
            Some(timeouts) => timeouts.most,
            None => Duration::from_nanos(MAX_LIFETIME_NANOS),
        };
        let until = time::deadline_after(now, most);
        load.set_reload(until);
        if let Some(refresh) = live.refresh() {
            refresh.begin(until);
        }
        self.count(Count::Reloads);
    }
}

impl<K: Eq + 'static, V: 'static> Engine<K, V> {
    /// A reload has failed: the policy says when it is tried again, unless the loader does.
    pub(crate) fn back_off(
        &self,
        load: &Load<K, V>,
        retry_after: impl FnOnce(u32) -> Option<Duration>,
    ) {
        let Some(until) = load.reload_until() else {
            return;
        };
        self.count(Count::FailedReloads);
        let pin = self.pin();
        // What the key has after a write is not what this reload began from.
        if load.revoked().is_none() {
            if let Some(hit) = self.find_live(load.hash, load.key(), &pin) {
                if let (Some(refresh), Some(policy)) = (hit.node.refresh(), &self.refresh) {
                    let failures = refresh.failures().saturating_add(1);
                    let now = self.clock.now();
                    let left = time::time_left(now, hit.node.deadline());
                    let key = hit.node.key();
                    let value = hit.node.value();
                    // The right to reload comes back also if the loader or the policy panics.
                    let next = match contain(|| retry_after(failures)) {
                        Some(Some(pause)) => Some(pause),
                        _ => contain(|| policy.refresh_after_failure(key, value, failures, left))
                            .unwrap_or_else(|| usual_pause(failures)),
                    };
                    let next = time::deadline_in(now, next);
                    refresh.fail(until, next);
                }
            }
        }
    }
}
