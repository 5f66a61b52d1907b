//! The memory of what was removed, from its removal until it is freed: a queue in four stages.
//!
//! ```text
//! retire ──► open ──seal──► waiting ──grace over──► draining ──drained──► ready ──► freed by the thread that takes it
//! ```
//!
//! An item is retired after it has left the map, the wheel and the size policy, and after the
//! listener was called for it. The pass *seals* what was retired: it begins a grace period. The
//! grace period covers readers. The drain covers pointers that readers and writers left behind in
//! buffers. After the grace period no thread adds such a pointer any more. So one complete drain of
//! every buffer, begun after it, has taken the last of them.
//!
//! # Invariants
//!
//! 1. An item is *waiting* from a grace period that began after it was unlinked from every shared
//!    place, and until that is over.
//! 2. An item leaves the stage *draining* only by [`Freeing::end_drain`], after a complete drain of
//!    every batch and ring that began after [`Freeing::start_drain`] had moved it there.
//! 3. So no thread and no buffer has a pointer to an item that is *ready* (node 1, table 4).
//! 4. A chunk holds nodes and entries of its own shard only.
//! 5. An entry is retired with its last node: the one that is not Succeeded.
//!
//! Items stand in chunks, each of one shard, so each stage is a part of a queue of chunks. However
//! many items there are, no step of the pass copies more than a chunk of them. A node whose key and
//! value have no destructor is not touched from its retirement until its slot is used again: its
//! shard gets the chunk of addresses. The items of a shard are freed in the order of their
//! retirement (`node/pool.rs` says why); the crate promises users no order.
//!
//! Freeing runs the user's destructors: outside of every lock and pin, a bounded number at a time.
//! A run frees after each of its passes; so does a writer, about as many items as the pass has
//! applied events. Items that a thread is freeing are in no stage any more; `Part::freed`
//! counts those that are freed.
//!
//! # When writers wait for memory
//!
//! If too many values are unfreed behind its pass ([`most_unfreed`]), a writer runs passes and
//! frees, for a limited time: an `EntryRef` may hold its pin for long. If the grace period has not
//! ended by then, no writer waits for it again.
//!
//! [`most_unfreed`]: super::writers::most_unfreed
#![allow(unsafe_code)]

use super::pass::{Plan, RUN_BUDGET};
use super::runs::SHORTEST_NAP;
use super::writers::most_unfreed;
use super::{Engine, Part, State};
use crate::map::{Garbage, Map, TableMemory, WriteEvent};
use crate::node::{NodePtr, NodeState};
use crate::reclaim::{Domain, Grace};
use crate::scheduler::inside_listener;
use crate::sync::{AtomicU64, MutexGuard, Ordering, nap, thread_local, yield_now};
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

/// About how many items are freed behind each pass of a run, and behind each pass by which a
/// writer evicts more.
pub(super) const FREED_PER_RUN_PASS: usize = 2 * RUN_BUDGET;

/// A chunk with so many nodes is closed.
const CHUNK_ITEMS: usize = 128;
/// An empty list of chunks keeps room for at most this many.
const KEPT_ROOM: usize = 16;

fn len<'a, K: 'a, V: 'a>(chunks: impl IntoIterator<Item = &'a Garbage<K, V>>) -> usize {
    chunks.into_iter().map(Garbage::len).sum()
}

