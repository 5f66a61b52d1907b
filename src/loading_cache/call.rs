//! How a loader is called, and what its answer means for the load.

use super::LoadingCache;
use super::kinds::{AnyLoader, Task};
use super::loader::{LoadError, Loaded, Reloaded};
use crate::contain::contain;
use crate::load::cycle::thread_number;
use crate::load::state::{Load, Outcome, RevokedBy};
use crate::load::wait::{in_loader, mark_lead};
use crate::load::{
    CacheHasher, CacheKey, CacheValue, Keyless, Made, OwnedGuard, Run, conclude, error_of,
};
use crate::operations::{Core, FromLoad, LifetimeSource};
use crate::time;
use std::any::Any;
use std::future::{Future, poll_fn};
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

impl<K: CacheKey, V: CacheValue, E: Send + Sync + 'static, S: CacheHasher>
    LoadingCache<K, V, E, S>
{
    /// Calls the loader on this thread, and says how long it took.
    pub(super) fn timed<T>(
        &self,
        load: impl FnOnce() -> Result<T, E>,
    ) -> Result<(T, Duration), LoadError<E>> {
        let clock = &self.cache.core().shared.clock;
        let began = clock.now();
        let made = match contain(|| in_loader(load)) {
            Some(made) => made.map_err(|error| LoadError::Failed(Arc::new(error)))?,
            None => return Err(LoadError::Panicked),
        };
        Ok((made, between(began, clock.now())))
    }
}

/// The loader's answer, and how long it took.
type Timed<V, E> = Result<(Loaded<V>, Duration), LoadError<E>>;

/// What the loader has made.
pub(super) fn made<V, E: Send + Sync + 'static>(loaded: Timed<V, E>) -> Made<V> {
    let (loaded, took) = loaded.map_err(failure)?;
    let (value, given) = put(loaded, took, false);
    Ok((Keyless::made(value), given))
}

/// Ends the load of a call that has run the loader itself; the answer of the call.
pub(super) fn conclude_own<K: CacheKey, V: CacheValue, E: Send + Sync + 'static, S: CacheHasher>(
    run: Run<'_, K, V, S, Made<V>>,
) -> Result<V, LoadError<E>> {
    match conclude(run) {
        Ok(seen) => Ok(seen.value),
        Err(Outcome::Error(error)) => Err((*error_of::<LoadError<E>>(error)).clone()),
        Err(_) => unreachable!("it accepts values and errors only"),
    }
}

/// The answer to a waiter.
pub(super) fn answer<V: Clone, E: Send + Sync + 'static>(
    outcome: &Outcome<V>,
) -> Result<Option<V>, LoadError<E>> {
    match outcome {
        Outcome::Value(shared) => Ok(Some(shared.value.clone())),
        Outcome::Error(error) => Err((*error_of::<LoadError<E>>(Arc::clone(error))).clone()),
        Outcome::Absent | Outcome::Nothing => Ok(None),
    }
}

/// The present value of a key that is reloaded, and the lifetime that it has again if it is
/// unchanged.
type Old<V> = Option<(V, Option<Duration>)>;

/// The task of a load or a reload.
pub(super) fn run<K: CacheKey, V: CacheValue, E: Send + Sync + 'static, S: CacheHasher>(
    loader: Arc<AnyLoader<K, V, E>>,
    guard: OwnedGuard<K, V, S>,
) -> Task {
    task(vec![Arc::clone(guard.load())], async move {
        let Some(began) = guard.begin_run() else {
            return;
        };
        let old = guard.is_reload().then(|| guard.old()).flatten();
        let present = old.as_ref().map(|(value, _)| value);
        let made = loader.load_or_reload(guard.load().key(), present).await;
        finish(guard, began, made, old);
    })
}

/// Runs a load or a reload of a [`Loader`](super::Loader) on this thread: its task never waits.
pub(super) fn run_now<K: CacheKey, V: CacheValue, E: Send + Sync + 'static, S: CacheHasher>(
    loader: &Arc<AnyLoader<K, V, E>>,
    guard: OwnedGuard<K, V, S>,
) {
    if guard.load().revoked() == Some(RevokedBy::NewerLoad) {
        // It waited for so long that a newer load has replaced it. Dropping the guard counts as a
        // failure.
        return;
    }
    let mut task = run(Arc::clone(loader), guard);
    let polled = in_loader(|| task.as_mut().poll(&mut Context::from_waker(Waker::noop())));
    debug_assert!(polled.is_ready());
}

