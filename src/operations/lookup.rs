//! Look-ups: one flow for `get`, `get_ref`, `peek_ref`, `contains_key` and `get_many`.
//!
//! # How it works
//!
//! The kinds of look-up are types that implement [`Lookup`]: they say what a hit gives to the
//! caller, and whether it counts as a read. The flow is generic over them.
//!
//! 1. The *fast path* ([`Core::look_up`]) is inlined into the caller. It takes a pin that needs no
//!    call, and looks once at the key's group. It serves all look-ups that are not reads, and reads
//!    of caches in which a read moves no deadline and counts nothing.
//! 2. If the entry has a deadline, or one look does not decide, another function finishes the
//!    look-up, by a tail call. So the fast path keeps nothing across a call, and saves no register.
//! 3. The full path asks the policy, moves the deadline, notes the use and counts. `get_many`
//!    ([`many`](super::many)) finds the entries of a batch together, and takes the other steps from
//!    here.
//! 4. An entry that is due is a miss once its deadline is *claimed* (node 4). If that fails, or the
//!    entry was replaced meanwhile, the look-up starts over: the key was never absent.

use super::core::Core;
use super::entry_ref::EntryRef;
use super::find::{Glance, Hit, Miss};
use super::lifetimes::MAX_ASKS;
use crate::node::NodePtr;
use crate::reclaim::Pin;
use equivalent::Equivalent;
use std::borrow::Borrow;
use std::hash::{BuildHasher, Hash};
use std::marker::PhantomData;

/// A kind of look-up.
pub(crate) trait Lookup<K: 'static, V: 'static> {
    /// The caller's answer for an entry.
    type Answer<'a>;
    /// The part of the entry that is taken before the policy is asked.
    type Taken;
    /// Whether a hit counts as a read: the policy is asked, the use is noted and counted.
    const IS_READ: bool;

    /// May run user code. Before the policy is asked: a panic in `clone` leaves the deadline as it
    /// is.
    fn take(hit: &Hit<K, V>) -> Self::Taken;

    /// The answer of a hit. `pin` gives a pin that keeps the entry.
    fn found<'a, S>(
        core: &'a Core<K, V, S>,
        hit: Hit<K, V>,
        taken: Self::Taken,
        pin: impl FnOnce() -> Pin,
    ) -> Self::Answer<'a>;
}

/// A kind of look-up that keeps no pin: it answers with a copy of some part of the entry.
pub(crate) trait Take<K: 'static, V: 'static> {
    type Answer;
    const IS_READ: bool;

    fn take(hit: &Hit<K, V>) -> Self::Answer;
}

/// A look-up that answers with what it takes, and keeps no pin.
pub(crate) struct Taken<T>(PhantomData<T>);

impl<K: 'static, V: 'static, T: Take<K, V>> Lookup<K, V> for Taken<T> {
    type Answer<'a> = T::Answer;
    type Taken = T::Answer;
    const IS_READ: bool = T::IS_READ;

    #[inline(always)]
    fn take(hit: &Hit<K, V>) -> T::Answer {
        T::take(hit)
    }

    #[inline(always)]
    fn found<S>(
        _: &Core<K, V, S>,
        _: Hit<K, V>,
        taken: T::Answer,
        _: impl FnOnce() -> Pin,
    ) -> T::Answer {
        taken
    }
}

/// `get`: a clone of the value.
pub(crate) enum Cloned {}

impl<K: 'static, V: Clone + 'static> Take<K, V> for Cloned {
    type Answer = V;
    const IS_READ: bool = true;

    #[inline(always)]
    fn take(hit: &Hit<K, V>) -> V {
        hit.node.value().clone()
    }
}

/// `contains_key`.
pub(crate) enum Contained {}

impl<K: 'static, V: 'static> Take<K, V> for Contained {
    type Answer = ();
    const IS_READ: bool = false;

    #[inline(always)]
    fn take(_: &Hit<K, V>) {}
}

/// `get_ref`, which is a read, and `peek_ref`, which is none: the entry under its pin.
pub(crate) enum Referenced<const IS_READ: bool> {}

