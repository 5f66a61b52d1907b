use super::super::load::Want;
use super::*;
use crate::sync::cycle::Ticket;
use std::time::Duration;

#[test]
fn loads_come_in_the_order_of_their_moments() {
    // From the first one on, or from a moment before cache time 0: a clock may run backwards.
    for start in [0, 15_u64.wrapping_neg()] {
        let at = |moment: u64| start.wrapping_add(moment);
        let timeouts = Timeouts::<u8, ()>::new(Duration::from_secs(1));
        let loads = [30, 10, 20, 10].map(|due| {
            let load = Arc::new(Load::new(1, 1, 0, 0));
            timeouts.list(&load, at(due));
            load
        });
        assert!(timeouts.take_overdue(at(9)).0.is_empty());
        assert_eq!(timeouts.take_overdue(at(9)).1, Some(at(10)));
        // Listed anew, and removed.
        timeouts.list(&loads[2], at(40));
        timeouts.remove(&loads[3]);
        let (overdue, next) = timeouts.take_overdue(at(25));
        assert_eq!(overdue.len(), 1);
        assert!(Arc::ptr_eq(&overdue[0], &loads[1]));
        assert_eq!(next, Some(at(30)));
        let [last, ..] = loads;
        drop(last);
        assert_eq!(timeouts.take_overdue(at(35)).1, Some(at(40)));
        assert_eq!(timeouts.take_overdue(at(40)).0.len(), 1);
        assert_eq!(timeouts.take_overdue(at(40)).1, None);
    }
}

/// A call may join after another one has seen that none waits.
#[test]
fn a_load_for_which_a_call_waits_stays() {
    let timeouts = Timeouts::<u8, ()>::new(Duration::from_secs(1));
    let load = Arc::new(Load::new(1, 1, 0, 0));
    let ticket = Ticket::draw();
    load.join(ticket, Want::Value);
    timeouts.list(&load, 10);
    timeouts.remove(&load);
    assert!(load.is_listed());
    load.leave(ticket);
    timeouts.remove(&load);
    assert!(!load.is_listed());
    assert_eq!(timeouts.take_overdue(10).0.len(), 0);
}
