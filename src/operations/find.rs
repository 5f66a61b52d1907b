//! Look-ups: one flow for `get`, `get_ref`, `peek_ref` and `contains_key`, and parts of `get_many`.
//!
//! # How it works
//!
//! A look-up finds a reference to the key's live entry ([`EntryRef`]); `get` clones from it. It is
//! a *read* if its use counts: the policy is asked, and the size policy hears of it.
//!
//! 1. The *fast path* ([`Engine::look_up`]) is inlined into the caller. It takes a pin that needs
//!    no call, and looks once at the key's group. If the entry has a deadline, it asks the coarse
//!    clock; where there is none, the exact one. The fast path serves all look-ups that are not
//!    reads, and reads of caches in which a read asks no policy, needs no exact time and counts
//!    nothing. All others begin with [`Engine::look_up_fully`]; so do look-ups by a thread that
//!    holds a pin or used another cache last, and those that one look leaves open.
//! 2. If the size policy has to hear of it, [`Engine::serve_recorded`] offers it to the rings. If
//!    the idle limit moves the deadline, [`Engine::extend_coarsely`] does that, from the coarse
//!    reading. If the entry is not live by that reading, [`Engine::judge_and_serve`] judges it
//!    anew. It does so by the exact clock if the policy is told the time, the idle limit is short,
//!    or the coarse clock leaves it open. It also asks the policy, moves the deadline, records the
//!    use and counts it.
//! 3. [`Engine::search_again`] is the cold end: the entry is due or was changed meanwhile. An entry
//!    that is due is a miss once its deadline is *claimed* (node 4). If that fails, or the entry
//!    was replaced meanwhile, the look-up starts over: the key was never absent.

use crate::engine::{EXACT_READS, Engine, MAX_ASKS, SLOW_READS};
use crate::map::Look;
use crate::node::{NodePtr, NodeState};
use crate::reclaim::Pin;
use crate::stats::Count;
use crate::sync::Ordering;
use crate::time::{self, Clock, NEVER};
use equivalent::Equivalent;
use std::fmt;
use std::marker::PhantomData;
use std::ops::Deref;
use std::time::Duration;

/// An entry as it was judged at one moment: live or due.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Judged<K, V> {
    pub(crate) node: NodePtr<K, V>,
    /// The deadline by which it was judged.
    pub(crate) deadline: u64,
    /// The moment at which it was judged, see [`Clock::now_to_judge`]; 0 where none was needed.
    ///
    /// [`Clock::now_to_judge`]: crate::time::Clock::now_to_judge
    pub(crate) now: u64,
    /// Whether that is an exact reading because reads need one.
    pub(crate) is_exact: bool,
}

impl<K, V> Judged<K, V> {
    /// Whether the entry was judged to be due.
    #[inline]
    fn is_due(&self) -> bool {
        time::is_due(self.now, self.deadline)
    }
}

/// Look-ups. With `IS_READ` they count as reads.
///
/// Each function calls `serve` with the entry that it finds, and returns the answer. So neither a
/// cloned value passes through memory, nor the reference from which it is cloned. `serve` also gets
/// a moment that is not before now, if one was read to judge the entry.
impl<K: Eq + 'static, V: 'static> Engine<K, V> {
    /// Looks a key up; this counts as a read.
    #[cfg_attr(not(debug_assertions), inline(always))]
    pub(crate) fn read<'a, Q, R>(
        &'a self,
        hash: u64,
        key: &Q,
        serve: impl Fn(EntryRef<'a, K, V>, Option<u64>) -> R,
    ) -> Option<R>
    where
        Q: Equivalent<K> + ?Sized,
    {
        self.look_up::<true, _, _>(hash, key, serve)
    }

    /// Looks a key up; this does not count as a read.
    #[cfg_attr(not(debug_assertions), inline(always))]
    pub(crate) fn peek<'a, Q, R>(
        &'a self,
        hash: u64,
        key: &Q,
        serve: impl Fn(EntryRef<'a, K, V>, Option<u64>) -> R,
    ) -> Option<R>
    where
        Q: Equivalent<K> + ?Sized,
    {
        self.look_up::<false, _, _>(hash, key, serve)
    }

