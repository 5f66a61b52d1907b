use super::*;

fn load(hash: u64, key: u8) -> Arc<Load<u8, ()>> {
    Arc::new(Load::new(hash, key, 7, 40))
}

/// The loads of a hash, by their addresses.
fn found(loads: &Loads<u8, ()>, hash: u64) -> Vec<*const Load<u8, ()>> {
    let mut found: Vec<_> = loads.of_hash(hash).map(Arc::as_ptr).collect();
    found.sort();
    found
}

#[test]
fn loads_are_found_by_their_hashes() {
    let mut loads = Loads::<u8, ()>::new();
    let all: Vec<_> = (0..12).map(|key| load((key % 4).into(), key)).collect();
    all.iter().for_each(|load| loads.add(Arc::clone(load)));
    // The last one is removed from the middle, the first one from the front.
    for gone in [11, 0, 5, 4, 1, 2, 3, 6, 7, 8, 9, 10] {
        loads.remove(&all[gone]);
        all[gone].revoke(RevokedBy::Overwrite);
        for hash in 0..4 {
            let mine = all
                .iter()
                .filter(|load| load.hash == hash && load.is_current());
            let mut mine: Vec<_> = mine.map(Arc::as_ptr).collect();
            mine.sort();
            assert_eq!(
                found(&loads, hash),
                mine,
                "{gone} has left, {hash} is looked for"
            );
        }
    }
    assert!(loads.is_empty());
}

#[test]
fn revoked_loads_leave_the_table() {
    let mut loads = Loads::<u8, ()>::new();
    let all = [load(1, 10), load(1, 20), load(2, 30)];
    all.iter().for_each(|load| loads.add(Arc::clone(load)));
    let (revoked, rest) = loads.revoke_from(FIRST_PLACE, 64, RevokedBy::Overwrite);
    assert_eq!((revoked.0.len(), rest), (3, None));
    assert!(loads.is_empty() && all.iter().all(|load| !load.is_current()));
    // The end of a run may come later.
    all.iter().for_each(|load| loads.remove(load));
    assert!(loads.is_empty());
}

/// In holds of the lock, between which loads end and begin.
#[test]
fn all_loads_are_revoked_a_few_at_a_time() {
    let mut loads = Loads::<u8, ()>::new();
    let all: Vec<_> = (0..100).map(|key| load(u64::from(key % 10), key)).collect();
    all.iter().for_each(|load| loads.add(Arc::clone(load)));
    let mut from = Some(FIRST_PLACE);
    let mut holds = 0;
    while let Some(place) = from {
        let (revoked, rest) = loads.revoke_from(place, 8, RevokedBy::Overwrite);
        assert!(revoked.0.len() <= 9);
        from = rest;
        holds += 1;
        // The first one ends, and one of the others takes its place.
        if let Some(first) = loads.first.clone() {
            loads.remove(&first);
            first.revoke(RevokedBy::Overwrite);
        }
        if from.is_some() {
            loads.add(load(holds % 3, 200));
        }
    }
    assert!(all.iter().all(|load| !load.is_current()));
    assert!(holds > 5);
}
