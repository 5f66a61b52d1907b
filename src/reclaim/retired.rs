//! What was unlinked and waits to be freed: a queue in four stages.
//!
//! ```text
//! retire ──► open ──seal──► waiting ──grace over──► sweeping ──swept──► ready ──► freed by whoever takes it
//! ```
//!
//! The grace period covers readers. The sweep covers pointers that readers and writers left behind
//! in buffers: after the grace period nobody adds such a pointer any more, so one complete drain of
//! every buffer, begun after it, has seen the last of them.
//!
//! # Invariants
//!
//! 1. An item enters `waiting` after it was unlinked from every shared place, and leaves it when
//!    its grace period is over.
//! 2. An item leaves `sweeping` only by [`Retired::swept`], which the pass calls after a complete
//!    drain of every batch and ring that began after [`Retired::turn`] said so.
//! 3. So an item in `ready` is in nobody's hands (node 1, table 4).
//!
//! What left first is freed first, chunk by chunk; within what is freed together the last goes
//! first, so that a chain of slots to which each is added in front begins with the first.
//! `node/pool.rs` says what the order is good for; no user is promised one.
//!
//! Freeing runs the user's destructors: outside of every lock and pin, a bounded number at a time.
//! What somebody is freeing just then is in no stage any more; [`Retired::away`] tells when it has
//! gone.
#![allow(unsafe_code)]

use super::{Domain, Grace};
use crate::contain::contain;
use crate::sync::{Ordering, thread_local};
use std::cell::Cell;
use std::collections::VecDeque;
use std::sync::atomic::fence;
use std::sync::{Arc, Weak};

/// Something that may be freed once nobody can reach it.
pub(crate) trait Retire {
    /// Whether freeing runs destructors of the user's, which may panic.
    const RUNS_USER_CODE: bool;

    /// Where its memory goes.
    type Memory;

    /// How many nodes, or things of their size, it takes the memory of.
    fn size(&self) -> usize;

    /// Asks the processor for what destroying it and giving it back will touch.
    fn prefetch(&self);

    /// Runs its destructors.
    ///
    /// # Safety
    ///
    /// Nobody can reach it any more, and it is destroyed once.
    unsafe fn destroy(&mut self);

    /// Gives its memory back.
    ///
    /// # Safety
    ///
    /// It was destroyed, and nobody can reach it.
    unsafe fn give_back(self, memory: &mut Self::Memory);
}

/// The queue; see the module docs. For the holder of the maintenance lock.
pub(crate) struct Retired<T: Retire> {
    open: ChunkedVec<T>,
    /// Of what is in `open`, together.
    size: usize,
    waiting: ChunkedVec<T>,
    /// That of `waiting`; none if nothing waits.
    grace: Option<Grace>,
    sweeping: ChunkedVec<T>,
    /// Chunks, from the first to the last to become ready.
    ready: VecDeque<Vec<T>>,
    /// What was emptied, to be filled again: a cache in its stride allocates nothing here.
    spare: Spare<T>,
    /// Shared with what was taken to be freed, until it is; and what it was before, as far as that
    /// is still shared.
    away: Arc<()>,
    away_before: Vec<Weak<()>>,
}

/// Items that nobody can reach any more, to be freed with [`free`](Self::free), then to be [given
/// back](Retired::reuse).
#[must_use]
pub(crate) struct Ready<T: Retire> {
    items: ChunkedVec<T>,
    memory: Option<T::Memory>,
    _away: Option<Arc<()>>,
}

/// What was being freed at some moment.
pub(crate) struct Away(Vec<Weak<()>>);

impl Away {
    /// Whether all of it is freed.
    pub(crate) fn is_over(&self) -> bool {
        let over = self.0.iter().all(|away| away.strong_count() == 0);
        // Partner: the release with which the last of each is dropped. What its destructors did is
        // seen by whoever hears yes.
        fence(Ordering::Acquire);
        over
    }
}

/// Emptied containers.
struct Spare<T: Retire> {
    chunks: Vec<Vec<T>>,
    taken: ChunkedVec<T>,
    memory: Option<T::Memory>,
}

/// Items in chunks: however many there are, no step of the pass copies an item, or allocates for
/// more than a chunk of them and the list of chunks.
struct ChunkedVec<T> {
    chunks: Vec<Vec<T>>,
}

