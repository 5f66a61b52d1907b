//! The run of a call's code, as a part of the call, and what the call then returns.

use super::Loadable;
use super::claim::{Claim, Claimant, May};
use super::guard::{Guard, ToCache};
use crate::compute::Keyless;
use crate::contain::{AtEnd, let_go};
use crate::engine::LifetimeSource;
use crate::flight::{Outcome, Want};
use crate::stripe::thread_number;
use crate::sync::block::{Work, block_on, during};
use std::any::{Any, TypeId};
use std::future::{Future, poll_fn};
use std::iter;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::time::Duration;

/// How a call has come to its end.
pub(crate) enum Ran<K, V, C: ToCache<K, V>, O> {
    /// It leads: its guard, the live entry if it takes turns, and what its own code has made.
    Led(Guard<K, V, C>, Option<Box<Keyless<V>>>, O),
    /// It has another claim: its code did not run.
    NotLed(Claim<K, V, C>),
}

impl<K: Loadable + Eq, V: Loadable, C: ToCache<K, V>> Claimant<K, V, C> {
    /// The claim of a task.
    pub(crate) fn claim(&mut self) -> impl Future<Output = Claim<K, V, C>> {
        poll_fn(|cx| self.poll_claim(cx))
    }

    /// The claim of a thread, which polls only if it has to wait.
    #[inline]
    #[track_caller]
    pub(crate) fn claim_here(&mut self) -> Claim<K, V, C> {
        if self.waits.is_none() {
            self.may_spin();
            if let Some(claim) = self.try_claim(May::Lead) {
                return claim;
            }
        }
        block_on(self.claim())
    }

    /// Claims the key; if the call leads, runs its code: the future that `make` makes. That is
    /// dropped before the guard: the old leader's code has ended when the next leader starts.
    // An `async fn` would have room for its arguments twice.
    #[expect(clippy::manual_async_fn)]
    pub(crate) fn run<O>(
        &mut self,
        make: impl AsyncFnOnce(Option<&Keyless<V>>) -> O,
    ) -> impl Future<Output = Ran<K, V, C, O>> {
        async move {
            let (guard, seen) = match self.claim().await {
                Claim::Guard(guard, seen) => (guard, seen),
                claim => return Ran::NotLed(claim),
            };
            let mut seen = AtEnd(seen, |seen| let_go(seen.take()));
            let made = {
                let code = pin!(make(seen.0.as_deref()));
                lead(iter::once(&guard), code).await
            };
            Ran::Led(guard, seen.0.take(), made)
        }
    }

    /// Claims the key as a thread; if the call leads, runs its code.
    #[inline]
    #[track_caller]
    pub(super) fn run_here<O>(
        &mut self,
        make: impl FnOnce(Option<&Keyless<V>>) -> O,
    ) -> Ran<K, V, C, O> {
        match self.claim_here() {
            Claim::Guard(guard, seen) => {
                let _loading = during(Work::Loads);
                let mut seen = AtEnd(seen, |seen| let_go(seen.take()));
                let made = make(seen.0.as_deref());
                Ran::Led(guard, seen.0.take(), made)
            }
            claim => Ran::NotLed(claim),
        }
    }
}

/// Polls the code of a leader, which has these guards. The polling thread leads the loads until the
/// poll ends; if the code is ready, also while the loads then end, since user code runs there as
/// well. So does a thread that drops the code, and then the guards one by one.
pub(crate) fn lead<'g, K: 'g, V: 'g, C: ToCache<K, V> + 'g, F: Future + ?Sized>(
    guards: impl Iterator<Item = &'g Guard<K, V, C>> + Clone,
    mut code: Pin<&mut F>,
) -> impl Future<Output = F::Output> {
    let set_leaders = move |thread| {
        let loads = guards.clone().map(Guard::load);
        loads.for_each(|load| load.set_leader_thread(thread));
    };
    let at_end = AtEnd(set_leaders.clone(), |set_leaders| {
        set_leaders(thread_number());
    });
    poll_fn(move |cx| {
        (at_end.0)(thread_number());
        let polled = code.as_mut().poll(cx);
        if polled.is_pending() {
            set_leaders(0);
        }
        polled
    })
}

/// What the code of a call has made.
pub(crate) enum Made<V> {
    /// A value, and what says how long it lives.
    Value(Box<Keyless<V>>, LifetimeSource),
    /// No value, but this outcome. `Absent`: a compute removes the entry.
    NoValue(Outcome<V>),
    /// It leaves things as they are.
    Kept,
}

/// Ends the load of a call by what its closure has made; the value, however it came.
#[inline]
pub(crate) fn conclude<K: Loadable + Eq, V: Loadable, C: ToCache<K, V>>(
    run: Ran<K, V, C, Made<V>>,
) -> Result<Box<Keyless<V>>, Outcome<V>> {
    match run {
        Ran::Led(guard, seen, Made::Value(mut own, given)) => {
            let filled = guard.fill(&mut own, given);
            let_go(seen);
            Ok(filled.returned(own))
        }
        Ran::Led(guard, seen, Made::NoValue(failure)) => {
            guard.fail(&failure);
            let_go(seen);
            Err(failure)
        }
        Ran::Led(guard, seen, Made::Kept) => {
            guard.keep();
            seen.ok_or(Outcome::Nothing)
        }
        Ran::NotLed(Claim::Value(seen)) => Ok(seen),
        Ran::NotLed(Claim::Failed(failure)) => Err(failure),
        Ran::NotLed(_) => unreachable!("a call that waits gets a value, a failure, or the lead"),
    }
}

/// What a closure that always makes a value has made.
#[inline]
pub(super) fn of_value<V>(value: V) -> Made<V> {
    Made::Value(Keyless::made(value), LifetimeSource::Policy)
}

/// What a closure that makes a value, with the time that it lives, has made.
pub(super) fn of_pair<V>((value, ttl): (V, Duration)) -> Made<V> {
    Made::Value(Keyless::made(value), LifetimeSource::Ttl(ttl))
}

/// What a closure that may make a value has made.
pub(super) fn of_option<V>(value: Option<V>) -> Made<V> {
    // A method of `Option` would copy a large value more often, as would one of `Result` below.
    match value {
        Some(value) => of_value(value),
        None => Made::NoValue(Outcome::Absent),
    }
}

/// What a closure that may fail has made.
pub(super) fn of_result<V, E: Send + Sync + 'static>(value: Result<V, E>) -> Made<V> {
    match value {
        Ok(value) => of_value(value),
        Err(error) => Made::NoValue(Outcome::Error(Arc::new(error))),
    }
}

/// The value, or the entry, of a call that accepts values only.
#[inline]
pub(super) fn sure<T, V>(outcome: Result<T, Outcome<V>>) -> T {
    outcome.unwrap_or_else(|_| unreachable!("it accepts values only"))
}

/// The value, or the entry, of a call that accepts errors of this type also; or such an error.
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

/// Those that it accepts if it also shares that there is no value.
pub(crate) fn settled<E: 'static>() -> Want {
    Want::Settled(TypeId::of::<E>())
}

/// An error as the call's own type: a waiter accepts no other.
pub(crate) fn error_of<E: Send + Sync + 'static>(error: Arc<dyn Any + Send + Sync>) -> Arc<E> {
    error
        .downcast()
        .unwrap_or_else(|_| unreachable!("it accepts errors of its type only"))
}
