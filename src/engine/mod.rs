//! The engine: a cache without its hasher, and the maintenance of it.
//!
//! A handle hashes a key and calls the [`Engine`]. Here is what the engine has, and the work that
//! the operations (`operations/`) leave for later.
//!
//! What follows the entries of some shards of the map (wheel, size policy, what waits to be freed)
//! is a [`Part`], with a lock of its own, the *maintenance lock*. Small caches have one part, large
//! ones on many cores up to 32. All else is common to the cache: the map; the domain of pins; the
//! clock; policies and limits; the listener's notifications; the one waker. What the parts weigh
//! together is at most the bound ([`room`]).
//!
//! Writes change the map at once and leave an event in their shard's batch. A *pass* applies the
//! events to the timer wheel and to the size policy, and removes entries that are due and victims
//! of the size policy. It collects notifications for the listener, and what is to be freed.
//!
//! # How a pass works
//!
//! A pass works on one part. It holds the maintenance lock of it and works against a budget
//! ([`Plan`]). In order ([`pass`]):
//!
//! 1. *start drain*: if the grace period of what was retired is over, this pass begins a drain
//!    ([`freeing`]);
//! 2. *drain*: the read rings go to the size policy, and the batches of the shards, in turn, to the
//!    wheel and the size policy. For an exact order of use, the rings go again before each batch;
//! 3. *expire*: what the wheel finds due leaves the map as `Expired`. The wheel's time advances
//!    before it links an entry or looks for one;
//! 4. *evict*: while the cache is over its bound, what else is due leaves, then the victims of the
//!    size policy;
//! 5. *seal*: a grace period begins for what was retired; notifications are posted. What the
//!    listener has yet to hear of is retired later, when it was delivered.
//!
//! A pass stops where its budget ends, and the next one continues from there. Listeners, and the
//! destructors of keys and values, run after the lock was released.
//!
//! Runs make many passes in a row ([`runs`]), and callers that help a few ([`writers`]).
//!
//! # The end of a cache
//!
//! `scheduler/gate.rs` says which thread ends a cache, and when. It has the rest told
//! ([`Engine::tell_rest`]), then owns the cache alone, and frees everything ([`Engine::close`]).
//!
//! # Invariants
//!
//! 1. The wheel and the size policy of a part, and the entries of its shards, change under the
//!    maintenance lock of that part only. But a writer may name a node in an entry (entry 3). A
//!    thread holds one of these locks at a time, but for [`Engine::set_max_capacity`], which takes
//!    the others while it holds the first.
//! 2. The events of a shard are applied in the order in which they were pushed. A batch that was
//!    taken is applied whole before the lock is released.
//! 3. A node is retired when it has left the map, and the listener was called for it. It has also
//!    left the wheel and the queues, or another node has its entry. It is freed after a grace
//!    period that is followed by a complete drain of all rings and all batches. Until then, a batch
//!    may still hold the event `Rescheduled` of a node that a pass has removed, and a ring may hold
//!    a read of any removed node.
//! 4. A node is Dead exactly from the moment at which a pass has unlinked its entry everywhere, and
//!    Succeeded from the moment at which another node has its entry.
//! 5. A pass runs no user code but the ticker's. If that panics, the pass continues with the last
//!    time it knows, leaves everything whole, and resumes the panic at its end.

#[cfg(any(test, fuzzing))]
#[path = "../../checks/engine.rs"]
mod check;
pub(crate) mod delivery;
pub(crate) mod freeing;
mod lifetimes;
mod part;
mod pass;
mod room;
mod runs;
mod settings;
#[cfg(all(test, not(wheelhouse_loom)))]
mod tests;
mod waking;
mod writers;

use crate::buffer::ReadBuffer;
use crate::contain::contain;
use crate::eviction::{Eviction, EvictionPolicy};
use crate::flight::Timeouts;
use crate::listener::{Delivery, RemovalCause};
use crate::map::{Garbage, Map};
use crate::node::{EntryPtr, NodePtr};
use crate::reclaim::{Domain, Pin};
use crate::refresh::Refresh;
use crate::scheduler::{self, CREW, CacheRef, Scheduler};
use crate::stats::{Count, Counters, Stats};
use crate::stripe;
use crate::sync::{AtomicU8, AtomicU32, AtomicU64, AtomicUsize, Mutex, Ordering, unlock_fairly};
use crate::time::Clock;
use crate::wheel::{LEVELS, Spans};
use delivery::Notifier;
use freeing::Freeing;
pub(crate) use lifetimes::{FIRST_READ, FromLoad, LifetimeSource, Lifetimes};
pub(crate) use lifetimes::{MAX_ASKS, NO_READ, Superseded, TimedAnswer};
use part::{Part, State};
use pass::{Evict, Plan};
use runs::Left;
pub(crate) use settings::{ForgetFailure, Settings, Weigher};
use std::sync::Arc;
use waking::Waking;
pub(crate) use writers::WriteOutcome;
use writers::{BOUNDED_CALLER_BUDGET, CALLER_BUDGET, batch_soft_limit};

