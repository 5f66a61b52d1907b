//! Look-ups: one flow for `get`, `get_ref`, `peek_ref`, `contains_key` and `get_many`.
//!
//! # How it works
//!
//! The kinds of look-up are types that implement [`Lookup`]: they say what a hit gives to the
//! caller, and whether it counts as a read. The flow is generic over them.
//!
//! 1. The *fast path* ([`Lookup::look_up`]) is inlined into the caller. It takes a pin that needs
//!    no call, looks once at the key's group, and serves an entry without a deadline. It serves all
//!    look-ups that are not reads, and reads of caches in which a read asks no policy, needs no
//!    exact time and counts nothing.
//! 2. If the entry has a deadline, or becomes stale and the caller asks for that,
//!    [`judge`](Flow::judge) asks the coarse clock. Where that does not decide,
//!    [`finish`](Flow::finish) judges the entry by the exact one. It also asks the policy, moves
//!    the deadline, notes the use and counts it. A look-up that is not fast goes to `finish` at
//!    once; a fast read, if the idle limit moves the deadline. `get_many` ([`many`](super::many))
//!    finds the entries of a batch together, and takes the other steps from here.
//! 3. [`Flow::search`] is the cold end: one look did not decide, or the entry is due or was changed
//!    meanwhile. An entry that is due is a miss once its deadline is *claimed* (node 4). If that
//!    fails, or the entry was replaced meanwhile, the look-up starts over: the key was never
//!    absent.
//!
//! The fast path reaches the others by tail calls. So it keeps nothing across a call, and saves no
//! register. A hit is handed on in its parts, which stay in registers: a deadline that is still on
//! its way from memory, and is stored on the stack, holds up the look-ups that follow.

use super::core::Core;
use super::find::{EntryRef, Hit};
use super::lifetimes::MAX_ASKS;
use crate::map::Look;
use crate::node::{NodePtr, RefreshMoment};
use crate::reclaim::Pin;
use crate::stats::Count;
use crate::sync::Ordering;
use crate::time::{self, NEVER};
use equivalent::Equivalent;
use std::hash::{BuildHasher, Hash};
use std::marker::PhantomData;

/// A kind of look-up.
pub(crate) trait Lookup<K: 'static, V: 'static>: Sized {
    /// The part of the entry that is taken before the policy is asked.
    type Part;
    /// The caller's answer for an entry.
    type Answer<'a>;
    /// Whether a hit counts as a read: the policy is asked, the use is noted and counted.
    const IS_READ: bool;

    /// Whether the fast path serves a live entry at the moment `now`, or at any if there is none.
    #[inline]
    fn is_fresh(_: NodePtr<K, V>, _now: Option<u64>) -> bool {
        true
    }

    /// May run user code. Before the policy is asked: a panic in `clone` leaves the deadline as it
    /// is. `fresh` says that [`is_fresh`](Self::is_fresh) was true.
    fn take<S>(core: &Core<K, V, S>, hit: &Hit<K, V>, fresh: bool) -> Self::Part;

    /// The answer of a hit. `pin` gives a pin that keeps the entry.
    fn answer<'a, S>(
        core: &'a Core<K, V, S>,
        hit: Hit<K, V>,
        part: Self::Part,
        pin: impl FnOnce() -> Pin,
    ) -> Self::Answer<'a>;

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
        if core.shared.has_detour(Self::IS_READ) {
            return Self::look_up_fully(core, hash, key);
        }
        match core.shared.pin_alone() {
            Some(pin) => Flow::<K, V, S, Self, Q>::look_once(core, hash, key, pin),
            None => Flow::<K, V, S, Self, Q>::look_up_elsewhere(core, hash, key),
        }
    }

    /// A look-up without the fast path: where a hit asks the policy, may move the deadline, or is
    /// counted.
    #[inline(never)]
    fn look_up_fully<'a, S, Q>(
        core: &'a Core<K, V, S>,
        hash: u64,
        key: &Q,
    ) -> Option<Self::Answer<'a>>
    where
        Q: Equivalent<K> + ?Sized,
    {
        core.count_operation();
        let pin = core.shared.pin();
        let map = &core.shared.map;
        match map.find(hash, &pin, |node| key.equivalent(node.key())) {
            Some(node) => Flow::<K, V, S, Self, Q>::finish(core, key, node, 0, 0, pin),
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
            if let Some(counters) = &core.shared.counters {
                counters.hit();
            }
        }
    }
}

