//! The turn of a refresh. It comes at once if the refresh joins a load or begins one as a task, and
//! if the key has what it asks for. Else a reload thread hands it over, once.

use crate::flight::wake_all;
use crate::sync::Mutex;
use crate::sync::place;
use std::mem;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

/// What a refresh gets when its turn has come. The refresh and the thread share it.
pub(super) enum Turn<T> {
    /// It has not come; the waker of the last poll.
    Waits(Option<Waker>),
    Came(T),
    /// There will be none, or it was taken.
    Over,
}

pub(super) type SharedTurn<T> = Arc<Mutex<Turn<T>>>;

/// The end that a reload thread holds. Its drop says that there will be no turn.
pub(super) struct Caller<T>(SharedTurn<T>);

/// The two ends of a turn.
pub(super) fn turn<T>() -> (Caller<T>, SharedTurn<T>) {
    let turn = Arc::new(Mutex::new(Turn::Waits(None)));
    (Caller(Arc::clone(&turn)), turn)
}

/// A turn that has come already.
pub(super) fn come<T>(with: T) -> SharedTurn<T> {
    Arc::new(Mutex::new(Turn::Came(with)))
}

impl<T> Caller<T> {
    /// The turn has come.
    pub(super) fn call(self, with: T) {
        self.end(Turn::Came(with));
    }

    /// Whether the refresh is still there.
    pub(super) fn is_awaited(&self) -> bool {
        Arc::strong_count(&self.0) > 1
    }

    fn end(&self, end: Turn<T>) {
        let mut state = self.0.lock();
        let former = match *state {
            Turn::Waits(_) => mem::replace(&mut *state, end),
            // Its turn has come before this is dropped.
            Turn::Came(_) | Turn::Over => return,
        };
        drop(state);
        // With the lock released: a waker is user code.
        if let Turn::Waits(Some(waker)) = former {
            wake_all([waker]);
        }
    }
}

impl<T> Drop for Caller<T> {
    fn drop(&mut self) {
        self.end(Turn::Over);
    }
}

/// What the turn brings; `None` if there will be no turn.
pub(super) fn poll_turn<T>(turn: &Mutex<Turn<T>>, cx: &Context<'_>) -> Poll<Option<T>> {
    // Cloned with no lock held, as a waker is dropped: both are user code.
    let mut fresh = Some(cx.waker().clone());
    loop {
        let mut state = turn.lock();
        let former = match &mut *state {
            Turn::Waits(waker) => match fresh.take() {
                Some(fresh) => waker.replace(fresh),
                None => {
                    drop(state);
                    place::give_up();
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
