//! Finds a call's role: the key has a live value, or the call leads a load, or it waits for one.

use super::bounds::{CacheKey, CacheValue};
use super::commit::Lead;
use super::got::Got;
use super::key::Key;
use crate::listener::RemovalCause;
use crate::load::{self, Load, RevokedBy, SameHashLoads, Ticket, Want};
use crate::maintenance::WriteOutcome;
use crate::map::{Revalidated, Shard};
use crate::node::NodePtr;
use crate::operations::LoadView;
use crate::shared::Shared;
use crate::time::{Clock, NEVER};
use equivalent::Equivalent;
use std::hash::BuildHasher;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;

/// The request of a call to the key's load.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LoadRequest {
    pub(crate) want: Want,
    /// Whether the call's code runs though the key has a live entry.
    pub(crate) over_present: bool,
    /// Whether the call waits for another call's load.
    pub(crate) may_wait: bool,
    /// The thread that waits; 0 for a task.
    pub(crate) thread: u64,
}

impl LoadRequest {
    /// The same for the calling thread, which waits as one.
    pub(super) fn of_thread(self) -> Self {
        Self {
            thread: load::thread_number(),
            ..self
        }
    }

    /// The thread that leads if the call comes to lead. For a task that is the calling one, until
    /// its poll ends: what it calls meanwhile must not wait for it.
    #[inline]
    fn leader(&self) -> u64 {
        match self.thread {
            0 => load::thread_number(),
            thread => thread,
        }
    }
}

/// The role of a call.
pub(crate) enum Role<'a, K, V, S> {
    /// The key has a live entry.
    Found(Got<V>),
    /// The call leads; this is the live entry that it leads over.
    Lead(Lead<'a, K, V, S>, Option<Got<V>>),
    /// The call waits.
    Joined(Arc<Load<K, V>>),
    /// The call would have to wait, and may not.
    Busy,
}

/// The present state of the key, as seen under its shard's lock.
enum KeyState<K, V> {
    Live(NodePtr<K, V>),
    /// Nothing; an entry that was due has just left.
    Nothing(Option<WriteOutcome>),
}

impl<K, V> KeyState<K, V> {
    /// The present state of a key. An entry that is due is removed now, as `Expired`.
    fn of<'s>(
        shared: &Shared<K, V>,
        shard: &mut Shard<'s, K, V>,
        revalidated: Revalidated<'s, K, V>,
        found: Option<NodePtr<K, V>>,
    ) -> Self {
        let (Revalidated::Occupied(spot), Some(node)) = (revalidated, found) else {
            return Self::Nothing(None);
        };
        let live =
            node.deadline() == NEVER || (node.deadline_if_live(shared.clock.now())).is_some();
        if live {
            return Self::Live(node);
        }
        shard.remove(spot, node, RemovalCause::Expired);
        shared.note_removed(|| node.weight(), RemovalCause::Expired);
        Self::Nothing(Some(WriteOutcome::of_removal(shard, None)))
    }

    /// The part of the live entry that a leader sees, with the pin still held; or the removal that
    /// is to be followed up.
    fn seen(self, clock: &Clock) -> Result<Got<V>, Option<WriteOutcome>>
    where
        V: Clone,
    {
        match self {
            Self::Live(node) => Ok(Got::of(node, clock)),
            Self::Nothing(outcome) => Err(outcome),
        }
    }
}

