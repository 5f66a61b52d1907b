//! The timer wheel: finds the entries that are due, and the time of the next one, for millions of
//! deadlines at a constant cost each.
//!
//! # How it works
//!
//! Five levels of buckets, each level coarser than the one before; [`level`] has the arithmetic and
//! shows why it is exact, DESIGN.md a figure. An entry is linked in one bucket, chosen by its
//! node's wanted deadline at that time; its `bucket_id` is the number of that bucket. When a node
//! replaces another, the entry stays in its bucket until it is rescheduled.
//!
//! *Time moves* in [`advance`](Wheel::advance): the occupied buckets whose ticks were passed become
//! *pending*. That touches no entry. A pending bucket remembers the entry that was its last at
//! that moment. Entries that are linked behind it later belong to a later turn and are not pending.
//!
//! *Work is done* in [`next_due`](Wheel::next_due), entry by entry and within a budget: it unlinks
//! an entry of a pending bucket and reads its node's wanted deadline. If the node is due, the
//! caller gets it; if not, the wheel links the entry again. A reader may have moved the deadline
//! later since the entry was linked, without telling the wheel: here the wheel finds out. Moves to
//! an earlier deadline need a [`reschedule`](Wheel::reschedule).
//!
//! The wheel remembers nothing else between two calls. So the caller may stop at any entry, link
//! and unlink any entry, pending or not, and continue at any later time.
//!
//! *Time goes back* when a clock does. Then the buckets whose tick is a turn or more away from the
//! earlier hand become pending, and their entries are linked again. So no entry waits for the clock
//! to catch up, and the caller gets none before its deadline. Steps within a tick cost nothing.
//!
//! *Exactly now.* The bucket under the hand of level 0 holds deadlines that are due before its tick
//! ends. [`sweep`](Wheel::sweep) makes it pending ahead of time, unless a lower bound on its
//! deadlines says that none is due.
//!
//! # Invariants
//!
//! 1. The `bucket_id` of an entry is the number of the bucket whose list it is in, or `NO_BUCKET`.
//!    A bucket is marked as occupied exactly if its list is not empty.
//! 2. A bucket is pending exactly if it has a `pending_end`, and that entry is in its list: the
//!    entries up to it are pending. The *late* bucket is pending whenever it is occupied.
//! 3. In levels 1 to 3 the bucket under the hand holds pending entries only.
//! 4. A non-pending entry is visited after now, and not after the flush time of the deadline that
//!    it was linked with.
//! 5. `earliest` of a bucket of level 0 is not after the deadline, at the time of linking, of any
//!    non-pending entry in it.
//! 6. `now` is the time of the last `advance`.
//! 7. No list holds an entry whose node's deadline was `NEVER` when it was linked.
//!
//! Two facts follow. An entry becomes pending less than one finest span after its deadline (4). A
//! pending entry is taken out after finitely many steps, since pending buckets take turns.
//! `next_due` links an entry behind the `pending_end` of its bucket, never into the late bucket.
//! Entries that the caller adds to the late bucket wait for its next turn.
//!
//! # Cost
//!
//! Scheduling and descheduling take constant time: two or three cache misses for a million entries
//! in random order. `advance` costs one comparison while the tick lasts. An entry is linked again
//! at most once in each level, and once for each tick of the farthest level that it waits there.
//! The buckets (6.5 KiB) are allocated with the first deadline.
//!
//! # Origin
//!
//! Hashed and hierarchical timing wheels: Varghese and Lauck, 1987. The choice of levels is that of
//! Caffeine. Pending marks, steps back and the rounding of deadlines to the end of a tick are this
//! crate's.

mod level;

use crate::list::{List, TIMER};
use crate::node::{EntryPtr, NO_BUCKET, NodePtr};
use crate::time;
use level::{BUCKETS, BUCKETS_PER_LEVEL, BucketSet, LATE};
pub(crate) use level::{FINEST, LEVELS, Spans, WIDEST};
use std::iter::repeat_with;

