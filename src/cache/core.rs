//! What all handles of a cache share.

use super::limits::Limits;
use crate::expiry::Expiry;
use crate::hash;
use crate::maintenance::Maintenance;
use crate::map::Look;
use crate::node::{Life, NodePtr};
use crate::reclaim::Pin;
use crate::refresh::Refresh;
use crate::scheduler::Task;
use crate::shared::Shared;
use crate::sync::{AtomicBool, Ordering};
use crate::time::{self, NEVER};
use equivalent::Equivalent;
use std::hash::{BuildHasher, Hash};
use std::time::{Duration, Instant};

/// The state behind a [`Cache`](crate::Cache).
pub(crate) struct Core<K, V, S> {
    pub(crate) shared: Shared<K, V>,
    pub(crate) maintenance: Maintenance<K, V>,
    pub(crate) lifetimes: Lifetimes<K, V>,
    hasher: S,
    /// Whether hashes are spread, since the hasher may leave bits empty.
    spread: bool,
    weigher: Option<Weigher<K, V>>,
    /// From when on entries are stale, where the cache reloads.
    pub(crate) refresh: Option<Box<dyn Refresh<K, V>>>,
    /// A hit takes no call, as a rule: it moves no deadline and counts nothing, so all that it may
    /// leave behind is a read event.
    pub(super) swift: bool,
}

/// What an entry weighs, as the cache keeps the question.
pub(crate) type Weigher<K, V> = Box<dyn Fn(&K, &V) -> u32 + Send + Sync>;

/// Who says how long entries live; what follows from it is worked out once.
pub(crate) struct Lifetimes<K, V> {
    pub(crate) policy: Option<Box<dyn Expiry<K, V>>>,
    pub(crate) limits: Limits,
    /// The policy answers reads, answers updates, looks at the times it is told, looks at nothing
    /// but key and value.
    pub(crate) policy_reads: bool,
    pub(crate) policy_updates: bool,
    policy_times: bool,
    pub(crate) policy_plain: bool,
    /// A read may move the deadline.
    pub(crate) reads_extend: bool,
    /// The entry's own deadline must be kept apart from the wanted one.
    pub(crate) kept_apart: bool,
    /// An entry may have been given one. Else none need be looked up, on lines that a read has no
    /// other use for.
    owned: AtomicBool,
}

impl<K: 'static, V: 'static> Lifetimes<K, V> {
    pub(crate) fn new(policy: Option<Box<dyn Expiry<K, V>>>, limits: Limits) -> Self {
        let policy_reads = policy.as_ref().is_some_and(|p| p.reacts_to_reads());
        Self {
            policy_reads,
            policy_updates: policy.as_ref().is_some_and(|p| p.reacts_to_updates()),
            policy_times: policy.as_ref().is_some_and(|p| p.looks_at_times()),
            policy_plain: policy
                .as_ref()
                .is_some_and(|p| p.looks_at_the_entry_alone() && !p.looks_at_times()),
            reads_extend: policy_reads || limits.time_to_idle.is_some(),
            kept_apart: limits.time_to_idle.is_some()
                || (limits.time_to_live.is_some() && policy.is_some()),
            owned: AtomicBool::new(policy.is_some()),
            policy,
            limits,
        }
    }

    /// Notes that an entry is about to be given a deadline of its own by hand: before any reader
    /// can meet it.
    ///
    /// Relaxed, as in [`own_deadline`](Self::own_deadline): after this the node is published, or
    /// its wanted deadline moved, with release; a reader has seen both by then, with acquire.
    pub(super) fn note_own(&self) {
        if !self.owned.load(Ordering::Relaxed) {
            self.owned.store(true, Ordering::Relaxed);
        }
    }

    /// Whether an entry may have a deadline of its own apart from the wanted one, which was read
    /// before.
    #[inline]
    pub(super) fn may_keep_own(&self) -> bool {
        self.kept_apart && self.owned.load(Ordering::Relaxed)
    }

    /// The own deadline of a node whose wanted one was read before, where they are kept apart.
    // Out of line, or reads of caches that keep none apart would save a register more.
    #[inline(never)]
    pub(super) fn own_deadline(&self, node: NodePtr<K, V>) -> u64 {
        if self.owned.load(Ordering::Relaxed) {
            node.own_deadline()
        } else {
            NEVER
        }
    }
}

