//! The concurrent map: shards, each with a table for readers and a lock for writers.
//!
//! # How it works
//!
//! Three parts of a key's hash choose the shard, the group and the tag. Look-ups take no lock. A
//! writer works in two steps, so that no user code (`Eq`, `Expiry`) runs under a shard's lock.
//! First [`ShardCell::probe`] finds the key's node without a lock, and notes every node of the same
//! full hash whose key it had to compare. Then, under the lock, [`Shard::confirm`] confirms by
//! addresses and hashes alone that nothing relevant has changed. If something has changed, the
//! writer starts over (`operations/transact.rs`).
//!
//! | file | what it has |
//! |---|---|
//! | this one | [`Map`]: finds the shard of a hash; [`Garbage`]: what left the map |
//! | `shard` | [`ShardCell`]: a shard without its lock; [`Shard`]: a shard under its lock |
//! | `table/` | a shard's hash table, for readers and for the holder of the lock |
//!
//! Every change goes through [`Shard`], which pushes the event for the pass before it releases the
//! lock; `shard` says which change leaves none.
//!
//! # Invariants
//!
//! 1. A change of a shard's table and the push of its event happen under one hold of the shard's
//!    lock.
//! 2. While no thread holds the shard's lock, a published node is InMap exactly if it stands in the
//!    table.
//! 3. A load is registered under the shard's lock, before the program's code runs for it; and each
//!    removal takes that lock, also that of an absent key. So if a program changes the source of a
//!    value and then removes the key, either the removal sees the load, or the load reads the
//!    changed source.

// The invariants of this module: `checks/map.rs`, at the root of the repository.
#[cfg(any(test, fuzzing))]
#[path = "../../checks/map.rs"]
mod check;
mod shard;
mod table;

use crate::node::{Columns, EntryPtr, NodePtr, Refused};
use crate::reclaim::Pin;
#[cfg(fuzzing)]
pub(crate) use shard::Probe;
pub(crate) use shard::{Batch, Confirmed, EventKind, News, Occupied, Shard, ShardCell, WriteEvent};
use table::END;
pub(crate) use table::{Look, MOST_PER_SHARD, TableMemory};

/// The map. It compares keys only outside of locks.
pub(crate) struct Map<K, V> {
    shards: Box<[ShardCell<K, V>]>,
    /// Whether nodes have weights; else each weighs 1.
    weighs: bool,
}

/// Where a visit of a map stands, which goes from group to group. It meets a node that stays in the
/// map during the visit exactly once.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Walk {
    pub(crate) shard: usize,
    /// The position in that shard; 0 at its beginning.
    pub(crate) position: u32,
}

impl Walk {
    /// One that meets nothing more.
    pub(crate) const ENDED: Self = Self {
        shard: usize::MAX,
        position: 0,
    };
}

impl<K, V> Map<K, V> {
    /// `shards`, a power of two up to 1024, sharing room for `capacity` entries. Their nodes have
    /// these columns. An error if the allocator refuses the room.
    pub(crate) fn new(shards: usize, capacity: usize, columns: Columns) -> Result<Self, Refused> {
        debug_assert!(shards.is_power_of_two() && shards <= 1024);
        let capacity = capacity.div_ceil(shards);
        let mut cells = Vec::with_capacity(shards);
        for number in 0..shards as u32 {
            match ShardCell::new(number, capacity, columns) {
                Ok(cell) => cells.push(cell),
                Err(refused) => {
                    // A map frees its tables.
                    drop(Self::of(cells, columns.weight));
                    return Err(refused);
                }
            }
        }
        Ok(Self::of(cells, columns.weight))
    }

    fn of(cells: Vec<ShardCell<K, V>>, weighs: bool) -> Self {
        Self {
            shards: cells.into(),
            weighs,
        }
    }

    /// Bytes for each entry of a map that has many: an average over all sizes of the table. Pools
    /// grow by an eighth, large ones by less, so a sixteenth of the slots is taken to be free.
    pub(crate) fn memory_per_entry(&self) -> f64 {
        table::BYTES_PER_ENTRY + self.shards[0].bytes_per_slot() * (1.0 + 1.0 / 16.0)
    }

    pub(crate) fn shards(&self) -> usize {
        self.shards.len()
    }

