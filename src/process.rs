//! The process that an object belongs to.
//!
//! A child made by `fork` has a copy of its parent's memory, and only the thread that forked. Locks
//! that other threads held stay locked in the child, and what other threads had begun never ends.
//! So a cache belongs to the process that built it: in a child, a call that needs one of its locks
//! or threads panics, and the drop of the last handle frees nothing.
//!
//! Caches that the child builds are not affected. Statics that know of threads are a
//! [`PerProcess`]: a chain of values, one for each process that has asked for it, with fresh locks.
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

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};

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
    use std::sync::Once;
    type Handler = Option<extern "C" fn()>;
    unsafe extern "C" {
        fn pthread_atfork(before: Handler, in_parent: Handler, in_child: Handler) -> c_int;
    }
    extern "C" fn in_child() {
        FORKS.fetch_add(1, Ordering::Relaxed);
    }
    static WATCH: Once = Once::new();
    WATCH.call_once(|| {
        // SAFETY: the signature is that of POSIX. The handler does what any signal handler may do:
        // it adds to an atomic. It fails only if there is no memory; then no child is told apart.
        _ = unsafe { pthread_atfork(None, None, Some(in_child)) };
    });
}

/// No handler: there is no `fork`.
#[cfg(any(not(unix), miri))]
fn watch() {}

/// See the module docs.
pub(crate) struct PerProcess<T> {
    first: OnceLock<Box<Link<T>>>,
}

struct Link<T> {
    process: Process,
    value: T,
    next: PerProcess<T>,
}

impl<T> PerProcess<T> {
    pub(crate) const fn new() -> Self {
        Self {
            first: OnceLock::new(),
        }
    }

    /// The value of this process, if there is one.
    pub(crate) fn get(&self) -> Option<&T> {
        let mut link = self.first.get()?;
        while !link.process.is_current() {
            link = link.next.first.get()?;
        }
        Some(&link.value)
    }

    /// The value of this process, made at the first call.
    pub(crate) fn get_or_make(&self, make: impl Fn() -> T) -> &T {
        self.of(Process::current(), make)
    }

    fn of(&self, process: Process, make: impl Fn() -> T) -> &T {
        let mut here = self;
        loop {
            let link = here.first.get_or_init(|| {
                Box::new(Link {
                    process,
                    value: make(),
                    next: Self::new(),
                })
            });
            if link.process == process {
                return &link.value;
            }
            here = &link.next;
        }
    }
}

#[cfg(all(test, not(wheelhouse_loom), not(wheelhouse_shuttle)))]
mod tests {
    use super::*;

    #[test]
    fn each_process_has_a_value_of_its_own() {
        let values = PerProcess::new();
        assert!(values.get().is_none());
        let own = Process::current();
        let other = |by: u32| Process(own.0 + by);
        assert_eq!(*values.of(other(1), || "parent"), "parent");
        assert!(values.get().is_none());
        assert_eq!(*values.get_or_make(|| "child"), "child");
        assert_eq!(*values.of(other(2), || "grandchild"), "grandchild");
        assert_eq!(values.get(), Some(&"child"));
        assert_eq!(*values.of(other(1), || "no"), "parent");
        assert_eq!(*values.get_or_make(|| "no"), "child");
    }
}
