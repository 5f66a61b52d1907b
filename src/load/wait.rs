//! How a call waits: a task by its waker, a thread by polling the same future with a waker of its
//! own.
//!
//! A thread that waits for a load may lead other loads, so it first looks for a [`cycle`]. For that
//! it has to know for which load the future waits: the poll of the future notes it
//! ([`Claimant::poll_verdict`]). Only a poll by the waiting call itself does, which is told by its
//! waker. A future that user code polls meanwhile has another waker, and waits by other means.
//!
//! # Overdue loads
//!
//! Whenever a call that waits wakes up, it checks whether the load is overdue. If it is, the call
//! begins anew, and its load replaces the overdue one. No other call ends an overdue load; its
//! waiters only have to wake in time. A thread wakes by itself. Tasks, and threads whose cache has
//! a ticker of its own, do not. So a call that begins to wait asks the scheduler for a run at that
//! moment, and so does a run of a load that begins while calls wait ([`Core::watch_load`]). That
//! run wakes the waiters of overdue loads, and asks for the next moment of the others.
//!
//! [`cycle`]: crate::sync::cycle

use super::claim::Claimant;
use super::guard::Home;
use super::key::{CacheKey, CacheValue};
use super::state::{Load, Verdict, is_waking, set_waking};
use crate::contain::contain;
use crate::operations::Core;
use crate::shared::about;
use crate::stripe::{cores, thread_number};
use crate::sync::cycle::{NotedWait, Ticket, WaitTarget, fault};
use crate::sync::{IS_MODEL, OwnParker, Parker};
use crate::time;
use std::cell::Cell;
use std::future::Future;
use std::marker::PhantomData;
use std::mem::ManuallyDrop;
use std::pin::pin;
use std::ptr;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

/// How long a thread waits at least, and at most, before it looks again whether a load is overdue:
/// the cache's ticker need not run as the thread's clock does.
const PATIENCE: [Duration; 2] = [Duration::from_millis(1), Duration::from_millis(50)];

/// The load for which a polled future waits.
struct Awaited {
    load: Arc<dyn WaitTarget>,
    /// That of the load's key.
    hash: u64,
    ticket: Ticket,
    /// How long it is until the load may be overdue; `None` for ever.
    patience: Option<Duration>,
    /// The cache's name.
    name: Option<Arc<str>>,
}

thread_local! {
    /// The data of the waker of the call that blocks the thread until a future is ready; or
    /// [`LOADER`], in the blocking code of a load; else null.
    static BLOCKING_CALL: Cell<*const ()> = const { Cell::new(ptr::null()) };
    /// What the last poll with that waker has noted; that call takes it out, at its end as well.
    /// Without a destructor: the destructors of other thread-locals may load, too.
    static AWAITED: Cell<ManuallyDrop<Option<Box<Awaited>>>> =
        const { Cell::new(ManuallyDrop::new(None)) };
    /// How many loads the thread is leading just now.
    static LEADING: Cell<usize> = const { Cell::new(0) };
    /// Referenced by each [`LeaseMark`].
    static LEASES: Arc<()> = Arc::default();
}

/// Its address stands for the data of a waker in the code of a load: no waker has it.
static LOADER: u8 = 0;

/// A call that blocks its thread, as long as it does: it keeps the waker of the call around it, and
/// whether that call's thread is calling wakers. Its drop takes out what a poll has noted before it
/// went on: to its end, or until user code panicked.
pub(crate) struct BlockingCall(*const (), bool);

impl BlockingCall {
    #[inline]
    fn begin(waker: *const ()) -> Self {
        Self(BLOCKING_CALL.replace(waker), set_waking(false))
    }
}

impl Drop for BlockingCall {
    #[inline]
    fn drop(&mut self) {
        BLOCKING_CALL.set(self.0);
        set_waking(self.1);
        drop(take_awaited());
    }
}

fn take_awaited() -> Option<Box<Awaited>> {
    ManuallyDrop::into_inner(AWAITED.take())
}

