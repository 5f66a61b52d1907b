//! When maintenance has to run next, and who is told.
//!
//! # How it works
//!
//! Two requests: *soon* (a write left something to tell, to evict or to free; it may wait a moment
//! so that many share one pass) and *by a moment* (an entry's deadline). `armed` is the moment for
//! which a run is arranged already, so a writer whose entry comes later passes by with one load.
//!
//! # Invariant
//!
//! 1. A run that begins clears both requests *before* it drains the batches; a writer requests
//!    *after* it has pushed its event. The shard's lock lies between: so either the run drains the
//!    event, or the writer sees the requests cleared and requests anew.
//! 2. After a run, `armed` is not later than the earliest of the wheel's next deadline and every
//!    request made meanwhile. Changes happen under `gate`; the waker is told under it too, so that
//!    its last word is the earliest moment.
//! 3. A run that a panic ends before it arranged the next, a ticker's or an alarm's, leaves `armed`
//!    as early as it was and asks for another run after [`RETRY`].
//! 4. A request that the waker did not hear, since it panicked, is not held for arranged: the next
//!    one tells anew, and has a run come within [`RETRY`], which sees to what was not heard.

use crate::contain::contain;
use crate::scheduler::Waker;
use crate::sync::{AtomicBool, AtomicU64, Mutex, Ordering};
use crate::time::{self, Clock, NEVER};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::time::Duration;

/// How long a request for *soon* may wait.
pub(crate) const LINGER: Duration = Duration::from_millis(10);

/// How long after a panic maintenance is tried again.
const RETRY: Duration = Duration::from_secs(1);

/// A run that has begun; see invariant 3.
#[must_use]
#[derive(Debug)]
pub(crate) struct Begun<'a> {
    waking: &'a Waking,
    armed: u64,
}

impl Drop for Begun<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            // The waker may be the user's as well.
            contain(|| self.waking.try_again(self.armed));
        }
    }
}

#[derive(Debug)]
pub(crate) struct Waking {
    armed: AtomicU64,
    soon: AtomicBool,
    /// Taken for each change; inside is how long the last run wanted to wait before it looks again
    /// for memory that readers hold.
    gate: Mutex<Option<Duration>>,
    waker: Waker,
}

impl Waking {
    pub(crate) fn new(waker: Waker) -> Self {
        Self {
            armed: AtomicU64::new(NEVER),
            soon: AtomicBool::new(false),
            gate: Mutex::new(None),
            waker,
        }
    }

    /// Whether nobody wakes, so that callers have to run due work themselves.
    #[inline]
    pub(crate) fn is_up_to_callers(&self) -> bool {
        self.waker.is_none()
    }

    /// The cache's end of the arrangement, to be called once, when the cache has its address.
    pub(crate) fn waker(&self) -> &Waker {
        &self.waker
    }

    /// Whether nobody has requested for a run within [`LINGER`] yet, and there is somebody to hear
    /// it.
    ///
    /// SeqCst: see invariant 1; the partner is `begin`.
    #[inline]
    pub(crate) fn is_unrequested(&self) -> bool {
        !self.soon.load(Ordering::SeqCst) && !self.waker.is_none()
    }

    /// Requests for a run within [`LINGER`].
    #[inline]
    pub(crate) fn request_soon(&self, clock: &Clock) {
        if self.is_unrequested() {
            self.arrange_soon(clock);
        }
    }

