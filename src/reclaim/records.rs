//! The registrations of the calling thread: which record it has in which domain.
//!
//! A thread keeps the registration of each domain that it has used, in a hash table. `RECENT` names
//! the record of the domain that the thread used last, so a thread that stays with one cache finds
//! its record with one comparison. When the thread ends, its registrations are dropped.
//!
//! The table uses open addressing and linear probing, and is at most half full. A registration
//! leaves it only when the table is rebuilt: before a new registration would make it more than half
//! full, those of dropped domains are dropped and the table gets four slots for each registration
//! that is left. So a rebuild moves at most as many registrations as came in since the last one,
//! and there are no tombstones.

use super::scheme::{Record, Registration};
use crate::sync::thread_local;
use std::cell::{Cell, RefCell};
use std::ptr;
use std::sync::atomic::{AtomicU64, Ordering};

/// What the table knows about the registrations in it.
pub(super) trait Registered {
    /// Whether its domain still exists.
    fn is_wanted(&self) -> bool;

    /// Whether the thread holds a pin by it.
    fn is_pinned(&self) -> bool;
}

/// Registrations by the numbers of their domains.
struct Table<R> {
    /// A power of two of slots, or none.
    slots: Vec<Option<Slot<R>>>,
    taken: usize,
}

struct Slot<R> {
    domain: u64,
    registration: R,
}

