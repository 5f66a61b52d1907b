//! The concurrent map: shards, each with a table for readers and a lock for writers.
//!
//! # How it works
//!
//! Three parts of a key's hash choose the shard, the bucket and the tag. Look-ups take no lock. A
//! writer works in two steps, so that no user code (`Eq`, `Expiry`) runs under a shard's lock.
//! First [`Map::probe`] finds the key's node without a lock, and notes every node of the same full
//! hash whose key it had to compare. Then, under the lock, [`Shard::revalidate`] confirms by
//! addresses and hashes alone that nothing relevant has changed. If something has changed, the
//! writer starts over.
//!
//! Every change goes through [`Shard`], which pushes the matching [`WriteEvent`] before it releases
//! the lock.
//!
//! # Invariants
//!
//! 1. A change of a shard's table and the push of its event happen under one hold of the shard's
//!    lock.
//! 2. A node is Live exactly while it stands in the table.
//!
//! The invariants of the table itself are in `table`.

mod array;
mod bucket;
mod garbage;
mod loads;
mod table;
mod tags;

use crate::buffer::{Batch, WriteEvent};
use crate::listener::RemovalCause;
use crate::load::Loads;
use crate::node::{Columns, Life, NewNode, NodePtr, Slab, Times};
use crate::reclaim::Pin;
use crate::sync::{AtomicU64, Ordering, ShortMutex, ShortMutexGuard};
pub(crate) use garbage::{Garbage, ReturningSlots};
use table::{Home, Place, Seen, Table, TableState};
pub(crate) use table::{Look, TablePart};

/// The position after the last one of a visit; see [`Map::collect`].
pub(crate) const END: u64 = 1 << 32;

/// The map. It compares keys only outside of locks.
pub(crate) struct Map<K, V> {
    shards: Box<[ShardCell<K, V>]>,
}

/// A shard that is not locked.
#[repr(align(128))]
pub(crate) struct ShardCell<K, V> {
    table: Table<K, V>,
    locked: ShortMutex<Locked<K, V>>,
    totals: Totals,
}

/// What stands in a shard, for callers without its lock. Beside the lock, which each writer writes
/// anyway; not beside what readers read.
struct Totals {
    entries: AtomicU64,
    weight: AtomicU64,
    /// Loads that are listed, for removals of absent keys, which take no lock otherwise; see
    /// [`ShardCell::may_load`].
    loads: AtomicU64,
}

impl Totals {
    /// For the holder of the shard's lock. Relaxed: a caller learns nothing but the number from it.
    #[inline]
    fn add(&self, weight: u32) {
        let entries = self.entries.load(Ordering::Relaxed);
        self.entries.store(entries + 1, Ordering::Relaxed);
        let known = self.weight.load(Ordering::Relaxed);
        self.weight
            .store(known + u64::from(weight), Ordering::Relaxed);
    }

    /// As [`add`](Self::add).
    #[inline]
    fn subtract(&self, weight: u32) {
        let entries = self.entries.load(Ordering::Relaxed);
        self.entries.store(entries - 1, Ordering::Relaxed);
        let known = self.weight.load(Ordering::Relaxed);
        self.weight
            .store(known - u64::from(weight), Ordering::Relaxed);
    }

    /// As [`add`](Self::add).
    #[inline]
    fn reweigh(&self, old: u32, new: u32) {
        let known = self.weight.load(Ordering::Relaxed);
        let weight = known + u64::from(new) - u64::from(old);
        self.weight.store(weight, Ordering::Relaxed);
    }
}

impl<K, V> ShardCell<K, V> {
    /// Prefetches the bucket of a hash.
    #[inline]
    pub(crate) fn prefetch(&self, hash: u64) {
        self.table.prefetch(hash);
    }