    #[cold]
    fn arrange_soon(&self, clock: &Clock) {
        let mut retry = self.gate.lock();
        let armed = self.armed.load(Ordering::SeqCst);
        // Before the request is noted: if the ticker panics, the next one who requests must find it
        // open.
        let after = if armed == NEVER {
            LINGER
        } else {
            time::time_left(clock.now(), armed).map_or(LINGER, |left| left.min(LINGER))
        };
        if !self.soon.swap(true, Ordering::SeqCst) {
            self.tell(after, || {
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

    /// Requests for a run at `moment` at the latest.
    #[inline]
    pub(crate) fn request_by(&self, moment: u64, now: u64) {
        if self.is_late_for(moment, now) {
            self.arrange_by(moment, now);
        }
    }

    #[cold]
    fn arrange_by(&self, moment: u64, now: u64) {
        let mut retry = self.gate.lock();
        let former = self.armed.load(Ordering::SeqCst);
        if !time::is_before(moment, former, now) {
            return;
        }
        self.armed.store(moment, Ordering::SeqCst);
        let left = time::time_left(now, moment).unwrap_or(LINGER);
        let soon = self.soon.load(Ordering::SeqCst).then_some(LINGER);
        // What is told now replaces what was told before, so it has to stand for every reason to
        // run. The retry begins anew: not to be late would take a clock.
        let after = soon.into_iter().chain(*retry).fold(left, Duration::min);
        self.tell(after, || {
            *retry = Some(RETRY);
            // Unless a run that began meanwhile has cleared it.
            _ = self
                .armed
                .compare_exchange(moment, former, Ordering::SeqCst, Ordering::SeqCst);
        });
    }

    /// Tells the waker, which may be the user's. If it panics, `undo` takes the request back
    /// (waking 4).
    fn tell(&self, after: Duration, undo: impl FnOnce()) {
        if let Err(payload) = catch_unwind(AssertUnwindSafe(|| self.waker.wake(after))) {
            undo();
            resume_unwind(payload);
        }
    }

    /// Whether there is a moment to wait for. Without one nobody needs to read a clock.
    #[inline]
    pub(crate) fn is_armed(&self) -> bool {
        self.armed.load(Ordering::Relaxed) != NEVER
    }

    /// Whether work is due that a caller should do because nobody wakes.
    #[inline]
    pub(crate) fn is_due(&self, now: u64) -> bool {
        time::is_due(now, self.armed.load(Ordering::Relaxed))
    }

    /// A run begins. The answer is to be held until it has ended.
    pub(crate) fn begin(&self) -> Begun<'_> {
        self.soon.store(false, Ordering::SeqCst);
        Begun {
            armed: self.armed.swap(NEVER, Ordering::SeqCst),
            waking: self,
        }
    }

    /// A run has failed that began when `armed` was waited for.
    #[cold]
    fn try_again(&self, armed: u64) {
        let mut retry = self.gate.lock();
        *retry = Some(RETRY);
        let held = self.armed.load(Ordering::SeqCst);
        // Without a clock: both lie less than 2^63 ns from each other.
        let armed = time::earlier(held, armed, armed);
        self.armed.store(armed, Ordering::SeqCst);
        self.tell(RETRY, || {
            self.soon.store(false, Ordering::SeqCst);
            self.armed.store(NEVER, Ordering::SeqCst);
        });
    }

    /// A run has ended with work left at `next`, and perhaps a reason to come back after `retry`.
    /// Arranges the next run, the requests made meanwhile included, and says when that is.
    pub(crate) fn end(
        &self,
        next: Option<u64>,
        retry: Option<Duration>,
        clock: impl FnOnce() -> u64,
    ) -> Option<Duration> {
        let mut gate = self.gate.lock();
        // Somebody may have requested for a moment though the run has left nothing: that one has to
        // be told as a time from now, too.
        let armed = self.armed.load(Ordering::SeqCst);
        let timed = next.is_some() || armed != NEVER;
        let now = if timed { clock() } else { 0 };
        *gate = retry;
        let armed = time::earlier(armed, next.unwrap_or(NEVER), now);
        self.armed.store(armed, Ordering::SeqCst);
        let soon = self.soon.load(Ordering::SeqCst).then_some(LINGER);
        let after = [time::time_left(now, armed), soon, retry]
            .into_iter()
            .flatten()
            .min();
        if let Some(after) = after {
            self.waker.wake(after);
        }
        after
    }
}
