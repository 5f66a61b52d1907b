//! Nodes that the table moves from word to word, against look-ups and visits that search for them.

use super::{explore, new_node};
use crate::listener::RemovalCause;
use crate::map::{Confirmed, Look, Map, News, Walk};
use crate::node::{Columns, Times};
use crate::reclaim::Domain;
use loom::thread;
use std::sync::Arc;

/// A map of one shard, beginning with one group; a key is its own hash. Pins are not loom's: no
/// memory is freed here.
struct Table {
    map: Map<u64, u64>,
    domain: Domain,
}

impl Table {
    fn of(keys: impl IntoIterator<Item = u64>) -> Arc<Self> {
        let table = Self {
            map: Map::new(1, 5, Columns::default()).expect("memory for a small map"),
            domain: Domain::new(),
        };
        keys.into_iter().for_each(|key| table.add(key));
        Arc::new(table)
    }

    fn add(&self, key: u64) {
        self.map.lock(key).add_absent(new_node(key), Times::NONE);
    }

    fn remove(&self, key: u64) {
        let node = self.map.find(key, &self.domain.pin(), |n| *n.key() == key);
        let mut shard = self.map.lock(key);
        let occupied = shard.find_node(key, node.unwrap()).unwrap();
        shard.remove_without_event(occupied);
    }

    fn begin_move(&self, log: u32) {
        self.map.lock_shard(0).begin_move(log);
    }

    /// As the cache does: probes for the key without the lock, and confirms under it.
    fn write(&self, key: u64) {
        let pin = self.domain.pin();
        loop {
            let probe = self.map.cell(key).probe(key, &pin, |n| *n.key() == key);
            let (mut shard, mut new) = (self.map.lock(key), new_node(key));
            match shard.confirm(key, &probe) {
                None => continue,
                Some(Confirmed::Vacant(vacancy)) => shard.add(vacancy, &mut new, Times::NONE),
                Some(Confirmed::Occupied(occupied)) => shard.replace(
                    occupied,
                    &mut new,
                    Times::NONE,
                    News::All(RemovalCause::Replaced),
                ),
            };
            return;
        }
    }

    /// As the cache does: the fast path first, then the slow path if that was not enough.
    fn has(&self, key: u64) -> bool {
        let pin = self.domain.pin();
        match self.map.look(key, &pin, |n| *n.key() == key) {
            Look::Found(_) => true,
            Look::Absent => false,
            Look::Retry => self.map.find(key, &pin, |n| *n.key() == key).is_some(),
        }
    }

    /// How often a visit yields a key.
    fn met(&self, key: u64) -> usize {
        let (mut walk, mut met, mut nodes) = (Walk::default(), 0, Vec::new());
        while (self.map).next_group(&mut walk, &self.domain.pin(), &mut nodes) {
            met += nodes.iter().filter(|node| *node.key() == key).count();
        }
        met
    }
}

/// Five entries in the only group: the sixth splits it, and the odd ones move.
fn before_a_split() -> Arc<Table> {
    Table::of(0..5)
}

#[test]
fn a_look_up_against_a_split_finds_what_moves() {
    explore(|| {
        let table = before_a_split();
        let theirs = Arc::clone(&table);
        let reader = thread::spawn(move || theirs.has(3));
        table.add(6);
        assert!(reader.join().unwrap());
        assert!((0..5).all(|key| table.has(key)));
    });
}

#[test]
fn a_visit_against_a_split_meets_what_moves_once() {
    explore(|| {
        let table = before_a_split();
        let theirs = Arc::clone(&table);
        let reader = thread::spawn(move || theirs.met(3));
        table.add(6);
        assert_eq!(reader.join().unwrap(), 1);
    });
}

#[test]
fn a_replacement_against_a_split_meets_its_key_where_it_is_now() {
    explore(|| {
        let table = before_a_split();
        let theirs = Arc::clone(&table);
        let writer = thread::spawn(move || theirs.write(3));
        table.add(6);
        writer.join().unwrap();
        assert_eq!((table.met(3), table.map.len()), (1, 6));
        table.map.check_invariants();
    });
}

/// Three entries in two groups: when one of them is removed, the second group is merged.
fn before_a_merge() -> Arc<Table> {
    let table = Table::of(0..6);
    (0..3).for_each(|key| table.remove(key));
    table
}

#[test]
fn a_look_up_against_a_merge_finds_what_moves() {
    explore(|| {
        let table = before_a_merge();
        let theirs = Arc::clone(&table);
        let reader = thread::spawn(move || theirs.has(3));
        table.remove(4);
        assert!(reader.join().unwrap());
        assert!(table.has(3) && table.has(5));
    });
}

