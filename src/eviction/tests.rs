//! The size policy through its interface: against a sequential model, and on workloads whose best
//! hit ratio is known.

use super::ghosts::mix_bits_twice;
use super::{Eviction, EvictionPolicy, FIRST_FREE, OUT, OVERWEIGHT, WEIGHTLESS, WeighedQueue};
use crate::node::{Columns, NewNode, NodePtr, Slab, Times};
use std::collections::{HashMap, HashSet};

const POLICIES: [EvictionPolicy; 2] = [EvictionPolicy::Adaptive, EvictionPolicy::Lru];

/// A key from here on hashes like one of the first 256, as an attacker would choose it.
const FLOOD: u64 = 1 << 32;

type Owned = NodePtr<u64, ()>;

/// Where the nodes of a test live, until it is dropped.
fn nest() -> Slab<u64, ()> {
    Slab::new(COLUMNS)
}

const COLUMNS: Columns = Columns {
    queue: true,
    weight: true,
    own: false,
    refresh: false,
};

fn make(nest: &mut Slab<u64, ()>, key: u64, weight: u32) -> Owned {
    let hashed = if key >= FLOOD { key % 256 } else { key };
    let mut new = NewNode::new(key, (), mix_bits_twice(hashed ^ 0xA5A5), weight);
    nest.create(COLUMNS, &mut new, Times::NONE)
}

/// A node of another weight in the entry of `old`.
fn succeed(nest: &mut Slab<u64, ()>, old: Owned, weight: u32) -> Owned {
    let mut new = NewNode::new(*old.key(), (), old.hash(), weight);
    let new = nest.succeed(COLUMNS, old, &mut new, Times::NONE);
    new.entry().set_node(new);
    new
}

/// A cache reduced to what the policy sees: a map that owns the nodes, and passes after every call.
struct Model {
    nest: Slab<u64, ()>,
    policy: Eviction<u64, ()>,
    nodes: HashMap<u64, Owned>,
    evicted: Vec<u64>,
}

impl Model {
    fn new(policy: EvictionPolicy, max: u64) -> Self {
        Self {
            nest: nest(),
            policy: Eviction::with_policy(policy, max, 1),
            nodes: HashMap::new(),
            evicted: Vec::new(),
        }
    }

    fn node(&self, key: u64) -> Option<NodePtr<u64, ()>> {
        self.nodes.get(&key).copied()
    }

    fn insert(&mut self, key: u64, weight: u32) {
        if let Some(old) = self.node(key) {
            let new = succeed(&mut self.nest, old, weight);
            self.nodes.insert(key, new);
            self.policy.replaced(new, true);
        } else {
            let new = make(&mut self.nest, key, weight);
            self.nodes.insert(key, new);
            self.policy.admit(new);
        }
    }

    fn read(&mut self, key: u64) -> bool {
        let node = self.node(key);
        if let Some(node) = node {
            self.policy.accessed(node);
        }
        node.is_some()
    }

    fn remove(&mut self, key: u64) {
        if let Some(node) = self.nodes.remove(&key) {
            self.policy.removed(node);
            assert_eq!(node.entry().queue_id.get(), OUT);
        }
    }

    fn expire(&mut self, key: u64) {
        let node = self.nodes.remove(&key).expect("an entry that is there");
        self.policy.expired(node);
        assert_eq!(node.entry().queue_id.get(), OUT);
    }

    fn evict(&mut self) {
        while let Some(victim) = self.policy.victim() {
            let key = *victim.key();
            self.policy.evicted(victim);
            self.nodes
                .remove(&key)
                .expect("a victim that is in the map");
            self.evicted.push(key);
        }
    }

    fn weight(&self) -> u64 {
        self.nodes
            .values()
            .map(|node| u64::from(node.weight()))
            .sum()
    }

    fn check(&self) {
        assert_eq!(self.policy.weight(), self.weight());
        assert_eq!(self.policy.len(), self.nodes.len());
        self.policy.check_invariants();
    }

    /// Get, then insert on a miss.
    fn request(&mut self, key: u64) -> bool {
        let hit = self.read(key);
        if !hit {
            self.insert(key, 1);
            self.evict();
        }
        hit
    }

