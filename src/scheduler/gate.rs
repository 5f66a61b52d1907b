//! The way to a cache for threads that have no handle, and the drop of the last handle.
//!
//! # How it works
//!
//! Some threads work on a cache without a handle. *Visitors* do maintenance, or end loads: the
//! scheduler thread, a thread that reloads, that runs a load's task or a
//! [`MaintenanceTask`](super::MaintenanceTask), or that fills or drops a lease. *Deliverers* call
//! the listener. Such a thread has a [`WeakHandle`]. It enters the cache's [`Gate`], then takes a
//! reference to the cache. It drops the reference before it leaves the gate ([`Visit`]).
//!
//! The drop of the last handle *closes* the gate to visitors. Then a thread *ends* the cache
//! ([`CacheRef::end`]): it waits until the visitors have left; until the listener has heard of
//! everything; until the deliverers have left, too. Then it has the last reference, and drops the
//! cache.
//!
//! The dropping thread does this itself, unless it must not wait. It must not inside a gate or a
//! listener, as one of the crew, or if a thread for which it would wait needs a load that it leads.
//! Then the crew does it ([`Job::End`]), and the drop returns at once. If that thread needs a load
//! that no thread leads, the dropping thread may hold the lease: it waits for a second at most.
//!
//! # Invariants
//!
//! 1. A reference to a cache's state is a handle's, or its holder is inside the gate, or it belongs
//!    to the thread that ends the cache. A handle gives up its reference right after it was counted
//!    as dropped, and runs no user code in between. So once the gate is ended and no thread is
//!    inside, the thread that ends the cache soon has the only reference, and it waits for that.
//! 2. A thread waits at a gate only if it is inside no gate and no listener, and if no thread for
//!    which it waits needs a load that it leads. So threads never wait for each other.
//!
//! # Cost
//!
//! Two short locks for each run.

use super::crew::{CREW, Job, is_crew_thread};
use crate::stripe::thread_number;
use crate::sync::cycle::NotedWait;
use crate::sync::{AtomicBool, Condvar, Mutex, Ordering, nap, thread_local};
use std::cell::Cell;
use std::marker::PhantomData;
use std::sync::{Arc, Weak};
use std::time::Duration;

/// How long a thread that waits for visitors sleeps before it looks again whether one of them has
/// come to wait for it.
const LONGEST_WAIT: Duration = Duration::from_millis(5);

/// How long the thread that ends a cache naps before it looks again whether another thread still
/// holds a reference, which that thread is about to drop.
const LAST_REFERENCE_NAP: Duration = Duration::from_micros(50);

thread_local! {
    /// How many gates, and how many listeners, the calling thread is inside, of any caches.
    static INSIDE: Cell<(usize, usize)> = const { Cell::new((0, 0)) };
}

fn inside() -> (usize, usize) {
    INSIDE.try_with(Cell::get).unwrap_or_default()
}

/// Counts that the calling thread has entered or left gates, or listeners.
fn count_inside(gates: isize, listeners: isize) {
    let (in_gates, in_listeners) = inside();
    let now = (
        in_gates.wrapping_add_signed(gates),
        in_listeners.wrapping_add_signed(listeners),
    );
    _ = INSIDE.try_with(|inside| inside.set(now));
}

/// The work of a cache, as the threads of the crate, and those of alarms, see it.
pub(crate) trait CacheWork: Send + Sync {
    /// Does the work that is due; returns the time until the next run.
    fn run_due(&self) -> Option<Duration>;

    /// For the thread that takes an offered delivery: delivers a bounded number of notifications
    /// that wait. True if more are left: then the caller has to see to the next offer.
    fn deliver(&self) -> bool;

    /// The last handle was dropped, and no thread but those that deliver works on the cache.
    /// Applies what was written before, and waits until the listener has heard of all removals.
    /// False if it would wait for ever: the listener waits for a load that this thread leads.
    fn tell_rest(&self) -> bool;
}

