//! The memory of nodes and entries. What look-ups read lies together, apart from the rest.
//!
//! # How it works
//!
//! ```text
//! chunk of nodes, aligned to its size                       columns, behind the region's chunks
//! ┌────────┬───────┬───────┬─ … ─┬────────┬────────┬─ … ─┐  ┌───────────────┬─ … ┬─────────┬─ … ┐
//! │ header │ hot 0 │ hot 1 │     │ side 0 │ side 1 │     │  │ own deadlines │    │ weights │    │
//! └────────┴───────┴───────┴─ … ─┴────────┴────────┴─ … ─┘  └───────────────┴─ … ┴─────────┴─ … ┘
//! chunk of entries
//! ┌────────┬─────────┬─────────┬─ …
//! │ region │ entry 0 │ entry 1 │
//! └────────┴─────────┴─────────┴─ …
//! ```
//!
//! A pointer to a node points to its hot part. Clearing the low bits of the address gives the
//! chunk; the other bits give the number of the node, and so the address of its side part. This
//! takes a few instructions and no memory access, so both parts can be fetched at once. Fields that
//! only some caches need are stored in columns, to which the header of the chunk points.
//!
//! A slab is two [`Pool`]s, of nodes and of entries, for one shard. It is used under that shard's
//! lock: a writer takes slots while it holds the lock anyway, and slots come back many at a time.
//!
//! # Invariants
//!
//! 1. A slot for a node holds an initialised node exactly while it is taken; likewise a slot for an
//!    entry.
//! 2. The header of a chunk is written before its first slot is handed out, and never again (pool
//!    4).
//! 3. The columns that a call passes are those that the slab was made with: a shard keeps them
//!    beside its table.
//!
//! # Cost
//!
//! | for each entry of `u64 → u64` | bytes |
//! |---|---|
//! | hot part: deadline 8, address of the entry 6, state and stamp 2, key 8, value 8 | 32 |
//! | side part: hash 8, time of writing 8 | 16 |
//! | entry: address of the node 8, timer links 12, numbers of bucket and queue, mark, uses 4 | 24 |
//! | table (`map/table`), 12.8 to 25.6, with overflow groups | 18 on average |
//! | headers of chunks 2, free slots 4 | 6 on average |
//! | *in a bounded cache*: queue links 12, weight 4 | 16 |
//! | *with the adaptive policy*: ghosts of removed keys | 8 |
//! | *with a weigher*; *with the own deadline apart from the wanted one*; *with refresh* | 4; 8; 24 |
//!
//! `Policy::memory_per_entry` returns the sum for any types and settings; `tests/allocations.rs`
//! compares it with what the allocator hands out.
//!
//! # Origin
//!
//! Splitting hot from cold fields: Chilimbi, Davidson and Larus, PLDI 1999.
#![allow(unsafe_code)]

use super::entry::EntryPtr;
use super::hot::{NewNode, Node, Side, Times};
use super::pointer::{Columns, Header, NodePtr, Ptr, entries};
use super::pool::{Pool, Recycled, Region, Shape};
use super::refresh::RefreshMoment;
use crate::contain::AtEnd;
use crate::sync::AtomicU64;
use std::marker::PhantomData;
use std::mem;
use std::ptr::NonNull;

/// The memory of one shard's nodes and entries.
// In this order: what taking recycled slots changes comes first, see `map/shard.rs`.
#[repr(C)]
pub(crate) struct Slab<K, V> {
    recycled_nodes: Recycled,
    recycled_entries: Recycled,
    /// The number of the shard.
    shard: u32,
    nodes: Pool,
    entries: Pool,
    _nodes: PhantomData<Node<K, V>>,
}

// SAFETY: pools own memory, which is plain bytes to them. Nodes in it are reached through
// `NodePtr`, which has its own conditions. A slab drops no node, so it may move between threads
// with any K and V.
unsafe impl<K, V> Send for Slab<K, V> {}

impl<K, V> Slab<K, V> {
    /// A slab without memory.
    pub(crate) fn of_shard(shard: u32, columns: Columns) -> Self {
        Self {
            recycled_nodes: Recycled::new(),
            recycled_entries: Recycled::new(),
            shard,
            nodes: Pool::new(Node::<K, V>::shape(columns)),
            entries: Pool::new(entries(columns)),
            _nodes: PhantomData,
        }
    }

    /// Bytes of chunks for each node with its entry, if all their slots are taken.
    pub(crate) fn bytes_per_slot(columns: Columns) -> f64 {
        let of = |shape: Shape| (shape.size + shape.beside) as f64 / shape.slots as f64;
        of(Node::<K, V>::shape(columns)) + of(entries(columns))
    }

    /// Makes a node from what its writer has prepared, with an entry of its own.
    // Always inlined: a call would copy both arguments once more.
    #[inline(always)]
    pub(crate) fn create(
        &mut self,
        columns: Columns,
        new: &mut NewNode<K, V>,
        times: Times,
    ) -> NodePtr<K, V> {
        let slot = self.take(columns);
        let entry = match self.recycled_entries.pop() {
            Some(entry) => entry,
            None => self.take_entry(),
        };
        // SAFETY: the slot is free and the caller owns it now; the columns tell which fields
        // entries have (slab 3).
        let entry = unsafe { EntryPtr::make(entry, slot, columns.queue) };
        // SAFETY: the slot is free and the caller owns it now.
        unsafe { Self::write(columns, slot, new, times, entry) }
    }

