//! The order in which entries are evicted: LIRS, with a window that adapts and promotions that are
//! measured; or the exact order of use.
//!
//! # How it works
//!
//! DESIGN.md has a figure. Two queues hold the entries in order of use. A new key goes into the
//! *window*; the oldest entry of the window is the victim. A key that is used again while it is in
//! the window, or that comes back while its ghost is known, may be promoted to the *protected*
//! queue. The oldest protected entry then goes back to the window. So the protected queue keeps
//! keys with short distances between uses, and one pass over many keys only flows through the
//! window.
//!
//! The policy measures three things while the cache runs:
//! - *Which keys are promoted.* LIRS promotes a key that came back sooner than the oldest protected
//!   entry has waited. Here that rule sorts keys into classes, and duels between two keys measure
//!   how often a class is right ([`set_dueling`](super::set_dueling)).
//! - *How large the window is*: from 1 to 99 percent of the cache, so from nearly LIRS to nearly
//!   LRU ([`window`](super::window)).
//! - *Whether the protected queue is dead*: if no entry of its tail was used for two turnovers,
//!   unknown keys may enter it, too.
//!
//! The *tail* is the oldest part of the protected queue, a twentieth of the cache. A smaller
//! protected queue would lose the hits of the tail first. Until the first eviction, and after the
//! cache fell to half its bound, the cache is *filling*. New keys go to the protected queue, the
//! tail is one entry, and each use moves an entry to the newest end of that queue. So at the first
//! eviction the oldest entries are those that were unused for longest.
//!
//! *The exact order of use* (`Lru`) is that of a window which is the whole cache: every use moves
//! an entry to the newest end, and the oldest goes first. What was evicted is forgotten.
//!
//! An entry that expired leaves a ghost as an evicted one does. The return of its key does not vote
//! on the window: a larger one would not have kept the entry.
//!
//! Each entry counts its *uses*. It has one byte for them, which is halved when the entry comes to
//! the tail and was not used in this period. The count ranks entries for views and snapshots, and
//! decides where order and duels say too little:
//! - *The most used entry stays.* If the oldest entry of the window is to leave, but was used
//!   clearly more than the oldest protected one, or last of all entries, that one leaves.
//! - While the cache is *shrinking*, after a smaller bound, an entry that comes to the old end with
//!   uses left goes back to the newest end. So those stay that were used most.
//!
//! # Invariants
//!
//! 1. Every entry handed in by `admit`, and not yet by `removed`, `expired` or `evicted`, is in
//!    exactly one of window, protected queue and tail.
//! 2. If the protected queue has an entry, so has the tail when a call has returned.
//! 3. `mark` of an entry is the stamp of its last use by `order`.
//! 4. The work of one call is bounded. At most [`DEMOTIONS_PER_CALL`] entries are demoted.
//!    [`TAIL_MOVES_PER_DEMOTION`] entries move to the tail before the first demotion and after each
//!    one. For each period that ends, a 64th of the ghosts is visited. Later calls do the rest;
//!    until then `victim` takes from the tail first. At most [`KEPT_PER_CALL`] entries are promoted
//!    for their uses. While the cache is shrinking, at most [`SPARED_PER_CALL`] entries go back to
//!    the newest end, too.
//!
//! # Cost
//!
//! A use relinks one entry; once the cache is full, a further use of a protected entry in the same
//! period is only counted. A miss reads half a cache line of ghosts, an eviction another half.
//! Memory, beside the entry's links, weight and two bytes: 8 bytes of ghosts for each entry, 4 KiB
//! for each cache.
//!
//! # Origin
//!
//! LIRS: Jiang and Zhang, SIGMETRICS 2002; stamps replace its stack of ghosts. The window: after
//! ARC, Megiddo and Modha, FAST 2003, and DLIRS, Li, SYSTOR 2018. Two candidates that compete on
//! the live workload: set dueling, Qureshi and others, ISCA 2007; admission by a contest with the
//! incumbent: TinyLFU, Einziger, Friedman and Manes, ToS 2017.

