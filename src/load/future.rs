//! The future of a call that loads. A leader's own future is polled in place, a waiter leaves its
//! waker. No runtime is needed: a waiter that is told to lead polls its own closure's future.
//!
//! It is written by hand: as an `async fn` it would be four times as large as the user's future,
//! which the compiler would keep once as an argument, once as a local variable and once for each
//! `await` (`futures_are_small` in tests/loading/loads/tasks.rs).
#![allow(unsafe_code)]

use super::claim::{Claim, Claimant};
use super::cycle::thread_number;
use super::form::Run;
use super::guard::{CallGuard, Seen};
use super::key::{CacheHasher, CacheKey, CacheValue, Key};
use super::wait::mark_lead;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

/// The guard, and the live entry over which the call leads.
type Leading<'a, K, V, S> = (CallGuard<'a, K, V, S>, Option<Box<Seen<V>>>);

/// The work that a leader runs.
enum Init<M, F> {
    /// A closure that makes the future.
    Make(M),
    Run(F),
    Gone,
}

/// The future of a call: it claims the key, and polls the user's future if the call leads. `finish`
/// says what the call returns.
// Field order: the future is dropped before the guard, so the old leader's code has ended when the
// next leader starts.
pub(super) struct LoadFuture<'a, K, V, S, Y: Key<K>, M, F, D, R> {
    init: Init<M, F>,
    leading: Option<Leading<'a, K, V, S>>,
    claimant: Claimant<'a, K, V, S, Y>,
    /// The answer of a call whose key is present, if it looks the key up first.
    hit: Option<fn(V) -> R>,
    finish: Option<D>,
}

impl<'a, K, V, S, Y: Key<K>, M, F, D, R> LoadFuture<'a, K, V, S, Y, M, F, D, R> {
    /// The call's closure makes the future.
    pub(super) fn new(
        claimant: Claimant<'a, K, V, S, Y>,
        hit: Option<fn(V) -> R>,
        make: M,
        finish: D,
    ) -> Self {
        Self {
            init: Init::Make(make),
            leading: None,
            claimant,
            hit,
            finish: Some(finish),
        }
    }
}

impl<'a, K: CacheKey, V: CacheValue, S: CacheHasher, Y, M, F, D, R> Future
    for LoadFuture<'a, K, V, S, Y, M, F, D, R>
where
    Y: Key<K>,
    M: FnOnce(Option<&Seen<V>>) -> F,
    F: Future,
    D: FnOnce(Run<'a, K, V, S, F::Output>) -> R,
{
    type Output = R;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<R> {
        // SAFETY: of the fields only the future in `Init::Run` is ever pinned, and it is never
        // moved from there: it is polled in place, and dropped in place by storing another `Init`.
        // A future is moved into `Init::Run` before it is first polled. This type is `Unpin` only
        // if that future is, since there is no impl of its own, and its drop glue moves nothing.
        let this = unsafe { self.get_unchecked_mut() };
        // Taken out while user code runs: after a panic the future stays ended, and takes no part
        // in another load.
        let Some(finish) = this.finish.take() else {
            panic!("the future of a load was polled after it was ready, or after it panicked");
        };
        if this.leading.is_none() {
            if let Some(hit) = this.hit
                && let Some(value) = this.claimant.look_up()
            {
                return Poll::Ready(hit(value));
            }
            match this.claimant.poll_claim(cx) {
                Poll::Pending => {
                    this.finish = Some(finish);
                    return Poll::Pending;
                }
                Poll::Ready(Claim::Guard(guard, seen)) => this.leading = Some((guard, seen)),
                Poll::Ready(claim) => return Poll::Ready(finish(Err(claim))),
            }
        }
        // The guard is taken out, too: a panic hands the key on.
        let Some((guard, seen)) = this.leading.take() else {
            unreachable!("the call leads, as was found above");
        };
        // Not only while the future is polled: while it is made, and while its output is committed,
        // user code runs as well. The end of the run takes this back.
        guard.load().set_leader(thread_number());
        let _mark = mark_lead();
        if matches!(this.init, Init::Make(_))
            && let Init::Make(make) = std::mem::replace(&mut this.init, Init::Gone)
        {
            this.init = Init::Run(make(seen.as_deref()));
        }
        let Init::Run(future) = &mut this.init else {
            unreachable!("a call that has not finished has its future");
        };
        // SAFETY: see above: pinned from here on, and never moved.
        let future = unsafe { Pin::new_unchecked(future) };
        let output = match future.poll(cx) {
            Poll::Ready(output) => output,
            Poll::Pending => {
                guard.load().set_leader(0);
                this.leading = Some((guard, seen));
                this.finish = Some(finish);
                return Poll::Pending;
            }
        };
        this.init = Init::Gone;
        Poll::Ready(finish(Ok((guard, seen, output))))
    }
}

impl<K, V, S, Y: Key<K>, M, F, D, R> std::fmt::Debug for LoadFuture<'_, K, V, S, Y, M, F, D, R> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("LoadFuture")
            .field("leads", &self.leading.is_some())
            .finish_non_exhaustive()
    }
}
