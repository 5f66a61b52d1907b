//! When maintenance runs next, and the requests for it.
//!
//! # How it works
//!
//! A writer makes two kinds of request. *Soon*: its write left a notification to deliver, an entry
//! to evict or memory to free; the run may come [`COALESCE_DELAY`] later, so that many writes share
//! one run. *By a moment*: its entry has a deadline; calls wait for a load that becomes overdue; or
//! the bound was made smaller, where callers maintain the cache. `armed` is the moment for which a
//! run is arranged; a writer whose entry is due later finds that with one load and requests
//! nothing. A run that begins takes this moment. It stays `promised` until the run ends: a
//! destructor or a listener may hold the run up.
//!
//! # Invariants
//!
//! 1. A run that begins clears both requests *before* it drains the batches; a writer requests
//!    *after* it has pushed its event. The shard's lock lies between. So either the run drains the
//!    event, or the writer sees the requests cleared and requests again.
//! 2. After a run, `armed` is not later than the earliest of the wheel's next visit and every
//!    request made meanwhile. Changes happen under the lock `requests`, but for the begin of a run,
//!    which only clears the requests (1). The waker is called under the lock too, so its last call
//!    names the earliest moment.
//! 3. If a ticker or an alarm panics before a run has arranged the next one, `armed` stays as early
//!    as it was. Another run is requested after [`RETRY`].
//! 4. If the waker panics, nothing counts as arranged: the next request calls the waker again and
//!    asks for a run within [`RETRY`]. That run does the work of all requests.

use crate::contain::contain;
use crate::scheduler::{CacheRef, Scheduler};
use crate::sync::{AtomicBool, AtomicU64, Mutex, Ordering};
use crate::time::{self, Clock, NEVER};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::time::Duration;

/// How long a run that is requested *soon* may wait, so that one run serves many writes.
pub(crate) const COALESCE_DELAY: Duration = Duration::from_millis(10);

/// How long after a panic maintenance is tried again.
const RETRY: Duration = Duration::from_secs(1);

/// How soon the scheduler's next run comes at least, for a moment, if the clock has stood still
/// since its last one: just before the moment, runs would follow each other endlessly.
const LEAST_WAIT: Duration = Duration::from_millis(1);

/// How long after `armed` the scheduler thread counts as stuck, in nanoseconds: calls then run
/// passes in its place.
const STUCK_AFTER: u64 = 5_000_000_000;

/// A run that has begun. It arranges the next one when it ends, and also if a panic ends it
/// (waking 3).
#[must_use]
pub(crate) struct Run<'a> {
    waking: &'a Waking,
    /// The moment for which this run was arranged, or another run that has not ended.
    armed: u64,
    /// Whether it is the scheduler's; else a call of the program runs it.
    is_scheduled: bool,
}

impl Run<'_> {
    /// The run, as one of the scheduler thread or of an alarm's task.
    pub(super) fn of_scheduler(mut self) -> Self {
        self.is_scheduled = true;
        self
    }

    /// The moment that this run has taken, or another one, unless a run has ended since.
    pub(crate) fn moment(&self) -> Option<u64> {
        let promised = self.waking.promised.load(Ordering::Relaxed);
        if self.armed == NEVER || self.armed != promised {
            return None;
        }
        Some(self.armed)
    }

    /// The run has ended; work is left for `next`, and perhaps a reason to come back after `retry`.
    /// Arranges the next run, for the requests made meanwhile too, and says when that is.
    pub(crate) fn end(
        self,
        next: Option<u64>,
        retry: Option<Duration>,
        clock: &Clock,
    ) -> Option<Duration> {
        let moment = next.unwrap_or(NEVER);
        let now = || Some(clock.now());
        let next = (self.waking).arrange(moment, retry, self.is_scheduled, now);
        // The thread may unwind because of another panic.
        std::mem::forget(self);
        next
    }
}

