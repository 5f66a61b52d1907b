//! The records that a domain has.

use super::Domain;
use super::tests::on_a_thread;
use std::sync::Arc;
use std::thread;

#[test]
fn a_pin_holds_up_nothing_that_began_before_it() {
    let domain = Domain::new();
    let before = domain.begin_grace();
    let first = domain.pin();
    let between = domain.begin_grace();
    assert!(domain.is_over(&before) && !domain.is_over(&between));
    drop(first);
    let _second = domain.pin();
    assert!(domain.is_over(&before) && domain.is_over(&between));
}

#[test]
fn a_check_tells_of_all_grace_periods_that_no_pin_holds_up() {
    let domain = Domain::new();
    let early = domain.begin_grace();
    let late = domain.begin_grace();
    assert!(domain.is_over(&early) && domain.passed() == late);
    let pin = domain.pin();
    let later = domain.begin_grace();
    // The pin began after `late`, and before `later`.
    assert!(domain.is_over(&late) && !domain.is_over(&later));
    assert_eq!(domain.passed(), late);
    drop(pin);
    assert!(domain.is_over(&later) && domain.passed() == later);
}

#[test]
fn domains_in_turns_have_one_record_each() {
    let domains = [Domain::new(), Domain::new(), Domain::new()];
    for _ in 0..10 {
        let pins: Vec<_> = domains.iter().map(Domain::pin).collect();
        let graces: Vec<_> = domains.iter().map(Domain::begin_grace).collect();
        for (n, pin) in pins.into_iter().enumerate() {
            assert!(!domains[n].is_over(&graces[n]));
            drop(pin);
            assert!(domains[n].is_over(&graces[n]));
        }
    }
    assert!(domains.iter().all(|domain| domain.len() == 1));
}

#[test]
fn a_thread_that_ends_takes_its_record_along() {
    let domain = Arc::new(Domain::new());
    for _ in 0..3 {
        let theirs = Arc::clone(&domain);
        let count = thread::spawn(move || {
            drop(theirs.pin());
            theirs.len()
        });
        assert_eq!(count.join().unwrap(), 1);
        assert_eq!(domain.len(), 0);
    }
}

#[test]
fn pins_that_outlive_the_records_of_their_thread_hold_on() {
    let domain = Arc::new(Domain::new());
    let theirs = Arc::clone(&domain);
    on_a_thread(move || {
        let (one, other) = (theirs.pin(), theirs.pin());
        move || {
            assert_eq!(theirs.len(), 1);
            let grace = theirs.begin_grace();
            // A new one has a record of its own.
            let new = theirs.pin();
            assert_eq!(theirs.len(), 2);
            drop(one);
            assert!(!theirs.is_over(&grace));
            drop(other);
            assert!(theirs.is_over(&grace));
            drop(new);
        }
    });
    // They stay until another thread ends while it is pinned.
    assert_eq!(domain.len(), 2);
    for _ in 0..3 {
        let theirs = Arc::clone(&domain);
        on_a_thread(move || {
            let pin = theirs.pin();
            move || drop(pin)
        });
        assert_eq!(domain.len(), 1);
    }
}
