//! The concurrent map: shards, each a table for readers and a lock for writers.
//!
//! # How it works
//!
//! Three parts of a key's hash choose the shard, the bucket and the tag. Look-ups take no lock. A
//! writer works in two steps, so that no user code (`Eq`, `Expiry`) ever runs under a shard's lock:
//! [`Map::probe`] finds the key's node without a lock and notes every node of the same full hash
//! that it had to compare; then, under the lock, [`Shard::revalidate`] confirms by addresses and
//! hashes alone that nothing relevant has changed. If something has, the writer starts over.
//!
//! Every change goes through [`Shard`], which pushes the matching [`WriteEvent`] before it lets the
//! lock go.
//!
//! # Invariants
//!
//! 1. A change of a shard's table and the push of its event happen under one hold of the shard's
//!    lock.
//! 2. A node is Live exactly while it stands in the table.
//!
//! The table's own invariants are in `table`.

mod array;
mod bucket;
mod garbage;
mod table;
mod tags;

use crate::buffer::{Batch, WriteEvent};
use crate::listener::RemovalCause;
use crate::load::{By, Known, Load, Loads};
use crate::node::{Columns, Life, NewNode, NodePtr, Slab, Times};
use crate::reclaim::Pin;
use crate::sync::{AtomicU64, Ordering, ShortMutex, ShortMutexGuard};
pub(crate) use garbage::{Garbage, Returning};
use std::sync::Arc;
use table::{Home, Place, Seen, Table, TableState};
pub(crate) use table::{Look, TablePart};

/// One past the last position of a visit; see [`Map::collect`].
pub(crate) const END: u64 = 1 << 32;

/// The map; `K` is compared outside of locks only.
pub(crate) struct Map<K, V> {
    shards: Box<[Slice<K, V>]>,
}

/// A shard at rest.
#[repr(align(128))]
struct Slice<K, V> {
    table: Table<K, V>,
    locked: ShortMutex<Locked<K, V>>,
    totals: Totals,
}

/// What stands in a shard, for callers without its lock. Beside the lock, which each writer writes
/// anyway; not beside what readers read.
struct Totals {
    entries: AtomicU64,
    weight: AtomicU64,
    /// Loads that are listed, for removals of absent keys, which take no lock otherwise. Relaxed: a
    /// removal has to revoke the loads that began before it, and whatever tells its thread of such
    /// a load has ordered this store before the look.
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

impl<K, V> Slice<K, V> {
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

/// What a look-up without a lock saw of a key.
pub(crate) struct Probe<'a, K, V> {
    /// The key's node.
    pub(crate) found: Option<NodePtr<K, V>>,
    others: Others<K, V>,
    seen: Seen<'a, K, V>,
    slice: &'a Slice<K, V>,
}

/// Nodes of the same hash and another key, in the order in which they were met: none but for full
/// collisions.
// Behind a box, since an empty one is then a single word, and each write has one.
type Others<K, V> = Option<Box<Collisions<K, V>>>;

/// A vector, not a list: dropping a long list would take a stack as deep.
struct Collisions<K, V> {
    nodes: Vec<NodePtr<K, V>>,
}

impl<'a, K, V> Probe<'a, K, V> {
    /// Locks the shard that was probed.
    #[inline]
    pub(crate) fn lock(&self) -> Shard<'a, K, V> {
        self.slice.lock()
    }

    /// Whether the node was compared. `next` is where to look first, 0 at the beginning: nodes are
    /// mostly asked for in the order in which they were met, and however many collide, each is then
    /// found at once.
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
    /// The key is absent, and would stand here.
    Vacant(Vacant<'a, K, V>),
    /// The probe's node is still in its place.
    Occupied(Occupied<'a, K, V>),
}

/// The bucket for a node of a hash that was revalidated as absent.
pub(crate) struct Vacant<'a, K, V>(Home<'a, K, V>);

/// Where a confirmed node stands, and in whose bucket.
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
        let slice = |shard| {
            let (table, state) = Table::new(capacity.div_ceil(shards));
            Slice {
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
            shards: (0..shards as u32).map(slice).collect(),
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
        // There always is one; but where nothing can panic, nothing has to be unwound.
        match self.shards.get(self.shard_of(hash)) {
            Some(shard) => shard.table.look(hash, pin, matches),
            None => Look::Unclear,
        }
    }

    /// Asks the processor for the bucket of a hash.
    pub(crate) fn prefetch(&self, hash: u64) {
        self.shards[self.shard_of(hash)].table.prefetch(hash);
    }

    /// Whether `node` is still the map's, by address.
    pub(crate) fn holds(&self, node: NodePtr<K, V>, pin: &Pin) -> bool {
        self.find(node.hash(), pin, |other| other == node).is_some()
    }

    /// Looks up before a write; see the module docs. `matches` compares keys.
    // Always inlined: the answer would go through the stack.
    #[inline(always)]
    pub(crate) fn probe<'a>(
        &'a self,
        hash: u64,
        pin: &'a Pin,
        mut matches: impl FnMut(NodePtr<K, V>) -> bool,
    ) -> Probe<'a, K, V> {
        let mut others: Others<K, V> = None;
        let slice = &self.shards[self.shard_of(hash)];
        let (found, seen) = slice.table.find(hash, pin, |node| {
            if matches(node) {
                return true;
            }
            // After the keys: the hash is in the node's side part.
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
            slice,
        }
    }