/// A cache without its hasher; see the module docs.
///
/// Calls read it and seldom write it. The fields have this order so that a hit reads two cache
/// lines only, beside the hasher in front of it: up to the first field of the clock. With a
/// deadline it also reads the room of the idle limit.
#[repr(C)]
pub(crate) struct Engine<K, V> {
    pub(crate) domain: Domain,
    pub(crate) map: Map<K, V>,
    /// The read rings; none if the cache is not bounded.
    pub(crate) reads: ReadBuffer<K, V>,
    /// What reads need beside the fast path: [`SLOW_READS`], [`EXACT_READS`].
    pub(crate) detours: AtomicU8,
    pub(crate) clock: Clock,
    pub(crate) lifetimes: Lifetimes<K, V>,
    weigher: Option<Weigher<K, V>>,
    /// The policy that says when entries become stale, if the cache reloads.
    pub(crate) refresh: Option<Box<dyn Refresh<K, V>>>,
    /// If failures of loads are remembered.
    pub(crate) forget_failure: Option<ForgetFailure<K>>,
    /// If loads can become overdue.
    pub(crate) timeouts: Option<Timeouts<K, V>>,
    /// Where statistics are recorded, if they are.
    pub(crate) counters: Option<Box<Counters>>,
    /// The bound on the weight of all entries. Changed under the lock of the first part only.
    bound: Option<AtomicU64>,
    pub(crate) eviction_policy: EvictionPolicy,
    pub(crate) name: Option<Arc<str>>,
    /// A power of two of them, at most as many as there are shards. Part `n` follows the shards
    /// whose numbers end in the bits of `n`.
    parts: Box<[Part<K, V>]>,
    /// Events in a batch that make the writer run a pass: at most `writers::BATCH_SOFT_LIMIT`.
    /// One where each write is applied at once. Relaxed: written under a maintenance lock, a hint
    /// for writers.
    batch_soft_limit: AtomicUsize,
    caller_budget: usize,
    pub(crate) spans: Spans,
    notifier: Notifier<K, V>,
    /// Which thread calls the listener, if there is one.
    pub(crate) delivery: Option<Delivery>,
    pub(crate) waking: Waking,
    /// How many removals have found nothing where no thread wakes the cache.
    vain_removals: AtomicU32,
    /// How often a run has looked for a part that has to evict.
    asked: AtomicUsize,
    /// Held by a walk through the size policy: there is one cursor.
    walks: Mutex<()>,
    /// How many handles there are. The reference count of the state does not say which handle is
    /// the last, since threads that work on a cache without a handle take references, too.
    pub(crate) handles: AtomicUsize,
}

/// The number of read rings of a bounded cache. Each part has rings of its own. They are fewer than
/// there are threads where there are many parts, since the reads of a thread go to all parts in
/// turn.
fn rings(parts: usize) -> usize {
    let stripes = stripe::stripes(1);
    if parts == 1 {
        return stripes;
    }
    parts * (4 * stripes / parts).clamp(1, stripes)
}

/// A cache that this does not keep alive: its engine and, beside it, what its handles need. The
/// type of the hasher is not known here.
pub(crate) type WeakHandle<K, V> = scheduler::WeakHandle<dyn AsRef<Engine<K, V>> + Send + Sync>;

/// A reference to such a cache.
pub(crate) type Visit<K, V> = scheduler::Visit<dyn AsRef<Engine<K, V>> + Send + Sync>;

/// A read asks the policy, needs the exact time, or is counted (DESIGN.md has a table).
pub(crate) const SLOW_READS: u8 = 1;
/// A read needs the exact time, not only whether the entry is live. Never without [`SLOW_READS`].
pub(crate) const EXACT_READS: u8 = 2;