/// The calling thread leads a load, as long as this is kept: in a poll, which must not block but
/// may do so all the same.
pub(crate) struct Leading(PhantomData<*const ()>);

impl Leading {
    #[inline]
    pub(crate) fn begin() -> Self {
        LEADING.set(LEADING.get() + 1);
        Self(PhantomData)
    }
}

impl Drop for Leading {
    #[inline]
    fn drop(&mut self) {
        LEADING.set(LEADING.get() - 1);
    }
}

/// A mark that the thread which has made it leads a load by a lease, as long as the mark is kept.
pub(crate) type LeaseMark = Option<Arc<()>>;

pub(crate) fn mark_lease() -> LeaseMark {
    LEASES.try_with(Arc::clone).ok()
}

/// Whether a load that waits for a thread could wait for the calling thread: it leads a load, and
/// is in code that blocks. A task that a waker polls is not: the thread goes on soon.
pub(crate) fn runs_loader() -> bool {
    let leases = || LEASES.try_with(|marks| Arc::strong_count(marks) > 1);
    let leads = || LEADING.get() > 0 || leases().unwrap_or(false);
    !BLOCKING_CALL.get().is_null() && !is_waking() && leads()
}

/// The blocking code of a load runs, as long as this is kept.
// It takes no closure: one that has captured a large value would hold it once more.
#[inline]
pub(crate) fn in_loader() -> BlockingCall {
    BlockingCall::begin(ptr::from_ref(&LOADER).cast())
}

/// Runs the blocking code of a load, with all that comes before and after: a future that is ready
/// when it is first polled.
pub(crate) fn run_blocking<F: Future>(code: F) -> F::Output {
    let _loader = in_loader();
    match pin!(code).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(output) => output,
        Poll::Pending => unreachable!("a blocking loader awaits nothing"),
    }
}

impl<K: CacheKey, V: CacheValue, H: Home<K, V>> Claimant<K, V, H> {
    /// The verdict about a call that waits, by polls. `None` if it does not wait, or the load is
    /// overdue.
    ///
    /// # Panics
    ///
    /// If the load's own leader polls the call.
    pub(crate) fn poll_verdict(&mut self, cx: &Context<'_>) -> Poll<Option<Verdict<V>>> {
        let Some((load, ticket)) = &self.waits else {
            return Poll::Ready(None);
        };
        if let Some(told) = load.poll(*ticket, cx.waker()) {
            return Poll::Ready(Some(told));
        }
        let core = self.home.visit();
        let core = core.as_deref();
        let left = core.and_then(|core| core.time_to_overdue(load, core.load_clock()));
        if left == Some(Duration::ZERO) {
            return Poll::Ready(None);
        }
        let name = core.and_then(|core| core.shared.name.as_ref());
        let call = BLOCKING_CALL.get();
        if !IS_MODEL && !call.is_null() && call == cx.waker().data() {
            let [least, most] = PATIENCE;
            let awaited = Box::new(Awaited {
                load: Arc::<Load<K, V>>::clone(load),
                hash: load.hash,
                ticket: *ticket,
                patience: left.map(|left| left.clamp(least, most)),
                name: name.cloned(),
            });
            let former = AWAITED.replace(ManuallyDrop::new(Some(awaited)));
            drop(ManuallyDrop::into_inner(former));
        } else if load.is_led_by_caller() {
            panic!("{}", about(name.map(|name| &**name), &fault(0, load.hash)));
        }
        Poll::Pending
    }
}

/// Waits for a future of the crate as a thread.
///
/// # Panics
///
/// If the thread would wait for itself.
#[track_caller]
pub(crate) fn block_on<F: Future>(future: F) -> F::Output {
    match block_until(future, None) {
        Ok(output) => output,
        Err(cycle) => panic!("{cycle}"),
    }
}

