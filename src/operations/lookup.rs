//! Look-ups: one flow for `get`, `get_ref`, `peek_ref`, `contains_key` and `get_many`.
//!
//! # How it works
//!
//! The kinds of look-up are types that implement [`Lookup`]: they say what a hit gives to the
//! caller, and whether it counts as a read. The flow is generic over them.
//!
//! 1. The *fast path* ([`Lookup::look_up`]) is inlined into the caller. It takes a pin that needs
//!    no call, and looks once at the key's group. If the entry has a deadline, or becomes stale
//!    and the caller asks for that, [`judge`](Lookup::judge) asks the coarse clock; where there is
//!    none, the exact one. The fast path serves all look-ups that are not reads, and reads of
//!    caches in which a read asks no policy, needs no exact time and counts nothing.
//! 2. If the idle limit moves the deadline, [`extend`](Lookup::extend) does that, from the coarse
//!    reading. If the entry is not live by that reading, or if the size policy has to hear of the
//!    use, [`finish`](Lookup::finish) judges the entry anew: by the exact clock if the policy is
//!    told the time or the idle limit is short, or if the coarse one leaves it open. It also asks
//!    the policy, moves the deadline, notes the use and counts it. A look-up that is not fast goes
//!    to `finish` at once.
//!    `get_many` ([`many`](super::many)) finds the entries of a batch together, and takes the other
//!    steps from here.
//! 3. [`search`](Lookup::search) is the cold end: one look did not decide, or the entry is due or
//!    was changed meanwhile. An entry that is due is a miss once its deadline is *claimed* (node
//!    4). If that fails, or the entry was replaced meanwhile, the look-up starts over: the key was
//!    never absent.
//!
//! The fast path calls the coarse clock itself, and keeps the pin and the node meanwhile. A
//! function in between would save registers a second time. The cache misses of look-ups that follow
//! each other overlap only as far as the processor looks ahead, which it counts in instructions.
//! The other steps get no hit but judge anew: a deadline that is still on its way from memory, and
//! is stored on the stack, holds up the look-ups that follow.

use super::core::Core;
use super::extend;
use super::find::{EntryRef, Hit};
use super::lifetimes::MAX_ASKS;
use crate::map::Look;
use crate::node::{NodePtr, RefreshMoment};
use crate::reclaim::Pin;
use crate::shared::SLOW_READS;
use crate::stats::Count;
use crate::time::{self, NEVER};
use equivalent::Equivalent;
use std::hash::{BuildHasher, Hash};

/// A kind of look-up, and its steps.
// Functions with separate arguments: a struct of core, hash and key would pass through memory. Once
// a node is found, its own key takes the place of the caller's ([`KeyOf`]): one argument less.
pub(crate) trait Lookup<K: Eq + 'static, V: 'static>: Sized {
    /// The caller's answer for an entry.
    type Answer<'a>;
    /// Whether a hit counts as a read: the policy is asked, the use is noted and counted.
    const IS_READ: bool;

    /// The moment from which the caller wants to know that the entry is stale.
    #[inline]
    fn stale_from(_: NodePtr<K, V>) -> u64 {
        NEVER
    }

