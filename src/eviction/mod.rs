//! The size policy: who goes when the cache is over its bound.
//!
//! # How it works
//!
//! The maintenance pass tells [`Eviction`] of every node that came, was replaced, was read or left,
//! and asks it for victims while the weight is over the maximum. What is the same for every policy
//! is here: the weight, nodes that are no candidates (weight 0), and nodes that could never stay
//! (heavier than the whole cache). The order of all others is the policy's: [`lru`] or, by default,
//! [`lirs`] with its parts [`ghosts`], [`duels`], [`share`] and [`epochs`].
//!
//! # Invariants
//!
//! 1. An entry is known from `admit`, or a first `replaced`, until `removed`. The `region` of its
//!    entry says where it is: [`OUT`], [`WEIGHTLESS`] (in no queue), [`OVERWEIGHT`], or a number of
//!    the policy's. What it weighs here is in the entry as well: the weight of the last node that
//!    this was told of.
//! 2. Every node in a policy's queue weighs from 1 to `max`.
//! 3. `weight` is the sum over all known entries, overweight ones included; `len` their number.
//! 4. `removed` and `accessed` of a node that is not known do nothing, and `replaced` of one lets
//!    it in: a node whose event is still under way may be taken out early.
//!
//! Called by the holder of the maintenance lock only. No user code, no clock, no map. Every call
//! but [`set_max`](Eviction::set_max) does a bounded amount of work.

mod epochs;
mod ghosts;
mod lirs;
mod lru;
mod queue;
mod set_dueling;
#[cfg(test)]
mod tests;
mod window;

use crate::list::{List, Queue};
use crate::node::{EntryPtr, NodePtr};
use lirs::Lirs;
use lru::Lru;
use queue::Weighed;
use std::hash::BuildHasher;

/// Region of a node in no queue and not known here.
pub(crate) const OUT: u8 = 0;
/// Region of a known node that weighs nothing: in no queue, never a victim.
const WEIGHTLESS: u8 = 1;
/// Region of a node heavier than the maximum: the next victim.
const OVERWEIGHT: u8 = 2;
/// How many reads ahead the neighbours of a node are fetched.
const AHEAD: usize = 6;
/// The first region that a policy may give a meaning.
const FIRST_FREE: u8 = 3;

/// Which entries a bounded cache gives up when it is full.
///
/// Whatever the policy, entries that expired go before any live one, and with cause `Expired`. Next
/// goes an entry that will expire within the current bucket of the timer (`expiry_resolution`
/// wide), if more than half of its life is over and reads do not extend it: it is as good as dead,
/// but as it is alive its cause is `Size`.
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
#[non_exhaustive]
pub enum EvictionPolicy {
    /// Adapts to the load: keeps entries that are asked for again and again, resists scans and
    /// loops, and leans towards recency where that pays. Right for nearly everything.
    ///
    /// Under the name that users of other caches look for, this is not the published W-TinyLFU but
    /// a policy measured to hit more often: LIRS with an adaptive window, in which candidates
    /// compete with the entry they would push out.
    #[default]
    Adaptive,
    /// Gives up the entry that was used least recently. Predictable; a single pass over many keys
    /// empties the cache of everything else.
    Lru,
}

enum Order<K, V> {
    Lirs(Box<Lirs<K, V>>),
    Lru(Lru<K, V>),
}

/// The size policy of one cache; see the module docs.
pub(crate) struct Eviction<K, V> {
    policy: EvictionPolicy,
    order: Order<K, V>,
    overweight: Weighed<K, V>,
    weightless: usize,
    max: u64,
    /// Whether nodes weigh anything but 1. Else none is asked: that would be one more line for
    /// each.
    weighed: bool,
    /// No node in the policy's queues is heavier, or ever was since the bound was moved.
    heaviest: u32,
    /// The last victim named, to know an eviction from any other removal. Only compared: `removed`
    /// clears it before the entry can be freed.
    named: Option<EntryPtr<K, V>>,
}

impl<K, V> Eviction<K, V> {
    /// A policy seeded from the operating system's randomness.
    pub(crate) fn new(policy: EvictionPolicy, max_weight: u64, weighed: bool) -> Self {
        let seed = std::hash::RandomState::new().hash_one(max_weight);
        Self {
            weighed,
            ..Self::with_policy(policy, max_weight, seed)
        }
    }

    /// `seed` should differ from cache to cache and be unknown to who chooses the keys.
    pub(crate) fn with_policy(policy: EvictionPolicy, max_weight: u64, seed: u64) -> Self {
        Self {
            policy,
            order: match policy {
                EvictionPolicy::Adaptive => Order::Lirs(Box::new(Lirs::new(max_weight, seed))),
                EvictionPolicy::Lru => Order::Lru(Lru::new()),
            },
            overweight: Weighed::new(OVERWEIGHT),
            weightless: 0,
            max: max_weight,
            weighed: true,
            heaviest: 0,
            named: None,
        }
    }

    /// Whether the exact order of use is what the policy promises.
    pub(crate) fn keeps_order(&self) -> bool {
        matches!(self.order, Order::Lru(_))
    }

