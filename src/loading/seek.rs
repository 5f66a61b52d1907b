//! How a call finds its role: the key has a live value, or the call leads a load, or it waits for
//! one until that load has a verdict for it.
//!
//! Threads and tasks take the same steps. They differ in how they wait.

use super::begin::{LoadRequest, Role};
use super::bounds::{CacheKey, CacheValue};
use super::commit::Lead;
use super::got::Got;
use super::key::Key;
use crate::load::{Load, Outcome, Ticket, Verdict, WaitCycle};
use crate::operations::{Cloned, Core};
use crate::time::Clock;
use std::hash::BuildHasher;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Instant;

/// A call that does not know its role yet.
pub(crate) struct RoleSearch<'a, K, V, S, Y: Key<K>> {
    core: &'a Core<K, V, S>,
    key: Y,
    /// The key's hash, once it has been computed.
    hash: Option<u64>,
    /// Whether it looks the key up before anything else.
    looks: bool,
    ask: LoadRequest,
    ticket: Option<Ticket>,
    waits: Option<Arc<Load<K, V>>>,
}

/// The role of a call.
pub(crate) enum FinalRole<'a, K, V, S> {
    Found(Got<V>),
    Shared(Outcome<V>),
    Lead(Lead<'a, K, V, S>, Option<Got<V>>),
    Busy,
}

impl<'a, K, V, S, Y: Key<K>> RoleSearch<'a, K, V, S, Y> {
    pub(crate) fn new(core: &'a Core<K, V, S>, key: Y, ask: LoadRequest) -> Self {
        Self {
            core,
            key,
            hash: None,
            looks: false,
            ask,
            ticket: None,
            waits: None,
        }
    }

    pub(super) fn with_hash(mut self, hash: u64) -> Self {
        self.hash = Some(hash);
        self
    }

    /// Makes the search look the key up before anything else.
    pub(super) fn looking_up(mut self) -> Self {
        self.looks = true;
        self
    }

    pub(super) fn clock(&self) -> &'a Clock {
        &self.core.shared.clock
    }

    /// A call that had other work to do now waits like any other call.
    pub(super) fn wait_now(&mut self, ask: LoadRequest) {
        self.ask = ask;
        if let (Some(load), Some(ticket)) = (&self.waits, self.ticket) {
            load.wait_now(ticket);
        }
    }

    /// Waits no longer.
    fn stop(&mut self) {
        if let (Some(load), Some(ticket)) = (self.waits.take(), self.ticket) {
            self.core.loads().give_up(&load, ticket);
        }
    }
}

impl<'a, K: CacheKey, V: CacheValue, S: BuildHasher, Y: Key<K>> RoleSearch<'a, K, V, S, Y> {
    /// Finds the role of a call that does not wait, or whose wait has ended with this verdict;
    /// `None` if the call has to wait now.
    pub(super) fn step(&mut self, told: Option<Verdict<V>>) -> Option<FinalRole<'a, K, V, S>> {
        let loads = self.core.loads();
        let former = self.waits.take();
        let offered = match told {
            Some(Verdict::Ended(outcome)) => return Some(FinalRole::Shared(outcome)),
            Some(Verdict::Leads) => former,
            Some(Verdict::Retry) | None => None,
        };
        let hash = match self.hash {
            Some(hash) => hash,
            None => {
                let key = self.key.query();
                let hash = self.core.hash(key);
                if self.looks
                    && let Some(value) = self.core.look_up_hashed::<Cloned, _>(hash, key)
                {
                    return Some(FinalRole::Found(Got::hit(value)));
                }
                // Set after the user code: if that panics, the next poll starts from here.
                *self.hash.insert(hash)
            }
        };
        match loads.begin(offered, &mut self.key, hash, &self.ask, &mut self.ticket) {
            Role::Found(got) => Some(FinalRole::Found(got)),
            Role::Lead(lead, seen) => Some(FinalRole::Lead(lead, seen)),
            Role::Busy => Some(FinalRole::Busy),
            Role::Joined(load) => {
                self.waits = Some(load);
                None
            }
        }
    }

    /// Finds the role of a task.
    pub(crate) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<FinalRole<'a, K, V, S>> {
        loop {
            let told = match (&self.waits, self.ticket) {
                (Some(load), Some(ticket)) => {
                    let told = load.poll(ticket, Some(cx.waker()));
                    if told.is_none() {
                        let loads = self.core.loads();
                        if load.is_led_by_caller() {
                            let message = loads.cycle_message(load, WaitCycle { others: 0 });
                            self.stop();
                            panic!("{message}");
                        }
                        if !loads.is_overdue(load, loads.clock()) {
                            return Poll::Pending;
                        }
                        self.stop();
                    }
                    told
                }
                _ => None,
            };
            if let Some(role) = self.step(told) {
                return Poll::Ready(role);
            }
        }
    }

    /// Finds the role of a thread, which waits until `until` at most; `Ok(None)` if that time is
    /// over. If the thread would wait for itself, returns the message of the panic.
    pub(super) fn wait(
        &mut self,
        until: Option<Instant>,
    ) -> Result<Option<FinalRole<'a, K, V, S>>, String> {
        let mut told = None;
        loop {
            if let (Some(load), Some(ticket)) = (&self.waits, self.ticket) {
                match self.core.loads().wait_until(load, ticket, until) {
                    Ok(Some(verdict)) => told = Some(verdict),
                    Ok(None) => {
                        self.stop();
                        return Ok(None);
                    }
                    Err(cycle) => {
                        let message = self.core.loads().cycle_message(load, cycle);
                        self.stop();
                        return Err(message);
                    }
                }
            }
            let role = self.step(told.take());
            if role.is_some() {
                return Ok(role);
            }
        }
    }
}

impl<K, V, S, Y: Key<K>> Drop for RoleSearch<'_, K, V, S, Y> {
    fn drop(&mut self) {
        self.stop();
    }
}