    /// Takes what the answer needs of a live node that may be stale from the moment `stale`. The
    /// rest makes the answer, from the deadline after the read and from what gives a pin that keeps
    /// the entry.
    ///
    /// May run user code. It comes before the policy is asked: a panic in `clone` leaves the
    /// deadline as it is.
    fn take<'a, S, P: FnOnce() -> Pin>(
        core: &'a Core<K, V, S>,
        node: NodePtr<K, V>,
        stale: u64,
    ) -> impl FnOnce(u64, P) -> Self::Answer<'a>;

    /// Looks a key up: the fast path, see the module docs.
    #[inline(always)]
    fn look_up<'a, S, Q>(core: &'a Core<K, V, S>, key: &Q) -> Option<Self::Answer<'a>>
    where
        Q: Equivalent<K> + Hash + ?Sized,
        S: BuildHasher,
    {
        Self::look_up_hashed(core, core.hash(key), key)
    }

    /// [`look_up`](Self::look_up) of a key with this hash.
    #[inline(always)]
    fn look_up_hashed<'a, S, Q>(
        core: &'a Core<K, V, S>,
        hash: u64,
        key: &Q,
    ) -> Option<Self::Answer<'a>>
    where
        Q: Equivalent<K> + ?Sized,
    {
        if Self::IS_READ && core.shared.has_detour(SLOW_READS) {
            return Self::look_up_fully(core, hash, key);
        }
        let Some(pin) = core.shared.domain.pin_alone() else {
            return Self::look_up_fully(core, hash, key);
        };
        let map = &core.shared.map;
        match map.look(hash, &pin, |node| key.equivalent(node.key())) {
            Look::Found(node) => match Self::judge(core, node) {
                Ok(deadline) => Self::end(core, node, deadline, pin),
                Err(Some(now)) if Self::IS_READ => Self::extend(core, node, now, pin),
                Err(_) => Self::finish(core, node, pin),
            },
            Look::Absent => None,
            Look::Retry => Self::search(core, hash, key, None, pin),
        }
    }

    /// A look-up without the fast path: where a hit asks the policy, needs the exact time or is
    /// counted; and for a thread that already holds a pin of this cache, or that used another cache
    /// last.
    #[inline(never)]
    fn look_up_fully<'a, S, Q>(
        core: &'a Core<K, V, S>,
        hash: u64,
        key: &Q,
    ) -> Option<Self::Answer<'a>>
    where
        Q: Equivalent<K> + ?Sized,
    {
        let pin = core.shared.pin();
        let map = &core.shared.map;
        match map.find(hash, &pin, |node| key.equivalent(node.key())) {
            Some(node) => Self::finish(core, node, pin),
            None => {
                Self::note_miss(core);
                None
            }
        }
    }

    /// Counts a look-up that found nothing.
    #[inline]
    fn note_miss<S>(core: &Core<K, V, S>) {
        if Self::IS_READ {
            core.shared.count(Count::Misses);
        }
    }

    /// Notes and counts the use of an entry, if the look-up is a read.
    #[inline]
    fn note_hit<S>(core: &Core<K, V, S>, node: NodePtr<K, V>, pin: &Pin) {
        if Self::IS_READ {
            core.maintenance.note_read(&core.shared, node, pin);
            core.shared.count(Count::Hits);
        }
    }

    /// The deadline of an entry that a fast look-up has found, if the entry is live and not stale,
    /// and the look-up leaves the deadline where it is. Else the coarse reading, if it took one and
    /// there is an idle limit.
    #[inline(always)]
    fn judge<S>(core: &Core<K, V, S>, node: NodePtr<K, V>) -> Result<u64, Option<u64>> {
        let stale = Self::stale_from(node);
        if node.deadline() == NEVER && stale == NEVER {
            return Ok(NEVER);
        }
        let clock = &core.shared.clock;
        let coarse = clock.latest();
        // A read that asks the policy is not fast. So only the idle limit may move the deadline.
        let enough = if Self::IS_READ {
            core.lifetimes.enough
        } else {
            0
        };
        let now = match coarse {
            Some(now) => now,
            None if enough == 0 => clock.now(),
            None => return Err(None),
        };
        // If another call has moved the deadline since the clock was read, it has found the entry
        // live, and this look-up comes right after it. What has no deadline may be stale.
        let deadline = node.deadline();
        let is_left = !time::has_come(now.wrapping_add(enough), deadline);
        let is_live = is_left || deadline == NEVER && stale != NEVER;
        if is_live && !time::is_due(now, stale) {
            Ok(deadline)
        } else {
            Err(coarse.filter(|_| enough != 0))
        }
    }

    /// The end of a fast look-up that has found a live entry, which is not stale: its node, and the
    /// deadline by which it was judged.
    // Not without optimization: there each caller's frame would have room for a value of its own.
    #[cfg_attr(not(debug_assertions), inline(always))]
    fn end<'a, S>(
        core: &'a Core<K, V, S>,
        node: NodePtr<K, V>,
        deadline: u64,
        pin: Pin,
    ) -> Option<Self::Answer<'a>> {
        if Self::IS_READ && core.shared.reads.should_record(node) {
            // The size policy has to hear of it.
            return Self::finish(core, node, pin);
        }
        let answer = Self::take(core, node, NEVER);
        Some(answer(deadline, move || pin))
    }

    /// The rest of a fast read that was judged at `now`, by the coarse clock, and that the idle
    /// limit extends.
    #[inline(never)]
    fn extend<'a, S>(
        core: &'a Core<K, V, S>,
        node: NodePtr<K, V>,
        now: u64,
        pin: Pin,
    ) -> Option<Self::Answer<'a>> {
        let deadline = node.deadline();
        // Another read may have extended it since the clock was read.
        if time::is_due(now, deadline) || core.lifetimes.leaves(now, deadline) {
            return Self::finish(core, node, pin);
        }
        let answer = Self::take(core, node, Self::stale_from(node));
        let Some(moved) = extend::move_by_read(core, node, deadline, now, deadline) else {
            return Self::search(core, node.hash(), &KeyOf(node), None, pin);
        };
        Self::note_hit(core, node, &pin);
        Some(answer(moved, move || pin))
    }

    /// The rest of a look-up that has found the key's entry: judges it, and does what a read does.
    #[inline(never)]
    fn finish<'a, S>(
        core: &'a Core<K, V, S>,
        node: NodePtr<K, V>,
        pin: Pin,
    ) -> Option<Self::Answer<'a>> {
        let Ok(hit) = core.shared.judge(node, Self::IS_READ) else {
            return Self::search(core, node.hash(), &KeyOf(node), Some(node), pin);
        };
        match Self::serve(core, &hit, true, pin) {
            Ok(answer) => Some(answer),
            Err(pin) => Self::search(core, node.hash(), &KeyOf(node), None, pin),
        }
    }

    /// Does what a look-up does with a hit, and what a read does if it is one. If another thread
    /// has moved the deadline meanwhile, a read that `may_move` it gets its pin back, and has to
    /// start over.
    #[inline(always)]
    fn serve<'a, S>(
        core: &'a Core<K, V, S>,
        hit: &Hit<K, V>,
        may_move: bool,
        pin: Pin,
    ) -> Result<Self::Answer<'a>, Pin> {
        let answer = Self::take(core, hit.node, Self::stale_from(hit.node));
        let mut deadline = hit.deadline;
        if Self::IS_READ && may_move {
            match hit.extend(core) {
                Some(moved) => deadline = moved,
                None => return Err(pin),
            }
        }
        Self::note_hit(core, hit.node, &pin);
        Ok(answer(deadline, move || pin))
    }

    /// The rest of a look-up that one look did not decide, from the beginning. `found` is a node of
    /// the key that was found due.
    // Separate from the first attempt: a loop around that attempt would slow down every hit.
    #[inline(never)]
    fn search<'a, S, Q>(
        core: &'a Core<K, V, S>,
        hash: u64,
        key: &Q,
        mut found: Option<NodePtr<K, V>>,
        mut pin: Pin,
    ) -> Option<Self::Answer<'a>>
    where
        Q: Equivalent<K> + ?Sized,
    {
        for asks in 1_u32.. {
            let hit = match core
                .shared
                .find(hash, key, found.take(), &pin, Self::IS_READ)
            {
                Ok(hit) => hit,
                Err(due) => {
                    Self::note_miss(core);
                    drop(pin);
                    // Where no scheduler runs, this does a small part of the expiry that is due:
                    // after the pin was dropped, since destructors may run in it.
                    if let Some(now) = due {
                        core.maintenance.after_expired_read(&core.shared, hash, now);
                    }
                    return None;
                }
            };
            // If another call, or the policy itself, moves the deadline at each attempt, the last
            // move stays.
            match Self::serve(core, &hit, asks < MAX_ASKS, pin) {
                Ok(answer) => return Some(answer),
                Err(again) => pin = again,
            }
        }
        unreachable!("a loop without an end");
    }
}

