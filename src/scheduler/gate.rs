//! The threads at work on a cache, and the drop of the last handle, which waits for them.
//!
//! # How it works
//!
//! Some threads work on a cache without a handle: the scheduler thread, a listener thread, a
//! thread that runs a [`MaintenanceTask`](super::MaintenanceTask) or that fills or drops a lease.
//! Such a thread enters the cache's [`Gate`], then takes a reference to the cache. It drops the
//! reference before it leaves the gate. The drop of the last handle closes the gate: from then on
//! it lets in only threads that deliver notifications. The drop waits until all threads have left
//! and the listener has heard of everything, *ends* the gate, which then lets no thread in, waits
//! again, and drops the cache itself.
//!
//! # Invariants
//!
//! 1. A reference to a cache's state is a handle's, or its holder is inside the gate. So once the
//!    gate is ended and no thread is inside, the last handle's reference is the only one.
//! 2. A thread that is inside a gate, or inside a listener, never waits at a gate. Threads wait
//!    only for threads that are inside, so they never wait for each other.
//! 3. A gate lets in threads of the process that made it, and no thread of a child made by `fork`.
//!
//! # Cost
//!
//! Two short locks for each run.

use crate::process::Process;
use crate::sync::{AtomicBool, Condvar, Mutex, Ordering, thread_local};
use std::cell::Cell;
use std::sync::Arc;

thread_local! {
    /// The gate that the calling thread entered last, if it has not left it.
    static INNERMOST: Cell<*const Gate> = const { Cell::new(std::ptr::null()) };
    /// Whether it is inside a listener of any cache.
    static LISTENS: Cell<bool> = const { Cell::new(false) };
}

/// See the module docs.
pub(crate) struct Gate {
    closed: AtomicBool,
    ended: AtomicBool,
    /// Whether the thread that closed the gate does not wait, and no other thread was started that
    /// drops the cache.
    abandoned: AtomicBool,
    /// How many threads are inside.
    inside: Mutex<usize>,
    left: Condvar,
    process: Process,
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
    pub(super) fn new() -> Arc<Self> {
        Arc::new(Self {
            closed: AtomicBool::new(false),
            ended: AtomicBool::new(false),
            abandoned: AtomicBool::new(false),
            inside: Mutex::new(0),
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
        let over = if delivers { &self.ended } else { &self.closed };
        let mut inside = self.inside.lock();
        if over.load(Ordering::Relaxed) {
            return None;
        }
        *inside += 1;
        drop(inside);
        let outer = INNERMOST.try_with(|gate| gate.replace(&**self));
        Some(Entered {
            gate: Arc::clone(self),
            outer: outer.unwrap_or(std::ptr::null()),
        })
    }

    /// Panics in a child made by `fork`.
    pub(crate) fn check_process(&self) {
        self.process.check();
    }

    /// Whether the last handle was dropped: a run ends early then.
    ///
    /// Acquire, partner `close`: a thread that sees the gate closed sees whether it was abandoned.
    #[inline]
    pub(super) fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Acquire)
    }

    /// Whether the calling thread has entered this gate last.
    pub(super) fn is_innermost(&self) -> bool {
        innermost().is_some_and(|gate| std::ptr::eq(gate, self))
    }

    /// Lets in only threads that deliver, and says whether the caller may wait (gate 2).
    pub(super) fn close(&self) -> bool {
        let _inside = self.inside.lock();
        let waits = !is_inside_any();
        // Stored before the gate is marked as closed: readers read them in the opposite order.
        self.abandoned.store(!waits, Ordering::Relaxed);
        self.closed.store(true, Ordering::Release);
        waits
    }

    /// Whether the calling thread has to hand the cache over to a new thread, which drops it: the
    /// thread that closed the gate does not wait, and no other thread has handed it over.
    pub(super) fn claim_new_thread(&self) -> bool {
        self.abandoned.swap(false, Ordering::Relaxed)
    }

    /// Lets no thread in any more.
    pub(super) fn end(&self) {
        let _inside = self.inside.lock();
        self.ended.store(true, Ordering::Relaxed);
    }

    /// The same if no thread is inside; says whether that is so.
    pub(super) fn end_if_empty(&self) -> bool {
        let inside = self.inside.lock();
        if *inside == 0 {
            self.ended.store(true, Ordering::Relaxed);
        }
        *inside == 0
    }

    /// Waits until all threads have left the closed gate. Not for a thread inside a gate or a
    /// listener.
    pub(super) fn wait_until_empty(&self) {
        let mut inside = self.inside.lock();
        while *inside > 0 {
            self.left.wait(&mut inside);
        }
    }
}

impl Drop for Entered {
    fn drop(&mut self) {
        _ = INNERMOST.try_with(|gate| gate.set(self.outer));
        if !self.gate.process.is_current() {
            return;
        }
        let mut inside = self.gate.inside.lock();
        *inside -= 1;
        if *inside == 0 {
            self.gate.left.notify_all();
        }
    }
}

/// Whether the calling thread must not wait for other threads: it is inside a gate or a listener.
pub(super) fn is_inside_any() -> bool {
    innermost().is_some() || inside_listener()
}

/// Whether the calling thread is inside a listener. Such a thread must not wait for deliveries: the
/// delivery that it runs itself continues only after the listener has returned.
pub(crate) fn inside_listener() -> bool {
    LISTENS.try_with(Cell::get).unwrap_or(false)
}

/// Calls a listener, whose panics the call catches.
pub(crate) fn listening<T>(call: impl FnOnce() -> T) -> T {
    let outer = LISTENS.try_with(|inside| inside.replace(true));
    let answer = call();
    _ = LISTENS.try_with(|inside| inside.set(outer.unwrap_or(false)));
    answer
}

fn innermost() -> Option<*const Gate> {
    let gate = INNERMOST.try_with(Cell::get).ok()?;
    (!gate.is_null()).then_some(gate)
}

#[cfg(all(test, not(wheelhouse_loom), not(wheelhouse_shuttle)))]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicU32;

    #[test]
    fn a_closed_gate_lets_no_thread_in_and_is_left_by_those_inside() {
        let gate = Gate::new();
        let step = AtomicU32::new(0);
        assert!(!gate.is_innermost());
        std::thread::scope(|threads| {
            let entered = gate.enter(false).expect("open");
            assert!(gate.is_innermost());
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
            assert!(gate.enter(true).is_some(), "to deliver");
            step.store(2, Ordering::SeqCst);
            drop(entered);
            waiter.join().expect("no panic");
        });
        assert!(!gate.claim_new_thread());
        gate.end();
        assert!(gate.enter(true).is_none());
    }

    #[test]
    fn gates_may_be_entered_one_inside_the_other() {
        let (outer, inner) = (Gate::new(), Gate::new());
        let first = outer.enter(false).expect("open");
        let second = inner.enter(false).expect("open");
        assert!(inner.is_innermost() && !outer.is_innermost());
        drop(second);
        assert!(outer.is_innermost());
        assert!(!inner.close(), "inside another gate");
        assert!(inner.claim_new_thread(), "to the first that asks");
        assert!(!inner.claim_new_thread());
        drop(first);
        assert!(outer.close());
    }
}