    fn hit_ratio(&mut self, keys: impl IntoIterator<Item = u64>) -> f64 {
        let (mut hits, mut all) = (0u32, 0u32);
        for key in keys {
            hits += u32::from(self.request(key));
            all += 1;
        }
        f64::from(hits) / f64::from(all)
    }
}

/// A sequence of numbers without pattern.
fn random(seed: u64) -> impl FnMut(u64) -> u64 {
    let mut at = seed;
    move |below| {
        at += 1;
        mix_bits_twice(at) % below
    }
}

#[test]
fn the_weights_are_those_of_a_sequential_cache() {
    for policy in POLICIES {
        for seed in 0..30 {
            let mut random = random(seed * 1_000_000);
            let mut max = 1 + random(500);
            let mut cache = Model::new(policy, max);
            for step in 0..3000 {
                let key = random(200);
                match random(100) {
                    0..45 => {
                        let weight = match random(20) {
                            0 => 0,
                            1 => max as u32 + random(3) as u32,
                            _ => 1 + random(1 + max / 8) as u32,
                        };
                        cache.insert(key, weight);
                    }
                    45..80 => drop(cache.read(key)),
                    80..92 => cache.remove(key),
                    92..98 => cache.evict(),
                    98 if step % 7 == 0 => {
                        max = random(600);
                        cache.policy.set_max(max);
                    }
                    _ => cache.check(),
                }
            }
            let weightless: Vec<u64> = (0..200)
                .filter(|&key| cache.node(key).is_some_and(|node| node.weight() == 0))
                .collect();
            cache.evict();
            cache.check();
            assert!(cache.policy.weight() <= max, "{policy:?}, seed {seed}");
            for key in weightless {
                assert!(
                    cache.node(key).is_some(),
                    "{policy:?} gave up a weightless entry"
                );
            }
            for key in 0..200 {
                cache.remove(key);
            }
            cache.check();
            assert_eq!((cache.policy.weight(), cache.policy.len()), (0, 0));
        }
    }
}

#[test]
fn an_overweight_entry_goes_alone() {
    for policy in POLICIES {
        let mut cache = Model::new(policy, 100);
        for key in 0..100 {
            cache.insert(key, 1);
        }
        cache.insert(1000, 101);
        cache.insert(1001, u32::MAX);
        cache.insert(7, 200);
        assert_eq!(cache.node(7).unwrap().entry().queue_id.get(), OVERWEIGHT);
        cache.evict();
        cache.evicted.sort_unstable();
        assert_eq!(cache.evicted, [7, 1000, 1001], "{policy:?}");
        cache.check();
    }
}

#[test]
fn weightless_entries_are_no_victims_whatever_the_bound() {
    for policy in POLICIES {
        let mut cache = Model::new(policy, 10);
        for key in 0..50 {
            cache.insert(key, 0);
        }
        for key in 100..150 {
            cache.insert(key, 1);
        }
        cache.policy.set_max(0);
        cache.evict();
        assert_eq!(cache.nodes.len(), 50, "{policy:?}");
        assert!(
            cache
                .nodes
                .values()
                .all(|node| node.entry().queue_id.get() == WEIGHTLESS)
        );
        cache.check();
    }
}

#[test]
fn a_bound_of_nothing_keeps_nothing() {
    for policy in POLICIES {
        let mut cache = Model::new(policy, 0);
        for key in 0..10 {
            assert!(!cache.request(key));
        }
        assert!(cache.nodes.is_empty());
        cache.check();
    }
}

#[test]
fn totals_go_beyond_32_bits() {
    for policy in POLICIES {
        let mut cache = Model::new(policy, 1 << 36);
        for key in 0..40 {
            cache.insert(key, u32::MAX);
            cache.evict();
        }
        assert_eq!(cache.policy.len(), 16);
        cache.check();
        let mut endless = Model::new(policy, u64::MAX);
        for key in 0..40 {
            endless.insert(key, u32::MAX);
            endless.read(key);
            endless.evict();
        }
        assert_eq!(endless.policy.len(), 40);
        endless.check();
    }
}