/// The buckets of one wheel; see the module docs.
pub(crate) struct Wheel<K, V> {
    spans: Spans,
    now: u64,
    occupied: BucketSet,
    pending: BucketSet,
    /// Where `next_due` continues its search for a pending bucket. The search goes round, so every
    /// pending bucket has its turn.
    resume_at: u8,
    buckets: Option<Box<[Bucket<K, V>; BUCKETS]>>,
}

struct Bucket<K, V> {
    entries: List<K, V, TIMER>,
    /// The last of the pending entries.
    pending_end: Option<EntryPtr<K, V>>,
    /// In level 0: a lower bound of the deadlines of the entries.
    earliest: u64,
}

impl<K, V> Bucket<K, V> {
    /// All buckets of a wheel, made one by one on the heap.
    #[cold]
    fn all() -> Box<[Self; BUCKETS]> {
        let empty = || Self {
            entries: List::new(),
            pending_end: None,
            earliest: 0,
        };
        let all: Box<[Self]> = repeat_with(empty).take(BUCKETS).collect();
        match all.try_into() {
            Ok(all) => all,
            Err(_) => unreachable!("a box of as many buckets"),
        }
    }

    /// An entry with this deadline comes in; `alone`: into the empty bucket.
    #[inline]
    fn note_deadline(&mut self, deadline: u64, alone: bool) {
        if alone || (deadline.wrapping_sub(self.earliest) as i64) < 0 {
            self.earliest = deadline;
        }
    }
}

impl<K, V> Wheel<K, V> {
    /// An empty wheel that stands at `now`. It allocates nothing yet.
    pub(crate) fn new(now: u64, spans: Spans) -> Self {
        Self {
            spans,
            now,
            occupied: BucketSet::default(),
            pending: BucketSet::default(),
            resume_at: LATE,
            buckets: None,
        }
    }

    /// The time of the last `advance`.
    pub(crate) fn now(&self) -> u64 {
        self.now
    }

    /// Whether no entry is linked.
    pub(crate) fn is_empty(&self) -> bool {
        self.occupied.is_empty()
    }

    /// Links the entry of a node; it is in no bucket. One without a deadline stays out.
    #[inline]
    fn schedule(&mut self, node: NodePtr<K, V>) {
        let deadline = node.deadline();
        if deadline != time::NEVER {
            self.link(node.entry(), deadline);
        }
    }

    /// Links a node's entry by the node's present deadline, whether or not the entry is linked
    /// already. The node may have just taken its entry over.
    pub(crate) fn reschedule(&mut self, node: NodePtr<K, V>) {
        let at = node.entry().bucket_id.get();
        if at == NO_BUCKET {
            self.schedule(node);
            return;
        }
        let deadline = node.deadline();
        if deadline != time::NEVER && self.spans.bucket_id(self.now, deadline) == at {
            self.bucket_mut(at).note_deadline(deadline, false);
        } else {
            self.deschedule(node);
            self.schedule(node);
        }
    }

    /// Unlinks a node's entry. Does nothing if it is in no bucket.
    #[inline]
    pub(crate) fn deschedule(&mut self, node: NodePtr<K, V>) {
        let entry = node.entry();
        let bucket_id = entry.bucket_id.get();
        if bucket_id != NO_BUCKET {
            self.unlink(entry, bucket_id);
        }
    }

    #[inline]
    fn bucket_mut(&mut self, bucket_id: u8) -> &mut Bucket<K, V> {
        let buckets = self.buckets.get_or_insert_with(Bucket::all);
        &mut buckets[usize::from(bucket_id)]
    }

    /// Links an entry into the bucket of this deadline.
    #[inline]
    fn link(&mut self, entry: EntryPtr<K, V>, deadline: u64) {
        debug_assert_eq!(entry.bucket_id.get(), NO_BUCKET, "linked twice");
        let bucket_id = self.spans.bucket_id(self.now, deadline);
        let alone = !self.occupied.contains(bucket_id);
        let bucket = self.bucket_mut(bucket_id);
        bucket.note_deadline(deadline, alone);
        bucket.entries.push_back(entry);
        entry.bucket_id.set(bucket_id);
        self.occupied.insert(bucket_id);
        if bucket_id == LATE && !self.pending.contains(LATE) {
            self.mark_pending(LATE);
        }
    }