    /// Whether a key of this hash may have a load. No lock.
    #[inline]
    pub(crate) fn may_load(&self, hash: u64) -> bool {
        let slice = &self.shards[self.shard_of(hash)];
        slice.totals.loads.load(Ordering::Relaxed) != 0
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

    /// Live nodes of one bucket of a shard, from `position` on, and the position behind them; a
    /// visit of a shard begins at 0 and ends at [`END`]. A node that stays in the map during the
    /// visit is met exactly once.
    ///
    /// Without the lock it needs the pin.
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
        let one = |slice: &Slice<K, V>| slice.totals.entries.load(Ordering::Relaxed);
        self.shards.iter().map(one).sum()
    }

    /// Whether the table of any shard is between two arrays.
    pub(crate) fn is_resizing(&self) -> bool {
        self.shards.iter().any(|slice| slice.table.is_resizing())
    }

    /// How many units are yet to be moved in the table that has most. Takes the lock of each shard
    /// where there are any.
    pub(crate) fn units_left(&self) -> u64 {
        let resizing = self.shards.iter().filter(|slice| slice.table.is_resizing());
        let one = |slice: &Slice<K, V>| slice.table.units_left(&mut slice.locked.lock().state);
        resizing.map(one).max().unwrap_or(0)
    }

    /// What the nodes in the map weigh together; as exact as [`len`](Self::len).
    pub(crate) fn weight(&self) -> u64 {
        let one = |slice: &Slice<K, V>| slice.totals.weight.load(Ordering::Relaxed);
        self.shards.iter().map(one).sum()
    }

    /// What to gather emptied slots in.
    pub(crate) fn returning(&self) -> Returning<K, V> {
        Returning::new(self.shards.len())
    }

    /// Gives emptied slots back to the shards they came from. Takes the lock of each that is
    /// concerned, for some nanoseconds a slot.
    pub(crate) fn take_back(&self, returning: &mut Returning<K, V>) {
        for (slice, emptied) in self.shards.iter().zip(returning.take()) {
            if !emptied.is_empty() {
                let vacated = slice.locked.lock().slab.take_back(emptied);
                // With the lock released.
                drop(vacated);
            }
        }
    }

    /// Empties the map for its last owner, giving out every node that is in it.
    pub(crate) fn take_apart(&mut self, mut free: impl FnMut(NodePtr<K, V>)) {
        for slice in &mut self.shards {
            let locked = slice.locked.get_mut();
            slice.table.take_apart(&mut locked.state, &mut free);
            slice.totals.entries.store(0, Ordering::Relaxed);
            slice.totals.weight.store(0, Ordering::Relaxed);
        }
    }

    /// Asserts the invariants of every table.
    #[cfg(any(test, fuzzing))]
    pub(crate) fn check_invariants(&self) {
        for (number, slice) in self.shards.iter().enumerate() {
            let mut locked = slice.locked.lock();
            slice.table.check_invariants(&mut locked.state);
            locked.slab.check_invariants();
            let mut nodes = Vec::new();
            let (mut at, mut weight) = (0, 0);
            while at < END {
                at = slice.table.collect(at as u32, &mut nodes);
                for node in &nodes {
                    weight += u64::from(node.weight());
                    assert_eq!(
                        self.shard_of(node.hash()),
                        number,
                        "a node in a wrong shard"
                    );
                }
            }
            let counted = slice.totals.entries.load(Ordering::Relaxed);
            assert_eq!(
                counted,
                slice.table.count(&locked.state),
                "entries of shard {number}"
            );
            let weighed = slice.totals.weight.load(Ordering::Relaxed);
            assert_eq!(weighed, weight, "weight of shard {number}");
        }
    }
}

