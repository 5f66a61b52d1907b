use super::*;

/// As after many turns that went to sleeping threads.
fn in_a_convoy() -> Waiters<u8> {
    Waiters {
        sleepers: CONVOY,
        ..Waiters::default()
    }
}

fn add_sleeper(waiters: &mut Waiters<u8>) -> Ticket {
    let ticket = Ticket::draw();
    waiters.add(ticket, Want::OwnTurn);
    waiters.falls_asleep(ticket);
    ticket
}

#[test]
fn a_compute_that_sleeps_is_passed_a_bounded_number_of_times() {
    let mut waiters = in_a_convoy();
    let sleeper = add_sleeper(&mut waiters);
    assert!(!waiters.may_be_passed(sleeper), "it was not told yet");
    for _ in 0..MOST_PASSED {
        assert_eq!(waiters.offer(&mut Vec::new()), Some((sleeper, 0)));
        assert!(waiters.pass(sleeper));
        assert!(waiters.have(|want| want == Want::OwnTurn));
    }
    assert_eq!(waiters.offer(&mut Vec::new()), Some((sleeper, 0)));
    assert!(!waiters.pass(sleeper), "it was passed often enough");
}

/// As long as turns do not go from sleeper to sleeper, they come in their order.
#[test]
fn a_compute_that_sleeps_is_not_passed_at_first() {
    let mut waiters = Waiters::<u8>::default();
    let tickets: Vec<Ticket> = (1..CONVOY).map(|_| add_sleeper(&mut waiters)).collect();
    for ticket in tickets {
        assert_eq!(waiters.offer(&mut Vec::new()), Some((ticket, 0)));
        assert!(!waiters.pass(ticket));
        _ = waiters.take_told(ticket);
    }
}

/// One that was passed has the next turn, also if it has woken up meanwhile.
#[test]
fn a_compute_that_was_passed_and_wakes_up_is_next() {
    let mut waiters = in_a_convoy();
    let sleeper = add_sleeper(&mut waiters);
    let second = add_sleeper(&mut waiters);
    assert_eq!(waiters.offer(&mut Vec::new()), Some((sleeper, 0)));
    assert!(waiters.pass(sleeper));
    assert!(waiters.take_told(sleeper).is_some(), "it wakes up");
    waiters.hears(sleeper, 7);
    assert_eq!(waiters.offer(&mut Vec::new()), Some((sleeper, 7)));
    assert!(!waiters.pass(sleeper), "it is awake");
    waiters.end_call(sleeper);
    assert_eq!(waiters.offer(&mut Vec::new()), Some((second, 0)));
}

/// A task, or a call that wants a value, is not passed.
#[test]
fn only_computes_whose_threads_sleep_are_passed() {
    for want in [Want::OwnTurn, Want::Value] {
        let mut waiters = in_a_convoy();
        let first = Ticket::draw();
        waiters.add(first, want);
        if want == Want::Value {
            waiters.falls_asleep(first);
        }
        assert_eq!(waiters.offer(&mut Vec::new()), Some((first, 0)));
        assert!(!waiters.may_be_passed(first));
    }
}
