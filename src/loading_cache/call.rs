//! How a loader is called, and what its answer means for the load.

use super::kinds::{Answering, AnyLoader, Boxed, Task};
use super::loader::{LoadError, Loaded, Reloaded};
use crate::contain::contain;
use crate::load::state::{Load, Outcome};
use crate::load::{CacheHasher, CacheKey, CacheValue, Keyless, OwnedGuard, error_of, poll_leader};
use crate::operations::{Core, FromLoad, LifetimeSource};
use crate::time;
use std::any::Any;
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

/// The answer to a call: `None` if the loader says that there is no value. The value is in a box,
/// as it may be large, and passes through several futures.
pub(super) type Answer<V, E> = Result<Option<Box<Keyless<V>>>, LoadError<E>>;

/// The answer to a call that shares this failure.
pub(super) fn answer<V, E: Send + Sync + 'static>(failure: Outcome<V>) -> Answer<V, E> {
    match failure {
        Outcome::Error(error) => Err((*error_of::<LoadError<E>>(error)).clone()),
        _ => Ok(None),
    }
}

/// What the loader answers to a question; its panic is an answer, too.
async fn caught<'a, T, E>(ask: impl FnOnce() -> Answering<'a, T, E>) -> Result<T, LoadError<E>> {
    let answer = match contain(ask) {
        Some(Answering::Later(mut future)) => {
            let poll = |cx: &mut Context<'_>| match contain(|| future.as_mut().poll(cx)) {
                Some(polled) => polled.map(Some),
                None => Poll::Ready(None),
            };
            poll_fn(poll).await
        }
        Some(Answering::Now(answer)) => Some(answer),
        None => None,
    };
    let answer = answer.ok_or(LoadError::Panicked)?;
    answer.map_err(|error| LoadError::Failed(Arc::new(error)))
}

/// Calls the loader for a load or a reload, and ends that by what the loader answers.
pub(super) async fn run<K: CacheKey, V: CacheValue, E: Send + Sync + 'static, S: CacheHasher>(
    loader: Arc<dyn AnyLoader<K, V, E>>,
    guard: OwnedGuard<K, V, S>,
) -> Answer<V, E> {
    let Some(began) = guard.begin_run() else {
        return Err(LoadError::Panicked);
    };
    let (key, old) = (guard.load().key(), guard.old().map(Box::new));
    let made = caught(|| loader.load(key, old.as_ref().map(|old| &old.0))).await;
    end(guard, began, made.map(Some), old)
}

/// Calls the loader for several absent keys, and ends each load by what it answers. If it answers
/// with another number of values, `wrong` gets both numbers, and the loads fail.
pub(super) async fn run_many<K, V, E, S>(
    loader: Arc<dyn AnyLoader<K, V, E>>,
    guards: Vec<OwnedGuard<K, V, S>>,
    wrong: Arc<OnceLock<(usize, usize)>>,
) where
    K: CacheKey,
    V: CacheValue,
    E: Send + Sync + 'static,
    S: CacheHasher,
{
    let Some(began) = guards.iter().filter_map(OwnedGuard::begin_run).max() else {
        return;
    };
    let keys = guards.iter().map(|guard| guard.load().key().clone());
    let keys: Vec<K> = keys.collect();
    let made = match caught(|| loader.load_many(&keys)).await {
        Ok(values) if values.len() != guards.len() => {
            _ = wrong.set((guards.len(), values.len()));
            Err(LoadError::Panicked)
        }
        made => made,
    };
    let mut made = made.map(Vec::into_iter);
    for guard in guards {
        let made = match &mut made {
            Ok(values) => Ok(values.next().flatten().map(Loaded::boxed)),
            Err(error) => Err(error.clone()),
        };
        _ = end(guard, began, made, None);
    }
}

/// Ends a load or a reload by what the loader has made; `None` if the key has no value. If other
/// user code panics, the guard is dropped.
fn end<K: CacheKey, V: CacheValue, E: Send + Sync + 'static, S: CacheHasher>(
    guard: OwnedGuard<K, V, S>,
    began: u64,
    made: Result<Option<Boxed<V>>, LoadError<E>>,
    old: Option<Box<(V, Option<Duration>)>>,
) -> Answer<V, E> {
    let ended = guard.now().unwrap_or(began);
    let mut from = FromLoad {
        lifetime: None,
        refresh: None,
        reload: guard.is_reload(),
        took: Duration::from_nanos(time::elapsed(ended, began)),
    };
    let made = match made {
        Ok(Some(made)) => made,
        Ok(None) => {
            guard.fail(&Outcome::Absent);
            return Ok(None);
        }
        Err(error) => {
            guard.give_up(&failure(error.clone()));
            return Err(error);
        }
    };
    match (made, old) {
        (Reloaded::New(loaded), _) => {
            (from.lifetime, from.refresh) = (loaded.lifetime, loaded.refresh);
            let filling = guard.fill(loaded.value, LifetimeSource::Loaded(from));
            return Ok(Some(filling.into_entry()));
        }
        // Without an old value there is nothing that could be unchanged.
        (Reloaded::Gone, _) | (_, None) => _ = guard.remove(Outcome::Absent),
        (unchanged, Some(old)) => {
            if let Reloaded::UnchangedFor {
                expires_in,
                refresh_in,
            } = unchanged
            {
                (from.lifetime, from.refresh) = (expires_in.map(Some), refresh_in);
            }
            from.lifetime = from.lifetime.or(old.1.map(Some));
            guard.unchanged(old.0, from);
        }
    }
    Ok(None)
}

/// Runs the code of these loads on this thread: that of a [`Loader`](super::Loader) waits for no
/// future.
pub(super) fn run_here<K, V, T>(loads: &[Arc<Load<K, V>>], run: impl Future<Output = T>) -> T {
    let mut cx = Context::from_waker(Waker::noop());
    match poll_leader(loads.iter().map(|load| &**load), pin!(run), &mut cx) {
        Poll::Ready(answer) => answer,
        Poll::Pending => unreachable!("a loader without futures waits for none"),
    }
}

/// The code of these loads as a task. After a panic it has ended, and its guards are dropped.
pub(super) fn task<K: CacheKey, V: CacheValue>(
    loads: Vec<Arc<Load<K, V>>>,
    run: impl Future<Output: Send> + Send + 'static,
) -> Task {
    Box::pin(async move {
        let mut run = pin!(run);
        let poll = |cx: &mut Context<'_>| {
            let loads = loads.iter().map(|load| &**load);
            let polled = contain(|| poll_leader(loads, run.as_mut(), cx).map(drop));
            polled.unwrap_or(Poll::Ready(()))
        };
        poll_fn(poll).await;
    })
}

/// A failure as waiters share it.
pub(super) fn failure<E: Send + Sync + 'static, V>(error: LoadError<E>) -> Outcome<V> {
    let error: Arc<dyn Any + Send + Sync> = Arc::new(error);
    Outcome::Error(error)
}

/// The failure that waiters get after a task was dropped, or after user code other than the loader
/// has panicked.
pub(super) fn dropped<K: CacheKey, V: CacheValue, E: Send + Sync + 'static, S>(
    core: Option<&Core<K, V, S>>,
    load: &Load<K, V>,
) -> Outcome<V> {
    if let Some(core) = core {
        contain(|| core.back_off(load));
    }
    failure(LoadError::<E>::Panicked)
}