impl<K, V> Engine<K, V> {
    /// Where the last field that a hit reads begins.
    #[cfg(test)]
    pub(crate) const CLOCK: usize = std::mem::offset_of!(Self, clock);

    /// The engine of a cache with this map, which has the columns that the settings need. The
    /// number of parts is a power of two, and at most that of the shards.
    pub(crate) fn new(
        settings: Settings<K, V>,
        map: Map<K, V>,
        parts: usize,
        cache: CacheRef,
    ) -> Self {
        let scheduler = match settings.scheduler {
            Some(scheduler) => scheduler,
            None if settings.ticker.is_some() => Scheduler::disabled(),
            None => Scheduler::background(),
        };
        let clock = match settings.ticker {
            Some(ticker) => Clock::custom(ticker),
            None => Clock::process(),
        };
        let lifetimes = Lifetimes::new(
            settings.policy,
            settings.time_to_live,
            settings.time_to_idle,
        );
        let bound = settings.max_capacity;
        let eviction_policy = settings.eviction_policy.unwrap_or_default();
        let reads = match bound {
            Some(_) => ReadBuffer::new(rings(parts), parts as u8),
            None => ReadBuffer::none(),
        };
        let delivery = match &settings.listener {
            Some(_) => Some(settings.delivery),
            None => None,
        };
        let spans = Spans::new(settings.resolution);
        let engine = Self {
            domain: Domain::new(),
            reads,
            detours: AtomicU8::new(0),
            clock,
            weigher: settings.weigher,
            refresh: settings.refresh,
            forget_failure: settings.forget_failure,
            timeouts: settings.load_timeout.map(Timeouts::new),
            lifetimes,
            counters: match settings.record_stats {
                true => Some(Box::new(Counters::new())),
                false => None,
            },
            bound: bound.map(AtomicU64::new),
            eviction_policy,
            name: settings.name.map(Into::into),
            batch_soft_limit: AtomicUsize::new(batch_soft_limit(bound, map.shards())),
            caller_budget: match bound {
                Some(_) => BOUNDED_CALLER_BUDGET,
                None => CALLER_BUDGET,
            },
            spans,
            notifier: Notifier::new(settings.listener),
            delivery,
            waking: Waking::new(scheduler, cache),
            vain_removals: AtomicU32::new(0),
            asked: AtomicUsize::new(0),
            walks: Mutex::new(()),
            handles: AtomicUsize::new(1),
            parts: (0..parts)
                .map(|number| {
                    let eviction = bound
                        .map(|max| Eviction::new(eviction_policy, max, settings.eviction_seed));
                    let freeing = Freeing::new(number, parts, map.shards());
                    Part::new(State::new(number, spans, eviction, freeing))
                })
                .collect(),
            map,
        };
        CREW.cache_begins();
        engine.set_detours();
        engine.fit_to_size(0);
        engine
    }

    #[inline]
    pub(crate) fn pin(&self) -> Pin {
        self.domain.pin()
    }

    /// The part that follows the entries of a shard.
    fn part_of(&self, shard: usize) -> &Part<K, V> {
        &self.parts[self.number_of_part(shard)]
    }

    #[inline]
    fn number_of_part(&self, shard: usize) -> usize {
        shard & (self.parts.len() - 1)
    }

    /// The first part, and the others.
    fn first_part(&self) -> (&Part<K, V>, &[Part<K, V>]) {
        let (first, others) = self.parts.split_at(1);
        (&first[0], others)
    }

    pub(crate) fn parts(&self) -> usize {
        self.parts.len()
    }

    /// How many shards each part follows.
    fn shards_of_part(&self) -> usize {
        self.map.shards() / self.parts.len()
    }

    /// Tells look-ups what a read needs ([`SLOW_READS`]).
    fn set_detours(&self) {
        let mut detours = 0;
        let exactly = self.lifetimes.reads_exactly();
        if exactly {
            detours |= EXACT_READS;
        }
        if exactly || self.lifetimes.reads_ask() || self.counters.is_some() {
            detours |= SLOW_READS;
        }
        // Relaxed: the full path is right for each look-up, and the fast one for a while longer.
        self.detours.store(detours, Ordering::Relaxed);
    }

    /// Notes whether the policy inherits its method for reads, as its first answer about one tells.
    #[cold]
    pub(crate) fn note_first_read(&self, inherits: bool) {
        self.lifetimes.note_first_read(inherits);
        self.set_detours();
    }