    /// Unlinks an entry from the bucket that it is in; true if it was the last pending one there.
    #[inline]
    fn unlink(&mut self, entry: EntryPtr<K, V>, bucket_id: u8) -> bool {
        let bucket = self.bucket_mut(bucket_id);
        let was_end = bucket.pending_end == Some(entry);
        if was_end {
            bucket.pending_end = List::<K, V, TIMER>::prev(entry);
        }
        let was_last = was_end && bucket.pending_end.is_none();
        bucket.entries.unlink(entry);
        if bucket.entries.is_empty() {
            self.occupied.remove(bucket_id);
        }
        if was_last {
            self.pending.remove(bucket_id);
            // Entries that came late since then are pending next: the other buckets have their
            // turn in between, however fast late entries come.
            if bucket_id == LATE {
                self.mark_pending(LATE);
            }
        }
        entry.bucket_id.set(NO_BUCKET);
        was_last
    }

    /// Unlinks the first entry of a pending bucket.
    #[inline]
    fn take_pending(&mut self, bucket_id: u8) -> EntryPtr<K, V> {
        let bucket = self.bucket_mut(bucket_id);
        let front = bucket.entries.front();
        let entry = front.expect("a pending bucket holds entries");
        self.resume_at = bucket_id;
        if self.unlink(entry, bucket_id) {
            self.resume_at = bucket_id + 1;
        }
        // Its neighbour is the next to be taken. It was just written to, so the address of its node
        // is in the processor's cache by now.
        if let Some(next) = self.bucket_mut(bucket_id).entries.front() {
            next.node().prefetch();
        }
        entry
    }

    /// Moves the wheel's time, forward or back, and makes the buckets pending that this passes.
    /// Touches no entry, and spends no budget.
    #[inline]
    pub(crate) fn advance(&mut self, now: u64) {
        let then = std::mem::replace(&mut self.now, now);
        if !self.spans.same_tick(then, now) && !self.is_empty() {
            self.mark_pending_between(then, now);
        }
    }

    fn mark_pending_between(&mut self, then: u64, now: u64) {
        let forward = time::has_come(now, then);
        for level in 0..LEVELS {
            let reached = if forward {
                self.spans.passed(level, then, now)
            } else {
                self.spans.withdrawn(level, then, now)
            };
            let mut left = reached & self.occupied.of_level(level);
            while left != 0 {
                self.mark_pending(level::bucket_id_of(level, left.trailing_zeros()));
                left &= left - 1;
            }
        }
    }

    /// Makes all entries pending that are in a bucket now, if any are.
    fn mark_pending(&mut self, bucket_id: u8) {
        let bucket = self.bucket_mut(bucket_id);
        bucket.pending_end = bucket.entries.back();
        if bucket.pending_end.is_some() {
            self.pending.insert(bucket_id);
        }
    }

    /// How many entries a sweep at `now` would make pending at most.
    pub(crate) fn sweep_len(&self, now: u64) -> usize {
        self.bucket_len(level::bucket_id_of(0, self.spans.hand(0, now)))
    }

    fn bucket_len(&self, bucket_id: u8) -> usize {
        match &self.buckets {
            Some(buckets) => buckets[usize::from(bucket_id)].entries.len(),
            None => 0,
        }
    }

    /// Advances, and makes sure that `next_due` will find all that is due at exactly `now`, though
    /// the tick of `now` has not ended.
    pub(crate) fn sweep(&mut self, now: u64) {
        self.advance(now);
        let index = self.spans.hand(0, now);
        let bucket_id = level::bucket_id_of(0, index);
        if !self.occupied.contains(bucket_id) {
            return;
        }
        let tick_end = self.spans.first_visit(0, 1 << index, now);
        let earliest = &mut self.bucket_mut(bucket_id).earliest;
        if time::has_come(now, *earliest) {
            // All of them are taken out; those that are not due are linked again and lower the
            // bound.
            *earliest = tick_end;
            self.mark_pending(bucket_id);
        }
    }

