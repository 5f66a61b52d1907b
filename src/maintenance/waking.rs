//! When maintenance runs next, and the requests for it.
//!
//! # How it works
//!
//! A writer makes two kinds of request. *Soon*: its write left a notification to deliver, an entry
//! to evict or memory to free; the run may come [`COALESCE_DELAY`] later, so that many writes share
//! one run. *By a moment*: its entry has a deadline. `armed` is the moment for which a run is
//! arranged; a writer whose entry is due later finds that with one load and requests nothing.
//!
//! # Invariants
//!
//! 1. A run that begins clears both requests *before* it drains the batches; a writer requests
//!    *after* it has pushed its event. The shard's lock lies between. So either the run drains the
//!    event, or the writer sees the requests cleared and requests again.
//! 2. After a run, `armed` is not later than the earliest of the wheel's next deadline and every
//!    request made meanwhile. Changes happen under the lock `retry`, and the waker is called
//!    under it too, so its last call names the earliest moment.
//! 3. If a panic of a ticker or an alarm ends a run before it has arranged the next one, `armed`
//!    stays as early as it was, and another run is requested after [`RETRY`].
//! 4. If the waker panics, its request does not count as arranged: the next request calls the waker
//!    again and asks for a run within [`RETRY`]. That run does the work of both requests.

use crate::contain::contain;
use crate::scheduler::Waker;
use crate::sync::{AtomicBool, AtomicU64, Mutex, Ordering};
use crate::time::{self, Clock, NEVER};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::time::Duration;

/// How long a run that is requested *soon* may wait, so that one run serves many writes.
pub(crate) const COALESCE_DELAY: Duration = Duration::from_millis(10);

/// How long after a panic maintenance is tried again.
const RETRY: Duration = Duration::from_secs(1);

/// Interval between checks of the scheduler thread by writers, in nanoseconds.
const CHECK_INTERVAL: u64 = 50_000_000;

/// How long after `armed` the scheduler thread counts as stuck, in nanoseconds: writers then run
/// passes in its place.
const STUCK_AFTER: u64 = 5_000_000_000;

/// A run that has begun; see invariant 3.
#[must_use]
pub(crate) struct RunGuard<'a> {
    waking: &'a Waking,
    armed: u64,
}

impl Drop for RunGuard<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            // The waker may be the user's as well.
            contain(|| self.waking.try_again(self.armed));
        }
    }
}

pub(crate) struct Waking {
    armed: AtomicU64,
    /// From this moment of cache time on, a writer checks the scheduler thread.
    check_at: AtomicU64,
    soon: AtomicBool,
    /// Locked for each change of the requests. It holds the delay after which to run again, if the
    /// last run asked for that because readers hold memory, or because of a panic.
    retry: Mutex<Option<Duration>>,
    pub(crate) waker: Waker,
}

impl Waking {
    pub(crate) fn new(waker: Waker) -> Self {
        Self {
            armed: AtomicU64::new(NEVER),
            // Cache time begins at 0: the first write checks.
            check_at: AtomicU64::new(0),
            soon: AtomicBool::new(false),
            retry: Mutex::new(None),
            waker,
        }
    }

    /// Whether expiry is due, and is the work of callers.
    #[inline]
    pub(crate) fn is_due_for_callers(&self, now: Option<u64>, clock: &Clock) -> bool {
        self.waker.is_none() && self.is_armed() && self.is_due(now.unwrap_or_else(|| clock.now()))
    }

    /// Whether no run within [`COALESCE_DELAY`] is requested yet, and there is a thread or an alarm
    /// to request it from.
    ///
    /// SeqCst: see invariant 1; the partner is `begin`.
    #[inline]
    pub(crate) fn is_unrequested(&self) -> bool {
        !self.soon.load(Ordering::SeqCst) && !self.waker.is_none()
    }

    /// Requests a run within [`COALESCE_DELAY`].
    #[inline]
    pub(crate) fn request_soon(&self, clock: &Clock) {
        if self.is_unrequested() {
            self.arrange_soon(clock);
        }
    }

    #[cold]
    fn arrange_soon(&self, clock: &Clock) {
        let mut retry = self.retry.lock();
        let armed = self.armed.load(Ordering::SeqCst);
        // Before the request is noted: if the ticker panics, the next writer has to request again.
        let after = if armed == NEVER {
            COALESCE_DELAY
        } else {
            let now = clock.now();
            let left = time::time_left(now, armed);
            left.map_or(COALESCE_DELAY, |left| left.min(COALESCE_DELAY))
        };
        if !self.soon.swap(true, Ordering::SeqCst) {
            self.call_waker(after, || {
                *retry = Some(RETRY);
                self.soon.store(false, Ordering::SeqCst);
            });
        }
    }

    /// Whether no run is arranged that comes at `moment` or before.
    ///
    /// SeqCst: see invariant 1; the partner is `begin`.
    #[inline]
    pub(crate) fn is_late_for(&self, moment: u64, now: u64) -> bool {
        time::is_before(moment, self.armed.load(Ordering::SeqCst), now)
    }