    /// Finds the live entry of a key: the fast path, see the module docs.
    // Not without optimization: there each caller's frame would have room for a value of each arm.
    #[cfg_attr(not(debug_assertions), inline(always))]
    fn look_up<'a, const IS_READ: bool, Q, R>(
        &'a self,
        hash: u64,
        key: &Q,
        serve: impl Fn(EntryRef<'a, K, V>, Option<u64>) -> R,
    ) -> Option<R>
    where
        Q: Equivalent<K> + ?Sized,
    {
        if IS_READ && self.has_detour(SLOW_READS) {
            return self.look_up_fully::<IS_READ, _, _>(hash, key, serve);
        }
        let Some(pin) = self.domain.pin_alone() else {
            return self.look_up_fully::<IS_READ, _, _>(hash, key, serve);
        };
        match self.map.look(hash, &pin, |node| key.equivalent(node.key())) {
            Look::Found(node) => self.serve_found::<IS_READ, _>(node, pin, serve),
            // Nothing is counted: a cache that counts its reads has `SLOW_READS`.
            Look::Absent => None,
            Look::Retry => {
                drop(pin);
                self.look_up_fully::<IS_READ, _, _>(hash, key, serve)
            }
        }
    }

    /// The rest of a fast look-up that has found this node: judges it by the coarse clock; where
    /// there is none, by the exact one.
    #[cfg_attr(not(debug_assertions), inline(always))]
    fn serve_found<'a, const IS_READ: bool, R>(
        &'a self,
        node: NodePtr<K, V>,
        pin: Pin,
        serve: impl Fn(EntryRef<'a, K, V>, Option<u64>) -> R,
    ) -> Option<R> {
        let mut deadline = node.deadline();
        let bound = if deadline == NEVER {
            None
        } else {
            // A read that asks the policy is not fast. So only the idle limit may move the
            // deadline.
            let idle_room = if IS_READ { self.lifetimes.idle_room } else { 0 };
            let moment = match self.clock.upper_bound() {
                Some(coarse) => coarse,
                None if idle_room == 0 => self.clock.now(),
                None => return self.judge_and_serve::<IS_READ, _>(node, pin, serve),
            };
            // If another call has moved the deadline since the clock was read, it has found the
            // entry live, and this look-up comes right after it.
            deadline = node.deadline();
            if time::has_come(moment.wrapping_add(idle_room), deadline) {
                if idle_room > 0 {
                    return self.extend_coarsely(node, moment, pin, serve);
                }
                return self.judge_and_serve::<IS_READ, _>(node, pin, serve);
            }
            Some(moment)
        };
        if IS_READ && self.reads.should_record(node) {
            return self.serve_recorded(node, deadline, pin, serve);
        }
        let entry = EntryRef::new(node, deadline, &self.clock, pin);
        Some(serve(entry, bound))
    }

    /// A look-up without the fast path, see the module docs.
    #[inline(never)]
    pub(super) fn look_up_fully<'a, const IS_READ: bool, Q, R>(
        &'a self,
        hash: u64,
        key: &Q,
        serve: impl Fn(EntryRef<'a, K, V>, Option<u64>) -> R,
    ) -> Option<R>
    where
        Q: Equivalent<K> + ?Sized,
    {
        let pin = self.pin();
        match self.map.find(hash, &pin, |node| key.equivalent(node.key())) {
            Some(node) => self.judge_and_serve::<IS_READ, _>(node, pin, serve),
            None => {
                self.note_miss::<IS_READ>();
                None
            }
        }
    }

    /// Counts a look-up that found nothing.
    #[inline]
    pub(super) fn note_miss<const IS_READ: bool>(&self) {
        if IS_READ {
            self.count(Count::Misses);
        }
    }

    /// Notes and counts the use of an entry, if the look-up is a read.
    #[inline]
    pub(super) fn note_hit<const IS_READ: bool>(&self, node: NodePtr<K, V>, pin: &Pin) {
        if IS_READ {
            self.record_read(node, pin);
            self.count(Count::Hits);
        }
    }