#[test]
fn a_smaller_bound_evicts_and_a_larger_one_is_filled() {
    for policy in POLICIES {
        let mut cache = Model::new(policy, 1000);
        for key in 0..1000 {
            cache.request(key);
        }
        cache.policy.set_max(100);
        cache.evict();
        cache.check();
        assert_eq!(cache.policy.weight(), 100);
        cache.policy.set_max(500);
        for key in 2000..2500 {
            cache.request(key);
        }
        cache.check();
        assert_eq!(cache.policy.weight(), 500);
    }
}

#[test]
fn an_entry_that_became_overweight_evicts_no_other() {
    for policy in POLICIES {
        let mut cache = Model::new(policy, 1000);
        cache.insert(0, 300);
        for key in 1..=100 {
            cache.insert(key, 1);
        }
        cache.policy.set_max(200);
        cache.evict();
        assert_eq!(cache.evicted, [0], "{policy:?}");
        cache.insert(200, 250);
        cache.policy.set_max(400);
        cache.evict();
        assert!(cache.node(200).is_some(), "it fits again");
        cache.check();
    }
}

#[test]
fn what_is_not_known_is_let_be() {
    for policy in POLICIES {
        let mut cache = Model::new(policy, 10);
        cache.insert(1, 1);
        let old = cache.nodes.remove(&1).unwrap();
        // Taken out early, as the pass does with a victim that its writer has removed already.
        cache.policy.removed(old);
        cache.policy.removed(old);
        cache.policy.accessed(old);
        cache.check();
        let new = succeed(&mut cache.nest, old, 1);
        cache.policy.replaced(new, true);
        cache.nodes.insert(1, new);
        cache.check();
    }
}

#[test]
fn an_update_soon_after_a_use_is_no_further_use() {
    let update = |cache: &mut Model, key: u64, first_use: bool| {
        let old = cache.nodes[&key];
        let new = succeed(&mut cache.nest, old, 1);
        cache.nodes.insert(key, new);
        let queue = old.entry().queue_id.get();
        cache.policy.replaced(new, first_use);
        cache.check();
        (queue, new.entry().queue_id.get())
    };
    let mut cache = Model::new(EvictionPolicy::Adaptive, 100);
    (0..100).for_each(|key| cache.insert(key, 1));
    let (before, after) = update(&mut cache, 0, false);
    assert_eq!(before, after, "the new node keeps the queue position");
    let (before, after) = update(&mut cache, 0, true);
    assert_ne!(before, after, "the oldest was used");

    let mut cache = Model::new(EvictionPolicy::Lru, 3);
    (0..3).for_each(|key| cache.insert(key, 1));
    update(&mut cache, 0, true);
    cache.insert(3, 1);
    cache.evict();
    assert_eq!(cache.evicted, [1]);
}

#[test]
fn a_new_key_that_is_asked_for_at_once_is_found() {
    for policy in POLICIES {
        let mut cache = Model::new(policy, 1000);
        // A protected queue of keys that are all used again and again.
        for _ in 0..20 {
            for key in 0..990 {
                cache.request(key);
            }
        }
        for key in 5000..9000 {
            cache.request(key);
            assert!(cache.request(key), "{policy:?} lost a key at once");
        }
    }
}

#[test]
fn lru_is_exactly_that() {
    let mut cache = Model::new(EvictionPolicy::Lru, 100);
    let mut random = random(3);
    let mut order: Vec<u64> = Vec::new();
    for _ in 0..20_000 {
        let key = random(200);
        let at = order.iter().position(|&k| k == key);
        assert_eq!(cache.request(key), at.is_some());
        if let Some(at) = at {
            order.remove(at);
        } else if order.len() == 100 {
            order.remove(0);
        }
        order.push(key);
    }
}

#[test]
fn a_loop_a_little_too_long_keeps_nearly_all_its_hits() {
    let mut cache = Model::new(EvictionPolicy::Adaptive, 1000);
    let ratio = cache.hit_ratio((0..100).flat_map(|_| 0..1011));
    assert!(ratio > 0.95, "{ratio}");
    cache.check();
}

