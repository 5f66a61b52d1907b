//! The registrations of the calling thread: which record it has in which domain.
//!
//! `REGISTRATIONS` has them all, in a [`Table`]. `RECENT` names the record of the domain that the
//! thread used last, so a thread that stays with one cache finds its record with one comparison.
//! When the thread ends, its registrations are dropped.

use super::scheme::{Record, Registration};
use super::table::{Id, Registered, Table};
use crate::sync::thread_local;
use std::cell::{Cell, RefCell};
use std::ptr;

struct Registrations(RefCell<Table<Registration>>);

thread_local! {
    static RECENT: Cell<(u64, *const Record)> = const { Cell::new((0, ptr::null())) };
    static REGISTRATIONS: Registrations =
        const { Registrations(RefCell::new(Table::new())) };
}

/// The calling thread's record in this domain, if the thread used no other domain since.
#[inline]
pub(super) fn recent(domain: Id) -> Option<*const Record> {
    match RECENT.try_with(Cell::get) {
        Ok((number, record)) if number == domain.number => Some(record),
        _ => None,
    }
}

/// The calling thread's record in this domain; `register` makes one if the thread has none. `None`
/// if the thread is ending and its registrations are gone.
#[inline]
pub(super) fn find_or_register(
    domain: Id,
    register: impl FnOnce() -> Registration,
) -> Option<*const Record> {
    let find = |registrations: &Registrations| {
        let mut table = registrations.0.borrow_mut();
        let record = match table.find(domain) {
            Some(registration) => registration.record(),
            None => {
                forget_recent();
                table.insert(domain, register()).record()
            }
        };
        _ = RECENT.try_with(|recent| recent.set((domain.number, record)));
        record
    };
    REGISTRATIONS.try_with(find).ok()
}

/// Whether the calling thread holds a pin of this domain, according to its registrations. While the
/// thread ends they are gone, and the answer is yes: then a caller must not wait for pins.
pub(super) fn is_pinned(domain: Id) -> bool {
    let check = |known: &Registrations| {
        let table = known.0.borrow();
        table.find(domain).is_some_and(Registered::is_pinned)
    };
    REGISTRATIONS.try_with(check).unwrap_or(true)
}

/// Resets `RECENT`, before a registration leaves the table (reclaim 1).
fn forget_recent() {
    _ = RECENT.try_with(|recent| recent.set((0, ptr::null())));
}

impl Drop for Registrations {
    fn drop(&mut self) {
        forget_recent();
        // Then the table goes, and with it each registration.
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// Whether the calling thread's registrations are gone.
    pub(in super::super) fn are_gone() -> bool {
        REGISTRATIONS.try_with(|_| ()).is_err()
    }

    /// The registrations of the calling thread in domains that are dropped.
    pub(in super::super) fn unwanted() -> usize {
        REGISTRATIONS.with(|known| {
            let table = known.0.borrow();
            table.registrations().filter(|it| !it.is_wanted()).count()
        })
    }
}