    /// The rest of a fast read that was judged at `now`, by the coarse clock, and that the idle
    /// limit extends.
    #[inline(never)]
    fn extend_coarsely<'a, R>(
        &'a self,
        node: NodePtr<K, V>,
        now: u64,
        pin: Pin,
        serve: impl Fn(EntryRef<'a, K, V>, Option<u64>) -> R,
    ) -> Option<R> {
        let deadline = node.deadline();
        // Another read may have extended it since the clock was read; or the reading, which may be
        // ahead, finds it due. Then the exact clock decides.
        if time::is_due(now, deadline) || self.lifetimes.keeps_deadline(now, deadline) {
            return self.judge_and_serve::<true, _>(node, pin, serve);
        }
        let Some(moved) = self.move_by_read(node, deadline, now, None) else {
            return self.begin_anew::<true, _>(node, None, pin, serve);
        };
        self.note_hit::<true>(node, &pin);
        Some(serve(
            EntryRef::new(node, moved, &self.clock, pin),
            Some(now),
        ))
    }

    /// The rest of a fast read of a live entry of which the size policy has to hear.
    #[inline(never)]
    fn serve_recorded<'a, R>(
        &'a self,
        node: NodePtr<K, V>,
        deadline: u64,
        pin: Pin,
        serve: impl Fn(EntryRef<'a, K, V>, Option<u64>) -> R,
    ) -> Option<R> {
        self.offer_read(node, &pin);
        Some(serve(EntryRef::new(node, deadline, &self.clock, pin), None))
    }

    /// The rest of a look-up that has found the key's entry: judges it, and does what a read does.
    #[inline(never)]
    fn judge_and_serve<'a, const IS_READ: bool, R>(
        &'a self,
        node: NodePtr<K, V>,
        pin: Pin,
        serve: impl Fn(EntryRef<'a, K, V>, Option<u64>) -> R,
    ) -> Option<R> {
        let judged = self.judge(node, IS_READ);
        let mut due = None;
        if judged.is_due() {
            due = Some(node);
        } else {
            let moved = if IS_READ {
                self.extend(&judged)
            } else {
                Some(judged.deadline)
            };
            if let Some(deadline) = moved {
                self.note_hit::<IS_READ>(node, &pin);
                return Some(serve(EntryRef::new(node, deadline, &self.clock, pin), None));
            }
        }
        self.begin_anew::<IS_READ, _>(node, due, pin, serve)
    }

    /// The rest of a look-up that has found this node of the key, and has to begin anew: another
    /// call has moved the deadline, or the node is `due`.
    // Separate from the first attempt: a loop around that attempt would slow down every hit.
    #[cold]
    #[inline(never)]
    fn begin_anew<'a, const IS_READ: bool, R>(
        &'a self,
        node: NodePtr<K, V>,
        due: Option<NodePtr<K, V>>,
        pin: Pin,
        serve: impl Fn(EntryRef<'a, K, V>, Option<u64>) -> R,
    ) -> Option<R> {
        let found = self.search_again::<IS_READ>(node, due, pin)?;
        Some(serve(found, None))
    }

    /// Finds the live entry that the key of this node has now.
    // It does not serve: that would be a copy for each method.
    #[inline(never)]
    fn search_again<const IS_READ: bool>(
        &self,
        node: NodePtr<K, V>,
        mut due: Option<NodePtr<K, V>>,
        pin: Pin,
    ) -> Option<EntryRef<'_, K, V>> {
        let hash = node.hash();
        let matches = |other: NodePtr<K, V>| other.key() == node.key();
        for asks in 1_u32.. {
            let Some(judged) = self.find_from(hash, matches, due.take(), &pin, IS_READ) else {
                break;
            };
            if judged.is_due() {
                self.note_miss::<IS_READ>();
                drop(pin);
                // Where no scheduler runs, this does a small part of the expiry that is due: after
                // the pin was dropped, since destructors may run in it.
                self.after_expired_read(hash, judged.now);
                return None;
            }
            // If another call, or the policy itself, moves the deadline at each attempt, the last
            // move stays.
            let moved = if IS_READ && asks < MAX_ASKS {
                self.extend(&judged)
            } else {
                Some(judged.deadline)
            };
            if let Some(deadline) = moved {
                self.note_hit::<IS_READ>(judged.node, &pin);
                return Some(EntryRef::new(judged.node, deadline, &self.clock, pin));
            }
        }
        self.note_miss::<IS_READ>();
        None
    }
}