/// Items of a chunk.
const CHUNK: usize = 128;
/// How many items ahead are fetched.
const AHEAD: usize = 8;
/// The least room that a pile begins with: most caches retire a few items at a time.
const FEW: usize = 4;
/// For how many chunks an empty pile keeps room.
const MOSTLY: usize = 16;
/// How many emptied chunks are kept.
const SPARE: usize = 4;

impl<T> ChunkedVec<T> {
    const fn new() -> Self {
        Self { chunks: Vec::new() }
    }

    #[inline]
    fn push(&mut self, item: T, spare: &mut Vec<Vec<T>>) {
        if self.chunks.last().is_none_or(|chunk| chunk.len() >= CHUNK) {
            self.open_chunk(spare);
        }
        // Only now: handed over to where a chunk is opened, the item would go through the stack
        // each time.
        if let Some(chunk) = self.chunks.last_mut() {
            chunk.push(item);
        }
    }

    #[cold]
    fn open_chunk(&mut self, spare: &mut Vec<Vec<T>>) {
        let room = if self.chunks.is_empty() { FEW } else { CHUNK };
        let chunk = spare.pop().unwrap_or_else(|| Vec::with_capacity(room));
        self.chunks.push(chunk);
    }

    fn append(&mut self, other: &mut Self) {
        if self.chunks.is_empty() {
            std::mem::swap(&mut self.chunks, &mut other.chunks);
        } else {
            self.chunks.append(&mut other.chunks);
        }
    }

    /// Gives back the room for more chunks than there are mostly.
    fn forget_the_crowd(&mut self) {
        if self.chunks.is_empty() && self.chunks.capacity() > MOSTLY {
            self.chunks = Vec::new();
        }
    }

    fn is_empty(&self) -> bool {
        self.chunks.is_empty()
    }

    fn len(&self) -> usize {
        self.chunks.iter().map(Vec::len).sum()
    }
}

thread_local! {
    /// Whether this thread is freeing: a destructor that calls the cache must not begin another
    /// round inside this one, and so on until the stack ends.
    static FREEING: Cell<bool> = const { Cell::new(false) };
}

/// Whether the calling thread is inside a destructor that is run from here; then the round in hand
/// frees the rest.
pub(crate) fn is_freeing() -> bool {
    FREEING.try_with(Cell::get).unwrap_or(false)
}

impl<T: Retire> Ready<T> {
    pub(crate) fn is_empty(&self) -> bool {
        self.items.is_empty()
    }

    /// Frees all of them. What became of their memory has to be seen to by the caller. Outside of
    /// locks and pins: destructors are the user's.
    pub(crate) fn free(&mut self, memory: impl FnOnce() -> T::Memory) -> &mut T::Memory {
        let memory = self.memory.get_or_insert_with(memory);
        let outer = FREEING
            .try_with(|freeing| freeing.replace(true))
            .unwrap_or(false);
        // The last first: see the module docs.
        for chunk in self.items.chunks.iter_mut().rev() {
            Self::free_chunk(chunk, memory);
        }
        _ = FREEING.try_with(|freeing| freeing.set(outer));
        // Those that are not kept go here, with no lock held.
        self.items.chunks.truncate(SPARE);
        memory
    }

    fn free_chunk(chunk: &mut Vec<T>, memory: &mut T::Memory) {
        chunk.iter().rev().take(AHEAD).for_each(T::prefetch);
        while let Some(mut item) = chunk.pop() {
            // They are in no cache of the processor's any more: one after the other, a chunk would
            // take 20 us.
            if chunk.len() >= AHEAD {
                chunk[chunk.len() - AHEAD].prefetch();
            }
            if T::RUNS_USER_CODE {
                // A destructor that panics must not keep the rest from being freed, nor end the
                // thread that happens to do it; the process's panic hook has reported it.
                contain(|| {
                    // SAFETY: retired 3; taken out of the vector, so destroyed once.
                    unsafe { item.destroy() }
                });
            }
            // SAFETY: retired 3; destroyed, where there was anything to destroy.
            unsafe { item.give_back(memory) }
        }
    }
}

impl<T: Retire> Retired<T> {
    pub(crate) fn new() -> Self {
        Self {
            open: ChunkedVec::new(),
            size: 0,
            waiting: ChunkedVec::new(),
            grace: None,
            sweeping: ChunkedVec::new(),
            ready: VecDeque::new(),
            spare: Spare {
                chunks: Vec::new(),
                taken: ChunkedVec::new(),
                memory: None,
            },
            away: Arc::new(()),
            away_before: Vec::new(),
        }
    }

