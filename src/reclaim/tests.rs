//! What holds up a grace period, and what becomes of records. The same for both schemes.
#![allow(unsafe_code)]

use super::*;
use std::cell::RefCell;
use std::sync::atomic::{AtomicBool, AtomicPtr, Ordering};
use std::sync::{Arc, Barrier};
use std::thread;

/// Whether the calling thread's registrations are gone.
fn are_gone() -> bool {
    REGISTRATIONS.try_with(|_| ()).is_err()
}

fn with<T>(look: impl FnOnce(&Registrations) -> T) -> T {
    REGISTRATIONS.with(|registrations| look(&registrations.borrow()))
}

/// The registrations of the calling thread in domains that are dropped.
fn unwanted() -> usize {
    with(|them| them.known.values().filter(|it| !it.is_wanted()).count())
}

/// What a thread does when its registrations are gone.
struct Late(Option<Box<dyn FnOnce()>>);

impl Drop for Late {
    fn drop(&mut self) {
        if let Some(end) = self.0.take() {
            assert!(are_gone(), "nothing would be shown");
            end();
        }
    }
}

// The standard library's, also where the parent's is another.
std::thread_local!(static LATE: RefCell<Late> = const { RefCell::new(Late(None)) });

/// Starts a thread that calls `begin`, and at its end what `begin` has returned.
pub(super) fn on_a_thread<F: FnOnce() + 'static>(begin: impl FnOnce() -> F + Send + 'static) {
    let seen = Arc::new(AtomicBool::new(false));
    let see = Arc::clone(&seen);
    let thread = thread::spawn(move || {
        // What is touched first is destroyed last.
        LATE.with(|late| drop(late.borrow()));
        let end = begin();
        let end = move || {
            end();
            see.store(true, Ordering::Relaxed);
        };
        LATE.with(|late| late.borrow_mut().0 = Some(Box::new(end)));
    });
    thread.join().unwrap();
    assert!(seen.load(Ordering::Relaxed), "nothing was shown");
}

#[test]
fn a_grace_period_is_over_at_once_if_no_pin_is_held() {
    let domain = Domain::new();
    assert!(domain.is_over(&domain.begin_grace()));
    drop(domain.pin());
    assert!(domain.is_over(&domain.begin_grace()));
}

#[test]
fn a_pin_holds_up_its_own_domain_only() {
    let (one, other) = (Domain::new(), Domain::new());
    let pin = one.pin();
    assert!(one.is_pinned() && !other.is_pinned());
    let (held, free) = (one.begin_grace(), other.begin_grace());
    assert!(!one.is_over(&held));
    assert!(other.is_over(&free));
    drop(pin);
    assert!(one.is_over(&held));
}

#[test]
fn a_pin_holds_up_grace_periods_that_began_after_it() {
    let domain = Domain::new();
    let pin = domain.pin();
    let (early, late) = (domain.begin_grace(), domain.begin_grace());
    let over = || [&early, &late].map(|grace| domain.is_over(grace));
    assert_eq!(over(), [false, false]);
    drop(pin);
    assert_eq!(over(), [true, true]);
    let _pin = domain.pin();
    assert_eq!(over(), [true, true]);
}

#[test]
fn the_outermost_pin_counts_in_whatever_order_they_go() {
    let domain = Domain::new();
    let outer = domain.pin();
    let early = domain.begin_grace();
    let inner = domain.pin();
    let late = domain.begin_grace();
    drop(outer);
    assert!(domain.is_pinned());
    assert!(!domain.is_over(&early) && !domain.is_over(&late));
    drop(inner);
    assert!(!domain.is_pinned());
    assert!(domain.is_over(&early) && domain.is_over(&late));
}

#[test]
fn a_sole_pin_is_for_a_thread_that_holds_none() {
    let domain = Domain::new();
    assert!(domain.pin_alone().is_none(), "not used before");
    drop(domain.pin());
    let sole = domain.pin_alone().unwrap();
    let grace = domain.begin_grace();
    assert!(domain.pin_alone().is_none() && !domain.is_over(&grace));
    // A pin that is taken during the call may outlive it.
    let longer = domain.pin();
    drop(sole);
    assert!(domain.pin_alone().is_none() && !domain.is_over(&grace));
    drop(longer);
    assert!(domain.is_over(&grace));
    let kept = domain.pin_alone().unwrap();
    let grace = domain.begin_grace();
    assert!(domain.is_pinned() && !domain.is_over(&grace));
    drop(kept);
    assert!(!domain.is_pinned() && domain.is_over(&grace));
    drop(Domain::new().pin());
    assert!(domain.pin_alone().is_none(), "another was used since");
}

#[test]
fn many_pins_of_a_thread_are_one_until_the_last_has_gone() {
    let domain = Domain::new();
    let mut pins: Vec<_> = (0..100).map(|_| domain.pin()).collect();
    let grace = domain.begin_grace();
    while !pins.is_empty() {
        assert!(domain.is_pinned() && !domain.is_over(&grace));
        drop(pins.swap_remove(pins.len() / 2));
    }
    assert!(!domain.is_pinned() && domain.is_over(&grace));
}

#[test]
fn records_of_dropped_domains_are_let_go() {
    for _ in 0..1_000 {
        let domain = Domain::new();
        drop(domain.pin());
        assert!(unwanted() <= 3, "{} kept", unwanted());
    }
    // One that is still pinned stays until it is not.
    let survivor = Domain::new().pin();
    let many = || (0..100).for_each(|_| drop(Domain::new().pin()));
    many();
    assert!(unwanted() <= 4, "{} kept", unwanted());
    drop(survivor);
    many();
    assert!(unwanted() <= 4, "{} kept", unwanted());
}

