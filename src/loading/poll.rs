//! Loads of tasks: the leader's future is polled in place, a waiter leaves its waker.
//!
//! No runtime is needed: a waiter that is told to lead polls its own closure's future.
#![allow(unsafe_code)]

use super::begin::{LoadRequest, Role};
use super::bounds::{CacheHasher, CacheKey, CacheValue};
use super::commit::Lead;
use super::got::Got;
use super::key::Key;
use super::run::{End, Made};
use crate::cache::Cache;
use crate::load::{Load, Outcome, Ring, Ticket, Verdict, thread_number};
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

/// How a task looks its key up before it loads.
pub(crate) type Look<K, V, S, Q> = fn(&Cache<K, V, S>, &Q) -> Option<Got<V>>;

/// A task that does not know yet whether it leads, waits or has a hit.
pub(crate) struct Seeker<'a, K, V, S, Y: Key<K>> {
    cache: &'a Cache<K, V, S>,
    key: Y,
    hash: u64,
    ask: LoadRequest,
    /// Until the first poll.
    look: Option<Look<K, V, S, Y::Query>>,
    ticket: Option<Ticket>,
    waits: Option<Arc<Load<K, V>>>,
    started: bool,
}

/// A task's part in a load.
pub(crate) enum Part<'a, K, V, S> {
    Found(Got<V>),
    Shared(Outcome<V>),
    Lead(Lead<'a, K, V, S>, Option<Got<V>>),
    Busy,
}

impl<'a, K, V, S, Y: Key<K>> Seeker<'a, K, V, S, Y> {
    /// `look` is what the first poll asks before anything else.
    pub(crate) fn new(
        cache: &'a Cache<K, V, S>,
        key: Y,
        ask: LoadRequest,
        look: Option<Look<K, V, S, Y::Query>>,
    ) -> Self {
        Self {
            cache,
            key,
            hash: 0,
            ask,
            look,
            ticket: None,
            waits: None,
            started: false,
        }
    }
}

impl<'a, K: CacheKey, V: CacheValue, S: CacheHasher, Y> Seeker<'a, K, V, S, Y>
where
    Y: Key<K>,
{
    pub(crate) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Part<'a, K, V, S>> {
        let core = &*self.cache.core;
        if !self.started {
            if let Some(look) = self.look
                && let Some(got) = look(self.cache, self.key.query())
            {
                return Poll::Ready(Part::Found(got));
            }
            self.hash = core.hash(self.key.query());
            // Set after the user code: if that panics, the next poll starts from the beginning.
            self.started = true;
        }
        loop {
            let begun = match (&self.waits, self.ticket) {
                (Some(load), Some(ticket)) => match load.poll(ticket, Some(cx.waker())) {
                    None => {
                        if load.is_led_by_caller() {
                            let message = core.loads().ring_message(load, Ring { others: 0 });
                            self.stop();
                            panic!("{message}");
                        }
                        if !core.loads().is_overdue(load, core.loads().clock()) {
                            return Poll::Pending;
                        }
                        self.stop();
                        None
                    }
                    Some(Verdict::Ended(outcome)) => {
                        self.waits = None;
                        return Poll::Ready(Part::Shared(outcome));
                    }
                    Some(Verdict::Leads) => {
                        let load = self.waits.take();
                        load.and_then(|load| core.loads().accept_lead(&load, &self.ask))
                    }
                    Some(Verdict::Retry) => {
                        self.waits = None;
                        None
                    }
                },
                _ => None,
            };
            let begun = begun.unwrap_or_else(|| {
                core.loads()
                    .begin(&mut self.key, self.hash, &self.ask, &mut self.ticket)
            });
            match begun {
                Role::Found(got) => return Poll::Ready(Part::Found(got)),
                Role::Lead(lead, seen) => return Poll::Ready(Part::Lead(lead, seen)),
                Role::Busy => return Poll::Ready(Part::Busy),
                Role::Joined(load) => self.waits = Some(load),
            }
        }
    }
}

impl<K, V, S, Y: Key<K>> Seeker<'_, K, V, S, Y> {
    /// A call that had other work to do now waits like any other call.
    pub(crate) fn wait_now(&mut self, ask: LoadRequest) {
        self.ask = ask;
        if let (Some(load), Some(ticket)) = (&self.waits, self.ticket) {
            load.wait_now(ticket);
        }
    }

    /// Waits no longer.
    fn stop(&mut self) {
        if let (Some(load), Some(ticket)) = (self.waits.take(), self.ticket) {
            self.cache.core.loads().give_up(&load, ticket);
        }
    }
}

impl<K, V, S, Y: Key<K>> Drop for Seeker<'_, K, V, S, Y> {
    fn drop(&mut self) {
        self.stop();
    }
}

/// The lead, and the live entry that it leads over.
type Leading<'a, K, V, S> = (Lead<'a, K, V, S>, Option<Got<V>>);

