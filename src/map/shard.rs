//! A shard. A writer looks a key up in it without a lock. Under the shard's lock a writer puts
//! nodes in, replaces them and takes them out, and lists the loads of keys. Each change leaves an
//! event for the maintenance pass. It leaves none if the pass takes the entry out itself, if a
//! deadline moves later (the pass finds that in the entry's bucket), or if an event tells of a move
//! already. A removal takes the place of the event that the node came, if that is the last one. No
//! other event is lost.

use super::Garbage;
use super::table::{Group, Place, Seen, Table, TableMemory, TableState};
use crate::flight::Loads;
use crate::listener::RemovalCause;
use crate::node::{
    self, Columns, EntryPtr, NewNode, NodePtr, NodeState, Noted, Refused, Slab, Times,
};
use crate::reclaim::Pin;
use crate::stripe::Padded;
use crate::sync::{AtomicU64, Ordering, ShortMutex, ShortMutexGuard, add_alone};
use crate::time;
use std::fmt;

/// A change of the map that the pass applies to wheel and size policy: a node, and in the note
/// beside it what has happened to it. One word.
pub(crate) type WriteEvent<K, V> = Noted<K, V>;

/// What has happened to the node of an event.
// In this order, so that most questions about a kind are one comparison.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub(crate) enum EventKind {
    /// It was inserted under a key that was absent. The pass has nothing to do for it: it has no
    /// deadline, and there is no size policy. It counts, so that writers run passes.
    Unheard,
    /// Another node has taken over its entry, so it is to be retired. All else stays as the pass
    /// knows it, since the writer has named the new node in the entry (entry 3).
    Succeeded,
    /// It is the one that the event before has replaced. A listener hears of it, and for which
    /// cause its value left.
    Replaced,
    /// As `Succeeded`, and the size policy has to hear that the entry was used.
    Used,
    /// It has replaced the one that the next event names. The entry may have to move in the wheel
    /// or in the size policy.
    Replacing,
    /// It was inserted under a key that was absent.
    Added,
    /// Its wanted deadline moved earlier, or the entry got or lost its deadline. At most one such
    /// event of a node waits.
    Rescheduled,
    /// It was removed from the map for this cause, or was never inserted.
    Removed,
}

/// The bits of a note below the kind: the cause.
const CAUSE_BITS: u32 = 2;

impl<K, V> WriteEvent<K, V> {
    #[inline]
    pub(crate) fn new(kind: EventKind, node: NodePtr<K, V>) -> Self {
        node.with((kind as u8) << CAUSE_BITS)
    }

    #[inline]
    pub(crate) fn with_cause(kind: EventKind, node: NodePtr<K, V>, cause: RemovalCause) -> Self {
        node.with((kind as u8) << CAUSE_BITS | cause as u8)
    }

    #[inline]
    pub(crate) fn kind(&self) -> EventKind {
        // All values of three bits: so this costs no instruction.
        match self.note() >> CAUSE_BITS & 0b111 {
            0 => EventKind::Unheard,
            1 => EventKind::Succeeded,
            2 => EventKind::Replaced,
            3 => EventKind::Used,
            4 => EventKind::Replacing,
            5 => EventKind::Added,
            6 => EventKind::Rescheduled,
            _ => EventKind::Removed,
        }
    }

    /// Whether it says that this node was inserted under a key that was absent.
    #[inline]
    fn is_insertion_of(&self, node: NodePtr<K, V>) -> bool {
        self.node() == node && matches!(self.kind(), EventKind::Added | EventKind::Unheard)
    }

    /// Why the value left: of an event `Replaced` or `Removed`.
    #[inline]
    pub(crate) fn cause(&self) -> RemovalCause {
        match self.note() & ((1 << CAUSE_BITS) - 1) {
            0 => RemovalCause::Expired,
            1 => RemovalCause::Explicit,
            2 => RemovalCause::Replaced,
            _ => RemovalCause::Size,
        }
    }