    /// A node that came into the map.
    pub(crate) fn admit(&mut self, node: NodePtr<K, V>) {
        self.let_in(node.entry(), self.weight_of(node));
    }

    #[inline]
    fn weight_of(&self, node: NodePtr<K, V>) -> u32 {
        if self.weighed { node.weight() } else { 1 }
    }

    fn let_in(&mut self, entry: EntryPtr<K, V>, weight: u32) {
        debug_assert_eq!(entry.queue_id(), OUT, "admitted twice");
        entry.set_weight(weight);
        if weight == 0 {
            entry.set_queue_id(WEIGHTLESS);
            self.weightless += 1;
        } else if u64::from(weight) > self.max {
            self.overweight.push_newest(entry);
        } else {
            self.heaviest = self.heaviest.max(weight);
            match &mut self.order {
                Order::Lirs(lirs) => lirs.admit(entry),
                Order::Lru(lru) => lru.admit(entry),
            }
        }
    }

    /// A node that has succeeded to a entry: it keeps the standing, and that was a use. It is
    /// `news` unless a use of this entry was told a moment ago. Whether somebody may have to go for
    /// it: the entry was not known here yet, or weighs more by now.
    pub(crate) fn replaced(&mut self, new: NodePtr<K, V>, news: bool) -> bool {
        let (entry, weight) = (new.entry(), self.weight_of(new));
        let needs_room = entry.queue_id() == OUT || weight > entry.weight();
        let fits = (1..=self.max).contains(&u64::from(weight));
        if entry.queue_id() < FIRST_FREE || !fits {
            // There is no standing to keep, or it cannot be kept.
            self.let_go(entry);
            self.let_in(entry, weight);
            return needs_room;
        }
        self.heaviest = self.heaviest.max(weight);
        self.reweigh(entry, weight);
        // For `Lru` it costs next to nothing, and the order is what this policy promises.
        if news || self.keeps_order() {
            self.use_of(entry);
        }
        needs_room
    }

    /// A node that has succeeded to a entry and has left the map again: it holds the standing,
    /// which was no use, until it is itself replaced or removed here. Only where that moves nobody:
    /// the dead have no claim to another weight, nor to being let in.
    pub(crate) fn hold(&mut self, new: NodePtr<K, V>) {
        let entry = new.entry();
        if entry.queue_id() < FIRST_FREE || self.weight_of(new) != entry.weight() {
            self.let_go(entry);
        } else if self.named == Some(entry) {
            self.named = None;
        }
    }

    fn reweigh(&mut self, entry: EntryPtr<K, V>, weight: u32) {
        if self.named == Some(entry) {
            self.named = None;
        }
        match &mut self.order {
            Order::Lirs(lirs) => lirs.reweigh(entry, weight),
            Order::Lru(lru) => lru.reweigh(entry, weight),
        }
    }

    /// Asks the processor for what [`admit`](Self::admit) will look up.
    #[inline]
    pub(crate) fn prefetch(&self, node: NodePtr<K, V>) {
        if let Order::Lirs(lirs) = &self.order {
            lirs.prefetch(node.entry());
        }
    }

    /// Asks the processor for what taking out the next victim will look up here, and says which
    /// that is, as things stand.
    #[inline]
    pub(crate) fn prefetch_victim(&self) -> Option<NodePtr<K, V>> {
        let next = self.first_in_order()?.node();
        self.prefetch(next);
        Some(next)
    }

    /// Asks the processor for what [`removed`](Self::removed) will write.
    #[inline]
    pub(crate) fn prefetch_around(node: NodePtr<K, V>) {
        List::<K, V, Queue>::prefetch_around(node.entry());
    }

    /// Reads of several nodes, in order.
    pub(crate) fn accessed_all(&mut self, nodes: &[NodePtr<K, V>]) {
        for node in nodes {
            let entry = node.entry();
            entry.prefetch();
            entry.prefetch_policy_links();
        }
        for (at, &node) in nodes.iter().enumerate() {
            if let Some(ahead) = nodes.get(at + AHEAD) {
                List::<K, V, Queue>::prefetch_around(ahead.entry());
            }
            self.accessed(node);
        }
    }

    /// A read of a node; may be told late, or not at all.
    #[inline]
    pub(crate) fn accessed(&mut self, node: NodePtr<K, V>) {
        let entry = node.entry();
        if entry.queue_id() >= FIRST_FREE {
            self.use_of(entry);
        }
    }

    #[inline]
    fn use_of(&mut self, entry: EntryPtr<K, V>) {
        match &mut self.order {
            Order::Lirs(lirs) => lirs.accessed(entry),
            Order::Lru(lru) => lru.accessed(entry),
        }
    }

    /// A node that left the map, for whatever reason.
    pub(crate) fn removed(&mut self, node: NodePtr<K, V>) {
        self.let_go(node.entry());
    }

