//! The way to a cache for threads that have no handle, and the drop of the last handle, which waits
//! for them.
//!
//! # How it works
//!
//! Some threads work on a cache without a handle: the scheduler thread, a listener thread, a thread
//! that runs a [`MaintenanceTask`](super::MaintenanceTask) or that fills or drops a lease. Such a
//! thread has a [`WeakHandle`]. It enters the cache's [`Gate`], then takes a reference to the
//! cache. It drops the reference before it leaves the gate ([`Visit`]). The drop of the last handle
//! closes the gate: from then on it lets in only threads that deliver notifications. The drop waits
//! until all threads have left and the listener has heard of everything, *ends* the gate, which
//! then lets no thread in, waits again, and drops the cache itself.
//!
//! A thread that is itself at work on a cache, or inside a listener, does not wait: if the cache
//! has a listener, a shared thread does all this in its place. But if user code drops the last
//! handle during a visit of this very cache, the thread of a program does it at the end of that
//! visit.
//!
//! # Invariants
//!
//! 1. A reference to a cache's state is a handle's, or its holder is inside the gate, or it belongs
//!    to the thread that ends the cache. So once the gate is ended and no thread is inside, that
//!    thread's reference and the last handle's are the only ones.
//! 2. A thread that is inside a gate, or inside a listener, never waits at a gate. Threads wait
//!    only for threads that are inside, so they never wait for each other.
//! 3. A gate lets in threads of the process that made it, and no thread of a child made by `fork`.
//!
//! # Cost
//!
//! Two short locks for each run.

use super::delivery::Delivery;
use super::listeners::{self, Job};
use super::thread::{Role, role};
use crate::process::Process;
use crate::stripe::thread_number;
use crate::sync::{AtomicBool, Condvar, Mutex, Ordering, thread_local};
use std::cell::Cell;
use std::ops::Deref;
use std::sync::{Arc, Weak};
use std::time::Duration;

thread_local! {
    static INSIDE: Cell<Inside> = const {
        Cell::new(Inside {
            gate: std::ptr::null(),
            listeners: 0,
        })
    };
}

/// What the calling thread is inside, of any caches.
#[derive(Clone, Copy)]
struct Inside {
    /// The gate that it has entered last and has not left.
    gate: *const Gate,
    /// How many listeners.
    listeners: usize,
}

/// A cache as its own threads, and those of alarms, see it.
pub(crate) trait Task: Send + Sync {
    /// Does the work that is due; returns the time until the next run.
    fn run_due(&self) -> Option<Duration>;

    /// Which thread calls the listener, if there is one. The cache owns what the program's executor
    /// has captured: a [`WeakHandle`] may outlive the cache.
    fn delivery(&self) -> Option<&Delivery>;

    /// For the thread that takes an offered delivery: delivers a bounded number of notifications
    /// that wait. True if more are left: then the caller has to see to the next offer.
    fn deliver(&self) -> bool;

    /// Notes that an offered delivery will not take place.
    fn drop_offer(&self);

    /// After the last handle was dropped, when no thread but those that deliver works on the cache:
    /// applies what was written before, and waits until the listener has heard of all removals.
    fn tell_rest(&self);
}

/// A cache, held weakly, and the gate through which threads reach it.
pub(crate) struct WeakHandle<T: ?Sized> {
    gate: Arc<Gate>,
    cache: Weak<T>,
}

/// A cache of any type.
pub(crate) type TaskRef = WeakHandle<dyn Task>;

