use super::*;
use crate::node::{Columns, NewNode, Slab, Times};
use crate::reclaim::Domain;

fn item(n: usize) -> *mut u8 {
    ptr::without_provenance_mut(n * 8)
}

#[test]
fn events_come_out_in_order() {
    let ring = Ring::new();
    for n in 1..=5 {
        assert!(ring.offer(item(n)));
    }
    let mut out = Vec::new();
    assert!(ring.drain(|i| out.push(i.addr() / 8)));
    assert_eq!(out, [1, 2, 3, 4, 5]);
}

#[test]
fn a_full_ring_refuses_until_drained() {
    let ring = Ring::new();
    for n in 1..=LEN {
        assert!(ring.offer(item(n)));
    }
    assert!(!ring.offer(item(99)) && ring.is_full());
    let mut count = 0;
    assert!(ring.drain(|_| count += 1));
    assert_eq!(count, LEN);
    assert!(!ring.is_full() && ring.offer(item(99)));
}

#[test]
fn a_slot_taken_but_not_filled_makes_the_drain_incomplete() {
    let ring = Ring::new();
    ring.offer(item(1));
    // The state after a reader took a slot and stopped before filling it.
    ring.tail.store(3, Ordering::Relaxed);
    ring.slots[2].store(item(3), Ordering::Relaxed);
    let mut out = Vec::new();
    assert!(!ring.drain(|i| out.push(i.addr() / 8)));
    assert_eq!(out, [1]);
    ring.slots[1].store(item(2), Ordering::Relaxed);
    assert!(ring.drain(|i| out.push(i.addr() / 8)));
    assert_eq!(out, [1, 2, 3]);
}

#[test]
fn counters_may_wrap() {
    let ring = Ring::new();
    ring.head.store(usize::MAX - 3, Ordering::Relaxed);
    ring.tail.store(usize::MAX - 3, Ordering::Relaxed);
    let mut out = Vec::new();
    for n in 1..=LEN * 3 {
        assert!(ring.offer(item(n)));
        assert!(ring.drain(|i| out.push(i.addr() / 8)));
    }
    assert_eq!(out, (1..=LEN * 3).collect::<Vec<_>>());
}

#[test]
fn a_read_is_recorded_once_for_each_stamp() {
    let mut slab = Slab::new(Columns::default());
    let mut make = |number: u64| {
        slab.create(
            Columns::default(),
            &mut NewNode::new(number, (), number, 1),
            Times::NONE,
        )
    };
    let nodes: Vec<NodePtr<u64, ()>> = (0..3).map(&mut make).collect();
    let reads = ReadBuffer::new(4, 1);
    let domain = Domain::new();
    // The stamp wraps, and never takes the value of a node that was never read.
    for _ in 0..300 {
        for &node in &nodes {
            assert!(reads.should_record(node));
            assert!(reads.offer(node, 0, &domain.pin()));
            assert!(!reads.should_record(node));
        }
        let mut out = Vec::new();
        assert!(reads.drain(0, &mut Vec::new(), |nodes| {
            out.extend(nodes.iter().map(|node| *node.key()));
        }));
        assert_eq!(out, [0, 1, 2]);
        assert!(!reads.should_record(nodes[0]), "a drain renews nothing");
        assert!(!reads.record_write(nodes[0]), "told already");
        reads.renew();
        assert!(reads.record_write(nodes[0]));
        assert!(!reads.should_record(nodes[0]), "told by the write");
        reads.renew();
        assert!(reads.should_record(make(4)));
    }
}

#[test]
fn where_each_read_counts_one_is_left_out_only_behind_a_read_of_the_same_node() {
    let mut slab = Slab::new(Columns::default());
    let mut make = |number: u64| {
        slab.create(
            Columns::default(),
            &mut NewNode::new(number, (), number, 1),
            Times::NONE,
        )
    };
    let [a, b]: [NodePtr<u64, ()>; 2] = [0, 1].map(&mut make);
    let (reads, domain) = (ReadBuffer::new(4, 1), Domain::new());
    reads.record_each(true);
    let read = |node| {
        assert!(reads.should_record(node));
        reads.offer(node, 0, &domain.pin())
    };
    for _ in 0..300 {
        assert!([a, a, b, a].into_iter().all(read));
        let mut out = Vec::new();
        assert!(reads.drain(0, &mut Vec::new(), |nodes| {
            out.extend(nodes.iter().map(|node| *node.key()));
        }));
        assert_eq!(out, [0, 1, 0]);
        reads.renew();
        assert!(reads.record_write(a), "each replacement counts");
    }
    reads.record_each(false);
    assert!(read(a));
    assert!(!reads.should_record(a));
    reads.record_each(true);
    assert!(reads.should_record(a));
}

#[test]
fn a_read_whose_offer_failed_is_recorded_again() {
    let mut slab = Slab::new(Columns::default());
    let nodes: Vec<NodePtr<usize, ()>> = (0..=LEN)
        .map(|number| {
            slab.create(
                Columns::default(),
                &mut NewNode::new(number, (), 0, 1),
                Times::NONE,
            )
        })
        .collect();
    let reads = ReadBuffer::new(1, 1);
    let domain = Domain::new();
    for (number, &node) in nodes.iter().enumerate() {
        assert_eq!(reads.offer(node, 0, &domain.pin()), number < LEN);
    }
    assert!(!reads.should_record(nodes[LEN - 1]));
    assert!(reads.should_record(nodes[LEN]));
}

#[test]
fn threads_use_the_stripes_in_turn_and_a_drain_is_complete_if_each_ring_is() {
    let mut slab = Slab::new(Columns::default());
    let node = slab.create(
        Columns::default(),
        &mut NewNode::new(7, (), 0, 1),
        Times::NONE,
    );
    let [reads, one] = [64, 1].map(|stripes| ReadBuffer::new(stripes, 1));
    reads.record_each(true);
    one.record_each(true);
    let domain = Domain::new();
    let barrier = std::sync::Barrier::new(3);
    // Three threads alive at the same time have three numbers. Not all of them can agree in the
    // lowest bits, unless there were a hundred more threads.
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                barrier.wait();
                reads.offer(node, 0, &domain.pin());
                one.offer(node, 0, &domain.pin());
                barrier.wait();
            });
        }
    });
    let used = |ring: &Ring<_>| ring.tail.load(Ordering::Relaxed) > 0;
    let rings = reads.stripes.iter().filter(|ring| used(ring)).count();
    assert!(rings > 1, "{rings} of 64 rings are used");
    let mut offered = 0;
    assert!(one.drain(0, &mut Vec::new(), |nodes| offered += nodes.len()));
    assert!((1..=3).contains(&offered), "in one ring, unless lost");
    // The same as a reader that stopped between taking a slot and filling it, in one of the
    // rings.
    for ring in &reads.stripes {
        ring.tail.fetch_add(1, Ordering::Relaxed);
        assert!(!reads.drain(0, &mut Vec::new(), |_| {}));
        let at = ring.head.load(Ordering::Relaxed) % LEN;
        ring.slots[at].store(node.as_raw(), Ordering::Release);
        assert!(reads.drain(0, &mut Vec::new(), |_| {}));
    }
}