    /// Requests a run at `moment` at the latest.
    #[inline]
    pub(crate) fn request_by(&self, moment: u64, now: u64) {
        if self.is_late_for(moment, now) {
            self.arrange_by(moment, now);
        }
    }

    #[cold]
    fn arrange_by(&self, moment: u64, now: u64) {
        let mut retry = self.retry.lock();
        let former = self.armed.load(Ordering::SeqCst);
        if !time::is_before(moment, former, now) {
            return;
        }
        self.armed.store(moment, Ordering::SeqCst);
        let left = time::time_left(now, moment);
        let left = left.unwrap_or(COALESCE_DELAY);
        let soon = self.soon.load(Ordering::SeqCst).then_some(COALESCE_DELAY);
        // This call of the waker replaces the one before, so it has to come early enough for every
        // reason to run. The delay of the retry starts again, because knowing how much of it has
        // passed would need a clock.
        let after = soon.into_iter().chain(*retry).fold(left, Duration::min);
        self.call_waker(after, || {
            *retry = Some(RETRY);
            // Unless a run that began meanwhile has cleared it.
            _ = self
                .armed
                .compare_exchange(moment, former, Ordering::SeqCst, Ordering::SeqCst);
        });
    }

    /// Calls the waker, which may be the user's. If it panics, `undo` takes the request back
    /// (waking 4).
    fn call_waker(&self, after: Duration, undo: impl FnOnce()) {
        if let Err(payload) = catch_unwind(AssertUnwindSafe(|| self.waker.wake(after))) {
            undo();
            resume_unwind(payload);
        }
    }

    /// Whether a run is arranged for a moment. If not, no clock need be read.
    #[inline]
    pub(crate) fn is_armed(&self) -> bool {
        self.armed.load(Ordering::Relaxed) != NEVER
    }

    /// Whether the moment for which a run is arranged has come.
    #[inline]
    pub(crate) fn is_due(&self, now: u64) -> bool {
        time::is_due(now, self.armed.load(Ordering::Relaxed))
    }

    /// Whether a writer has to [`check`](Self::check) now.
    ///
    /// Relaxed: a check too many, or too late by a little, does no harm.
    #[inline]
    pub(crate) fn needs_check(&self, now: u64) -> bool {
        now.wrapping_sub(self.check_at.load(Ordering::Relaxed)) as i64 >= 0
    }

    /// False if the scheduler thread is late by far, so that the caller should run a pass.
    #[cold]
    pub(crate) fn check(&self, now: u64) -> bool {
        let next = now.wrapping_add(CHECK_INTERVAL);
        self.check_at.store(next, Ordering::Relaxed);
        let armed = self.armed.load(Ordering::Relaxed);
        !(self.waker.is_shared()
            && armed != NEVER
            && time::is_due(now, armed.wrapping_add(STUCK_AFTER)))
    }

    /// A run begins. The caller holds the answer until the run has ended.
    pub(crate) fn begin(&self) -> RunGuard<'_> {
        self.soon.store(false, Ordering::SeqCst);
        RunGuard {
            armed: self.armed.swap(NEVER, Ordering::SeqCst),
            waking: self,
        }
    }

    /// A panic has ended a run; `armed` is the moment for which a run was arranged when it began.
    #[cold]
    fn try_again(&self, armed: u64) {
        let mut retry = self.retry.lock();
        *retry = Some(RETRY);
        let held = self.armed.load(Ordering::SeqCst);
        // Without a clock: both lie less than 2^63 ns from each other.
        let armed = time::earlier(held, armed, armed);
        self.armed.store(armed, Ordering::SeqCst);
        self.call_waker(RETRY, || {
            self.soon.store(false, Ordering::SeqCst);
            self.armed.store(NEVER, Ordering::SeqCst);
        });
    }

    /// A run has ended; work is left for `next`, and perhaps a reason to come back after `retry`.
    /// Arranges the next run, for the requests made meanwhile too, and says when that is. `now`
    /// is the time of `clock`, if it is known.
    pub(crate) fn end(
        &self,
        next: Option<u64>,
        retry: Option<Duration>,
        clock: &Clock,
        now: Option<u64>,
    ) -> Option<Duration> {
        let mut until_retry = self.retry.lock();
        // A writer may have requested a moment though the run has left nothing: the waker needs
        // that one as a time from now, too.
        let armed = self.armed.load(Ordering::SeqCst);
        let timed = next.is_some() || armed != NEVER;
        let now = if timed {
            now.unwrap_or_else(|| clock.now())
        } else {
            0
        };
        *until_retry = retry;
        let armed = time::earlier(armed, next.unwrap_or(NEVER), now);
        self.armed.store(armed, Ordering::SeqCst);
        let soon = self.soon.load(Ordering::SeqCst).then_some(COALESCE_DELAY);
        let left = (armed != NEVER).then(|| time::time_left(now, armed));
        let after = [left.flatten(), soon, retry].into_iter().flatten().min();
        if let Some(after) = after {
            self.waker.wake(after);
        }
        after
    }
}