#[test]
fn records_of_many_domains_are_let_go_when_few_domains_follow() {
    const MANY: usize = 200;
    let domains: Vec<_> = (0..MANY).map(|_| Domain::new()).collect();
    domains.iter().for_each(|domain| drop(domain.pin()));
    drop(domains);
    assert_eq!(unwanted(), MANY, "nothing would be shown");
    (0..2 * MANY).for_each(|_| drop(Domain::new().pin()));
    assert!(unwanted() <= 8, "{} kept", unwanted());
    assert!(with(|them| them.known.capacity()) < MANY, "with their room");
}

#[test]
fn cleanups_visit_few_registrations_and_keep_those_of_live_domains() {
    const MANY: usize = 8_000;
    let (mut visited, mut left) = (0, 0);
    let domains: Vec<_> = (0..MANY).map(|_| Domain::new()).collect();
    for (count, domain) in domains.iter().enumerate() {
        drop(domain.pin());
        let until = with(|them| them.until_cleanup);
        if until > left {
            visited += count;
        }
        left = until;
    }
    assert!(visited <= 2 * MANY, "{visited} visited");
    assert_eq!((with(|them| them.known.len()), unwanted()), (MANY, 0));
    drop(domains);
    (0..MANY + LEAST_UNTIL_CLEANUP).for_each(|_| drop(Domain::new().pin()));
    assert!(unwanted() <= 2 * LEAST_UNTIL_CLEANUP, "{} kept", unwanted());
}

#[test]
fn many_domains_in_turns_are_pinned_and_held_up_one_by_one() {
    let domains: Vec<_> = (0..300).map(|_| Domain::new()).collect();
    for _ in 0..3 {
        for (n, domain) in domains.iter().enumerate() {
            let pin = domain.pin();
            let nested = domain.pin();
            let other = &domains[(n + 1) % domains.len()];
            assert!(!other.is_pinned() && other.is_over(&other.begin_grace()));
            let grace = domain.begin_grace();
            drop(pin);
            assert!(domain.is_pinned() && !domain.is_over(&grace));
            drop(nested);
            assert!(!domain.is_pinned() && domain.is_over(&grace));
        }
    }
}

#[test]
fn a_pin_still_protects_after_its_thread_s_registrations_are_gone() {
    let domain = Arc::new(Domain::new());
    let theirs = Arc::clone(&domain);
    on_a_thread(move || {
        let (one, other) = (theirs.pin(), theirs.pin());
        move || {
            let grace = theirs.begin_grace();
            drop(one);
            assert!(!theirs.is_over(&grace));
            drop(other);
            assert!(theirs.is_over(&grace));
        }
    });
    assert!(domain.is_over(&domain.begin_grace()));
}

#[test]
fn pins_work_while_the_thread_ends() {
    let domain = Arc::new(Domain::new());
    let theirs = Arc::clone(&domain);
    on_a_thread(move || {
        drop(theirs.pin());
        move || {
            let (one, other) = (theirs.pin(), theirs.pin());
            let grace = theirs.begin_grace();
            drop(one);
            assert!(!theirs.is_over(&grace));
            drop(other);
            assert!(theirs.is_over(&grace));
        }
    });
    assert!(domain.is_over(&domain.begin_grace()));
}

/// Readers that are pinned for most of the time, beside a writer that replaces and frees what they
/// read.
#[test]
fn many_threads_use_nothing_that_was_freed() {
    const READERS: usize = 3;
    const OBJECTS: u64 = if cfg!(miri) { 50 } else { 5_000 };
    let domain = Arc::new(Domain::new());
    let shared = Arc::new(AtomicPtr::new(Box::into_raw(Box::new(1_u64))));
    let (begin, end) = (
        Arc::new(Barrier::new(READERS + 1)),
        Arc::new(AtomicBool::new(false)),
    );
    let readers: Vec<_> = (0..READERS)
        .map(|number| {
            let (domain, shared) = (Arc::clone(&domain), Arc::clone(&shared));
            let (begin, end) = (Arc::clone(&begin), Arc::clone(&end));
            thread::spawn(move || {
                begin.wait();
                let mut last = 0;
                let mut look = || {
                    let _pin = domain.pin();
                    let _nested = (number % 2 == 0).then(|| domain.pin());
                    let at = shared.load(Ordering::Acquire);
                    // SAFETY: the pin was taken before the address was read, and the object is
                    // freed after a grace period.
                    let object = unsafe { *at };
                    assert!(object >= last, "freed, and used again or overwritten");
                    last = object;
                };
                while !end.load(Ordering::Relaxed) {
                    (0..100).for_each(|_| look());
                }
            })
        })
        .collect();
    begin.wait();
    for object in 2..=OBJECTS {
        let old = shared.swap(Box::into_raw(Box::new(object)), Ordering::AcqRel);
        let grace = domain.begin_grace();
        while !domain.is_over(&grace) {
            thread::yield_now();
        }
        // SAFETY: no reader finds it any more, and the pins of those that had found it have ended.
        // It is overwritten first, so that a late reader would notice.
        unsafe {
            *old = 0;
            drop(Box::from_raw(old));
        }
    }
    end.store(true, Ordering::Relaxed);
    readers
        .into_iter()
        .for_each(|reader| reader.join().unwrap());
    // SAFETY: the last one; all readers have ended.
    unsafe { drop(Box::from_raw(shared.load(Ordering::Relaxed))) };
}