    /// Makes a node that succeeds to the entry of `old`, a node of this slab.
    #[inline(always)]
    pub(crate) fn succeed(
        &mut self,
        columns: Columns,
        old: NodePtr<K, V>,
        new: &mut NewNode<K, V>,
        times: Times,
    ) -> NodePtr<K, V> {
        let slot = self.take(columns);
        // SAFETY: see `create`.
        unsafe { Self::write(columns, slot, new, times, old.entry()) }
    }

    /// Makes room for one node and its entry: then [`create`](Self::create) and
    /// [`succeed`](Self::succeed) need no new region.
    pub(crate) fn reserve(&mut self, columns: Columns) {
        let shard = self.shard;
        let open = move |chunk, beside| Self::open(shard, columns, chunk, beside);
        self.entries.reserve(&self.recycled_entries, |_, _| ());
        self.nodes.reserve(&self.recycled_nodes, open);
    }

    /// Takes a slot for the entry of a node. If a panic refuses memory for it, the node's own slot,
    /// which was taken just before, comes back.
    #[cold]
    #[inline(never)]
    fn take_entry(&mut self) -> NonNull<u8> {
        let without_entry = AtEnd(&mut self.recycled_nodes, |nodes| nodes.undo());
        let entry = self.entries.take(&mut self.recycled_entries, |_, _| ());
        mem::forget(without_entry);
        entry
    }

    #[inline]
    fn take(&mut self, columns: Columns) -> NonNull<Node<K, V>> {
        let shard = self.shard;
        let open = move |chunk, beside| Self::open(shard, columns, chunk, beside);
        self.nodes.take(&mut self.recycled_nodes, open).cast()
    }

    /// Writes the header of a new chunk.
    fn open(shard: u32, columns: Columns, chunk: NonNull<u8>, beside: NonNull<u8>) {
        let (refresh, weight, _) = Node::<K, V>::columns(columns);
        let header = chunk.cast::<Header>().as_ptr();
        // SAFETY: the pool passes a chunk of the shape it was made with, whose first slot follows a
        // header, and with it room for the columns.
        unsafe {
            (&raw mut (*header).shard).write(shard);
            let owns = if columns.own {
                Some(beside.cast())
            } else {
                None
            };
            (&raw mut (*header).owns).write(owns);
            let refreshes = if columns.refresh {
                Some(beside.add(refresh).cast())
            } else {
                None
            };
            (&raw mut (*header).refreshes).write(refreshes);
            let weights = if columns.weight {
                Some(beside.add(weight).cast())
            } else {
                None
            };
            (&raw mut (*header).weights).write(weights);
        }
    }

    /// Writes a node and its columns.
    ///
    /// # Safety
    ///
    /// The slot is of this slab's nodes, and the caller owns it.
    #[inline]
    unsafe fn write(
        columns: Columns,
        slot: NonNull<Node<K, V>>,
        new: &mut NewNode<K, V>,
        times: Times,
        entry: EntryPtr<K, V>,
    ) -> NodePtr<K, V> {
        // SAFETY: the caller's promise; the slot has a cell in every column.
        unsafe {
            let (chunk, number) = Node::locate(slot);
            Node::side(slot).write(Side {
                hash: new.hash,
                written: AtomicU64::new(times.written),
            });
            if columns.own {
                if let Some(owns) = chunk.as_ref().owns {
                    owns.add(number).write(AtomicU64::new(times.own));
                }
            }
            if columns.refresh {
                if let Some(refreshes) = chunk.as_ref().refreshes {
                    refreshes.add(number).write(RefreshMoment::new());
                }
            }
            if columns.weight {
                if let Some(weights) = chunk.as_ref().weights {
                    weights.add(number).write(new.weight);
                }
            }
            Self::write_node(slot, new, times.deadline, entry);
        }
        Ptr(slot)
    }

    /// Writes the node alone.
    ///
    /// # Safety
    ///
    /// As of [`write`](Self::write).
    // Apart, and not always inlined: without optimization, each caller would keep room on the stack
    // for several copies of the value.
    #[inline]
    unsafe fn write_node(
        slot: NonNull<Node<K, V>>,
        new: &mut NewNode<K, V>,
        deadline: u64,
        entry: EntryPtr<K, V>,
    ) {
        // SAFETY: the caller's promise.
        unsafe { slot.write(Node::new(new.take(), deadline, entry)) };
    }

    /// Takes the slots of nodes and of entries back. Drop the result after the shard's lock was
    /// released.
    ///
    /// # Safety
    ///
    /// Node 1, entry 1: all are of this slab, no code uses them any more, and the content of the
    /// nodes was dropped.
    #[must_use]
    pub(crate) unsafe fn take_back(
        &mut self,
        nodes: &[NodePtr<K, V>],
        entries: &[EntryPtr<K, V>],
    ) -> Vec<Region> {
        let mut vacated = Vec::new();
        let nodes = nodes.iter().map(|node| node.0.cast());
        let entries = entries.iter().map(|entry| entry.0.cast());
        // SAFETY: the caller's promise.
        unsafe {
            self.nodes
                .take_back(&mut self.recycled_nodes, nodes, &mut vacated);
            self.entries
                .take_back(&mut self.recycled_entries, entries, &mut vacated);
        }
        vacated
    }
}

// The invariants of this module: `checks/slab.rs`, at the root of the repository.
#[cfg(any(test, fuzzing))]
#[path = "../../checks/slab.rs"]
mod check;
#[cfg(all(test, not(wheelhouse_loom)))]
mod tests;
