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
use std::future::Future;
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
    inner: Option<Box<dyn Refreshes<V, E>>>,
    /// How often a thread checks whether the load is overdue.
    check_interval: Option<Duration>,
}

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
        let Some(mut inner) = self.inner.take() else {
            panic!("the future of a refresh was polled after it was ready, or after it panicked");
        };
        let polled = inner.poll(cx);
        if polled.is_pending() {
            self.inner = Some(inner);
        }
        polled
    }
}

impl<V, E> fmt::Debug for Refreshing<V, E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Refreshing").finish_non_exhaustive()
    }
}

/// A refresh, whatever its key and cache.
trait Refreshes<V, E>: Send + Sync {
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Result<Option<V>, LoadError<E>>>;
}

struct Of<K: CacheKey, V: CacheValue, E, S: CacheHasher> {
    wait: Wait<K, V, S>,
    core: WeakHandle<K, V, S>,
    inner: Weak<Inner<K, V, E, S>>,
    /// Whether it has gone on from an overdue load to a newer one.
    went_on: bool,
}

pub(super) fn refreshing<K: CacheKey, V: CacheValue, E: Send + Sync + 'static, S: CacheHasher>(
    wait: Wait<K, V, S>,
    users: &LoadingCache<K, V, E, S>,
) -> Refreshing<V, E> {
    Refreshing {
        inner: Some(Box::new(Of {
            wait,
            core: users.cache.core.downgrade(),
            inner: Arc::downgrade(&users.inner),
            went_on: false,
        })),
        check_interval: users.check_interval(),
    }
}

impl<K: CacheKey, V: CacheValue, E: Send + Sync + 'static, S: CacheHasher> Of<K, V, E, S> {
    /// The load that was joined had no outcome: this call's own load replaces it. False if the
    /// cache is gone.
    fn take_over(&mut self) -> bool {
        let load = Arc::clone(self.wait.load());
        let (Some(core), Some(inner)) = (self.core.visit(), self.inner.upgrade()) else {
            self.wait.pass_on();
            return false;
        };
        let weak = self.core.clone();
        let right = Right::taken_over(&core, weak, load, panicked::<E>, Dropped::Fails);
        self.wait = inner.launch_and_wait(&core, &self.core, right);
        true
    }

    /// The load has no outcome: it is no longer current, or is overdue. Returns the outcome, or
    /// `None` if this waits for a newer load now.
    fn go_on(&mut self) -> Option<Result<Option<V>, LoadError<E>>> {
        let lateness = self.wait.lateness();
        if lateness == Lateness::Overdue || (lateness == Lateness::Replaced && self.went_on) {
            return Some(Err(LoadError::TimedOut));
        }
        let Some(core) = self.core.visit() else {
            return Some(Err(LoadError::Panicked));
        };
        let load = Arc::clone(self.wait.load());
        if lateness == Lateness::Replaced
            && let Some(inner) = self.inner.upgrade()
        {
            self.went_on = true;
            let ticket = Ticket::draw();
            let want = Want::Any(TypeId::of::<LoadError<E>>());
            if let Some(newer) = core.loads().join_current(&load, ticket, want) {
                let (core, drives) = (self.core.clone(), Arc::clone(&inner.drives));
                self.wait = Wait::new(core, drives, newer, ticket);
                return None;
            }
        }
        let live = core.loads().peek_got(load.hash(), load.key());
        Some(Ok(live.map(|got| got.value)))
    }
}

impl<K: CacheKey, V: CacheValue, E: Send + Sync + 'static, S: CacheHasher> Refreshes<V, E>
    for Of<K, V, E, S>
{
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Result<Option<V>, LoadError<E>>> {
        loop {
            let Poll::Ready(verdict) = self.wait.poll(cx) else {
                return Poll::Pending;
            };
            match verdict {
                Verdict::Ended(outcome) => return Poll::Ready(answer(&outcome)),
                Verdict::Retry => {
                    if let Some(outcome) = self.go_on() {
                        return Poll::Ready(outcome);
                    }
                }
                Verdict::Leads => {
                    if !self.take_over() {
                        return Poll::Ready(Err(LoadError::Panicked));
                    }
                }
            }
        }
    }
}