    /// Which shard a hash belongs to: bits that neither the group (the low 32) nor the tag (the
    /// high 16) uses.
    #[inline]
    pub(crate) fn shard_of(&self, hash: u64) -> usize {
        (hash >> 32) as usize & (self.shards.len() - 1)
    }

    /// The node with this hash's tag that `matches` accepts. No lock, no shared write.
    #[inline]
    pub(crate) fn find(
        &self,
        hash: u64,
        pin: &Pin,
        matches: impl FnMut(NodePtr<K, V>) -> bool,
    ) -> Option<NodePtr<K, V>> {
        self.cell(hash).table().find(hash, pin, matches).0
    }

    /// Looks once for the node with this hash's tag that `matches` accepts; see `Table::look`.
    #[inline(always)]
    pub(crate) fn look(
        &self,
        hash: u64,
        pin: &Pin,
        matches: impl FnMut(NodePtr<K, V>) -> bool,
    ) -> Look<NodePtr<K, V>> {
        self.cell(hash).table().look(hash, pin, matches).0
    }

    /// The shard of a hash, for a call that goes to it more than once.
    #[inline]
    pub(crate) fn cell(&self, hash: u64) -> &ShardCell<K, V> {
        &self.shards[self.shard_of(hash)]
    }

    /// Locks the shard of a hash.
    #[inline]
    pub(crate) fn lock(&self, hash: u64) -> Shard<'_, K, V> {
        self.lock_shard(self.shard_of(hash))
    }

    #[inline]
    pub(crate) fn lock_shard(&self, shard: usize) -> Shard<'_, K, V> {
        self.shards[shard].lock()
    }

    /// Gives the nodes of the next group of a visit; false, and none, at its end.
    ///
    /// A caller without the lock needs the pin.
    pub(crate) fn next_group(
        &self,
        walk: &mut Walk,
        _pin: &Pin,
        out: &mut Vec<NodePtr<K, V>>,
    ) -> bool {
        out.clear();
        let Some(cell) = self.shards.get(walk.shard) else {
            return false;
        };
        let next = cell.table().collect(walk.position, out);
        // The next shard begins at 0, which is what the end is cut to.
        walk.position = next as u32;
        walk.shard += usize::from(next == END);
        true
    }

    /// How many nodes are in the map. Exact while no call changes the map; else off by the changes
    /// that other threads make meanwhile. Takes no lock.
    pub(crate) fn len(&self) -> u64 {
        self.shards.iter().map(ShardCell::entries).sum()
    }

    /// How many units the table with the most of them has yet to move; 0 if no table is between two
    /// arrays. As exact as [`len`](Self::len).
    pub(crate) fn units_left(&self) -> usize {
        let left = self.shards.iter().map(|cell| cell.table().units_left());
        left.max().unwrap_or(0) as usize
    }

    /// The sum of the weights of the nodes in the map; as exact as [`len`](Self::len).
    pub(crate) fn weight(&self) -> u64 {
        if self.weighs {
            self.shards.iter().map(ShardCell::weight).sum()
        } else {
            self.len()
        }
    }

    /// Empties the map for its last owner, and gives every node in it to `free`.
    pub(crate) fn take_apart(&mut self, mut free: impl FnMut(NodePtr<K, V>)) {
        for cell in &mut self.shards {
            cell.take_apart(&mut free);
        }
    }
}

impl<K, V> Drop for Map<K, V> {
    fn drop(&mut self) {
        // The owner of the nodes has taken them out before; this frees the memory of the tables.
        self.take_apart(|_| ());
    }
}

/// What left one shard of the map and waits to be freed.
///
/// Nodes are destroyed outside of every lock, since their destructors are user code. Their slots
/// then go back to the slab of the shard, all of them under one hold of its lock.
pub(crate) struct Garbage<K, V> {
    shard: usize,
    nodes: Vec<NodePtr<K, V>>,
    /// The entries that these nodes were the last ones of.
    entries: Vec<EntryPtr<K, V>>,
    tables: Vec<TableMemory<K, V>>,
}

/// At most so many emptied lists wait in a shard to be filled again.
const MOST_EMPTIED: usize = 4;

/// A node is prefetched this many nodes before it is destroyed.
const PREFETCH_DISTANCE: usize = 8;

impl<K, V> Garbage<K, V> {
    /// Whether freeing runs the user's destructors, which may panic.
    pub(crate) const RUNS_USER_CODE: bool =
        std::mem::needs_drop::<K>() || std::mem::needs_drop::<V>();

