//! How a loader is called, and what its answer means for the load.

use super::LoadingCache;
use super::error::LoadError;
use super::loader::{Loaded, Loader, Reloaded};
use super::source::{BoxFuture, Futures, between, failure, put, reload_result};
use crate::contain::contain;
use crate::load::{BlockingCall, Failure, Outcome};
use crate::loading::{CacheHasher, CacheKey, CacheValue, End, Made, ReloadResult, Right, error_of};
use crate::shared::about;
use crate::sync::Parker;
use std::convert::Infallible;
use std::future::{Future, poll_fn};
use std::pin::pin;
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
        let began = self.now();
        let made = LoadError::of(contain(load))?;
        Ok((made, between(began, self.now())))
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

/// The effect of a run of the loader on its load.
pub(super) fn made<V, E: Send + Sync + 'static>(
    loaded: Result<(Loaded<V>, Duration), LoadError<E>>,
) -> Made<V, Infallible> {
    match loaded {
        Ok((loaded, took)) => {
            let (value, given) = put(loaded, took);
            Made::Put(value, given)
        }
        Err(error) => Made::Error(Arc::new(error)),
    }
}

/// The answer to a call.
pub(super) fn result<V: Clone, E: Send + Sync + 'static>(
    end: End<V, Infallible>,
) -> Result<V, LoadError<E>> {
    end.got()
        .map(|got| got.value)
        .map_err(|failure| match failure {
            Some(Failure::Error(error)) => (*error_of::<LoadError<E>>(error)).clone(),
            _ => unreachable!("it accepts values and errors only"),
        })
}

/// The future of a load or a reload.
pub(super) fn drive<K: CacheKey, V: CacheValue, E: Send + Sync + 'static, S: CacheHasher>(
    loader: Arc<dyn Futures<K, V, E>>,
    right: Right<K, V, S>,
) -> BoxFuture<()> {
    Box::pin(async move {
        let Some(began) = right.begin_run() else {
            return;
        };
        let reload = right.is_reload();
        let begun = contain(|| {
            let key = right.load().key().clone();
            let old = if reload { right.old() } else { None };
            let future: BoxFuture<_> = match &old {
                Some(old) => loader.reload(key, old.clone()),
                None => {
                    let future = loader.load(key);
                    Box::pin(async { future.await.map(Reloaded::New) })
                }
            };
            (future, old)
        });
        let (future, old) = begun.map_or((None, None), |(future, old)| (Some(future), old));
        let made = until_panic(future).await;
        let took = between(began, right.now().unwrap_or(began));
        right.finish(reload_result(made, old, took, reload));
    })
}

/// The future of the loads of several absent keys. If the loader returns another number of values,
/// `wrong` gets both numbers, and the rights are given back.
pub(super) fn drive_several<
    K: CacheKey,
    V: CacheValue,
    E: Send + Sync + 'static,
    S: CacheHasher,
>(
    loader: Arc<dyn Futures<K, V, E>>,
    rights: Vec<Right<K, V, S>>,
    wrong: Arc<OnceLock<(usize, usize)>>,
) -> BoxFuture<()> {
    Box::pin(async move {
        let now = || rights.first().and_then(Right::now);
        rights.iter().for_each(|right| _ = right.begin_run());
        let Some(began) = now() else { return };
        let keys = || rights.iter().map(|right| right.load().key().clone());
        let future = contain(|| loader.load_many(keys().collect()));
        let made = until_panic(future).await;
        let took = between(began, now().unwrap_or(began));
        let values = match LoadError::of(made) {
            Ok(values) => values,
            Err(error) => {
                let fail = |right: Right<K, V, S>| {
                    right.finish(ReloadResult::Failed(failure(error.clone())));
                };
                return rights.into_iter().for_each(fail);
            }
        };
        if values.len() != rights.len() {
            wrong.set((rights.len(), values.len())).ok();
            return;
        }
        for (right, value) in rights.into_iter().zip(values) {
            right.finish(match value {
                Some(loaded) => {
                    reload_result::<V, E>(Some(Ok(Reloaded::New(loaded))), None, took, false)
                }
                None => ReloadResult::Failed(Failure::Absent),
            });
        }
    })
}

/// The output of a loader's future; `None` if it panicked, or was not even made.
pub(super) async fn until_panic<T>(future: Option<BoxFuture<T>>) -> Option<T> {
    let mut future = future?;
    let output = poll_fn(|cx| match contain(|| future.as_mut().poll(cx)) {
        Some(polled) => polled.map(Some),
        None => Poll::Ready(None),
    })
    .await;
    contain(|| drop(future));
    output
}

/// Waits for a future as a thread, which polls it at least every `check_interval`.
#[track_caller]
pub(super) fn block_on<F: Future>(future: F, check_interval: Option<Duration>) -> F::Output {
    // Not the thread's own parker: the future may run code that waits on that one.
    let parker: Arc<Parker> = Arc::default();
    let waker = Waker::from(Arc::clone(&parker));
    let mut cx = Context::from_waker(&waker);
    let mut future = pin!(future);
    let blocking = BlockingCall::begin();
    loop {
        if let Poll::Ready(output) = future.as_mut().poll(&mut cx) {
            return output;
        }
        let waited = blocking.wait(|| match check_interval {
            Some(time) => parker.park_for(time),
            None => parker.park(),
        });
        if let Err((name, fault)) = waited {
            panic!("{}", about(name.as_deref(), &fault));
        }
    }
}

/// The answer to a waiter.
pub(super) fn answer<V, E>(outcome: &Outcome<V>) -> Result<Option<V>, LoadError<E>>
where
    V: Clone,
    E: Send + Sync + 'static,
{
    match outcome {
        Outcome::Value(shared) => Ok(Some(shared.value.clone())),
        Outcome::Failed(Failure::Error(error)) => {
            Err((*error_of::<LoadError<E>>(Arc::clone(error))).clone())
        }
        Outcome::Failed(Failure::Absent) | Outcome::Nothing => Ok(None),
    }
}
