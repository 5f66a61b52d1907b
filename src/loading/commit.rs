//! The end of a load: its value is stored if the load is still current, then published.

use super::bounds::{CacheKey, CacheValue};
use super::got::Got;
use crate::contain::contain;
use crate::listener::RemovalCause;
use crate::load::{AfterCommit, Failure, Load, Outcome, RevokedBy, SharedValue, wake_all};
use crate::maintenance::WriteOutcome;
use crate::node::NodePtr;
use crate::operations::{
    Check, Core, Hold, LifetimeSource, LoadView, Refused, WriteCondition, Written,
};
use crate::stats::Counters;
use crate::time::{self, NEVER};
use std::hash::BuildHasher;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;

/// The right and the duty of a leader. If it is dropped without an outcome, the longest-waiting
/// waiter leads next.
pub(crate) struct Lead<'a, K, V, S> {
    core: &'a Core<K, V, S>,
    load: Arc<Load<K, V>>,
    /// Whether the run was counted as begun, and has yet to be counted as ended.
    runs: bool,
    ended: bool,
    /// The failure that waiters get if this is dropped; without it, the next of them leads.
    dropped: Option<fn() -> Failure>,
}

/// The outcome of a leader's value.
#[derive(Debug)]
pub(crate) enum Committed<V> {
    /// It was stored, or let in and could not be kept.
    Stored {
        /// The leader's own clone.
        got: Got<V>,
        /// Whether it replaced a live value.
        replaced: bool,
    },
    /// The load was no longer current: nothing was stored.
    Revoked {
        by: RevokedBy,
        /// The live entry of the key, if there is one.
        live: Option<Got<V>>,
        value: V,
    },
}

impl<V> Committed<V> {
    /// A write that was made.
    pub(super) fn stored(value: V, written: Written) -> Self {
        Self::Stored {
            got: Got {
                value,
                fresh: true,
                stored: written.is_stored(),
                left: time::time_left(written.now, written.deadline),
            },
            replaced: written.cause == Some(RemovalCause::Replaced),
        }
    }
}

/// The condition of a load's own write.
struct Commit<'l, K, V> {
    load: &'l Arc<Load<K, V>>,
    made: &'l mut Option<(Written, AfterCommit)>,
}

impl<K, V> WriteCondition<K, V> for Commit<'_, K, V> {
    const KNOWS_LOADS: bool = false;

    fn check(&mut self, _: Option<NodePtr<K, V>>, _: u64, _: &mut Hold<'_, '_, K, V>) -> Check {
        if self.load.is_current() {
            Check::Pass
        } else {
            Check::Refuse
        }
    }

    fn stored(&mut self, hold: &mut Hold<'_, '_, K, V>, written: Written) {
        *self.made = Some((written, hold.shard.loads_mut().seal(self.load)));
    }
}

impl<'a, K, V, S> Lead<'a, K, V, S> {
    pub(super) fn new(core: &'a Core<K, V, S>, load: Arc<Load<K, V>>) -> Self {
        Self {
            core,
            load,
            runs: false,
            ended: false,
            dropped: None,
        }
    }

    /// The lead of a run that begins now.
    #[inline]
    pub(super) fn of_run(core: &'a Core<K, V, S>, load: Arc<Load<K, V>>) -> Self {
        core.shared.count(Counters::load_began);
        Self::of_lease(core, load)
    }

    /// The lead of a run that was counted before, as a [`Lease`](super::Lease) holds it.
    pub(super) fn of_lease(core: &'a Core<K, V, S>, load: Arc<Load<K, V>>) -> Self {
        let mut lead = Self::new(core, load);
        lead.runs = true;
        lead
    }

    /// If this is dropped, waiters get this failure; none of them becomes the leader.
    pub(super) fn fails_as(&mut self, failure: fn() -> Failure) {
        self.dropped = Some(failure);
    }

    /// Gives the lead away: nothing is done when this is dropped.
    pub(super) fn into_load(mut self) -> Arc<Load<K, V>> {
        self.ended = true;
        Arc::clone(&self.load)
    }

    pub(super) fn core(&self) -> &'a Core<K, V, S> {
        self.core
    }

    pub(crate) fn load(&self) -> &Arc<Load<K, V>> {
        &self.load
    }

    /// User code is about to run, on the thread with this number if it is not 0.
    pub(super) fn begins(&mut self, thread: u64) {
        self.load.set_leader(thread);
        if !std::mem::replace(&mut self.runs, true) {
            self.core.shared.count(Counters::load_began);
        }
    }

    /// Ends the run with no value.
    pub(super) fn fail(mut self, failure: Failure) {
        self.end(&Outcome::Failed(failure), true);
    }

    /// Ends the run of a compute that made no value, which is no failure.
    pub(super) fn release(mut self) {
        self.end(&Outcome::Nothing, false);
    }

    /// The same for a compute whose effect a write has overtaken.
    pub(super) fn release_discarded(self) {
        self.core.shared.count(Counters::load_discarded);
        self.release();
    }

    pub(super) fn end(&mut self, outcome: &Outcome<V>, failed: bool) {
        self.note_end(failed);
        self.core.loads().end_run(&self.load, outcome);
    }

    /// The run has ended: it is counted, if runs are.
    #[inline]
    fn note_end(&mut self, failed: bool) {
        self.ended = true;
        if self.runs && self.core.shared.counters.is_some() {
            self.count_end(failed);
        }
    }

    #[inline(never)]
    fn count_end(&self, failed: bool) {
        count_time(self.core, self.load.began());
        if failed {
            self.core.shared.count(Counters::load_failed);
        }
    }

    /// The end of a run whose lead was dropped without an outcome.
    #[cold]
    #[inline(never)]
    fn end_dropped(&mut self) {
        let ran = self.runs;
        let outcome = match self.dropped {
            Some(failure) => Outcome::Failed(failure()),
            None => Outcome::Nothing,
        };
        self.end(&outcome, ran);
    }
}

