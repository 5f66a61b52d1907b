//! The size policy compared with a map that owns its nodes: weights, bounds that change, and late
//! events.
//!
//! Which victim it chooses is not tested here (the tests in `eviction` and the benchmarks judge
//! that). This target tests what the pass relies on: its totals are right and its invariants hold
//! after each call; a victim is a node that it knows, with a weight above 0; taking victims ends,
//! and then the rest fits; the event of a node that was taken early may still arrive.

use super::script::Script;
use crate::eviction::{Eviction, EvictionPolicy, OUT};
use crate::node::{Columns, NewNode, NodePtr, Slab, Times};
use std::collections::BTreeMap;

/// The most nodes that a program makes.
const MOST: usize = 3_000;

const BOUNDS: [u64; 12] = [
    0,
    1,
    2,
    7,
    20,
    64,
    100,
    130,
    500,
    70_000,
    5 * u32::MAX as u64,
    u64::MAX,
];

type Owned = NodePtr<u64, u64>;

struct Bench {
    slab: Slab<u64, u64>,
    columns: Columns,
    policy: Eviction<u64, u64>,
    max: u64,
    /// The content of the map.
    nodes: BTreeMap<u64, Owned>,
    /// Victims that a writer had removed before; their own events are still in a buffer.
    late: Vec<Owned>,
    made: usize,
    spread: bool,
    /// Whether writes are recorded as accesses.
    first_use: bool,
}

/// Runs a program of calls, decoded from `data`, and panics if the policy's totals are wrong.
pub fn policy_against_map(data: &[u8]) {
    let mut script = Script(data);
    let (kind, bound) = (script.operand(), script.operand());
    let policy = if kind & 1 == 0 {
        EvictionPolicy::Adaptive
    } else {
        EvictionPolicy::Lru
    };
    let max = BOUNDS[usize::from(bound) % BOUNDS.len()];
    let columns = Columns {
        queue: true,
        weight: true,
        own: false,
        refresh: false,
    };
    let mut bench = Bench {
        slab: Slab::new(columns),
        columns,
        policy: Eviction::with_policy(policy, max, u64::from(kind >> 3)),
        max,
        nodes: BTreeMap::new(),
        late: Vec::new(),
        made: 0,
        spread: kind & 2 != 0,
        first_use: true,
    };
    while let Some(operation) = script.operation() {
        bench.step(operation, &mut script);
        bench.check();
    }
    bench.finish();
}

impl Bench {
    fn step(&mut self, operation: u8, script: &mut Script<'_>) {
        let key = u64::from(script.operand());
        self.first_use = operation & 0x80 == 0;
        match operation % 16 {
            0..=2 => self.insert(key, weight(script.operand())),
            3 | 4 => self.insert(key, 1),
            // A walk over many keys, each looked up and inserted if it is missing; a second walk
            // repeats the first.
            5 | 6 => {
                let from = u64::from(operation >> 4) * 64;
                for key in from..from + key {
                    self.request(key);
                }
            }
            7..=9 => self.read(key),
            10 => {
                if let Some(node) = self.nodes.remove(&key) {
                    self.policy.removed(node);
                    assert_eq!(node.entry().queue_id.get(), OUT);
                }
            }
            11 => {
                self.max = BOUNDS[key as usize % BOUNDS.len()];
                self.policy.set_max(self.max);
            }
            12 => self.evict(1 + key as usize),
            13 => self.evict_behind_a_writer(),
            14 => {
                if let Some(node) = self.late.pop() {
                    // The policy has already applied what its events say now.
                    self.policy.accessed(node);
                    self.policy.removed(node);
                    assert_eq!(node.entry().queue_id.get(), OUT);
                }
            }
            _ => {
                if let Some(old) = self.late.pop()
                    && let Some(new) = self.succeed(old, 1)
                {
                    let key = *old.key();
                    self.take(key);
                    self.policy.replaced(new, self.first_use);
                    self.nodes.insert(key, new);
                }
            }
        }
    }

