//! The forms of a call that loads: what its closure answers, and what the call returns. A call runs
//! its closure, or polls its future, and then ends its load.

use super::claim::{Claim, Claimant};
use super::future::LoadFuture;
use super::guard::{CallGuard, Seen};
use super::key::{CacheHasher, CacheKey, CacheValue, Key};
use super::state::{Outcome, Want};
use super::wait::in_loader;
use crate::operations::LifetimeSource;
use std::any::{Any, TypeId};
use std::future::Future;
use std::hash::BuildHasher;
use std::marker::PhantomData;
use std::sync::Arc;
use std::time::Duration;

/// The run of a call that leads: its guard, the live entry over which it has led, and what its own
/// code has made.
pub(crate) type Led<'a, K, V, S, O> = (CallGuard<'a, K, V, S>, Option<Box<Seen<V>>>, O);

/// The run of a call. An error is the claim of a call that does not lead.
pub(crate) type Run<'a, K, V, S, O> = Result<Led<'a, K, V, S, O>, Claim<'a, K, V, S>>;

impl<'a, K: CacheKey, V: CacheValue, S: BuildHasher, Y: Key<K>> Claimant<'a, K, V, S, Y> {
    /// Claims the key as a thread; runs `make` if the call leads.
    #[track_caller]
    pub(crate) fn run<O>(
        mut self,
        make: impl FnOnce(Option<&Seen<V>>) -> O,
    ) -> Run<'a, K, V, S, O> {
        match self.claim() {
            Claim::Guard(guard, seen) => {
                let made = in_loader(|| make(seen.as_deref()));
                Ok((guard, seen, made))
            }
            claim => Err(claim),
        }
    }

    /// The same as a task; `finish` is given the run. If there is a `hit`, the call looks the key
    /// up first, and ends with it if the key is present.
    pub(crate) fn run_async<F: Future, R>(
        self,
        hit: Option<fn(V) -> R>,
        make: impl FnOnce(Option<&Seen<V>>) -> F,
        finish: impl FnOnce(Run<'a, K, V, S, F::Output>) -> R,
    ) -> impl Future<Output = R>
    where
        S: CacheHasher,
    {
        LoadFuture::new(self, hit, make, finish)
    }
}

/// What the code of a call has made: the value, and how long it lives; or the failure.
pub(crate) type Made<V> = Result<(Box<Seen<V>>, LifetimeSource), Outcome<V>>;

/// Ends the load of a call by what its closure has made; the value, however it came.
pub(crate) fn conclude<K: CacheKey, V: CacheValue, S: BuildHasher, O>(
    run: Run<'_, K, V, S, O>,
    made: impl FnOnce(O) -> Made<V>,
) -> Result<Box<Seen<V>>, Outcome<V>> {
    match run {
        Ok((guard, _, output)) => match made(output) {
            Ok((own, given)) => Ok(guard.fill(own, given).into_seen()),
            Err(failure) => {
                guard.fail(&failure);
                Err(failure)
            }
        },
        Err(Claim::Value(seen)) => Ok(seen),
        Err(Claim::Failed(failure)) => Err(failure),
        Err(_) => unreachable!("a call that waits gets a value, a failure, or the lead"),
    }
}

/// A form of call.
pub(super) trait Form<V> {
    /// The answer of the closure.
    type Made;
    /// The return type of the call; `T` is the value, or the entry.
    type Answer<T>;

    /// Which outcomes of another call's load it accepts.
    fn want() -> Want;

    /// The value to store, and for how long; or the failure.
    fn made(made: Self::Made) -> Made<V>;

    fn answer<T>(outcome: Result<T, Outcome<V>>) -> Self::Answer<T>;
}

/// The form of a load whose code always makes a value.
pub(super) struct Sure;

impl<V> Form<V> for Sure {
    type Made = V;
    type Answer<T> = T;

    fn want() -> Want {
        Want::Value
    }

    #[inline]
    fn made(value: V) -> Made<V> {
        Ok((Seen::made(value), LifetimeSource::Policy))
    }

    #[inline]
    fn answer<T>(outcome: Result<T, Outcome<V>>) -> T {
        outcome.unwrap_or_else(|_| unreachable!("it accepts values only"))
    }
}

/// A value, and how long it lives.
pub(super) struct WithTtl;

impl<V> Form<V> for WithTtl {
    type Made = (V, Duration);
    type Answer<T> = T;

    fn want() -> Want {
        Want::Value
    }

    fn made((value, ttl): (V, Duration)) -> Made<V> {
        Ok((Seen::made(value), LifetimeSource::Ttl(ttl)))
    }

    #[inline]
    fn answer<T>(outcome: Result<T, Outcome<V>>) -> T {
        <Sure as Form<V>>::answer(outcome)
    }
}

/// A value, or none.
pub(super) struct Optional;

impl<V> Form<V> for Optional {
    type Made = Option<V>;
    type Answer<T> = Option<T>;

    fn want() -> Want {
        Want::Optional
    }

    fn made(value: Option<V>) -> Made<V> {
        match value {
            Some(value) => Ok((Seen::made(value), LifetimeSource::Policy)),
            None => Err(Outcome::Absent),
        }
    }

    #[inline]
    fn answer<T>(outcome: Result<T, Outcome<V>>) -> Option<T> {
        outcome.ok()
    }
}

/// A value, or an error.
pub(super) struct Fallible<E>(PhantomData<E>);

impl<V, E: Send + Sync + 'static> Form<V> for Fallible<E> {
    type Made = Result<V, E>;
    type Answer<T> = Result<T, Arc<E>>;

    fn want() -> Want {
        fallible::<E>()
    }

    fn made(value: Result<V, E>) -> Made<V> {
        match value {
            Ok(value) => Ok((Seen::made(value), LifetimeSource::Policy)),
            Err(error) => Err(Outcome::Error(Arc::new(error))),
        }
    }

    #[inline]
    fn answer<T>(outcome: Result<T, Outcome<V>>) -> Result<T, Arc<E>> {
        outcome.map_err(|failure| match failure {
            Outcome::Error(error) => error_of(error),
            _ => unreachable!("it accepts values and errors of its type only"),
        })
    }
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