#[test]
fn walking_back_and_forth_leaves_the_protected_queue() {
    // LIRS alone promotes at each turn what it will not see again before the far end: 0.31.
    let mut cache = Model::new(EvictionPolicy::Adaptive, 500);
    let ratio = cache.hit_ratio((0..100).flat_map(|_| (0..750).chain((0..750).rev())));
    assert!(ratio > 0.58, "{ratio}, at most 0.67 is possible");
}

#[test]
fn what_was_read_while_the_cache_filled_up_is_not_the_first_to_go() {
    const MAX: u64 = 20_000;
    const HOT: u64 = 2_000;
    let mut cache = Model::new(EvictionPolicy::Adaptive, MAX);
    (0..HOT).for_each(|key| cache.insert(key, 1));
    for key in HOT..MAX {
        cache.insert(key, 1);
        cache.read(key % HOT);
    }
    cache.check();
    // Newcomers, each read once more soon after, press on all that is there.
    let mut fresh = 1 << 20;
    let hits = (0..HOT).filter(|key| {
        for _ in 0..4 {
            cache.insert(fresh, 1);
            cache.evict();
            fresh += 1;
            cache.read(fresh - 100);
        }
        cache.request(*key)
    });
    let hits = hits.count() as u64;
    assert!(hits > HOT * 19 / 20, "{hits} of {HOT} were kept");
}

#[test]
fn one_pass_over_many_keys_leaves_the_protected_queue() {
    let mut cache = Model::new(EvictionPolicy::Adaptive, 1000);
    cache.hit_ratio((0..20).flat_map(|_| 0..900));
    cache.hit_ratio(100_000..200_000);
    let left = (0..900).filter(|&key| cache.node(key).is_some()).count();
    assert!(left > 850, "{left} left of 900");
}

#[test]
fn a_dead_protected_queue_is_given_up_though_no_ghost_is_known() {
    let mut cache = Model::new(EvictionPolicy::Adaptive, 1000);
    cache.hit_ratio((0..20).flat_map(|_| 0..900));
    // Five times the cache: every ghost is forgotten before its key comes back.
    cache.hit_ratio((0..60).flat_map(|_| 10_000..15_000));
    let ratio = cache.hit_ratio((0..10).flat_map(|_| 10_000..15_000));
    assert!(ratio > 0.15, "{ratio}, at most 0.2 is possible");
}

#[test]
fn the_window_grows_where_recency_pays() {
    // Every key is used twice, a hundred others apart, and never again: nothing is worth a place in
    // the protected queue.
    let mut cache = Model::new(EvictionPolicy::Adaptive, 400);
    let ratio = cache.hit_ratio((0..20_000u64).flat_map(|i| [i + 100, i]));
    assert!(ratio > 0.4, "{ratio}, at most 0.5 is possible");
}

/// Hit ratios of keys `0..set`, then of others as many, while every other request is for a key that
/// comes once and hashes like one of the first.
fn under_flood(policy: EvictionPolicy, set: u64) -> [f64; 2] {
    let mut cache = Model::new(policy, 1000);
    let mut random = random(5);
    let mut flood = FLOOD..;
    let mut requests = |first: u64, count: u32| {
        let mut hits = 0;
        for _ in 0..count {
            hits += u32::from(cache.request(first + random(set)));
            flood.next().map(|key| cache.request(key));
        }
        f64::from(hits) / f64::from(count)
    };
    // The second set begins with nothing known of it.
    [0, FLOOD / 2].map(|first| {
        requests(first, 10_000);
        requests(first, 20_000)
    })
}

#[test]
fn an_attacker_who_knows_the_hashes_makes_it_no_worse_than_lru() {
    // For each of these keys its ghost and its duels say that it is one that came back.
    for set in [300, 900, 3000] {
        let [lirs, lru] =
            [EvictionPolicy::Adaptive, EvictionPolicy::Lru].map(|p| under_flood(p, set));
        for (lirs, lru) in lirs.into_iter().zip(lru) {
            assert!(lirs > lru - 0.01, "{lirs} against {lru} with {set} keys");
        }
    }
}

