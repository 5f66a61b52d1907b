//! A thread that waits for a future of the crate: it polls the future with a waker of its own.
//!
//! 1. It polls the future, with the waker of its [`Parker`].
//! 2. If the call has to wait for a load, the poll gives up the thread's [`place`], and
//!    [notes](wait_for) the load. Only a poll by the waiting call itself notes it, which is told by
//!    its waker ([`polled_by_block`]). A future that user code polls meanwhile has another waker,
//!    and waits by other means.
//! 3. The thread takes the note. The load is told that its waiter [falls
//!    asleep](WaitTarget::falls_asleep).
//! 4. Other threads may wait for this one: [`NotedWait::wait_for`] looks for a
//!    [`cycle`](super::cycle). If there is none, the thread parks.
//! 5. When it wakes up, it polls again. With a verdict, or at the end, it takes a place again.
//!
//! # What a thread is doing
//!
//! Calls of the crate run inside each other: a closure calls a cache, a waker polls a task. So each
//! thread notes what it is doing ([`Work`]), and the calls inside ask.

use super::cycle::{NotedWait, Ticket, WaitTarget, fault};
use super::{IS_MODEL, Parker, place, thread_local};
use crate::contain::{AtEnd, contain, with_name};
use crate::stripe::thread_number;
use std::cell::Cell;
use std::future::Future;
use std::mem::ManuallyDrop;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

/// What a thread is doing.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Work {
    /// Nothing of the kinds below.
    Other,
    /// It calls wakers. A task that one of them polls may wait for this thread, which goes on soon.
    Wakes,
    /// It runs the blocking code of a load.
    Loads,
    /// A call blocks it until a future is ready, and polls with the waker that has this data.
    Waits(*const ()),
}

/// The waker that the last poll of a call has left, which waits.
pub(crate) struct CallWaker {
    waker: Waker,
    /// Whether a thread waits for it, [blocked](block_on).
    pub(crate) wakes_thread: bool,
    /// Whether that thread sleeps, or is about to.
    pub(crate) sleeps: bool,
}

impl CallWaker {
    /// The waker of this poll. Cloned with no lock held: that is user code, as its drop is.
    pub(crate) fn of(cx: &Context<'_>) -> Self {
        Self {
            waker: cx.waker().clone(),
            wakes_thread: polled_by_block(cx),
            sleeps: false,
        }
    }
}

/// Wakes calls: threads first, since the waker of a task is user code, which may wait for one of
/// them. No lock may be held. A panic of one does not keep the others asleep.
///
/// To wake one call takes no memory.
pub(crate) fn wake_all(wakers: impl IntoIterator<Item = CallWaker>) {
    let _waking = during(Work::Wakes);
    let (mut tasks, mut last) = (Vec::new(), None);
    for call in wakers {
        if call.wakes_thread {
            call.waker.wake();
        } else {
            tasks.extend(last.replace(call.waker));
        }
    }
    for task in tasks.into_iter().chain(last) {
        contain(|| task.wake());
    }
}

/// The load, or the turn of a refresh, for which a polled future waits.
pub(crate) struct AwaitedLoad {
    pub(crate) load: Arc<dyn WaitTarget>,
    /// That of the load's key.
    pub(crate) hash: u64,
    pub(crate) ticket: Ticket,
    /// How long it is until the load may be overdue; `None` for ever.
    pub(crate) patience: Option<Duration>,
    /// The cache's name.
    pub(crate) name: Option<Arc<str>>,
}

thread_local! {
    static DOING: Cell<Work> = const { Cell::new(Work::Other) };
    /// What the last poll by a call that waits has noted; that call takes it out, at its end as
    /// well. Without a destructor: the destructors of other thread-locals may load, too.
    static AWAITED: Cell<ManuallyDrop<Option<Box<AwaitedLoad>>>> =
        const { Cell::new(ManuallyDrop::new(None)) };
}

