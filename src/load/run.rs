//! The run of a call's code, as a thread or as a task, and what the call then returns. The methods
//! differ in what their closures answer.
//!
//! A thread runs a closure. In a task, the leader's own future is polled in place, and a waiter
//! leaves its waker. No runtime is needed: a waiter that is told to lead polls its own closure's
//! future. The future of a call is written by hand: as an `async fn` it would be four times as
//! large as the user's future, which the compiler would keep once as an argument, once as a local
//! variable and once for each `await` (`futures_are_small` in tests/loading/loads/tasks.rs).
#![allow(unsafe_code)]

use super::claim::{Claim, Claimant};
use super::cycle::thread_number;
use super::guard::{CallGuard, Keyless};
use super::key::{CacheHasher, CacheKey, CacheValue, Key};
use super::state::{Outcome, Want};
use super::wait::{in_loader, mark_lead};
use crate::operations::{Core, LifetimeSource};
use std::any::{Any, TypeId};
use std::future::Future;
use std::hash::BuildHasher;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

/// The run of a call that leads: its guard, the live entry over which it has led, and what its own
/// code has made.
pub(crate) type Led<'a, K, V, S, O> = (CallGuard<'a, K, V, S>, Option<Box<Keyless<V>>>, O);

/// The run of a call. An error is the claim of a call that does not lead.
pub(crate) type Run<'a, K, V, S, O> = Result<Led<'a, K, V, S, O>, Claim<K, V, &'a Core<K, V, S>>>;

/// A call that gets its claim from this cache.
type CallClaimant<'a, K, V, S, Y> = Claimant<K, V, &'a Core<K, V, S>, Y>;

impl<'a, K: CacheKey, V: CacheValue, S: BuildHasher, Y: Key<K>> CallClaimant<'a, K, V, S, Y> {
    /// Claims the key as a thread; runs `make` if the call leads.
    #[track_caller]
    pub(crate) fn run<O>(
        mut self,
        make: impl FnOnce(Option<&Keyless<V>>) -> O,
    ) -> Run<'a, K, V, S, O> {
        match self.claim() {
            Claim::Guard(guard, seen) => {
                let made = in_loader(|| make(seen.as_deref()));
                Ok((guard, seen, made))
            }
            claim => Err(claim),
        }
    }
}

impl<'a, K: CacheKey, V: CacheValue, S: CacheHasher, Y: Key<K>> CallClaimant<'a, K, V, S, Y> {
    /// Claims the key as a task, and runs the future that `make` makes if the call leads. `made`
    /// says what its output means, and `finish` is given the run. If there is a `hit`, the call
    /// looks the key up first, and ends with it if the key is present.
    pub(crate) fn run_async<F: Future, O, R>(
        self,
        hit: Option<impl FnOnce(V) -> R>,
        make: impl FnOnce(Option<&Keyless<V>>) -> F,
        made: impl FnOnce(F::Output) -> O,
        finish: impl FnOnce(Run<'a, K, V, S, O>) -> R,
    ) -> impl Future<Output = R> {
        LoadFuture {
            init: Init::Make(make),
            leading: None,
            claimant: self,
            hit,
            end: Some((made, finish)),
        }
    }
}

/// What the code of a call has made: the value, and how long it lives; or the failure.
pub(crate) type Made<V> = Result<(Box<Keyless<V>>, LifetimeSource), Outcome<V>>;

/// Ends the load of a call by what its closure has made; the value, however it came.
#[inline]
pub(crate) fn conclude<K: CacheKey, V: CacheValue, S: BuildHasher>(
    run: Run<'_, K, V, S, Made<V>>,
) -> Result<Box<Keyless<V>>, Outcome<V>> {
    match run {
        Ok((guard, _, Ok((own, given)))) => Ok(guard.fill(own, given).into_entry()),
        Ok((guard, _, Err(failure))) => {
            guard.fail(&failure);
            Err(failure)
        }
        Err(Claim::Value(seen)) => Ok(seen),
        Err(Claim::Failed(failure)) => Err(failure),
        Err(_) => unreachable!("a call that waits gets a value, a failure, or the lead"),
    }
}

/// What a closure that always makes a value has made.
#[inline]
pub(super) fn of_value<V>(value: V) -> Made<V> {
    Ok((Keyless::made(value), LifetimeSource::Policy))
}

/// The same, with the time that the value lives.
pub(super) fn of_pair<V>((value, ttl): (V, Duration)) -> Made<V> {
    Ok((Keyless::made(value), LifetimeSource::Ttl(ttl)))
}

/// What a closure that may make a value has made.
pub(super) fn of_option<V>(value: Option<V>) -> Made<V> {
    value.map_or(Err(Outcome::Absent), of_value)
}

/// What a closure that may fail has made.
pub(super) fn of_result<V, E: Send + Sync + 'static>(value: Result<V, E>) -> Made<V> {
    value.map_or_else(|error| Err(Outcome::Error(Arc::new(error))), of_value)
}