/// Counts how long a run took that began at this cache time.
#[inline(never)]
pub(super) fn count_time<K, V, S>(core: &Core<K, V, S>, began: u64) {
    let shared = &core.shared;
    let Some(counters) = &shared.counters else {
        return;
    };
    // If the ticker panics, waiters must be woken all the same.
    contain(|| {
        counters.load_took(time::elapsed(shared.clock.now(), began));
    });
}

impl<K: CacheKey, V: CacheValue, S: BuildHasher> Lead<'_, K, V, S> {
    /// Stores the value if the load is still current, and ends the run.
    #[inline]
    pub(crate) fn commit(self, value: V, given: LifetimeSource) -> Committed<V> {
        let core = self.core;
        // User code, all of it with no lock held.
        let mine = value.clone();
        let key = self.load.key().clone();
        let mut made = None;
        let condition = Commit {
            load: &self.load,
            made: &mut made,
        };
        let outcome = match core.put_through(self.load.hash(), key, value, given, condition) {
            Ok(outcome) => outcome,
            Err(Refused(value)) => return self.discard(value),
        };
        let Some((written, sealed)) = made else {
            unreachable!("a write that was made has sealed the load");
        };
        self.follow_up(mine, outcome, written, sealed)
    }

    /// The steps after the value was stored.
    pub(super) fn follow_up(
        mut self,
        mine: V,
        outcome: WriteOutcome,
        written: Written,
        sealed: AfterCommit,
    ) -> Committed<V> {
        let core = self.core;
        let shared = match sealed {
            AfterCommit::Over => {
                self.note_end(false);
                Ok(())
            }
            AfterCommit::Ending | AfterCommit::HasWaitersForTurn => self.share(&mine, written),
        };
        core.maintenance.after_write(&core.shared, outcome);
        if let Err(panic) = shared {
            resume_unwind(panic);
        }
        Committed::stored(mine, written)
    }

    /// Ends the run with a value that was stored: the calls that wait for it get clones. If making
    /// one panics, the next of them leads.
    #[cold]
    fn share(&mut self, value: &V, written: Written) -> std::thread::Result<()> {
        let cloned = (self.load.has_sharers())
            .then(|| catch_unwind(AssertUnwindSafe(|| value.clone())))
            .transpose();
        let (cloned, result) = match cloned {
            Ok(cloned) => (cloned, Ok(())),
            Err(panic) => (None, Err(panic)),
        };
        let stored = written.is_stored();
        self.end(&publish(cloned, stored, written.deadline), false);
        result
    }

    /// Ends the run of a load that was revoked: all waiters get the live value, or the loaded one
    /// if there is none.
    #[cold]
    #[inline(never)]
    pub(super) fn discard(mut self, value: V) -> Committed<V> {
        let (core, load) = (self.core, Arc::clone(&self.load));
        core.shared.count(Counters::load_discarded);
        let live = core.loads().peek_got(load.hash(), load.key());
        let for_waiters = load
            .has_sharers()
            .then(|| live.as_ref().map_or(&value, |got| &got.value).clone());
        self.end(&publish(for_waiters, false, NEVER), false);
        Committed::Revoked {
            by: load.revoked().unwrap_or(RevokedBy::Overwrite),
            live: live.map(|got| Got {
                stored: false,
                ..got
            }),
            value,
        }
    }
}

pub(super) fn publish<V>(value: Option<V>, stored: bool, deadline: u64) -> Outcome<V> {
    match value {
        None => Outcome::Nothing,
        Some(value) => Outcome::Value(Arc::new(SharedValue {
            value,
            stored,
            deadline,
        })),
    }
}

impl<K, V, S> Drop for Lead<'_, K, V, S> {
    #[inline]
    fn drop(&mut self) {
        if !self.ended {
            self.end_dropped();
        }
    }
}

impl<K, V, S> LoadView<'_, K, V, S> {
    /// Publishes the outcome of a run and wakes the waiters.
    pub(crate) fn end_run(self, load: &Arc<Load<K, V>>, outcome: &Outcome<V>) {
        let ended = if load.is_current() {
            let now = contain(|| self.clock()).unwrap_or(0);
            let mut shard = self.core.shared.map.lock(load.hash());
            let ended = load.end(outcome, now);
            if ended.unlist {
                shard.loads_mut().remove(load);
            } else if !load.is_current() {
                shard.loads_mut().forget_revoked(load);
            }
            drop(shard);
            if !ended.unlist {
                self.watch_quietly(load, now);
            }
            ended
        } else {
            let ended = load.end(outcome, 0);
            if load.revoked().is_some() {
                self.core
                    .shared
                    .map
                    .lock(load.hash())
                    .loads_mut()
                    .forget_revoked(load);
            }
            ended
        };
        wake_all(ended.wakers);
    }
}
