use super::*;
use std::sync::mpsc;

#[test]
fn a_closed_gate_lets_no_visitor_in_and_waits_for_those_inside() {
    let gate = Gate::new();
    let (leaves, left) = mpsc::channel();
    std::thread::scope(|threads| {
        let entered = gate.enter(false).expect("open");
        gate.close();
        threads.spawn(|| leaves.send(gate.await_visitors()).expect("it is heard"));
        assert!(gate.enter(false).is_none());
        drop(gate.enter(true).expect("to deliver"));
        assert!(left.try_recv().is_err(), "this thread is inside");
        drop(entered);
        assert_eq!(left.recv(), Ok(true));
    });
    gate.end();
    assert!(gate.enter(true).is_none());
}

#[test]
fn the_end_of_a_cache_waits_for_all_references_but_its_own() {
    let cache = Arc::new(Idle);
    let weak = CacheRef::new(Arc::downgrade(&cache) as Weak<dyn CacheWork>);
    let (ends, ended) = mpsc::channel();
    std::thread::scope(|threads| {
        let delivers = weak.enter(true).expect("open");
        let visits = weak.enter(false).expect("open");
        weak.gate.close();
        threads.spawn(|| ends.send(weak.end()).expect("it is heard"));
        drop(visits);
        assert!(ended.try_recv().is_err(), "a deliverer is inside");
        drop(delivers);
        assert_eq!(ended.recv(), Ok(true));
    });
    assert_eq!(Arc::strong_count(&cache), 1);
}

#[test]
fn a_thread_inside_a_gate_waits_at_no_other() {
    let (outer, inner) = (Gate::new(), Gate::new());
    let first = outer.enter(false).expect("open");
    let second = inner.enter(true).expect("open");
    assert!(is_inside_any());
    drop(first);
    assert!(is_inside_any());
    drop(second);
    assert!(!is_inside_any());
}
