//! The default policy: LIRS with a window that adapts and promotions that must prove themselves.
//!
//! # How it works
//!
//! ```text
//!                                  promoted: used again, and worth it
//!             ┌─────────────────────────────────────────────────────────────────┐
//!   insert    │        window            evicted                                │        core                rim
//!  ────────► newest ──────────── oldest ────────► ghosts (fingerprints)         └► newest ──────────── ┊ ─────── oldest
//!               ▲                                   │  comes back: as promoted or into the window       ┊            │
//!               └───────────────────────────────────┘                                                                │
//!               ▲                                     demoted: the core is over its share                            │
//!               └────────────────────────────────────────────────────────────────────────────────────────────────────┘
//! ```
//!
//! Two queues in order of use. A new key goes into the *window*; the window's oldest is the victim.
//! A key that is used again while in the window, or comes back while its ghost is known, may be
//! promoted to the *core*; the core's oldest node then goes back to the window. So the core keeps
//! keys with short distances between uses, and one pass over any number of keys only flows through
//! the window.
//!
//! Three things are left to measurement:
//! - *who is promoted*: LIRS promotes a key that came back sooner than the oldest core node has
//!   waited. Here that sorts keys into classes, and small duels tell how often a class is right
//!   ([`duels`](super::duels));
//! - *how large the window is*: from 1 to 99 percent, so from nearly LIRS to nearly LRU
//!   ([`share`](super::share));
//! - *whether the core is dead*: if no rim node was used for two turnovers, keys that nothing is
//!   known of may enter too.
//!
//! The *rim* is the oldest part of the core, a twentieth of the cache: its hits are what the core
//! would lose first. Until the first eviction, and after the cache fell to half, new keys fill the
//! core. As nobody has to go then, the rim is a single node, and each use moves a node to the
//! core's newest end, so that when somebody has to, the oldest are those that were not used for
//! longest. To keep the rim at its size took a twentieth of an insert.
//!
//! # Invariants
//!
//! 1. Every entry handed in by `admit` and not yet by `removed` is in exactly one of window, core
//!    and rim, whichever node sits in it.
//! 2. If the core has a node, so has the rim, once the current call has returned (`fill_rim` has at
//!    least one move).
//! 3. `mark` of a window or core node is the stamp of its last use by `order`.
//! 4. The work of one call is bounded: at most [`MOVES`] nodes are demoted, [`STEPS`] reach the rim
//!    for each of them and once more, a 64th of the ghosts is swept. What is left over is done by
//!    later calls; meanwhile `victim` takes from the rim first.
//!
//! # Cost
//!
//! A use of a core node that was used in the same epoch already, as hot ones are, writes nothing:
//! the node and one slot of the duels are read. Any other use relinks one node, and so does each
//! while the cache is filling up, which one that never gets full does for ever. A miss reads one
//! half line of ghosts, an eviction another. Memory beyond the entry's links, weight and two bytes:
//! 8 bytes of ghosts a node, 3 KiB a cache. Uses may be lost: the hit ratio bears it.
//!
//! # Origin
//!
//! LIRS: Jiang and Zhang, SIGMETRICS 2002. Stamps in place of its stack of ghosts. The share: after
//! ARC, Megiddo and Modha, FAST 2003, and DLIRS, Li, SYSTOR 2018. Letting two candidates compete on
//! the live load: set dueling, Qureshi and others, ISCA 2007; TinyLFU, Einziger, Friedman and
//! Manes, ToS 2017, for admission by contest with the victim.

use super::epochs::{Epochs, TURNOVER};
use super::ghosts::Ghosts;
use super::queue::Weighed;
use super::set_dueling::{Class, SetDueling};
use super::window::WindowSizer;
use super::{FIRST_FREE, spread};
use crate::node::EntryPtr;

const WINDOW: u8 = FIRST_FREE;
const CORE: u8 = FIRST_FREE + 1;
const RIM: u8 = FIRST_FREE + 2;

/// The depth up to which all hits have the same vote, in epochs: with the rounding, a twentieth of
/// the cache.
const NEAR: f64 = 3.0;
/// The rim's part of the cache.
const RIM_PART: u64 = 20;
/// Nodes that one call may demote.
const MOVES: usize = 16;
/// Nodes that one step may bring to the rim: few, since a full cache that gives up its first entry
/// has a whole rim to make.
const STEPS: usize = 4;