/// What a leader is to run.
enum Init<M, F> {
    /// A closure that makes the future.
    Make(M),
    Run(F),
    Gone,
}

/// The future of a call: it finds out whether the call leads, waits or has a hit. If the call
/// leads, it polls the user's future.
///
/// `convert` says what the future's output means, `finish` what the call returns.
// Field order: the future is dropped before the lead, so the old leader's code has ended when the
// next leader starts.
pub(crate) struct Loading<'a, K, V, S, Y: Key<K>, M, F, C, D> {
    init: Init<M, F>,
    lead: Option<Leading<'a, K, V, S>>,
    seeker: Seeker<'a, K, V, S, Y>,
    convert: C,
    finish: Option<D>,
}

impl<'a, K, V, S, Y: Key<K>, F, C, D> Loading<'a, K, V, S, Y, fn(Option<&Got<V>>) -> F, F, C, D> {
    /// A call whose future the caller has made.
    pub(crate) fn of_future(
        seeker: Seeker<'a, K, V, S, Y>,
        future: F,
        convert: C,
        finish: D,
    ) -> Self {
        Self {
            init: Init::Run(future),
            lead: None,
            seeker,
            convert,
            finish: Some(finish),
        }
    }
}

impl<'a, K, V, S, Y: Key<K>, M, F, C, D> Loading<'a, K, V, S, Y, M, F, C, D> {
    /// A call whose closure makes the future.
    pub(crate) fn of_closure(
        seeker: Seeker<'a, K, V, S, Y>,
        make: M,
        convert: C,
        finish: D,
    ) -> Self {
        Self {
            init: Init::Make(make),
            lead: None,
            seeker,
            convert,
            finish: Some(finish),
        }
    }
}

impl<K: CacheKey, V: CacheValue, S: CacheHasher, Y, M, F, C, D, X, R> Future
    for Loading<'_, K, V, S, Y, M, F, C, D>
where
    Y: Key<K>,
    M: FnOnce(Option<&Got<V>>) -> F,
    F: Future,
    C: Fn(F::Output) -> Made<V, X>,
    D: FnOnce(End<V, X>) -> R,
{
    type Output = R;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<R> {
        // SAFETY: of the fields only the future in `Init::Run` is ever pinned, and it is never
        // moved from there: it is polled in place, and dropped in place by storing another `Init`.
        // A future is moved into `Init::Run` before it is first polled. `Loading` is `Unpin` only
        // if that future is, since there is no impl of its own, and its drop glue moves nothing.
        let this = unsafe { self.get_unchecked_mut() };
        // Taken out while user code runs: after a panic the future stays ended, and takes no part
        // in another load.
        let Some(finish) = this.finish.take() else {
            panic!("the future of a load was polled after it was ready, or after it panicked");
        };
        if this.lead.is_none() {
            let end = match this.seeker.poll(cx) {
                Poll::Pending => {
                    this.finish = Some(finish);
                    return Poll::Pending;
                }
                Poll::Ready(Part::Lead(lead, seen)) => {
                    this.lead = Some((lead, seen));
                    None
                }
                Poll::Ready(Part::Found(got)) => Some(End::Found(got)),
                Poll::Ready(Part::Shared(outcome)) => {
                    Some(End::of_load(&outcome, &this.seeker.cache.core.shared.clock))
                }
                Poll::Ready(Part::Busy) => Some(End::Busy),
            };
            if let Some(end) = end {
                return Poll::Ready(finish(end));
            }
        }
        // The lead is taken out, too: a panic passes it on.
        let Some((lead, seen)) = this.lead.take() else {
            unreachable!("the lead was found above");
        };
        // Not only while the future is polled: while it is made, and while its output is committed,
        // user code runs as well. The end of the run takes this back.
        lead.load().set_leader(thread_number());
        if matches!(this.init, Init::Make(_))
            && let Init::Make(make) = std::mem::replace(&mut this.init, Init::Gone)
        {
            this.init = Init::Run(make(seen.as_ref()));
        }
        let Init::Run(future) = &mut this.init else {
            unreachable!("a call that has not finished has its future");
        };
        // SAFETY: see above: pinned from here on, and never moved.
        let future = unsafe { Pin::new_unchecked(future) };
        let output = match future.poll(cx) {
            Poll::Ready(output) => output,
            Poll::Pending => {
                lead.load().set_leader(0);
                this.lead = Some((lead, seen));
                this.finish = Some(finish);
                return Poll::Pending;
            }
        };
        this.init = Init::Gone;
        let made = (this.convert)(output);
        let end = lead.conclude(seen, made);
        Poll::Ready(finish(end))
    }
}

impl<K, V, S, Y: Key<K>, M, F, C, D> std::fmt::Debug for Loading<'_, K, V, S, Y, M, F, C, D> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Loading")
            .field("leads", &self.lead.is_some())
            .finish_non_exhaustive()
    }
}