    /// The look-up before a write; see the module docs. `matches` compares keys.
    // Always inlined: else the answer would go through the stack.
    #[inline(always)]
    pub(crate) fn probe<'a>(
        &'a self,
        hash: u64,
        pin: &'a Pin,
        mut matches: impl FnMut(NodePtr<K, V>) -> bool,
    ) -> Probe<'a, K, V> {
        let mut others: Others<K, V> = None;
        let (found, seen) = self.table.find(hash, pin, |node| {
            if matches(node) {
                return true;
            }
            // After the keys, since the hash stands in the side part of the node.
            if node.hash() == hash {
                let known =
                    others.get_or_insert_with(|| Box::new(Collisions { nodes: Vec::new() }));
                known.nodes.push(node);
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

    #[inline]
    fn lock(&self) -> Shard<'_, K, V> {
        Shard {
            table: &self.table,
            totals: &self.totals,
            locked: self.locked.lock(),
        }
    }
}

struct Locked<K, V> {
    state: TableState<K, V>,
    batch: Batch<K, V>,
    slab: Slab<K, V>,
    /// The current loads of keys of this shard.
    loads: Loads<K, V>,
    number: u32,
}

/// The result of a writer's look-up without a lock.
pub(crate) struct Probe<'a, K, V> {
    /// The key's node.
    pub(crate) found: Option<NodePtr<K, V>>,
    others: Others<K, V>,
    seen: Seen<'a, K, V>,
    cell: &'a ShardCell<K, V>,
}

/// Nodes of the same full hash and another key, in the order in which the look-up met them.
// Behind a box, so that an empty one is a single word: each write has one.
type Others<K, V> = Option<Box<Collisions<K, V>>>;

/// A vector, not a list: dropping a long list would take a stack as deep.
struct Collisions<K, V> {
    nodes: Vec<NodePtr<K, V>>,
}

impl<'a, K, V> Probe<'a, K, V> {
    /// Locks the shard that was probed.
    #[inline]
    pub(crate) fn lock(&self) -> Shard<'a, K, V> {
        self.cell.lock()
    }

    /// Whether the look-up compared this node. `next` is where to look first, 0 at the beginning.
    /// The caller mostly asks in the order in which the look-up met the nodes, so each is found at
    /// once, however many collide.
    fn knows(&self, node: NodePtr<K, V>, next: &mut usize) -> bool {
        let Some(known) = &self.others else {
            return false;
        };
        if known.nodes.get(*next) != Some(&node) {
            let Some(at) = known.nodes.iter().position(|&other| other == node) else {
                return false;
            };
            *next = at;
        }
        *next += 1;
        true
    }
}

/// A probe confirmed under the lock.
pub(crate) enum Revalidated<'a, K, V> {
    /// The key is absent; its node would stand here.
    Vacant(Vacant<'a, K, V>),
    /// The node that the probe found is still there.
    Occupied(Occupied<'a, K, V>),
}

/// The bucket for the node of a key that is confirmed to be absent.
pub(crate) struct Vacant<'a, K, V>(Home<'a, K, V>);

/// Where a confirmed node stands: its bucket and its word.
pub(crate) struct Occupied<'a, K, V>(Home<'a, K, V>, Place<'a, K, V>);

/// A shard, locked by a writer.
pub(crate) struct Shard<'a, K, V> {
    table: &'a Table<K, V>,
    totals: &'a Totals,
    locked: ShortMutexGuard<'a, Locked<K, V>>,
}

impl<K, V> Map<K, V> {
    /// `shards`, a power of two up to 1024, sharing room for `capacity` entries.
    /// Their nodes have these columns.
    pub(crate) fn new(shards: usize, capacity: usize, columns: Columns) -> Self {
        debug_assert!(shards.is_power_of_two() && shards <= 1024);
        let cell = |shard| {
            let (table, state) = Table::new(capacity.div_ceil(shards));
            ShardCell {
                table,
                locked: ShortMutex::new(Locked {
                    state,
                    batch: Batch::new(),
                    slab: Slab::of_shard(shard, columns),
                    loads: Loads::new(),
                    number: shard,
                }),
                totals: Totals {
                    entries: AtomicU64::new(0),
                    weight: AtomicU64::new(0),
                    loads: AtomicU64::new(0),
                },
            }
        };
        Self {
            shards: (0..shards as u32).map(cell).collect(),
        }
    }

    pub(crate) fn shards(&self) -> usize {
        self.shards.len()
    }

    /// Which shard a hash belongs to: bits that neither the bucket (the low 32) nor the tag (the
    /// high 16) uses.
    #[inline]
    pub(crate) fn shard_of(&self, hash: u64) -> usize {
        (hash >> 32) as usize & (self.shards.len() - 1)
    }

    /// The node with this hash's tag that `matches` accepts. No lock, no shared write.
    #[inline(always)]
    pub(crate) fn find(
        &self,
        hash: u64,
        pin: &Pin,
        matches: impl FnMut(NodePtr<K, V>) -> bool,
    ) -> Option<NodePtr<K, V>> {
        let (found, _) = self.shards[self.shard_of(hash)]
            .table
            .find(hash, pin, matches);
        found
    }