use super::ghosts::{Ghost, Ghosts, Periods, TURNOVER, mix_bits_twice};
use super::queue::{FIRST_FREE, WeighedQueue};
use super::set_dueling::{Class, SetDueling};
use super::window::WindowSizer;
use crate::node::EntryPtr;

const WINDOW: u8 = FIRST_FREE;
const PROTECTED: u8 = FIRST_FREE + 1;
const TAIL: u8 = FIRST_FREE + 2;

/// The depth, in periods, up to which all hits have the same vote: with the rounding, a twentieth
/// of the cache.
const FULL_VOTE_DEPTH: f64 = 3.0;
/// The tail's part of the cache.
const TAIL_PART: u64 = 20;
/// Entries that one call may demote.
const DEMOTIONS_PER_CALL: usize = 16;
/// Entries that one step may move to the tail. The number is small, because the first eviction of a
/// full cache has to fill a whole tail.
const TAIL_MOVES_PER_DEMOTION: usize = 4;
/// Entries that one call may spare while the cache is shrinking. Each time an entry is spared, its
/// count has been halved, so it is spared eight times at most.
const SPARED_PER_CALL: usize = 16;
/// How many more uses than the oldest protected entry keep an entry that would leave.
const CLEARLY_MORE: u8 = 2;
/// Entries that one call may keep for their uses.
const KEPT_PER_CALL: usize = 4;
/// In a window of fewer than this part of all entries, an entry may come and go between two
/// renewals of the stamp of the read rings.
const SMALL_WINDOW: usize = 32;
/// The most that one vote may move the border, in parts of the cache. In a cache of few entries,
/// votes of one entry each would make the border jump from end to end.
const MAX_VOTE: f64 = 1.0 / 256.0;

pub(super) struct Lirs<K, V> {
    pub(super) window: WeighedQueue<K, V>,
    pub(super) protected: WeighedQueue<K, V>,
    pub(super) tail: WeighedQueue<K, V>,
    /// Whether the window is the whole cache: the order is exactly that of use.
    pub(super) exact: bool,
    /// Counts protected entries that reached the tail.
    order: Periods,
    evictions: Periods,
    /// Period of `evictions` in which an entry of the tail was used last.
    tail_used: u64,
    /// The entry that was used last. It may have left since: it is compared, and not followed.
    last_used: Option<EntryPtr<K, V>>,
    filling: bool,
    /// Whether the weight has been over the bound since the bound was made smaller.
    shrinking: bool,
    pub(super) sizer: WindowSizer,
    /// What all entries together may weigh. This is the maximum that the queues are sized for,
    /// unless other parts of the cache hold entries, too.
    pub(super) allowed: u64,
    pub(super) ghosts: Ghosts,
    dueling: SetDueling,
}

impl<K, V> Lirs<K, V> {
    pub(super) fn new(max: u64, exact: bool, seed: u64) -> Self {
        Self {
            window: WeighedQueue::new(WINDOW),
            protected: WeighedQueue::new(PROTECTED),
            tail: WeighedQueue::new(TAIL),
            exact,
            order: Periods::default(),
            evictions: Periods::default(),
            tail_used: 0,
            last_used: None,
            filling: true,
            shrinking: false,
            sizer: WindowSizer::new(max),
            allowed: max,
            ghosts: Ghosts::default(),
            dueling: SetDueling::new(seed),
        }
    }

    #[inline]
    pub(super) fn admit(&mut self, entry: EntryPtr<K, V>) {
        if self.exact {
            return self.window.push_newest(entry);
        }
        let hash = mix_bits_twice(entry.node().hash());
        self.dueling.used(hash, true);
        entry.mark.set(self.order.stamp());
        entry.uses.set(0);
        if self.enters_protected(entry, hash) {
            self.protected.push_newest(entry);
        } else {
            self.window.push_newest(entry);
        }
        self.rebalance();
    }