    fn make(&mut self, key: u64, weight: u32) -> Option<Owned> {
        if self.made == MOST {
            return None;
        }
        self.made += 1;
        let hash = if self.spread {
            key.wrapping_mul(0x9E37_79B9_7F4A_7C15)
        } else {
            key
        };
        let mut new = NewNode::new(key, key, hash, weight);
        Some(self.slab.create(self.columns, &mut new, Times::NONE))
    }

    /// Another node in the same entry.
    fn succeed(&mut self, old: Owned, weight: u32) -> Option<Owned> {
        if self.made == MOST {
            return None;
        }
        self.made += 1;
        let mut new = NewNode::new(*old.key(), *old.key(), old.hash(), weight);
        let new = self.slab.succeed(self.columns, old, &mut new, Times::NONE);
        new.entry().set_node(new);
        Some(new)
    }

    fn insert(&mut self, key: u64, weight: u32) {
        if let Some(&old) = self.nodes.get(&key) {
            if let Some(new) = self.succeed(old, weight) {
                self.nodes.insert(key, new);
                self.policy.replaced(new, self.first_use);
            }
        } else if let Some(new) = self.make(key, weight) {
            self.nodes.insert(key, new);
            self.policy.admit(new);
        }
    }

    fn read(&mut self, key: u64) {
        if let Some(&node) = self.nodes.get(&key) {
            self.policy.accessed(node);
        }
    }

    /// Get, then insert on a miss, then evict to the bound.
    fn request(&mut self, key: u64) {
        if self.nodes.contains_key(&key) {
            self.read(key);
        } else {
            self.insert(key, 1);
            self.evict(2);
        }
    }

    fn take(&mut self, key: u64) {
        if let Some(node) = self.nodes.remove(&key) {
            self.policy.removed(node);
        }
    }

    fn victim(&mut self) -> Option<Owned> {
        let victim = self.policy.victim();
        assert!(
            victim == self.policy.victim(),
            "another victim, although nothing changed"
        );
        if let Some(victim) = victim {
            assert!(self.policy.excess() > 0 || u64::from(victim.weight()) > self.max);
            assert!(victim.weight() > 0, "evicted an entry of weight zero");
            assert!(self.nodes.get(victim.key()) == Some(&victim));
        }
        victim
    }

    /// Takes at most this many victims.
    fn evict(&mut self, most: usize) {
        for _ in 0..most {
            let Some(victim) = self.victim() else {
                return;
            };
            self.policy.evicted(victim);
            self.nodes.remove(victim.key());
            assert_eq!(victim.entry().queue_id.get(), OUT);
        }
    }

    /// The victim has left the map already: it is taken early, and its event comes later.
    fn evict_behind_a_writer(&mut self) {
        if let Some(victim) = self.victim() {
            self.nodes.remove(victim.key());
            self.policy.removed(victim);
            self.late.push(victim);
        }
    }

    fn check(&self) {
        let weights = self.nodes.values().map(|node| u64::from(node.weight()));
        let weight: u64 = weights.sum();
        assert_eq!(self.policy.weight(), weight);
        assert_eq!(self.policy.len(), self.nodes.len());
        assert_eq!(self.policy.excess(), weight.saturating_sub(self.max));
        let fits = |node: &&Owned| u64::from(node.weight()) <= self.max;
        let heaviest = self
            .nodes
            .values()
            .filter(fits)
            .map(|node| node.weight())
            .max();
        assert!(heaviest.unwrap_or(0) <= self.policy.heaviest());
        self.policy.check_invariants();
    }

    fn finish(mut self) {
        self.evict(usize::MAX);
        self.check();
        assert!(self.policy.excess() == 0, "no victim is left");
        for key in self.nodes.keys().copied().collect::<Vec<u64>>() {
            self.take(key);
        }
        self.check();
    }
}

fn weight(byte: u8) -> u32 {
    match byte {
        0..=15 => 0,
        16..=127 => 1 + u32::from(byte % 8),
        128..=191 => u32::from(byte) << 2,
        192..=239 => u32::from(byte) << 8,
        _ => u32::MAX - u32::from(byte % 4),
    }
}
