//! The map compared with a sorted map, under hashes that collide in the shard, the group, the tag,
//! or all of them.
//!
//! One thread: this tests the table's own machinery (overflow chains, splits, merges, compaction,
//! arrays that are allocated and freed), and that a probe detects a change of its key. Nodes that
//! left the map are freed each time a batch is taken, so that a sanitizer detects a word that still
//! points to one.
#![allow(unsafe_code)]

use super::script::{Script, make};
use crate::listener::RemovalCause;
use crate::map::{Batch, Confirmed, EventKind, Garbage, Look, Map, News, Probe, Walk};
use crate::node::{Columns, NodeState, Times};
use crate::reclaim::{Domain, Pin};
use crate::time::NEVER;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

/// Which bits of a key's own hash count, and what the others are. Low 32 bits: group; the next
/// ones: shard; upper 16: tag, whose highest bit is always set.
const HASHES: [(u64, u64); 12] = [
    (!0, 0),
    (0, 0),
    (0, !0),
    (0xFFFF << 48, 0x1234_5678),
    (0xFFFF_FFFF, 0),
    (0b111, 0),
    (0b11 | 1 << 48, 0),
    (0xFFFF << 32, 7),
    (0x8000_0003, 0x5555_0000_0000_0000),
    (0xF000_0000, 1),
    (0xFFFF_0000_0000_000F, 0xF0),
    (1 << 63, 0),
];

/// The most entries: a program should take milliseconds, even if all of them are in one chain.
const CROWD: usize = 250;

/// The content of an event: each node's value is its own number.
type ExpectedEvent = (EventKind, u64);

/// A visit in progress.
struct Visit {
    walk: Walk,
    /// Values that have been in the map since it began.
    stable: BTreeSet<u64>,
    met: BTreeSet<u64>,
}

struct Bench {
    /// Shared, because a probe borrows it while other writes come first.
    map: Rc<Map<u64, u64>>,
    domain: Domain,
    mask: (u64, u64),
    /// Key to value.
    model: BTreeMap<u64, u64>,
    expected: Vec<Vec<ExpectedEvent>>,
    visit: Option<Visit>,
    last_value: u64,
}

/// Runs a program of map operations, decoded from `data`, beside a sorted map, and panics if they
/// differ.
pub fn map_against_sorted_map(data: &[u8]) {
    let mut script = Script(data);
    let (shards, room) = (script.operand(), script.operand());
    let shards = 1 << (shards % 4);
    let mut bench = Bench {
        map: Rc::new(
            Map::new(
                shards,
                usize::from(room) * usize::from(room % 3),
                Columns::default(),
            )
            .expect("memory for a small map"),
        ),
        domain: Domain::new(),
        mask: HASHES[usize::from(script.operand()) % HASHES.len()],
        model: BTreeMap::new(),
        expected: vec![Vec::new(); shards],
        visit: None,
        last_value: 0,
    };
    while let Some(operation) = script.operation() {
        bench.step(operation, &mut script);
        bench.map.check_invariants();
        assert_eq!(bench.map.len(), bench.model.len() as u64);
    }
    bench.finish();
}

impl Bench {
    fn step(&mut self, operation: u8, script: &mut Script<'_>) {
        let key = u64::from(script.operand());
        match operation % 16 {
            0..=2 => self.put(key),
            3 | 4 => self.remove(key),
            5 => self.look(key),
            6 => self.be_overtaken(key, script),
            7 => self.reschedule(key),
            8 => self.refuse(key),
            9 => {
                // Up to 255 neighbours: the table grows by many steps.
                let count = u64::from(script.operand());
                let room = CROWD.saturating_sub(self.model.len()) as u64;
                (0..count.min(room)).for_each(|offset| self.put((key << 8) + offset));
            }
            10 => {
                let count = usize::from(script.operand());
                let keys: Vec<u64> = self
                    .model
                    .range(key..)
                    .map(|(&key, _)| key)
                    .take(count)
                    .collect();
                keys.into_iter().for_each(|key| self.remove(key));
            }
            11 | 12 => self.visit(key as usize),
            13 => self.swap_batch(key as usize % self.map.shards()),
            _ => self.look_at_all(),
        }
    }

    fn hash(&self, key: u64) -> u64 {
        let (mask, rest) = self.mask;
        (crate::hash::mix_bits(key) & mask) | (rest & !mask)
    }

    fn next_value(&mut self) -> u64 {
        self.last_value += 1;
        self.last_value
    }

    fn pin(&self) -> Pin {
        self.domain.pin()
    }

    fn probe<'a>(&self, map: &'a Map<u64, u64>, key: u64, pin: &'a Pin) -> Probe<'a, u64, u64> {
        let hash = self.hash(key);
        let probe = map.cell(hash).probe(hash, pin, |node| *node.key() == key);
        let found = probe.found.map(|node| *node.value());
        assert_eq!(found, self.model.get(&key).copied(), "a probe of {key}");
        probe
    }

