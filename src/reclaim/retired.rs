//! The objects that were unlinked and wait to be freed: a queue in four stages.
//!
//! ```text
//! retire ──► open ──seal──► waiting ──grace over──► draining ──drained──► ready ──► freed by the thread that takes it
//! ```
//!
//! The grace period covers readers. The drain covers pointers that readers and writers left behind
//! in buffers: after the grace period no thread adds such a pointer any more, so one complete drain
//! of every buffer, begun after it, has taken the last of them.
//!
//! # Invariants
//!
//! 1. An item enters `waiting` after it was unlinked from every shared place, and leaves it when
//!    its grace period is over.
//! 2. An item leaves `draining` only by [`Retired::drained`], which the pass calls after a complete
//!    drain of every batch and ring that began after [`Retired::start_drain`] said so.
//! 3. So no thread and no buffer has a pointer to an item in `ready` (node 1, table 4).
//!
//! Chunks are freed in the order in which they were filled. Within one call the last item is freed
//! first. Each freed slot goes to the front of a chain, so the chain then begins with the first
//! item's slot. `node/pool.rs` says why the order helps; the crate promises users no order.
//!
//! Freeing runs the user's destructors: outside of every lock and pin, a bounded number at a time.
//! Items that a thread is freeing are in no stage any more; [`Retired::being_freed`] tells when
//! they are freed.
#![allow(unsafe_code)]

use super::Domain;
use super::scheme::Grace;
use crate::contain::contain;
use crate::sync::{Ordering, thread_local};
use std::cell::Cell;
use std::collections::VecDeque;
use std::sync::atomic::fence;
use std::sync::{Arc, Weak};

/// An object that may be freed once no thread can reach it.
pub(crate) trait Retire {
    /// Whether freeing runs the user's destructors, which may panic.
    const RUNS_USER_CODE: bool;

    /// Where freed memory is collected.
    type Memory;

    /// Its memory, in nodes.
    fn size(&self) -> usize;

    /// Prefetches what destroying it and giving it back will touch.
    fn prefetch(&self);

    /// Runs its destructors.
    ///
    /// # Safety
    ///
    /// No thread can reach it any more, and it is destroyed once.
    unsafe fn destroy(&mut self);

    /// Gives its memory back.
    ///
    /// # Safety
    ///
    /// It was destroyed, and no thread can reach it.
    unsafe fn give_back(self, memory: &mut Self::Memory);
}

/// The queue; see the module docs. For the holder of the maintenance lock.
pub(crate) struct Retired<T: Retire> {
    open: Chunks<T>,
    /// The sizes of the items in `open`, added up.
    size: usize,
    waiting: Chunks<T>,
    /// The grace period of `waiting`; `None` if nothing waits.
    grace: Option<Grace>,
    draining: Chunks<T>,
    /// Chunks, in the order in which they became ready.
    ready: VecDeque<Vec<T>>,
    /// Emptied containers, to be filled again: in steady state nothing is allocated here.
    spare: Spare<T>,
    /// Each `Ready` that was taken shares this until it is freed.
    being_freed: Arc<()>,
    /// Earlier values of `being_freed` that are still shared.
    being_freed_before: Vec<Weak<()>>,
}

/// Items that no thread can reach any more, to be freed with [`free`](Self::free), then to be
/// [given back](Retired::reuse).
#[must_use]
pub(crate) struct Ready<T: Retire> {
    items: Chunks<T>,
    memory: Option<T::Memory>,
    _being_freed: Option<Arc<()>>,
}

/// The items that threads were freeing at some moment.
pub(crate) struct BeingFreed(Vec<Weak<()>>);

impl BeingFreed {
    /// Whether all these items are freed.
    pub(crate) fn is_over(&self) -> bool {
        let over = self.0.iter().all(|share| share.strong_count() == 0);
        // Partner: the release with which the last share of each is dropped. A caller that gets
        // `true` sees the effects of the destructors.
        fence(Ordering::Acquire);
        over
    }
}

