//! The way to a cache for threads that have no handle, and the drop of the last handle.
//!
//! # How it works
//!
//! Some threads work on a cache without a handle. *Visitors* do maintenance, or end loads: the
//! scheduler thread, a thread that runs a [`MaintenanceTask`](super::MaintenanceTask) or that fills
//! or drops a lease. *Deliverers* call the listener. Such a thread has a [`WeakHandle`]. It enters
//! the cache's [`Gate`], then takes a reference to the cache. It drops the reference before it
//! leaves the gate ([`Visit`]).
//!
//! The drop of the last handle *closes* the gate to visitors, and waits until those inside have
//! left. Then the dropping thread *ends* the cache ([`Gate::end`]): when the listener has heard of
//! everything, it closes the gate to deliverers too, waits until they have left, and drops the
//! cache itself.
//!
//! A thread that is itself inside a gate or a listener does not wait, nor does one for which a
//! visitor waits: it leads a load, and the visitor needs the value. It leaves the cache to the
//! threads inside. The last of them to leave ends the cache. A visitor that has dropped the last
//! handle itself waits when it has left, and ends the cache, as the drop would. If the thread may
//! not call the listener, or would have to wait for others to do that, a shared thread ends the
//! cache instead.
//!
//! # Invariants
//!
//! 1. A reference to a cache's state is a handle's, or its holder is inside the gate, or it belongs
//!    to the thread that ends the cache. A handle gives up its reference right after it was counted
//!    as dropped, and runs no user code in between. So once the gate is ended and no thread is
//!    inside, the thread that ends the cache soon has the only references, and it waits for that.
//! 2. A thread waits at a gate only if it is inside no gate and no listener, and if no thread for
//!    which it waits needs a load that it leads. So threads never wait for each other.
//! 3. The cache is left to others only while a thread is inside, and each thread that leaves looks
//!    for it, under the same lock.
//!
//! # Cost
//!
//! Two short locks for each run.

use super::delivery::Delivery;
use super::listeners::{self, Job};
use super::thread::{Role, role};
use crate::stripe::thread_number;
use crate::sync::cycle::NotedWait;
use crate::sync::{AtomicBool, Condvar, Mutex, Ordering, nap, thread_local};
use std::cell::Cell;
use std::marker::PhantomData;
use std::ops::Deref;
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

/// The calling thread has entered or left gates, or listeners.
fn note(gates: isize, listeners: isize) {
    let (in_gates, in_listeners) = inside();
    let now = (
        in_gates.wrapping_add_signed(gates),
        in_listeners.wrapping_add_signed(listeners),
    );
    _ = INSIDE.try_with(|inside| inside.set(now));
}

/// A cache as its own threads, and those of alarms, see it.
pub(crate) trait Task: Send + Sync {
    /// Does the work that is due; returns the time until the next run.
    fn run_due(&self) -> Option<Duration>;

    /// Which thread calls the listener, if there is one.
    fn delivery(&self) -> Option<Delivery>;

    /// For the thread that takes an offered delivery: delivers a bounded number of notifications
    /// that wait. True if more are left: then the caller has to see to the next offer.
    fn deliver(&self) -> bool;

    /// After the last handle was dropped, when no thread but those that deliver works on the cache:
    /// applies what was written before, and waits until the listener has heard of all removals.
    /// False if it would wait for ever: the listener waits for a load that this thread leads.
    fn tell_rest(&self) -> bool;
}

/// A cache, held weakly, and the gate through which threads reach it.
pub(crate) struct WeakHandle<T: ?Sized> {
    gate: Arc<Gate>,
    cache: Weak<T>,
}

/// A cache of any type.
pub(crate) type TaskRef = WeakHandle<dyn Task>;

/// A reference to a cache. Until this is dropped, the cache does not end. It stays on its thread.
pub(crate) struct Visit<T: ?Sized> {
    // Dropped in this order (gate 1).
    cache: Arc<T>,
    _entered: Entered,
}

impl<T: ?Sized> Deref for Visit<T> {
    type Target = T;