#[test]
fn a_visit_against_a_merge_meets_what_moves_once() {
    explore(|| {
        let table = before_a_merge();
        let theirs = Arc::clone(&table);
        let reader = thread::spawn(move || theirs.met(3));
        table.remove(4);
        assert_eq!(reader.join().unwrap(), 1);
    });
}

#[test]
fn an_insert_against_a_merge_goes_where_its_key_belongs_now() {
    explore(|| {
        let table = before_a_merge();
        let theirs = Arc::clone(&table);
        let writer = thread::spawn(move || theirs.write(7));
        table.remove(4);
        writer.join().unwrap();
        assert_eq!((table.met(7), table.map.len()), (1, 3));
        table.map.check_invariants();
    });
}

/// Ten entries in two groups, an eleventh that begins to split them, and the first of the two
/// groups to be split.
fn amid_a_split() -> Arc<Table> {
    Table::of(0..11)
}

#[test]
fn a_look_up_amid_a_split_finds_what_has_moved_and_what_is_about_to() {
    for key in [2, 3] {
        explore(move || {
            let table = amid_a_split();
            let theirs = Arc::clone(&table);
            let reader = thread::spawn(move || theirs.has(key));
            // The second group is split, and the former array is abandoned.
            table.add(11);
            assert!(reader.join().unwrap());
        });
    }
}

#[test]
fn a_visit_amid_a_split_meets_what_stays_once() {
    explore(|| {
        let table = amid_a_split();
        let theirs = Arc::clone(&table);
        let reader = thread::spawn(move || (theirs.met(2), theirs.met(3)));
        table.add(11);
        assert_eq!(reader.join().unwrap(), (1, 1));
    });
}

#[test]
fn a_removed_entry_is_not_met_in_the_abandoned_array() {
    explore(|| {
        // Four groups, of which the first two are split; then 0 is removed. Its word stays in the
        // array that is being abandoned.
        let table = Arc::new(Table {
            map: Map::new(1, 20, Columns::default()).expect("memory for a small map"),
            domain: Domain::new(),
        });
        table.add(0);
        table.begin_move(3);
        table.map.lock_shard(0).resize_step(1);
        table.remove(0);
        let theirs = Arc::clone(&table);
        let reader = thread::spawn(move || theirs.has(0));
        // The resizing ends, and another begins; a reader may see the same state as before.
        table.map.lock_shard(0).resize_step(4);
        table.begin_move(4);
        assert!(!reader.join().unwrap());
    });
}

/// Keys whose lower bits are all equal, so that no split separates them.
fn crowd(count: u64) -> impl Iterator<Item = u64> {
    (0..count).map(|n| n * 64)
}

#[test]
fn a_look_up_against_an_overflow_finds_what_stood_in_the_last_word() {
    explore(|| {
        let table = Table::of(crowd(8));
        let theirs = Arc::clone(&table);
        let reader = thread::spawn(move || theirs.has(7 * 64));
        table.add(8 * 64);
        assert!(reader.join().unwrap());
    });
}

#[test]
fn a_look_up_against_a_removal_finds_what_leaves_the_chain() {
    explore(|| {
        let table = Table::of(crowd(9));
        table.remove(64);
        let theirs = Arc::clone(&table);
        let reader = thread::spawn(move || theirs.has(8 * 64));
        // The second free word: the chain's two entries move back, and the chain is removed.
        table.remove(2 * 64);
        assert!(reader.join().unwrap());
        assert!(table.has(7 * 64) && table.has(8 * 64));
    });
}

#[test]
fn a_look_up_against_a_split_finds_what_leaves_the_chain() {
    explore(|| {
        // Nine even keys crowd the first of two groups; every other one moves to a third with the
        // next split.
        let table = Table::of((0..9).map(|n| 2 * n).chain([1]));
        let theirs = Arc::clone(&table);
        let reader = thread::spawn(move || theirs.has(16));
        table.add(3);
        assert!(reader.join().unwrap());
        assert!((0..9).all(|n| table.has(2 * n)));
    });
}

#[test]
fn a_visit_against_a_removal_meets_what_leaves_the_chain_once() {
    explore(|| {
        let table = Table::of(crowd(9));
        table.remove(64);
        let theirs = Arc::clone(&table);
        let reader = thread::spawn(move || theirs.met(8 * 64));
        table.remove(2 * 64);
        assert_eq!(reader.join().unwrap(), 1);
    });
}