/// A cache, held weakly, and the gate through which threads reach it.
pub(crate) struct WeakHandle<T: ?Sized> {
    gate: Arc<Gate>,
    cache: Weak<T>,
}

/// A cache of any type, held weakly.
pub(crate) type CacheRef = WeakHandle<dyn CacheWork>;

/// A reference to a cache. Until this is dropped, the cache does not end. It stays on its thread.
pub(crate) struct Visit<T: ?Sized> {
    // Dropped in this order (gate 1).
    cache: Arc<T>,
    _entered: Entered,
}

impl<T: ?Sized> Visit<T> {
    pub(crate) fn cache(&self) -> &T {
        &self.cache
    }
}

impl<T: ?Sized> Clone for WeakHandle<T> {
    fn clone(&self) -> Self {
        self.of(Weak::clone(&self.cache))
    }
}

impl<T: ?Sized> WeakHandle<T> {
    /// The first of a cache, with a new gate.
    pub(crate) fn new(cache: Weak<T>) -> Self {
        let gate = Gate::new();
        Self { gate, cache }
    }

    /// A handle with this gate, for the cache as another type.
    pub(crate) fn of<U: ?Sized>(&self, cache: Weak<U>) -> WeakHandle<U> {
        let gate = Arc::clone(&self.gate);
        WeakHandle { gate, cache }
    }

    /// The cache, if it has a handle still.
    pub(crate) fn visit(&self) -> Option<Visit<T>> {
        self.enter(false)
    }

    /// The cache. For a thread that delivers notifications it is there until the listener has heard
    /// of everything; for others, while it has a handle.
    fn enter(&self, delivers: bool) -> Option<Visit<T>> {
        let entered = self.gate.enter(delivers)?;
        let cache = self.cache.upgrade()?;
        Some(Visit {
            cache,
            _entered: entered,
        })
    }

    /// Lets the calling thread work on the cache; `None` if it is gone, or going.
    pub(super) fn with<R>(&self, delivers: bool, work: impl FnOnce(&T) -> R) -> Option<R> {
        Some(work(self.enter(delivers)?.cache()))
    }

    /// Tells caches apart, while they live. Not 0.
    pub(super) fn address(&self) -> usize {
        Arc::as_ptr(&self.gate).addr()
    }

    /// Whether the last handle was dropped: a run ends early then.
    pub(crate) fn is_closed(&self) -> bool {
        self.gate.is_closed()
    }
}

impl CacheRef {
    /// The calling thread is about to drop the last handle; see the module docs.
    pub(crate) fn close(&self) {
        self.gate.close();
        let may_wait = !is_inside_any() && !is_crew_thread();
        if may_wait && self.end() {
            return;
        }
        if let Some(cache) = self.cache.upgrade() {
            // If no thread can be started, the thread that drops the last reference tells the rest.
            CREW.push(Job::End(self.clone(), cache));
        }
    }

    /// Ends a closed cache, to which the calling thread has a reference: afterwards it has the only
    /// one. False if the calling thread must not wait for that.
    pub(super) fn end(&self) -> bool {
        if !self.gate.await_visitors() {
            return false;
        }
        if let Some(cache) = self.cache.upgrade() {
            if !cache.tell_rest() {
                return false;
            }
        }
        self.gate.end();
        while self.cache.strong_count() > 1 {
            nap(LAST_REFERENCE_NAP);
        }
        true
    }
}

/// See the module docs.
pub(crate) struct Gate {
    /// Whether the last handle was dropped: only deliverers are let in. Changed under the lock.
    closed: AtomicBool,
    state: Mutex<GateState>,
    /// No visitor is inside; or, once the gate is ended, no deliverer.
    left: Condvar,
}

struct GateState {
    /// Whether no thread is let in.
    ended: bool,
    /// The numbers of the threads that visit, one for each visit.
    visitors: Vec<u64>,
    deliverers: usize,
}

