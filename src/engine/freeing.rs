//! The memory of what was removed, from its removal until it is freed: a queue in four stages.
//!
//! ```text
//! retire ──► open ──seal──► waiting ──grace over──► draining ──drained──► ready ──► freed by the thread that takes it
//! ```
//!
//! An item is retired after it has left the map, the wheel and the size policy, and after the
//! listener was called for it. The pass *seals* what was retired: it begins a grace period. The
//! grace period covers readers. The drain covers pointers that readers and writers left behind
//! in buffers: after the grace period no thread adds such a pointer any more, so one complete drain
//! of every buffer, begun after it, has taken the last of them.
//!
//! # Invariants
//!
//! 1. An item is *waiting* from a grace period that began after it was unlinked from every shared
//!    place, and until that is over.
//! 2. An item leaves the stage *draining* only by [`Freeing::end_drain`], after a complete drain of
//!    every batch and ring that began after [`Freeing::start_drain`] had moved it there.
//! 3. So no thread and no buffer has a pointer to an item that is *ready* (node 1, table 4).
//! 4. The queue of a part holds nodes of that part's own shards only.
//!
//! Items stand in chunks, in the order in which they were retired, so each stage is a part of the
//! queue. However many there are, no step of the pass copies more than a chunk of them. Chunks are
//! freed in the order in which they were filled. Within one call the last item is freed
//! first. Each freed slot goes to the front of a chain, so the chain then begins with the first
//! item's slot. `node/pool.rs` says why the order helps; the crate promises users no order.
//!
//! Freeing runs the user's destructors: outside of every lock and pin, a bounded number at a time.
//! A run frees after each of its passes; so does a writer, about as many items as the pass has
//! applied events. Items that a thread is freeing are in no stage any more; `Part::freed`
//! counts those that are freed.
//!
//! # When writers wait for memory
//!
//! If writers are faster, removed values wait for a grace period, for a drain, or for the thread
//! that frees them. Grace periods end when each pinned thread has let go of its pin. A writer of a
//! bounded cache that has run a pass and finds too many values unfreed ([`most_unfreed`]) yields
//! its processor, runs passes, and frees what has become free. A pin may be held for long, as that
//! of an `EntryRef` is. So the writer waits for a limited time. If the grace period has not ended
//! by then, no writer waits for that grace period again.
//!
//! [`most_unfreed`]: super::writers::most_unfreed
#![allow(unsafe_code)]

use super::pass::{Plan, RUN_BUDGET};
use super::runs::SHORTEST_NAP;
use super::writers::most_unfreed;
use super::{Engine, Part};
use crate::map::{Garbage, Map, Returning, TableMemory};
use crate::reclaim::{Domain, Grace};
use crate::scheduler::inside_listener;
use crate::sync::{AtomicUsize, Ordering, nap, thread_local, yield_now};
use std::cell::Cell;
use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// A pass of a busy cache begins a grace period after this many retired nodes, or groups of a
/// retired array.
const MIN_GRACE_SIZE: usize = 128;

/// How long a writer waits for a grace period at most.
const MAX_GRACE_WAIT: Duration = Duration::from_millis(8);

/// How often a writer that waits for a grace period yields its processor before it takes naps.
const YIELDS_BEFORE_NAPS: usize = 64;

/// How many times in a row the scheduler thread retries to free memory that a reader still holds.
/// After that it waits until the next write requests a run.
const MAX_RECLAIM_RETRIES: u32 = 8;

/// Items in a chunk.
const CHUNK_ITEMS: usize = 128;
/// An item is prefetched this many items before it is freed.
const PREFETCH_DISTANCE: usize = 8;
/// An empty list of chunks keeps room for at most this many.
const KEPT_ROOM: usize = 16;
/// At most this many emptied chunks are kept.
const SPARE_CHUNKS: usize = 4;

/// At most [`CHUNK_ITEMS`] of them, retired one after the other.
type Chunk<K, V> = Vec<Garbage<K, V>>;

fn len<'a, K: 'a, V: 'a>(chunks: impl IntoIterator<Item = &'a Chunk<K, V>>) -> usize {
    chunks.into_iter().map(Vec::len).sum()
}