/// Emptied containers.
struct Spare<T: Retire> {
    chunks: Chunks<T>,
    taken: Chunks<T>,
    memory: Option<T::Memory>,
}

/// Items in chunks: however many there are, no step of the pass copies an item, or allocates more
/// than one chunk and the list of chunks.
type Chunks<T> = Vec<Vec<T>>;

fn len<'a, T: 'a>(chunks: impl IntoIterator<Item = &'a Vec<T>>) -> usize {
    chunks.into_iter().map(Vec::len).sum()
}

/// Items in a chunk.
const CHUNK_ITEMS: usize = 128;
/// An item is prefetched this many items before it is freed.
const PREFETCH_DISTANCE: usize = 8;
/// The room of a first chunk: most caches retire a few items at a time.
const FIRST_CHUNK_ITEMS: usize = 4;
/// An empty list of chunks keeps room for at most this many.
const KEPT_LIST_ROOM: usize = 16;
/// At most this many emptied chunks are kept.
const SPARE_CHUNKS: usize = 4;

thread_local! {
    /// Whether this thread is freeing. A destructor that calls the cache must not begin another
    /// round inside this one, which could continue until the stack overflows.
    static FREEING: Cell<bool> = const { Cell::new(false) };
}

/// Whether the calling thread is inside a destructor that is run from here; then the round that
/// runs it frees the rest.
pub(crate) fn is_freeing() -> bool {
    FREEING.try_with(Cell::get).unwrap_or(false)
}

