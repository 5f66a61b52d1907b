//! How a loader is called, and what its answer means for the load.

use super::LoadingCache;
use super::kinds::{BoxFuture, OwnedFutures};
use super::loader::{LoadError, Loaded, Loader, Reloaded};
use crate::contain::contain;
use crate::load::cycle::thread_number;
use crate::load::state::{Load, Outcome, RevokedBy};
use crate::load::wait::{in_loader, mark_lead};
use crate::load::{
    CacheHasher, CacheKey, CacheValue, Keyless, OwnedGuard, Run, conclude, error_of,
};
use crate::operations::{FromLoad, LifetimeSource};
use crate::time;
use std::any::Any;
use std::future::{Future, poll_fn};
use std::sync::{Arc, OnceLock};
use std::task::Poll;
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

    /// Calls the loader for several keys.
    #[expect(
        clippy::type_complexity,
        reason = "a list of what may be there, with its time"
    )]
    pub(super) fn load_many(
        &self,
        loader: &dyn Loader<K, V, Error = E>,
        keys: &[K],
    ) -> Result<Vec<Option<(Loaded<V>, Duration)>>, LoadError<E>> {
        let (values, took) = self.timed(|| loader.load_many(keys))?;
        let timed = |value: Option<_>| value.map(|value| (value, took));
        Ok(values.into_iter().map(timed).collect())
    }
}

/// The loader's answer, and how long it took.
type Timed<V, E> = Result<(Loaded<V>, Duration), LoadError<E>>;

/// Ends the load of a call that has run the loader itself; the answer of the call.
pub(super) fn conclude_own<K: CacheKey, V: CacheValue, E: Send + Sync + 'static, S: CacheHasher>(
    run: Run<'_, K, V, S, Timed<V, E>>,
) -> Result<V, LoadError<E>> {
    let made = |loaded: Timed<V, E>| match loaded {
        Ok((loaded, took)) => {
            let (value, given) = put(loaded, took);
            Ok((Keyless::made(value), given))
        }
        Err(error) => Err(failure(error)),
    };
    match conclude(run, made) {
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

/// Runs a load or a reload on this thread. A panic drops the right: the load has failed.
pub(super) fn run_blocking<K: CacheKey, V: CacheValue, E: Send + Sync + 'static, S: CacheHasher>(
    loader: &dyn Loader<K, V, Error = E>,
    right: OwnedGuard<K, V, S>,
) {
    let load = Arc::clone(right.load());
    if load.revoked() == Some(RevokedBy::NewerLoad) {
        // It waited for so long that a newer load has replaced it. Dropping the right counts as a
        // failure.
        return;
    }
    let Some(began) = right.begin_run() else {
        return;
    };
    // Until the end of the run: what is loaded is committed on this thread as well.
    load.set_leader(thread_number());
    let old = old_of(&right);
    let made = match &old {
        Some((old, _)) => loader.reload(load.key(), old),
        None => loader.load(load.key()).map(Reloaded::New),
    };
    finish(right, began, made, old);
}

/// The task of a load or a reload.
pub(super) fn run_in_task<K: CacheKey, V: CacheValue, E: Send + Sync + 'static, S: CacheHasher>(
    loader: Arc<dyn OwnedFutures<K, V, E>>,
    right: OwnedGuard<K, V, S>,
) -> BoxFuture<()> {
    task(vec![Arc::clone(right.load())], async move {
        let Some(began) = right.begin_run() else {
            return;
        };
        let key = right.load().key().clone();
        let old = old_of(&right);
        let made = match &old {
            Some((old, _)) => loader.reload(key, old.clone()).await,
            None => loader.load(key).await.map(Reloaded::New),
        };
        finish(right, began, made, old);
    })
}

/// The task of the loads of several absent keys. If the loader returns another number of values,
/// `wrong` gets both numbers, and the loads fail.
pub(super) fn run_many_in_task<
    K: CacheKey,
    V: CacheValue,
    E: Send + Sync + 'static,
    S: CacheHasher,