impl<K, V> Engine<K, V> {
    /// Whether reads need one of these.
    ///
    /// Relaxed: the full path is right for each look-up, and the fast one for a while longer.
    #[inline]
    pub(super) fn has_detour(&self, needs: u8) -> bool {
        self.detours.load(Ordering::Relaxed) & needs != 0
    }

    /// The entry that `matches` accepts, if there is one, as it was judged; one that is due was
    /// claimed. `found` is such a node, if the caller has found it. A read may need the exact time.
    #[inline]
    fn find_from(
        &self,
        hash: u64,
        matches: impl Fn(NodePtr<K, V>) -> bool,
        mut found: Option<NodePtr<K, V>>,
        pin: &Pin,
        is_read: bool,
    ) -> Option<Judged<K, V>> {
        loop {
            let node = match found.take() {
                Some(node) => node,
                None => self.map.find(hash, pin, &matches)?,
            };
            let judged = self.judge(node, is_read);
            if !judged.is_due() || self.claim_due(&judged, pin) {
                return Some(judged);
            }
        }
    }

    /// The live entry of a key, for a call that is no read and has the pin.
    pub(crate) fn find_live<Q>(&self, hash: u64, key: &Q, pin: &Pin) -> Option<Judged<K, V>>
    where
        Q: Equivalent<K> + ?Sized,
    {
        let matches = |node: NodePtr<K, V>| key.equivalent(node.key());
        let hit = self.find_from(hash, matches, None, pin, false)?;
        if hit.is_due() { None } else { Some(hit) }
    }

    /// The live entry of a node that was in the map a moment ago, or what its key has instead. With
    /// a pin of its own: an earlier pin, under which the node was seen, does not protect what is
    /// found.
    pub(crate) fn entry_again(&self, node: NodePtr<K, V>) -> Option<EntryRef<'_, K, V>>
    where
        K: Eq,
    {
        let pin = self.pin();
        // In this order: first the deadline says that the node is live, then its state says that it
        // is still in the map.
        let mut judged = self.judge(node, false);
        if judged.is_due() || node.state() != NodeState::InMap {
            judged = self.find_live(node.hash(), node.key(), &pin)?;
        }
        Some(EntryRef::new(
            judged.node,
            judged.deadline,
            &self.clock,
            pin,
        ))
    }

    /// Judges an entry.
    ///
    /// The clock is read after the deadline. So the entry was live at some moment of the call, and
    /// an old reading does not overwrite a later extension by another thread. An entry without a
    /// deadline needs a reading only if the read may give it one.
    #[inline(always)]
    fn judge(&self, node: NodePtr<K, V>, is_read: bool) -> Judged<K, V> {
        let deadline = node.deadline();
        let is_exact = is_read && self.has_detour(EXACT_READS);
        let now = if deadline == NEVER && !self.lifetimes.reads_extend {
            0
        } else if is_exact {
            self.clock.now_beside(deadline)
        } else {
            self.clock.now_to_judge(deadline)
        };
        Judged {
            node,
            deadline,
            now,
            is_exact,
        }
    }

