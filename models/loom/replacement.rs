//! Replacements: a writer that names the next node of an entry, against a pass.

use super::{explore, new_node};
use crate::listener::RemovalCause;
use crate::map::{Batch, EventKind, Map, News, Shard};
use crate::node::{Columns, EntryPtr, NodePtr, NodeState, Times};
use loom::sync::Arc;
use loom::thread;

/// All keys are this one, which is its own hash.
const KEY: u64 = 1;

type Node = NodePtr<u64, u64>;

fn times(deadline: u64) -> Times {
    Times {
        deadline,
        ..Times::NONE
    }
}

/// A map with one node, of which the pass has heard; and its entry.
fn map() -> (Arc<Map<u64, u64>>, Node, EntryPtr<u64, u64>) {
    let map = Map::new(1, 4, Columns::default()).expect("memory for a small map");
    let node = map.lock(KEY).add_absent(new_node(KEY), times(100));
    let mut heard = Batch::new();
    map.lock(KEY).swap_batch(&mut heard, &mut Vec::new());
    (Arc::new(map), node, node.entry())
}

/// Replaces a node, which is in the map, as a write does.
fn replace(shard: &mut Shard<'_, u64, u64>, old: Node, news: News, deadline: u64) -> Node {
    let spot = shard.find_node(KEY, old).expect("the map has the node");
    shard.replace(spot, &mut new_node(KEY), times(deadline), news)
}

/// Takes the events and applies them to the entry, as a pass does. Returns the nodes to be retired.
fn drain(map: &Map<u64, u64>, entry: EntryPtr<u64, u64>) -> Vec<Node> {
    let mut batch = Batch::new();
    map.lock(KEY).swap_batch(&mut batch, &mut Vec::new());
    let mut retired = Vec::new();
    for event in batch {
        let node = event.node();
        match event.kind() {
            EventKind::Replacing => entry.set_node(node),
            EventKind::Replaced => {
                node.set_state(NodeState::Succeeded);
                retired.push(node);
            }
            EventKind::Succeeded => retired.push(node),
            _ => panic!("{event:?} was not pushed"),
        }
    }
    for &node in &retired {
        assert_eq!(node.state(), NodeState::Succeeded);
        assert!(!entry.names(node), "the entry names a node that is retired");
    }
    retired
}

fn end(map: Arc<Map<u64, u64>>) {
    let mut map = Arc::try_unwrap(map).ok().expect("the last owner");
    // The nodes need no destructor, and their memory is freed with the map.
    map.take_apart(|_| ());
}

#[test]
fn a_replacement_without_an_event_against_a_pass_leaves_an_entry_that_names_the_node_of_the_map() {
    explore(|| {
        let (map, first, entry) = map();
        let theirs = Arc::clone(&map);
        let pass = thread::spawn(move || {
            // As the wheel does, with no lock of a shard.
            let seen = entry.node();
            assert!([100, 200].contains(&seen.deadline()), "a part of a node");
            // As it does when it removes an entry.
            let shard = theirs.lock(KEY);
            assert!(shard.find_node(KEY, entry.node()).is_some());
            drop(shard);
            drain(&theirs, entry)
        });
        let mut shard = map.lock(KEY);
        assert!(shard.is_known(first, 1));
        let second = replace(&mut shard, first, News::Nothing, 200);
        drop(shard);
        let mut retired = pass.join().unwrap();
        retired.extend(drain(&map, entry));
        assert_eq!(retired, [first]);
        assert!(entry.names(second));
        end(map);
    });
}

#[test]
fn a_writer_that_names_a_node_against_the_event_of_the_one_before() {
    explore(|| {
        let (map, first, entry) = map();
        let mut shard = map.lock(KEY);
        let event = News::All(RemovalCause::Replaced);
        let second = replace(&mut shard, first, event, 50);
        drop(shard);
        let theirs = Arc::clone(&map);
        let pass = thread::spawn(move || drain(&theirs, entry));
        let mut shard = map.lock(KEY);
        let news = if shard.is_known(second, 1) {
            News::Nothing
        } else {
            event
        };
        let third = replace(&mut shard, second, news, 100);
        drop(shard);
        let mut retired = pass.join().unwrap();
        retired.extend(drain(&map, entry));
        assert_eq!(retired, [first, second], "in their order");
        assert!(entry.names(third));
        end(map);
    });
}
