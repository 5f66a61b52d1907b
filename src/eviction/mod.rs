//! The size policy: which entry the cache evicts while it is over its bound.
//!
//! # How it works
//!
//! The maintenance pass tells [`Eviction`] about every node that came, was replaced, was read,
//! expired or was removed. While the weight is over the maximum, the pass asks it for victims. This
//! module holds what every policy shares: the weight, nodes that are never victims (weight 0), and
//! nodes that cannot stay (heavier than the maximum). The order of all other nodes belongs to
//! [`lirs`] with its parts [`ghosts`], [`set_dueling`] and [`window`]. Under `Lru` it is the exact
//! order of use.
//!
//! # Invariants
//!
//! 1. An entry is known from `admit`, or from a first `replaced`, until `removed`, `expired` or
//!    `evicted`. The `queue_id` of the entry says where it is: [`OUT`], [`WEIGHTLESS`] (in no
//!    queue), [`OVERWEIGHT`], or a number of the policy's. The entry also holds the weight that is
//!    counted here: that of the last node that this module was told about.
//! 2. Every node in a policy's queue weighs from 1 to `max`.
//! 3. `weight` is the sum over all known entries, overweight ones included; `len` is their number.
//! 4. `removed` and `accessed` of a node that is not known do nothing to the policy, and `replaced`
//!    of one admits it. For the pass may take a node out while an event about it waits.
//!
//! The policy takes no account of deadlines. To evict first what will expire soon costs hits: keys
//! that are used often may have short lives.
//!
//! Only the holder of the maintenance lock calls this module. It runs no user code, and uses no
//! clock and no map. Every call except [`set_max`](Eviction::set_max) does a bounded amount of
//! work.

// The invariants of this module: `checks/eviction.rs`, at the root of the repository.
#[cfg(any(test, fuzzing))]
#[path = "../../checks/eviction.rs"]
mod check;
mod ghosts;
mod lirs;
mod queue;
mod set_dueling;
#[cfg(test)]
mod tests;
mod window;

use crate::list::{List, QUEUE};
use crate::node::{EntryPtr, NodePtr};
use ghosts::mix_bits_twice;
use lirs::Lirs;
pub(crate) use queue::OUT;
use queue::{FIRST_FREE, OVERWEIGHT, WEIGHTLESS, WeighedQueue};
use std::hash::BuildHasher;

/// How many reads ahead of the current read to prefetch the neighbours of a node.
const PREFETCH_DISTANCE: usize = 6;
/// Which entries a bounded cache evicts when it is full.
///
/// With either policy, entries that are past their deadline leave first, with the cause `Expired`.
/// On four cores or more, a large cache evicts in up to 32 parts. There, an expired entry of
/// another part leaves first once the tick of its deadline has ended. The remaining lifetime of a
/// live entry plays no role.
///
/// ```
/// use wheelhouse::{Cache, EvictionPolicy};
///
/// let cache = Cache::builder().max_capacity(2).eviction_policy(EvictionPolicy::Lru).build();
/// cache.insert(1, "one");
/// cache.insert(2, "two");
/// cache.get(&1);
/// cache.run_pending_tasks();
/// cache.insert(3, "three");
/// cache.run_pending_tasks();
/// assert!(cache.contains_key(&1) && !cache.contains_key(&2));
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum EvictionPolicy {
    /// Adapts to the workload: it keeps entries that are read again and again, resists scans and
    /// loops, and prefers recently used entries where that gives more hits. It suits nearly every
    /// cache.
    ///
    /// The policy is LIRS (Jiang and Zhang, SIGMETRICS 2002) with two additions. A window for new
    /// entries adapts its size as in ARC (Megiddo and Modha, FAST 2003) and DLIRS (Li, SYSTOR
    /// 2018). Set dueling (Qureshi and others, ISCA 2007) measures, while the cache runs, which
    /// entries to promote. An entry that was used clearly more than the others stays in any case.
    /// So does the one that was used last, unless the entry that would leave in its place was used
    /// clearly more. Reads of one entry with nothing between them count as one use.
    ///
    /// # Cost
    ///
    /// A hit is recorded now and then: more often while entries come in, and hardly ever while the
    /// cache only serves hits. In a cache of up to 64 entries each hit is recorded, unless the
    /// thread has read that entry last. There a hit takes a few nanoseconds more.
    #[default]
    Adaptive,
    /// Evicts the entry that was used least recently. It is predictable, but a single pass over
    /// many keys evicts everything else.
    ///
    /// The order of use is exact as long as one thread uses the cache. With more than 512 entries,
    /// an insert and the reads right before and behind it may change places. If several threads
    /// read at once, the order between their reads is approximate, and some are dropped.
    ///
    /// # Cost
    ///
    /// Each hit is recorded, unless it is of the entry that the thread has read last. It takes a
    /// few nanoseconds more than under `Adaptive`, and more in a cache that is larger than the
    /// processor's caches.
    Lru,
}

impl EvictionPolicy {
    /// Whether the policy hears of each read under this bound: it promises the order of use, or few
    /// entries make the order matter.
    pub(crate) fn hears_each_read(self, max: u64) -> bool {
        self == Self::Lru || self.is_small(max)
    }