/// The queue; see the module docs. For the holder of the maintenance lock.
pub(super) struct Freeing<K, V> {
    /// First the chunks that are ready, then those that are draining, waiting, and open.
    chunks: VecDeque<Garbage<K, V>>,
    /// How many chunks are ready, draining, and waiting; the others are open.
    ready: usize,
    draining: usize,
    waiting: usize,
    /// The open chunk of each shard that is being filled.
    filling: Box<[Garbage<K, V>]>,
    /// The logarithm of the number of parts.
    parts_log: u32,
    /// The groups of the open memory of tables.
    groups: usize,
    /// The grace period of what is waiting; `None` if nothing is.
    grace: Option<Grace>,
    /// How many shards this drain has still to empty.
    pub(super) undrained: usize,
    /// Whether the read rings were drained completely since the drain began.
    pub(super) rings_drained: bool,
    /// Emptied containers, to be filled again: in steady state nothing is allocated here, but in a
    /// cache that is often empty.
    pub(super) spare_chunks: Vec<Garbage<K, V>>,
    spare: Vec<Garbage<K, V>>,
    /// How many items were retired since the cache was built, and how many of them taken out to be
    /// freed. As long as a cache may live, they do not wrap, also where addresses have 32 bits.
    pub(super) retired: u64,
    /// How many of them were retired when the last grace period began: the others are open.
    sealed: u64,
    pub(super) taken: u64,
    /// Runs in a row that left memory unfreed since the last grace period began.
    pub(super) retries: u32,
    /// Whether a writer has waited without success for the grace period in progress.
    wait_expired: bool,
    /// How many items were retired when the last run ended.
    retired_by_run: u64,
    /// How many were retired when emptied chunks were last let go.
    retired_at_release: u64,
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

/// Destroys items that were taken out, so that no thread can reach them any more, and gives their
/// memory back. Runs outside of locks and pins, since destructors are user code.
pub(super) fn free_all<K, V>(taken: &mut Vec<Garbage<K, V>>, map: &Map<K, V>) {
    let outer = FREEING
        .try_with(|freeing| freeing.replace(true))
        .unwrap_or(false);
    for chunk in taken.drain(..) {
        // SAFETY: freeing 3 and 4. It is taken out, so all is freed once.
        unsafe { chunk.free(map) };
    }
    _ = FREEING.try_with(|freeing| freeing.set(outer));
}

impl<K, V> Freeing<K, V> {
    /// That of the part with the number `part` among `parts`, of a map with so many shards.
    pub(super) fn new(part: usize, parts: usize, shards: usize) -> Self {
        debug_assert!(parts.is_power_of_two() && part < parts && parts <= shards);
        Self {
            chunks: VecDeque::new(),
            ready: 0,
            draining: 0,
            waiting: 0,
            filling: (part..shards)
                .step_by(parts)
                .map(Garbage::of_shard)
                .collect(),
            parts_log: parts.ilog2(),
            groups: 0,
            grace: None,
            undrained: 0,
            rings_drained: true,
            spare_chunks: Vec::new(),
            spare: Vec::new(),
            retired: 0,
            sealed: 0,
            taken: 0,
            retries: 0,
            wait_expired: false,
            retired_by_run: 0,
            retired_at_release: 0,
        }
    }

    /// Takes a node of this shard that was unlinked from every shared place: with its entry, unless
    /// another node has succeeded to that.
    pub(super) fn retire(&mut self, shard: usize, node: NodePtr<K, V>) {
        if node.state() == NodeState::Succeeded {
            self.retire_succeeded(shard, node);
        } else {
            self.retire_with_entry(shard, node);
        }
    }

    /// Takes a node of this shard that another one has succeeded.
    #[inline]
    pub(super) fn retire_succeeded(&mut self, shard: usize, node: NodePtr<K, V>) {
        self.fill(shard, 1, |garbage| garbage.add(node));
    }

    /// Takes the last node of an entry, and that entry, of this shard.
    // Always inlined: a call takes a quarter as long again.
    #[inline(always)]
    pub(super) fn retire_with_entry(&mut self, shard: usize, node: NodePtr<K, V>) {
        self.fill(shard, 1, |garbage| garbage.add_with_entry(node));
    }

    /// Takes the nodes of events of this shard, all of which are `Succeeded`.
    pub(super) fn retire_all(&mut self, shard: usize, events: &[WriteEvent<K, V>]) {
        // No chunk is larger than a call may free at once.
        for some in events.chunks(CHUNK_ITEMS) {
            self.fill(shard, some.len(), |garbage| garbage.add_all(some));
        }
    }

    /// Takes memory that has left the table of this shard.
    pub(super) fn retire_table(&mut self, shard: usize, memory: TableMemory<K, V>) {
        self.groups += memory.groups();
        self.fill(shard, 1, |garbage| garbage.add_table(memory));
    }