/// The rest of the implementation of a look-up that answers with its part and keeps no pin.
macro_rules! answers_with_its_part {
    ($part:ty) => {
        type Part = $part;
        type Answer<'a> = $part;

        #[inline]
        fn answer<S>(
            _: &Core<K, V, S>,
            _: Hit<K, V>,
            part: $part,
            _: impl FnOnce() -> Pin,
        ) -> $part {
            part
        }
    };
}

/// `get`: a clone of the value.
pub(crate) enum Cloned {}

impl<K: 'static, V: Clone + 'static> Lookup<K, V> for Cloned {
    answers_with_its_part!(V);
    const IS_READ: bool = true;

    #[inline]
    fn take<S>(_: &Core<K, V, S>, hit: &Hit<K, V>, _: bool) -> V {
        hit.node.value().clone()
    }
}

/// A `get` that also says whether the entry may be stale: it is not where the answer is false.
pub(crate) enum Timed {}

impl<K: 'static, V: Clone + 'static> Lookup<K, V> for Timed {
    answers_with_its_part!((V, bool));
    const IS_READ: bool = true;

    #[inline]
    fn is_fresh(node: NodePtr<K, V>, now: Option<u64>) -> bool {
        let at = Self::stale_from(node);
        at == NEVER || now.is_some_and(|now| !time::is_due(now, at))
    }

    #[inline]
    fn take<S>(core: &Core<K, V, S>, hit: &Hit<K, V>, fresh: bool) -> (V, bool) {
        let may_be_stale = !fresh && {
            let at = Self::stale_from(hit.node);
            let now = || match hit.now {
                0 => core.shared.clock.now_to_judge(at),
                now => now,
            };
            at != NEVER && time::is_due(now(), at)
        };
        (hit.node.value().clone(), may_be_stale)
    }
}

impl Timed {
    #[inline]
    fn stale_from<K, V>(node: NodePtr<K, V>) -> u64 {
        node.refresh().map_or(NEVER, RefreshMoment::at)
    }
}

/// `contains_key`.
pub(crate) enum Contained {}

impl<K: 'static, V: 'static> Lookup<K, V> for Contained {
    answers_with_its_part!(());
    const IS_READ: bool = false;

    #[inline]
    fn take<S>(_: &Core<K, V, S>, _: &Hit<K, V>, _: bool) {}
}

/// `get_ref`, which is a read, and `peek_ref`, which is none: the entry under its pin.
pub(crate) enum Referenced<const IS_READ: bool> {}

impl<K: 'static, V: 'static, const IS_READ: bool> Lookup<K, V> for Referenced<IS_READ> {
    type Part = ();
    type Answer<'a> = EntryRef<'a, K, V>;
    const IS_READ: bool = IS_READ;

    #[inline]
    fn take<S>(_: &Core<K, V, S>, _: &Hit<K, V>, _: bool) {}

    #[inline]
    fn answer<'a, S>(
        core: &'a Core<K, V, S>,
        hit: Hit<K, V>,
        (): (),
        pin: impl FnOnce() -> Pin,
    ) -> EntryRef<'a, K, V> {
        EntryRef::new(hit, &core.shared.clock, pin())
    }
}

/// The steps of a look-up of the kind `L` by a key of type `Q`.
// Functions with separate arguments: a struct of core, hash and key would pass through memory.
struct Flow<K, V, S, L, Q: ?Sized>(PhantomData<(K, V, S, L)>, PhantomData<Q>);

