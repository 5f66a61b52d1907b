//! How far a refresh has come, and its turn. That of an async loader comes at once, that of a
//! `Loader` when a reload thread takes the job of its key.

use super::call::{CallResult, result_of};
use crate::engine::WeakHandle;
use crate::flight::wake_all;
use crate::load::{CacheKey, CacheValue, Claim, Claimant, Guard};
use crate::stripe::thread_number;
use crate::sync::block::{AwaitedLoad, wait_for};
use crate::sync::cycle::{Ticket, WaitTarget};
use crate::sync::{AtomicU64, Mutex, Ordering};
use std::mem;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

/// A call that keeps no cache alive.
pub(super) type OwnedClaimant<K, V> = Claimant<K, V, WeakHandle<K, V>>;

/// How far a refresh has come.
pub(super) enum Progress<K, V, E> {
    /// Its call waits in a job, for its turn.
    Queued(SharedTurn<Self>),
    /// Its call waits for a load, its own or that of another call.
    Waits(OwnedClaimant<K, V>),
    Ended(CallResult<V, E>),
}

impl<K: CacheKey, V: CacheValue, E: Send + Sync + 'static> Progress<K, V, E> {
    /// The turn of a refresh has come. If its call leads a load, `run` sees to that, and the call
    /// waits for it.
    pub(super) fn at_turn(
        mut call: OwnedClaimant<K, V>,
        run: impl FnOnce(Guard<K, V, WeakHandle<K, V>>),
    ) -> Self {
        call.may_lead = true;
        let claim = call.begin();
        // If it has to look the key up again, it needs another turn.
        call.may_lead = false;
        match claim {
            None => Self::Waits(call),
            Some(Claim::Guard(guard, _)) => {
                run(guard);
                Self::Waits(call)
            }
            Some(claim) => Self::Ended(result_of(claim)),
        }
    }
}

/// What a refresh gets when its turn has come. The refresh and the thread share it.
pub(super) enum Turn<T> {
    /// It has yet to come; the waker of the last poll.
    Waits(Option<Waker>),
    Came(T),
    /// There will be none, or it was taken.
    Over,
}

/// A turn, with what a thread that waits for it has to know.
pub(super) struct TurnOf<T> {
    hash: u64,
    /// The cache's name.
    name: Option<Arc<str>>,
    /// The thread that has taken the job; 0 before. Relaxed, as a load's leader.
    taken_by: AtomicU64,
    turn: Mutex<Turn<T>>,
}

pub(super) type SharedTurn<T> = Arc<TurnOf<T>>;

/// The end that a reload thread holds. Its drop says that there will be no turn.
pub(super) struct Caller<T>(SharedTurn<T>);

/// The two ends of a turn.
pub(super) fn turn<T>(hash: u64, name: Option<Arc<str>>) -> (Caller<T>, SharedTurn<T>) {
    let turn = Arc::new(TurnOf {
        hash,
        name,
        taken_by: AtomicU64::new(0),
        turn: Mutex::new(Turn::Waits(None)),
    });
    (Caller(Arc::clone(&turn)), turn)
}

impl<T> Caller<T> {
    /// The calling thread has taken the job.
    pub(super) fn take(&self) {
        self.0.taken_by.store(thread_number(), Ordering::Relaxed);
    }

    /// The turn has come.
    pub(super) fn call(self, with: T) {
        wake_all(self.end(Turn::Came(with)));
    }

    /// There will be no turn. Returns the waker, which is to be called with no lock held.
    #[must_use]
    pub(super) fn abandon(&self) -> Option<Waker> {
        self.end(Turn::Over)
    }

    /// Whether the refresh is still there.
    pub(super) fn is_awaited(&self) -> bool {
        Arc::strong_count(&self.0) > 1
    }

    fn end(&self, end: Turn<T>) -> Option<Waker> {
        let mut state = self.0.turn.lock();
        match &mut *state {
            Turn::Waits(waker) => {
                let waker = waker.take();
                *state = end;
                waker
            }
            // Its turn has come before this is dropped.
            Turn::Came(_) | Turn::Over => None,
        }
    }
}

impl<T> Drop for Caller<T> {
    fn drop(&mut self) {
        wake_all(self.abandon());
    }
}

impl<T: Send> WaitTarget for TurnOf<T> {
    fn awaited_thread(&self, _: Ticket) -> Option<u64> {
        match *self.turn.lock() {
            Turn::Waits(_) => Some(self.taken_by.load(Ordering::Relaxed)),
            Turn::Came(_) | Turn::Over => None,
        }
    }

    fn falls_asleep(&self, _: Ticket) {}
}

/// What the turn brings; `None` if there will be no turn.
pub(super) fn poll_turn<T: Send + 'static>(
    shared: &SharedTurn<T>,
    cx: &Context<'_>,
) -> Poll<Option<T>> {
    // Cloned with no lock held, as a waker is dropped: both are user code.
    let mut fresh = Some(cx.waker().clone());
    loop {
        let mut state = shared.turn.lock();
        let former = match &mut *state {
            Turn::Waits(waker) => match fresh.take() {
                Some(fresh) => waker.replace(fresh),
                None => {
                    drop(state);
                    let thread = shared.taken_by.load(Ordering::Relaxed);
                    wait_for(cx, thread, || AwaitedLoad {
                        load: Arc::<TurnOf<T>>::clone(shared),
                        hash: shared.hash,
                        ticket: Ticket::draw(),
                        patience: None,
                        name: shared.name.clone(),
                    });
                    return Poll::Pending;
                }
            },
            Turn::Came(_) | Turn::Over => {
                let former = mem::replace(&mut *state, Turn::Over);
                drop(state);
                return Poll::Ready(match former {
                    Turn::Came(with) => Some(with),
                    Turn::Waits(_) | Turn::Over => None,
                });
            }
        };
        drop(state);
        // A destructor may take long: so look once more.
        drop(former);
    }
}
