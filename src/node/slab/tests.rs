//! Slots: their parts, their way back, and what a slab keeps.
#![allow(unsafe_code)]

use super::*;
use crate::hash::Dice;
use crate::node::{NEXT, NodeState, PREV, REFUSES};
use crate::time::NEVER;
use std::panic::{AssertUnwindSafe, catch_unwind};

fn place(slab: &mut Slab<u64, u64>, columns: Columns, key: u64) -> NodePtr<u64, u64> {
    let times = Times {
        written: key,
        deadline: key + 1,
        own: key + 2,
    };
    let mut node = NewNode::new(key, !key, key, key as u32 + 3);
    slab.create(columns, &mut node, times)
}

fn give_back(slab: &mut Slab<u64, u64>, nodes: impl IntoIterator<Item = NodePtr<u64, u64>>) {
    let nodes: Vec<_> = nodes.into_iter().collect();
    let last = nodes
        .iter()
        .filter(|node| node.state() != NodeState::Succeeded);
    let entries: Vec<_> = last.map(NodePtr::entry).collect();
    // SAFETY: of this slab; the test forgets the nodes, whose content needs no destructor.
    drop(unsafe { slab.take_back(&nodes, &entries) });
    slab.check_invariants();
}

/// So many nodes, and a few more, so that no slot is recycled.
#[cfg(not(any(fuzzing, wheelhouse_single)))]
fn filled(slab: &mut Slab<u64, u64>, least: u64) -> Vec<NodePtr<u64, u64>> {
    let mut nodes = Vec::new();
    while (nodes.len() as u64) < least || slab.recycled_nodes() > 0 {
        let key = nodes.len() as u64;
        nodes.push(place(slab, Columns::default(), key));
    }
    nodes
}

#[test]
fn every_part_of_a_node_is_its_own() {
    for flags in 0..8 {
        let (queue, own, weight) = (flags & 1 != 0, flags & 2 != 0, flags & 4 != 0);
        let columns = Columns {
            queue,
            own,
            weight,
            refresh: own,
        };
        let mut slab = Slab::new(columns);
        let nodes: Vec<_> = (0..2_000)
            .map(|key| place(&mut slab, columns, key))
            .collect();
        slab.check_invariants();
        for (key, node) in nodes.iter().enumerate() {
            let entry = node.entry();
            entry.bucket_id.set((key % 200) as u8);
            entry.queue_id.set((key % 7) as u8);
            entry.timer.set(PREV, Some(entry));
            if queue {
                entry.mark.set((key % 251) as u8);
                entry.policy().weight.set(key as u32);
                entry.policy().queue.set(NEXT, Some(entry));
            }
        }
        for (key, node) in nodes.iter().enumerate() {
            let number = key as u64;
            assert_eq!((*node.key(), *node.value()), (number, !number));
            assert_eq!((node.hash(), node.written()), (number, number));
            assert_eq!(node.deadline(), number + 1);
            assert_eq!(node.own_deadline(), number + if own { 2 } else { 1 });
            assert_eq!(node.weight(), if weight { key as u32 + 3 } else { 1 });
            assert_eq!(node.refresh().is_some(), own);
            if let Some(refresh) = node.refresh() {
                assert_eq!(refresh.at(), crate::time::NEVER);
                refresh.set(number + 5, None);
                assert_eq!(refresh.at(), number + 5);
            }
            let entry = node.entry();
            assert_eq!(entry.node(), *node);
            assert_eq!(
                (entry.bucket_id.get(), entry.queue_id.get()),
                ((key % 200) as u8, (key % 7) as u8)
            );
            assert_eq!(
                (entry.timer.get(PREV), entry.timer.get::<u64, u64>(NEXT)),
                (Some(entry), None)
            );
            if queue {
                let policy = entry.policy();
                assert_eq!(
                    (entry.mark.get(), policy.weight.get()),
                    ((key % 251) as u8, key as u32)
                );
                assert_eq!(
                    (policy.queue.get::<u64, u64>(PREV), policy.queue.get(NEXT)),
                    (None, Some(entry))
                );
            }
        }
    }
}

