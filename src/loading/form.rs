//! The forms of a call that loads: what its closure answers, and what the call returns.

use super::run::Made;
use crate::load::{Failure, Want};
use crate::operations::LifetimeSource;
use std::any::{Any, TypeId};
use std::convert::Infallible;
use std::marker::PhantomData;
use std::sync::Arc;
use std::time::Duration;

/// A form of call.
pub(super) trait Form<V> {
    /// The answer of the closure.
    type Made;
    /// The return type of the call; `T` is the value, or the entry.
    type Answer<T>;

    /// Which outcomes of another call's load it accepts.
    fn want() -> Want;

    fn made(made: Self::Made) -> Made<V, Infallible>;

    fn answer<T>(outcome: Result<T, Option<Failure>>) -> Self::Answer<T>;
}

fn put<V>(value: V) -> Made<V, Infallible> {
    Made::Put(value, LifetimeSource::Policy)
}

/// A value for certain.
pub(super) struct Sure;

impl<V> Form<V> for Sure {
    type Made = V;
    type Answer<T> = T;

    fn want() -> Want {
        Want::Value
    }

    fn made(value: V) -> Made<V, Infallible> {
        put(value)
    }

    #[inline]
    fn answer<T>(outcome: Result<T, Option<Failure>>) -> T {
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

    fn made((value, ttl): (V, Duration)) -> Made<V, Infallible> {
        Made::Put(value, LifetimeSource::Ttl(ttl))
    }

    #[inline]
    fn answer<T>(outcome: Result<T, Option<Failure>>) -> T {
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

    fn made(value: Option<V>) -> Made<V, Infallible> {
        value.map_or(Made::Absent, put)
    }

    #[inline]
    fn answer<T>(outcome: Result<T, Option<Failure>>) -> Option<T> {
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

    fn made(value: Result<V, E>) -> Made<V, Infallible> {
        value.map_or_else(|error| Made::Error(Arc::new(error)), put)
    }

    #[inline]
    fn answer<T>(outcome: Result<T, Option<Failure>>) -> Result<T, Arc<E>> {
        outcome.map_err(|failure| match failure {
            Some(Failure::Error(error)) => error_of(error),
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