/// An entry as a look-up found it: live, unless said otherwise.
#[derive(Debug)]
pub(crate) struct Hit<K, V> {
    pub(crate) node: NodePtr<K, V>,
    /// The deadline that was judged.
    pub(crate) deadline: u64,
    /// The time at which it was judged; 0 where no clock was needed.
    pub(crate) now: u64,
}

/// What one look tells.
pub(super) enum Once<K, V> {
    /// A living entry.
    Alive(Hit<K, V>),
    /// The key is absent.
    Absent,
    /// The key's entry, which is due, or of which the clock has yet to be asked.
    Met(NodePtr<K, V>),
    /// Nothing: it takes more than one look.
    Unclear,
}

/// A look-up that found nothing, with the time if that is because it met an entry that is due.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Miss {
    due: Option<u64>,
}

impl<K, V, S> Core<K, V, S> {
    pub(crate) fn new(
        shared: Shared<K, V>,
        maintenance: Maintenance<K, V>,
        lifetimes: Lifetimes<K, V>,
        weigher: Option<Weigher<K, V>>,
        hasher: S,
        spread: bool,
    ) -> Self {
        Self {
            swift: !lifetimes.reads_extend && shared.counters.is_none(),
            shared,
            maintenance,
            lifetimes,
            hasher,
            spread,
            weigher,
            refresh: None,
        }
    }

    #[inline]
    pub(crate) fn hash<Q: Hash + ?Sized>(&self, key: &Q) -> u64
    where
        S: BuildHasher,
    {
        let hash = self.hasher.hash_one(key);
        if self.spread {
            hash::spread(hash)
        } else {
            hash
        }
    }

    /// A point of cache time as the policy is told it: any, if it does not look.
    #[inline]
    pub(super) fn told(&self, now: impl FnOnce() -> u64) -> Instant {
        let clock = &self.shared.clock;
        if self.lifetimes.policy_times {
            clock.instant(now())
        } else {
            clock.base()
        }
    }

    /// A point of cache time that lies some nanoseconds before another one that the policy is told.
    // Counted back: by themselves, two points on two sides of half the clock's range would not be
    // as far apart as they are.
    #[inline]
    pub(super) fn told_before(&self, at: Instant, nanos: impl FnOnce() -> u64) -> Instant {
        if self.lifetimes.policy_times {
            at.checked_sub(Duration::from_nanos(nanos())).unwrap_or(at)
        } else {
            at
        }
    }

    /// What an entry weighs. User code: no lock may be held.
    #[inline]
    pub(super) fn weigh(&self, key: &K, value: &V) -> u32 {
        self.weigher
            .as_ref()
            .map_or(1, |weigher| weigher(key, value))
    }

    #[inline]
    pub(super) fn count_hit(&self) {
        if let Some(counters) = &self.shared.counters {
            counters.hit();
        }
    }

    pub(super) fn count_miss(&self) {
        if let Some(counters) = &self.shared.counters {
            counters.miss();
        }
    }

    /// The one look of a swift look-up. Of a cache whose hits are not [`swift`](Self::swift) it
    /// tells whether there is a living entry, and no more.
    // A look-up whose every other way is a call that takes over for good needs no register that a
    // call would keep, and saves none: 1 ns of 10, and of a million keys more of them are waited
    // for at once.
    #[inline(always)]
    pub(super) fn look_once<Q>(&self, hash: u64, key: &Q, pin: &Pin) -> Once<K, V>
    where
        Q: Equivalent<K> + ?Sized,
    {
        let map = &self.shared.map;
        let node = match map.look(hash, pin, |node| key.equivalent(node.key())) {
            Look::Found(node) => node,
            Look::Absent => return Once::Absent,
            Look::Unclear => return Once::Unclear,
        };
        let deadline = node.deadline();
        let hit = |now| Hit {
            node,
            deadline,
            now,
        };
        if deadline == NEVER {
            return Once::Alive(hit(0));
        }
        match self.shared.clock.glance_in_line() {
            Some(now) if !time::is_past(now, deadline) => Once::Alive(hit(now)),
            _ => Once::Met(node),
        }
    }

