//! A shard without its lock, and a writer's look-up in it.

use super::table::{Seen, Table, TableState};
use crate::buffer::Batch;
use crate::load::table::Loads;
use crate::node::{Columns, Emptied, NodePtr, Slab};
use crate::process::Process;
use crate::reclaim::Pin;
use crate::sync::{AtomicU64, Ordering, ShortMutex, add_alone};

/// A shard that is not locked.
#[repr(align(128))]
pub(crate) struct ShardCell<K, V> {
    pub(super) table: Table<K, V>,
    pub(super) locked: ShortMutex<Locked<K, V>>,
    pub(super) totals: Totals,
    pub(super) process: Process,
}

/// The part of a shard that its lock guards.
pub(super) struct Locked<K, V> {
    pub(super) state: TableState<K, V>,
    pub(super) batch: Batch<K, V>,
    pub(super) slab: Slab<K, V>,
    /// The current loads of keys of this shard.
    pub(super) loads: Loads<K, V>,
    pub(super) number: u32,
}

/// The totals of a shard, for callers without its lock. Stored on the cache line of the lock, which
/// each writer writes anyway, and not on a line that readers read.
pub(super) struct Totals {
    pub(super) entries: AtomicU64,
    pub(super) weight: AtomicU64,
    /// How many loads are listed. If there are none, the removal of an absent key takes no lock;
    /// see [`ShardCell::may_load`].
    pub(super) loads: AtomicU64,
}

impl Totals {
    /// For the holder of the shard's lock.
    #[inline]
    pub(super) fn add(&self, weight: u32) {
        add_alone(&self.entries, 1);
        add_alone(&self.weight, weight.into());
    }

    /// As [`add`](Self::add).
    #[inline]
    pub(super) fn subtract(&self, weight: u32) {
        add_alone(&self.entries, 1_u64.wrapping_neg());
        add_alone(&self.weight, u64::from(weight).wrapping_neg());
    }

    /// As [`add`](Self::add).
    #[inline]
    pub(super) fn reweigh(&self, old: u32, new: u32) {
        add_alone(&self.weight, u64::from(new).wrapping_sub(old.into()));
    }
}

impl<K, V> ShardCell<K, V> {
    /// The shard of this number, with room for `capacity` entries.
    pub(super) fn new(number: u32, capacity: usize, columns: Columns) -> Self {
        let (table, state) = Table::new(capacity);
        Self {
            table,
            locked: ShortMutex::new(Locked {
                state,
                batch: Batch::new(),
                slab: Slab::of_shard(number, columns),
                loads: Loads::new(),
                number,
            }),
            totals: Totals {
                entries: AtomicU64::new(0),
                weight: AtomicU64::new(0),
                loads: AtomicU64::new(0),
            },
            process: Process::current(),
        }
    }

    /// Prefetches the group of a hash.
    #[inline]
    pub(crate) fn prefetch(&self, hash: u64) {
        self.table.prefetch(hash);
    }

    /// The look-up before a write; see the module docs. `matches` compares keys.
    #[inline]
    pub(crate) fn probe<'a>(
        &'a self,
        hash: u64,
        pin: &'a Pin,
        mut matches: impl FnMut(NodePtr<K, V>) -> bool,
    ) -> Probe<'a, K, V> {
        let mut others = Vec::new();
        let (found, seen) = self.table.find(hash, pin, |node| {
            if matches(node) {
                return true;
            }
            // After the keys, since the hash stands in the side part of the node.
            if node.hash() == hash {
                others.push(node);
            }
            false
        });
        Probe {
            found,
            others,
            seen,
            cell: self,
        }
    }

    /// Takes emptied slots of this shard back.
    pub(super) fn take_back(&self, emptied: Emptied<K, V>) {
        let vacated = self.locked.lock().slab.take_back(emptied);
        // The lock is released by now.
        drop(vacated);
    }

    /// Empties the shard for its last owner, and gives every node in it to `free`.
    pub(super) fn take_apart(&mut self, free: impl FnMut(NodePtr<K, V>)) {
        let state = &mut self.locked.get_mut().state;
        self.table.take_apart(state, free);
        self.totals.entries.store(0, Ordering::Relaxed);
        self.totals.weight.store(0, Ordering::Relaxed);
    }
}

/// The result of a writer's look-up without a lock.
pub(crate) struct Probe<'a, K, V> {
    /// The key's node.
    pub(crate) found: Option<NodePtr<K, V>>,
    /// Nodes of the same full hash and another key, in the order in which the look-up met them.
    others: Vec<NodePtr<K, V>>,
    pub(super) seen: Seen<'a, K, V>,
    pub(super) cell: &'a ShardCell<K, V>,
}

impl<K, V> Probe<'_, K, V> {
    /// Whether the look-up compared this node. `next` is where to look first, 0 at the beginning.
    /// The caller mostly asks in the order in which the look-up met the nodes, so each is found at
    /// once, however many collide.
    pub(super) fn knows(&self, node: NodePtr<K, V>, next: &mut usize) -> bool {
        if self.others.get(*next) != Some(&node) {
            let Some(at) = self.others.iter().position(|&other| other == node) else {
                return false;
            };
            *next = at;
        }
        *next += 1;
        true
    }
}
