//! The registrations of the calling thread: which record it has in which domain.
//!
//! `REGISTRATIONS` has them all, in a [`Table`]. `RECENT` names the record of the domain that the
//! thread used last, so a thread that stays with one cache finds its record with one comparison.
//! When the thread ends, its registrations are dropped.
//!
//! # How it works
//!
//! A domain has a *place*: a small number that no other live domain has, and that a later domain
//! may take over. A thread keeps the registration of each domain that it has used in a table, at
//! the domain's place. The table consists of chunks, so a thread that uses few of many caches needs
//! little memory. A thread finds its record by two loads, however many caches it uses, and the
//! slots of caches that were built one after the other stand side by side.
//!
//! A slot also says the number of its domain, and a number is never used again. So a registration
//! in a dropped domain is not taken for one in the domain that has the place now. It leaves the
//! table when the thread registers in that domain. It also leaves by a *cleanup*, which drops all
//! registrations in dropped domains. A registration runs a cleanup if the number of registrations
//! since the last cleanup has reached the number that the last cleanup left in the table.

use super::scheme::{Record, Registration};
use crate::stripe::Numbers;
use crate::sync::thread_local;
use std::cell::{Cell, RefCell};
use std::ptr;
use std::sync::atomic::{AtomicU64, Ordering};

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

/// The facts about a registration that the table asks for.
pub(super) trait Registered {
    /// Whether its domain still exists.
    fn is_wanted(&self) -> bool;

    /// Whether the thread holds a pin by it.
    fn is_pinned(&self) -> bool;
}

/// Which domain it is.
#[derive(Clone, Copy)]
pub(super) struct Id {
    pub(super) number: u64,
    place: usize,
}

/// The id of a live domain. Dropped with the domain, it gives the place back.
pub(super) struct OwnedId(Id);

/// The places of live domains.
static PLACES: Numbers = Numbers::new();

impl OwnedId {
    /// An id that no domain had before.
    pub(super) fn new() -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        Self(Id {
            // Relaxed: only uniqueness counts.
            number: NEXT.fetch_add(1, Ordering::Relaxed),
            place: PLACES.take(),
        })
    }

    #[inline]
    pub(super) fn get(&self) -> Id {
        self.0
    }
}

impl Drop for OwnedId {
    fn drop(&mut self) {
        PLACES.give_back(self.0.place);
    }
}

/// Registrations by the places of their domains.
pub(super) struct Table<R> {
    chunks: Vec<Option<Box<Chunk<R>>>>,
    /// How many more registrations come before one drops the dead ones. Not how many slots may be
    /// taken: a thread that uses one new domain after the other may take the same slot each time.
    until_cleanup: usize,
}

const REGISTRATIONS_PER_CHUNK: usize = 32;

type Chunk<R> = [Option<Slot<R>>; REGISTRATIONS_PER_CHUNK];

struct Slot<R> {
    number: u64,
    registration: R,
}

/// At least this number of registrations come between two cleanups.
const LEAST_UNTIL_CLEANUP: usize = 3;

impl<R> Table<R> {
    pub(super) const fn new() -> Self {
        Self {
            chunks: Vec::new(),
            until_cleanup: LEAST_UNTIL_CLEANUP,
        }
    }

    #[inline]
    pub(super) fn find(&self, domain: Id) -> Option<&R> {
        let place = domain.place;
        let chunk = self.chunks.get(place / REGISTRATIONS_PER_CHUNK)?.as_ref()?;
        let slot = chunk[place % REGISTRATIONS_PER_CHUNK].as_ref()?;
        (slot.number == domain.number).then_some(&slot.registration)
    }

    #[cfg(test)]
    pub(super) fn registrations(&self) -> impl Iterator<Item = &R> {
        let slots = self.chunks.iter().flatten().flat_map(|chunk| chunk.iter());
        slots.flatten().map(|slot| &slot.registration)
    }
}

impl<R: Registered> Table<R> {
    /// Adds the registration of a domain that has none yet.
    #[cold]
    #[inline(never)]
    pub(super) fn insert(&mut self, domain: Id, registration: R) -> &R {
        if self.until_cleanup == 0 {
            self.drop_dead();
        }
        self.until_cleanup -= 1;
        let place = domain.place;
        if self.chunks.len() <= place / REGISTRATIONS_PER_CHUNK {
            self.chunks
                .resize_with(place / REGISTRATIONS_PER_CHUNK + 1, || None);
        }
        let chunk = self.chunks[place / REGISTRATIONS_PER_CHUNK]
            .get_or_insert_with(|| Box::new([const { None }; REGISTRATIONS_PER_CHUNK]));
        let slot = &mut chunk[place % REGISTRATIONS_PER_CHUNK];
        let filled = slot.insert(Slot {
            number: domain.number,
            registration,
        });
        &filled.registration
    }

