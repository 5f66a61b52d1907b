//! A task's wait for a load, which drives the load's shared future if there is one.

use super::drive::{Attached, Drives};
use crate::load::{Load, RevokedBy, Ticket, Verdict, WaitCycle, note_wait};
use crate::loading::{CacheHasher, CacheKey, CacheValue, leave, pass_on};
use crate::operations::WeakHandle;
use std::sync::Arc;
use std::task::{Context, Poll};

pub(super) struct Wait<K: CacheKey, V: CacheValue, S: CacheHasher> {
    core: WeakHandle<K, V, S>,
    drives: Arc<Drives<K, V, S>>,
    load: Arc<Load<K, V>>,
    ticket: Ticket,
    attached: Option<Attached<K, V, S>>,
    /// Whether the load is the call's own.
    leads: bool,
    ended: bool,
    lateness: Lateness,
}

/// Whether a load without an outcome has lasted for too long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Lateness {
    InTime,
    /// It has, and is still the current load of its key.
    Overdue,
    /// It had, and a newer load has taken its place.
    Replaced,
}

impl<K: CacheKey, V: CacheValue, S: CacheHasher> Wait<K, V, S> {
    /// A waiter that has joined the load.
    pub(super) fn new(
        core: WeakHandle<K, V, S>,
        drives: Arc<Drives<K, V, S>>,
        load: Arc<Load<K, V>>,
        ticket: Ticket,
    ) -> Self {
        Self {
            core,
            drives,
            load,
            ticket,
            attached: None,
            leads: false,
            ended: false,
            lateness: Lateness::InTime,
        }
    }

    /// Notes that the load is the call's own. If `attached` is given, the call drives the load's
    /// future from the beginning.
    pub(super) fn of_leader(mut self, attached: Option<Attached<K, V, S>>) -> Self {
        self.leads = true;
        self.attached = attached;
        self
    }

    pub(super) fn leads(&self) -> bool {
        self.leads
    }

    pub(super) fn ticket(&self) -> Ticket {
        self.ticket
    }

    pub(super) fn load(&self) -> &Arc<Load<K, V>> {
        &self.load
    }

    /// Whether the load was too late, for a waiter that was told to look again.
    pub(super) fn lateness(&self) -> Lateness {
        if self.load.revoked() == Some(RevokedBy::NewerLoad) {
            Lateness::Replaced
        } else {
            self.lateness
        }
    }

    pub(super) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Verdict<V>> {
        if let Some(verdict) = self.load.poll(self.ticket, Some(cx.waker())) {
            self.ended = true;
            self.attached = None;
            return Poll::Ready(verdict);
        }
        if let Some(core) = self.core.visit() {
            if self.load.is_led_by_caller() {
                let message = core
                    .loads()
                    .cycle_message(&self.load, WaitCycle { others: 0 });
                self.stop();
                panic!("{message}");
            }
            if core.loads().is_overdue(&self.load, core.loads().clock()) {
                if self.load.is_current() {
                    self.lateness = Lateness::Overdue;
                }
                self.stop();
                return Poll::Ready(Verdict::Retry);
            }
        }
        if self.attached.is_none() {
            self.attached = Drives::attach(&self.drives, &self.load);
        }
        match &self.attached {
            Some(attached) if attached.poll() => (),
            _ => return self.pending(),
        }
        // The future has ended, and with it the load: unless a panic came in between.
        self.attached = None;
        if let Some(verdict) = self.load.poll(self.ticket, Some(cx.waker())) {
            self.ended = true;
            return Poll::Ready(verdict);
        }
        self.pending()
    }

    fn pending(&self) -> Poll<Verdict<V>> {
        note_wait(&self.load, self.ticket, || {
            self.core.visit().and_then(|core| core.shared.name.clone())
        });
        Poll::Pending
    }

    fn stop(&mut self) {
        if !self.ended {
            self.ended = true;
            leave(&self.core, &self.load, self.ticket);
        }
        self.attached = None;
    }

    /// A waiter that was told to lead does not.
    pub(super) fn pass_on(&self) {
        pass_on(&self.core, &self.load);
    }
}

impl<K: CacheKey, V: CacheValue, S: CacheHasher> Drop for Wait<K, V, S> {
    fn drop(&mut self) {
        self.stop();
    }
}