    /// The bound in force; `None` if the cache was built without one.
    ///
    /// Relaxed: the holder of the first part's lock reads it exactly, all others approximately.
    #[inline]
    pub(crate) fn max_capacity(&self) -> Option<u64> {
        let bound = self.bound.as_ref()?;
        Some(bound.load(Ordering::Relaxed))
    }

    /// Moves the bound; false if the cache was built without one.
    pub(crate) fn set_max_capacity(&self, max: u64) -> bool {
        let Some(bound) = &self.bound else {
            return false;
        };
        // The lock of the first part is held to the end, so that two calls take turns.
        let (first, others) = self.first_part();
        let mut state = first.state.lock();
        bound.store(max, Ordering::Relaxed);
        state.set_max(max);
        for part in others {
            part.state.lock().set_max(max);
        }
        self.fit_to_size(state.eviction.as_ref().map_or(0, Eviction::len));
        drop(state);
        if self.waking.scheduler.callers_maintain() {
            // What is over the bound is due: the next calls evict it.
            let now = self.clock.now();
            self.waking.request_by(now, now);
        } else {
            self.waking.request_soon(&self.clock);
        }
        true
    }

    /// Whether the number of entries says if the cache is small, beside its bound. For the bound
    /// may be a weight, and `Lru` promises the order of use wherever there are few entries.
    #[inline]
    fn is_small_by_entries(&self) -> bool {
        self.weigher.is_some() || self.eviction_policy == EvictionPolicy::Lru
    }

    /// Whether each write is applied at once, and the policy hears of each read.
    #[inline]
    fn order_is_exact(&self) -> bool {
        self.batch_soft_limit.load(Ordering::Relaxed) == 1 && self.reads.records_each()
    }

    /// Where there are few entries, each write is applied at once, and the policy hears of each
    /// read. `entries` is how many one part has. With its lock held, or before the cache is used.
    fn fit_to_size(&self, entries: usize) {
        let Some(max) = self.max_capacity() else {
            return;
        };
        let mut size = max;
        if self.is_small_by_entries() {
            size = max.min((entries * self.parts.len()) as u64);
        }
        let is_small = self.eviction_policy.is_small(size);
        // With `Delivery::Caller`, each insert evicts for itself: so the listener hears of a victim
        // at once.
        let limit = if is_small || self.tells_callers() {
            1
        } else {
            batch_soft_limit(Some(max), self.map.shards())
        };
        // Each write reads the line: it is written only if the limit changes.
        if self.batch_soft_limit.load(Ordering::Relaxed) != limit {
            self.batch_soft_limit.store(limit, Ordering::Relaxed);
        }
        self.reads
            .record_each(self.eviction_policy.hears_each_read(size));
    }

    /// Whether an entry of this weight is heavier than the whole bound.
    #[inline]
    pub(crate) fn is_too_heavy(&self, weight: u32) -> bool {
        match self.max_capacity() {
            Some(max) => u64::from(weight) > max,
            None => false,
        }
    }

    /// The weight of an entry. Runs user code: no lock may be held.
    #[inline]
    pub(crate) fn weigh(&self, key: &K, value: &V) -> u32 {
        match &self.weigher {
            Some(weigher) => weigher(key, value),
            None => 1,
        }
    }

    /// Counts a write: of a new key, or in place of a node that leaves for a cause.
    #[inline]
    pub(crate) fn count_write(&self, old: Option<(NodePtr<K, V>, RemovalCause)>) {
        let Some(counters) = &self.counters else {
            return;
        };
        match old {
            Some((_, RemovalCause::Replaced)) => counters.add(Count::Updates, 1),
            _ => counters.add(Count::Insertions, 1),
        }
        if let Some((node, cause)) = old {
            counters.removed(cause, node.weight());
        }
    }

    /// Counts a removal.
    #[inline]
    pub(crate) fn count_removal(&self, weight: impl FnOnce() -> u32, cause: RemovalCause) {
        if let Some(counters) = &self.counters {
            counters.removed(cause, weight());
        }
    }

    /// Counts this, if statistics are recorded.
    #[inline]
    pub(crate) fn count(&self, what: Count) {
        if let Some(counters) = &self.counters {
            counters.add(what, 1);
        }
    }

    /// Whether the calling thread holds up the freeing of memory.
    #[cfg(test)]
    pub(crate) fn is_pinned(&self) -> bool {
        self.domain.is_pinned()
    }