impl Drop for Run<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            // The waker may be the user's as well, and the ticker may panic again.
            contain(|| self.waking.arrange(self.armed, Some(RETRY), false, || None));
        }
    }
}

pub(crate) struct Waking {
    armed: AtomicU64,
    /// The earliest of `armed` and the moment of the run that is under way; if several are, the
    /// first to end resets it. Relaxed: it says when others than that run do its work.
    promised: AtomicU64,
    soon: AtomicBool,
    /// What the clock showed when a run of the scheduler last ended that left a moment. Changed
    /// under `requests`.
    last_end: AtomicU64,
    /// Locked for each change of the requests, but for the begin of a run. It holds the delay after
    /// which to run again, if the last run asked for that because readers hold memory, or because
    /// of a panic.
    requests: Mutex<Option<Duration>>,
    pub(crate) scheduler: Scheduler,
    /// The cache itself, as the threads of the crate reach it.
    pub(crate) cache: CacheRef,
}

impl Waking {
    pub(crate) fn new(scheduler: Scheduler, cache: CacheRef) -> Self {
        Self {
            armed: AtomicU64::new(NEVER),
            promised: AtomicU64::new(NEVER),
            soon: AtomicBool::new(false),
            last_end: AtomicU64::new(NEVER),
            requests: Mutex::new(None),
            scheduler,
            cache,
        }
    }

    /// Whether a run is due at `now`, and is the work of callers: no thread wakes the cache, or
    /// the scheduler thread is late by far. `now` is [`NEVER`] if the call has not read the clock:
    /// then this reads it, but only where no thread wakes the cache and a run is arranged.
    #[inline]
    pub(crate) fn is_due_for_callers(&self, now: u64, clock: &Clock) -> bool {
        if !self.scheduler.callers_maintain() {
            let latest = now.wrapping_sub(STUCK_AFTER);
            let promised = self.promised.load(Ordering::Relaxed);
            return now != NEVER
                && time::is_due(latest, promised)
                && self.scheduler.is_background();
        }
        let promised = self.promised.load(Ordering::Relaxed);
        if promised == NEVER {
            return false;
        }
        let now = if now == NEVER { clock.now() } else { now };
        time::is_due(now, promised)
    }

    /// Whether no run within [`COALESCE_DELAY`] is requested yet, and there is a thread or an alarm
    /// to request it from.
    ///
    /// SeqCst: see invariant 1; the partner is `begin`.
    #[inline]
    pub(crate) fn is_unrequested(&self) -> bool {
        !self.soon.load(Ordering::SeqCst) && !self.scheduler.callers_maintain()
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
        let mut until_retry = self.requests.lock();
        let armed = self.armed.load(Ordering::SeqCst);
        // Before the request is noted: if the ticker panics, the next writer has to request again.
        let after = if armed == NEVER {
            COALESCE_DELAY
        } else {
            match time::time_left(clock.now(), armed) {
                Some(left) => left.min(COALESCE_DELAY),
                None => COALESCE_DELAY,
            }
        };
        if !self.soon.swap(true, Ordering::SeqCst) {
            self.call_waker(after, &mut until_retry);
        }
    }

    /// Whether no run is arranged that comes at `moment` or before.
    ///
    /// SeqCst: see invariant 1; the partner is `begin`.
    #[inline]
    pub(crate) fn lacks_run_by(&self, now: u64, moment: u64) -> bool {
        time::is_before(now, moment, self.armed.load(Ordering::SeqCst))
    }

    /// Requests a run at `moment` at the latest.
    #[inline]
    pub(crate) fn request_by(&self, now: u64, moment: u64) {
        if self.lacks_run_by(now, moment) {
            self.arrange_by(now, moment);
        }
    }