>(
    loader: Arc<dyn OwnedFutures<K, V, E>>,
    rights: Vec<OwnedGuard<K, V, S>>,
    wrong: Arc<OnceLock<(usize, usize)>>,
) -> BoxFuture<()> {
    let loads = rights.iter().map(|right| Arc::clone(right.load()));
    task(loads.collect(), async move {
        rights.iter().for_each(|right| _ = right.begin_run());
        let Some(began) = rights.first().and_then(OwnedGuard::now) else {
            return;
        };
        let keys = rights.iter().map(|right| right.load().key().clone());
        let values = match loader.load_many(keys.collect()).await {
            Ok(values) => values,
            Err(error) => {
                let error = failure(LoadError::Failed(Arc::new(error)));
                let fail = |right: OwnedGuard<_, _, _>| _ = contain(|| right.give_up(&error));
                return rights.into_iter().for_each(fail);
            }
        };
        if values.len() != rights.len() {
            wrong.set((rights.len(), values.len())).ok();
            return;
        }
        for (right, value) in rights.into_iter().zip(values) {
            match value {
                Some(loaded) => finish(right, began, Ok::<_, E>(Reloaded::New(loaded)), None),
                None => _ = contain(|| right.give_up(&Outcome::Absent)),
            }
        }
    })
}

/// A task that leads loads: while it is polled, its thread is their leader. After a panic it is
/// dropped, and the rights to load with it.
fn task<K: CacheKey, V: CacheValue>(
    loads: Vec<Arc<Load<K, V>>>,
    run: impl Future<Output = ()> + Send + 'static,
) -> BoxFuture<()> {
    let mut run: Option<BoxFuture<()>> = Some(Box::pin(run));
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

fn old_of<K: CacheKey, V: CacheValue, S: CacheHasher>(right: &OwnedGuard<K, V, S>) -> Old<V> {
    if right.is_reload() { right.old() } else { None }
}

/// Ends a run with the loader's answer.
fn finish<K: CacheKey, V: CacheValue, E: Send + Sync + 'static, S: CacheHasher>(
    right: OwnedGuard<K, V, S>,
    began: u64,
    made: Result<Reloaded<V>, E>,
    old: Old<V>,
) {
    let took = between(began, right.now().unwrap_or(began));
    let reload = right.is_reload();
    let from = |lifetime, refresh| FromLoad {
        lifetime,
        refresh,
        reload,
        took,
    };
    // A panic of user code on the way is a failure.
    contain(|| match (made, old) {
        (Err(error), _) => right.give_up(&failure(LoadError::Failed(Arc::new(error)))),
        (Ok(Reloaded::New(loaded)), _) => {
            let given = LifetimeSource::Loaded(from(loaded.lifetime, loaded.refresh));
            drop(right.fill(Keyless::made(loaded.value), given));
        }
        (Ok(Reloaded::Unchanged), Some((old, lifetime))) => {
            right.unchanged(old, from(lifetime.map(Some), None));
        }
        (
            Ok(Reloaded::UnchangedFor {
                expires_in,
                refresh_in,
            }),
            Some((old, lifetime)),
        ) => {
            let lifetime = expires_in.or(lifetime);
            right.unchanged(old, from(lifetime.map(Some), refresh_in));
        }
        // Without an old value there is nothing that could be unchanged.
        (Ok(_), _) => _ = right.remove(Outcome::Absent),
    });
}

/// A failure as waiters share it.
fn failure<E: Send + Sync + 'static, V>(error: LoadError<E>) -> Outcome<V> {
    let error: Arc<dyn Any + Send + Sync> = Arc::new(error);
    Outcome::Error(error)
}

/// The failure that waiters get after a panic, or after a task was dropped.
pub(super) fn panicked<E: Send + Sync + 'static, V>() -> Outcome<V> {
    failure(LoadError::<E>::Panicked)
}

/// The value to store, and where its lifetime comes from.
pub(super) fn put<V>(loaded: Loaded<V>, took: Duration) -> (V, LifetimeSource) {
    let from = FromLoad {
        lifetime: loaded.lifetime,
        refresh: loaded.refresh,
        reload: false,
        took,
    };
    (loaded.value, LifetimeSource::Loaded(from))
}

/// The time between two readings of a cache's clock.
fn between(began: u64, ended: u64) -> Duration {
    Duration::from_nanos(time::elapsed(ended, began))
}