    /// Drops the registrations of dropped domains, but for those that are pinned.
    fn drop_dead(&mut self) {
        let mut left = 0;
        for chunk in &mut self.chunks {
            let Some(slots) = chunk else { continue };
            let mut kept = 0;
            for slot in slots.iter_mut() {
                let is_kept = slot.as_ref().is_some_and(|slot| {
                    slot.registration.is_wanted() || slot.registration.is_pinned()
                });
                if is_kept {
                    kept += 1;
                } else {
                    *slot = None;
                }
            }
            if kept == 0 {
                *chunk = None;
            }
            left += kept;
        }
        // A cleanup visits each chunk, so at least as many registrations as chunks come between two
        // cleanups.
        self.until_cleanup = left.max(self.chunks.len()).max(LEAST_UNTIL_CLEANUP);
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use std::rc::Rc;

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

    /// A registration that counts how often a cleanup asks for it.
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

        fn insert(&mut self, number: u64, place: usize, pinned: bool) -> Rc<Cell<bool>> {
            let wanted = Rc::new(Cell::new(true));
            let registration = Asked {
                wanted: Rc::clone(&wanted),
                pinned,
                count: Rc::clone(&self.count),
            };
            self.table.insert(Id { number, place }, registration);
            wanted
        }

        fn has(&self, number: u64, place: usize) -> bool {
            self.table.find(Id { number, place }).is_some()
        }

        fn taken(&self) -> usize {
            self.table.registrations().count()
        }
    }

    #[test]
    fn places_of_live_domains_differ_and_the_lowest_free_one_is_taken() {
        // Other tests take and return places meanwhile.
        let mut ids: Vec<_> = (0..1_000).map(|_| OwnedId::new()).collect();
        let mut places: Vec<_> = ids.iter().map(|id| id.0.place).collect();
        places.sort_unstable();
        places.dedup();
        assert_eq!(places.len(), 1_000);
        let (least, greatest) = (places[0], places[999]);
        ids.retain(|id| id.0.place != least);
        assert!(OwnedId::new().0.place <= least);
        let numbers: Vec<_> = ids.iter().map(|id| id.0.number).collect();
        drop(ids);
        let later: Vec<_> = (0..1_000).map(|_| OwnedId::new()).collect();
        assert!(later.iter().all(|id| !numbers.contains(&id.0.number)));
        assert!(later.iter().filter(|id| id.0.place <= greatest).count() >= 900);
    }

    #[test]
    fn a_registration_is_not_taken_for_one_of_the_next_domain_in_its_place() {
        let mut rig = Rig::new();
        rig.insert(1, 40, false).set(false);
        assert!(rig.has(1, 40) && !rig.has(2, 40) && !rig.has(1, 41) && !rig.has(3, 4_000));
        rig.insert(2, 40, false);
        assert!(rig.has(2, 40) && !rig.has(1, 40));
        assert_eq!(rig.taken(), 1);
    }

    #[test]
    fn a_registration_asks_few_others() {
        let mut rig = Rig::new();
        for n in 1..=8_000 {
            rig.insert(n, n as usize, false);
        }
        assert!(rig.count.get() <= 2 * 8_000, "{} asked", rig.count.get());
        assert!((1..=8_000).all(|n| rig.has(n, n as usize)));
    }

    #[test]
    fn unwanted_registrations_go_unless_they_are_pinned() {
        let mut rig = Rig::new();
        for n in 1..=100 {
            rig.insert(n, n as usize, n == 7).set(n == 5);
            assert!(rig.taken() <= 6, "{} kept", rig.taken());
        }
        assert!(rig.has(5, 5) && rig.has(7, 7));
        let chunks = rig.table.chunks.iter().flatten().count();
        assert!(chunks <= 3, "{chunks} chunks");
        // So many chunks are visited by a cleanup that it comes more seldom.
        for n in 101..=10_000 {
            rig.insert(n, n as usize, false).set(false);
            assert!(rig.taken() <= 2 + LEAST_UNTIL_CLEANUP.max(rig.table.chunks.len()));
        }
        assert!(rig.has(5, 5) && rig.has(7, 7));
    }
}