impl<K: 'static, V: 'static, const IS_READ: bool> Lookup<K, V> for Referenced<IS_READ> {
    type Answer<'a> = EntryRef<'a, K, V>;
    type Taken = ();
    const IS_READ: bool = IS_READ;

    #[inline(always)]
    fn take(_: &Hit<K, V>) {}

    #[inline(always)]
    fn found<'a, S>(
        core: &'a Core<K, V, S>,
        hit: Hit<K, V>,
        (): (),
        pin: impl FnOnce() -> Pin,
    ) -> EntryRef<'a, K, V> {
        EntryRef::new(hit, &core.shared.clock, pin())
    }
}

impl<K: 'static, V: 'static, S> Core<K, V, S> {
    /// Looks a key up: the fast path, see the module docs.
    #[inline(always)]
    pub(crate) fn look_up<L, Q>(&self, key: &Q) -> Option<L::Answer<'_>>
    where
        L: Lookup<K, V>,
        Q: Equivalent<K> + Hash + ?Sized,
        S: BuildHasher,
    {
        self.look_up_hashed::<L, Q>(self.hash(key), key)
    }

    /// [`look_up`](Self::look_up) of a key with this hash.
    #[inline(always)]
    pub(crate) fn look_up_hashed<L, Q>(&self, hash: u64, key: &Q) -> Option<L::Answer<'_>>
    where
        L: Lookup<K, V>,
        Q: Equivalent<K> + ?Sized,
    {
        if self.shared.has_detour(L::IS_READ) {
            return self.look_up_fully::<L, Q>(hash, key);
        }
        match self.shared.pin_alone() {
            Some(pin) => Flow::<K, V, S, L, Q>::look_once(self, hash, key, pin),
            None => Flow::<K, V, S, L, Q>::look_up_elsewhere(self, hash, key),
        }
    }

    /// The full path from its beginning: where a hit asks the policy, may move the deadline, or is
    /// counted.
    #[inline(never)]
    pub(crate) fn look_up_fully<L, Q>(&self, hash: u64, key: &Q) -> Option<L::Answer<'_>>
    where
        L: Lookup<K, V>,
        Q: Equivalent<K> + ?Sized,
    {
        self.count_operation();
        Flow::<K, V, S, L, Q>::look_up_pinned(self, hash, key, self.shared.pin())
    }

    /// Counts a look-up that found nothing.
    #[inline(always)]
    pub(super) fn note_miss<L: Lookup<K, V>>(&self) {
        if L::IS_READ {
            self.shared.count_miss();
        }
    }

    /// Notes and counts the use of an entry, if the look-up is a read.
    #[inline(always)]
    pub(super) fn note_hit<L: Lookup<K, V>>(&self, node: NodePtr<K, V>, pin: &Pin) {
        if L::IS_READ {
            self.maintenance.note_read(&self.shared, node, pin);
            if let Some(counters) = &self.shared.counters {
                counters.hit();
            }
        }
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
    fn look_once<'a, P>(
        core: &'a Core<K, V, S>,
        hash: u64,
        key: &Q,
        pin: P,
    ) -> Option<L::Answer<'a>>
    where
        P: Borrow<Pin> + Into<Pin>,
    {
        match core.shared.glance(hash, key, pin.borrow()) {
            Glance::Hit(hit) => {
                let taken = L::take(&hit);
                if L::IS_READ && core.shared.should_record(hit.node) {
                    return Self::record_hit(core, hit, taken, pin.into());
                }
                Some(L::found(core, hit, taken, move || pin.into()))
            }
            Glance::Absent => None,
            Glance::Timed(node) => Self::judge_and_finish(core, hash, key, node, pin.into()),
            Glance::Retry => Self::look_up_retry(core, hash, key, pin.into()),
        }
    }