/// A thread is inside the gate until it drops this. It stays on its thread.
#[must_use]
pub(crate) struct Entered {
    gate: Arc<Gate>,
    /// The thread's number, if it is a visitor.
    visitor: Option<u64>,
    _here: PhantomData<*const ()>,
}

impl Gate {
    pub(crate) fn new() -> Arc<Self> {
        let state = GateState {
            ended: false,
            visitors: Vec::new(),
            deliverers: 0,
        };
        Arc::new(Self {
            closed: AtomicBool::new(false),
            state: Mutex::new(state),
            left: Condvar::new(),
        })
    }

    /// Enters; `None` if the last handle was dropped. A thread that `delivers` notifications enters
    /// until the listener has heard of everything.
    pub(crate) fn enter(self: &Arc<Self>, delivers: bool) -> Option<Entered> {
        let mut state = self.state.lock();
        if state.ended || (!delivers && self.is_closed()) {
            return None;
        }
        let mut visitor = None;
        if delivers {
            state.deliverers += 1;
        } else {
            let number = thread_number();
            state.visitors.push(number);
            visitor = Some(number);
        }
        drop(state);
        count_inside(1, 0);
        Some(Entered {
            gate: Arc::clone(self),
            visitor,
            _here: PhantomData,
        })
    }

    /// Relaxed: a thread that must know asks under the lock.
    fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Relaxed)
    }

    /// Lets no visitor in any more.
    pub(crate) fn close(&self) {
        let _state = self.state.lock();
        self.closed.store(true, Ordering::Relaxed);
    }

    /// Waits until the visitors of a closed gate have left. False if one of them waits for a load
    /// that the calling thread leads, or, for long, for one that no thread leads.
    pub(crate) fn await_visitors(&self) -> bool {
        let mut wait = NotedWait::begin();
        let mut state = self.state.lock();
        while !state.visitors.is_empty() {
            if !wait.lasts(&state.visitors) {
                return false;
            }
            self.left.wait_for(&mut state, LONGEST_WAIT);
        }
        true
    }

    /// Lets no thread in any more, and waits until the deliverers have left.
    fn end(&self) {
        let mut state = self.state.lock();
        state.ended = true;
        while state.deliverers > 0 {
            self.left.wait(&mut state);
        }
    }
}

impl Drop for Entered {
    fn drop(&mut self) {
        count_inside(-1, 0);
        let mut state = self.gate.state.lock();
        match self.visitor {
            Some(number) => {
                let place = state.visitors.iter().position(|&inside| inside == number);
                if let Some(place) = place {
                    state.visitors.swap_remove(place);
                }
            }
            None => state.deliverers -= 1,
        }
        drop(state);
        self.gate.left.notify_all();
    }
}

/// Runs a listener, whose panic the caller catches.
pub(crate) fn in_listener<R>(call: impl FnOnce() -> R) -> R {
    count_inside(0, 1);
    let answer = call();
    count_inside(0, -1);
    answer
}

/// Whether the calling thread is inside a listener. Such a thread must not wait for deliveries: the
/// delivery that it runs itself continues only after the listener has returned.
pub(crate) fn inside_listener() -> bool {
    inside().1 > 0
}

/// Whether the calling thread must not wait for other threads: it is inside a gate or a listener.
pub(super) fn is_inside_any() -> bool {
    inside() != (0, 0)
}

#[cfg(test)]
impl CacheRef {
    /// One that is never run.
    pub(crate) fn idle() -> Self {
        Self::new(Weak::<Idle>::new())
    }
}

#[cfg(test)]
pub(crate) struct Idle;

#[cfg(test)]
impl CacheWork for Idle {
    fn run_due(&self) -> Option<Duration> {
        None
    }

    fn deliver(&self) -> bool {
        false
    }

    fn tell_rest(&self) -> bool {
        true
    }
}

#[cfg(all(test, not(wheelhouse_loom), not(wheelhouse_shuttle)))]
mod tests;