pub(super) struct Lirs<K, V> {
    window: Weighed<K, V>,
    core: Weighed<K, V>,
    rim: Weighed<K, V>,
    max: u64,
    /// Core nodes that reached the rim.
    order: Epochs,
    evictions: Epochs,
    /// Epoch of `evictions` in which a rim node was used last.
    rim_used: u64,
    filling: bool,
    share: WindowSizer,
    ghosts: Ghosts,
    duels: SetDueling,
}

impl<K, V> Lirs<K, V> {
    pub(super) fn new(max: u64, seed: u64) -> Self {
        Self {
            window: Weighed::new(WINDOW),
            core: Weighed::new(CORE),
            rim: Weighed::new(RIM),
            max,
            order: Epochs::default(),
            evictions: Epochs::default(),
            rim_used: 0,
            filling: true,
            share: WindowSizer::new(max),
            ghosts: Ghosts::new(),
            duels: SetDueling::new(seed),
        }
    }

    pub(super) fn admit(&mut self, entry: EntryPtr<K, V>) {
        let hash = spread(entry.node().hash());
        self.duels.used(hash, true);
        entry.set_mark(self.order.stamp());
        if self.welcomes(entry, hash) {
            self.core.push_newest(entry);
        } else {
            self.window.push_newest(entry);
        }
        self.settle();
    }

    /// Asks the processor for what [`admit`](Self::admit) or [`removed`](Self::removed) will look
    /// up.
    pub(super) fn prefetch(&self, entry: EntryPtr<K, V>) {
        self.ghosts.prefetch(spread(entry.node().hash()));
    }

    /// From now on an entry weighs so much.
    pub(super) fn reweigh(&mut self, entry: EntryPtr<K, V>, weight: u32) {
        if weight != entry.weight() {
            self.queue_of(entry).reweigh(entry, weight);
            self.settle();
        }
    }

    pub(super) fn accessed(&mut self, entry: EntryPtr<K, V>) {
        let hash = spread(entry.node().hash());
        self.duels.used(hash, false);
        let before = entry.mark();
        let now = self.order.stamp();
        match entry.queue_id() {
            CORE => {
                // Uses within one epoch are not ordered: the stamps could not tell either. But
                // while the cache fills up, hardly a node goes over the rim and hardly an epoch
                // ends: the order of the core is all there is to know when it has.
                if before != now {
                    let depth = TURNOVER.saturating_sub(u64::from(self.order.age(before))) as f64
                        * self.core_part();
                    self.share.narrow(self.vote(depth));
                    entry.set_mark(now);
                }
                if before != now || self.filling {
                    self.core.move_to_newest(entry);
                }
            }
            RIM => {
                entry.set_mark(now);
                self.rim_used = self.evictions.epoch();
                self.share.narrow(self.vote(NEAR));
                self.rim.unlink(entry);
                self.core.push_newest(entry);
                self.settle();
            }
            _ => {
                entry.set_mark(now);
                if self.core_has_room(entry) || self.deserves(hash, self.class(before)) {
                    self.window.unlink(entry);
                    self.core.push_newest(entry);
                    self.settle();
                } else {
                    self.window.move_to_newest(entry);
                }
            }
        }
    }

    /// Unlinks a entry; `evicted` if it goes because this policy named it as the victim.
    pub(super) fn removed(&mut self, entry: EntryPtr<K, V>, evicted: bool) {
        let used = entry.mark();
        self.queue_of(entry).unlink(entry);
        self.fill_rim();
        if evicted {
            self.filling = false;
            self.ghosts.fit(self.len());
            self.ghosts
                .put(spread(entry.node().hash()), used, &self.evictions);
            if self.evictions.advance(self.len()) {
                self.ghosts.sweep(&self.order, &self.evictions);
            }
        } else if self.weight() < self.max / 2 {
            self.filling = true;
        }
    }

    pub(super) fn victim(&self) -> Option<EntryPtr<K, V>> {
        let behind = self.core_weight() > self.share.for_core();
        let rim = || self.rim.oldest().or_else(|| self.core.oldest());
        if behind {
            rim()
        } else {
            self.window.oldest().or_else(rim)
        }
    }

    pub(super) fn weight(&self) -> u64 {
        self.window.weight() + self.core_weight()
    }

    pub(super) fn len(&self) -> usize {
        self.window.len() + self.core.len() + self.rim.len()
    }

    pub(super) fn set_max(&mut self, max: u64) {
        self.max = max;
        self.share.set_max(max);
        self.filling |= self.weight() < max / 2;
        self.settle();
    }