impl<K: 'static, V: 'static, S, L: Lookup<K, V>, Q: Equivalent<K> + ?Sized> Flow<K, V, S, L, Q> {
    /// The fast path for a thread that already holds a pin of this cache, or that used another
    /// cache last. It reads the same part of the cache's state as the fast path.
    #[inline(never)]
    fn look_up_elsewhere<'a>(core: &'a Core<K, V, S>, hash: u64, key: &Q) -> Option<L::Answer<'a>> {
        Self::look_once(core, hash, key, core.shared.pin())
    }

    /// The fast path under its pin.
    #[inline(always)]
    fn look_once<'a>(
        core: &'a Core<K, V, S>,
        hash: u64,
        key: &Q,
        pin: Pin,
    ) -> Option<L::Answer<'a>> {
        let map = &core.shared.map;
        match map.look(hash, &pin, |node| key.equivalent(node.key())) {
            Look::Found(node) if node.deadline() == NEVER && L::is_fresh(node, None) => {
                let hit = Hit {
                    node,
                    deadline: NEVER,
                    now: 0,
                };
                Self::end(core, hit, pin)
            }
            Look::Found(node) => Self::judge(core, key, node, pin),
            Look::Absent => None,
            Look::Retry => Self::search(core, hash, key, None, pin),
        }
    }

    /// The rest of a fast look-up that has found an entry with a deadline.
    #[inline(never)]
    fn judge<'a>(
        core: &'a Core<K, V, S>,
        key: &Q,
        node: NodePtr<K, V>,
        pin: Pin,
    ) -> Option<L::Answer<'a>> {
        // If another call has moved the deadline since the clock was read, it has found the entry
        // live, and this look-up comes right after it.
        if let Some(latest) = core.shared.clock.latest()
            && let Ok(hit) = Hit::of(node, node.deadline(), latest)
            && L::is_fresh(node, Some(latest))
        {
            if L::IS_READ && core.shared.reads_extend && !core.lifetimes.is_extended(&hit) {
                return Self::finish(core, key, node, hit.deadline, latest, pin);
            }
            return Self::end(core, hit, pin);
        }
        Self::finish(core, key, node, 0, 0, pin)
    }

    /// The end of a fast look-up that has found a live entry.
    #[inline]
    fn end<'a>(core: &'a Core<K, V, S>, hit: Hit<K, V>, pin: Pin) -> Option<L::Answer<'a>> {
        if L::IS_READ && core.shared.should_record(hit.node) {
            return Self::record(core, hit.node, hit.deadline, hit.now, pin);
        }
        let part = L::take(core, &hit, true);
        Some(L::answer(core, hit, part, move || pin))
    }

    /// The rest of a fast read that the size policy has to hear of.
    #[inline(never)]
    fn record<'a>(
        core: &'a Core<K, V, S>,
        node: NodePtr<K, V>,
        deadline: u64,
        now: u64,
        pin: Pin,
    ) -> Option<L::Answer<'a>> {
        let hit = Hit {
            node,
            deadline,
            now,
        };
        let part = L::take(core, &hit, true);
        core.maintenance.note_read(&core.shared, node, &pin);
        Some(L::answer(core, hit, part, move || pin))
    }

    /// The rest of a look-up that has found the key's entry: judges it by the clock, and does what
    /// a read does. If `now` is not 0, the caller has found it live, by this deadline.
    #[inline(never)]
    fn finish<'a>(
        core: &'a Core<K, V, S>,
        key: &Q,
        node: NodePtr<K, V>,
        deadline: u64,
        now: u64,
        pin: Pin,
    ) -> Option<L::Answer<'a>> {
        let judged = if now == 0 {
            let exactly = L::IS_READ && core.shared.reads_exactly.load(Ordering::Relaxed);
            core.shared.judge(node, exactly)
        } else {
            // Not by the present deadline: it may be newer than the reading, which would undo the
            // extension of another read.
            Ok(Hit {
                node,
                deadline,
                now,
            })
        };
        let Ok(mut hit) = judged else {
            return Self::search(core, node.hash(), key, Some(node), pin);
        };
        let part = L::take(core, &hit, false);
        if L::IS_READ {
            match hit.extend(core) {
                Some(deadline) => hit.deadline = deadline,
                None => return Self::search(core, node.hash(), key, None, pin),
            }
        }
        L::note_hit(core, node, &pin);
        Some(L::answer(core, hit, part, move || pin))
    }

    /// The rest of a look-up that one look did not decide, from the beginning. `found` is a node of
    /// the key that was found due.
    // Separate from the first attempt: a loop around that attempt would slow down every hit.
    #[inline(never)]
    fn search<'a>(
        core: &'a Core<K, V, S>,
        hash: u64,
        key: &Q,
        mut found: Option<NodePtr<K, V>>,
        pin: Pin,
    ) -> Option<L::Answer<'a>> {
        let exactly = L::IS_READ && core.shared.reads_exactly.load(Ordering::Relaxed);
        for asks in 1_u32.. {
            let mut hit = match core.shared.find(hash, key, found.take(), &pin, exactly) {
                Ok(hit) => hit,
                Err(due) => {
                    L::note_miss(core);
                    drop(pin);
                    // Where no scheduler runs, this does a small part of the expiry that is due:
                    // after the pin was dropped, since destructors may run in it.
                    if let Some(now) = due {
                        core.maintenance.after_expired_read(&core.shared, hash, now);
                    }
                    return None;
                }
            };
            let part = L::take(core, &hit, false);
            if L::IS_READ && asks < MAX_ASKS {
                match hit.extend(core) {
                    Some(deadline) => hit.deadline = deadline,
                    None => continue,
                }
            }
            // If another call, or the policy itself, moves the deadline at each attempt, the last
            // move stays.
            L::note_hit(core, hit.node, &pin);
            return Some(L::answer(core, hit, part, move || pin));
        }
        unreachable!("a loop without an end");
    }
}