impl<K, V> Drop for Map<K, V> {
    fn drop(&mut self) {
        // Whoever owns the nodes has taken them out before; the tables' memory goes here.
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
    // Always inlined, as the whole answer would go through the stack.
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

    /// Lets a node in whose key was revalidated as absent.
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

    /// Lets a node in whose key is known to be absent.
    #[cfg(all(test, wheelhouse_loom))]
    pub(crate) fn add_absent(&mut self, new: NewNode<K, V>, times: Times) -> NodePtr<K, V> {
        let home = self.table.home(&mut self.locked.state, new.hash());
        self.add(Vacant(home), new, times)
    }

    /// Puts `new` where `old` stands; the value of `old` leaves for `cause`.
    // Always inlined: what a writer hands over would go through the stack.
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
        // Or the first read after each write would be told of, as if the key had not been used for
        // long.
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

    /// Takes a node out for `cause`; the pass will hear of it.
    pub(crate) fn remove(
        &mut self,
        spot: Occupied<'a, K, V>,
        node: NodePtr<K, V>,
        cause: RemovalCause,
    ) {
        self.take(spot, node);
        self.locked.batch.push(WriteEvent::Removed(node, cause));
    }

    /// Takes a node out for the pass itself, which needs no event.
    pub(crate) fn take(&mut self, spot: Occupied<'a, K, V>, node: NodePtr<K, V>) {
        (self.table).remove(&mut self.locked.state, spot.0, spot.1);
        self.totals.subtract(self.locked.slab.weight_of(node));
        node.set_life(Life::Removed);
    }

    /// Notes a node that was never let in and leaves for `cause`.
    #[cold]
    #[inline(never)]
    pub(crate) fn refuse(&mut self, new: NewNode<K, V>, cause: RemovalCause) {
        let node = self.locked.slab.place(new, Times::NONE);
        node.set_life(Life::Removed);
        self.locked.batch.push(WriteEvent::Removed(node, cause));
    }

    /// Moves the deadlines of a node in the map, its own and the wanted one. False, and nothing has
    /// changed, if the wanted one is no longer where it was `judged`.
    pub(crate) fn move_deadline(
        &mut self,
        node: NodePtr<K, V>,
        judged: u64,
        own: u64,
        wanted: u64,
    ) -> bool {
        debug_assert_eq!(node.life(), Life::Live);
        // The own deadline first: a reader who meets the wanted one must not take the former own
        // for the present one. Only holders of this lock write it.
        let former = node.own_deadline();
        node.set_own_deadline(own);
        if !node.extend(judged, wanted) {
            node.set_own_deadline(former);
            return false;
        }
        self.locked.batch.push(WriteEvent::Rescheduled(node));
        true
    }

    /// Whether any key of this shard has a load.
    #[inline]
    pub(crate) fn has_loads(&self) -> bool {
        !self.locked.loads.is_empty()
    }

    /// Finds the load of a call's key; see [`Loads::sort_out`].
    #[cold]
    pub(crate) fn sort_out_loads(&self, hash: u64, known: &mut Known<K, V>) -> bool {
        self.locked.loads.sort_out(hash, known)
    }

    /// Lists a load that begins.
    pub(crate) fn list_load(&mut self, load: Arc<Load<K, V>>) {
        self.locked.loads.add(load);
        self.note_loads();
    }

    /// Takes a load out of the list that is no longer current.
    pub(crate) fn unlist_load(&mut self, load: &Arc<Load<K, V>>) {
        self.locked.loads.remove(load);
        self.note_loads();
    }

    /// Revokes a listed load.
    #[cold]
    pub(crate) fn revoke_load(&mut self, load: &Arc<Load<K, V>>, by: By) {
        load.revoke(by);
        self.unlist_load(load);
    }

    /// Revokes all loads of this shard's keys.
    #[cold]
    pub(crate) fn revoke_loads(&mut self, by: By) -> Vec<Arc<Load<K, V>>> {
        let revoked = self.locked.loads.revoke_all(by);
        self.note_loads();
        revoked
    }

    /// The loads of this shard's keys.
    pub(crate) fn loads(&self) -> impl Iterator<Item = &Arc<Load<K, V>>> {
        self.locked.loads.iter()
    }

    fn note_loads(&self) {
        let loads = self.locked.loads.len() as u64;
        self.totals.loads.store(loads, Ordering::Relaxed);
    }

    /// Which shard it is.
    #[inline]
    pub(crate) fn number(&self) -> usize {
        self.locked.number as usize
    }

    /// Events that wait in this shard.
    #[inline]
    pub(crate) fn pending(&self) -> usize {
        self.locked.batch.len()
    }

    /// Whether entries are resizing from one array of the table to another.
    #[inline]
    pub(crate) fn is_resizing(&self) -> bool {
        self.table.is_resizing()
    }

    /// Begins to move the entries to an array of another size, though this one is neither too full
    /// nor too empty.
    #[cfg(all(test, wheelhouse_loom))]
    pub(crate) fn begin_move(&mut self, log: u32) {
        self.table.begin(log);
    }

    /// Moves up to so many units of entries to the table's other array, if they are resizing.
    pub(crate) fn resize_step(&mut self, units: usize) {
        self.table.resize_step(&mut self.locked.state, units);
    }

    /// Swaps the events, and memory that left the table, against what the pass brings: empty
    /// vectors.
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