    /// What others have taken and have not freed yet.
    pub(crate) fn away(&mut self) -> Away {
        self.away_before.retain(|away| away.strong_count() > 0);
        // As in `Away::is_over`: whoever has the lock next is not told of what is forgotten here.
        fence(Ordering::Acquire);
        if Arc::strong_count(&self.away) > 1 {
            let away = std::mem::replace(&mut self.away, Arc::new(()));
            self.away_before.push(Arc::downgrade(&away));
        }
        Away(self.away_before.clone())
    }

    /// Takes an item that was unlinked from every shared place.
    #[inline]
    pub(crate) fn retire(&mut self, item: T) {
        self.size = self.size.saturating_add(item.size());
        self.open.push(item, &mut self.spare.chunks);
    }

    /// Looks whether the grace period is over; true if a sweep has to begin now. Costs nothing
    /// while none is under way.
    pub(crate) fn turn(&mut self, domain: &Domain) -> bool {
        if self.sweeping.is_empty()
            && self
                .grace
                .as_ref()
                .is_some_and(|grace| grace.is_over(domain))
        {
            self.grace = None;
            self.sweeping.append(&mut self.waiting);
            return true;
        }
        false
    }

    /// A complete drain of all buffers has ended that began after [`turn`](Self::turn) asked for
    /// it.
    pub(crate) fn swept(&mut self) {
        let swept = &mut self.sweeping.chunks;
        if self.ready.is_empty() {
            // As mostly: however much it is, nothing is copied.
            let emptied = std::mem::replace(&mut self.ready, std::mem::take(swept).into());
            *swept = emptied.into();
        } else {
            self.ready.extend(swept.drain(..));
        }
    }

    pub(crate) fn is_sweeping(&self) -> bool {
        !self.sweeping.is_empty()
    }

    /// Begins a grace period for what has gathered, if that is of at least `enough` size and none
    /// is under way. Whether it did.
    pub(crate) fn seal(&mut self, domain: &Domain, enough: usize) -> bool {
        if self.grace.is_some() || self.size < enough.max(1) {
            return false;
        }
        self.size = 0;
        self.waiting.append(&mut self.open);
        self.grace = Some(domain.begin_grace());
        true
    }

    /// Takes out items that may be freed, up to `most` and what fills the chunk; none inside a
    /// destructor that is run from here.
    pub(crate) fn take_ready(&mut self, most: usize) -> Ready<T> {
        if most == 0 || self.ready.is_empty() || is_freeing() {
            return Ready {
                items: ChunkedVec::new(),
                memory: None,
                _away: None,
            };
        }
        let mut items = std::mem::replace(&mut self.spare.taken, ChunkedVec::new());
        let mut count = 0;
        while count < most
            && let Some(chunk) = self.ready.pop_front()
        {
            count += chunk.len();
            items.chunks.push(chunk);
        }
        Ready {
            items,
            memory: self.spare.memory.take(),
            _away: Some(Arc::clone(&self.away)),
        }
    }

    /// Takes back what was emptied.
    pub(crate) fn reuse(&mut self, freed: Ready<T>) {
        let Ready {
            mut items, memory, ..
        } = freed;
        debug_assert_eq!(items.len(), 0, "not freed yet");
        let room = SPARE.saturating_sub(self.spare.chunks.len());
        self.spare.chunks.extend(items.chunks.drain(..).take(room));
        for pile in [
            &mut items,
            &mut self.open,
            &mut self.waiting,
            &mut self.sweeping,
        ] {
            pile.forget_the_crowd();
        }
        if self.ready.is_empty() && self.ready.capacity() > MOSTLY {
            self.ready = VecDeque::new();
        }
        self.spare.taken = items;
        self.spare.memory = memory;
    }

    /// Whether nothing is left in any stage.
    pub(crate) fn is_empty(&self) -> bool {
        self.open.is_empty()
            && self.grace.is_none()
            && self.sweeping.is_empty()
            && self.ready.is_empty()
    }