    /// Whether the cache is so small that each write is applied at once. Then the policy hears of
    /// writes and reads in their order.
    pub(crate) fn is_small(self, max: u64) -> bool {
        let most = match self {
            Self::Adaptive => 64,
            Self::Lru => 512,
        };
        max <= most
    }

    /// Bytes for each resident entry of a full cache, beside the entry's own fields.
    pub(crate) fn memory_per_entry(self) -> f64 {
        match self {
            Self::Adaptive => ghosts::BYTES_PER_ENTRY,
            Self::Lru => 0.0,
        }
    }
}

/// The size policy of one cache; see the module docs.
pub(crate) struct Eviction<K, V> {
    order: Box<Lirs<K, V>>,
    overweight: WeighedQueue<K, V>,
    weightless: usize,
    /// The bound of the cache: no node that weighs more may stay.
    max: u64,
    /// An upper bound on the weights of the nodes in the policy's queues. Only a smaller bound of
    /// the cache lowers it.
    heaviest: u32,
}

impl<K, V> Eviction<K, V> {
    /// The random choices follow from `seed`, or from the operating system's randomness: an
    /// attacker who chooses keys must not know them.
    pub(crate) fn new(policy: EvictionPolicy, max_weight: u64, seed: Option<u64>) -> Self {
        let seed = match seed {
            Some(seed) => seed,
            None => std::hash::RandomState::new().hash_one(max_weight),
        };
        Self::with_policy(policy, max_weight, seed)
    }

    pub(crate) fn with_policy(policy: EvictionPolicy, max_weight: u64, seed: u64) -> Self {
        let exact = policy == EvictionPolicy::Lru;
        Self {
            order: Box::new(Lirs::new(max_weight, exact, seed)),
            overweight: WeighedQueue::new(OVERWEIGHT),
            weightless: 0,
            max: max_weight,
            heaviest: 0,
        }
    }

    /// Adds a node that was added to the map.
    pub(crate) fn admit(&mut self, node: NodePtr<K, V>) {
        self.let_in(node.entry(), node.weight());
    }

    fn let_in(&mut self, entry: EntryPtr<K, V>, weight: u32) {
        debug_assert_eq!(entry.queue_id.get(), OUT, "admitted twice");
        entry.policy().weight.set(weight);
        if weight == 0 {
            entry.queue_id.set(WEIGHTLESS);
            self.weightless += 1;
        } else if u64::from(weight) > self.max {
            self.overweight.push_newest(entry);
        } else {
            self.heaviest = self.heaviest.max(weight);
            self.order.admit(entry);
        }
    }

    /// Follows the replacement of an entry's node: the entry keeps its queue position, and the
    /// replacement counts as a use. The caller says with `first_use` whether no use of this entry
    /// was recorded a moment ago. Returns whether an eviction may become necessary: the entry was
    /// not known here yet, or weighs more now.
    pub(crate) fn replaced(&mut self, new: NodePtr<K, V>, first_use: bool) -> bool {
        let entry = new.entry();
        let weight = new.weight();
        let needs_room = entry.queue_id.get() == OUT || weight > entry.policy().weight.get();
        let fits = (1..=self.max).contains(&u64::from(weight));
        if entry.queue_id.get() < FIRST_FREE || !fits {
            // The entry is in no queue, or its new weight does not fit there.
            self.removed(new);
            self.let_in(entry, weight);
            return needs_room;
        }
        self.heaviest = self.heaviest.max(weight);
        self.order.reweigh(entry, weight);
        if first_use {
            self.order.accessed(entry);
        }
        needs_room
    }

    /// Prefetches what [`admit`](Self::admit) will look up.
    #[inline]
    pub(crate) fn prefetch(&self, node: NodePtr<K, V>) {
        if !self.order.exact {
            self.order.ghosts.prefetch(mix_bits_twice(node.hash()));
        }
    }

    /// Prefetches what the removal of the next victim will look up here, and returns that victim. A
    /// later call may change it.
    #[inline]
    pub(crate) fn prefetch_victim(&self) -> Option<NodePtr<K, V>> {
        let next = self.order.victim()?.node();
        self.prefetch(next);
        Some(next)
    }

    /// Records reads of several nodes, in order.
    pub(crate) fn accessed_all(&mut self, nodes: &[NodePtr<K, V>]) {
        for node in nodes {
            node.entry().prefetch(true);
        }
        for (at, &node) in nodes.iter().enumerate() {
            if let Some(ahead) = nodes.get(at + PREFETCH_DISTANCE) {
                List::<K, V, QUEUE>::prefetch_around(ahead.entry());
            }
            self.accessed(node);
        }
    }

    /// Records a read of a node. The caller may be late, or drop reads. If the event that adds the
    /// entry still waits in a batch, this read does not count, and the next one is recorded.
    #[inline]
    pub(crate) fn accessed(&mut self, node: NodePtr<K, V>) {
        let entry = node.entry();
        match entry.queue_id.get() {
            OUT => node.forget_recorded_read(),
            WEIGHTLESS | OVERWEIGHT => {}
            _ => self.order.accessed(entry),
        }
    }