    /// What one look tells about the node with this hash's tag that `matches` accepts; see
    /// [`Table::look`].
    #[inline(always)]
    pub(crate) fn look(
        &self,
        hash: u64,
        pin: &Pin,
        matches: impl FnMut(NodePtr<K, V>) -> bool,
    ) -> Look<NodePtr<K, V>> {
        // The shard always exists. `get` instead of an index leaves no panic to unwind.
        match self.shards.get(self.shard_of(hash)) {
            Some(shard) => shard.table.look(hash, pin, matches),
            None => Look::Unclear,
        }
    }

    /// The shard of a hash, for a call that goes to it more than once.
    #[inline]
    pub(crate) fn cell(&self, hash: u64) -> &ShardCell<K, V> {
        &self.shards[self.shard_of(hash)]
    }

    /// Prefetches the bucket of a hash.
    pub(crate) fn prefetch(&self, hash: u64) {
        self.cell(hash).prefetch(hash);
    }

    /// Whether `node` is still in the map, by address.
    pub(crate) fn holds(&self, node: NodePtr<K, V>, pin: &Pin) -> bool {
        self.find(node.hash(), pin, |other| other == node).is_some()
    }

    /// The look-up before a write; see [`ShardCell::probe`].
    #[inline(always)]
    pub(crate) fn probe<'a>(
        &'a self,
        hash: u64,
        pin: &'a Pin,
        matches: impl FnMut(NodePtr<K, V>) -> bool,
    ) -> Probe<'a, K, V> {
        self.cell(hash).probe(hash, pin, matches)
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

    /// Gives the live nodes of one bucket of a shard, from `position` on, and returns the position
    /// behind them. A visit of a shard begins at 0 and ends at [`END`]. It meets a node that stays
    /// in the map during the visit exactly once.
    ///
    /// A caller without the lock needs the pin.
    pub(crate) fn collect(
        &self,
        shard: usize,
        position: u32,
        _pin: &Pin,
        out: &mut Vec<NodePtr<K, V>>,
    ) -> u64 {
        self.shards[shard].table.collect(position, out)
    }

    /// How many nodes are in the map. Exact while no call changes the map; else off by the changes
    /// that other threads make meanwhile. Takes no lock.
    pub(crate) fn len(&self) -> u64 {
        let one = |cell: &ShardCell<K, V>| cell.totals.entries.load(Ordering::Relaxed);
        self.shards.iter().map(one).sum()
    }

    /// Whether the table of any shard is between two arrays.
    pub(crate) fn is_resizing(&self) -> bool {
        self.shards.iter().any(|cell| cell.table.is_resizing())
    }

    /// How many units have yet to move in the table that has most of them. Takes the lock of each
    /// shard that has any.
    pub(crate) fn units_left(&self) -> u64 {
        let resizing = self.shards.iter().filter(|cell| cell.table.is_resizing());
        let one = |cell: &ShardCell<K, V>| cell.table.units_left(&mut cell.locked.lock().state);
        resizing.map(one).max().unwrap_or(0)
    }

    /// What the nodes in the map weigh together; as exact as [`len`](Self::len).
    pub(crate) fn weight(&self) -> u64 {
        let one = |cell: &ShardCell<K, V>| cell.totals.weight.load(Ordering::Relaxed);
        self.shards.iter().map(one).sum()
    }

    /// A place to gather emptied slots in.
    pub(crate) fn returning(&self) -> ReturningSlots<K, V> {
        ReturningSlots::new(self.shards.len())
    }

    /// Gives emptied slots back to the shards they came from. Takes the lock of each such shard,
    /// for a few instructions for each slot.
    pub(crate) fn take_back(&self, returning: &mut ReturningSlots<K, V>) {
        for (cell, emptied) in self.shards.iter().zip(returning.take()) {
            if !emptied.is_empty() {
                let vacated = cell.locked.lock().slab.take_back(emptied);
                // The lock is released by now.
                drop(vacated);
            }
        }
    }

    /// Empties the map for its last owner, and gives every node in it to `free`.
    pub(crate) fn take_apart(&mut self, mut free: impl FnMut(NodePtr<K, V>)) {
        for cell in &mut self.shards {
            let locked = cell.locked.get_mut();
            cell.table.take_apart(&mut locked.state, &mut free);
            cell.totals.entries.store(0, Ordering::Relaxed);
            cell.totals.weight.store(0, Ordering::Relaxed);
        }
    }

    /// Asserts the invariants of every table.
    #[cfg(any(test, fuzzing))]
    pub(crate) fn check_invariants(&self) {
        for (number, cell) in self.shards.iter().enumerate() {
            let mut locked = cell.locked.lock();
            cell.table.check_invariants(&mut locked.state);
            locked.slab.check_invariants();
            let mut nodes = Vec::new();
            let (mut at, mut weight) = (0, 0);
            while at < END {
                at = cell.table.collect(at as u32, &mut nodes);
                for node in &nodes {
                    weight += u64::from(node.weight());
                    assert_eq!(
                        self.shard_of(node.hash()),
                        number,
                        "a node in a wrong shard"
                    );
                }
            }
            let counted = cell.totals.entries.load(Ordering::Relaxed);
            assert_eq!(
                counted,
                cell.table.count(&locked.state),
                "entries of shard {number}"
            );
            let weighed = cell.totals.weight.load(Ordering::Relaxed);
            assert_eq!(weighed, weight, "weight of shard {number}");
        }
    }
}

