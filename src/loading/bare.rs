//! Loads that no other call has joined. They need no shared state, and no look-up when they commit.
//!
//! `load::list` says what a bare load is. If another call has met it, its leader ends it like any
//! other load.

use super::begin::LoadRequest;
use super::bounds::{CacheKey, CacheValue};
use super::commit::{Committed, Lead, count_time};
use super::key::Key;
use super::run::{End, Made};
use crate::load::{AfterCommit, Bare, Load, Mark};
use crate::map::Shard;
use crate::node::NodePtr;
use crate::operations::{Check, Core, LifetimeSource, LoadView, Refused, WriteCondition, Written};
use crate::stats::Counters;
use std::hash::BuildHasher;
use std::sync::Arc;

/// The lead of a load that began bare. If it is dropped without an outcome, the longest-waiting
/// waiter leads next, if there is one.
pub(super) struct BareLead<'a, K, V, S> {
    core: &'a Core<K, V, S>,
    hash: u64,
    mark: Mark,
    began: u64,
    /// The key for the entry, until the value is stored.
    key: Option<K>,
    /// The shared load, if another call has made one and the leader has found it.
    load: Option<Arc<Load<K, V>>>,
    ended: bool,
}

/// The condition of its commit.
struct BareCommit<'l, K, V> {
    mark: Mark,
    load: &'l mut Option<Arc<Load<K, V>>>,
    /// Whether the key need not be looked up: the load began when no entry had its hash, so the key
    /// is absent while the load is current (load 3). Not after an attempt that failed.
    absent: bool,
    made: Option<(Written, AfterCommit)>,
    /// The key from the list, to be dropped with no lock held.
    listed: Option<K>,
}

impl<K, V> WriteCondition<K, V> for BareCommit<'_, K, V> {
    #[inline]
    fn knows_absent(&self) -> bool {
        self.absent
    }

    #[inline]
    fn check(
        &mut self,
        shard: &mut Shard<'_, K, V>,
        _: u64,
        _: Option<NodePtr<K, V>>,
        _: u64,
    ) -> Check {
        if shard.loads().is_bare(self.mark) {
            return Check::Pass;
        }
        if self.load.is_none() {
            *self.load = shard.loads_mut().make_shared(self.mark);
        }
        match self.load {
            Some(load) if load.is_current() => Check::Pass,
            _ => Check::Refuse,
        }
    }

    #[inline]
    fn seal(&mut self, shard: &mut Shard<'_, K, V>, written: Written) {
        let sealed = match self.load {
            None => {
                self.listed = shard.loads_mut().remove_bare(self.mark);
                AfterCommit::Over
            }
            Some(load) => shard.loads_mut().seal(load),
        };
        self.made = Some((written, sealed));
    }

    fn prepare(&mut self, _: &K) {
        self.absent = false;
    }
}

impl<'a, K: CacheKey, V: CacheValue, S: BuildHasher> LoadView<'a, K, V, S> {
    /// Begins a bare load, if no entry and no load of the shard has this hash. Then there is no key
    /// to compare, so neither a look-up nor a pin is needed. For a call that has just missed.
    #[inline(always)]
    pub(super) fn begin_bare<Y: Key<K>>(
        self,
        key: &mut Y,
        hash: u64,
        ask: &LoadRequest,
    ) -> Option<BareLead<'a, K, V, S>> {
        if ask.over_present || key.owned().is_none() {
            return None;
        }
        let began = self.clock();
        let copy = key.copy();
        let mut shard = self.core.shared.map.lock(hash);
        if !shard.is_free(hash) {
            return None;
        }
        let bare = Bare {
            key: copy,
            leader: ask.thread,
            began,
        };
        let mark = shard.loads_mut().add_bare(hash, bare);
        drop(shard);
        self.core.shared.count(Counters::load_began);
        Some(BareLead {
            core: self.core,
            hash,
            mark,
            began,
            key: key.owned().take(),
            load: None,
            ended: false,
        })
    }
}

impl<'a, K, V, S> BareLead<'a, K, V, S> {
    /// The lead of the shared load; `None` if the run has ended.
    #[cold]
    #[inline(never)]
    fn make_shared(&mut self) -> Option<Lead<'a, K, V, S>> {
        if std::mem::replace(&mut self.ended, true) {
            return None;
        }
        let load = self.load.take().or_else(|| {
            let mut shard = self.core.shared.map.lock(self.hash);
            shard.loads_mut().make_shared(self.mark)
        })?;
        Some(Lead::of_lease(self.core, load))
    }
}

impl<K: CacheKey, V: CacheValue, S: BuildHasher> BareLead<'_, K, V, S> {
    /// Ends the run with what its closure made.
    // Always inlined: so what was made, and its end, do not pass through memory.
    #[inline(always)]
    pub(super) fn conclude<X>(mut self, made: Made<V, X>) -> End<V, X> {
        match made {
            Made::Put(value, given) => End::Put {
                seen: None,
                committed: self.commit(value, given),
            },
            made => match self.make_shared() {
                Some(lead) => lead.conclude(None, made),
                None => unreachable!("the run has not ended"),
            },
        }
    }

    /// Stores the value if the load is still current, and ends the run.
    #[inline]
    fn commit(mut self, value: V, given: LifetimeSource) -> Committed<V> {
        let core = self.core;
        // User code, with no lock held.
        let mine = value.clone();
        let Some(key) = self.key.take() else {
            unreachable!("the value is stored once");
        };
        let mut condition = BareCommit {
            mark: self.mark,
            load: &mut self.load,
            absent: true,
            made: None,
            listed: None,
        };
        let outcome = core.put_through(self.hash, key, value, given, &mut condition);
        let BareCommit { made, listed, .. } = condition;
        match (outcome, made) {
            (Ok(outcome), Some((written, _))) if self.load.is_none() => {
                self.ended = true;
                if core.shared.counters.is_some() {
                    count_time(core, self.began);
                }
                core.maintenance.after_write(&core.shared, outcome);
                drop(listed);
                Committed::stored(mine, written)
            }
            (outcome, made) => {
                let Some(lead) = self.make_shared() else {
                    unreachable!("the run has not ended");
                };
                match (outcome, made) {
                    (Ok(outcome), Some((written, sealed))) => {
                        lead.follow_up(mine, outcome, written, sealed)
                    }
                    (Err(Refused(value)), _) => lead.discard(value),
                    (Ok(_), None) => unreachable!("a write that was made has sealed the load"),
                }
            }
        }
    }
}

impl<K, V, S> Drop for BareLead<'_, K, V, S> {
    #[inline]
    fn drop(&mut self) {
        if !self.ended {
            drop(self.make_shared());
        }
    }
}