#[test]
fn the_same_seed_gives_the_same_evictions() {
    let run = || {
        let mut cache = Model::new(EvictionPolicy::Adaptive, 200);
        let mut random = random(9);
        cache.hit_ratio((0..30_000).map(|_| random(1200)));
        cache.evicted
    };
    assert_eq!(run(), run());
}

/// With few places the entry that was used least goes, as long as the cache has evicted nothing
/// yet.
#[test]
fn a_tiny_cache_first_evicts_what_was_used_least() {
    for order in [
        [1, 2, 3],
        [1, 3, 2],
        [2, 1, 3],
        [2, 3, 1],
        [3, 1, 2],
        [3, 2, 1],
    ] {
        let mut cache = Model::new(EvictionPolicy::Adaptive, 3);
        (1..=3).for_each(|key| cache.insert(key, 1));
        let [once, twice @ ..] = order;
        cache.read(once);
        for key in twice {
            cache.read(key);
            cache.read(key);
        }
        cache.insert(4, 1);
        cache.evict();
        assert_eq!(cache.evicted, [once], "used in the order {order:?}");
        cache.check();
    }
}

#[test]
fn a_tiny_cache_that_grows_learns_and_keeps_what_it_has() {
    let mut cache = Model::new(EvictionPolicy::Adaptive, 3);
    (0..10).for_each(|key| _ = cache.request(key));
    let there: Vec<u64> = cache.nodes.keys().copied().collect();
    cache.policy.set_max(1_000);
    cache.check();
    cache.evict();
    assert!(
        there.into_iter().all(|key| cache.read(key)),
        "growing evicts nothing"
    );
    let a_loop = || (0..1_050).cycle().take(40 * 1_050);
    assert!(
        cache.hit_ratio(a_loop()) > 0.5,
        "it adapts to a loop as a large cache does"
    );
    // A large one that becomes tiny evicts down to its bound and stays as it is.
    cache.policy.set_max(3);
    cache.evict();
    assert_eq!(cache.nodes.len(), 3);
    cache.check();
}

/// Hot keys with short lifetimes beside a flood of keys that are used once: when a hot key expires
/// and comes back, its ghost brings it back among the protected entries.
#[test]
fn a_hot_key_that_expired_comes_back_as_what_it_was() {
    const HOT: u64 = 100;
    let run = |forget: bool| {
        let mut cache = Model::new(EvictionPolicy::Adaptive, 400);
        let mut fresh = 1 << 20;
        let (mut hits, mut all) = (0, 0);
        for round in 0..200 {
            for key in 0..HOT {
                hits += u32::from(cache.request(key));
                all += 1;
                for _ in 0..6 {
                    fresh += 1;
                    cache.request(fresh);
                }
            }
            // A quarter of the hot keys is past its deadline.
            for key in (0..HOT).filter(|key| key % 4 == round % 4) {
                match cache.node(key) {
                    Some(_) if forget => cache.remove(key),
                    Some(_) => cache.expire(key),
                    None => {}
                }
            }
            cache.check();
        }
        f64::from(hits) / f64::from(all)
    };
    let [with, without] = [run(false), run(true)];
    println!("hit ratio of hot keys: {with:.3} with ghosts of the expired, {without:.3} without");
    // Of four uses one is the miss that follows the deadline.
    assert!(with > 0.7, "{with}");
    assert!(with > without + 0.02, "{with} against {without}");
}

/// A larger window would not have kept an entry past its deadline.
#[test]
fn a_return_after_a_deadline_does_not_widen_the_window() {
    let mut cache = Model::new(EvictionPolicy::Adaptive, 100);
    (0..1_000).for_each(|key| _ = cache.request(key));
    let window = |cache: &Model| cache.policy.order.window_size();
    let before = window(&cache);
    let stay: Vec<u64> = (0..1_000)
        .filter(|&key| cache.node(key).is_some())
        .take(10)
        .collect();
    for _ in 0..50 {
        for &key in &stay {
            cache.expire(key);
            cache.insert(key, 1);
            cache.evict();
            assert!(cache.node(key).is_some(), "there is room for it");
        }
    }
    assert!(
        window(&cache) <= before,
        "{} after {before}",
        window(&cache)
    );
}