    pub(super) fn split_heavier(&mut self, limit: u64, other: &mut Weighed<K, V>) {
        self.window.split_heavier(limit, other);
        self.core.split_heavier(limit, other);
        self.rim.split_heavier(limit, other);
        self.fill_rim();
    }

    /// Whether a new key goes straight into the core.
    fn welcomes(&mut self, entry: EntryPtr<K, V>, hash: u64) -> bool {
        let ghost = self.ghosts.take(hash);
        if self.filling && self.core_has_room(entry) && self.has_room(entry) {
            return true;
        }
        let Some(ghost) = ghost else {
            let dead = self.evictions.epoch() - self.rim_used >= 2 * TURNOVER;
            return dead && !self.filling && self.deserves(hash, Class::Unknown);
        };
        let depth = f64::from(self.evictions.age(ghost.gone));
        if depth <= NEAR.max(self.share.core() * TURNOVER as f64) {
            self.share.widen(self.vote(depth));
        }
        self.deserves(hash, self.class(ghost.used))
    }

    /// LIRS's question: was the last use later than that of the oldest core node?
    fn class(&self, used: u8) -> Class {
        match self.defender() {
            Some(oldest) if self.order.age(used) >= self.order.age(oldest.mark()) => Class::Late,
            _ => Class::Recent,
        }
    }

    /// Whether a key may push the oldest core node out; notes the two for a duel.
    fn deserves(&mut self, hash: u64, class: Class) -> bool {
        let Some(defender) = self.defender() else {
            return true;
        };
        let now = self.order.count() + self.evictions.count();
        self.duels
            .open(hash, spread(defender.node().hash()), class, now, self.len());
        self.duels.grant(class)
    }

    fn defender(&self) -> Option<EntryPtr<K, V>> {
        self.rim.oldest().or_else(|| self.core.oldest())
    }

    /// Brings rim and core to their shares, a bounded step (lirs 4).
    fn settle(&mut self) {
        self.fill_rim();
        for _ in 0..MOVES {
            if self.core_weight() <= self.share.for_core() {
                return;
            }
            let Some(oldest) = self.defender() else {
                return;
            };
            self.queue_of(oldest).unlink(oldest);
            self.window.push_newest(oldest);
            self.fill_rim();
        }
    }

    /// Lets the core's oldest pass to the rim until it has its share, a bounded step.
    fn fill_rim(&mut self) {
        let wanted = if self.filling {
            1
        } else {
            (self.max / RIM_PART).min(self.core_weight() / 2).max(1)
        };
        for _ in 0..STEPS {
            if self.rim.weight() >= wanted {
                return;
            }
            let Some(oldest) = self.core.oldest() else {
                return;
            };
            self.core.unlink(oldest);
            self.rim.push_newest(oldest);
            if self.order.advance(self.core.len() + self.rim.len()) {
                self.ghosts.sweep(&self.order, &self.evictions);
            }
        }
    }

    fn queue_of(&mut self, entry: EntryPtr<K, V>) -> &mut Weighed<K, V> {
        match entry.queue_id() {
            CORE => &mut self.core,
            RIM => &mut self.rim,
            _ => &mut self.window,
        }
    }

    fn core_weight(&self) -> u64 {
        self.core.weight() + self.rim.weight()
    }

    fn core_has_room(&self, entry: EntryPtr<K, V>) -> bool {
        self.core_weight() + u64::from(entry.weight()) <= self.share.for_core()
    }

    fn has_room(&self, entry: EntryPtr<K, V>) -> bool {
        self.weight() + u64::from(entry.weight()) <= self.max
    }

    /// What a hit at this depth, in epochs, says to the share: an average node's part of the cache,
    /// less if far.
    fn vote(&self, depth: f64) -> f64 {
        let part = self.weight() as f64 / (self.len().max(1) as f64 * self.max.max(1) as f64);
        part * NEAR / depth.max(NEAR)
    }

    /// The core's part of all nodes.
    fn core_part(&self) -> f64 {
        (self.core.len() + self.rim.len()) as f64 / self.len().max(1) as f64
    }

    /// Asserts lirs 1 and 2, and the invariants of the parts.
    #[cfg(any(test, fuzzing))]
    pub(super) fn check_invariants(&self, weights: std::ops::RangeInclusive<u64>) {
        for queue in [&self.window, &self.core, &self.rim] {
            queue.check_invariants(weights.clone());
        }
        self.share.check_invariants();
        assert!(
            self.core.len() == 0 || self.rim.len() > 0,
            "a core of {} without a rim",
            self.core.len()
        );
    }
}