/// The same, but waits until `until` at most. An error says that this time is over, or that the
/// thread would wait for itself: it is the message of the panic.
pub(crate) fn block_until<F: Future>(
    future: F,
    until: Option<Instant>,
) -> Result<F::Output, String> {
    // A call inside a poll of another call takes no wake-up from it.
    let own = if BLOCKING_CALL.get().is_null() {
        Parker::own()
    } else {
        Rc::default()
    };
    let OwnParker { parker, waker } = &*own;
    let mut cx = Context::from_waker(waker);
    let mut future = pin!(future);
    let _call = BlockingCall::begin(waker.data());
    let mut spins_until = None;
    loop {
        if let Poll::Ready(output) = future.as_mut().poll(&mut cx) {
            return Ok(output);
        }
        let awaited = take_awaited();
        // Spin before the wait is noted for others: a short turn ends sooner than a thread could
        // fall asleep. A thread that is not among the next would only take the processor from the
        // threads before it.
        if let Some(awaited) = &awaited
            && (awaited.load).is_among_next(awaited.ticket, cores() - 1)
            && parker.spin(*spins_until.get_or_insert_with(Parker::spins_until))
        {
            continue;
        }
        let left = until.map(|until| until.saturating_duration_since(Instant::now()));
        if left == Some(Duration::ZERO) {
            return Err("the time to wait is over".to_string());
        }
        let patience = awaited.as_ref().and_then(|awaited| awaited.patience);
        let park = || parker.park(patience.into_iter().chain(left).min());
        match &awaited {
            None => park(),
            Some(on) => NotedWait::begin(thread_number())
                .wait_for(Arc::clone(&on.load), on.ticket, park)
                .map_err(|others| about(on.name.as_deref(), &fault(others, on.hash)))?,
        }
    }
}

impl<K, V, S> Core<K, V, S> {
    /// Cache time, where loads need it: for a time-out, reloads, failures that are remembered, or
    /// statistics.
    pub(super) fn load_clock(&self) -> u64 {
        let timed = self.lifetimes.limits.load_timeout.is_some();
        let renews = self.refresh.is_some() || self.failure_backoff.is_some();
        if timed || renews || self.shared.counters.is_some() {
            self.shared.clock.now()
        } else {
            0
        }
    }

    /// When a load becomes overdue, in cache time.
    fn overdue_at(&self, load: &Load<K, V>) -> Option<u64> {
        let most = self.lifetimes.limits.load_timeout?;
        Some(time::deadline_after(load.began(), most))
    }

    /// How long it is until a load is overdue: zero if it is, `None` if it never will be.
    pub(super) fn time_to_overdue(&self, load: &Load<K, V>, now: u64) -> Option<Duration> {
        time::time_left(now, self.overdue_at(load)?)
    }

    /// Makes the waiters of a load, if it has any, wake when it becomes overdue: asks for a run at
    /// that moment and says how long it is until then, or wakes them now. Called when a call has
    /// joined it, or its time has begun anew. A run of the scheduler takes the moment armed before
    /// it looks at the waiters, under the lock of the load's state. So it sees them, or this sees
    /// that no run is arranged. A panic of the ticker or of the scheduler's alarm is caught.
    pub(super) fn watch_load(&self, load: &Load<K, V>) -> Option<Duration> {
        let deadline = self.overdue_at(load).filter(|_| load.has_waiters())?;
        let left = contain(|| {
            let now = self.shared.clock.now();
            let left = time::time_left(now, deadline).filter(|left| !left.is_zero());
            if left.is_some() {
                self.maintenance.waking.request_by(deadline, now);
            }
            left
        })?;
        if left.is_none() {
            load.wake_waiters();
        }
        left
    }

    /// Wakes the waiters of overdue loads; says how long it is until the next load becomes overdue,
    /// and asks for a run at that moment. Called after each run, which has cleared what was armed.
    pub(crate) fn run_overdue(&self) -> Option<Duration> {
        self.lifetimes.limits.load_timeout?;
        let shards = 0..self.shared.map.shards();
        let loads = shards.flat_map(|shard| self.shared.map.loads_of(shard));
        loads.filter_map(|load| self.watch_load(&load)).min()
    }
}
