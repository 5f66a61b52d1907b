//! The line to the server: the current connection, if there is one, and what may be served.
//!
//! One lock guards changes of the connection and of the stamp together (`stamp`, invariant 4). It
//! is held for a few instructions, never across user code or an await.

use crate::link::Link;
use crate::stamp::Stamp;
use std::sync::Arc;
use tokio::sync::watch;

/// Whether requests can be sent.
#[derive(Clone)]
enum State {
    Down,
    /// As `Down`, but the attempts to connect fail: calls do not wait.
    Refused,
    Up(Arc<Link>),
    Closed,
}

/// The current connection and the current stamp.
pub(crate) struct Line {
    state: watch::Sender<State>,
    stamp: Stamp,
}

impl Line {
    pub(crate) fn new() -> Self {
        Self {
            state: watch::Sender::new(State::Down),
            stamp: Stamp::new(),
        }
    }

    /// The current stamp.
    #[inline]
    pub(crate) fn stamp(&self) -> u64 {
        self.stamp.load()
    }

    /// Stores a new connection: from now on requests use it, and the values that it brings are
    /// served.
    pub(crate) fn up(&self, link: Arc<Link>) {
        self.change(|state| match state {
            State::Closed => None,
            _ => {
                self.stamp.serve_anew();
                Some(State::Up(link))
            }
        });
    }

    /// The connection of this generation has ended. True if it was the current one.
    pub(crate) fn lost(&self, generation: u64, keep_serving: bool) -> bool {
        self.change(|state| {
            if !is_current(state, generation) {
                return None;
            }
            if !keep_serving {
                self.stamp.stop();
            }
            Some(State::Down)
        })
    }

    /// The connection of this generation has reported that everything on the server changed. True
    /// if this connection is the current one.
    pub(crate) fn outdate(&self, generation: u64) -> bool {
        let state = self.state.borrow();
        let current = is_current(&state, generation);
        if current {
            self.stamp.outdate();
        }
        current
    }

    /// Ends the time for which a near cache serves without a connection.
    pub(crate) fn stop_serving(&self) {
        let _state = self.state.borrow();
        self.stamp.stop();
    }

    /// From now on calls do not wait for a connection, until there is one.
    pub(crate) fn refuse(&self) {
        self.change(|state| match state {
            State::Down => Some(State::Refused),
            _ => None,
        });
    }

    /// Closes the line for good.
    pub(crate) fn close(&self) {
        self.change(|_| {
            self.stamp.stop();
            Some(State::Closed)
        });
    }

    /// Changes the state, if there is another one. The former state is dropped after the lock is
    /// released, since it may own the last handle of a connection.
    fn change(&self, next: impl FnOnce(&State) -> Option<State>) -> bool {
        let mut before = None;
        self.state.send_if_modified(|state| {
            if let Some(next) = next(state) {
                before = Some(std::mem::replace(state, next));
            }
            before.is_some()
        })
    }

    /// Whether this generation is the current one.
    pub(crate) fn is_current(&self, generation: u64) -> bool {
        is_current(&self.state.borrow(), generation)
    }

    /// The current connection and the stamp for what it brings. Waits while there is none, but
    /// `None` if that would be in vain.
    pub(crate) async fn link(&self) -> Option<(u64, Arc<Link>)> {
        loop {
            // `stamp`, invariant 2: first the stamp, then the connection.
            let stamp = self.stamp();
            let link = match &*self.state.borrow() {
                State::Up(link) => Some(link.clone()),
                State::Down => None,
                State::Refused | State::Closed => return None,
            };
            match link {
                Some(link) if Stamp::serves(stamp) => return Some((stamp, link)),
                // The connection came between the two loads.
                Some(_) => {}
                None => {
                    self.wait(|state| !matches!(state, State::Down)).await;
                }
            }
        }
    }

    async fn wait(&self, until: impl FnMut(&State) -> bool) {
        // An error means that the line was dropped, and `self` is borrowed here.
        let _ = self.state.subscribe().wait_for(until).await;
    }

    /// Waits until this generation is not the current one.
    pub(crate) async fn left(&self, generation: u64) {
        self.wait(|state| !is_current(state, generation)).await;
    }

    /// Waits until the line is closed.
    pub(crate) async fn closed(&self) {
        self.wait(|state| matches!(state, State::Closed)).await;
    }

    pub(crate) fn is_closed(&self) -> bool {
        matches!(&*self.state.borrow(), State::Closed)
    }

    pub(crate) fn is_up(&self) -> bool {
        matches!(&*self.state.borrow(), State::Up(_))
    }
}

fn is_current(state: &State, generation: u64) -> bool {
    matches!(state, State::Up(link) if link.generation == generation)
}