/// The queue; see the module docs. For the holder of the maintenance lock.
pub(super) struct Freeing<K, V> {
    /// First the chunks that are ready, then those that are draining, waiting, and open.
    chunks: VecDeque<Chunk<K, V>>,
    /// How many chunks are ready, draining, and waiting; the others are open.
    ready: usize,
    draining: usize,
    waiting: usize,
    /// The open chunk that is being filled.
    last: Chunk<K, V>,
    /// The groups of the open memory of tables.
    groups: usize,
    /// The grace period of what is waiting; `None` if nothing is.
    grace: Option<Grace>,
    /// How many shards this drain has still to empty.
    pub(super) undrained: usize,
    /// Whether the read rings were drained completely since the drain began.
    pub(super) rings_drained: bool,
    /// Emptied containers, to be filled again: in steady state nothing is allocated here.
    spare_chunks: Vec<Chunk<K, V>>,
    spare: Freeable<K, V>,
    /// How many items were retired since the cache was built, and how many of them taken out to be
    /// freed.
    pub(super) retired: usize,
    pub(super) taken: usize,
    /// Runs in a row that left memory unfreed since the last grace period began.
    retries: u32,
    /// Whether a writer has waited without success for the grace period in progress.
    wait_expired: bool,
}

/// Items that no thread can reach any more, to be freed with [`free`](Self::free), then to be
/// [given back](Freeing::reuse).
#[must_use]
pub(super) struct Freeable<K, V> {
    chunks: Vec<Chunk<K, V>>,
    /// Slots of destroyed nodes; none before the first use.
    returning: Option<Returning<K, V>>,
}

thread_local! {
    /// Whether this thread is freeing. A destructor that calls the cache must not begin another
    /// round inside this one, which could continue until the stack overflows.
    static FREEING: Cell<bool> = const { Cell::new(false) };
}

/// Whether the calling thread is inside a destructor that is run from here; then the round that
/// runs it frees the rest.
pub(super) fn is_freeing() -> bool {
    FREEING.try_with(Cell::get).unwrap_or(false)
}

impl<K, V> Freeable<K, V> {
    fn none() -> Self {
        Self {
            chunks: Vec::new(),
            returning: None,
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.chunks.is_empty()
    }

    pub(super) fn len(&self) -> usize {
        len(&self.chunks)
    }

    /// Destroys all of them, and gives their memory back. They are of the part with the number
    /// `part` among `parts`. Runs outside of locks and pins, since destructors are user code.
    pub(super) fn free(&mut self, map: &Map<K, V>, part: usize, parts: usize) {
        let unused = || map.returning(part, parts);
        let returning = self.returning.get_or_insert_with(unused);
        let outer = FREEING
            .try_with(|freeing| freeing.replace(true))
            .unwrap_or(false);
        // The last item first: see the module docs.
        for chunk in self.chunks.iter_mut().rev() {
            Self::free_chunk(chunk, returning);
        }
        _ = FREEING.try_with(|freeing| freeing.set(outer));
        // The others are freed here, with no lock held.
        self.chunks.truncate(SPARE_CHUNKS);
        map.take_back(returning);
    }

    fn free_chunk(chunk: &mut Chunk<K, V>, returning: &mut Returning<K, V>) {
        let first = chunk.iter().rev().take(PREFETCH_DISTANCE);
        first.for_each(Garbage::prefetch);
        while let Some(item) = chunk.pop() {
            // Retired items have mostly left the processor's caches, so their misses must overlap.
            if chunk.len() >= PREFETCH_DISTANCE {
                chunk[chunk.len() - PREFETCH_DISTANCE].prefetch();
            }
            // SAFETY: freeing 3. It is out of the vector, so it is freed once.
            unsafe { item.free(returning) }
        }
    }
}

impl<K, V> Freeing<K, V> {
    pub(super) fn new() -> Self {
        Self {
            chunks: VecDeque::new(),
            ready: 0,
            draining: 0,
            waiting: 0,
            last: Vec::new(),
            groups: 0,
            grace: None,
            undrained: 0,
            rings_drained: true,
            spare_chunks: Vec::new(),
            spare: Freeable::none(),
            retired: 0,
            taken: 0,
            retries: 0,
            wait_expired: false,
        }
    }

