//! One node: read against replace against expire.

use super::{Node, Owned, explore, new_node};
use crate::map::Map;
use crate::node::{Columns, NodeState, Times};
use crate::time::{self, NEVER};
use loom::sync::Arc;
use loom::sync::atomic::{AtomicPtr, Ordering};
use loom::thread;
use std::ptr;

/// A read at `now`: judges the entry, and moves the deadline to `wanted` if the entry is live.
fn read(node: Node, now: u64, wanted: u64) -> bool {
    let deadline = node.deadline();
    !time::is_due(now, deadline) && node.move_deadline(deadline, wanted).is_ok()
}

/// What the pass does at `now` with a node that the wheel returned: true if it expires the node.
fn expire(node: Node, now: u64) -> bool {
    let deadline = node.deadline();
    time::is_due(now, deadline) && node.claim(deadline, now)
}

#[test]
fn extend_against_claim_from_one_judged_deadline_lets_exactly_one_win() {
    explore(|| {
        let node = Owned::new(1, 100);
        let theirs = node.0;
        let reader = thread::spawn(move || theirs.move_deadline(100, 200).is_ok());
        let claimed = node.0.claim(100, 100);
        let extended = reader.join().unwrap();
        assert!(claimed ^ extended);
        assert_eq!(time::is_due(100, node.0.deadline()), claimed);
    });
}

#[test]
fn a_read_against_expiry_that_extended_is_not_followed_by_expiry_from_the_older_deadline() {
    explore(|| {
        let node = Owned::new(1, 100);
        let theirs = node.0;
        let reader = thread::spawn(move || read(theirs, 99, 199));
        let expired = expire(node.0, 100);
        let extended = reader.join().unwrap();
        assert!(
            !(expired && extended),
            "the pass expired what a reader had extended"
        );
        assert!(expired || extended, "nothing stood in the way of both");
    });
}

#[test]
fn two_reads_against_each_other_keep_one_of_their_deadlines() {
    explore(|| {
        let node = Owned::new(1, 100);
        let theirs = node.0;
        let reader = thread::spawn(move || read(theirs, 50, 150));
        let mine = read(node.0, 60, 160);
        let other = reader.join().unwrap();
        let deadline = node.0.deadline();
        assert!(mine || other, "neither read saw the other");
        assert!((deadline == 160 && mine) || (deadline == 150 && other));
    });
}

#[test]
fn two_claims_against_each_other_leave_the_deadline_due() {
    explore(|| {
        let node = Owned::new(1, 100);
        let theirs = node.0;
        let other = thread::spawn(move || expire(theirs, 101));
        let mine = expire(node.0, 100);
        let other = other.join().unwrap();
        assert!(mine | other);
        assert!(time::is_due(100, node.0.deadline()));
    });
}

#[test]
fn extend_against_freeze_carries_over_every_extension_that_succeeded() {
    explore(|| {
        let node = Owned::new(1, 100);
        let theirs = node.0;
        let reader = thread::spawn(move || {
            let first = read(theirs, 50, 150).then_some(150);
            let second = read(theirs, 60, 160).then_some(160);
            second.or(first)
        });
        let carried = node.0.freeze(None, 50).unwrap();
        let extended = reader.join().unwrap();
        assert_eq!(carried, extended.unwrap_or(100));
    });
}

#[test]
fn extend_against_freeze_of_a_node_without_deadline_carries_it_over() {
    explore(|| {
        let node = Owned::new(1, NEVER);
        let theirs = node.0;
        let reader = thread::spawn(move || theirs.move_deadline(NEVER, 150).is_ok());
        let carried = node.0.freeze(None, 50).unwrap();
        let expected = if reader.join().unwrap() { 150 } else { NEVER };
        assert_eq!(carried, expected);
        assert!(node.0.move_deadline(carried, 200).is_err(), "frozen");
    });
}

#[test]
fn claim_against_freeze_leaves_the_deadline_due() {
    explore(|| {
        let node = Owned::new(1, 100);
        let theirs = node.0;
        // A reader whose clock has reached the deadline, and a writer that read the clock before
        // it.
        let reader = thread::spawn(move || expire(theirs, 100));
        node.0.freeze(None, 99);
        reader.join().unwrap();
        assert!(
            time::is_due(100, node.0.deadline()),
            "a claimed deadline looks live"
        );
    });
}

#[test]
fn a_removal_against_a_read_of_the_state_shows_the_map_without_the_node() {
    explore(|| {
        let node = Owned::new(1, NEVER);
        let slot = Arc::new(AtomicPtr::new(node.0.as_raw()));
        let (theirs, place) = (node.0, Arc::clone(&slot));
        let reader = thread::spawn(move || {
            if theirs.state() == NodeState::Removed {
                assert!(
                    place.load(Ordering::Relaxed).is_null(),
                    "removed, and still in its slot"
                );
            }
        });
        slot.store(ptr::null_mut(), Ordering::Relaxed);
        node.0.set_state(NodeState::Removed);
        reader.join().unwrap();
    });
}

#[test]
fn a_move_without_an_event_of_its_own_against_the_pass_is_seen_by_it() {
    explore(|| {
        let node = Owned::new(1, 100);
        assert!(node.0.mark_moved(), "no event waits");
        let theirs = node.0;
        let reader = thread::spawn(move || {
            assert!(theirs.move_deadline(100, 50).is_ok());
            theirs.mark_moved()
        });
        node.0.hear_of_moves();
        let seen = node.0.deadline();
        let leaves_event = reader.join().unwrap();
        assert!(seen == 50 || leaves_event, "the pass never hears of it");
        assert_eq!(node.0.state(), NodeState::InMap);
    });
}

#[test]
fn a_move_of_both_deadlines_against_a_read_never_shows_the_new_one_with_the_former_own() {
    explore(|| {
        let columns = Columns {
            own: true,
            ..Columns::default()
        };
        let mut map = Map::new(1, 4, columns).expect("memory for a small map");
        let both = |deadline| Times {
            deadline,
            own: deadline,
            ..Times::NONE
        };
        let node = map.lock(1).add_absent(new_node(1), both(100));
        // As a read does, with no lock of a shard.
        let reader = thread::spawn(move || (node.deadline(), node.own_deadline()));
        assert!(map.lock(1).set_deadlines(node, 100, 200, 200));
        let (deadline, own) = reader.join().unwrap();
        assert!(deadline == 100 || (deadline, own) == (200, 200));
        // The node needs no destructor, and its memory is freed with the map.
        map.take_apart(|_| ());
    });
}

#[test]
fn publication_against_a_look_up_shows_the_whole_node() {
    explore(|| {
        let slot = Arc::new(AtomicPtr::new(ptr::null_mut()));
        let place = Arc::clone(&slot);
        let writer = thread::spawn(move || {
            let node = Owned::new(1, 100);
            // As the map does.
            place.store(node.0.as_raw(), Ordering::Release);
            node
        });
        let raw = slot.load(Ordering::Acquire);
        if !raw.is_null() {
            // SAFETY: the writer's owner is dropped after the join below.
            let node = unsafe { Node::from_raw(raw) };
            assert_eq!((node.state(), node.deadline()), (NodeState::InMap, 100));
        }
        drop(writer.join().unwrap());
    });
}
