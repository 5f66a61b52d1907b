//! One value for each process that has asked for it.
//!
//! A child made by `fork` has a copy of its parent's memory, and only the thread that forked. So
//! data about threads is true in one process only. A [`PerProcess`] keeps such values in a chain,
//! each beside the id of its process: the child finds none of its own and makes a new one, with
//! fresh locks. The values of the parent stay untouched.
//!
//! # Cost
//!
//! A system call for the id, then a comparison for each `fork` between the first process that used
//! the value and this one.

use std::process;
use std::sync::OnceLock;

/// See the module docs.
pub(crate) struct PerProcess<T> {
    first: OnceLock<Box<Link<T>>>,
}

struct Link<T> {
    process: u32,
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
    pub(super) fn get(&self) -> Option<&T> {
        let process = process::id();
        let mut link = self.first.get()?;
        while link.process != process {
            link = link.next.first.get()?;
        }
        Some(&link.value)
    }

    /// The value of this process, made at the first call.
    pub(crate) fn get_or_make(&self, make: impl Fn() -> T) -> &T {
        self.of(process::id(), make)
    }

    fn of(&self, process: u32, make: impl Fn() -> T) -> &T {
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

#[cfg(all(test, not(wheelhouse_loom)))]
mod tests {
    use super::*;

    #[test]
    fn each_process_has_a_value_of_its_own() {
        let values = PerProcess::new();
        assert!(values.get().is_none());
        let own = process::id();
        assert_eq!(*values.of(own + 1, || "parent"), "parent");
        assert!(values.get().is_none());
        assert_eq!(*values.get_or_make(|| "child"), "child");
        assert_eq!(*values.of(own + 2, || "grandchild"), "grandchild");
        assert_eq!(values.get(), Some(&"child"));
        assert_eq!(*values.of(own + 1, || "no"), "parent");
        assert_eq!(*values.get_or_make(|| "no"), "child");
    }
}
