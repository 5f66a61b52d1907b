//! Write events: writers of a shard against the pass that swaps the batch.

use super::{explore, new_node};
use crate::map::{Batch, EventKind, Map};
use crate::node::{Columns, Times};
use loom::sync::Arc;
use loom::thread;

/// Inserts a node as a writer does.
fn add(map: &Map<u64, u64>, key: u64) {
    map.lock(key).add_absent(new_node(key), Times::NONE);
}

/// Takes the shard's batch as the pass does.
fn take(map: &Map<u64, u64>, out: &mut Vec<u64>) {
    let (mut batch, mut parts) = (Batch::new(), Vec::new());
    map.lock_shard(0).swap_batch(&mut batch, &mut parts);
    assert!(parts.is_empty(), "the table did not grow");
    out.extend(batch.drain(..).map(|event| {
        assert_eq!(event.kind(), EventKind::Unheard);
        *event.node().key()
    }));
}

#[test]
fn two_writers_against_a_swap_lose_no_event_and_keep_their_order() {
    explore(|| {
        let map = Arc::new(Map::new(1, 4, Columns::default()).expect("memory for a small map"));
        let theirs = Arc::clone(&map);
        let one = thread::spawn(move || {
            add(&theirs, 1);
            add(&theirs, 2);
        });
        let theirs = Arc::clone(&map);
        let other = thread::spawn(move || add(&theirs, 3));
        let mut out = Vec::new();
        take(&map, &mut out);
        one.join().unwrap();
        other.join().unwrap();
        take(&map, &mut out);
        let of_one: Vec<_> = out.iter().copied().filter(|key| *key != 3).collect();
        assert_eq!(of_one, [1, 2]);
        assert_eq!(out.len(), 3, "{out:?}");
        let mut map = Arc::try_unwrap(map).ok().expect("the last owner");
        // The nodes need no destructor, and their memory is freed with the map.
        map.take_apart(|_| ());
    });
}
