//! The turn of a refresh that waits for a reload thread: the thread hands it over once.

use crate::contain::contain;
use crate::sync::Mutex;
use crate::sync::place;
use std::mem;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

/// What a refresh gets when its turn has come.
enum TurnState<T> {
    /// Not yet; the waker of the last poll.
    Waits(Option<Waker>),
    Came(T),
    /// There will be no turn, or it was taken.
    Over,
}

/// The end that a reload thread holds. Its drop says that there will be no turn.
pub(super) struct Caller<T>(Arc<Mutex<TurnState<T>>>);

/// The end that the refresh holds.
pub(super) struct Turn<T>(Arc<Mutex<TurnState<T>>>);

/// The two ends of a turn.
pub(super) fn turn<T>() -> (Caller<T>, Turn<T>) {
    let state = Arc::new(Mutex::new(TurnState::Waits(None)));
    (Caller(Arc::clone(&state)), Turn(state))
}

impl<T> Caller<T> {
    /// The turn has come.
    pub(super) fn call(self, with: T) {
        self.end(TurnState::Came(with));
    }

    /// Whether the refresh is still there.
    pub(super) fn is_awaited(&self) -> bool {
        Arc::strong_count(&self.0) > 1
    }

    fn end(&self, end: TurnState<T>) {
        let mut state = self.0.lock();
        let former = match *state {
            TurnState::Waits(_) => mem::replace(&mut *state, end),
            // Its turn has come before this is dropped.
            TurnState::Came(_) | TurnState::Over => return,
        };
        drop(state);
        // With the lock released: a waker is user code.
        if let TurnState::Waits(Some(waker)) = former {
            contain(|| waker.wake());
        }
    }
}

impl<T> Drop for Caller<T> {
    fn drop(&mut self) {
        self.end(TurnState::Over);
    }
}

impl<T> Turn<T> {
    /// What the turn brings; `None` if there will be no turn.
    pub(super) fn poll(&mut self, cx: &Context<'_>) -> Poll<Option<T>> {
        // Cloned with no lock held, as a waker is dropped: both are user code.
        let mut fresh = Some(cx.waker().clone());
        loop {
            let mut state = self.0.lock();
            let former = match &mut *state {
                TurnState::Waits(waker) => match fresh.take() {
                    Some(fresh) => waker.replace(fresh),
                    None => {
                        drop(state);
                        place::give_up();
                        return Poll::Pending;
                    }
                },
                TurnState::Came(_) | TurnState::Over => {
                    let former = mem::replace(&mut *state, TurnState::Over);
                    drop(state);
                    return Poll::Ready(match former {
                        TurnState::Came(with) => Some(with),
                        TurnState::Waits(_) | TurnState::Over => None,
                    });
                }
            };
            drop(state);
            // A destructor may take long: so look once more.
            drop(former);
        }
    }
}