    /// Notes that an entry was read, as far as the size policy wants to know.
    #[inline]
    pub(crate) fn record_read(&self, node: NodePtr<K, V>, pin: &Pin) {
        if self.reads.should_record(node) {
            self.offer_read(node, pin);
        }
    }

    /// Which bucket of each level of the wheel contains the first part's time, and how many entries
    /// each bucket holds in all parts.
    pub(crate) fn wheel_levels(&self) -> [(usize, Vec<usize>); LEVELS] {
        let (first, others) = self.first_part();
        let state = first.state.lock();
        let mut levels =
            std::array::from_fn(|level| (state.wheel.hand(level), state.wheel.lens(level)));
        drop(state);
        for part in others {
            let state = part.state.lock();
            for (level, (_, lens)) in levels.iter_mut().enumerate() {
                for (len, more) in lens.iter_mut().zip(state.wheel.lens(level)) {
                    *len += more;
                }
            }
        }
        levels
    }

    /// The counts so far; all zero unless statistics are recorded.
    pub(crate) fn stats(&self) -> Stats {
        match &self.counters {
            Some(counters) => Stats::of(counters, self.notifier.listener_panics()),
            None => Stats::default(),
        }
    }

    /// After the last handle was dropped: applies what was written before. True if notifications
    /// wait.
    fn drain_last(&self) -> bool {
        // Entries still stored are dropped without notification, those over the bound too.
        let drain = Plan {
            evict: Evict::Nothing,
            ..Plan::CATCH_UP
        };
        // A ticker that panics has been reported and must not keep the rest from being freed.
        for part in &self.parts {
            while contain(|| self.run_pass(part, drain, None)) != Some(Left::Nothing) {}
        }
        self.notifier.waiting() > 0
    }

    /// The cache is dropped: delivers the notifications for what was removed before, and frees
    /// everything.
    fn close(&mut self) {
        // Where no other thread has delivered the rest.
        self.drain_last();
        self.deliver_here();
        let parts = &mut self.parts;
        // Nodes whose key and value have no destructor are freed with the memory of the slabs.
        self.map.take_apart(|node| {
            if Garbage::<K, V>::RUNS_USER_CODE {
                let shard = node.shard();
                let state = parts[shard & (parts.len() - 1)].state.0.get_mut();
                state.freeing.retire(shard, node);
            }
        });
        for part in &self.parts {
            let all = part.state.lock().freeing.take_all();
            self.free(part, all);
        }
        CREW.cache_ends(&self.waking.cache);
    }
}

impl<K, V> Drop for Engine<K, V> {
    fn drop(&mut self) {
        self.close();
    }
}

/// Entries visited under one hold of the maintenance lock.
const ENTRIES_PER_HOLD: usize = 512;

impl<K, V> Engine<K, V> {
    /// Visits the entries that the size policies know, in each part from the first victim to the
    /// last, until `visit` has accepted `most` of the part. A cache without a bound has none. The
    /// lock is given up after some hundred entries, so the policy changes meanwhile: an entry may
    /// be visited twice or not at all. `visit` runs under the lock and must not run user code.
    /// Walks take turns.
    ///
    /// `visit` gets the rank of the entry among all: where it stands in the order of its part. In a
    /// cache of several parts this is a fraction of the part's length, of 32 bits.
    pub(crate) fn walk_by_eviction(
        &self,
        most: usize,
        mut visit: impl FnMut(u64, EntryPtr<K, V>) -> bool,
    ) {
        let _turn = self.walks.lock();
        for part in &self.parts {
            self.walk_part(part, most, &mut visit);
        }
    }

    fn walk_part(
        &self,
        part: &Part<K, V>,
        most: usize,
        mut visit: impl FnMut(u64, EntryPtr<K, V>) -> bool,
    ) {
        let mut state = part.state.lock();
        let Some(eviction) = &mut state.eviction else {
            return;
        };
        eviction.begin_walk();
        let step = if self.parts.len() == 1 {
            1
        } else {
            (1 << 32) / eviction.len().max(1) as u64
        };
        // Different from those of other parts.
        let mut rank = state.part as u64;
        let mut left = most;
        while left > 0 {
            let Some(eviction) = &mut state.eviction else {
                return;
            };
            let goes_on = eviction.walk(left.min(ENTRIES_PER_HOLD), |entry| {
                left -= usize::from(visit(rank, entry));
                rank += step;
            });
            if !goes_on {
                return;
            }
            unlock_fairly(state);
            state = part.state.lock();
        }
    }
}