    /// Adds so many items to the open chunk of a shard.
    #[inline(always)]
    fn fill(&mut self, shard: usize, items: usize, add: impl FnOnce(&mut Garbage<K, V>)) {
        self.retired += items as u64;
        let at = shard >> self.parts_log;
        let filling = &mut self.filling[at];
        add(filling);
        if filling.len() >= CHUNK_ITEMS {
            self.close(at);
        }
    }

    /// Ends an open chunk, in which there is something.
    #[cold]
    #[inline(never)]
    fn close(&mut self, at: usize) {
        let filling = &mut self.filling[at];
        let shard = filling.shard();
        let next = match self.spare_chunks.pop() {
            Some(mut spare) => {
                spare.move_to(shard);
                spare
            }
            None => filling.alike(),
        };
        let full = std::mem::replace(filling, next);
        self.chunks.push_back(full);
    }

    fn close_all(&mut self) {
        for at in 0..self.filling.len() {
            if self.filling[at].len() > 0 {
                self.close(at);
            }
        }
        self.sealed = self.retired;
        self.groups = 0;
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
        let size = (self.retired - self.sealed) as usize + self.groups;
        if self.grace.is_none() && size >= least {
            self.close_all();
            self.waiting = self.chunks.len() - self.ready - self.draining;
            self.grace = Some(domain.begin_grace());
            self.retries = 0;
            self.wait_expired = false;
        }
    }

    /// A run has ended: counts it, if it has left memory unfreed for another reason than that a
    /// table is resizing.
    pub(super) fn count_run(&mut self, is_resizing: bool) {
        self.retired_by_run = self.retired;
        if is_resizing || self.is_empty() {
            self.retries = 0;
        } else {
            self.retries = self.retries.saturating_add(1);
        }
    }

    /// Whether another run may free what is left, and not enough runs were made for this reason.
    pub(super) fn wants_retry(&self) -> bool {
        !self.is_empty() && self.retries <= MAX_RECLAIM_RETRIES
    }

    /// Takes items that may be freed: whole chunks, until there are `most` or more. Takes none
    /// inside a destructor that is run from here.
    #[must_use]
    pub(super) fn take_ready(&mut self, most: usize) -> Vec<Garbage<K, V>> {
        if most == 0 || self.ready == 0 || is_freeing() {
            return Vec::new();
        }
        let mut taken = std::mem::take(&mut self.spare);
        let mut count = 0;
        while count < most && self.ready > 0 {
            self.ready -= 1;
            let Some(chunk) = self.chunks.pop_front() else {
                break;
            };
            count += chunk.len();
            taken.push(chunk);
        }
        self.taken += count as u64;
        taken
    }

    /// At the end of a run, before it is counted: whether emptied chunks are to be let go, since
    /// they may not be needed for long. So it is if all that was retired is `freed`, and if nothing
    /// was retired since the run before or the cache `is_bare`: without an entry.
    pub(super) fn keeps_too_much(&self, freed: u64, is_bare: impl FnOnce() -> bool) -> bool {
        self.retired_at_release != self.retired
            && self.is_empty()
            && freed == self.taken
            && (self.retired_by_run == self.retired || is_bare())
    }

    /// Whether it has fewer emptied chunks than shards.
    pub(super) fn wants_spare(&self) -> bool {
        self.spare_chunks.len() < self.filling.len()
    }

    /// Takes back emptied containers.
    pub(super) fn reuse(&mut self, mut freed: Vec<Garbage<K, V>>) {
        debug_assert!(freed.is_empty(), "not freed yet");
        // Gives back the room for an unusual number of chunks.
        freed.shrink_to(KEPT_ROOM);
        self.spare = freed;
        if self.chunks.is_empty() {
            self.chunks.shrink_to(KEPT_ROOM);
        }
    }

    /// Whether nothing is left in any stage.
    pub(super) fn is_empty(&self) -> bool {
        self.chunks.is_empty() && self.sealed == self.retired
    }

