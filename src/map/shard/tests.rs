use super::super::Map;
use super::*;
use crate::node::Columns;
use crate::reclaim::Domain;

#[test]
#[cfg(not(wheelhouse_shuttle))]
fn what_an_insert_changes_of_a_shard_stands_on_the_line_of_its_lock() {
    let map = Map::<u64, u64>::new(1, 0, Columns::default()).expect("memory for a small map");
    let cell = &map.shards[0];
    let begin = (&raw const cell.tally).addr();
    let locked = cell.locked.lock();
    let line = begin..begin + 64;
    assert!(begin % 128 == 0 && line.contains(&(&raw const cell.locked).addr()));
    let batch = (&raw const locked.batch).addr() + size_of::<Batch<u64, u64>>();
    let recycled = locked.slab.recycled_end();
    assert!(batch <= line.end && recycled <= line.end);
}

#[test]
fn events_come_out_in_order_and_leave_an_empty_batch() {
    // Room for all keys: the test frees no part of the table, so none may be retired.
    let map = Map::<u64, ()>::new(1, 50, Columns::default()).expect("memory for a small map");
    let domain = Domain::new();
    let (mut batch, mut memory) = (Batch::new(), Vec::new());
    let pin = domain.pin();
    for round in 0..3 {
        let mut shard = map.lock_shard(0);
        for number in 0..5 {
            let key = 5 * round + number;
            let probe = map.cell(key).probe(key, &pin, |node| *node.key() == key);
            let Some(Confirmed::Vacant(vacant)) = shard.confirm(key, &probe) else {
                panic!("no node has the hash {key}");
            };
            assert_eq!(shard.buffered() as u64, number);
            shard.add(vacant, &mut NewNode::new(key, (), key, 1), Times::NONE);
        }
        shard.swap_batch(&mut batch, &mut memory);
        assert_eq!(shard.buffered(), 0);
        let keys: Vec<u64> = batch
            .drain(..)
            .map(|event| {
                assert_eq!(event.kind(), EventKind::Unheard);
                *event.node().key()
            })
            .collect();
        assert!(keys.into_iter().eq(5 * round..5 * round + 5));
    }
    assert!(memory.is_empty(), "the table has room");
}