    /// Nothing yet, of this shard.
    pub(crate) fn of_shard(shard: usize) -> Self {
        Self {
            shard,
            nodes: Vec::new(),
            entries: Vec::new(),
            tables: Vec::new(),
        }
    }

    /// Nothing yet, of the same shard, with as much room.
    pub(crate) fn alike(&self) -> Self {
        Self {
            shard: self.shard,
            nodes: Vec::with_capacity(self.nodes.capacity()),
            entries: Vec::with_capacity(self.entries.capacity()),
            tables: Vec::new(),
        }
    }

    pub(crate) fn shard(&self) -> usize {
        self.shard
    }

    /// Makes this garbage, of which nothing is left, that of another shard.
    pub(crate) fn move_to(&mut self, shard: usize) {
        debug_assert_eq!(self.len(), 0, "not freed yet");
        self.shard = shard;
    }

    /// How many nodes and pieces of a table there are.
    #[inline]
    pub(crate) fn len(&self) -> usize {
        self.nodes.len() + self.tables.len()
    }

    /// Takes a node that another one has succeeded, and does not look at it.
    #[inline]
    pub(crate) fn add(&mut self, node: NodePtr<K, V>) {
        debug_assert_eq!(node.shard(), self.shard);
        self.nodes.push(node);
    }

    /// Takes the last node of an entry, and that entry.
    #[inline]
    pub(crate) fn add_with_entry(&mut self, node: NodePtr<K, V>) {
        self.add(node);
        self.entries.push(node.entry());
    }

    /// Takes the nodes of events, all of which are `Succeeded`.
    pub(crate) fn add_all(&mut self, events: &[WriteEvent<K, V>]) {
        self.nodes.extend(events.iter().map(|event| event.node()));
    }

    pub(crate) fn add_table(&mut self, memory: TableMemory<K, V>) {
        self.tables.push(memory);
    }

    /// Where its nodes are noted.
    #[cfg(test)]
    pub(crate) fn place(&self) -> *const NodePtr<K, V> {
        self.nodes.as_ptr()
    }

    /// For how many nodes and entries it keeps room.
    #[cfg(test)]
    pub(crate) fn room(&self) -> usize {
        self.nodes.capacity() + self.entries.capacity()
    }

    /// The number of nodes, and of groups of tables.
    #[cfg(test)]
    pub(crate) fn held(&self) -> usize {
        let groups = self.tables.iter().map(TableMemory::groups);
        self.nodes.len() + groups.sum::<usize>()
    }

    /// Runs the destructors of all nodes, and gives the memory back: that of nodes and entries to
    /// their shard.
    ///
    /// # Safety
    ///
    /// No thread can reach any of it any more: nodes and entries by node 1 and entry 1, memory of a
    /// table by table 4. They are of this map (freeing 4).
    #[allow(unsafe_code)]
    pub(crate) unsafe fn free(mut self, map: &Map<K, V>) {
        if Self::RUNS_USER_CODE {
            // They have mostly left the processor's caches, so their misses must overlap.
            for node in self.nodes.iter().take(PREFETCH_DISTANCE) {
                node.prefetch_hot();
            }
            for (at, node) in self.nodes.iter().enumerate() {
                if let Some(ahead) = self.nodes.get(at + PREFETCH_DISTANCE) {
                    ahead.prefetch_hot();
                }
                // SAFETY: node 1 by the caller's promise.
                unsafe { node.destroy() };
            }
        }
        for memory in self.tables.drain(..) {
            // SAFETY: the caller's promise is that of `TableMemory::free` (table 4).
            unsafe { memory.free() };
        }
        let mut locked = map.shards[self.shard].locked.lock();
        // SAFETY: the caller's promise; destroyed, where there was anything to destroy.
        let vacated = unsafe { locked.slab.take_back(&self.nodes, &self.entries) };
        self.nodes.clear();
        self.entries.clear();
        // The next pass over the shard fills it again: allocators are slow where threads free what
        // others have allocated.
        let mut rest = None;
        if locked.emptied.len() < MOST_EMPTIED {
            locked.emptied.push(self);
        } else {
            rest = Some(self);
        }
        drop(locked);
        drop((vacated, rest));
    }
}