    /// Changes the weight of an entry.
    pub(super) fn reweigh(&mut self, entry: EntryPtr<K, V>, weight: u32) {
        if weight != entry.policy().weight.get() {
            self.queue_of(entry).reweigh(entry, weight);
            self.rebalance();
        }
    }

    #[inline]
    pub(super) fn accessed(&mut self, entry: EntryPtr<K, V>) {
        if self.exact {
            return self.window.move_to_newest(entry);
        }
        let hash = mix_bits_twice(entry.node().hash());
        self.last_used = Some(entry);
        self.dueling.used(hash, false);
        let now = self.order.stamp();
        entry.uses.set(entry.uses.get().saturating_add(1));
        let before = entry.mark.get();
        entry.mark.set(now);
        match entry.queue_id.get() {
            PROTECTED => {
                // Uses within one period are not ordered, since their stamps are equal. But while
                // the cache fills up, few entries reach the tail and few periods end. So the first
                // evictions depend on the order of the queue alone.
                if before != now {
                    let depth = TURNOVER.saturating_sub(u64::from(self.order.age(before))) as f64
                        * (self.protected_len() as f64 / self.len().max(1) as f64);
                    self.sizer.narrow(self.vote(depth));
                }
                if before != now || self.filling {
                    self.protected.move_to_newest(entry);
                }
            }
            TAIL => {
                self.tail_used = self.evictions.period;
                self.sizer.narrow(self.vote(FULL_VOTE_DEPTH));
                self.tail.unlink(entry);
                self.protected.push_newest(entry);
                self.rebalance();
            }
            _ => {
                let promoted = self.filling
                    || self.protected_has_room(entry)
                    || self.deserves(hash, self.class(before));
                if promoted {
                    self.window.unlink(entry);
                    self.protected.push_newest(entry);
                    self.rebalance();
                } else {
                    self.window.move_to_newest(entry);
                    // It would leave before its next read is recorded.
                    if self.window.len() < self.len() / SMALL_WINDOW {
                        entry.node().forget_recorded_read();
                    }
                }
            }
        }
    }

    /// Unlinks an entry that was removed.
    pub(super) fn removed(&mut self, entry: EntryPtr<K, V>) {
        self.unlink(entry);
        self.filling |= self.weight() < self.sizer.max / 2;
    }

    /// Unlinks a victim.
    #[inline]
    pub(super) fn evicted(&mut self, entry: EntryPtr<K, V>) {
        self.unlink(entry);
        if self.exact {
            return;
        }
        self.filling = false;
        self.ghosts.fit(self.len());
        self.leave_ghost(entry, false);
        if self.evictions.advance(self.len()) {
            self.ghosts.drop_old(&self.order, &self.evictions);
        }
    }

    fn unlink(&mut self, entry: EntryPtr<K, V>) {
        self.queue_of(entry).unlink(entry);
        self.fill_tail();
        self.spare_used();
        self.keep_most_used();
    }

    /// Unlinks an entry that is past its deadline, and keeps a ghost of it. While the cache is
    /// filling, new keys need no ghost to enter the protected queue.
    pub(super) fn expired(&mut self, entry: EntryPtr<K, V>) {
        if !self.filling {
            self.leave_ghost(entry, true);
        }
        self.removed(entry);
    }

    fn leave_ghost(&mut self, entry: EntryPtr<K, V>, expired: bool) {
        let ghost = Ghost {
            last_use: entry.mark.get(),
            removed_at: self.evictions.stamp(),
            expired,
        };
        let hash = mix_bits_twice(entry.node().hash());
        self.ghosts.put(hash, ghost, &self.evictions);
    }

    pub(super) fn victim(&self) -> Option<EntryPtr<K, V>> {
        if self.protected_weight() <= self.sizer.for_protected() {
            if let Some(oldest) = self.window.oldest() {
                return Some(oldest);
            }
        }
        self.incumbent()
    }

