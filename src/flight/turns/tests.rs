use super::super::load::{Verdict, Want};
use super::super::waiters::Waiters;
use super::*;
use std::task::{Context, Wake, Waker};

impl<K, V> Load<K, V> {
    /// As after many turns that went to sleeping threads.
    pub(crate) fn begin_convoy(&self) {
        self.state().waiters().turns.slept = CONVOY;
    }
}

/// As after many turns that went to sleeping threads.
fn in_a_convoy() -> Waiters<u8, u8> {
    let mut waiters = Waiters::default();
    waiters.turns.slept = CONVOY;
    waiters
}

/// Whom it offers the lead, and the number of its thread.
fn offered(waiters: &mut Waiters<u8, u8>) -> Option<(Ticket, u64)> {
    waiters.offer().map(|(to, thread, _)| (to, thread))
}

fn add_sleeper(waiters: &mut Waiters<u8, u8>) -> Ticket {
    let ticket = Ticket::draw();
    waiters.add(ticket, Want::OwnTurn);
    sleeps(waiters, ticket);
    ticket
}

/// A waiter polls, and falls asleep.
fn sleeps(waiters: &mut Waiters<u8, u8>, ticket: Ticket) {
    let waker = CallWaker::of(&Context::from_waker(Waker::noop()));
    *waiters.waker(ticket).expect("it waits") = Some(waker);
    waiters.falls_asleep(ticket);
}

/// A waiter wakes up, and hears that it leads.
fn wakes(waiters: &mut Waiters<u8, u8>, ticket: Ticket) {
    let told = waiters.take_told(ticket);
    assert!(matches!(told, Some(Verdict::Offered)));
    waiters.turns.hears(ticket, 7);
}

#[test]
fn a_compute_that_sleeps_is_passed_a_bounded_number_of_times() {
    let mut waiters = in_a_convoy();
    let sleeper = add_sleeper(&mut waiters);
    assert!(!waiters.turns.may_be_passed(sleeper), "it was not told yet");
    for _ in 0..MOST_PASSED {
        assert_eq!(offered(&mut waiters), Some((sleeper, 0)));
        assert!(waiters.turns.pass(sleeper));
        assert!(waiters.have(|want| want == Want::OwnTurn));
    }
    assert_eq!(offered(&mut waiters), Some((sleeper, 0)));
    assert!(!waiters.turns.pass(sleeper), "it was passed often enough");
}

/// As long as turns do not go from sleeper to sleeper, they come in their order.
#[test]
fn a_compute_that_sleeps_is_not_passed_at_first() {
    let mut waiters = Waiters::default();
    let tickets: Vec<Ticket> = (1..CONVOY).map(|_| add_sleeper(&mut waiters)).collect();
    for ticket in tickets {
        assert_eq!(offered(&mut waiters), Some((ticket, 0)));
        assert!(!waiters.turns.pass(ticket));
        wakes(&mut waiters, ticket);
    }
}

/// One that was passed has the next turn, also if it has woken up meanwhile.
#[test]
fn a_compute_that_was_passed_and_wakes_up_is_next() {
    let mut waiters = in_a_convoy();
    let sleeper = add_sleeper(&mut waiters);
    let second = add_sleeper(&mut waiters);
    assert_eq!(offered(&mut waiters), Some((sleeper, 0)));
    assert!(waiters.turns.pass(sleeper));
    wakes(&mut waiters, sleeper);
    assert_eq!(offered(&mut waiters), Some((sleeper, 7)));
    assert!(!waiters.turns.pass(sleeper), "it is awake");
    waiters.turns.end_call(sleeper);
    assert_eq!(offered(&mut waiters), Some((second, 0)));
}

/// One that was passed, and waits again, keeps the count of how often it was passed.
#[test]
fn a_compute_that_waits_again_is_passed_no_more_often() {
    let mut waiters = in_a_convoy();
    let sleeper = add_sleeper(&mut waiters);
    for _ in 0..MOST_PASSED {
        assert_eq!(offered(&mut waiters), Some((sleeper, 0)));
        assert!(waiters.turns.pass(sleeper));
    }
    wakes(&mut waiters, sleeper);
    // Another compute leads: so it joins once more, and sleeps.
    waiters.add(sleeper, Want::OwnTurn);
    sleeps(&mut waiters, sleeper);
    assert_eq!(waiters.turns.called(), None);
    assert_eq!(offered(&mut waiters), Some((sleeper, 0)));
    assert!(!waiters.turns.pass(sleeper), "it was passed often enough");
}

/// A task, or a call that wants a value, is not passed.
#[test]
fn only_computes_whose_threads_sleep_are_passed() {
    for want in [Want::OwnTurn, Want::Value] {
        let mut waiters = in_a_convoy();
        let first = Ticket::draw();
        waiters.add(first, want);
        if want == Want::Value {
            sleeps(&mut waiters, first);
        }
        assert_eq!(offered(&mut waiters), Some((first, 0)));
        assert!(!waiters.turns.may_be_passed(first));
    }
}

/// After a write one compute looks again at a time; the others wait behind the load that it joins.
#[test]
fn computes_look_again_one_after_the_other() {
    let mut waiters = Waiters::<u8, u8>::default();
    let [first, second] = [(); 2].map(|()| add_sleeper(&mut waiters));
    waiters.tell_next_turn();
    waiters.tell_next_turn();
    assert!(matches!(waiters.take_told(first), Some(Verdict::Retry)));
    assert!(waiters.take_told(second).is_none(), "it is not its turn");
    let newer = Arc::new(Load::new(1, 2, 0, 0));
    waiters.turns.looks = Looks::Behind(Arc::clone(&newer));
    assert!(waiters.next_turn_after(first).is_none(), "it is behind");
    assert!(Arc::ptr_eq(waiters.turns.newer().unwrap(), &newer));
    assert!(waiters.turns.end_turn().is_some());
    waiters.tell_next_turn();
    assert!(matches!(waiters.take_told(second), Some(Verdict::Retry)));
}

/// A compute that looks again may join the load for which it waits, under locks: its waker stays,
/// whose drop is user code.
#[test]
fn a_compute_that_joins_again_keeps_its_waker() {
    struct Silent;
    impl Wake for Silent {
        fn wake(self: Arc<Self>) {}
    }
    let load = Load::<u8, u8>::new(1, 1, 0, 0);
    let (ticket, silent) = (Ticket::draw(), Arc::new(Silent));
    load.join(ticket, Want::OwnTurn);
    let waker = Waker::from(Arc::clone(&silent));
    assert!(load.poll(ticket, &Context::from_waker(&waker)).is_none());
    drop(waker);
    load.join(ticket, Want::OwnTurn);
    assert_eq!(Arc::strong_count(&silent), 2);
    load.leave(ticket);
    assert_eq!(Arc::strong_count(&silent), 1);
}
