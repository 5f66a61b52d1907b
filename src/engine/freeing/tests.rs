use super::*;
use crate::listener::RemovalCause;
use crate::map::{Batch, EventKind};
use crate::node::{Columns, NewNode};
use std::rc::Rc;

/// Counts its drops.
#[derive(Debug)]
struct Counted(Rc<Cell<usize>>);

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.set(self.0.get() + 1);
    }
}

struct Rig {
    map: Map<(), Counted>,
    domain: Domain,
    freed: Rc<Cell<usize>>,
    freeing: Freeing<(), Counted>,
}

impl Rig {
    fn new() -> Self {
        Self {
            map: Map::new(1, 0, Columns::default()).expect("memory for a small map"),
            domain: Domain::new(),
            freed: Rc::default(),
            freeing: Freeing::new(0, 1, 1),
        }
    }

    /// Retires nodes that were never in the map.
    fn retire(&mut self, count: usize) {
        let (mut batch, mut shard) = (Batch::new(), self.map.lock_shard(0));
        for _ in 0..count {
            let mut new = NewNode::new((), Counted(Rc::clone(&self.freed)), 0, 1);
            shard.refuse(&mut new, RemovalCause::Size);
        }
        shard.swap_batch(&mut batch, &mut Vec::new());
        for event in batch {
            assert_eq!(event.kind(), EventKind::Removed);
            self.freeing.retire(0, event.node());
        }
    }

    fn seal(&mut self) {
        self.freeing.seal(&self.domain, true);
    }

    /// Begins a drain of one shard; false if the grace period is not over.
    fn start_drain(&mut self) -> bool {
        self.freeing.start_drain(&self.domain, 1, false);
        self.freeing.is_draining()
    }

    fn end_drain(&mut self) {
        self.freeing.undrained = 0;
        self.freeing.end_drain();
    }
}

#[test]
fn nothing_is_freed_before_grace_and_drain() {
    let mut rig = Rig::new();
    let pin = rig.domain.pin();
    rig.retire(1);
    for _ in 0..10 {
        rig.seal();
        assert!(!rig.start_drain(), "a pin is held");
    }
    drop(pin);
    assert!(rig.start_drain());
    rig.freeing.end_drain();
    assert!(rig.freeing.take_ready(10).is_empty(), "not yet drained");
    rig.end_drain();
    let mut ready = rig.freeing.take_ready(10);
    assert_eq!((rig.freed.get(), len(&ready)), (0, 1));
    free_all(&mut ready, &rig.map);
    assert_eq!(rig.freed.get(), 1);
    assert!(rig.freeing.is_empty());
}

#[test]
fn take_ready_takes_whole_chunks_up_to_the_limit() {
    let mut rig = Rig::new();
    let all = 5 * CHUNK_ITEMS + 7;
    rig.retire(all);
    rig.seal();
    assert!(rig.start_drain(), "no pin is held");
    rig.end_drain();
    free_all(&mut rig.freeing.take_ready(CHUNK_ITEMS + 8), &rig.map);
    let some = rig.freed.get();
    assert!((CHUNK_ITEMS + 8..=2 * CHUNK_ITEMS + 7).contains(&some));
    free_all(&mut rig.freeing.take_all(), &rig.map);
    assert_eq!(rig.freed.get(), all);
}

#[test]
fn emptied_containers_are_reused() {
    let mut rig = Rig::new();
    let mut places = std::collections::HashSet::new();
    for round in 1..=6 {
        rig.retire(2 * CHUNK_ITEMS);
        rig.seal();
        assert!(rig.start_drain(), "no pin is held");
        rig.end_drain();
        let mut ready = rig.freeing.take_ready(2 * CHUNK_ITEMS);
        places.extend(ready.iter().map(Garbage::place));
        // Two are full, and one is open.
        assert!(places.len() <= 3, "another was made in round {round}");
        free_all(&mut ready, &rig.map);
        assert_eq!(rig.freed.get(), round * 2 * CHUNK_ITEMS);
        rig.freeing.reuse(ready);
        (rig.map.lock_shard(0)).give_emptied(&mut rig.freeing.spare_chunks);
    }
    // However many there were, only a limited number is kept.
    rig.retire(20 * CHUNK_ITEMS);
    let mut all = rig.freeing.take_all();
    free_all(&mut all, &rig.map);
    assert!(all.capacity() >= 20 && rig.freeing.chunks.capacity() >= 20);
    rig.freeing.reuse(all);
    assert!(rig.freeing.spare.capacity() < 20 && rig.freeing.chunks.capacity() < 20);
    rig.freeing.spare_chunks.clear();
    (rig.map.lock_shard(0)).give_emptied(&mut rig.freeing.spare_chunks);
    assert_eq!(rig.freeing.spare_chunks.len(), 4);
}