    /// The rest of a fast read that the size policy has to hear of.
    #[inline(never)]
    fn record_hit<'a>(
        core: &'a Core<K, V, S>,
        hit: Hit<K, V>,
        taken: L::Taken,
        pin: Pin,
    ) -> Option<L::Answer<'a>> {
        core.maintenance.note_read(&core.shared, hit.node, &pin);
        Some(L::found(core, hit, taken, move || pin))
    }

    /// The rest of a fast look-up that found the key's entry, and has to read the clock.
    #[inline(never)]
    fn judge_and_finish<'a>(
        core: &'a Core<K, V, S>,
        hash: u64,
        key: &Q,
        node: NodePtr<K, V>,
        pin: Pin,
    ) -> Option<L::Answer<'a>> {
        match core.shared.judge(node) {
            Ok(hit) => Self::finish(core, hash, key, hit, pin),
            Err(due) => Self::finish_without_hit(core, hash, key, Some(due), pin),
        }
    }

    /// The rest of a fast look-up that one look did not decide.
    #[inline(never)]
    fn look_up_retry<'a>(
        core: &'a Core<K, V, S>,
        hash: u64,
        key: &Q,
        pin: Pin,
    ) -> Option<L::Answer<'a>> {
        Self::look_up_pinned(core, hash, key, pin)
    }

    /// The full path under its pin.
    #[inline(always)]
    fn look_up_pinned<'a>(
        core: &'a Core<K, V, S>,
        hash: u64,
        key: &Q,
        pin: Pin,
    ) -> Option<L::Answer<'a>> {
        match core.shared.find(hash, key, &pin) {
            Ok(hit) => Self::finish(core, hash, key, hit, pin),
            Err(due) => Self::finish_without_hit(core, hash, key, due, pin),
        }
    }

    /// The rest of a look-up that has found a live entry.
    // Always inlined, as what it calls, so that the hit stays in registers.
    #[inline(always)]
    fn finish<'a>(
        core: &'a Core<K, V, S>,
        hash: u64,
        key: &Q,
        mut hit: Hit<K, V>,
        pin: Pin,
    ) -> Option<L::Answer<'a>> {
        let taken = L::take(&hit);
        if L::IS_READ && !hit.extend(core) {
            return Self::read_again(core, hash, key, pin);
        }
        core.note_hit::<L>(hit.node, &pin);
        Some(L::found(core, hit, taken, move || pin))
    }

    /// The rest of a look-up that has met no live entry; see `Shared::find`.
    #[inline(never)]
    fn finish_without_hit<'a>(
        core: &'a Core<K, V, S>,
        hash: u64,
        key: &Q,
        due: Option<Hit<K, V>>,
        pin: Pin,
    ) -> Option<L::Answer<'a>> {
        match core.shared.claim_due(hash, key, due, &pin) {
            Ok(hit) => Self::finish(core, hash, key, hit, pin),
            Err(miss) => Self::miss(core, hash, miss, pin),
        }
    }

    /// Starts over a read whose entry was changed meanwhile.
    // Separate from the first attempt: a loop around that attempt would slow down every hit.
    #[cold]
    #[inline(never)]
    fn read_again<'a>(
        core: &'a Core<K, V, S>,
        hash: u64,
        key: &Q,
        pin: Pin,
    ) -> Option<L::Answer<'a>> {
        let mut asks = 1;
        loop {
            let mut hit = match core.shared.find_live(hash, key, &pin) {
                Ok(hit) => hit,
                Err(miss) => return Self::miss(core, hash, miss, pin),
            };
            let taken = L::take(&hit);
            // If another call, or the policy itself, moves the deadline at each attempt, the last
            // move stays.
            if asks >= MAX_ASKS || hit.extend(core) {
                core.note_hit::<L>(hit.node, &pin);
                return Some(L::found(core, hit, taken, move || pin));
            }
            asks += 1;
        }
    }

    /// Ends a look-up that found nothing. Where no scheduler runs, it does a small part of the
    /// expiry that is due: after the pin was dropped, since destructors may run in it.
    fn miss<'a>(core: &'a Core<K, V, S>, hash: u64, miss: Miss, pin: Pin) -> Option<L::Answer<'a>> {
        core.note_miss::<L>();
        drop(pin);
        if let Some(now) = miss.due {
            core.maintenance.after_expired_read(&core.shared, hash, now);
        }
        None
    }
}