    /// What is in all stages together takes the memory of so many nodes.
    #[cfg(test)]
    pub(crate) fn held(&self) -> usize {
        let stages = [&self.open, &self.waiting, &self.sweeping];
        let chunks = stages.into_iter().flat_map(|pile| &pile.chunks);
        let items = chunks.chain(&self.ready).flatten();
        items.map(Retire::size).sum()
    }

    /// How much may be freed.
    pub(crate) fn ready(&self) -> usize {
        self.ready.iter().map(Vec::len).sum()
    }

    /// Frees everything in every stage. For the last owner: no reader, no buffer is left.
    pub(crate) fn take_all(&mut self) -> Ready<T> {
        self.grace = None;
        let mut items = ChunkedVec {
            chunks: std::mem::take(&mut self.ready).into(),
        };
        for stage in [&mut self.sweeping, &mut self.waiting, &mut self.open] {
            items.append(stage);
        }
        Ready {
            items,
            memory: None,
            _away: None,
        }
    }
}

impl<T: Retire> std::fmt::Debug for Retired<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Retired")
            .field("open", &self.open.len())
            .field("waiting", &self.waiting.len())
            .field("sweeping", &self.sweeping.len())
            .field("ready", &self.ready())
            .finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;
    use std::rc::Rc;

    struct Counted(Rc<Cell<usize>>);

    impl Retire for Counted {
        const RUNS_USER_CODE: bool = true;

        type Memory = usize;

        fn size(&self) -> usize {
            1
        }

        fn prefetch(&self) {}

        unsafe fn destroy(&mut self) {
            self.0.set(self.0.get() + 1);
        }

        unsafe fn give_back(self, memory: &mut usize) {
            *memory += 1;
        }
    }

    #[test]
    fn nothing_is_freed_before_grace_and_sweep() {
        let domain = Domain::new();
        let freed = Rc::new(Cell::new(0));
        let mut retired = Retired::new();
        let pin = domain.pin();
        retired.retire(Counted(Rc::clone(&freed)));
        for _ in 0..10 {
            retired.seal(&domain, 1);
            assert!(!retired.turn(&domain), "a pin is held");
        }
        drop(pin);
        assert!(retired.turn(&domain));
        assert!(retired.take_ready(10).is_empty(), "not yet swept");
        retired.swept();
        let mut ready = retired.take_ready(10);
        assert_eq!(freed.get(), 0);
        let back = *ready.free(|| 0);
        assert_eq!((freed.get(), back), (1, 1));
        assert!(retired.is_empty());
    }

    #[test]
    fn a_few_are_taken_at_a_time() {
        let freed = Rc::new(Cell::new(0));
        let mut retired = Retired::new();
        let all = 5 * CHUNK + 7;
        for _ in 0..all {
            retired.retire(Counted(Rc::clone(&freed)));
        }
        retired.sweeping.append(&mut retired.open);
        retired.swept();
        let some = *retired.take_ready(CHUNK + 8).free(|| 0);
        assert_eq!(freed.get(), some);
        assert!((CHUNK + 8..=2 * CHUNK + 7).contains(&some));
        let rest = *retired.take_all().free(|| 0);
        assert_eq!((freed.get(), some + rest), (all, all));
    }

    #[test]
    fn what_was_emptied_is_filled_again() {
        let domain = Domain::new();
        let freed = Rc::new(Cell::new(0));
        let mut retired = Retired::new();
        let mut places = Vec::new();
        for round in 1..=4 {
            for _ in 0..2 * CHUNK {
                retired.retire(Counted(Rc::clone(&freed)));
            }
            retired.seal(&domain, 1);
            assert!(retired.turn(&domain), "nobody holds it up");
            retired.swept();
            let mut ready = retired.take_ready(2 * CHUNK);
            // The containers, the memory's included, are those of the first round.
            let mut here: Vec<_> = ready.items.chunks.iter().map(Vec::as_ptr).collect();
            here.sort();
            if round == 1 {
                places = here;
            } else {
                assert_eq!(here, places);
            }
            let back = *ready.free(|| 0);
            assert_eq!((freed.get(), back), (round * 2 * CHUNK, freed.get()));
            retired.reuse(ready);
        }
        // However much there was, only so much is kept.
        for _ in 0..20 * CHUNK {
            retired.retire(Counted(Rc::clone(&freed)));
        }
        let mut all = retired.take_all();
        all.free(|| 0);
        retired.reuse(all);
        assert_eq!(retired.spare.chunks.len(), SPARE);
    }
}