/// What the calling thread is doing.
#[inline]
pub(crate) fn doing() -> Work {
    DOING.with(Cell::get)
}

/// Whether the calling thread [blocks](block_on) for the call that this context polls.
pub(crate) fn polled_by_block(cx: &Context<'_>) -> bool {
    doing() == Work::Waits(cx.waker().data())
}

/// The calling thread does something until the answer is dropped; then again what it did before.
#[must_use]
#[inline]
pub(crate) fn during(work: Work) -> impl Drop {
    let before = DOING.with(|now| now.replace(work));
    AtEnd(before, |before| {
        let ended = DOING.with(|now| now.replace(*before));
        if ended != *before && matches!(ended, Work::Waits(_)) {
            // A poll may have noted it, and then have gone on, or panicked.
            drop(note(None));
        }
    })
}

/// The polled future waits for what this thread does; 0 for none.
///
/// # Panics
///
/// If the thread's own code polls the task. (If a waker does, the thread goes on.)
pub(crate) fn wait_for(cx: &Context<'_>, thread: u64, awaited: impl FnOnce() -> AwaitedLoad) {
    place::give_up();
    if !IS_MODEL && polled_by_block(cx) {
        drop(note(Some(Box::new(awaited()))));
    } else if thread != 0 && thread == thread_number() && doing() != Work::Wakes {
        let on = awaited();
        panic!("{}", with_name(on.name.as_deref(), &fault(0, on.hash)));
    }
}

/// Notes what the polled future waits for; returns what was noted before.
#[cold]
fn note(awaited: Option<Box<AwaitedLoad>>) -> Option<Box<AwaitedLoad>> {
    ManuallyDrop::into_inner(AWAITED.with(|noted| noted.replace(ManuallyDrop::new(awaited))))
}

/// Polls the blocking code of a load, with all that comes before and after: a future that is ready
/// when it is first polled.
pub(crate) fn poll_once<F: Future>(code: F) -> F::Output {
    let _loading = during(Work::Loads);
    // An executor on this thread may have let it wait.
    let _comes_back = AtEnd(place::stage(), |stage| place::return_to(*stage));
    place::take_again();
    match pin!(code).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(output) => output,
        Poll::Pending => unreachable!("a blocking loader awaits nothing"),
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

/// Waits for a future of the crate as a thread, until `until` at most. An error says that this time
/// is over, or that the thread would wait for itself: it is the message of the panic.
pub(crate) fn block_until<F: Future>(
    future: F,
    until: Option<Instant>,
) -> Result<F::Output, String> {
    let _comes_back = AtEnd(place::stage(), |stage| place::return_to(*stage));
    poll_until(future, until)
}

fn poll_until<F: Future>(future: F, until: Option<Instant>) -> Result<F::Output, String> {
    // A call inside a poll of another call takes no wake-up from it.
    let parker = match doing() {
        Work::Other => Parker::own(),
        _ => Arc::default(),
    };
    let waker = Waker::from(Arc::clone(&parker));
    let mut cx = Context::from_waker(&waker);
    let mut future = pin!(future);
    let _waiting = during(Work::Waits(waker.data()));
    loop {
        if let Poll::Ready(output) = future.as_mut().poll(&mut cx) {
            return Ok(output);
        }
        let awaited = note(None);
        if let Some(awaited) = &awaited {
            awaited.load.falls_asleep(awaited.ticket);
        }
        let left = until.map(|until| until.saturating_duration_since(Instant::now()));
        if left == Some(Duration::ZERO) {
            return Err("the time to wait is over".to_string());
        }
        match &awaited {
            None => parker.park(left),
            Some(on) => {
                let most = on.patience.into_iter().chain(left).min();
                NotedWait::begin()
                    .wait_for(Arc::clone(&on.load), on.ticket, || parker.park(most))
                    .map_err(|others| with_name(on.name.as_deref(), &fault(others, on.hash)))?;
            }
        }
    }
}