    /// The first glance of a look-up: a living entry, else `None` if the key is absent, or the
    /// entry that is due by its deadline.
    ///
    /// [`look_past`](Self::look_past) says what an error means.
    // Inlined into each caller; what seldom happens is theirs to keep apart, in functions that take
    // over for good. Where the two ways meet again, what was found goes through the stack, and
    // reading it back at once waits for the stores: 6 ns of 16.
    #[inline(always)]
    pub(super) fn look_up<Q>(
        &self,
        hash: u64,
        key: &Q,
        pin: &Pin,
    ) -> Result<Hit<K, V>, Option<Hit<K, V>>>
    where
        Q: Equivalent<K> + ?Sized,
    {
        let map = &self.shared.map;
        let Some(node) = map.find(hash, pin, |node| key.equivalent(node.key())) else {
            return Err(None);
        };
        self.judge_hit(node).map_err(Some)
    }

    /// Goes on from a first glance that has met no living entry.
    pub(super) fn look_past<Q>(
        &self,
        hash: u64,
        key: &Q,
        due: Option<Hit<K, V>>,
        pin: &Pin,
    ) -> Result<Hit<K, V>, Miss>
    where
        Q: Equivalent<K> + ?Sized,
    {
        match due {
            None => Err(Miss { due: None }),
            Some(due) => self.find_past(hash, key, due, pin),
        }
    }

    /// The live entry of a key; an expired one is a miss.
    pub(crate) fn find_live<Q>(&self, hash: u64, key: &Q, pin: &Pin) -> Result<Hit<K, V>, Miss>
    where
        Q: Equivalent<K> + ?Sized,
    {
        self.look_up(hash, key, pin)
            .or_else(|due| self.look_past(hash, key, due, pin))
    }

    /// The live entry of a node that was in the map a moment ago, or what its key has instead now.
    pub(crate) fn look_again(&self, node: NodePtr<K, V>, pin: &Pin) -> Option<Hit<K, V>>
    where
        K: Eq,
    {
        // In this order: alive by its deadline, and in the map even after that was judged.
        match self.judge_hit(node) {
            Ok(hit) if node.life() == Life::Live => Some(hit),
            _ => self.find_live(node.hash(), node.key(), pin).ok(),
        }
    }

    /// The node as a hit, or with the time at which it was seen to be due.
    #[inline(always)]
    pub(super) fn judge_hit(&self, node: NodePtr<K, V>) -> Result<Hit<K, V>, Hit<K, V>> {
        let deadline = node.deadline();
        if deadline == NEVER {
            // A read that may give it a deadline has to know when it was.
            let now = if self.lifetimes.reads_extend {
                self.shared.clock.now()
            } else {
                0
            };
            return Ok(Hit {
                node,
                deadline,
                now,
            });
        }
        // Where reads extend, this is the exact time: such caches have no coarse one.
        let now = self.shared.clock.glance();
        let hit = Hit {
            node,
            deadline,
            now,
        };
        if time::is_past(now, deadline) {
            Err(hit)
        } else {
            Ok(hit)
        }
    }

    /// The look-up goes on from a node that is due: a miss, unless it turns out not to be the key's
    /// any more.
    #[cold]
    #[inline(never)]
    fn find_past<Q>(&self, hash: u64, key: &Q, due: Hit<K, V>, pin: &Pin) -> Result<Hit<K, V>, Miss>
    where
        Q: Equivalent<K> + ?Sized,
    {
        let mut due = due;
        loop {
            if self.is_dead(due.node, due.deadline, due.now, pin) {
                return Err(Miss { due: Some(due.now) });
            }
            let map = &self.shared.map;
            let Some(node) = map.find(hash, pin, |node| key.equivalent(node.key())) else {
                return Err(Miss { due: None });
            };
            match self.judge_hit(node) {
                Ok(hit) => return Ok(hit),
                Err(again) => due = again,
            }
        }
    }

    /// Ends a look-up that found nothing. Where nobody wakes, it does a small part of the expiry
    /// that is due: after the pin was let go, since destructors and listeners may run in it.
    pub(super) fn missed<T>(&self, hash: u64, miss: Miss, pin: Pin) -> Option<T> {
        drop(pin);
        if let Some(now) = miss.due {
            self.maintenance.met_expired(&self.shared, hash, now);
        }
        None
    }

