//! The future of a refresh.

use super::error::LoadError;
use super::run::{answer, block_on};
use super::source::panicked;
use super::wait::{Lateness, Wait};
use super::{Inner, LoadingCache};
use crate::load::{Ticket, Verdict, Want};
use crate::loading::{CacheHasher, CacheKey, CacheValue, Dropped, Right};
use crate::operations::WeakHandle;
use std::any::TypeId;
use std::fmt;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::{Arc, Weak};
use std::task::{Context, Poll};
use std::time::Duration;

/// A refresh that [`LoadingCache::refresh`] has requested: a future of its outcome. The refresh
/// continues if the future is dropped.
///
/// The outcome is the new value, or the one that an explicit write has stored meanwhile; `None` if
/// the loader answers [`Gone`](crate::Reloaded::Gone). A refresh that lasts longer than the
/// time-out is [`LoadError::TimedOut`], unless a newer load has taken its place: then it waits for
/// that one.
///
/// ```
/// use wheelhouse::{Cache, loader_fn};
///
/// let cache = Cache::builder().loading(loader_fn(|key: &u32| Ok::<u32, ()>(key * 2))).build();
/// assert_eq!(cache.refresh(4).wait().unwrap(), Some(8));
/// ```
#[must_use = "it says what came of the refresh, which goes on without it"]
pub struct Refreshing<V, E> {
    /// Until it is ready.
    outcome: Option<OutcomeFuture<V, E>>,
    /// How often a thread checks whether the load is overdue.
    check_interval: Option<Duration>,
}

type OutcomeFuture<V, E> =
    Pin<Box<dyn Future<Output = Result<Option<V>, LoadError<E>>> + Send + Sync>>;

impl<V, E> Refreshing<V, E> {
    /// Waits for the outcome, as a thread.
    ///
    /// # Errors
    ///
    /// If the loader fails or panics, or takes longer than the time-out.
    ///
    /// # Panics
    ///
    /// If the call would wait for a load that its own thread leads, itself or through loads of
    /// other threads.
    ///
    /// ```
    /// use wheelhouse::{Cache, LoadError, loader_fn};
    ///
    /// let cache = Cache::builder().loading(loader_fn(|_: &u32| Err::<u32, _>("closed"))).build();
    /// let error = cache.refresh(4).wait().unwrap_err();
    /// assert!(matches!(error, LoadError::Failed(_)));
    /// ```
    #[track_caller]
    pub fn wait(self) -> Result<Option<V>, LoadError<E>> {
        let check_interval = self.check_interval;
        block_on(self, check_interval)
    }
}

impl<V, E> Future for Refreshing<V, E> {
    type Output = Result<Option<V>, LoadError<E>>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        // Taken out while user code runs: after a panic the future stays ended.
        let Some(mut outcome) = self.outcome.take() else {
            panic!("the future of a refresh was polled after it was ready, or after it panicked");
        };
        let polled = outcome.as_mut().poll(cx);
        if polled.is_pending() {
            self.outcome = Some(outcome);
        }
        polled
    }
}

impl<V, E> fmt::Debug for Refreshing<V, E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Refreshing").finish_non_exhaustive()
    }
}

pub(super) fn refreshing<K: CacheKey, V: CacheValue, E: Send + Sync + 'static, S: CacheHasher>(
    wait: Wait<K, V, S>,
    cache: &LoadingCache<K, V, E, S>,
) -> Refreshing<V, E> {
    Refreshing {
        outcome: Some(Box::pin(outcome(
            wait,
            cache.cache.core.downgrade(),
            Arc::downgrade(&cache.inner),
        ))),
        check_interval: cache.check_interval(),
    }
}

/// Waits for the outcome, whichever load it comes from.
async fn outcome<K: CacheKey, V: CacheValue, E: Send + Sync + 'static, S: CacheHasher>(
    mut wait: Wait<K, V, S>,
    core: WeakHandle<K, V, S>,
    inner: Weak<Inner<K, V, E, S>>,
) -> Result<Option<V>, LoadError<E>> {
    // Whether it has gone on from an overdue load to a newer one.
    let mut switched = false;
    loop {
        let verdict = poll_fn(|cx| wait.poll(cx)).await;
        let load = Arc::clone(wait.load());
        match verdict {
            Verdict::Ended(outcome) => return answer(&outcome),
            // The load that was joined had no outcome: this call's own load replaces it.
            Verdict::Leads => {
                let (Some(visit), Some(inner)) = (core.visit(), inner.upgrade()) else {
                    wait.pass_on();
                    return Err(LoadError::Panicked);
                };
                let weak = core.clone();
                let right = Right::taken_over(&visit, weak, load, panicked::<E>, Dropped::Fails);
                wait = inner.launch_and_wait(&visit, &core, right);
            }
            // The load has no outcome: it is no longer current, or is overdue.
            Verdict::Retry => {
                let lateness = wait.lateness();
                let replaced = lateness == Lateness::Replaced;
                if lateness == Lateness::Overdue || (replaced && switched) {
                    return Err(LoadError::TimedOut);
                }
                let Some(visit) = core.visit() else {
                    return Err(LoadError::Panicked);
                };
                if replaced && let Some(inner) = inner.upgrade() {
                    switched = true;
                    let ticket = Ticket::draw();
                    let want = Want::Any(TypeId::of::<LoadError<E>>());
                    if let Some(newer) = visit.loads().join_current(&load, ticket, want) {
                        let drives = Arc::clone(&inner.drives);
                        wait = Wait::new(core.clone(), drives, newer, ticket);
                        continue;
                    }
                }
                let live = visit.loads().peek_got(load.hash(), load.key());
                return Ok(live.map(|got| got.value));
            }
        }
    }
}
