//! The future of a refresh.

use super::background::Answer;
use super::loader::LoadError;
use crate::load::wait::block_on;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

/// A refresh that [`LoadingCache::refresh`](super::LoadingCache::refresh) has requested: a future
/// of its outcome. The refresh continues if the future is dropped.
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
    pub(super) outcome: Option<OutcomeFuture<V, E>>,
}

type OutcomeFuture<V, E> = Pin<Box<dyn Future<Output = Answer<V, E>> + Send + Sync>>;

impl<V, E> Refreshing<V, E> {
    /// Waits for the outcome, as a thread. In a task of a runtime with one thread this call can
    /// wait for ever for a load of that runtime: await the future there, or use `spawn_blocking`.
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
    /// # Cost
    ///
    /// Parks the thread. With a [`load_timeout`](crate::LoadingBuilder::load_timeout) it wakes up
    /// at least every 50 ms.
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
        block_on(self)
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