    fn expect(&mut self, hash: u64, expected: ExpectedEvent) {
        self.expected[self.map.shard_of(hash)].push(expected);
    }

    /// A value has left: the visit under way need not yield it.
    fn gone(&mut self, value: u64) {
        if let Some(visit) = &mut self.visit {
            visit.stable.remove(&value);
        }
    }

    fn put(&mut self, key: u64) {
        let (map, pin) = (Rc::clone(&self.map), self.pin());
        let probe = self.probe(&map, key, &pin);
        assert!(
            self.confirm_and_put(&map, key, &probe),
            "no other operation came between"
        );
    }

    /// Writes if the probe is still valid; returns whether it was.
    fn confirm_and_put<'a>(
        &mut self,
        map: &'a Map<u64, u64>,
        key: u64,
        probe: &Probe<'a, u64, u64>,
    ) -> bool {
        let (hash, value) = (self.hash(key), self.next_value());
        let mut new = make(key, value, hash);
        let mut shard = map.lock(hash);
        match shard.confirm(hash, probe) {
            None => return false,
            Some(Confirmed::Vacant(vacancy)) => {
                shard.add(vacancy, &mut new, Times::NONE);
                drop(shard);
                assert_eq!(self.model.insert(key, value), None, "confirmed as absent");
                self.expect(hash, (EventKind::Unheard, value));
            }
            Some(Confirmed::Occupied(occupied)) => {
                let old = probe.found.expect("confirmed at what was found");
                shard.replace(
                    occupied,
                    &mut new,
                    Times::NONE,
                    News::All(RemovalCause::Replaced),
                );
                drop(shard);
                assert_eq!(self.model.insert(key, value), Some(*old.value()));
                self.expect(hash, (EventKind::Replacing, value));
                self.expect(hash, (EventKind::Replaced, *old.value()));
                self.gone(*old.value());
            }
        }
        true
    }

    fn remove(&mut self, key: u64) {
        let hash = self.hash(key);
        let found = self.map.find(hash, &self.pin(), |node| *node.key() == key);
        let value = self.model.remove(&key);
        assert_eq!(found.map(|node| *node.value()), value);
        let Some(node) = found else { return };
        let mut shard = self.map.lock(hash);
        let occupied = shard.find_node(hash, node).expect("it was just found");
        shard.remove(occupied, RemovalCause::Explicit);
        assert!(shard.find_node(hash, node).is_none(), "removed");
        drop(shard);
        let expected = &mut self.expected[self.map.shard_of(hash)];
        expected.pop_if(|last| *last == (EventKind::Unheard, *node.value()));
        self.expect(hash, (EventKind::Removed, *node.value()));
        self.gone(*node.value());
    }

    fn look(&self, key: u64) {
        let pin = self.pin();
        let known = self.model.get(&key);
        match self
            .map
            .look(self.hash(key), &pin, |node| *node.key() == key)
        {
            Look::Found(node) => assert_eq!(Some(node.value()), known),
            Look::Absent => assert_eq!(None, known),
            Look::Retry => (),
        }
        if let Some(node) = self.probe(&self.map, key, &pin).found {
            let found = self.map.find(node.hash(), &pin, |other| other == node);
            assert!(found.is_some());
        }
    }

    /// Probes, lets other operations come first, and confirms. That must fail exactly if they
    /// changed this key, or may have (another node of the same hash was inserted).
    fn be_overtaken(&mut self, key: u64, script: &mut Script<'_>) {
        let (map, pin) = (Rc::clone(&self.map), self.pin());
        let probe = self.probe(&map, key, &pin);
        let (value, known) = (self.model.get(&key).copied(), self.of_hash(key));
        let other = u64::from(script.operand());
        let other = if other < 128 { key } else { other };
        let between = script.operand();
        if between.is_multiple_of(2) {
            self.remove(other);
        } else {
            self.put(other);
        }
        for _ in 0..between / 64 {
            match script.operation() {
                // The key itself, and operations that free nodes and groups which the probe still
                // names.
                Some(operation) if !matches!(operation % 16, 6 | 13) => {
                    self.step(operation, script)
                }
                _ => break,
            }
        }
        let touched = match value {
            Some(value) => self.model.get(&key) != Some(&value),
            // A new address under the same hash might be this key; only a comparison could tell.
            None => !self.of_hash(key).is_subset(&known),
        };
        assert_eq!(
            self.confirm_and_put(&map, key, &probe),
            !touched,
            "overtaken by {other} and {} more",
            between / 64
        );
    }

    /// The values of all keys with the hash of this one.
    fn of_hash(&self, key: u64) -> BTreeSet<u64> {
        let same = |&(&other, _): &(&u64, &u64)| self.hash(other) == self.hash(key);
        self.model
            .iter()
            .filter(same)
            .map(|(_, &value)| value)
            .collect()
    }

    fn reschedule(&mut self, key: u64) {
        let pin = self.pin();
        if let Some(node) = self.probe(&self.map, key, &pin).found {
            let stays = node.deadline();
            // A deadline that comes or goes leaves an event, unless one of the node waits.
            let moved = if stays == NEVER { 1 } else { NEVER };
            let mut shard = self.map.lock(node.hash());
            assert!(shard.set_deadlines(node, stays, moved, moved));
            drop(shard);
            let event = (EventKind::Rescheduled, *node.value());
            if !self.expected[self.map.shard_of(node.hash())].contains(&event) {
                self.expect(node.hash(), event);
            }
        }
    }

    fn refuse(&mut self, key: u64) {
        let (hash, value) = (self.hash(key), self.next_value());
        let mut new = make(key, value, hash);
        self.map.lock(hash).refuse(&mut new, RemovalCause::Size);
        self.expect(hash, (EventKind::Removed, value));
    }

    /// Begins a visit, or continues the one in progress.
    fn visit(&mut self, shard: usize) {
        let Some(mut visit) = self.visit.take() else {
            let shard = shard % self.map.shards();
            let here = |&(&key, _): &(&u64, &u64)| self.map.shard_of(self.hash(key)) == shard;
            self.visit = Some(Visit {
                walk: Walk { shard, position: 0 },
                stable: self
                    .model
                    .iter()
                    .filter(here)
                    .map(|(_, &value)| value)
                    .collect(),
                met: BTreeSet::new(),
            });
            return;
        };
        let mut out = Vec::new();
        let before = visit.walk;
        assert!(self.map.next_group(&mut visit.walk, &self.pin(), &mut out));
        let ended = visit.walk.shard > before.shard;
        assert!(ended || visit.walk.position > before.position);
        for node in out {
            assert_eq!(
                self.model.get(node.key()),
                Some(node.value()),
                "met an entry that is not there"
            );
            assert!(visit.met.insert(*node.value()), "met twice");
        }
        if !ended {
            self.visit = Some(visit);
        } else {
            assert!(
                visit.stable.is_subset(&visit.met),
                "missed an entry that was there all the time"
            );
        }
    }

    /// Takes a shard's events as the pass does, compares them, and frees the nodes that left.
    fn swap_batch(&mut self, shard: usize) {
        let (mut batch, mut parts) = (Batch::new(), Vec::new());
        let mut locked = self.map.lock_shard(shard);
        // As a run does.
        locked.resize_step(self.last_value as usize % 5);
        locked.swap_batch(&mut batch, &mut parts);
        drop(locked);
        let mut found = Vec::new();
        let mut garbage = Garbage::of_shard(shard);
        for event in batch.drain(..) {
            let node = event.node();
            found.push((event.kind(), *node.value()));
            match event.kind() {
                EventKind::Replaced => {
                    node.set_state(NodeState::Succeeded);
                    garbage.add(node);
                }
                EventKind::Removed => garbage.add_with_entry(node),
                EventKind::Rescheduled => node.hear_of_moves(),
                _ => {}
            }
        }
        assert_eq!(found, std::mem::take(&mut self.expected[shard]));
        parts.into_iter().for_each(|part| garbage.add_table(part));
        free(&self.map, garbage);
    }

    fn look_at_all(&self) {
        let keys: BTreeSet<u64> = self.model.keys().copied().chain(0..256).collect();
        keys.into_iter().for_each(|key| self.look(key));
    }

    fn finish(mut self) {
        self.look_at_all();
        while self.visit.is_some() {
            self.visit(0);
        }
        (0..self.map.shards()).for_each(|shard| self.swap_batch(shard));
        let (mut left, mut nodes) = (BTreeMap::new(), Vec::new());
        let map = Rc::get_mut(&mut self.map).expect("no probe is left");
        map.take_apart(|node| {
            assert_eq!(left.insert(*node.key(), *node.value()), None);
            nodes.push(node);
        });
        for node in nodes {
            let mut garbage = Garbage::of_shard(node.shard());
            garbage.add_with_entry(node);
            free(&self.map, garbage);
        }
        assert_eq!(left, self.model);
        assert_eq!(self.map.len(), 0);
    }
}

/// Frees what the running program has removed from the map.
fn free(map: &Map<u64, u64>, gone: Garbage<u64, u64>) {
    // SAFETY: node 1, table 4: a program runs on one thread, holds no pin here, and does not use
    // the pointers again.
    unsafe { gone.free(map) };
}