    /// Advances, then takes pending entries out until the node of one is due: the caller removes
    /// that entry, or schedules it again if a reader has extended it meanwhile. Each entry taken
    /// out costs one unit of the budget.
    ///
    /// `None` with budget left: nothing is pending any more. With none left: see
    /// [`has_work`](Self::has_work).
    pub(crate) fn next_due(&mut self, now: u64, budget: &mut usize) -> Option<NodePtr<K, V>> {
        self.advance(now);
        while let Some(bucket_id) = self.pending.next_from(self.resume_at) {
            if *budget == 0 {
                return None;
            }
            *budget -= 1;
            let entry = self.take_pending(bucket_id);
            let node = entry.node();
            // The deadline as it is now. If a reader extends it in the next moment, that extension
            // and the caller's claim exclude each other (node 4).
            let deadline = node.deadline();
            if time::is_due(now, deadline) {
                return Some(node);
            }
            if deadline != time::NEVER {
                self.link(entry, deadline);
            }
        }
        None
    }

    /// Makes `next_due` begin with the late bucket and the finest pending buckets, where most
    /// entries are due; those of a coarse bucket are mostly linked again. Finer buckets become
    /// pending again and again, so a caller that always asks for this keeps the coarse ones
    /// waiting.
    pub(crate) fn finest_first(&mut self) {
        self.resume_at = LATE;
    }

    /// An upper bound on the number of pending entries.
    pub(crate) fn pending_len(&self) -> usize {
        let mut len = 0;
        for bucket_id in 0..BUCKETS as u8 {
            if self.pending.contains(bucket_id) {
                len += self.bucket_len(bucket_id);
            }
        }
        len
    }

    /// Whether `next_due` would take out an entry even if time stood still.
    pub(crate) fn has_work(&self) -> bool {
        !self.pending.is_empty()
    }

    /// The earliest moment at which there is work: now if an entry is pending, else the first visit
    /// over all occupied buckets. `None` if nothing is linked.
    pub(crate) fn next_visit(&self) -> Option<u64> {
        if self.has_work() {
            return Some(self.now);
        }
        let mut next: Option<u64> = None;
        for level in 0..LEVELS {
            let occupied = self.occupied.of_level(level);
            if occupied == 0 {
                continue;
            }
            let visit = self.spans.first_visit(level, occupied, self.now);
            match next {
                Some(next) if next.wrapping_sub(self.now) <= visit.wrapping_sub(self.now) => {}
                _ => next = Some(visit),
            }
        }
        next
    }

    /// The bucket of a level, counted within the level, that contains the wheel's time.
    pub(crate) fn hand(&self, level: usize) -> usize {
        self.spans.hand(level, self.now) as usize
    }

    /// How many entries each bucket of a level holds. The late ones are counted in the bucket under
    /// the hand of level 0.
    pub(crate) fn lens(&self, level: usize) -> Vec<usize> {
        let mut lens: Vec<usize> = (0..BUCKETS_PER_LEVEL[level])
            .map(|index| self.bucket_len(level::bucket_id_of(level, index)))
            .collect();
        if level == 0 {
            lens[self.hand(0)] += self.bucket_len(LATE);
        }
        lens
    }
}

// The invariants of this module: `checks/wheel.rs`, at the root of the repository.
#[cfg(any(test, fuzzing))]
#[path = "../../checks/wheel.rs"]
mod check;
#[cfg(any(all(test, not(wheelhouse_loom)), fuzzing))]
#[path = "../../checks/wheel_oracle.rs"]
pub(crate) mod oracle;
#[cfg(all(test, not(wheelhouse_loom)))]
mod tests;
