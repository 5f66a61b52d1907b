//! Write events: writers of a shard against the pass that swaps the batch.

use super::{explore, new_node};
use crate::listener::RemovalCause;
use crate::map::{Batch, EventKind, Map};
use crate::node::{Columns, Times};
use loom::sync::Arc;
use loom::thread;

/// Inserts a node as a writer does.
fn add(map: &Map<u64, u64>, key: u64) {
    map.lock(key).add_absent(new_node(key), Times::NONE);
}

/// Takes the shard's batch as the pass does.
fn take(map: &Map<u64, u64>, out: &mut Vec<(EventKind, u64)>) {
    let (mut batch, mut parts) = (Batch::new(), Vec::new());
    map.lock_shard(0).swap_batch(&mut batch, &mut parts);
    assert!(parts.is_empty(), "the table did not grow");
    let events = batch.drain(..);
    out.extend(events.map(|event| (event.kind(), *event.node().key())));
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
        assert!(out.iter().all(|(kind, _)| *kind == EventKind::Unheard));
        let of_one: Vec<_> = out.iter().filter(|(_, key)| *key != 3).collect();
        assert_eq!(of_one, [&(EventKind::Unheard, 1), &(EventKind::Unheard, 2)]);
        assert_eq!(out.len(), 3, "{out:?}");
        let mut map = Arc::try_unwrap(map).ok().expect("the last owner");
        // The nodes need no destructor, and their memory is freed with the map.
        map.take_apart(|_| ());
    });
}

#[test]
fn a_removal_takes_the_place_of_an_insertion_that_still_waits_or_follows_it() {
    explore(|| {
        let map = Arc::new(Map::new(1, 4, Columns::default()).expect("memory for a small map"));
        let theirs = Arc::clone(&map);
        let writer = thread::spawn(move || {
            let node = theirs.lock(1).add_absent(new_node(1), Times::NONE);
            let mut shard = theirs.lock(1);
            let spot = shard.find_node(1, node).expect("only this thread removes");
            shard.remove(spot, RemovalCause::Explicit);
        });
        let theirs = Arc::clone(&map);
        let other = thread::spawn(move || add(&theirs, 3));
        let mut out = Vec::new();
        take(&map, &mut out);
        writer.join().unwrap();
        other.join().unwrap();
        take(&map, &mut out);
        out.retain(|(_, key)| *key == 1);
        let (last, before) = out.split_last().expect("no event is lost");
        assert_eq!(*last, (EventKind::Removed, 1));
        assert!(
            before.is_empty() || *before == [(EventKind::Unheard, 1)],
            "{before:?}"
        );
        let mut map = Arc::try_unwrap(map).ok().expect("the last owner");
        map.take_apart(|_| ());
    });
}