impl<K, V> Drop for Map<K, V> {
    fn drop(&mut self) {
        // The owner of the nodes has taken them out before; this frees the memory of the tables.
        self.take_apart(|_| ());
    }
}

impl<K, V> std::fmt::Debug for Map<K, V> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Map")
            .field("shards", &self.shards.len())
            .finish()
    }
}

impl<'a, K, V> Shard<'a, K, V> {
    /// Confirms a probe of this shard; `None` if the key may have come or gone since.
    // Always inlined: else the whole answer would go through the stack.
    #[inline(always)]
    pub(crate) fn revalidate(
        &mut self,
        hash: u64,
        probe: &Probe<'a, K, V>,
    ) -> Option<Revalidated<'a, K, V>> {
        let Some(found) = probe.found else {
            return self.revalidate_absent(hash, probe).map(Revalidated::Vacant);
        };
        let state = &mut self.locked.state;
        match self.table.still_there(state, hash, found, &probe.seen) {
            Some((home, place)) => Some(Revalidated::Occupied(Occupied(home, place))),
            None => self
                .revalidate_moved(hash, found)
                .map(Revalidated::Occupied),
        }
    }

    #[cold]
    #[inline(never)]
    fn revalidate_moved(&mut self, hash: u64, found: NodePtr<K, V>) -> Option<Occupied<'a, K, V>> {
        self.find_node(hash, found)
    }

    #[inline]
    fn revalidate_absent(
        &mut self,
        hash: u64,
        probe: &Probe<'a, K, V>,
    ) -> Option<Vacant<'a, K, V>> {
        let state = &mut self.locked.state;
        let home = self.table.home_seen(state, hash, &probe.seen);
        let mut next = 0;
        let unknown = |node: NodePtr<K, V>| node.hash() == hash && !probe.knows(node, &mut next);
        match Table::locate(state, &home, hash, unknown) {
            Some(_) => None,
            None => Some(Vacant(home)),
        }
    }

    /// Finds a node of this hash by address.
    #[inline]
    pub(crate) fn find_node(
        &mut self,
        hash: u64,
        node: NodePtr<K, V>,
    ) -> Option<Occupied<'a, K, V>> {
        let state = &mut self.locked.state;
        let home = self.table.home(state, hash);
        let place = Table::locate(state, &home, hash, |other| other == node)?;
        Some(Occupied(home, place))
    }

    /// Adds a node whose key is confirmed to be absent.
    // Always inlined, as `replace`.
    #[inline(always)]
    pub(crate) fn add(
        &mut self,
        vacancy: Vacant<'a, K, V>,
        new: NewNode<K, V>,
        times: Times,
    ) -> NodePtr<K, V> {
        let (hash, weight) = (new.hash(), new.weight());
        self.table.make_room(&mut self.locked.state);
        let new = self.locked.slab.place(new, times);
        (self.table).insert(&mut self.locked.state, vacancy.0, new, hash);
        self.totals.add(weight);
        self.locked.batch.push(WriteEvent::Added(new));
        new
    }

    /// Adds a node whose key is known to be absent.
    #[cfg(all(test, wheelhouse_loom))]
    pub(crate) fn add_absent(&mut self, new: NewNode<K, V>, times: Times) -> NodePtr<K, V> {
        let home = self.table.home(&mut self.locked.state, new.hash());
        self.add(Vacant(home), new, times)
    }

    /// Puts `new` where `old` stands; the value of `old` leaves for `cause`.
    // Always inlined: else the arguments would go through the stack.
    #[inline(always)]
    pub(crate) fn replace(
        &mut self,
        spot: Occupied<'a, K, V>,
        old: NodePtr<K, V>,
        new: NewNode<K, V>,
        times: Times,
        cause: RemovalCause,
    ) -> NodePtr<K, V> {
        let (hash, weight) = (new.hash(), new.weight());
        let new = self.locked.slab.succeed(old, new, times);
        // Else the first read after each write would be recorded, as if the key had not been read
        // for long.
        new.set_seen(old.seen());
        self.table.replace(spot.1, new, hash);
        // Without a weigher both weigh 1.
        if self.locked.slab.has_weights() {
            self.totals.reweigh(old.weight(), weight);
        }
        old.set_life(Life::Removed);
        self.locked
            .batch
            .push(WriteEvent::Replaced { old, new, cause });
        new
    }

    /// Takes a node out for `cause`; an event tells the pass.
    pub(crate) fn remove(
        &mut self,
        spot: Occupied<'a, K, V>,
        node: NodePtr<K, V>,
        cause: RemovalCause,
    ) {
        self.take(spot, node);
        self.locked.batch.push(WriteEvent::Removed(node, cause));
    }

    /// Takes a node out for the pass itself, without an event.
    pub(crate) fn take(&mut self, spot: Occupied<'a, K, V>, node: NodePtr<K, V>) {
        (self.table).remove(&mut self.locked.state, spot.0, spot.1);
        self.totals.subtract(self.locked.slab.weight_of(node));
        node.set_life(Life::Removed);
    }

    /// Hands a node that was never added to the pass, so that it is notified with `cause`.
    #[cold]
    #[inline(never)]
    pub(crate) fn refuse(&mut self, new: NewNode<K, V>, cause: RemovalCause) {
        let node = self.locked.slab.place(new, Times::NONE);
        node.set_life(Life::Removed);
        self.locked.batch.push(WriteEvent::Removed(node, cause));
    }

    /// Moves both deadlines of a node in the map, its own and the wanted one. Returns false, and
    /// changes nothing, if the wanted one is no longer the one that was `judged`.
    pub(crate) fn move_deadline(
        &mut self,
        node: NodePtr<K, V>,
        judged: u64,
        own: u64,
        wanted: u64,
    ) -> bool {
        debug_assert_eq!(node.life(), Life::Live);
        // The own deadline first: a reader that sees the new wanted deadline must not see the
        // former own one. Only holders of this lock write it.
        let former = node.own_deadline();
        node.set_own_deadline(own);
        if !node.extend(judged, wanted) {
            node.set_own_deadline(former);
            return false;
        }
        self.locked.batch.push(WriteEvent::Rescheduled(node));
        true
    }

    /// The number of the shard.
    #[inline]
    pub(crate) fn number(&self) -> usize {
        self.locked.number as usize
    }

    /// How many events wait in this shard.
    #[inline]
    pub(crate) fn pending(&self) -> usize {
        self.locked.batch.len()
    }

    /// Whether entries are resizing from one array of the table to another.
    #[inline]
    pub(crate) fn is_resizing(&self) -> bool {
        self.table.is_resizing()
    }

    /// Begins to move the entries to an array of another size, though this one fits.
    #[cfg(all(test, wheelhouse_loom))]
    pub(crate) fn begin_move(&mut self, log: u32) {
        self.table.begin(log);
    }

    /// Moves up to so many units to the other array of the table, if the table is resizing.
    pub(crate) fn resize_step(&mut self, units: usize) {
        self.table.resize_step(&mut self.locked.state, units);
    }

    /// Gives the pass the events and the memory that left the table, in exchange for the empty
    /// vectors that it brings.
    pub(crate) fn swap_batch(&mut self, batch: &mut Batch<K, V>, parts: &mut Vec<TablePart<K, V>>) {
        debug_assert!(batch.is_empty());
        std::mem::swap(&mut self.locked.batch, batch);
        parts.append(&mut self.locked.state.retired);
    }
}

impl<K, V> std::fmt::Debug for Shard<'_, K, V> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Shard")
            .field("pending", &self.pending())
            .finish()
    }
}
