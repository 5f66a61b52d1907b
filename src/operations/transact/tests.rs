use super::*;
use crate::map::Map;
use crate::node::Columns;

#[test]
fn loads_of_one_hash_are_told_apart_by_their_keys() {
    let mut loads = Loads::<u8, ()>::new();
    let all = [10, 20, 30].map(|key| Arc::new(Load::new(1, key, 7, 40)));
    all.iter().for_each(|load| loads.add(Arc::clone(load)));
    let (found, known) = Found::find(None, &loads, 1);
    assert!(!known, "keys are yet to be compared");
    let mut found = FoundLoads(found);
    found.compare(&20);
    for gone in [0, 2, 1] {
        let (now, known) = Found::find(found.0.take(), &loads, 1);
        let mine = now.as_ref().and_then(|now| now.mine());
        assert!(known && Arc::ptr_eq(mine.expect("it is current"), &all[1]));
        found.0 = now;
        drop(loads.revoke(Arc::clone(&all[gone]), RevokedBy::NewerLoad));
    }
    let (found, known) = Found::find(found.0.take(), &loads, 1);
    assert!(known && found.is_some_and(|found| found.mine().is_none()) && loads.is_empty());
}

#[test]
fn a_write_copies_no_load_that_is_revoked_or_has_another_hash() {
    let map = Map::<u8, ()>::new(1, 10, Columns::default()).expect("memory for a small map");
    let mut shard = map.lock_shard(0);
    let [revoked, other] = [(1, 10), (2, 20)].map(|(hash, key)| {
        let load = Arc::new(Load::new(hash, key, 7, 40));
        shard.change_loads(|loads| loads.add(Arc::clone(&load)));
        load
    });
    let mut found = FoundLoads(None);
    assert!(!found.are_known(&shard, 1) && found.0.is_some());
    drop(shard.change_loads(|loads| loads.revoke(Arc::clone(&revoked), RevokedBy::Overwrite)));
    assert_eq!(shard.loads().len(), 1);
    let mut found = FoundLoads(None);
    assert!(found.are_known(&shard, 1) && found.0.is_none());
    assert!(other.is_current() && shard.loads().has(2));
}