impl<T: Retire> Ready<T> {
    fn of(items: Chunks<T>) -> Self {
        Self {
            items,
            memory: None,
            _being_freed: None,
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.items.is_empty()
    }

    pub(crate) fn len(&self) -> usize {
        len(&self.items)
    }

    /// Destroys all of them. The caller then gives their memory back. Runs outside of locks and
    /// pins, since destructors are user code.
    pub(crate) fn free(&mut self, memory: impl FnOnce() -> T::Memory) -> &mut T::Memory {
        let memory = self.memory.get_or_insert_with(memory);
        let outer = FREEING
            .try_with(|freeing| freeing.replace(true))
            .unwrap_or(false);
        // The last item first: see the module docs.
        for chunk in self.items.iter_mut().rev() {
            Self::free_chunk(chunk, memory);
        }
        _ = FREEING.try_with(|freeing| freeing.set(outer));
        // The others are freed here, with no lock held.
        self.items.truncate(SPARE_CHUNKS);
        memory
    }

    fn free_chunk(chunk: &mut Vec<T>, memory: &mut T::Memory) {
        chunk
            .iter()
            .rev()
            .take(PREFETCH_DISTANCE)
            .for_each(T::prefetch);
        while let Some(mut item) = chunk.pop() {
            // Retired items have mostly left the processor's caches, so their misses must overlap.
            if chunk.len() >= PREFETCH_DISTANCE {
                chunk[chunk.len() - PREFETCH_DISTANCE].prefetch();
            }
            if T::RUNS_USER_CODE {
                // If a destructor panics, the rest must be freed all the same, and the thread that
                // frees must continue. The process's panic hook has reported the panic.
                contain(|| {
                    // SAFETY: retired 3. It is out of the vector, so it is destroyed once.
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
            open: Vec::new(),
            size: 0,
            waiting: Vec::new(),
            grace: None,
            draining: Vec::new(),
            ready: VecDeque::new(),
            spare: Spare {
                chunks: Vec::new(),
                taken: Vec::new(),
                memory: None,
            },
            being_freed: Arc::new(()),
            being_freed_before: Vec::new(),
        }
    }

    /// The items that were taken and are not freed yet.
    pub(crate) fn being_freed(&mut self) -> BeingFreed {
        self.being_freed_before
            .retain(|share| share.strong_count() > 0);
        // As in `BeingFreed::is_over`: later holders of the lock do not ask about items that are
        // forgotten here.
        fence(Ordering::Acquire);
        if Arc::strong_count(&self.being_freed) > 1 {
            let being_freed = std::mem::replace(&mut self.being_freed, Arc::new(()));
            self.being_freed_before.push(Arc::downgrade(&being_freed));
        }
        BeingFreed(self.being_freed_before.clone())
    }

    /// Takes an item that was unlinked from every shared place.
    #[inline]
    pub(crate) fn retire(&mut self, item: T) {
        self.size = self.size.saturating_add(item.size());
        if self
            .open
            .last()
            .is_none_or(|last| last.len() >= CHUNK_ITEMS)
        {
            self.open_chunk();
        }
        // Pushed here: as a parameter of `open_chunk` the item would go through the stack each
        // time.
        if let Some(chunk) = self.open.last_mut() {
            chunk.push(item);
        }
    }

    #[cold]
    fn open_chunk(&mut self) {
        let room = if self.open.is_empty() {
            FIRST_CHUNK_ITEMS
        } else {
            CHUNK_ITEMS
        };
        let spare = self.spare.chunks.pop();
        self.open
            .push(spare.unwrap_or_else(|| Vec::with_capacity(room)));
    }

    /// Checks whether the grace period is over. Returns `true` if a drain has to begin now. Costs
    /// nothing while no grace period is under way.
    pub(crate) fn start_drain(&mut self, domain: &Domain) -> bool {
        if self.draining.is_empty()
            && self
                .grace
                .as_ref()
                .is_some_and(|grace| grace.is_over(domain))
        {
            self.grace = None;
            self.draining.append(&mut self.waiting);
            return true;
        }
        false
    }

    /// To be called after a complete drain of all buffers that began after
    /// [`start_drain`](Self::start_drain) returned `true`.
    pub(crate) fn drained(&mut self) {
        self.ready.extend(self.draining.drain(..));
    }

    pub(crate) fn is_draining(&self) -> bool {
        !self.draining.is_empty()
    }

    /// Begins a grace period for the open items, if their size is at least `enough` and no grace
    /// period is under way. Returns whether it did.
    pub(crate) fn seal(&mut self, domain: &Domain, enough: usize) -> bool {
        if self.grace.is_some() || self.size < enough.max(1) {
            return false;
        }
        self.size = 0;
        self.waiting.append(&mut self.open);
        self.grace = Some(domain.begin_grace());
        true
    }

    /// Takes items that may be freed: whole chunks, until there are `most` or more. Takes none
    /// inside a destructor that is run from here.
    pub(crate) fn take_ready(&mut self, most: usize) -> Ready<T> {
        if most == 0 || self.ready.is_empty() || is_freeing() {
            return Ready::of(Vec::new());
        }
        let mut items = std::mem::take(&mut self.spare.taken);
        let mut count = 0;
        while count < most
            && let Some(chunk) = self.ready.pop_front()
        {
            count += chunk.len();
            items.push(chunk);
        }
        Ready {
            items,
            memory: self.spare.memory.take(),
            _being_freed: Some(Arc::clone(&self.being_freed)),
        }
    }

    /// Takes back emptied containers.
    pub(crate) fn reuse(&mut self, freed: Ready<T>) {
        let Ready {
            mut items, memory, ..
        } = freed;
        debug_assert_eq!(len(&items), 0, "not freed yet");
        let room = SPARE_CHUNKS.saturating_sub(self.spare.chunks.len());
        self.spare.chunks.extend(items.drain(..).take(room));
        // Gives back the room for an unusual number of chunks.
        for list in [
            &mut items,
            &mut self.open,
            &mut self.waiting,
            &mut self.draining,
        ] {
            if list.is_empty() {
                list.shrink_to(KEPT_LIST_ROOM);
            }
        }
        if self.ready.is_empty() {
            self.ready.shrink_to(KEPT_LIST_ROOM);
        }
        self.spare.taken = items;
        self.spare.memory = memory;
    }

    /// Whether nothing is left in any stage.
    pub(crate) fn is_empty(&self) -> bool {
        self.open.is_empty()
            && self.grace.is_none()
            && self.draining.is_empty()
            && self.ready.is_empty()
    }

    /// The sizes of the items in all stages, added up.
    #[cfg(test)]
    pub(crate) fn held(&self) -> usize {
        let stages = [&self.open, &self.waiting, &self.draining];
        let items = stages.into_iter().flatten().chain(&self.ready).flatten();
        items.map(Retire::size).sum()
    }

    /// The number of items that may be freed.
    pub(crate) fn ready(&self) -> usize {
        len(&self.ready)
    }

    /// Takes everything out of every stage. For the last owner: no reader and no buffer is left.
    pub(crate) fn take_all(&mut self) -> Ready<T> {
        self.grace = None;
        let mut items: Chunks<T> = std::mem::take(&mut self.ready).into();
        for stage in [&mut self.draining, &mut self.waiting, &mut self.open] {
            items.append(stage);
        }
        Ready::of(items)
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
    fn nothing_is_freed_before_grace_and_drain() {
        let domain = Domain::new();
        let freed = Rc::new(Cell::new(0));
        let mut retired = Retired::new();
        let pin = domain.pin();
        retired.retire(Counted(Rc::clone(&freed)));
        for _ in 0..10 {
            retired.seal(&domain, 1);
            assert!(!retired.start_drain(&domain), "a pin is held");
        }
        drop(pin);
        assert!(retired.start_drain(&domain));
        assert!(retired.take_ready(10).is_empty(), "not yet drained");
        retired.drained();
        let mut ready = retired.take_ready(10);
        assert_eq!(freed.get(), 0);
        let back = *ready.free(|| 0);
        assert_eq!((freed.get(), back), (1, 1));
        assert!(retired.is_empty());
    }

    #[test]
    fn take_ready_takes_whole_chunks_up_to_the_limit() {
        let freed = Rc::new(Cell::new(0));
        let mut retired = Retired::new();
        let all = 5 * CHUNK_ITEMS + 7;
        for _ in 0..all {
            retired.retire(Counted(Rc::clone(&freed)));
        }
        retired.draining.append(&mut retired.open);
        retired.drained();
        let some = *retired.take_ready(CHUNK_ITEMS + 8).free(|| 0);
        assert_eq!(freed.get(), some);
        assert!((CHUNK_ITEMS + 8..=2 * CHUNK_ITEMS + 7).contains(&some));
        let rest = *retired.take_all().free(|| 0);
        assert_eq!((freed.get(), some + rest), (all, all));
    }

    #[test]
    fn emptied_containers_are_reused() {
        let domain = Domain::new();
        let freed = Rc::new(Cell::new(0));
        let mut retired = Retired::new();
        let mut places = Vec::new();
        for round in 1..=4 {
            for _ in 0..2 * CHUNK_ITEMS {
                retired.retire(Counted(Rc::clone(&freed)));
            }
            retired.seal(&domain, 1);
            assert!(retired.start_drain(&domain), "no pin is held");
            retired.drained();
            let mut ready = retired.take_ready(2 * CHUNK_ITEMS);
            // The containers are those of the first round, that of the memory included.
            let mut here: Vec<_> = ready.items.iter().map(Vec::as_ptr).collect();
            here.sort();
            if round == 1 {
                places = here;
            } else {
                assert_eq!(here, places);
            }
            let back = *ready.free(|| 0);
            assert_eq!((freed.get(), back), (round * 2 * CHUNK_ITEMS, freed.get()));
            retired.reuse(ready);
        }
        // However many there were, only a limited number is kept.
        for _ in 0..20 * CHUNK_ITEMS {
            retired.retire(Counted(Rc::clone(&freed)));
        }
        let mut all = retired.take_all();
        all.free(|| 0);
        retired.reuse(all);
        assert_eq!(retired.spare.chunks.len(), SPARE_CHUNKS);
    }
}
