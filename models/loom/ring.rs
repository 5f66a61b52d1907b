//! The read ring: readers that offer against the drainer.

use super::explore;
use crate::buffer::{LEN, Ring};
use loom::sync::Arc;
use loom::thread;
use std::ptr;

fn item(number: usize) -> *mut u8 {
    ptr::without_provenance_mut(number * 8)
}

/// Offers, and returns whether the event was taken.
fn offer(ring: &Ring<u8>, number: usize) -> bool {
    ring.offer(item(number))
}

fn drain(ring: &Ring<u8>, out: &mut Vec<usize>) -> bool {
    ring.drain(|item| out.push(item.addr() / 8))
}

#[test]
fn two_offers_against_a_drain_lose_and_duplicate_no_event() {
    explore(|| {
        let ring = Arc::new(Ring::new());
        let offerer = |number: usize| {
            let ring = Arc::clone(&ring);
            thread::spawn(move || offer(&ring, number))
        };
        let (first, second) = (offerer(1), offerer(2));
        let mut out = Vec::new();
        drain(&ring, &mut out);
        let taken = [(1, first.join().unwrap()), (2, second.join().unwrap())];
        assert!(
            drain(&ring, &mut out),
            "no reader is between taking and filling any more"
        );
        out.sort_unstable();
        let expected: Vec<_> = taken.iter().filter(|(_, t)| *t).map(|(n, _)| *n).collect();
        assert_eq!(out, expected);
    });
}

#[test]
fn two_offers_for_the_last_slot_do_not_share_it() {
    explore(|| {
        let ring = Arc::new(Ring::new());
        for number in 1..LEN {
            assert!(offer(&ring, number));
        }
        let theirs = Arc::clone(&ring);
        let other = thread::spawn(move || offer(&theirs, 11));
        let mine = offer(&ring, 12);
        let other = other.join().unwrap();
        assert!(mine ^ other, "one of them, and only one, has the slot");
        let mut out = Vec::new();
        assert!(drain(&ring, &mut out));
        assert_eq!(out.last(), Some(&if mine { 12 } else { 11 }));
        assert_eq!(out.len(), LEN);
    });
}

#[test]
fn an_offer_to_a_full_ring_overwrites_nothing_that_a_drain_still_reads() {
    explore(|| {
        let ring = Arc::new(Ring::new());
        for number in 1..=LEN {
            assert!(offer(&ring, number));
        }
        let theirs = Arc::clone(&ring);
        let offerer = thread::spawn(move || offer(&theirs, 9));
        let mut out = Vec::new();
        drain(&ring, &mut out);
        let taken = offerer.join().unwrap();
        drain(&ring, &mut out);
        let mut expected: Vec<_> = (1..=LEN).collect();
        if taken {
            expected.push(9);
        }
        assert_eq!(out, expected);
    });
}

#[test]
fn a_complete_drain_against_an_offer_has_taken_what_was_offered_before_it() {
    explore(|| {
        let ring = Arc::new(Ring::new());
        let theirs = Arc::clone(&ring);
        let other = thread::spawn(move || _ = offer(&theirs, 2));
        let mine = offer(&ring, 1);
        let mut out = Vec::new();
        if drain(&ring, &mut out) && mine {
            assert!(out.contains(&1), "the drain called itself complete");
        }
        other.join().unwrap();
    });
}