impl<'a, K: CacheKey, V: CacheValue, S: BuildHasher> LoadView<'a, K, V, S> {
    /// Finds a call's part. `ticket` is the call's place in the order, drawn when it first waits.
    /// `offered` is the load that the call was told to lead.
    #[inline(never)]
    pub(crate) fn begin<Y: Key<K>>(
        self,
        offered: Option<Arc<Load<K, V>>>,
        key: &mut Y,
        hash: u64,
        ask: &LoadRequest,
        ticket: &mut Option<Ticket>,
    ) -> Role<'a, K, V, S> {
        // Passes the lead on if this call does not need it, or panics.
        let mut offered = offered.map(|load| Lead::new(self.core, load));
        let map = &self.core.shared.map;
        let mut same_hash = SameHashLoads::new();
        loop {
            let now = self.clock();
            let pin = self.core.shared.pin();
            let probe = map.probe(hash, &pin, |node| key.query().equivalent(node.key()));
            if !ask.over_present
                && let Some(node) = probe.found
                && self.core.shared.is_live(node)
            {
                return Role::Found(Got::of(node, &self.core.shared.clock));
            }
            let mut shard = probe.lock();
            let Some(revalidated) = shard.revalidate(hash, &probe) else {
                continue;
            };
            let (mut overdue, mut queued) = (None, None);
            if let Some(lead) = &offered {
                if !lead.load().is_current() {
                    drop((shard, probe));
                    drop(pin);
                    offered = None;
                    continue;
                }
            } else if !shard.loads().is_empty() {
                if !shard.loads().classify(hash, &mut same_hash) {
                    drop((shard, probe));
                    drop(pin);
                    same_hash.compare(|other| key.query().equivalent(other));
                    continue;
                }
                if let Some(load) = same_hash.mine() {
                    if !ask.over_present && load.is_queued() {
                        queued = Some(Arc::clone(load));
                    } else if !self.is_overdue(load, now) {
                        if !ask.may_wait {
                            return Role::Busy;
                        }
                        let waits_already = ticket.is_some();
                        let place = *ticket.get_or_insert_with(Ticket::draw);
                        load.join(place, ask.want, ask.thread);
                        drop((shard, probe));
                        drop(pin);
                        // After it has joined: a caller that reads the count may rely on it.
                        if !waits_already {
                            self.core.shared.count(|counters| counters.load_waited());
                        }
                        self.watch_quietly(load, now);
                        return Role::Joined(Arc::clone(load));
                    } else {
                        overdue = Some(Arc::clone(load));
                    }
                }
            }
            // A miss does not wait for a reload that only waits for a thread: it takes it over.
            if let Some(load) = queued {
                let live = |node| self.core.shared.is_live(node);
                if probe.found.is_some_and(live) || !load.take_queued() {
                    continue;
                }
                offered = Some(Lead::of_lease(self.core, load));
            }
            if offered.is_none() && key.owned().is_none() {
                drop((shard, probe));
                drop(pin);
                key.prepare();
                continue;
            }
            let key_state = KeyState::of(&self.core.shared, &mut shard, revalidated, probe.found);
            if matches!(key_state, KeyState::Live(_)) && !ask.over_present {
                continue;
            }
            let lead = if let Some(mut lead) = offered.take() {
                drop(shard);
                lead.begins(ask.leader());
                lead.load().set_began(now);
                lead
            } else {
                let Some(key) = key.owned().take() else {
                    continue;
                };
                let load = Arc::new(Load::new(hash, key, ask.leader(), now));
                if let Some(overdue) = &overdue {
                    shard.loads_mut().revoke(overdue, RevokedBy::NewerLoad);
                }
                shard.list_load(Arc::clone(&load));
                Lead::of_run(self.core, load)
            };
            let clock = &self.core.shared.clock;
            let seen = catch_unwind(AssertUnwindSafe(|| key_state.seen(clock)));
            drop(probe);
            drop(pin);
            // Also if a clone has panicked: no other call wakes its waiters.
            if let Some(overdue) = overdue {
                overdue.release_waiters();
            }
            let seen = match seen.unwrap_or_else(|panic| resume_unwind(panic)) {
                Ok(seen) => Some(seen),
                Err(outcome) => {
                    if let Some(outcome) = outcome {
                        let maintenance = &self.core.maintenance;
                        maintenance.after_write(&self.core.shared, outcome);
                    }
                    None
                }
            };
            return Role::Lead(lead, seen);
        }
    }

    /// The live value of a key, without counting as a read.
    pub(crate) fn peek_got<Q>(self, hash: u64, key: &Q) -> Option<Got<V>>
    where
        Q: Equivalent<K> + ?Sized,
    {
        let pin = self.core.shared.pin();
        let hit = self.core.shared.find_live(hash, key, &pin)?;
        Some(Got::of(hit.node, &self.core.shared.clock))
    }
}