    /// Forgets a node that left the map, neither as a victim nor because of its deadline.
    pub(crate) fn removed(&mut self, node: NodePtr<K, V>) {
        self.forget(node, Lirs::removed);
    }

    /// Forgets a node that left the map because it was past its deadline. The adaptive policy keeps
    /// a ghost of it, so that a hot key that comes back is not treated as a new one.
    pub(crate) fn expired(&mut self, node: NodePtr<K, V>) {
        self.forget(node, Lirs::expired);
    }

    /// Forgets a [`victim`](Self::victim) that left the map as such.
    pub(crate) fn evicted(&mut self, node: NodePtr<K, V>) {
        self.forget(node, Lirs::evicted);
    }

    fn forget(&mut self, node: NodePtr<K, V>, how: impl FnOnce(&mut Lirs<K, V>, EntryPtr<K, V>)) {
        let entry = node.entry();
        match entry.queue_id.get() {
            OUT => {}
            WEIGHTLESS => {
                entry.queue_id.set(OUT);
                self.weightless -= 1;
            }
            OVERWEIGHT => self.overweight.unlink(entry),
            _ => how(&mut self.order, entry),
        }
    }

    /// The entry to evict next, if the weight is over the maximum. The answer stays the same until
    /// something changes. The caller takes the node out of the map and calls
    /// [`evicted`](Self::evicted). If the map no longer has the node, an event about it waits; the
    /// caller may then call [`removed`](Self::removed) at once (eviction 4).
    pub(crate) fn victim(&self) -> Option<NodePtr<K, V>> {
        if let Some(entry) = self.overweight.oldest() {
            return Some(entry.node());
        }
        if self.excess() == 0 {
            return None;
        }
        Some(self.order.victim()?.node())
    }

    /// The weight of all known nodes.
    pub(crate) fn weight(&self) -> u64 {
        self.order.weight() + self.overweight.weight
    }

    /// The number of all known nodes.
    pub(crate) fn len(&self) -> usize {
        self.order.len() + self.overweight.len() + self.weightless
    }

    /// By how much the weight is over what it may be: over the maximum, unless
    /// [`allow`](Self::allow) says otherwise.
    pub(crate) fn excess(&self) -> u64 {
        self.weight().saturating_sub(self.order.allowed)
    }

    /// Where other parts of the cache have entries as well: this one may weigh `allowed` for now.
    /// `share` is its share of the cache, for which its queues are sized.
    pub(crate) fn allow(&mut self, allowed: u64, share: u64) {
        self.order.allow(allowed, share);
    }

    /// An upper bound on the weight of each node that may stay.
    pub(crate) fn heaviest(&self) -> u32 {
        self.heaviest
    }

    /// Changes the bound. Visits all nodes if the new bound is below the weight of one: such a node
    /// becomes overweight and does not push others out.
    pub(crate) fn set_max(&mut self, max: u64) {
        let share = share_of(self.order.sizer.max, self.max, max);
        self.max = max;
        if max < u64::from(self.heaviest) {
            for queue in self.order.queues() {
                queue.split(&mut self.overweight, |weight| weight > max);
            }
            self.heaviest = u32::try_from(max).unwrap_or(u32::MAX);
        }
        self.order.set_max(share);
        // Those that fit now; overweight nodes are few, since each is evicted in the pass that
        // admits it.
        let mut fitting = WeighedQueue::new(OVERWEIGHT);
        self.overweight.split(&mut fitting, |weight| weight <= max);
        while let Some(entry) = fitting.oldest() {
            fitting.unlink(entry);
            self.let_in(entry, entry.policy().weight.get());
        }
    }

    fn queues(&mut self) -> impl Iterator<Item = &mut WeighedQueue<K, V>> {
        std::iter::once(&mut self.overweight).chain(self.order.queues())
    }

    /// Begins a walk through all entries, from the first victim to the last, in small steps.
    ///
    /// It goes through one queue after the other. The number of entries at the beginning bounds its
    /// visits, so it ends however much writers add meanwhile. Between two steps the policy may
    /// change: an entry that moves to another queue may be visited twice or not at all. So a walk
    /// gives an order, and its caller learns elsewhere, from the map, which entries there are.
    pub(crate) fn begin_walk(&mut self) {
        // Room for entries that are used meanwhile.
        let most = 2 * self.len();
        self.queues().for_each(|queue| queue.begin_walk(most));
    }

    /// Visits at most `most` further entries; false at the end of the walk. One walk at a time.
    pub(crate) fn walk(&mut self, most: usize, mut visit: impl FnMut(EntryPtr<K, V>)) -> bool {
        let mut left = most;
        for queue in self.queues() {
            left -= queue.walk(left, &mut visit);
            if left == 0 {
                return true;
            }
        }
        false
    }
}

/// As large a part of `max` as `part` is of `all`; all of it if `all` is nothing.
pub(crate) fn share_of(part: u64, all: u64, max: u64) -> u64 {
    if all == 0 {
        return max;
    }
    let share = u128::from(part) * u128::from(max) / u128::from(all);
    u64::try_from(share).unwrap_or(max)
}
