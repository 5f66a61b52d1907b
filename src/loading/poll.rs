//! Loads of tasks: the leader's future is polled in place, a waiter leaves its waker.
//!
//! No runtime is needed: a waiter that is told to lead polls its own closure's future.
#![allow(unsafe_code)]

use super::bounds::{CacheHasher, CacheKey, CacheValue};
use super::commit::Lead;
use super::got::Got;
use super::key::Key;
use super::run::{End, Made};
use super::seek::{FinalRole, RoleSearch};
use crate::load::thread_number;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

/// The lead, and the live entry that it leads over.
type Leading<'a, K, V, S> = (Lead<'a, K, V, S>, Option<Got<V>>);

/// The work that a leader runs.
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
    search: RoleSearch<'a, K, V, S, Y>,
    convert: C,
    finish: Option<D>,
}

impl<'a, K, V, S, Y: Key<K>, M, F, C, D> Loading<'a, K, V, S, Y, M, F, C, D> {
    /// A call whose closure makes the future.
    pub(crate) fn new(search: RoleSearch<'a, K, V, S, Y>, make: M, convert: C, finish: D) -> Self {
        Self {
            init: Init::Make(make),
            lead: None,
            search,
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
            match this.search.poll(cx) {
                Poll::Pending => {
                    this.finish = Some(finish);
                    return Poll::Pending;
                }
                Poll::Ready(FinalRole::Lead(lead, seen)) => this.lead = Some((lead, seen)),
                Poll::Ready(role) => {
                    return Poll::Ready(finish(End::of_role(role, this.search.clock())));
                }
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
