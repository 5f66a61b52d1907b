//! How a loader is called, and what its answer means for the load.

use super::LoadingCache;
use super::kinds::{Answering, AnyLoader, Boxed, Task};
use super::loader::{LoadError, Loaded, Reloaded};
use crate::contain::contain;
use crate::load::state::{Load, Outcome, Want};
use crate::load::{
    CacheHasher, CacheKey, CacheValue, CallGuard, Claim, Claimant, Guard, Home, Keyless, Keys,
    Request, error_of, poll_leader, wrong_number_of_values,
};
use crate::operations::{Core, FromLoad, LifetimeSource};
use crate::time;
use std::any::Any;
use std::future::{Future, poll_fn};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::pin::pin;
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll, Waker};
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
pub(super) async fn run<K, V, E, H>(
    loader: Arc<dyn AnyLoader<K, V, E>>,
    guard: Guard<K, V, H>,
) -> Answer<V, E>
where
    K: CacheKey,
    V: CacheValue,
    E: Send + Sync + 'static,
    H: Home<K, V, Hasher: CacheHasher>,
{
    let Some(began) = guard.begin_run() else {
        return Err(LoadError::Panicked);
    };
    let (key, old) = (guard.load().key(), guard.old());
    let made = caught(|| loader.load(key, old.as_ref().map(|(old, _)| &old.value))).await;
    end(guard, began, made.map(Some), old)
}

/// Calls the loader for several absent keys, ends each load by what it answers, and tells each
/// answer, in the order of the guards. If the loader answers with another number of values, `wrong`
/// gets both numbers, and the guards are dropped.
pub(super) async fn run_many<K, V, E, H>(
    loader: Arc<dyn AnyLoader<K, V, E>>,
    guards: Vec<Guard<K, V, H>>,
    wrong: Arc<OnceLock<(usize, usize)>>,
    mut tell: impl FnMut(Answer<V, E>),
) where
    K: CacheKey,
    V: CacheValue,
    E: Send + Sync + 'static,
    H: Home<K, V, Hasher: CacheHasher>,
{
    let Some(began) = guards.iter().filter_map(Guard::begin_run).max() else {
        return;
    };
    let keys = guards.iter().map(|guard| guard.load().key().clone());
    let keys: Vec<K> = keys.collect();
    let mut made = caught(|| loader.load_many(&keys)).await.map(Vec::into_iter);
    if let Ok(values) = &made
        && values.len() != guards.len()
    {
        _ = wrong.set((guards.len(), values.len()));
        return;
    }
    let mut panicked = None;
    for guard in guards {
        let made = match &mut made {
            Ok(values) => Ok(values.next().flatten().map(Loaded::boxed)),
            Err(error) => Err(error.clone()),
        };
        // Other user code that panics about one key does not keep the others from their values.
        match catch_unwind(AssertUnwindSafe(|| end(guard, began, made, None))) {
            Ok(answer) => tell(answer),
            Err(panic) if panicked.is_none() => panicked = Some(panic),
            Err(panic) => _ = contain(|| drop(panic)),
        }
    }
    if let Some(panic) = panicked {
        resume_unwind(panic);
    }
}

/// Ends a load or a reload by what the loader has made; `None` if the key has no value. If other
/// user code panics, the guard is dropped.
fn end<K, V, E, H>(
    guard: Guard<K, V, H>,
    began: u64,
    made: Result<Option<Boxed<V>>, LoadError<E>>,
    old: Option<(Box<Keyless<V>>, Option<Duration>)>,
) -> Answer<V, E>
where
    K: CacheKey,
    V: CacheValue,
    E: Send + Sync + 'static,
    H: Home<K, V, Hasher: CacheHasher>,
{
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
        (unchanged, Some((old, lifetime))) => {
            if let Reloaded::UnchangedFor {
                expires_in,
                refresh_in,
            } = unchanged
            {
                (from.lifetime, from.refresh) = (expires_in.map(Some), refresh_in);
            }
            from.lifetime = from.lifetime.or(lifetime.map(Some));
            guard.unchanged(old, from);
        }
    }
    Ok(None)
}

/// Runs a load or a reload on this thread, for a [`Loader`](super::Loader).
pub(super) fn run_here<K, V, E, H>(
    loader: &Arc<dyn AnyLoader<K, V, E>>,
    guard: Guard<K, V, H>,
) -> Answer<V, E>
where
    K: CacheKey,
    V: CacheValue,
    E: Send + Sync + 'static,
    H: Home<K, V, Hasher: CacheHasher>,
{
    let load = Arc::clone(guard.load());
    poll_here(&[load], run(Arc::clone(loader), guard))
}

/// Runs the code of these loads on this thread: without futures, it waits for none.
fn poll_here<K, V, T>(loads: &[Arc<Load<K, V>>], run: impl Future<Output = T>) -> T {
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

impl<K: CacheKey, V: CacheValue, E: Send + Sync + 'static, S: CacheHasher>
    LoadingCache<K, V, E, S>
{
    /// Loads the keys that are absent, for a [`Loader`](super::Loader): all that no other call
    /// loads on this thread, by one call of the loader. Then the call waits for the other loads.
    pub(super) async fn load_all_here(
        &self,
        mut keys: Keys<K, V>,
    ) -> Result<Vec<Option<V>>, LoadError<E>> {
        let core = self.cache.core();
        let (mut guards, mut waiters) = (Vec::new(), Vec::new());
        for &place in &keys.missing {
            let key = keys.unique[place].clone();
            let ask = Request::value(Want::LookUpAgain);
            let mut claimant = Claimant::new(core, core.hash(&key), key, ask);
            match claimant.step(None) {
                Some(Claim::Guard(guard, _)) => guards.push((place, guard)),
                Some(claim) => keys.answers[place] = answer(claim)?.map(|seen| seen.value),
                None => waiters.push((place, claimant)),
            }
        }
        self.run_many_here(guards, &mut keys.answers)?;
        for (place, mut waiter) in waiters {
            match poll_fn(|cx| waiter.poll_claim(cx)).await {
                Claim::Guard(guard, _) => {
                    self.run_many_here(vec![(place, guard)], &mut keys.answers)?;
                }
                claim => keys.answers[place] = answer(claim)?.map(|seen| seen.value),
            }
        }
        Ok(keys.in_order())
    }

    /// Runs these loads on this thread. A guard stands with the place of its answer.
    fn run_many_here(
        &self,
        guards: Vec<(usize, CallGuard<'_, K, V, S>)>,
        answers: &mut [Option<V>],
    ) -> Result<(), LoadError<E>> {
        if guards.is_empty() {
            return Ok(());
        }
        let (places, guards): (Vec<_>, Vec<_>) = guards.into_iter().unzip();
        let loads: Vec<_> = guards
            .iter()
            .map(|guard| Arc::clone(guard.load()))
            .collect();
        let (mut places, mut failed, wrong) = (places.into_iter(), None, Arc::default());
        let tell = |answer: Answer<V, E>| {
            let place = places.next();
            match answer {
                Ok(seen) => _ = place.map(|place| answers[place] = seen.map(|seen| seen.value)),
                Err(error) => failed = Some(error),
            }
        };
        let run = run_many(
            Arc::clone(&self.inner.loader),
            guards,
            Arc::clone(&wrong),
            tell,
        );
        poll_here(&loads, run);
        if let Some(&(asked, got)) = wrong.get() {
            panic!("{}", wrong_number_of_values(asked, got));
        }
        failed.map_or(Ok(()), Err)
    }
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