/// The task of the loads of several absent keys. If the loader returns another number of values,
/// `wrong` gets both numbers, and the loads fail.
pub(super) fn run_many<K: CacheKey, V: CacheValue, E: Send + Sync + 'static, S: CacheHasher>(
    loader: Arc<AnyLoader<K, V, E>>,
    guards: Vec<OwnedGuard<K, V, S>>,
    wrong: Arc<OnceLock<(usize, usize)>>,
) -> Task {
    let loads = guards.iter().map(|guard| Arc::clone(guard.load()));
    task(loads.collect(), async move {
        guards.iter().for_each(|guard| _ = guard.begin_run());
        let Some(began) = guards.first().and_then(OwnedGuard::now) else {
            return;
        };
        let keys = guards.iter().map(|guard| guard.load().key().clone());
        let values = match loader.load_many(&keys.collect::<Vec<K>>()).await {
            Ok(values) => values,
            Err(error) => {
                let error = failure(LoadError::Failed(Arc::new(error)));
                let fail = |guard: OwnedGuard<_, _, _>| _ = contain(|| guard.give_up(&error));
                return guards.into_iter().for_each(fail);
            }
        };
        if values.len() != guards.len() {
            wrong.set((guards.len(), values.len())).ok();
            return;
        }
        for (guard, value) in guards.into_iter().zip(values) {
            match value {
                Some(loaded) => finish(guard, began, Ok::<_, E>(Reloaded::New(loaded)), None),
                None => _ = contain(|| guard.give_up(&Outcome::Absent)),
            }
        }
    })
}

/// A task that leads loads: while it is polled, its thread is their leader. After a panic it is
/// dropped, and the guards with it.
fn task<K: CacheKey, V: CacheValue>(
    loads: Vec<Arc<Load<K, V>>>,
    run: impl Future<Output = ()> + Send + 'static,
) -> Task {
    let mut run: Option<Task> = Some(Box::pin(run));
    Box::pin(poll_fn(move |cx| {
        let Some(future) = &mut run else {
            return Poll::Ready(());
        };
        let me = thread_number();
        loads.iter().for_each(|load| load.set_leader(me));
        let _mark = mark_lead();
        let polled = contain(|| future.as_mut().poll(cx));
        let led = loads.iter().filter(|load| load.leader() == me);
        led.for_each(|load| load.set_leader(0));
        if matches!(polled, Some(Poll::Pending)) {
            return Poll::Pending;
        }
        let future = run.take();
        contain(|| drop(future));
        Poll::Ready(())
    }))
}

/// Ends a run with the loader's answer.
fn finish<K: CacheKey, V: CacheValue, E: Send + Sync + 'static, S: CacheHasher>(
    guard: OwnedGuard<K, V, S>,
    began: u64,
    made: Result<Reloaded<V>, E>,
    old: Old<V>,
) {
    let took = between(began, guard.now().unwrap_or(began));
    let reload = guard.is_reload();
    let (expires_in, refresh_in) = match made {
        Ok(Reloaded::UnchangedFor {
            expires_in,
            refresh_in,
        }) => (expires_in, refresh_in),
        _ => (None, None),
    };
    // A panic of user code on the way is a failure.
    contain(|| match (made, old) {
        (Err(error), _) => guard.give_up(&failure(LoadError::Failed(Arc::new(error)))),
        (Ok(Reloaded::New(loaded)), _) => {
            let (value, given) = put(loaded, took, reload);
            drop(guard.fill(Keyless::made(value), given));
        }
        // Without an old value there is nothing that could be unchanged.
        (Ok(Reloaded::Gone), _) | (Ok(_), None) => _ = guard.remove(Outcome::Absent),
        (Ok(_), Some((old, former))) => {
            let from = FromLoad {
                lifetime: expires_in.or(former).map(Some),
                refresh: refresh_in,
                reload,
                took,
            };
            guard.unchanged(old, from);
        }
    });
}

/// A failure as waiters share it.
fn failure<E: Send + Sync + 'static, V>(error: LoadError<E>) -> Outcome<V> {
    let error: Arc<dyn Any + Send + Sync> = Arc::new(error);
    Outcome::Error(error)
}

/// The failure that waiters get after a panic, or after a task was dropped.
pub(super) fn dropped<K: CacheKey, V: CacheValue, E: Send + Sync + 'static, S>(
    core: Option<&Core<K, V, S>>,
    load: &Load<K, V>,
) -> Outcome<V> {
    if let Some(core) = core {
        contain(|| core.back_off(load));
    }
    failure(LoadError::<E>::Panicked)
}

/// The value to store, and where its lifetime comes from.
pub(super) fn put<V>(loaded: Loaded<V>, took: Duration, reload: bool) -> (V, LifetimeSource) {
    let from = FromLoad {
        lifetime: loaded.lifetime,
        refresh: loaded.refresh,
        reload,
        took,
    };
    (loaded.value, LifetimeSource::Loaded(from))
}

/// The time between two readings of a cache's clock.
fn between(began: u64, ended: u64) -> Duration {
    Duration::from_nanos(time::elapsed(ended, began))
}