    /// Claims the deadline of an entry that was judged due. True if it is still the key's current
    /// entry, so that the key is absent. False if it was replaced, or a reader with an earlier
    /// clock extended it: the look-up has to start over.
    fn claim_due(&self, due: &Judged<K, V>, pin: &Pin) -> bool {
        let node = due.node;
        let now = due.now;
        // This is final: either the claim succeeds, and no extension can follow, or an extension
        // came first, and the claim fails.
        if !node.claim(due.deadline, now) {
            return false;
        }
        let hash = node.hash();
        if !self.lifetimes.reads_extend {
            return self.map.find(hash, pin, |other| other == node).is_some();
        }
        // The deadline is claimed, by this thread or another. So no writer replaces the node and no
        // reader extends it: the key is absent. If the deadline is frozen instead, a writer is
        // replacing the node: the look-up has to start over until the new node is in place.
        if !node.is_frozen(now) {
            return true;
        }
        node.state() == NodeState::InMap && self.map.lock(hash).find_node(hash, node).is_some()
    }

    /// Whether the node is in the map and not due, just now.
    pub(crate) fn is_live(&self, node: NodePtr<K, V>) -> bool {
        self.live_deadline(node).is_some()
    }

    /// The deadline by which the node, which is in the map, is not due just now.
    pub(crate) fn live_deadline(&self, node: NodePtr<K, V>) -> Option<u64> {
        let judged = self.judge(node, false);
        // In the order of `entry_again`.
        if judged.is_due() || node.state() != NodeState::InMap {
            return None;
        }
        Some(judged.deadline)
    }

    /// Whether a node that was found has left the map, or is being replaced: a call that has not
    /// found it live has to look again.
    #[cold]
    pub(super) fn has_left(&self, node: NodePtr<K, V>) -> bool {
        node.state() != NodeState::InMap || node.is_frozen(self.clock.now())
    }

    /// Whether an entry is stale. `bound` is a moment that is not before now, if one was just read.
    #[inline]
    pub(crate) fn is_stale(&self, node: NodePtr<K, V>, bound: Option<u64>) -> bool {
        let Some(refresh) = node.refresh() else {
            return false;
        };
        let stale = refresh.at();
        if stale == NEVER {
            return false;
        }
        match bound {
            Some(bound) if !time::is_due(bound, stale) => false,
            _ => self.clock.has_passed(stale, bound),
        }
    }
}

/// A reference to one entry: its key, its value, and the time it has left.
///
/// It shows the value as it was at the look-up: a later update or removal does not change it, and
/// it never blocks writers. As long as it exists, the cache frees *none* of the entries that it
/// removes meanwhile. So drop the reference soon. It cannot be sent to another thread, nor live
/// over an `.await` in a task that may move. To keep the value for longer, clone it: store an
/// [`Arc`](std::sync::Arc).
///
/// # Methods of the value
///
/// A reference derefs to the value: `entry.len()` calls the value's `len`. Five methods of the
/// reference itself hide methods of the value with the same names: `key`, `value`, `time_left`,
/// `age` and `is_stale`. For such a value write `entry.value().is_stale()`. Later versions add no
/// method that takes `self`, and implement no trait that values usually have: what they add is
/// called as `EntryRef::name(&entry)`. So `entry.clone()` clones the value, also in the future.
///
/// If a reference is leaked, for example by [`std::mem::forget`], the cache frees no key and no
/// value that it removes later, until the cache itself is dropped. The end of the thread that
/// leaked it changes nothing.
///
/// ```
/// use std::time::Duration;
/// use wheelhouse::Cache;
///
/// let cache: Cache<String, String> = Cache::new(100);
/// cache.insert_with_ttl("ada".into(), "lovelace".into(), Duration::from_secs(60));
///
/// let entry = cache.get_ref("ada").unwrap();
/// assert_eq!(entry.key(), "ada");
/// assert_eq!(entry.len(), 8); // derefs to the value
/// assert!(entry.time_left().unwrap() <= Duration::from_secs(60));
/// ```
pub struct EntryRef<'a, K, V> {
    _marker: PhantomData<AnEntryRefStaysOnTheThreadThatLookedItUp>,
    pub(crate) node: NodePtr<K, V>,
    /// The deadline at the look-up. It is used if the entry was replaced or removed since.
    pub(crate) deadline: u64,
    clock: &'a Clock,
    _pin: Pin,
}