    fn deref(&self) -> &T {
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

    /// The same gate, for the cache as another type.
    pub(crate) fn of<U: ?Sized>(&self, cache: Weak<U>) -> WeakHandle<U> {
        let gate = Arc::clone(&self.gate);
        WeakHandle { gate, cache }
    }

    /// The cache, if it has a handle still.
    pub(crate) fn visit(&self) -> Option<Visit<T>> {
        self.enter(false)
    }

    /// The same for a thread that may deliver notifications: then the cache is there until the
    /// listener has heard of everything.
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
        Some(work(&*self.enter(delivers)?))
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

impl TaskRef {
    /// The calling thread is about to drop the last handle; see the module docs.
    pub(crate) fn close(&self) {
        let may_wait = !is_inside_any();
        if let Some(cache) = self.cache.upgrade() {
            if let Some(cache) = self.gate.close(cache, may_wait) {
                self.gate.end(cache, may_wait, 2);
            }
        }
    }
}

/// See the module docs.
pub(crate) struct Gate {
    /// Whether the last handle was dropped: only deliverers are let in. Changed under the lock.
    closed: AtomicBool,
    state: Mutex<State>,
    /// No visitor is inside; or, once the gate is ended, no deliverer.
    left: Condvar,
}

struct State {
    /// Whether no thread is let in.
    ended: bool,
    /// The numbers of the threads that visit, one for each visit.
    visitors: Vec<u64>,
    deliverers: usize,
    /// The cache, if it was left to the threads inside, and the number of the thread that has
    /// dropped the last handle.
    orphan: Option<(u64, Arc<dyn Task>)>,
}

impl State {
    /// Whether a thread that is not inside may end the cache. One that may not wait ends it only
    /// if no deliverer is inside.
    fn is_free(&self, may_wait: bool) -> bool {
        self.visitors.is_empty() && (may_wait || self.deliverers == 0)
    }
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
        let state = State {
            ended: false,
            visitors: Vec::new(),
            deliverers: 0,
            orphan: None,
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
        let visitor = (!delivers).then(thread_number);
        match visitor {
            Some(number) => state.visitors.push(number),
            None => state.deliverers += 1,
        }
        drop(state);
        note(1, 0);
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

    /// Lets no visitor in any more, and waits until those inside have left. Returns the cache,
    /// which the caller has to [`end`](Self::end); `None` if it is left to the threads inside.
    pub(crate) fn close(&self, cache: Arc<dyn Task>, may_wait: bool) -> Option<Arc<dyn Task>> {
        let wait = NotedWait::begin();
        let mut state = self.state.lock();
        self.closed.store(true, Ordering::Relaxed);
        while !state.is_free(may_wait) {
            let mut visitors = state.visitors.iter();
            if !may_wait || !visitors.all(|&visitor| wait.may_wait_for_thread(visitor)) {
                state.orphan = Some((thread_number(), cache));
                return None;
            }
            self.left.wait_for(&mut state, LONGEST_WAIT);
        }
        Some(cache)
    }

    /// Ends a closed cache that has no visitors. The calling thread has this many `references` to
    /// it. If it may not wait, or is not the one to call the listener, a shared thread ends the
    /// cache.
    pub(super) fn end(self: &Arc<Self>, cache: Arc<dyn Task>, may_wait: bool, references: usize) {
        let tells = || match cache.delivery() {
            None => true,
            Some(Delivery::Background) => role() == Role::Listener,
            Some(Delivery::Caller) => role() != Role::Scheduler,
        };
        if (may_wait || (tells() && self.end_if_empty())) && cache.tell_rest() {
            let mut state = self.state.lock();
            state.ended = true;
            while state.deliverers > 0 {
                self.left.wait(&mut state);
            }
            drop(state);
            while Arc::strong_count(&cache) > references {
                nap(LAST_REFERENCE_NAP);
            }
        } else {
            // If there is no such thread, the last reference delivers the rest.
            listeners::run(Job::End(Arc::clone(self), cache));
        }
    }

    /// Lets no thread in any more if no deliverer is inside; says whether that is so.
    fn end_if_empty(&self) -> bool {
        let mut state = self.state.lock();
        state.ended |= state.deliverers == 0;
        state.ended
    }
}

impl Drop for Entered {
    fn drop(&mut self) {
        note(-1, 0);
        let mut state = self.gate.state.lock();
        match self.visitor {
            Some(number) => {
                let place = state.visitors.iter().position(|&inside| inside == number);
                place.map(|place| state.visitors.swap_remove(place));
            }
            None => state.deliverers -= 1,
        }
        if state.visitors.is_empty() {
            self.gate.left.notify_all();
        }
        // The thread has dropped the last handle itself. A thread of the crate serves other caches
        // too: it does not wait.
        let may_wait = state.orphan.as_ref().is_some_and(|(by, _)| {
            *by == thread_number() && role() == Role::Program && !is_inside_any()
        });
        let is_free = may_wait || state.is_free(false);
        let orphan = state.orphan.take_if(|_| is_free);
        drop(state);
        if let Some((_, mut cache)) = orphan {
            if may_wait {
                // For the other visitors.
                let Some(closed) = self.gate.close(cache, true) else {
                    return;
                };
                cache = closed;
            }
            self.gate.end(cache, may_wait, 1);
        }
    }
}

/// Runs a listener, whose panic the caller catches.
pub(crate) fn in_listener<R>(call: impl FnOnce() -> R) -> R {
    note(0, 1);
    let answer = call();
    note(0, -1);
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
impl TaskRef {
    /// One that is never run.
    pub(crate) fn idle() -> Self {
        Self::new(Weak::<Idle>::new())
    }
}

#[cfg(test)]
pub(crate) struct Idle;

#[cfg(test)]
impl Task for Idle {
    fn delivery(&self) -> Option<Delivery> {
        None
    }

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
mod tests {
    use super::*;
    use std::sync::mpsc;

    #[test]
    fn a_closed_gate_lets_no_visitor_in_and_waits_for_those_inside() {
        let gate = Gate::new();
        let (closes, closing) = mpsc::channel();
        std::thread::scope(|threads| {
            let entered = gate.enter(false).expect("open");
            let closer = threads.spawn(|| closes.send(gate.close(Arc::new(Idle), true).is_some()));
            while !gate.is_closed() {
                std::thread::yield_now();
            }
            assert!(gate.enter(false).is_none());
            drop(gate.enter(true).expect("to deliver"));
            assert!(closing.try_recv().is_err(), "this thread is inside");
            drop(entered);
            assert_eq!(closing.recv(), Ok(true));
            closer.join().expect("no panic").expect("it is heard");
        });
        assert!(gate.end_if_empty());
        assert!(gate.enter(true).is_none());
    }

    #[test]
    fn a_cache_that_is_left_to_others_is_ended_by_the_last_of_them() {
        let (gate, cache) = (Gate::new(), Arc::new(Idle));
        let lives = Arc::downgrade(&cache);
        let visits = [false, false, true].map(|delivers| gate.enter(delivers));
        assert!(gate.close(cache, false).is_none());
        // As if another thread had dropped the last handle: this one then waits for no deliverer.
        gate.state.lock().orphan.as_mut().unwrap().0 = 0;
        for (visit, left) in visits.into_iter().zip([1, 1, 0]) {
            drop(visit.expect("open"));
            assert_eq!(lives.strong_count(), left);
        }
        assert!(gate.enter(true).is_none(), "it has ended");
    }

    /// It waits as the drop of the last handle would.
    #[test]
    fn a_visitor_that_has_dropped_the_last_handle_waits_for_the_others() {
        let (gate, cache) = (Gate::new(), Arc::new(Idle));
        let lives = Arc::downgrade(&cache);
        std::thread::scope(|threads| {
            let (enters, entered) = mpsc::channel();
            let (close, closed) = mpsc::channel();
            let others = threads.spawn({
                let gate = &gate;
                move || {
                    let visit = gate.enter(false).expect("open");
                    enters.send(()).expect("it is heard");
                    closed.recv().expect("the gate is closed");
                    while gate.state.lock().visitors.len() > 1 {
                        std::thread::yield_now();
                    }
                    let is_left_to_us = gate.state.lock().orphan.is_some();
                    drop(visit);
                    is_left_to_us
                }
            });
            entered.recv().expect("it has entered");
            let visit = gate.enter(false).expect("open");
            assert!(gate.close(cache, false).is_none(), "this thread is inside");
            close.send(()).expect("it is heard");
            drop(visit);
            assert_eq!(lives.strong_count(), 0, "it has ended");
            assert!(!others.join().expect("no panic"));
        });
    }

    #[test]
    fn a_thread_inside_a_gate_waits_at_no_other() {
        let (outer, inner) = (Gate::new(), Gate::new());
        let first = outer.enter(false).expect("open");
        let second = inner.enter(true).expect("open");
        assert!(is_inside_any());
        drop(first);
        assert!(is_inside_any());
        drop(second);
        assert!(!is_inside_any());
    }
}
