//! How a loader is called, and what its answer means for the load.

use super::LoadingCache;
use super::kinds::{BoxedFutures, Task};
use super::loader::{LoadError, Loaded, Loader, Reloaded};
use crate::contain::contain;
use crate::load::cycle::thread_number;
use crate::load::state::{Load, Outcome, RevokedBy};
use crate::load::wait::{in_loader, mark_lead};
use crate::load::{CacheHasher, CacheKey, CacheValue, Keyless, OwnedGuard, error_of};
use crate::operations::{Core, FromLoad, LifetimeSource};
use crate::time;
use std::any::Any;
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll};
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

/// The answer to a call: `None` if the loader says that there is no value. The value is in a box,
/// as it may be large, and passes through several futures.
pub(super) type Answer<V, E> = Result<Option<Box<Keyless<V>>>, LoadError<E>>;

/// The answer to a waiter.
pub(super) fn answer<V: Clone, E: Send + Sync + 'static>(outcome: &Outcome<V>) -> Answer<V, E> {
    match outcome {
        Outcome::Value(shared) => Ok(Some(Keyless::made(shared.value.clone()))),
        Outcome::Error(error) => Err((*error_of::<LoadError<E>>(Arc::clone(error))).clone()),
        Outcome::Absent | Outcome::Nothing => Ok(None),
    }
}

/// The present value of a key that is reloaded, and the lifetime that it has again if it is
/// unchanged.
type Old<V> = Option<(V, Option<Duration>)>;

/// The task of a load or a reload.
pub(super) fn run<K: CacheKey, V: CacheValue, E: Send + Sync + 'static, S: CacheHasher>(
    loader: Arc<dyn BoxedFutures<K, V, E>>,
    guard: OwnedGuard<K, V, S>,
) -> Task {
    task(vec![Arc::clone(guard.load())], async move {
        let Some(began) = guard.begin_run() else {
            return;
        };
        let (key, old) = (guard.load().key(), guard.old());
        let made = match &old {
            Some((old, _)) => loader.reload(key, old).await,
            None => loader.load(key).await.map(Reloaded::New),
        };
        finish(guard, began, made, old);
    })
}

/// Runs a load or a reload on this thread. If it panics, it has failed.
pub(super) fn run_now<K: CacheKey, V: CacheValue, E: Send + Sync + 'static, S: CacheHasher>(
    loader: &dyn Loader<K, V, Error = E>,
    guard: OwnedGuard<K, V, S>,
) {
    if guard.load().revoked() == Some(RevokedBy::NewerLoad) {
        // It waited for so long that a newer load has replaced it. Dropping the guard counts as a
        // failure.
        return;
    }
    let Some(began) = guard.begin_run() else {
        return;
    };
    guard.load().set_leader(thread_number());
    let _mark = mark_lead();
    let (key, old) = (guard.load().key(), guard.old());
    let made = in_loader(|| match &old {
        Some((old, _)) => loader.reload(key, old),
        None => loader.load(key).map(Reloaded::New),
    });
    finish(guard, began, made, old);
}

/// The task of the loads of several absent keys. If the loader returns another number of values,
/// `wrong` gets both numbers, and the loads fail.
pub(super) fn run_many<K: CacheKey, V: CacheValue, E: Send + Sync + 'static, S: CacheHasher>(
    loader: Arc<dyn BoxedFutures<K, V, E>>,
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
    Box::pin(async move {
        let mut run = pin!(Some(run));
        let poll = |cx: &mut Context<'_>| {
            let Some(future) = run.as_mut().as_pin_mut() else {
                return Poll::Ready(());
            };
            let me = thread_number();
            loads.iter().for_each(|load| load.set_leader(me));
            let _mark = mark_lead();
            let polled = contain(|| future.poll(cx));
            let led = loads.iter().filter(|load| load.leader() == me);
            led.for_each(|load| load.set_leader(0));
            if matches!(polled, Some(Poll::Pending)) {
                return Poll::Pending;
            }
            contain(|| run.set(None));
            Poll::Ready(())
        };
        poll_fn(poll).await;
    })
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
            let given = given(&loaded, took, reload);
            drop(guard.fill(Keyless::made(loaded.value), given));
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
pub(super) fn failure<E: Send + Sync + 'static, V>(error: LoadError<E>) -> Outcome<V> {
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

/// Where the lifetime of a loaded value comes from.
pub(super) fn given<T>(loaded: &Loaded<T>, took: Duration, reload: bool) -> LifetimeSource {
    LifetimeSource::Loaded(FromLoad {
        lifetime: loaded.lifetime,
        refresh: loaded.refresh,
        reload,
        took,
    })
}

/// The time between two readings of a cache's clock.
fn between(began: u64, ended: u64) -> Duration {
    Duration::from_nanos(time::elapsed(ended, began))
}