/// Not `Send`: the pin of an [`EntryRef`] belongs to its thread. The compiler names this type where
/// a reference is held over an `.await`: clone what is needed, and drop the reference before.
struct AnEntryRefStaysOnTheThreadThatLookedItUp(
    #[allow(dead_code, reason = "it only makes the type not Send")] *const (),
);

impl<'a, K, V> EntryRef<'a, K, V> {
    /// The pin was taken before the node was found and belongs to the domain of the node's cache.
    #[inline]
    pub(super) fn new(node: NodePtr<K, V>, deadline: u64, clock: &'a Clock, pin: Pin) -> Self {
        Self {
            _marker: PhantomData,
            node,
            deadline,
            clock,
            _pin: pin,
        }
    }

    /// The key as the cache stores it.
    ///
    /// ```
    /// let cache = wheelhouse::Cache::new(10);
    /// cache.insert("k", 1);
    /// assert_eq!(*cache.get_ref("k").unwrap().key(), "k");
    /// ```
    pub fn key(&self) -> &K {
        self.node.key()
    }

    /// The value.
    ///
    /// ```
    /// let cache = wheelhouse::Cache::new(10);
    /// cache.insert("k", 1);
    /// assert_eq!(*cache.get_ref("k").unwrap().value(), 1);
    /// ```
    pub fn value(&self) -> &V {
        self.node.value()
    }

    /// The time that the entry has left: `None` if it never expires, zero once it is due.
    ///
    /// If the entry was replaced or removed since the look-up, it is the time that this value would
    /// have left.
    ///
    /// # Cost
    ///
    /// One reading of the clock.
    ///
    /// ```
    /// let cache = wheelhouse::Cache::new(10);
    /// cache.insert("k", 1);
    /// assert_eq!(cache.get_ref("k").unwrap().time_left(), None);
    /// ```
    pub fn time_left(&self) -> Option<Duration> {
        if self.node.deadline() == NEVER {
            return None;
        }
        let now = self.clock.now();
        let deadline = self.node.present_deadline(self.deadline, now);
        time::time_left(now, deadline)
    }

    /// Whether the entry's moment of refresh has come: a read of the
    /// [`LoadingCache`](crate::LoadingCache) would start a reload, or one is under way. After a
    /// reload that has failed it is false until the next try, though the value is no newer. A
    /// program that tells its callers how old a value is keeps the instant in the value.
    ///
    /// # Cost
    ///
    /// One reading of the clock.
    ///
    /// ```
    /// let cache = wheelhouse::Cache::new(10);
    /// cache.insert("k", 1);
    /// assert!(!cache.get_ref("k").unwrap().is_stale()); // it is not reloaded
    /// ```
    pub fn is_stale(&self) -> bool {
        match self.node.refresh() {
            Some(refresh) => refresh.is_reloading() || refresh.is_stale(self.clock.now()),
            None => false,
        }
    }

    /// The time since this value was written. An age of 292 years or more reads as zero, because it
    /// looks like a step backwards of the clock.
    ///
    /// # Cost
    ///
    /// One reading of the clock.
    ///
    /// ```
    /// use std::time::Duration;
    /// use wheelhouse::{Cache, ManualTicker};
    ///
    /// let ticker = ManualTicker::new();
    /// let cache = Cache::builder()
    ///     .ticker(ticker.clone())
    ///     .time_to_live(Duration::from_secs(60))
    ///     .build();
    /// cache.insert("k", 1);
    /// ticker.advance(Duration::from_secs(7));
    /// assert_eq!(cache.get_ref("k").unwrap().age(), Duration::from_secs(7));
    /// ```
    pub fn age(&self) -> Duration {
        self.node.age(self.clock.now())
    }
}

impl<K, V> Deref for EntryRef<'_, K, V> {
    type Target = V;

    fn deref(&self) -> &V {
        self.value()
    }
}

impl<K: fmt::Debug, V: fmt::Debug> fmt::Debug for EntryRef<'_, K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EntryRef")
            .field("key", self.key())
            .field("value", self.value())
            .finish()
    }
}