    /// Takes an item that was unlinked from every shared place.
    #[inline]
    pub(super) fn retire(&mut self, item: Garbage<K, V>) {
        self.retired += 1;
        if self.last.len() >= CHUNK_ITEMS {
            self.close_last();
        }
        self.last.push(item);
    }

    /// Takes memory that has left a table.
    pub(super) fn retire_table(&mut self, memory: TableMemory<K, V>) {
        self.groups += memory.groups();
        self.retire(Garbage::Table(memory));
    }

    #[cold]
    fn close_last(&mut self) {
        if !self.last.is_empty() {
            let spare = self.spare_chunks.pop().unwrap_or_default();
            let last = std::mem::replace(&mut self.last, spare);
            self.chunks.push_back(last);
        }
    }

    /// Begins a drain if the grace period is over. Costs nothing while no grace period is under
    /// way.
    pub(super) fn start_drain(&mut self, domain: &Domain, shards: usize, has_rings: bool) {
        if self.draining > 0 {
            return;
        }
        match &self.grace {
            Some(grace) if domain.is_over(grace) => self.grace = None,
            _ => return,
        }
        self.draining = std::mem::take(&mut self.waiting);
        self.undrained = shards;
        self.rings_drained = !has_rings;
    }

    /// Ends the drain if it is complete.
    pub(super) fn end_drain(&mut self) {
        if self.undrained == 0 && self.rings_drained {
            self.ready += std::mem::take(&mut self.draining);
        }
    }

    /// Begins a grace period for the open items, unless one is under way: if there are enough of
    /// them, or some and the plan says so.
    pub(super) fn seal(&mut self, domain: &Domain, force: bool) {
        let least = if force { 1 } else { MIN_GRACE_SIZE };
        // Open chunks, but for the last, are full.
        let open = self.chunks.len() - self.ready - self.draining - self.waiting;
        let size = open * CHUNK_ITEMS + self.last.len() + self.groups;
        if self.grace.is_none() && size >= least {
            self.groups = 0;
            self.close_last();
            self.waiting = self.chunks.len() - self.ready - self.draining;
            self.grace = Some(domain.begin_grace());
            self.retries = 0;
            self.wait_expired = false;
        }
    }

    /// After a run: how many runs in a row have left memory unfreed; none if a table is resizing.
    /// `None` if nothing is left, or if enough runs were made for this reason.
    pub(super) fn retry(&mut self, is_resizing: bool) -> Option<u32> {
        if is_resizing || self.is_empty() {
            self.retries = 0;
            return is_resizing.then_some(0);
        }
        self.retries = self.retries.saturating_add(1);
        (self.retries <= MAX_RECLAIM_RETRIES).then_some(self.retries)
    }

    /// Takes items that may be freed: whole chunks, until there are `most` or more. Takes none
    /// inside a destructor that is run from here.
    pub(super) fn take_ready(&mut self, most: usize) -> Freeable<K, V> {
        let mut taken = Freeable::none();
        if most == 0 || self.ready == 0 || is_freeing() {
            return taken;
        }
        std::mem::swap(&mut taken, &mut self.spare);
        let mut count = 0;
        while count < most && self.ready > 0 {
            self.ready -= 1;
            let chunk = self.chunks.pop_front().unwrap_or_default();
            count += chunk.len();
            taken.chunks.push(chunk);
        }
        self.taken += count;
        taken
    }

    /// Takes back emptied containers.
    pub(super) fn reuse(&mut self, mut freed: Freeable<K, V>) {
        debug_assert_eq!(freed.len(), 0, "not freed yet");
        let room = SPARE_CHUNKS.saturating_sub(self.spare_chunks.len());
        self.spare_chunks.extend(freed.chunks.drain(..).take(room));
        // Gives back the room for an unusual number of chunks.
        freed.chunks.shrink_to(KEPT_ROOM);
        self.spare = freed;
        if self.chunks.is_empty() {
            self.chunks.shrink_to(KEPT_ROOM);
        }
    }

    /// Whether nothing is left in any stage.
    pub(super) fn is_empty(&self) -> bool {
        self.chunks.is_empty() && self.last.is_empty()
    }