/// A reference to a cache. The drop of the last handle waits until this is dropped. It stays on its
/// thread.
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

    /// The cache, if it has a handle still, and this is no child made by `fork`.
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

    /// For a call that is about to wait. Panics in a child made by `fork`.
    pub(crate) fn check_process(&self) {
        self.gate.process.check();
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
    /// The calling thread is about to drop the last handle. Waits until no other thread is at work
    /// on the cache and the listener has heard of everything, so that this thread drops the cache
    /// itself. A thread that is at work on a cache, or inside a listener, does not wait (gate 2).
    /// If it is at work on this cache, it ends the cache after that.
    pub(crate) fn close(&self) {
        let waits = self.gate.close();
        let Some(task) = self.cache.upgrade() else {
            return;
        };
        if waits {
            self.end(&*task);
        } else if let Some(task) = self.gate.leave_for_later(self, task) {
            self.end_without_wait(task);
        }
    }

    /// The calling thread has left the gate, and has dropped the last handle inside.
    fn end_after_visit(&self, task: Arc<dyn Task>) {
        // The executor is asked by a thread that may wait; and a thread of the crate serves other
        // caches too.
        let asks = matches!(task.delivery(), Some(Delivery::Executor(_)));
        if is_inside_any() || asks || role() != Role::Program {
            self.end_without_wait(task);
        } else {
            self.end(&*task);
        }
    }

    /// If the mode of delivery lets the calling thread call the listener, and no thread is at work
    /// on this cache, it ends the cache itself; else a shared thread does.
    fn end_without_wait(&self, task: Arc<dyn Task>) {
        let tells = match task.delivery() {
            None => return,
            Some(Delivery::Background) => role() == Role::Listener,
            Some(Delivery::Caller) => role() != Role::Scheduler,
            // The executor is asked by a thread that may wait.
            Some(Delivery::Executor(_)) => false,
        };
        if tells && self.gate.end_if_empty() {
            task.tell_rest();
        } else {
            // If there is no such thread, the last reference delivers the rest.
            listeners::run(Job::Drop(self.clone(), task));
        }
    }

    /// Ends a cache whose gate is closed: when this returns, no other thread is at work on it, and
    /// none will be.
    pub(super) fn end(&self, task: &dyn Task) {
        self.gate.wait_until_empty();
        task.tell_rest();
        self.gate.end();
        self.gate.wait_until_empty();
    }
}

/// See the module docs.
pub(crate) struct Gate {
    /// Whether the last handle was dropped: only threads that deliver notifications are let in.
    /// Changed under the lock.
    closed: AtomicBool,
    state: Mutex<State>,
    left: Condvar,
    process: Process,
}

struct State {
    /// Whether no thread is let in.
    ended: bool,
    /// How many threads are inside.
    inside: usize,
    /// The number of the thread inside that ends the cache when it has left.
    later: Option<(u64, TaskRef, Arc<dyn Task>)>,
}

/// A thread is inside the gate until it drops this.
#[must_use]
pub(crate) struct Entered {
    gate: Arc<Gate>,
    /// The gate that this thread has entered before. A pointer, so this is dropped by the thread
    /// that entered.
    outer: *const Gate,
}

impl Gate {
    pub(crate) fn new() -> Arc<Self> {
        let state = State {
            ended: false,
            inside: 0,
            later: None,
        };
        Arc::new(Self {
            closed: AtomicBool::new(false),
            state: Mutex::new(state),
            left: Condvar::new(),
            process: Process::current(),
        })
    }

    /// Enters; `None` if the last handle was dropped, or in a child made by `fork`. A thread that
    /// `delivers` notifications enters also while the drop of the last handle waits for that.
    pub(crate) fn enter(self: &Arc<Self>, delivers: bool) -> Option<Entered> {
        if !self.process.is_current() {
            return None;
        }
        let mut state = self.state.lock();
        if state.ended || (!delivers && self.is_closed()) {
            return None;
        }
        state.inside += 1;
        drop(state);
        let mut outer = std::ptr::null();
        note(|inside| outer = std::mem::replace(&mut inside.gate, &raw const **self));
        Some(Entered {
            gate: Arc::clone(self),
            outer,
        })
    }

    /// Takes no lock: in a child made by `fork` it may stay locked.
    ///
    /// Relaxed: a thread that must know asks under the lock.
    fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Relaxed)
    }

    /// Lets in only threads that deliver, and says whether the caller may wait (gate 2).
    pub(crate) fn close(&self) -> bool {
        let state = self.state.lock();
        self.closed.store(true, Ordering::Relaxed);
        drop(state);
        !is_inside_any()
    }

    /// Keeps the end of the cache for the calling thread, if it has entered this gate last: it does
    /// that when it has left. Else returns the cache.
    fn leave_for_later(&self, cache: &TaskRef, task: Arc<dyn Task>) -> Option<Arc<dyn Task>> {
        let me = thread_number();
        let is_innermost = INSIDE.try_with(|inside| std::ptr::eq(inside.get().gate, self));
        if me == 0 || !is_innermost.unwrap_or(false) {
            return Some(task);
        }
        self.state.lock().later = Some((me, cache.clone(), task));
        None
    }

    /// Lets no thread in any more.
    fn end(&self) {
        self.state.lock().ended = true;
    }

    /// The same if no thread is inside; says whether that is so.
    fn end_if_empty(&self) -> bool {
        let mut state = self.state.lock();
        state.ended |= state.inside == 0;
        state.inside == 0
    }

    /// Waits until all threads have left the closed gate. Not for a thread inside a gate or a
    /// listener.
    pub(crate) fn wait_until_empty(&self) {
        let mut state = self.state.lock();
        while state.inside > 0 {
            self.left.wait(&mut state);
        }
    }
}