    /// Prefetches the node that applying the event will touch; with its hash, if the size policy
    /// needs that of new nodes.
    #[inline]
    pub(crate) fn prefetch(&self, hashes: bool) {
        let node = self.node();
        match self.kind() {
            EventKind::Unheard | EventKind::Succeeded => {}
            EventKind::Replaced | EventKind::Rescheduled | EventKind::Removed => {
                node.prefetch_hot_to_write();
            }
            EventKind::Added if hashes => node.prefetch(),
            _ => node.prefetch_hot(),
        }
    }

    /// The entry that applying the event will touch, if there is one. The node itself was
    /// prefetched before.
    #[inline]
    pub(crate) fn entry(&self) -> Option<EntryPtr<K, V>> {
        if self.kind() >= EventKind::Used {
            Some(self.node().entry())
        } else {
            None
        }
    }
}

impl<K, V> fmt::Debug for WriteEvent<K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (self.kind(), self.node()).fmt(f)
    }
}

/// What the pass has to hear of a replacement, beside that the former node is to be retired.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum News {
    /// All: the entry may have to move in the wheel or in the size policy, or the listener has to
    /// hear of the former value, which left for this cause.
    All(RemovalCause),
    /// That the entry was used.
    Use,
    /// Not even that: the size policy has just heard of a use, or there is none.
    Nothing,
}

/// Events of one shard since the last drain, in order.
///
/// A plain vector behind the shard's lock, which orders the writes of its shard and which the
/// writer holds anyway. So it holds the events of each key in the order in which they happened. The
/// pass swaps it for an empty one, so it holds the lock for a few instructions. A write costs one
/// push into a vector that keeps its capacity from pass to pass.
pub(crate) type Batch<K, V> = Vec<WriteEvent<K, V>>;

/// A shard that is not locked.
///
/// What look-ups read and hardly any write changes stands on lines of its own, at the beginning.
/// Then comes what each write changes: the lock, and what an insert changes of the part that it
/// guards, are one cache line. A thread on another core gets all of it with the lock.
#[repr(C)]
pub(crate) struct ShardCell<K, V> {
    table: Table<K, V>,
    /// What the nodes and entries of the shard have.
    pub(super) columns: Columns,
    pub(super) number: u32,
    changed: Padded<()>,
    /// The number of entries, and the bit [`HAS_LOADS`]. Only the holder of the lock changes it.
    /// Relaxed: it orders nothing.
    tally: AtomicU64,
    pub(super) locked: ShortMutex<Locked<K, V>>,
    /// The sum of the weights of the entries, where there is a weigher.
    weight: AtomicU64,
}

/// Set while the shard has loads. The other bits are the number of entries.
const HAS_LOADS: u64 = 1 << 63;

/// The part of a shard that its lock guards. In this order: what each insert changes comes first.
#[repr(C)]
pub(super) struct Locked<K, V> {
    batch: Batch<K, V>,
    pub(super) slab: Slab<K, V>,
    pub(super) state: TableState<K, V>,
    /// The current loads of keys of this shard.
    loads: Loads<K, V>,
    /// Lists that were emptied when their nodes were freed.
    pub(super) emptied: Vec<Garbage<K, V>>,
}

impl<K, V> ShardCell<K, V> {
    /// The shard of this number, with room for `capacity` entries.
    pub(super) fn new(number: u32, capacity: usize, columns: Columns) -> Result<Self, Refused> {
        let (table, state) = Table::new(capacity)?;
        Ok(Self {
            table,
            columns,
            number,
            changed: Padded(()),
            tally: AtomicU64::new(0),
            locked: ShortMutex::new(Locked {
                batch: Batch::new(),
                slab: Slab::of_shard(number, columns),
                state,
                loads: Loads::new(),
                emptied: Vec::new(),
            }),
            weight: AtomicU64::new(0),
        })
    }

    /// Bytes of chunks for each node with its entry, if all their slots are taken.
    pub(super) fn bytes_per_slot(&self) -> f64 {
        Slab::<K, V>::bytes_per_slot(self.columns)
    }

    #[inline]
    pub(super) fn table(&self) -> &Table<K, V> {
        &self.table
    }