    /// The number of nodes, and of groups of tables, in all stages.
    #[cfg(test)]
    pub(super) fn held(&self) -> usize {
        let size = |item: &Garbage<K, V>| match item {
            Garbage::Node(_) => 1,
            Garbage::Table(memory) => memory.groups(),
        };
        self.chunks
            .iter()
            .flatten()
            .chain(&self.last)
            .map(size)
            .sum()
    }

    /// Whether a drain is under way.
    #[cfg(test)]
    pub(super) fn is_draining(&self) -> bool {
        self.draining > 0
    }

    /// The number of items that may be freed.
    pub(super) fn ready(&self) -> usize {
        len(self.chunks.iter().take(self.ready))
    }

    /// Takes everything out of every stage. For the last owner: no reader and no buffer is left.
    pub(super) fn take_all(&mut self) -> Freeable<K, V> {
        let mut all = Freeable::none();
        self.close_last();
        all.chunks.extend(self.chunks.drain(..));
        (self.ready, self.draining, self.waiting) = (0, 0, 0);
        self.grace = None;
        all
    }
}

impl<K, V> Engine<K, V> {
    /// Runs the destructors of what is ready, and gives its memory back. With no lock held.
    pub(super) fn free(&self, part: &Part<K, V>, mut ready: Freeable<K, V>) {
        if ready.is_empty() {
            return;
        }
        let items = ready.len();
        ready.free(&self.map, part.number, self.parts.len());
        add_freed(&part.freed, items);
        // The emptied containers are not worth a wait.
        if let Some(mut state) = part.state.try_lock() {
            state.freeing.reuse(ready);
        }
    }

    /// How many retired items of all parts are not freed, as their last passes have published it.
    fn unfreed(&self) -> usize {
        let of_part = |part: &Part<K, V>| {
            let retired = part.retired.load(Ordering::Relaxed);
            retired.saturating_sub(part.freed())
        };
        self.parts.iter().map(of_part).sum()
    }

    /// If more removed values are unfreed than the limit allows, a writer waits until there are
    /// fewer, and frees some of them itself. `retired` is how many were retired by now.
    ///
    /// Does nothing inside a destructor or a listener, or if the thread is pinned: it would wait
    /// for itself. Not for a grace period for which a writer has waited in vain.
    pub(super) fn await_reclaim(&self, part: &Part<K, V>, mut retired: usize) {
        let most = most_unfreed(self.max_capacity());
        let parts = self.parts.len();
        // Others may have freed what was retired since. If there are too many in the cache, a part
        // has more than its share of them, whose writers wait.
        let is_over = |retired: usize| {
            retired.saturating_sub(part.freed()) > most / parts
                && (parts == 1 || self.unfreed() > most)
        };
        if !is_over(retired) || is_freeing() || inside_listener() || self.domain.is_pinned() {
            return;
        }
        let began = Instant::now();
        let mut yields = 0;
        while is_over(retired) {
            if yields < YIELDS_BEFORE_NAPS {
                yields += 1;
                // Lets other threads run, among them one that was preempted while it held a pin.
                yield_now();
            } else {
                nap(SHORTEST_NAP);
            }
            let Some(mut state) = part.state.try_lock() else {
                if began.elapsed() > MAX_GRACE_WAIT {
                    return;
                }
                continue;
            };
            if state.freeing.wait_expired {
                return;
            }
            self.pass(&mut state, Plan::CATCH_UP);
            let ready = state.freeing.take_ready(RUN_BUDGET);
            if ready.is_empty() && began.elapsed() > MAX_GRACE_WAIT {
                state.freeing.wait_expired = true;
                return;
            }
            retired = state.freeing.retired;
            drop(state);
            self.free(part, ready);
        }
    }
}

impl<K, V> Part<K, V> {
    /// How many items are freed. A caller sees what the destructors of as many items have done.
    pub(super) fn freed(&self) -> usize {
        freed(&self.freed)
    }
}

/// Counts items as freed, after their destructors have run.
pub(crate) fn add_freed(count: &AtomicUsize, items: usize) {
    // Release, partner: the acquire in `freed`.
    count.fetch_add(items, Ordering::Release);
}

/// How many items are counted as freed.
pub(crate) fn freed(count: &AtomicUsize) -> usize {
    // Acquire, partner: the release in `add_freed`.
    count.load(Ordering::Acquire)
}

#[cfg(all(test, not(wheelhouse_loom)))]
mod tests;
