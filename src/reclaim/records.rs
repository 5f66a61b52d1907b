//! The registrations of the calling thread: which record it has in which domain.
//!
//! `REGISTRATIONS` has them all, by the numbers of the domains. `RECENT` names the record of the
//! domain that the thread used last, so a thread that stays with one cache finds its record with
//! one comparison. When the thread ends, its registrations are dropped.
//!
//! A number is never used again. The registration in a dropped domain leaves by a *cleanup*, which
//! drops all of them. A registration runs a cleanup if the number of registrations since the last
//! cleanup has reached the number that the last cleanup left.

use super::scheme::{Record, Registration};
use crate::hash::Words;
use crate::sync::thread_local;
use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::ptr;
use std::sync::atomic::{AtomicU64, Ordering};

thread_local! {
    static RECENT: Cell<(u64, *const Record)> = const { Cell::new((0, ptr::null())) };
    static REGISTRATIONS: RefCell<Registrations> = RefCell::new(Registrations::new());
}

/// A number that no domain had before.
pub(super) fn next_number() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    // Relaxed: only uniqueness counts.
    NEXT.fetch_add(1, Ordering::Relaxed)
}

/// The calling thread's record in this domain, if the thread used no other domain since.
#[inline]
pub(super) fn recent(domain: u64) -> Option<*const Record> {
    match RECENT.try_with(Cell::get) {
        Ok((number, record)) if number == domain => Some(record),
        _ => None,
    }
}

/// The calling thread's record in this domain; `register` makes one if the thread has none. `None`
/// if the thread is ending and its registrations are gone.
#[inline]
pub(super) fn find_or_register(
    domain: u64,
    register: impl FnOnce() -> Registration,
) -> Option<*const Record> {
    let find = |registrations: &RefCell<Registrations>| {
        let mut registrations = registrations.borrow_mut();
        let record = match registrations.known.get(&domain) {
            Some(registration) => registration.record(),
            None => registrations.add(domain, register()),
        };
        _ = RECENT.try_with(|recent| recent.set((domain, record)));
        record
    };
    REGISTRATIONS.try_with(find).ok()
}

/// Whether the calling thread holds a pin of this domain, according to its registrations. While the
/// thread ends they are gone, and the answer is yes: then a caller must not wait for pins.
pub(super) fn is_pinned(domain: u64) -> bool {
    let check = |registrations: &RefCell<Registrations>| {
        let registrations = registrations.borrow();
        let registration = registrations.known.get(&domain);
        registration.is_some_and(Registration::is_pinned)
    };
    REGISTRATIONS.try_with(check).unwrap_or(true)
}

/// The registrations of a thread.
struct Registrations {
    known: HashMap<u64, Registration, Words>,
    /// How many more registrations come before one runs a cleanup.
    until_cleanup: usize,
}

/// At least this number of registrations come between two cleanups.
const LEAST_UNTIL_CLEANUP: usize = 3;

impl Registrations {
    fn new() -> Self {
        Self {
            known: HashMap::default(),
            until_cleanup: LEAST_UNTIL_CLEANUP,
        }
    }

    /// Adds the registration in a domain in which the thread has none.
    #[cold]
    #[inline(never)]
    fn add(&mut self, domain: u64, registration: Registration) -> *const Record {
        if self.until_cleanup == 0 {
            self.drop_dead();
        }
        self.until_cleanup -= 1;
        let record = registration.record();
        self.known.insert(domain, registration);
        record
    }

    /// Drops the registrations in dropped domains, but for those that are pinned.
    fn drop_dead(&mut self) {
        forget_recent();
        self.known
            .retain(|_, registration| registration.is_wanted() || registration.is_pinned());
        self.until_cleanup = self.known.len().max(LEAST_UNTIL_CLEANUP);
        // A cleanup visits all of the table, so the table has few slots more than there are
        // registrations.
        self.known.shrink_to(2 * self.until_cleanup);
    }
}

impl Drop for Registrations {
    fn drop(&mut self) {
        forget_recent();
        // Then each registration goes.
    }
}

/// Resets `RECENT`, before a registration goes (reclaim 1).
fn forget_recent() {
    _ = RECENT.try_with(|recent| recent.set((0, ptr::null())));
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::reclaim::Domain;

    /// Whether the calling thread's registrations are gone.
    pub(in super::super) fn are_gone() -> bool {
        REGISTRATIONS.try_with(|_| ()).is_err()
    }

    fn with<T>(look: impl FnOnce(&Registrations) -> T) -> T {
        REGISTRATIONS.with(|registrations| look(&registrations.borrow()))
    }

    /// The registrations of the calling thread in domains that are dropped.
    pub(in super::super) fn unwanted() -> usize {
        with(|them| them.known.values().filter(|it| !it.is_wanted()).count())
    }

    #[test]
    fn cleanups_visit_few_registrations_and_keep_those_of_live_domains() {
        const MANY: usize = 8_000;
        let (mut visited, mut left) = (0, 0);
        let domains: Vec<_> = (0..MANY).map(|_| Domain::new()).collect();
        for (count, domain) in domains.iter().enumerate() {
            drop(domain.pin());
            let until = with(|them| them.until_cleanup);
            if until > left {
                visited += count;
            }
            left = until;
        }
        assert!(visited <= 2 * MANY, "{visited} visited");
        assert_eq!((with(|them| them.known.len()), unwanted()), (MANY, 0));
        drop(domains);
        (0..MANY + LEAST_UNTIL_CLEANUP).for_each(|_| drop(Domain::new().pin()));
        assert!(unwanted() <= 2 * LEAST_UNTIL_CLEANUP, "{} kept", unwanted());
        let room = with(|them| them.known.capacity());
        assert!(room <= 8 * LEAST_UNTIL_CLEANUP, "room for {room}");
    }
}