/// Spreads numbers at any distances from each other over the slots. The constants are those of
/// SplitMix64 (G. Steele, D. Lea, C. Flood, OOPSLA 2014).
#[inline]
fn mix(number: u64) -> u64 {
    let number = (number ^ number >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let number = (number ^ number >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
    number ^ number >> 31
}

struct Registrations(RefCell<Table<Registration>>);

/// The slots of the smallest table.
const LEAST_SLOTS: usize = 8;

thread_local! {
    static RECENT: Cell<(u64, *const Record)> = const { Cell::new((0, ptr::null())) };
    static REGISTRATIONS: Registrations =
        const { Registrations(RefCell::new(Table::new())) };
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
    let find = |registrations: &Registrations| {
        let mut table = registrations.0.borrow_mut();
        let record = match table.find(domain) {
            Some(registration) => registration.record(),
            None => {
                forget_recent();
                table.insert(domain, register()).record()
            }
        };
        _ = RECENT.try_with(|recent| recent.set((domain, record)));
        record
    };
    REGISTRATIONS.try_with(find).ok()
}

/// Whether the calling thread holds a pin of this domain, according to its registrations. While the
/// thread ends they are gone, and the answer is yes: then a caller must not wait for pins.
pub(super) fn is_pinned(domain: u64) -> bool {
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

impl<R> Table<R> {
    const fn new() -> Self {
        Self {
            slots: Vec::new(),
            taken: 0,
        }
    }

    /// The slots to probe for a domain, from the first on. There are slots.
    #[inline]
    fn probe(&self, domain: u64) -> impl Iterator<Item = usize> + use<R> {
        let mask = self.slots.len() - 1;

        let first = mix(domain) as usize;
        (first..).map(move |slot| slot & mask)
    }

    #[inline]
    fn find(&self, domain: u64) -> Option<&R> {
        if self.slots.is_empty() {
            return None;
        }
        for slot in self.probe(domain) {
            match &self.slots[slot] {
                Some(slot) if slot.domain == domain => return Some(&slot.registration),
                Some(_) => {}
                None => break,
            }
        }
        None
    }

    /// Puts a registration into the first free slot for its domain, which has none yet.
    fn put(&mut self, domain: u64, registration: R) -> &R {
        let free = self
            .probe(domain)
            .find(|slot| self.slots[*slot].is_none())
            .unwrap_or_default();
        self.taken += 1;
        let slot = Slot {
            domain,
            registration,
        };
        &self.slots[free].insert(slot).registration
    }
}

impl<R: Registered> Table<R> {
    #[cold]
    #[inline(never)]
    fn insert(&mut self, domain: u64, registration: R) -> &R {
        if 2 * (self.taken + 1) > self.slots.len() {
            self.rebuild();
        }
        self.put(domain, registration)
    }

    /// Drops the registrations of dropped domains, but for those that are pinned, and makes room
    /// for as many again as are left.
    fn rebuild(&mut self) {
        let mut old = std::mem::take(&mut self.slots);
        old.retain(|slot| {
            slot.as_ref()
                .is_some_and(|slot| slot.registration.is_wanted() || slot.registration.is_pinned())
        });
        self.taken = 0;
        let room = (4 * old.len()).next_power_of_two().max(LEAST_SLOTS);
        self.slots.resize_with(room, || None);
        for Slot {
            domain,
            registration,
        } in old.into_iter().flatten()
        {
            self.put(domain, registration);
        }
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use std::cell::Cell;
    use std::rc::Rc;

    /// Whether the calling thread's registrations are gone.
    pub(in super::super) fn are_gone() -> bool {
        REGISTRATIONS.try_with(|_| ()).is_err()
    }

    /// The registrations of the calling thread in domains that are dropped.
    pub(in super::super) fn unwanted() -> usize {
        REGISTRATIONS.with(|known| {
            let table = known.0.borrow();
            let registrations = table.slots.iter().flatten();
            registrations
                .filter(|slot| !slot.registration.is_wanted())
                .count()
        })
    }

    /// A registration that counts how often a rebuild asks for it.
    struct Asked {
        wanted: Rc<Cell<bool>>,
        pinned: bool,
        count: Rc<Cell<u64>>,
    }

    impl Registered for Asked {
        fn is_wanted(&self) -> bool {
            self.count.set(self.count.get() + 1);
            self.wanted.get()
        }

        fn is_pinned(&self) -> bool {
            self.pinned
        }
    }

    struct Rig {
        table: Table<Asked>,
        count: Rc<Cell<u64>>,
    }

    impl Rig {
        fn new() -> Self {
            Self {
                table: Table::new(),
                count: Rc::default(),
            }
        }

        fn insert(&mut self, domain: u64, pinned: bool) -> Rc<Cell<bool>> {
            let wanted = Rc::new(Cell::new(true));
            let registration = Asked {
                wanted: Rc::clone(&wanted),
                pinned,
                count: Rc::clone(&self.count),
            };
            self.table.insert(domain, registration);
            wanted
        }

        /// The slots that a search for this domain reads.
        fn steps(&self, domain: u64) -> usize {
            let table = &self.table;
            let missing = |slot: &usize| {
                let slot = table.slots[*slot].as_ref();
                slot.is_some_and(|slot| slot.domain != domain)
            };
            table.probe(domain).take_while(missing).count() + 1
        }
    }

    #[test]
    fn a_search_takes_as_many_steps_among_thousands_as_among_ten() {
        // Domains one after the other, and at distances that a mask alone would map to few slots.
        for distance in [1, 2, 3, 64, 1024, 1 << 20, 1 << 40] {
            let mut rig = Rig::new();
            for n in 1..=8_000 {
                rig.insert(n * distance, false);
                if [10, 40, 400, 4_000, 8_000].contains(&n) {
                    let steps: usize = (1..=n).map(|n| rig.steps(n * distance)).sum();
                    assert!(
                        steps as u64 <= 2 * n + 10,
                        "{steps} steps for {n} domains at distances of {distance}"
                    );
                }
            }
        }
    }

    #[test]
    fn a_registration_asks_few_others() {
        let mut rig = Rig::new();
        for n in 1..=8_000 {
            rig.insert(n, false);
        }
        assert!(rig.count.get() <= 2 * 8_000, "{} asked", rig.count.get());
        assert!((1..=8_000).all(|n| rig.table.find(n).is_some()));
        assert!(rig.table.find(8_001).is_none() && rig.table.find(0).is_none());
    }

    #[test]
    fn unwanted_registrations_go_unless_they_are_pinned() {
        let mut rig = Rig::new();
        for n in 1..=1_000 {
            rig.insert(n, n == 7).set(n == 5);
            assert!(rig.table.taken <= 4, "{} kept", rig.table.taken);
        }
        for kept in [5, 7] {
            assert!(rig.table.find(kept).is_some(), "{kept} is gone");
        }
        assert_eq!(rig.table.slots.len(), LEAST_SLOTS);
    }
}