/// The value, or the entry, of a call that accepts nothing else.
#[inline]
pub(super) fn sure<T, V>(outcome: Result<T, Outcome<V>>) -> T {
    outcome.unwrap_or_else(|_| unreachable!("it accepts values only"))
}

/// The same, or the error, of a call that accepts errors of this type.
#[inline]
pub(super) fn or_error<T, V, E>(outcome: Result<T, Outcome<V>>) -> Result<T, Arc<E>>
where
    E: Send + Sync + 'static,
{
    outcome.map_err(|failure| match failure {
        Outcome::Error(error) => error_of(error),
        _ => unreachable!("it accepts values and errors of its type only"),
    })
}

/// The outcomes that a call accepts if it shares errors of this type.
pub(crate) fn fallible<E: 'static>() -> Want {
    Want::Fallible(TypeId::of::<E>())
}

/// An error as the call's own type: a waiter accepts no other.
pub(crate) fn error_of<E: Send + Sync + 'static>(error: Arc<dyn Any + Send + Sync>) -> Arc<E> {
    error
        .downcast()
        .unwrap_or_else(|_| unreachable!("it accepts errors of its type only"))
}

/// The guard, and the live entry over which the call leads.
type Leading<'a, K, V, S> = (CallGuard<'a, K, V, S>, Option<Box<Keyless<V>>>);

/// The work that a leader runs.
enum Init<M, F> {
    /// A closure that makes the future.
    Make(M),
    Run(F),
    Gone,
}

/// The future of a call: it claims the key, and polls the user's future if the call leads.
// Field order: the future is dropped before the guard, so the old leader's code has ended when the
// next leader starts.
struct LoadFuture<'a, K, V, S, Y: Key<K>, H, M, F, D> {
    init: Init<M, F>,
    leading: Option<Leading<'a, K, V, S>>,
    claimant: CallClaimant<'a, K, V, S, Y>,
    /// The answer of a call whose key is present, if it looks the key up first.
    hit: Option<H>,
    /// What the future's output means, and what the call returns.
    end: Option<D>,
}

impl<'a, K: CacheKey, V: CacheValue, S: CacheHasher, Y, H, M, F, O, P, D, R> Future
    for LoadFuture<'a, K, V, S, Y, H, M, F, (P, D)>
where
    Y: Key<K>,
    H: FnOnce(V) -> R,
    M: FnOnce(Option<&Keyless<V>>) -> F,
    F: Future,
    P: FnOnce(F::Output) -> O,
    D: FnOnce(Run<'a, K, V, S, O>) -> R,
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
        let Some((made, finish)) = this.end.take() else {
            panic!("the future of a load was polled after it was ready, or after it panicked");
        };
        if this.leading.is_none() {
            if this.hit.is_some()
                && let Some(value) = this.claimant.look_up()
                && let Some(hit) = this.hit.take()
            {
                return Poll::Ready(hit(value));
            }
            match this.claimant.poll_claim(cx) {
                Poll::Pending => {
                    this.end = Some((made, finish));
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
                this.end = Some((made, finish));
                return Poll::Pending;
            }
        };
        this.init = Init::Gone;
        Poll::Ready(finish(Ok((guard, seen, made(output)))))
    }
}