    pub(super) fn weight(&self) -> u64 {
        self.window.weight + self.protected_weight()
    }

    pub(super) fn len(&self) -> usize {
        self.window.len() + self.protected_len()
    }

    /// The queues, from the one that is evicted from first to the one that is evicted from last.
    pub(super) fn queues(&mut self) -> [&mut WeighedQueue<K, V>; 3] {
        [&mut self.window, &mut self.tail, &mut self.protected]
    }

    pub(super) fn set_max(&mut self, max: u64) {
        self.allowed = max;
        self.shrinking = self.weight() > max;
        self.resize(max);
    }

    fn resize(&mut self, max: u64) {
        self.sizer.set_max(max);
        self.filling |= self.weight() < max / 2;
        self.rebalance();
    }

    /// The entries together may weigh `allowed` for now; `share` is what they weigh in a full
    /// cache.
    pub(super) fn allow(&mut self, allowed: u64, share: u64) {
        self.allowed = allowed;
        if share != self.sizer.max {
            self.resize(share);
        }
    }

    /// Whether a new key goes straight into the protected queue.
    #[inline]
    fn enters_protected(&mut self, entry: EntryPtr<K, V>, hash: u64) -> bool {
        let ghost = self.ghosts.take(hash);
        let weight = self.weight() + u64::from(entry.policy().weight.get());
        if self.filling && self.protected_has_room(entry) && weight <= self.allowed {
            return true;
        }
        let Some(ghost) = ghost else {
            let dead = self.evictions.period - self.tail_used >= 2 * TURNOVER;
            return dead && !self.filling && self.deserves(hash, Class::Unknown);
        };
        let depth = f64::from(self.evictions.age(ghost.removed_at));
        let in_reach = depth <= FULL_VOTE_DEPTH.max(self.sizer.protected() * TURNOVER as f64);
        if in_reach && !ghost.expired {
            self.sizer.widen(self.vote(depth));
        }
        self.deserves(hash, self.class(ghost.last_use))
    }

    /// Finds the class of a key: was its last use later than that of the oldest protected entry
    /// (the question of LIRS)?
    fn class(&self, used: u8) -> Class {
        match self.incumbent().map(|oldest| oldest.mark.get()) {
            Some(mark) if self.order.age(used) >= self.order.age(mark) => Class::Late,
            _ => Class::Recent,
        }
    }

    /// Whether a key may replace the oldest protected entry. Notes the two for a duel.
    fn deserves(&mut self, hash: u64, class: Class) -> bool {
        let Some(incumbent) = self.incumbent() else {
            return true;
        };
        let now = self.order.count + self.evictions.count;
        self.dueling.open(
            hash,
            mix_bits_twice(incumbent.node().hash()),
            class,
            now,
            self.len(),
        );
        self.dueling.grant(class)
    }

    fn incumbent(&self) -> Option<EntryPtr<K, V>> {
        match self.tail.oldest() {
            Some(oldest) => Some(oldest),
            None => self.protected.oldest(),
        }
    }

    /// Moves the sizes of the tail and the protected queue towards their shares, by a bounded step
    /// (lirs 4).
    fn rebalance(&mut self) {
        self.demote();
        self.keep_most_used();
    }

    fn demote(&mut self) {
        self.fill_tail();
        for _ in 0..DEMOTIONS_PER_CALL {
            self.spare_used();
            if self.protected_weight() <= self.sizer.for_protected() {
                return;
            }
            let Some(oldest) = self.incumbent() else {
                return;
            };
            self.queue_of(oldest).unlink(oldest);
            self.window.push_newest(oldest);
            self.fill_tail();
        }
    }