/// The last keys that fill a cache go into the window. A use takes them out again, whatever the
/// duels say: no entry was evicted yet, so the order of use is all there is to go by.
#[test]
fn the_last_keys_that_fill_a_cache_are_hot_when_they_are_used() {
    const MAX: u64 = 1_000;
    for seed in 0..200 {
        let mut cache = Model::new(EvictionPolicy::Adaptive, MAX);
        cache.policy = Eviction::with_policy(EvictionPolicy::Adaptive, MAX, seed);
        (0..MAX).for_each(|key| cache.insert(key, 1));
        let used: HashSet<u64> = (0..MAX).step_by(10).collect();
        for _ in 0..2 {
            (0..MAX).step_by(10).for_each(|key| _ = cache.read(key));
        }
        cache.check();
        let mut keys = Vec::new();
        cache.policy.begin_walk();
        while cache
            .policy
            .walk(100, |entry| keys.push(*entry.node().key()))
        {}
        let hottest: HashSet<u64> = keys.iter().rev().take(used.len()).copied().collect();
        let cold: Vec<_> = used.difference(&hottest).collect();
        assert!(cold.is_empty(), "seed {seed}: {cold:?} were used");
    }
}

/// Writers that add as much as the walk visits must not keep it going.
#[test]
fn a_walk_ends_though_writers_lengthen_the_queues() {
    const LEN: u64 = 100;
    for policy in [EvictionPolicy::Lru, EvictionPolicy::Adaptive] {
        let mut cache = Model::new(policy, 100 * LEN);
        (0..LEN).for_each(|key| cache.insert(key, 1));
        cache.policy.begin_walk();
        let (mut visits, mut fresh) = (0, LEN..);
        while cache.policy.walk(1, |_| visits += 1) {
            assert!(visits <= 10 * LEN, "{policy:?}: visited {visits} of {LEN}");
            fresh.by_ref().take(2).for_each(|key| cache.insert(key, 1));
            cache.read(visits % LEN);
        }
    }
}

#[test]
fn a_walk_visits_all_that_stays_from_the_coldest_to_the_hottest() {
    for (policy, max) in [(EvictionPolicy::Lru, 100), (EvictionPolicy::Adaptive, 100)] {
        let mut cache = Model::new(policy, max);
        (0..100).for_each(|key| _ = cache.request(key));
        (50..60).for_each(|key| _ = cache.read(key));
        cache.policy.begin_walk();
        let mut keys = Vec::new();
        let mut steps = 0;
        while cache.policy.walk(7, |entry| keys.push(*entry.node().key())) {
            steps += 1;
            // The policy continues meanwhile: what was visited leaves, what is ahead is used.
            cache.remove(keys[0] + steps % 2);
            cache.read(70 + steps % 10);
        }
        let met: HashSet<u64> = keys.iter().copied().collect();
        let missed: Vec<_> = cache
            .nodes
            .keys()
            .filter(|key| !met.contains(key))
            .collect();
        assert!(missed.is_empty(), "{policy:?}: {missed:?} were not visited");
        if policy == EvictionPolicy::Lru {
            let last: Vec<_> = keys.iter().rev().take(10).collect();
            assert!(last.iter().all(|&&key| (50..80).contains(&key)), "{last:?}");
        }
    }
}

#[test]
fn a_walk_visits_what_comes_into_a_queue_before_it_and_what_moves_to_the_end() {
    let mut nest = nest();
    let entries = [0, 1].map(|key| make(&mut nest, key, 1).entry());
    let mut queue = WeighedQueue::new(FIRST_FREE);
    queue.begin_walk(10);
    entries.iter().for_each(|&entry| queue.push_newest(entry));
    let mut visited = Vec::new();
    queue.walk(1, &mut |entry| visited.push(entry));
    // The walk stands at this entry, which is at the end already.
    queue.move_to_newest(entries[1]);
    queue.walk(10, &mut |entry| visited.push(entry));
    assert_eq!(visited, entries);
}