impl Drop for Entered {
    fn drop(&mut self) {
        note(|inside| inside.gate = self.outer);
        if !self.gate.process.is_current() {
            return;
        }
        let mut state = self.gate.state.lock();
        state.inside -= 1;
        if state.inside == 0 {
            self.gate.left.notify_all();
        }
        let has_left = !std::ptr::eq(self.outer, &raw const *self.gate);
        let later = (state.later).take_if(|(by, ..)| has_left && *by == thread_number());
        drop(state);
        if let Some((_, cache, task)) = later {
            cache.end_after_visit(task);
        }
    }
}

fn note(change: impl FnOnce(&mut Inside)) {
    _ = INSIDE.try_with(|inside| {
        let mut now = inside.get();
        change(&mut now);
        inside.set(now);
    });
}

/// Runs a listener, whose panic the caller catches.
pub(crate) fn in_listener<R>(call: impl FnOnce() -> R) -> R {
    note(|inside| inside.listeners += 1);
    let answer = call();
    note(|inside| inside.listeners -= 1);
    answer
}

/// Whether the calling thread is inside a listener. Such a thread must not wait for deliveries: the
/// delivery that it runs itself continues only after the listener has returned.
pub(crate) fn inside_listener() -> bool {
    INSIDE
        .try_with(|inside| inside.get().listeners > 0)
        .unwrap_or(false)
}

/// Whether the calling thread must not wait for other threads: it is inside a gate or a listener.
pub(super) fn is_inside_any() -> bool {
    let is_inside = |inside: Inside| !inside.gate.is_null() || inside.listeners > 0;
    INSIDE
        .try_with(|inside| is_inside(inside.get()))
        .unwrap_or(false)
}

#[cfg(test)]
impl TaskRef {
    /// One that is never run.
    pub(crate) fn idle() -> Self {
        Self::new(Weak::<Idle>::new())
    }
}

#[cfg(test)]
struct Idle;

#[cfg(test)]
impl Task for Idle {
    fn delivery(&self) -> Option<&Delivery> {
        None
    }

    fn run_due(&self) -> Option<Duration> {
        None
    }

    fn deliver(&self) -> bool {
        false
    }

    fn drop_offer(&self) {}

    fn tell_rest(&self) {}
}

#[cfg(all(test, not(wheelhouse_loom), not(wheelhouse_shuttle)))]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicU32;

    #[test]
    fn a_closed_gate_lets_no_thread_in_and_is_left_by_those_inside() {
        let gate = Gate::new();
        let step = AtomicU32::new(0);
        std::thread::scope(|threads| {
            let entered = gate.enter(false).expect("open");
            let waiter = threads.spawn(|| {
                assert!(gate.close(), "this thread may wait");
                step.store(1, Ordering::SeqCst);
                gate.wait_until_empty();
                assert_eq!(step.load(Ordering::SeqCst), 2);
            });
            while step.load(Ordering::SeqCst) == 0 {
                std::thread::yield_now();
            }
            assert!(gate.is_closed() && gate.enter(false).is_none());
            assert!(!gate.end_if_empty(), "this thread is inside");
            assert!(gate.enter(true).is_some(), "to deliver");
            step.store(2, Ordering::SeqCst);
            drop(entered);
            waiter.join().expect("no panic");
        });
        assert!(gate.end_if_empty());
        assert!(gate.enter(true).is_none());
    }

    /// As in a child made by `fork` while a thread of the parent holds the lock.
    #[test]
    fn whether_the_gate_is_closed_is_known_without_its_lock() {
        let gate = Gate::new();
        let held = gate.state.lock();
        assert!(!gate.is_closed());
        drop(held);
        gate.close();
        let _held = gate.state.lock();
        assert!(gate.is_closed());
    }

    #[test]
    fn gates_may_be_entered_one_inside_the_other() {
        let (outer, inner) = (Gate::new(), Gate::new());
        let first = outer.enter(false).expect("open");
        let second = inner.enter(false).expect("open");
        assert!(!outer.close(), "inside another gate");
        drop(second);
        assert!(!inner.close(), "inside the outer gate");
        drop(first);
        assert!(inner.close());
        inner.end();
        assert!(inner.enter(true).is_none());
    }
}