/// `get`: a clone of the value.
pub(crate) enum Cloned {}

impl<K: Eq + 'static, V: Clone + 'static> Lookup<K, V> for Cloned {
    type Answer<'a> = V;
    const IS_READ: bool = true;

    #[inline]
    fn take<S, P>(_: &Core<K, V, S>, node: NodePtr<K, V>, _: u64) -> impl FnOnce(u64, P) -> V {
        let value = node.value().clone();
        move |_, _| value
    }
}

/// A `get` that also says whether the entry may be stale: it is not where the answer is false.
pub(crate) enum Timed {}

impl<K: Eq + 'static, V: Clone + 'static> Lookup<K, V> for Timed {
    type Answer<'a> = (V, bool);
    const IS_READ: bool = true;

    #[inline]
    fn stale_from(node: NodePtr<K, V>) -> u64 {
        node.refresh().map_or(NEVER, RefreshMoment::at)
    }

    #[inline]
    fn take<S, P>(
        core: &Core<K, V, S>,
        node: NodePtr<K, V>,
        stale: u64,
    ) -> impl FnOnce(u64, P) -> (V, bool) {
        let clock = &core.shared.clock;
        let may_be_stale = stale != NEVER && time::is_due(clock.now_to_judge(stale), stale);
        let value = node.value().clone();
        move |_, _| (value, may_be_stale)
    }
}

/// `get_ref`, which is a read, and `peek_ref` and `contains_key`, which are none: the entry under
/// its pin.
pub(crate) enum Referenced<const IS_READ: bool> {}

impl<K: Eq + 'static, V: 'static, const IS_READ: bool> Lookup<K, V> for Referenced<IS_READ> {
    type Answer<'a> = EntryRef<'a, K, V>;
    const IS_READ: bool = IS_READ;

    #[inline]
    fn take<'a, S, P: FnOnce() -> Pin>(
        core: &'a Core<K, V, S>,
        node: NodePtr<K, V>,
        _: u64,
    ) -> impl FnOnce(u64, P) -> EntryRef<'a, K, V> {
        move |deadline, pin| EntryRef::new(node, deadline, &core.shared.clock, pin())
    }
}

/// The key of a node, read only when it is compared, under the look-up's pin: a reference to the
/// key would outlive the pin that the look-up drops.
struct KeyOf<K, V>(NodePtr<K, V>);

impl<K: Eq, V> Equivalent<K> for KeyOf<K, V> {
    fn equivalent(&self, key: &K) -> bool {
        self.0.key() == key
    }
}