    /// For how many nodes and entries its open and spare chunks keep room.
    #[cfg(test)]
    pub(super) fn room(&self) -> usize {
        let chunks = self.filling.iter().chain(&self.spare_chunks);
        chunks.map(Garbage::room).sum()
    }

    /// The number of nodes, and of groups of tables, in all stages.
    #[cfg(test)]
    pub(super) fn held(&self) -> usize {
        let chunks = self.chunks.iter().chain(&self.filling);
        chunks.map(Garbage::held).sum()
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
    #[must_use]
    pub(super) fn take_all(&mut self) -> Vec<Garbage<K, V>> {
        self.close_all();
        let all = self.chunks.drain(..).collect();
        (self.ready, self.draining, self.waiting) = (0, 0, 0);
        self.grace = None;
        all
    }
}

impl<K, V> Engine<K, V> {
    /// Runs the destructors of what is ready, and gives its memory back. With no lock held.
    pub(super) fn free(&self, part: &Part<K, V>, mut ready: Vec<Garbage<K, V>>) {
        if ready.is_empty() {
            return;
        }
        let items = len(&ready);
        free_all(&mut ready, &self.map);
        add_freed(&part.freed, items);
        // The emptied containers are not worth a wait.
        if let Some(mut state) = part.state.try_lock() {
            state.freeing.reuse(ready);
        }
    }

    /// Releases the lock of a part, and frees about so many items of it.
    pub(super) fn free_some(
        &self,
        part: &Part<K, V>,
        mut state: MutexGuard<'_, State<K, V>>,
        most: usize,
    ) {
        let ready = state.freeing.take_ready(most);
        drop(state);
        self.free(part, ready);
    }

    /// Lets go of the empty chunks of a part and of its shards.
    #[cold]
    pub(super) fn release_emptied(&self, mut state: MutexGuard<'_, State<K, V>>) {
        let freeing = &mut state.freeing;
        freeing.retired_at_release = freeing.retired;
        let mut emptied = std::mem::take(&mut freeing.spare_chunks);
        let mut shards = Vec::new();
        for open in &mut freeing.filling {
            let shard = open.shard();
            shards.push(shard);
            if open.len() == 0 {
                emptied.push(std::mem::replace(open, Garbage::of_shard(shard)));
            }
        }
        drop(state);
        for shard in shards {
            self.map.lock_shard(shard).give_emptied(&mut emptied);
        }
    }

    /// How many retired items of all parts are not freed, as their last passes have published it.
    fn unfreed(&self) -> u64 {
        let mut unfreed = 0;
        for part in &self.parts {
            let retired = part.retired.load(Ordering::Relaxed);
            unfreed += retired.saturating_sub(part.freed());
        }
        unfreed
    }

    /// If more removed values are unfreed than the limit allows, a writer waits until there are
    /// fewer, and frees some of them itself. `retired` is how many were retired by now.
    ///
    /// Does nothing inside a destructor or a listener, or if the thread is pinned: it would wait
    /// for itself. Not for a grace period for which a writer has waited in vain.
    pub(super) fn await_reclaim(&self, part: &Part<K, V>, mut retired: u64) {
        let most = most_unfreed(self.max_capacity());
        let parts = self.parts.len() as u64;
        // Others may have freed what was retired since. If there are too many in the cache, a part
        // has more than its share of them, whose writers wait.
        let is_over = |retired: u64| {
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
    pub(super) fn freed(&self) -> u64 {
        freed(&self.freed)
    }
}

/// Counts items as freed, after their destructors have run.
pub(crate) fn add_freed(count: &AtomicU64, items: usize) {
    // Release, partner: the acquire in `freed`.
    count.fetch_add(items as u64, Ordering::Release);
}

/// How many items are counted as freed.
pub(crate) fn freed(count: &AtomicU64) -> u64 {
    // Acquire, partner: the release in `add_freed`.
    count.load(Ordering::Acquire)
}

#[cfg(all(test, not(wheelhouse_loom)))]
mod tests;
