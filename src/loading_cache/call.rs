//! How a loader is called, and what its answer means for the load.

use super::loader::{Change, LoadError, Loaded, Loader, Reloaded, Reply};
use crate::contain::contain;
use crate::load::state::{Load, Outcome};
use crate::load::wait::{Leading, in_loader};
use crate::load::{CacheHasher, CacheKey, CacheValue, Claim, Guard, Home, Keyless, Made, error_of};
use crate::operations::{Core, LifetimeSource};
use crate::stripe::thread_number;
use std::any::Any;
use std::sync::Arc;
use std::time::Duration;

/// The answer to a call: `None` if the loader says that there is no value. The value is in a box,
/// as it may be large, and passes through several futures.
pub(super) type Answer<V, E> = Result<Option<Box<Keyless<V>>>, LoadError<E>>;

/// The answer to a call that does not lead.
pub(super) fn answer<K, V, E: Send + Sync + 'static, H: Home<K, V>>(
    claim: Claim<K, V, H>,
) -> Answer<V, E> {
    match claim {
        Claim::Value(seen) => Ok(Some(seen)),
        Claim::Failed(Outcome::Error(error)) => Err((*error_of::<LoadError<E>>(error)).clone()),
        Claim::Failed(_) => Ok(None),
        // It waits, so the cache is gone.
        Claim::Busy(_) => Err(LoadError::Panicked),
        Claim::Guard(..) => unreachable!("a call that leads makes its own answer"),
    }
}

/// Runs a blocking loader; its panic is an answer, too.
pub(super) fn caught<T, E>(ask: impl FnOnce() -> Result<T, E>) -> Result<T, LoadError<E>> {
    let _loader = in_loader();
    contain(ask).map_or(Err(LoadError::Panicked), |answer| answer.map_err(failed))
}

/// The loader has returned this error.
pub(super) fn failed<E>(error: E) -> LoadError<E> {
    LoadError::Failed(Arc::new(error))
}

/// Runs a load or a reload on this thread.
pub(super) fn run_here<K, V, E, H>(
    loader: &dyn Loader<K, V, Error = E>,
    guard: Guard<K, V, H>,
) -> Answer<V, E>
where
    K: CacheKey,
    V: CacheValue,
    E: Send + Sync + 'static,
    H: Home<K, V, Hasher: CacheHasher>,
{
    guard.load().set_leader(thread_number());
    let (old, _leading) = (guard.old(), Leading::begin());
    let key = guard.load().key();
    let reply = caught(|| match &old {
        Some((old, _)) => loader.reload(key, &old.value).map(Reloaded::reply),
        None => loader.load(key).map(Loaded::reply),
    });
    end(guard, reply, old)
}

/// What a loader of several keys has made of one of them.
pub(super) fn of_loaded<K, V, E: Send + Sync + 'static, H: Home<K, V>>(
    guard: &Guard<K, V, H>,
    loaded: Result<Option<Loaded<V>>, LoadError<E>>,
) -> Made<V> {
    match loaded {
        Ok(Some(loaded)) => {
            let from = guard.loaded(loaded.lifetime, loaded.refresh);
            Ok((Keyless::made(loaded.value), LifetimeSource::Loaded(from)))
        }
        Ok(None) => Err(Outcome::Absent),
        Err(error) => Err(failure(error)),
    }
}

/// Ends a load or a reload by what the loader has made. If other user code panics, the guard is
/// dropped.
pub(super) fn end<K, V, E, H>(
    guard: Guard<K, V, H>,
    reply: Result<Reply<V>, LoadError<E>>,
    old: Option<(Box<Keyless<V>>, Option<Duration>)>,
) -> Answer<V, E>
where
    K: CacheKey,
    V: CacheValue,
    E: Send + Sync + 'static,
    H: Home<K, V, Hasher: CacheHasher>,
{
    let (change, lifetime, refresh) = match reply {
        Ok(reply) => reply,
        Err(error) => {
            guard.give_up(&failure(error.clone()));
            return Err(error);
        }
    };
    let mut from = guard.loaded(lifetime, refresh);
    match (change, old) {
        (Change::New(value), _) => {
            let filling = guard.fill(value, LifetimeSource::Loaded(from));
            return Ok(Some(filling.into_entry()));
        }
        (Change::Unchanged, Some((old, lifetime))) => {
            from.lifetime = from.lifetime.or(lifetime.map(Some));
            guard.unchanged(old, from);
        }
        // Without an old value there is nothing that could be unchanged.
        (Change::Gone | Change::Unchanged, _) => _ = guard.remove(Outcome::Absent),
    }
    Ok(None)
}

/// A failure as waiters share it.
pub(super) fn failure<E: Send + Sync + 'static, V>(error: LoadError<E>) -> Outcome<V> {
    let error: Arc<dyn Any + Send + Sync> = Arc::new(error);
    Outcome::Error(error)
}

/// The failure that waiters get after a task was dropped, or after user code has panicked.
pub(super) fn dropped<K: CacheKey, V: CacheValue, E: Send + Sync + 'static, S>(
    core: Option<&Core<K, V, S>>,
    load: &Load<K, V>,
) -> Outcome<V> {
    if let Some(core) = core {
        contain(|| core.back_off(load));
    }
    failure(LoadError::<E>::Panicked)
}