    /// Moves the oldest protected entries to the tail until the tail has its share, by a bounded
    /// step.
    fn fill_tail(&mut self) {
        let wanted = if self.filling {
            1
        } else {
            (self.sizer.max / TAIL_PART)
                .min(self.protected_weight() / 2)
                .max(1)
        };
        for _ in 0..TAIL_MOVES_PER_DEMOTION {
            if self.tail.weight >= wanted {
                return;
            }
            let Some(oldest) = self.protected.oldest() else {
                return;
            };
            self.protected.unlink(oldest);
            self.tail.push_newest(oldest);
            // In a small cache an entry comes here, though it was used just before.
            if oldest.mark.get() != self.order.stamp() {
                oldest.uses.set(oldest.uses.get() / 2);
            }
            if self.order.advance(self.protected_len()) {
                self.ghosts.drop_old(&self.order, &self.evictions);
            }
        }
    }

    /// While the cache is shrinking: puts the oldest protected entries back to the newest end as
    /// long as they have uses left, by a bounded step.
    fn spare_used(&mut self) {
        if !self.shrinking {
            return;
        }
        for _ in 0..SPARED_PER_CALL {
            self.shrinking = self.weight() > self.allowed;
            let Some(oldest) = self.incumbent() else {
                return;
            };
            if !self.shrinking || oldest.uses.get() == 0 {
                return;
            }
            self.queue_of(oldest).unlink(oldest);
            self.protected.push_newest(oldest);
            self.fill_tail();
        }
    }

    /// While the cache is full: promotes the entry that would leave next, if it was used clearly
    /// more than the oldest protected one. That leaves, or goes to the window. If an eviction is
    /// due, the entry that was used last is promoted, too, unless the oldest protected one was used
    /// clearly more. By a bounded step.
    #[inline]
    fn keep_most_used(&mut self) {
        // Mostly the oldest entry of the window was not used.
        if let Some(leaving) = self.window.oldest() {
            if leaving.uses.get() > 0 {
                self.keep_if_most_used();
            }
        }
    }

    fn keep_if_most_used(&mut self) {
        for _ in 0..KEPT_PER_CALL {
            let is_over = self.weight() > self.allowed;
            if self.exact
                || self.weight() < self.allowed
                || self.protected_weight() > self.sizer.for_protected()
            {
                return;
            }
            let (Some(leaving), Some(incumbent)) = (self.window.oldest(), self.incumbent()) else {
                return;
            };
            let needed = incumbent.uses.get().saturating_add(CLEARLY_MORE);
            let is_more_used = leaving.uses.get() >= needed;
            let is_less_used =
                incumbent.uses.get() >= leaving.uses.get().saturating_add(CLEARLY_MORE);
            let was_last = is_over && self.last_used == Some(leaving);
            if !is_more_used && (!was_last || is_less_used) {
                return;
            }
            self.window.unlink(leaving);
            self.protected.push_newest(leaving);
            if !is_over {
                self.demote();
            }
        }
    }

    fn queue_of(&mut self, entry: EntryPtr<K, V>) -> &mut WeighedQueue<K, V> {
        match entry.queue_id.get() {
            PROTECTED => &mut self.protected,
            TAIL => &mut self.tail,
            _ => &mut self.window,
        }
    }

    fn protected_len(&self) -> usize {
        self.protected.len() + self.tail.len()
    }

    fn protected_weight(&self) -> u64 {
        self.protected.weight + self.tail.weight
    }

    fn protected_has_room(&self, entry: EntryPtr<K, V>) -> bool {
        self.protected_weight() + u64::from(entry.policy().weight.get())
            <= self.sizer.for_protected()
    }

    /// The vote of a hit at this depth (in periods) on the size of the window: the share of one
    /// average entry in the cache, up to [`MAX_VOTE`]. A deeper hit has a smaller vote.
    fn vote(&self, depth: f64) -> f64 {
        let part = self.weight() as f64 / (self.len().max(1) as f64 * self.sizer.max.max(1) as f64);
        part.min(MAX_VOTE) * FULL_VOTE_DEPTH / depth.max(FULL_VOTE_DEPTH)
    }

    /// The weight that the window should have.
    #[cfg(test)]
    pub(super) fn window_size(&self) -> u64 {
        self.sizer.max - self.sizer.for_protected()
    }
}