    /// Whether an entry that was judged due really is the key's, so that the key is absent. If it
    /// was replaced, or a reader with an earlier clock extended it, the look-up has to start over:
    /// at no moment was the key absent.
    fn is_dead(&self, node: NodePtr<K, V>, deadline: u64, now: u64, pin: &Pin) -> bool {
        // Final: whoever is about to give it a longer life comes too late, or has come before.
        if !node.claim(deadline, now) {
            return false;
        }
        let map = &self.shared.map;
        if !self.lifetimes.reads_extend {
            return map.holds(node, pin);
        }
        // Claimed, by whomever: nobody replaces or extends it any more, so the key is absent, and
        // was when the claim was made or the node left the map. A writer that replaces a live node
        // freezes it, then puts the new one in its place: wait until it has done both.
        !node.is_frozen(now)
            || (node.life() == Life::Live && {
                let hash = node.hash();
                self.shared.map.lock(hash).find_node(hash, node).is_some()
            })
    }

    /// Time since the node was written, where that is known.
    pub(crate) fn age(&self, node: NodePtr<K, V>) -> Duration {
        if node.written() == NEVER {
            return Duration::ZERO;
        }
        let since = self.shared.clock.now().wrapping_sub(node.written());
        // A clock that ran backwards shows a negative age.
        Duration::from_nanos(if since as i64 >= 0 { since } else { 0 })
    }

    /// What is left of an entry whose deadline was `judged` when it was found.
    pub(crate) fn time_left(&self, node: NodePtr<K, V>, judged: u64) -> Option<Duration> {
        if node.deadline() == NEVER {
            return None;
        }
        let now = self.shared.clock.now();
        time::time_left(now, node.present_deadline(judged, now))
    }
}

impl<K, V, S> Task for Core<K, V, S>
where
    K: Send + Sync,
    V: Send + Sync,
    S: Send + Sync,
{
    fn run_due(&self) -> Option<Duration> {
        let next = self.maintenance.run_due(&self.shared);
        let overdue = self.run_overdue();
        next.into_iter().chain(overdue).min()
    }

    fn deliver(&self) {
        self.maintenance.deliver(&self.shared);
    }
}

impl<K, V, S> Drop for Core<K, V, S> {
    fn drop(&mut self) {
        self.maintenance.close(&mut self.shared);
    }
}

#[cfg(all(test, not(wheelhouse_loom)))]
mod tests {
    use crate::{Cache, ManualTicker};
    use std::cell::Cell;
    use std::sync::atomic::{AtomicU32, Ordering};
    use std::sync::{Arc, Weak, mpsc};
    use std::time::Duration;

    thread_local!(static CALLING: Cell<bool> = const { Cell::new(false) });

    /// Looks, when it is dropped by a call of the cache, whether that call holds a pin.
    struct Probe {
        cache: Weak<Cache<u32, Probe>>,
        seen: Arc<[AtomicU32; 2]>,
    }

    impl Drop for Probe {
        fn drop(&mut self) {
            if let Some(cache) = self.cache.upgrade()
                && CALLING.get()
            {
                let pinned = cache.core.shared.is_pinned();
                self.seen[usize::from(pinned)].fetch_add(1, Ordering::Relaxed);
            }
        }
    }

    /// Runs `call` on many expired entries and says how many values it dropped without a pin, and
    /// with one. Reads may shorten lives.
    fn dropped_by(shorten: bool, call: impl Fn(&Cache<u32, Probe>, u32)) -> [u32; 2] {
        let (second, clock) = (Duration::from_secs(1), ManualTicker::new());
        let mut builder = Cache::builder().ticker(clock.clone());
        if shorten {
            let policy = crate::expiry::accessing(move |_: &u32, _: &Probe| Some(second));
            builder = builder.expire_after(policy);
        }
        let cache = Arc::new(builder.build());
        let seen = Arc::new([const { AtomicU32::new(0) }; 2]);
        let put = |key: u32, life| {
            let value = Probe {
                cache: Arc::downgrade(&cache),
                seen: Arc::clone(&seen),
            };
            cache.insert_with_ttl(key, value, life);
        };
        for _ in 0..4 {
            // Nothing is freed while this is held, so that there is something left to free for the
            // calls.
            put(9_999, second * 3);
            let held = cache.peek_ref(&9_999);
            (0..2_000).for_each(|key| put(key, second * (key % 2 * 4 + 1)));
            drop(held);
            clock.advance(second * 3);
            CALLING.set(true);
            for key in 0..2_000 {
                call(&cache, key);
            }
            CALLING.set(false);
            clock.advance(second * 3);
        }
        [0, 1].map(|pinned: usize| seen[pinned].load(Ordering::Relaxed))
    }