    /// The number of entries. As exact as `Map::len`.
    #[inline]
    pub(super) fn entries(&self) -> u64 {
        self.tally.load(Ordering::Relaxed) & !HAS_LOADS
    }

    /// By the holder of the lock.
    #[inline]
    fn set_entries(&self, entries: u64) {
        let loads = self.tally.load(Ordering::Relaxed) & HAS_LOADS;
        self.tally.store(entries | loads, Ordering::Relaxed);
    }

    /// The sum of the weights, where there is a weigher. As exact as `Map::len`.
    pub(super) fn weight(&self) -> u64 {
        self.weight.load(Ordering::Relaxed)
    }

    /// Prefetches the group of a hash.
    #[inline]
    pub(crate) fn prefetch(&self, hash: u64) {
        node::prefetch(self.table.address(hash));
    }

    /// Prefetches the group of a hash, to write to it.
    #[inline]
    pub(crate) fn prefetch_to_write(&self, hash: u64) {
        node::prefetch_to_write(self.table.address(hash));
    }

    /// Empties the shard for its last owner, and gives every node in it to `free`.
    pub(super) fn take_apart(&mut self, free: impl FnMut(NodePtr<K, V>)) {
        let state = &mut self.locked.get_mut().state;
        self.table.take_apart(state, free);
        self.set_entries(0);
        self.weight.store(0, Ordering::Relaxed);
    }

    /// The look-up before a write; see the module docs. `matches` compares keys.
    // Always inlined, as `Table::find`.
    #[inline(always)]
    pub(crate) fn probe<'a>(
        &'a self,
        hash: u64,
        pin: &'a Pin,
        mut matches: impl FnMut(NodePtr<K, V>) -> bool,
    ) -> Probe<'a, K, V> {
        let mut others = None;
        let met = &mut others;
        let (found, seen) = self.table.find(hash, pin, move |node| {
            if matches(node) {
                return true;
            }
            // After the keys, since the hash stands in the side part of the node.
            if node.hash() == hash {
                note_other(met, node);
            }
            false
        });
        Probe {
            found,
            others,
            seen,
        }
    }

    #[inline]
    pub(crate) fn lock(&self) -> Shard<'_, K, V> {
        Shard {
            cell: self,
            locked: self.locked.lock(),
        }
    }
}

/// The result of a writer's look-up without a lock.
pub(crate) struct Probe<'a, K, V> {
    /// The key's node.
    pub(crate) found: Option<NodePtr<K, V>>,
    /// Nodes of the same full hash and another key, in the order in which the look-up met them.
    #[allow(
        clippy::box_collection,
        reason = "one word, since nearly all probes meet none"
    )]
    others: Option<Box<Vec<NodePtr<K, V>>>>,
    seen: Seen<'a>,
}

/// A look-up has met a node of the same full hash and another key.
#[cold]
#[allow(clippy::box_collection, reason = "that of a probe")]
fn note_other<K, V>(others: &mut Option<Box<Vec<NodePtr<K, V>>>>, node: NodePtr<K, V>) {
    others.get_or_insert_default().push(node);
}

impl<K, V> Probe<'_, K, V> {
    /// Whether the look-up compared this node. `next` is where to look first, 0 at the beginning.
    /// The caller mostly asks in the order in which the look-up met the nodes, so each is found at
    /// once, however many collide.
    pub(super) fn knows(&self, node: NodePtr<K, V>, next: &mut usize) -> bool {
        let others = self.others.as_ref().map_or(&[][..], |others| others);
        let at = if others.get(*next) == Some(&node) {
            Some(*next)
        } else {
            others.iter().position(|&other| other == node)
        };
        at.inspect(|at| *next = at + 1).is_some()
    }
}

/// A shard, locked by a writer.
pub(crate) struct Shard<'a, K, V> {
    cell: &'a ShardCell<K, V>,
    locked: ShortMutexGuard<'a, Locked<K, V>>,
}