#[test]
fn a_successor_takes_over_the_entry_and_the_last_node_gives_it_back() {
    let columns = Columns::default();
    let mut slab = Slab::new(columns);
    let keeps = place(&mut slab, columns, 1);
    let mut node = place(&mut slab, columns, 2);
    let entry = node.entry();
    let mut past = Vec::new();
    for value in 0..300 {
        let new = slab.succeed(
            columns,
            node,
            &mut NewNode::new(2, value, 2, 1),
            Times::NONE,
        );
        assert_eq!((new.entry(), entry.node()), (entry, node));
        entry.set_node(new);
        node.set_state(NodeState::Removed);
        node.set_state(NodeState::Succeeded);
        past.push(node);
        node = new;
    }
    assert_eq!((slab.taken_nodes(), slab.taken_entries()), (302, 2));
    // The last node gives the entry back, however late the others come.
    give_back(&mut slab, [node]);
    assert_eq!(slab.taken_entries(), 1);
    give_back(&mut slab, past);
    assert_eq!(slab.taken_nodes(), 1);
    assert_eq!(*keeps.key(), 1);
    give_back(&mut slab, [keeps]);
    assert_eq!((slab.nodes.used, slab.entries.used), (0, 0));
}

#[test]
fn a_deadline_that_is_never_is_not_a_frozen_one() {
    let mut slab = Slab::new(Columns::default());
    let [lasting, other] = [NEVER - 1, 5].map(|key| place(&mut slab, Columns::default(), key));
    // A clock that has gone for long.
    let now = NEVER.wrapping_add(1 << 61);
    assert_eq!(lasting.deadline(), NEVER);
    assert!(!lasting.is_frozen(now));
    assert_eq!(lasting.present_deadline(5, now), NEVER);
    assert_eq!(other.freeze(None, 1), Some(6));
    assert!(other.is_frozen(1));
    give_back(&mut slab, [lasting, other]);
}

#[test]
fn a_node_whose_entry_gets_no_memory_takes_no_slot() {
    let columns = Columns {
        queue: true,
        ..Columns::default()
    };
    let mut slab = Slab::new(columns);
    let (mut nodes, mut refused) = (Vec::new(), 0);
    for key in 0..2_000 {
        REFUSES.set(true);
        let placed = catch_unwind(AssertUnwindSafe(|| place(&mut slab, columns, key)));
        REFUSES.set(false);
        refused += usize::from(placed.is_err());
        nodes.push(placed.unwrap_or_else(|_| place(&mut slab, columns, key)));
        let taken = (slab.taken_nodes(), slab.taken_entries());
        assert_eq!(taken, (nodes.len(), nodes.len()), "{refused} refused");
    }
    assert!(refused > 2, "both pools have grown");
    slab.check_invariants();
    give_back(&mut slab, nodes);
}

#[test]
fn slots_are_used_again_and_empty_regions_go() {
    let columns = Columns {
        queue: true,
        weight: true,
        own: false,
        refresh: true,
    };
    let mut slab = Slab::new(columns);
    let mut nodes: Vec<_> = (0..50_000)
        .map(|key| place(&mut slab, columns, key))
        .collect();
    let slots = slab.nodes.slots;
    for round in 0..10 {
        let back = nodes.split_off(nodes.len() / 2);
        let count = back.len() as u64;
        give_back(&mut slab, back);
        nodes.extend((0..count).map(|key| place(&mut slab, columns, round * key)));
        slab.check_invariants();
    }
    assert!(
        slab.nodes.slots <= slots + slots / 4,
        "{} of {slots}",
        slab.nodes.slots
    );
    give_back(&mut slab, nodes.split_off(100));
    assert!(
        slab.nodes.slots < slots / 10,
        "{} of {slots}",
        slab.nodes.slots
    );
    give_back(&mut slab, nodes);
    assert_eq!((slab.nodes.slots, slab.nodes.used), (0, 0));
    assert_eq!((slab.entries.slots, slab.entries.used), (0, 0));
    place(&mut slab, columns, 1);
    slab.check_invariants();
}

#[test]
#[cfg(not(any(fuzzing, wheelhouse_single)))]
fn what_comes_back_is_handed_out_first_and_no_more_than_some_wait_for_that() {
    // The root of 32 times as many.
    const MOST: usize = 256;
    let mut slab = Slab::new(Columns::default());
    let mut nodes = filled(&mut slab, 2_048);
    let many = nodes.len();
    let back = nodes.split_off(many - MOST / 2);
    let (older, newer) = back.split_at(MOST / 8);
    for part in [older, newer] {
        give_back(&mut slab, part.iter().copied());
    }
    assert_eq!(slab.recycled_nodes(), MOST / 2);
    // Slots are handed out in the order in which they came back.
    for &slot in older.iter().chain(newer) {
        assert_eq!(place(&mut slab, Columns::default(), 1), slot);
    }
    assert_eq!(slab.recycled_nodes(), 0);
    nodes.extend(back);
    let back = nodes.split_off(many - MOST - 1);
    give_back(&mut slab, back);
    assert_eq!(
        (slab.recycled_nodes(), slab.nodes.used),
        (MOST - 1, nodes.len() + MOST - 1),
        "two of them are dispersed: the bound is lower by then"
    );
}

