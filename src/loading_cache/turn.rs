//! How far a refresh has come, and its turn. That of an async loader comes at once, that of a
//! `Loader` when a reload thread takes the job of its key.

use super::call::{CallResult, result_of};
use super::loader::LoadError;
use crate::engine::WeakHandle;
use crate::load::{Claim, Claimant, Guard, Loadable, May};
use crate::stripe::thread_number;
use crate::sync::Mutex;
use crate::sync::block::{AwaitedLoad, CallWaker, wait_for, wake_all};
use crate::sync::cycle::{Ticket, WaitTarget};
use std::mem;
use std::sync::Arc;
use std::task::{Context, Poll};

/// A call that keeps no cache alive.
pub(super) type OwnedClaimant<K, V> = Claimant<K, V, WeakHandle<K, V>>;

/// How far a refresh has come.
pub(super) enum Progress<K, V, E> {
    /// Its call waits in a job, for its turn.
    Queued {
        turn: SharedTurn<K, V, E>,
        /// That of its key.
        hash: u64,
        /// The cache's name.
        name: Option<Arc<str>>,
    },
    /// Its call waits for a load, its own or that of another call.
    Waits(OwnedClaimant<K, V>),
    Ended(CallResult<V, E>),
}

impl<K: Loadable + Eq, V: Loadable, E: Send + Sync + 'static> Progress<K, V, E> {
    /// The turn of a refresh has come. If its call leads a load, `run` sees to that, and the call
    /// waits for it.
    pub(super) fn at_turn(
        mut call: OwnedClaimant<K, V>,
        run: impl FnOnce(Guard<K, V, WeakHandle<K, V>>),
    ) -> Self {
        match call.try_claim(May::Lead) {
            None => Self::Waits(call),
            Some(Claim::Guard(guard, _)) => {
                run(guard);
                Self::Waits(call)
            }
            Some(claim) => Self::Ended(result_of(claim)),
        }
    }
}

/// The turn of a refresh. The refresh and the thread share it.
pub(super) enum Turn<K, V, E> {
    /// It has yet to come.
    Waits {
        /// That of the last poll.
        waker: Option<CallWaker>,
        /// The thread that has taken the job; 0 before.
        taken_by: u64,
    },
    /// It has come, or there will be none: how far the refresh is.
    Came(Progress<K, V, E>),
}

pub(super) type SharedTurn<K, V, E> = Arc<Mutex<Turn<K, V, E>>>;

/// The end that a reload thread holds. Its drop says that there will be no turn.
pub(super) struct Caller<K, V, E>(SharedTurn<K, V, E>);

/// The two ends of a turn.
pub(super) fn turn<K, V, E>() -> (Caller<K, V, E>, SharedTurn<K, V, E>) {
    let turn = Arc::new(Mutex::new(Turn::Waits {
        waker: None,
        taken_by: 0,
    }));
    (Caller(Arc::clone(&turn)), turn)
}

impl<K, V, E> Caller<K, V, E> {
    /// The calling thread has taken the job.
    pub(super) fn take(&self) {
        if let Turn::Waits { taken_by, .. } = &mut *self.0.lock() {
            *taken_by = thread_number();
        }
    }

    /// The turn has come. Returns the waker, which is to be called with no lock held.
    #[must_use]
    pub(super) fn call(self, with: Progress<K, V, E>) -> Option<CallWaker> {
        self.end(with)
    }

    /// There will be no turn. Returns the waker, which is to be called with no lock held.
    #[must_use]
    pub(super) fn abandon(&self) -> Option<CallWaker> {
        self.end(Progress::Ended(Err(LoadError::Abandoned)))
    }

    /// Whether the refresh is still there.
    pub(super) fn is_awaited(&self) -> bool {
        Arc::strong_count(&self.0) > 1
    }

    fn end(&self, with: Progress<K, V, E>) -> Option<CallWaker> {
        let mut turn = self.0.lock();
        match &mut *turn {
            Turn::Waits { waker, .. } => {
                let waker = waker.take();
                *turn = Turn::Came(with);
                waker
            }
            // Its turn has come before this is dropped.
            Turn::Came(_) => None,
        }
    }
}

impl<K, V, E> Drop for Caller<K, V, E> {
    fn drop(&mut self) {
        wake_all(self.abandon());
    }
}

impl<K: Loadable, V: Loadable, E: Send + Sync + 'static> WaitTarget for Mutex<Turn<K, V, E>> {
    fn awaited_thread(&self, _: Ticket) -> Option<u64> {
        match *self.lock() {
            Turn::Waits { taken_by, .. } => Some(taken_by),
            Turn::Came(_) => None,
        }
    }

    fn falls_asleep(&self, _: Ticket) {}
}

/// How far the refresh is when its turn has come.
pub(super) fn poll_turn<K: Loadable, V: Loadable, E: Send + Sync + 'static>(
    shared: &SharedTurn<K, V, E>,
    hash: u64,
    name: Option<&Arc<str>>,
    cx: &Context<'_>,
) -> Poll<Progress<K, V, E>> {
    let mut fresh = Some(CallWaker::of(cx));
    loop {
        let mut turn = shared.lock();
        let former = match &mut *turn {
            Turn::Waits { waker, taken_by } => match fresh.take() {
                Some(fresh) => waker.replace(fresh),
                None => {
                    let thread = *taken_by;
                    drop(turn);
                    wait_for(cx, thread, || AwaitedLoad {
                        load: SharedTurn::<K, V, E>::clone(shared),
                        hash,
                        ticket: Ticket::draw(),
                        patience: None,
                        name: name.cloned(),
                    });
                    return Poll::Pending;
                }
            },
            Turn::Came(progress) => {
                let taken = Progress::Ended(Err(LoadError::Abandoned));
                return Poll::Ready(mem::replace(progress, taken));
            }
        };
        drop(turn);
        // With no lock held: a destructor may take long. So look once more.
        drop(former);
    }
}
