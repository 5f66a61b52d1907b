//! The process that an object belongs to.
//!
//! A child made by `fork` has a copy of its parent's memory, and only the thread that forked. Locks
//! that other threads held stay locked in the child, and what other threads had begun never ends.
//! So a cache belongs to the process that built it: in a child, a call that needs one of its locks
//! or threads panics, and the drop of the last handle frees nothing.
//!
//! Caches that the child builds do not depend on them. Statics that know of threads are a
//! [`PerProcess`]: a child makes a value of its own, with fresh locks.
//!
//! Locks of the process that belong to other libraries are beyond this. `parking_lot` has such
//! locks, for its table of waiting threads: if a thread of the parent held one at the fork, a
//! thread of the child that has to wait may hang. POSIX lets the child of a program with several
//! threads call only async-signal-safe functions until it calls `exec`; that is the sure way.
//!
//! # How it works
//!
//! The first cache of the program has the system run a handler in each child that `fork` makes from
//! then on. The handler counts the forks between that first process and this one. An object
//! remembers the count at its beginning.
//!
//! # Cost
//!
//! A check is a load and a comparison.
#![allow(unsafe_code)]

use std::ptr;
use std::sync::atomic::{AtomicPtr, AtomicU32, Ordering};

/// How many forks lie between the first process that built a cache and this one.
static FORKS: AtomicU32 = AtomicU32::new(0);

/// The process that made this.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Process(u32);

impl Process {
    /// The calling process.
    pub(crate) fn current() -> Self {
        watch();
        Self(forks())
    }

    #[inline]
    pub(crate) fn is_current(self) -> bool {
        self.0 == forks()
    }

    /// Panics in a child of the process that made this.
    #[inline]
    pub(crate) fn check(self) {
        if !self.is_current() {
            refuse();
        }
    }
}

/// Relaxed: the count changes only while the process has one thread.
#[inline]
fn forks() -> u32 {
    FORKS.load(Ordering::Relaxed)
}

#[cold]
#[inline(never)]
fn refuse() -> ! {
    panic!(
        "this cache was built before fork(), in the parent process: build caches after the fork, \
         in the child, or call exec"
    );
}

/// Has the system count forks from now on.
#[cfg(all(unix, not(miri)))]
fn watch() {
    use std::ffi::c_int;
    type Handler = Option<extern "C" fn()>;
    unsafe extern "C" {
        fn pthread_atfork(before: Handler, in_parent: Handler, in_child: Handler) -> c_int;
    }
    extern "C" fn in_child() {
        FORKS.fetch_add(1, Ordering::Relaxed);
    }
    // If two threads add the handler at the same time, each fork counts twice, which is as good.
    static WATCHED: PerProcess<()> = PerProcess::new();
    WATCHED.get_or_inherit(|| {
        // SAFETY: the signature is that of POSIX. The handler does what any signal handler may do:
        // it adds to an atomic. It fails only if there is no memory; then no child is told apart.
        _ = unsafe { pthread_atfork(None, None, Some(in_child)) };
    });
}

/// No handler: there is no `fork`.
#[cfg(any(not(unix), miri))]
fn watch() {}

/// A value that is made once in each process, or once for a process and its children. Threads that
/// ask at the same time each make one, and the first to be ready stays. So none waits for another,
/// which in a child may have vanished.
pub(crate) struct PerProcess<T> {
    /// Null, or a box that stays until the drop of this, and never changes. A child puts another
    /// box in the place of its parent's, which then stays for good.
    value: AtomicPtr<(Process, T)>,
}

impl<T: Send + Sync> PerProcess<T> {
    pub(crate) const fn new() -> Self {
        Self {
            value: AtomicPtr::new(ptr::null_mut()),
        }
    }

    /// The value of this process, made at the first call.
    pub(crate) fn get_or_make(&self, make: impl FnOnce() -> T) -> &T {
        self.of(Process::current(), make)
    }

    /// The value of this process, or of the parent that has made it. A value is always asked for in
    /// this way or always in the other.
    pub(crate) fn get_or_inherit(&self, make: impl FnOnce() -> T) -> &T {
        self.of(Process(0), make)
    }

    fn of(&self, process: Process, make: impl FnOnce() -> T) -> &T {
        // Acquire, partner: the release below.
        let former = self.value.load(Ordering::Acquire);
        // SAFETY: null, or a box that stays until `drop`.
        if let Some((owner, value)) = unsafe { former.as_ref() } {
            if *owner == process {
                return value;
            }
        }
        let made = Box::into_raw(Box::new((process, make())));
        let (release, acquire) = (Ordering::Release, Ordering::Acquire);
        let value = match (self.value).compare_exchange(former, made, release, acquire) {
            Ok(_) => made,
            Err(first) => {
                // SAFETY: it comes from a box that no other thread has seen.
                drop(unsafe { Box::from_raw(made) });
                // Another thread of this process was ready first: threads of one process take this
                // step once.
                first
            }
        };
        // SAFETY: as above.
        unsafe { &(*value).1 }
    }
}

impl<T> Drop for PerProcess<T> {
    fn drop(&mut self) {
        let value = *self.value.get_mut();
        if !value.is_null() {
            // SAFETY: it came from a box, and no reference to it outlives this.
            drop(unsafe { Box::from_raw(value) });
        }
    }
}

#[cfg(all(test, not(wheelhouse_loom), not(wheelhouse_shuttle)))]
mod tests {
    use super::*;

    #[test]
    fn threads_that_race_get_the_same_value() {
        let value = PerProcess::new();
        let all = std::sync::Barrier::new(4);
        let make = || {
            all.wait();
            Box::new(1)
        };
        std::thread::scope(|threads| {
            let threads: Vec<_> = (0..4)
                .map(|_| threads.spawn(|| ptr::from_ref(value.get_or_inherit(make)).addr()))
                .collect();
            let mut found = threads.into_iter().map(|thread| thread.join().unwrap());
            let first = found.next();
            assert!(found.all(|other| Some(other) == first));
        });
        assert_eq!(**value.get_or_inherit(|| unreachable!("it is made")), 1);
    }

    #[test]
    fn each_process_has_a_value_of_its_own() {
        let values = PerProcess::new();
        let child = Process::current();
        let parent = Process(child.0 + 1);
        assert_eq!(*values.of(parent, || "parent"), "parent");
        assert_eq!(*values.of(parent, || unreachable!("it is made")), "parent");
        let theirs = values.value.load(Ordering::Relaxed);
        assert_eq!(*values.get_or_make(|| "child"), "child");
        assert_eq!(*values.get_or_make(|| unreachable!("it is made")), "child");
        // SAFETY: the box of the parent stays, and nothing else refers to it.
        let theirs = unsafe { Box::from_raw(theirs) };
        assert_eq!(*theirs, (parent, "parent"));
    }
}