    #[test]
    fn destructors_run_without_a_pin() {
        type Call = fn(&Cache<u32, Probe>, u32);
        let calls: [(&str, Call); 5] = [
            ("get_ref", |cache, key| drop(cache.get_ref(&key))),
            ("peek_ref", |cache, key| drop(cache.peek_ref(&key))),
            ("contains_key", |cache, key| _ = cache.contains_key(&key)),
            ("invalidate", |cache, key| cache.invalidate(&key)),
            ("retain", |cache, one| {
                cache.retain(|key, _| key % 40 != one % 40)
            }),
        ];
        for (name, call) in calls {
            let [unpinned, pinned] = dropped_by(false, call);
            assert_eq!(pinned, 0, "{name} holds a pin");
            assert!(
                unpinned > 0,
                "{name} never dropped anything: nothing was shown"
            );
            let [_, pinned] = dropped_by(true, call);
            assert_eq!(pinned, 0, "{name} that shortens a life holds a pin");
        }
    }

    #[test]
    fn what_a_panic_drops_is_dropped_without_a_pin() {
        /// Panics while it is told to.
        #[derive(Clone, Default)]
        struct Bad(Arc<AtomicU32>);
        impl Bad {
            fn touch(&self) {
                if self.0.load(Ordering::Relaxed) != 0 {
                    std::panic::resume_unwind(Box::new("as told"));
                }
            }
        }
        impl crate::Ticker for Bad {
            fn nanos(&self) -> u64 {
                self.touch();
                0
            }
        }
        let (policy, ticker) = (Bad::default(), Bad::default());
        let asked = policy.clone();
        let cache = Cache::builder()
            .ticker(ticker.clone())
            .expire_after(crate::expiry::writing(move |_: &u32, _: &Probe| {
                asked.touch();
                Some(Duration::from_secs(1))
            }))
            .build();
        let cache = Arc::new(cache);
        for bad in [&policy, &ticker] {
            let seen = Arc::new([const { AtomicU32::new(0) }; 2]);
            let value = Probe {
                cache: Arc::downgrade(&cache),
                seen: Arc::clone(&seen),
            };
            bad.0.store(1, Ordering::Relaxed);
            CALLING.set(true);
            let insert = std::panic::AssertUnwindSafe(|| cache.insert(1, value));
            let outcome = std::panic::catch_unwind(insert);
            CALLING.set(false);
            bad.0.store(0, Ordering::Relaxed);
            assert!(outcome.is_err(), "nothing was shown");
            let seen = [0, 1].map(|pinned: usize| seen[pinned].load(Ordering::Relaxed));
            assert_eq!(seen, [1, 0], "dropped without a pin, and with one");
            assert!(!cache.contains_key(&1));
        }
    }

    #[test]
    fn a_miss_on_an_expired_entry_takes_no_lock() {
        let (second, clock) = (Duration::from_secs(1), ManualTicker::new());
        let cache: Cache<u32, u32> = Cache::builder()
            .ticker(clock.clone())
            .time_to_idle(second)
            .build();
        cache.insert(1, 1);
        cache.run_pending_tasks();
        clock.advance(second);
        let held = cache.core.shared.map.lock(cache.core.hash(&1));
        // Nobody runs a pass meanwhile: it would need the shard's lock, too.
        let passes = cache.core.maintenance.hold_passes();
        let (told, tells) = mpsc::channel();
        let other = cache.clone();
        let reader = std::thread::spawn(move || {
            // The first look claims, the others find it claimed.
            for _ in 0..3 {
                told.send(other.get(&1)).ok();
            }
        });
        for _ in 0..3 {
            let answer = tells.recv_timeout(Duration::from_secs(20));
            assert_eq!(answer, Ok(None), "waits for the shard's lock");
        }
        reader.join().expect("no panic");
        drop((held, passes));
    }
}
