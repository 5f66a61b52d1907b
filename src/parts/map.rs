//! The map, without the pass that follows its changes.
#![allow(unsafe_code)]

use crate::buffer::{Batch, WriteEvent};
use crate::listener::RemovalCause;
use crate::map::{Garbage, Map, Revalidated, TablePart};
use crate::node::{Columns, NewNode, NodeState, Times};
use crate::reclaim::{Domain, Retire};

/// Events of a shard that are handed over together, as behind a cache's writers.
const BATCH: usize = 32;

/// A map from numbers to numbers under hashes of the caller's.
#[allow(missing_debug_implementations)]
pub struct Table {
    map: Map<u64, u64>,
    domain: Domain,
    batch: Batch<u64, u64>,
    parts: Vec<TablePart<u64, u64>>,
}

impl Table {
    /// An empty map of this many shards, a power of two up to 1024.
    pub fn new(shards: usize) -> Self {
        Self {
            map: Map::new(shards, 0, Columns::default()),
            domain: Domain::new(),
            batch: Batch::new(),
            parts: Vec::new(),
        }
    }

    /// The value of a key.
    #[inline]
    pub fn get(&mut self, hash: u64, key: u64) -> Option<u64> {
        let pin = self.domain.pin();
        let node = self.map.find(hash, &pin, |node| *node.key() == key)?;
        Some(*node.value())
    }

    /// Creates or replaces.
    #[inline]
    pub fn insert(&mut self, hash: u64, key: u64, value: u64) {
        let new = NewNode::new(key, value, hash, 1);
        let pin = self.domain.pin();
        let probe = self.map.probe(hash, &pin, |node| *node.key() == key);
        let mut shard = self.map.lock(hash);
        match shard.revalidate(hash, &probe) {
            Some(Revalidated::Vacant(vacancy)) => {
                shard.add(vacancy, new, Times::NONE);
            }
            Some(Revalidated::Occupied(spot)) => {
                let old = probe.found.expect("revalidated at what was found");
                shard.replace(spot, old, new, Times::NONE, RemovalCause::Replaced);
            }
            None => unreachable!("there is no other writer"),
        }
        let buffered = shard.buffered();
        drop(shard);
        drop(probe);
        drop(pin);
        self.after_change(hash, buffered);
    }

    /// Removes; whether the key was there.
    #[inline]
    pub fn remove(&mut self, hash: u64, key: u64) -> bool {
        let pin = self.domain.pin();
        let probe = self.map.probe(hash, &pin, |node| *node.key() == key);
        let Some(node) = probe.found else {
            return false;
        };
        let mut shard = self.map.lock(hash);
        let Some(Revalidated::Occupied(spot)) = shard.revalidate(hash, &probe) else {
            unreachable!("there is no other writer");
        };
        shard.remove(spot, node, RemovalCause::Explicit);
        let buffered = shard.buffered();
        drop(shard);
        drop(probe);
        drop(pin);
        self.after_change(hash, buffered);
        true
    }

    /// Takes a shard's events, if they are many, and frees what has left.
    #[inline]
    fn after_change(&mut self, hash: u64, buffered: usize) {
        if buffered < BATCH {
            return;
        }
        (self.map.lock(hash)).swap_batch(&mut self.batch, &mut self.parts);
        let mut memory = self.map.returning();
        let nodes = self.batch.drain(..).filter_map(|event| match event {
            WriteEvent::Added(_) | WriteEvent::Rescheduled(_) => None,
            WriteEvent::Replaced { old, .. } => {
                old.set_state(NodeState::Succeeded);
                Some(Garbage::Node(old))
            }
            WriteEvent::Removed(node, _) => Some(Garbage::Node(node)),
        });
        for mut gone in nodes.chain(self.parts.drain(..).map(Garbage::Part)) {
            // SAFETY: node 1, table 4: it left the map; every call takes `self` for itself, and
            // this one holds no pin any more. An event names each node that leaves once.
            unsafe {
                gone.destroy();
                gone.give_back(&mut memory);
            }
        }
        self.map.take_back(&mut memory);
    }
}