#[test]
#[cfg(not(any(fuzzing, wheelhouse_single)))]
fn a_slab_that_shrank_keeps_no_region_for_a_recycled_slot() {
    const SPREAD: usize = 4_000;
    let mut slab = Slab::new(Columns::default());
    let mut nodes = filled(&mut slab, 600_000);
    // What comes back first is from here and there.
    let step = nodes.len() / (SPREAD + 2);
    let spread: Vec<_> = (0..SPREAD)
        .rev()
        .map(|n| nodes.swap_remove(n * step))
        .collect();
    give_back(&mut slab, spread);
    assert_eq!(slab.recycled_nodes(), SPREAD, "nothing was shown");
    // Then all go but those of a few regions.
    nodes.sort_by_key(|node| *node.key());
    let mut back = nodes.drain(..nodes.len() - 1_000).collect::<Vec<_>>();
    while !back.is_empty() {
        let part = back.split_off(back.len().saturating_sub(5_000));
        give_back(&mut slab, part);
    }
    assert!(
        slab.nodes.slots < 8 * nodes.len(),
        "{} of {}",
        slab.nodes.slots,
        nodes.len()
    );
}

#[test]
fn no_slot_is_handed_out_twice_and_none_is_lost() {
    for run in 0..30u64 {
        let mut dice = Dice::new(run);
        let mut below = move |bound: usize| dice.below(bound as u64) as usize;
        let columns = Columns {
            queue: run % 2 == 0,
            own: run % 3 == 0,
            weight: run % 5 == 0,
            refresh: run % 7 == 0,
        };
        let mut slab = Slab::new(columns);
        let mut live = std::collections::HashMap::new();
        let mut nodes: Vec<NodePtr<u64, u64>> = Vec::new();
        let mut key = 0;
        for step in 0..400 {
            let most = [3, 20, 140, 600][below(4)];
            let count = below(most);
            // It grows for a while, then shrinks.
            if below(100) < if step / 100 % 2 == 0 { 60 } else { 40 } {
                for _ in 0..count {
                    key += 1;
                    let node = place(&mut slab, columns, key);
                    assert_eq!(live.insert(node.as_raw(), key), None, "handed out twice");
                    nodes.push(node);
                }
            } else {
                let back: Vec<_> = (0..count.min(nodes.len()))
                    .map(|_| nodes.swap_remove(below(nodes.len())))
                    .collect();
                for node in &back {
                    let key = live.remove(&node.as_raw()).expect("it is there");
                    assert_eq!((*node.key(), *node.value()), (key, !key));
                }
                give_back(&mut slab, back);
            }
            assert_eq!(slab.taken_nodes(), nodes.len());
        }
        for node in &nodes {
            let key = live[&node.as_raw()];
            assert_eq!((*node.key(), *node.value(), node.hash()), (key, !key, key));
        }
        while !nodes.is_empty() {
            let part = nodes.split_off(nodes.len().saturating_sub(100));
            give_back(&mut slab, part);
        }
        assert_eq!((slab.nodes.slots, slab.nodes.used), (0, 0));
    }
}

#[test]
fn keys_and_values_of_any_size_and_alignment_find_room() {
    #[repr(align(256))]
    struct Wide(u8);
    let all = Columns {
        queue: true,
        own: true,
        weight: true,
        refresh: true,
    };
    let mut wide = Slab::new(all);
    let mut large = Slab::new(Columns::default());
    for number in 0..40u8 {
        let node = wide.create(
            all,
            &mut NewNode::new(number, Wide(number), 1, 1),
            Times::NONE,
        );
        assert_eq!(
            (node.value().0, (&raw const *node.value()).addr() % 256),
            (number, 0)
        );
        let node = large.create(
            Columns::default(),
            &mut NewNode::new((), [number; 5_000], 1, 1),
            Times::NONE,
        );
        assert_eq!(node.value()[4_999], number);
    }
    wide.check_invariants();
    large.check_invariants();
}

#[test]
#[cfg(not(any(wheelhouse_top_byte, wheelhouse_shuttle)))]
fn a_node_of_two_words_takes_half_a_line_and_its_entry_less() {
    assert_eq!(Node::<u64, u64>::HOT, 32);
    assert_eq!(Node::<u64, u64>::SIDE, 16);
    // Where an address is as long as a number of 64 bits, it takes four bytes more.
    let entries = if size_of::<usize>() == 8 {
        [24, 40]
    } else {
        [20, 36]
    };
    assert_eq!([false, true].map(super::super::entry::size), entries);
    if !super::super::pool::ONE_SLOT_CHUNKS {
        assert_eq!(Node::<u64, u64>::SLOTS, 42);
    }
}