/// A probe confirmed under the lock.
pub(crate) enum Confirmed<'a, K, V> {
    /// The key is absent; its node would stand in this group.
    Vacant(&'a Group<K, V>),
    /// The node that the probe found is still there.
    Occupied(Occupied<'a, K, V>),
}

impl<K, V> Confirmed<'_, K, V> {
    /// The node that the key has.
    #[inline]
    pub(crate) fn node(&self) -> Option<NodePtr<K, V>> {
        match self {
            Self::Vacant(_) => None,
            Self::Occupied(spot) => Some(spot.node),
        }
    }
}

/// A confirmed node, and the word in which it stands.
pub(crate) struct Occupied<'a, K, V> {
    pub(crate) node: NodePtr<K, V>,
    place: Place<'a>,
}

impl<'a, K, V> Shard<'a, K, V> {
    /// Confirms a probe of this shard; `None` if the key may have been inserted, replaced or
    /// removed since.
    // Always inlined: else the whole answer would go through the stack.
    #[inline(always)]
    pub(crate) fn confirm(
        &self,
        hash: u64,
        probe: &Probe<'a, K, V>,
    ) -> Option<Confirmed<'a, K, V>> {
        let Some(node) = probe.found else {
            let mut next = 0;
            let is_unknown = |node| !probe.knows(node, &mut next);
            return self.vacant(hash, is_unknown).map(Confirmed::Vacant);
        };
        let spot = match self.cell.table.still_there(hash, node, &probe.seen) {
            Some(place) => Some(Occupied { node, place }),
            None => self.find_node(hash, node),
        };
        spot.map(Confirmed::Occupied)
    }

    /// Finds a node of this hash by address.
    #[inline]
    pub(crate) fn find_node(&self, hash: u64, node: NodePtr<K, V>) -> Option<Occupied<'a, K, V>> {
        let home = self.cell.table.home(&self.locked.state, hash);
        let (place, node) = home.search(hash, |other| other == node)?;
        Some(Occupied { node, place })
    }

    /// The home of a key that is absent; `None` if a node of its hash may have the key.
    #[inline]
    pub(crate) fn vacant(
        &self,
        hash: u64,
        mut may_have_key: impl FnMut(NodePtr<K, V>) -> bool,
    ) -> Option<&'a Group<K, V>> {
        let home = self.cell.table.home(&self.locked.state, hash);
        let found = home.search(hash, |node| node.hash() == hash && may_have_key(node));
        found.is_none().then_some(home)
    }

    /// Makes room for one node: then [`replace`](Self::replace) and [`refuse`](Self::refuse) need
    /// no new region.
    pub(crate) fn reserve(&mut self) {
        self.locked.slab.reserve(self.cell.columns);
    }

    /// Adds a node whose key is confirmed to be absent.
    // Always inlined, as `replace`.
    #[inline(always)]
    pub(crate) fn add(
        &mut self,
        home: &'a Group<K, V>,
        new: &mut NewNode<K, V>,
        times: Times,
    ) -> NodePtr<K, V> {
        let (hash, weight) = (new.hash, new.weight);
        let table = &self.cell.table;
        table.grow_if_full(&mut self.locked.state, self.cell.entries());
        let new = self.locked.slab.create(self.cell.columns, new, times);
        table.insert(&mut self.locked.state, home, new, hash);
        add_alone(&self.cell.tally, 1);
        if self.cell.columns.weight {
            add_alone(&self.cell.weight, weight.into());
        }
        let kind = if self.cell.columns.queue || times.deadline != time::NEVER {
            EventKind::Added
        } else {
            EventKind::Unheard
        };
        self.push(WriteEvent::new(kind, new));
        new
    }

    /// Adds a node whose key is known to be absent.
    #[cfg(all(test, wheelhouse_loom))]
    pub(crate) fn add_absent(&mut self, mut new: NewNode<K, V>, times: Times) -> NodePtr<K, V> {
        let home = self.cell.table.home(&self.locked.state, new.hash);
        self.add(home, &mut new, times)
    }

    /// Whether the pass has heard of `old`, and knows that it has this weight.
    #[inline]
    pub(crate) fn is_known(&self, old: NodePtr<K, V>, weight: u32) -> bool {
        let weighs_this = !self.cell.columns.weight || old.weight() == weight;
        weighs_this && old.entry().names(old)
    }

    /// Puts `new` where another node stands; an event tells the pass these `news`.
    // Always inlined: else the arguments would go through the stack.
    #[inline(always)]
    pub(crate) fn replace(
        &mut self,
        spot: Occupied<'a, K, V>,
        new: &mut NewNode<K, V>,
        times: Times,
        news: News,
    ) -> NodePtr<K, V> {
        let (old, hash) = (spot.node, new.hash);
        let new = self.locked.slab.succeed(self.cell.columns, old, new, times);
        // Otherwise the first read after each write would be recorded as a new read.
        new.set_seen(old.seen());
        (self.cell.table).replace(&mut self.locked.state, spot.place, new, hash);
        // Without a weigher both weigh 1.
        if self.cell.columns.weight {
            let change = u64::from(new.weight()).wrapping_sub(old.weight().into());
            add_alone(&self.cell.weight, change);
        }
        match news {
            News::All(cause) => {
                old.set_state(NodeState::Removed);
                self.push(WriteEvent::new(EventKind::Replacing, new));
                self.push(WriteEvent::with_cause(EventKind::Replaced, old, cause));
            }
            News::Use => {
                self.succeed(old, new);
                self.push(WriteEvent::new(EventKind::Used, old));
            }
            News::Nothing => {
                self.succeed(old, new);
                self.push(WriteEvent::new(EventKind::Succeeded, old));
            }
        }
        new
    }

    /// Names `new` in the entry of `old`, of which the pass need not hear.
    #[inline]
    fn succeed(&mut self, old: NodePtr<K, V>, new: NodePtr<K, V>) {
        new.entry().set_node(new);
        old.set_state(NodeState::Succeeded);
    }

    #[inline]
    fn push(&mut self, event: WriteEvent<K, V>) {
        self.locked.batch.push(event);
    }

    /// Takes a node out for `cause`; an event tells the pass. It takes the place of the last event,
    /// if that is the insertion of the node: then the pass has nothing to do for that.
    pub(crate) fn remove(&mut self, spot: Occupied<'a, K, V>, cause: RemovalCause) {
        let node = spot.node;
        self.remove_without_event(spot);
        let removed = WriteEvent::with_cause(EventKind::Removed, node, cause);
        match self.locked.batch.last_mut() {
            Some(last) if last.is_insertion_of(node) => *last = removed,
            _ => self.push(removed),
        }
    }

    /// Takes a node out for the pass itself, which needs no event.
    pub(crate) fn remove_without_event(&mut self, spot: Occupied<'a, K, V>) {
        let count = self.cell.entries() - 1;
        let (table, hash) = (&self.cell.table, spot.node.hash());
        table.remove(&mut self.locked.state, hash, spot.place, count);
        self.cell.set_entries(count);
        if self.cell.columns.weight {
            add_alone(
                &self.cell.weight,
                u64::from(spot.node.weight()).wrapping_neg(),
            );
        }
        spot.node.set_state(NodeState::Removed);
    }

    /// Hands the pass a node that was never in the table, so that the listener is notified of it
    /// with `cause`.
    #[cold]
    #[inline(never)]
    pub(crate) fn refuse(&mut self, new: &mut NewNode<K, V>, cause: RemovalCause) {
        let node = self.locked.slab.create(self.cell.columns, new, Times::NONE);
        node.set_state(NodeState::Removed);
        self.push(WriteEvent::with_cause(EventKind::Removed, node, cause));
    }

    /// Moves both deadlines of a node in the map, its own and the wanted one. Returns false, and
    /// changes nothing, if the wanted one is no longer the one that was `judged`.
    pub(crate) fn set_deadlines(
        &mut self,
        node: NodePtr<K, V>,
        judged: u64,
        own: u64,
        wanted: u64,
    ) -> bool {
        debug_assert_eq!(node.state(), NodeState::InMap);
        // The own deadline first: a reader that sees the new wanted deadline must not see the
        // former own one. Only holders of this lock write it.
        let former = node.own_deadline();
        node.set_own_deadline(own);
        if node.move_deadline(judged, wanted).is_err() {
            node.set_own_deadline(former);
            return false;
        }
        // A later deadline leaves the entry in its bucket, as that of a read does.
        if !time::keeps_bucket(judged, wanted) && node.mark_moved() {
            self.push(WriteEvent::new(EventKind::Rescheduled, node));
        }
        true
    }

    /// The loads of this shard's keys.
    #[inline]
    pub(crate) fn loads(&self) -> &Loads<K, V> {
        &self.locked.loads
    }

    /// Whether this shard has loads. It reads nothing but what the lock has brought.
    #[inline]
    pub(crate) fn has_loads(&self) -> bool {
        self.cell.tally.load(Ordering::Relaxed) & HAS_LOADS != 0
    }

    #[inline]
    pub(crate) fn change_loads<R>(&mut self, change: impl FnOnce(&mut Loads<K, V>) -> R) -> R {
        let result = change(&mut self.locked.loads);
        let bit = if self.locked.loads.is_empty() {
            0
        } else {
            HAS_LOADS
        };
        let tally = self.cell.entries() | bit;
        self.cell.tally.store(tally, Ordering::Relaxed);
        result
    }

    /// The number of the shard.
    #[inline]
    pub(crate) fn number(&self) -> usize {
        self.cell.number as usize
    }

    /// How many events wait in this shard.
    #[inline]
    pub(crate) fn buffered(&self) -> usize {
        self.locked.batch.len()
    }

    /// What has happened, in order.
    #[cfg(test)]
    pub(crate) fn kinds(&self) -> Vec<EventKind> {
        self.locked.batch.iter().map(WriteEvent::kind).collect()
    }

    /// How many of them are more than a replacement of which the pass does not hear all.
    #[cfg(test)]
    pub(crate) fn changes(&self) -> usize {
        let is_change = |kind: &EventKind| {
            use EventKind::{Replaced, Succeeded, Used};
            !matches!(kind, Replaced | Succeeded | Used)
        };
        self.kinds().iter().filter(|kind| is_change(kind)).count()
    }

    /// Whether entries are moving from one array of the table to another.
    #[inline]
    pub(crate) fn is_resizing(&self) -> bool {
        self.cell.table.units_left() > 0
    }

    /// Begins to move the entries to an array of another size, though this one fits.
    #[cfg(all(test, wheelhouse_loom))]
    pub(crate) fn begin_move(&mut self, log: u32) {
        let begun = self.cell.table.begin(&mut self.locked.state, log);
        begun.unwrap_or_else(|refused| refused.fail());
    }

    /// Moves up to this number of units to the other array of the table, if the table is resizing;
    /// true if some are left.
    pub(crate) fn resize_step(&mut self, units: usize) -> bool {
        (self.cell.table).resize_step(&mut self.locked.state, units);
        self.cell.table.units_left() > 0
    }

    /// The lists that were emptied.
    #[cfg(test)]
    pub(crate) fn emptied(&self) -> &[Garbage<K, V>] {
        &self.locked.emptied
    }

    /// Whether there are events, or memory that left the table.
    #[inline]
    pub(crate) fn has_work(&self) -> bool {
        !self.locked.batch.is_empty() || !self.locked.state.retired.is_empty()
    }

    /// Gives the pass the lists that were emptied.
    #[inline]
    pub(crate) fn give_emptied(&mut self, out: &mut Vec<Garbage<K, V>>) {
        if !self.locked.emptied.is_empty() {
            out.append(&mut self.locked.emptied);
        }
    }

    /// Gives the pass the events and the memory that left the table, in exchange for the empty
    /// vectors that it brings.
    pub(crate) fn swap_batch(
        &mut self,
        batch: &mut Batch<K, V>,
        memory: &mut Vec<TableMemory<K, V>>,
    ) {
        debug_assert!(batch.is_empty());
        std::mem::swap(&mut self.locked.batch, batch);
        memory.append(&mut self.locked.state.retired);
    }
}

#[cfg(all(test, not(wheelhouse_loom)))]
mod tests;