    #[cold]
    fn arrange_by(&self, now: u64, moment: u64) {
        let mut until_retry = self.requests.lock();
        let former = self.armed.load(Ordering::SeqCst);
        if !time::is_before(now, moment, former) {
            return;
        }
        self.armed.store(moment, Ordering::SeqCst);
        let promised = time::earlier(now, self.promised.load(Ordering::Relaxed), moment);
        self.promised.store(promised, Ordering::Relaxed);
        // This call of the waker replaces the one before, so it has to come early enough for every
        // reason to run. The delay of the retry starts again.
        let mut after = time::time_left(now, moment).unwrap_or(COALESCE_DELAY);
        if self.soon.load(Ordering::SeqCst) {
            after = after.min(COALESCE_DELAY);
        }
        if let Some(delay) = *until_retry {
            after = after.min(delay);
        }
        after = after.min(match time::time_left(now, promised) {
            Some(left) if !left.is_zero() => left,
            // A run is at this work, unless user code holds it up.
            _ => Duration::from_nanos(STUCK_AFTER),
        });
        self.call_waker(after, &mut until_retry);
    }

    /// Calls the waker, which may be the user's. If it panics, nothing is arranged (waking 4).
    fn call_waker(&self, after: Duration, until_retry: &mut Option<Duration>) {
        if let Err(payload) =
            catch_unwind(AssertUnwindSafe(|| self.scheduler.wake(&self.cache, after)))
        {
            *until_retry = Some(RETRY);
            self.soon.store(false, Ordering::SeqCst);
            self.armed.store(NEVER, Ordering::SeqCst);
            self.promised.store(NEVER, Ordering::Relaxed);
            resume_unwind(payload);
        }
    }

    /// Whether a run is arranged for a moment.
    #[cfg(all(test, not(wheelhouse_loom)))]
    pub(crate) fn is_armed(&self) -> bool {
        self.armed.load(Ordering::Relaxed) != NEVER
    }

    /// Whether the moment for which a run is arranged has come.
    #[inline]
    pub(crate) fn is_run_due(&self, now: u64) -> bool {
        time::is_due(now, self.armed.load(Ordering::Relaxed))
    }

    /// A run begins.
    pub(crate) fn begin(&self) -> Run<'_> {
        self.soon.store(false, Ordering::SeqCst);
        let armed = self.armed.swap(NEVER, Ordering::SeqCst);
        let promised = self.promised.load(Ordering::Relaxed);
        Run {
            armed: time::earlier(promised, armed, promised),
            is_scheduled: false,
            waking: self,
        }
    }

    /// Arranges the next run: for this moment, or [`NEVER`], after `retry`, and for the requests
    /// made since the last run began. Without a time from `now`, which is asked only if there is a
    /// moment, the waker is not told of the moments. Says when the next run is.
    fn arrange(
        &self,
        moment: u64,
        retry: Option<Duration>,
        is_scheduled: bool,
        now: impl FnOnce() -> Option<u64>,
    ) -> Option<Duration> {
        let mut until_retry = self.requests.lock();
        *until_retry = retry;
        // A writer may have requested a moment though the run has left nothing: the waker needs
        // that one as a time from now, too.
        let requested = self.armed.load(Ordering::SeqCst);
        let any = if moment == NEVER { requested } else { moment };
        let now = if any == NEVER { None } else { now() };
        // Without a clock: they lie less than 2^63 ns from each other.
        let armed = time::earlier(now.unwrap_or(any), requested, moment);
        self.armed.store(armed, Ordering::SeqCst);
        self.promised.store(armed, Ordering::Relaxed);
        let mut left = None;
        if let Some(now) = now {
            left = time::time_left(now, armed);
            if is_scheduled && self.last_end.swap(now, Ordering::Relaxed) == now {
                left = left.max(Some(LEAST_WAIT));
            }
        }
        let soon = if self.soon.load(Ordering::SeqCst) {
            Some(COALESCE_DELAY)
        } else {
            None
        };
        let after = [left, soon, retry].into_iter().flatten().min();
        if let Some(after) = after {
            self.call_waker(after, &mut until_retry);
        }
        after
    }
}