    fn let_go(&mut self, entry: EntryPtr<K, V>) {
        let evicted = self.named == Some(entry);
        if evicted {
            self.named = None;
        }
        match entry.queue_id() {
            OUT => {}
            WEIGHTLESS => {
                entry.set_queue_id(OUT);
                self.weightless -= 1;
            }
            OVERWEIGHT => self.overweight.unlink(entry),
            _ => match &mut self.order {
                Order::Lirs(lirs) => lirs.removed(entry, evicted),
                Order::Lru(lru) => lru.removed(entry),
            },
        }
    }

    /// Whom to evict next, if the weight is over the maximum. The same until something changes: the
    /// caller takes the node out of the map and calls [`removed`](Self::removed). If the map no
    /// longer has it, its event is under way, and `removed` may be called at once all the same
    /// (eviction 4).
    pub(crate) fn victim(&mut self) -> Option<NodePtr<K, V>> {
        let victim = self.overweight.oldest().or_else(|| {
            if !self.is_over() {
                return None;
            }
            self.first_in_order()
        });
        self.named = victim;
        victim.map(EntryPtr::node)
    }

    /// Whom the policy would give up first.
    fn first_in_order(&self) -> Option<EntryPtr<K, V>> {
        match &self.order {
            Order::Lirs(lirs) => lirs.victim(),
            Order::Lru(lru) => lru.victim(),
        }
    }

    /// Whether a node of the caller's choice may go rather than the policy's victim: it makes room,
    /// and no node waits that cannot stay at all.
    pub(crate) fn may_give_up(&self, node: NodePtr<K, V>) -> bool {
        node.entry().queue_id() >= FIRST_FREE && self.overweight.len() == 0
    }

    /// The weight of all known nodes.
    pub(crate) fn weight(&self) -> u64 {
        let ordered = match &self.order {
            Order::Lirs(lirs) => lirs.weight(),
            Order::Lru(lru) => lru.weight(),
        };
        ordered + self.overweight.weight()
    }

    /// The number of all known nodes.
    pub(crate) fn len(&self) -> usize {
        let ordered = match &self.order {
            Order::Lirs(lirs) => lirs.len(),
            Order::Lru(lru) => lru.len(),
        };
        ordered + self.overweight.len() + self.weightless
    }

    /// Whether somebody has to go.
    pub(crate) fn is_over(&self) -> bool {
        self.weight() > self.max
    }

    /// By how much the weight is over the maximum.
    pub(crate) fn excess(&self) -> u64 {
        self.weight().saturating_sub(self.max)
    }

    /// No node that may stay is heavier.
    pub(crate) fn heaviest(&self) -> u32 {
        self.heaviest
    }

    /// Changes the bound. Visits all nodes if the new bound is below a single node's weight, which
    /// then becomes overweight rather than drive others out.
    pub(crate) fn set_max(&mut self, max: u64) {
        self.max = max;
        if max < u64::from(self.heaviest) {
            match &mut self.order {
                Order::Lirs(lirs) => lirs.split_heavier(max, &mut self.overweight),
                Order::Lru(lru) => lru.split_heavier(max, &mut self.overweight),
            }
            self.heaviest = u32::try_from(max).unwrap_or(u32::MAX);
        }
        if let Order::Lirs(lirs) = &mut self.order {
            lirs.set_max(max);
        }
        // Those that fit now; overweight nodes are few, since each is evicted in the pass that
        // admits it.
        let mut fitting = Weighed::new(OVERWEIGHT);
        self.overweight.split_lighter(max, &mut fitting);
        while let Some(entry) = fitting.oldest() {
            fitting.unlink(entry);
            self.let_in(entry, entry.weight());
        }
    }

    /// Asserts eviction 2, that overweight nodes are just that, and the invariants of the parts;
    /// visits all nodes in queues.
    #[cfg(any(test, fuzzing))]
    pub(crate) fn check_invariants(&self) {
        self.overweight
            .check_invariants(self.max.saturating_add(1)..=u64::MAX);
        assert!(u64::from(self.heaviest) <= self.max || self.heaviest == 0);
        let weights = 1..=u64::from(self.heaviest);
        match &self.order {
            Order::Lirs(lirs) => lirs.check_invariants(weights),
            Order::Lru(lru) => lru.check_invariants(weights),
        }
    }
}

impl<K, V> std::fmt::Debug for Eviction<K, V> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Eviction")
            .field("policy", &self.policy)
            .field("weight", &self.weight())
            .field("max", &self.max)
            .field("len", &self.len())
            .finish()
    }
}

/// Spreads a hash once more. One of an unknown hasher comes spread over all bits by `hash::spread`,
/// whose one multiplication keeps what is regular regular: good for a table that may grow and
/// chain, not for buckets of eight places. Of 200,000 keys in steps of 2^16 that hash to
/// themselves, [`ghosts`] would lose 49,000; of random ones it is 1,700, and so it is after this.
/// To hashes that are random already it does nothing: it is a bijection.
///
/// Odd multiplier (2^64 over the golden ratio), then the halves crossed, twice.
#[inline]
fn spread(hash: u64) -> u64 {
    let once = hash.wrapping_mul(0x9E37_79B9_7F4A_7C15);
    let crossed = (once ^ once >> 32).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    crossed ^ crossed >> 29
}
