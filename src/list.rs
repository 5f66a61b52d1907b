//! An intrusive doubly linked list of seats: a bucket of the wheel, a queue of the size policy.
//!
//! # How it works
//!
//! The list knows its two ends and its length; each seat carries the links ([`Chain`] names which pair). Nothing is
//! allocated, and a seat is unlinked in constant time from wherever it stands.
//!
//! # Invariants
//!
//! 1. A seat is in at most one list per chain. The caller keeps this (the wheel by `place`, the size policy by `region`).
//! 2. From the head, `next` visits `len` seats and ends at the tail; `prev` is its mirror.
//!
//! Called by the holder of the maintenance lock only (seat 2). Cost: constant for everything but the checks.

use crate::node::{self, Links, SeatPtr};
use std::marker::PhantomData;

/// Names one of the link pairs of a seat.
pub(crate) trait Chain {
    fn links<K, V>(seat: &SeatPtr<K, V>) -> &Links<K, V>;
}

/// The links of the timer wheel.
#[derive(Debug)]
pub(crate) struct Timer;

/// The links of the size policy.
#[derive(Debug)]
pub(crate) struct Queue;

impl Chain for Timer {
    #[inline]
    fn links<K, V>(seat: &SeatPtr<K, V>) -> &Links<K, V> {
        seat.timer()
    }
}

impl Chain for Queue {
    #[inline]
    fn links<K, V>(seat: &SeatPtr<K, V>) -> &Links<K, V> {
        seat.queue()
    }
}

/// A list over the links that `C` names.
pub(crate) struct List<K, V, C> {
    head: Option<SeatPtr<K, V>>,
    tail: Option<SeatPtr<K, V>>,
    len: usize,
    _chain: PhantomData<fn() -> C>,
}

impl<K, V, C: Chain> List<K, V, C> {
    pub(crate) const fn new() -> Self {
        Self {
            head: None,
            tail: None,
            len: 0,
            _chain: PhantomData,
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.len == 0
    }

    pub(crate) fn front(&self) -> Option<SeatPtr<K, V>> {
        self.head
    }

    pub(crate) fn back(&self) -> Option<SeatPtr<K, V>> {
        self.tail
    }

    /// The neighbour towards the tail.
    pub(crate) fn next(seat: SeatPtr<K, V>) -> Option<SeatPtr<K, V>> {
        C::links(&seat).next()
    }

    /// The neighbour towards the head.
    pub(crate) fn prev(seat: SeatPtr<K, V>) -> Option<SeatPtr<K, V>> {
        C::links(&seat).prev()
    }

    /// Asks the processor to fetch what unlinking a seat will write: its neighbours' links.
    #[inline]
    pub(crate) fn prefetch_around(seat: SeatPtr<K, V>) {
        let links = C::links(&seat);
        for neighbour in [links.prev(), links.next()].into_iter().flatten() {
            node::prefetch(C::links(&neighbour));
        }
    }

    /// Links a seat that is in no list of this chain (list 1) behind the tail.
    pub(crate) fn push_back(&mut self, seat: SeatPtr<K, V>) {
        let links = C::links(&seat);
        links.set_prev(self.tail);
        links.set_next(None);
        match self.tail {
            Some(tail) => C::links(&tail).set_next(Some(seat)),
            None => self.head = Some(seat),
        }
        self.tail = Some(seat);
        self.len += 1;
    }

    /// Unlinks a seat of this very list.
    pub(crate) fn unlink(&mut self, seat: SeatPtr<K, V>) {
        let links = C::links(&seat);
        let (prev, next) = (links.prev(), links.next());
        match prev {
            Some(prev) => C::links(&prev).set_next(next),
            None => {
                debug_assert_eq!(self.head, Some(seat), "unlinked from a list it is not in");
                self.head = next;
            }
        }
        match next {
            Some(next) => C::links(&next).set_prev(prev),
            None => {
                debug_assert_eq!(self.tail, Some(seat), "unlinked from a list it is not in");
                self.tail = prev;
            }
        }
        links.set_prev(None);
        links.set_next(None);
        self.len -= 1;
    }

    /// Moves a seat of this very list behind the tail.
    pub(crate) fn move_to_back(&mut self, seat: SeatPtr<K, V>) {
        if self.tail != Some(seat) {
            self.unlink(seat);
            self.push_back(seat);
        }
    }

    /// Head to tail. The list must not change meanwhile.
    #[cfg(any(test, fuzzing))]
    pub(crate) fn iter(&self) -> impl Iterator<Item = SeatPtr<K, V>> {
        std::iter::successors(self.head, |&seat| Self::next(seat))
    }

    /// Asserts list 2.
    #[cfg(any(test, fuzzing))]
    pub(crate) fn check_invariants(&self) {
        let mut len = 0;
        let mut last = None;
        let mut at = self.head;
        while let Some(seat) = at {
            assert_eq!(C::links(&seat).prev(), last, "prev does not mirror next");
            len += 1;
            assert!(len <= self.len, "more seats than the length {}", self.len);
            last = Some(seat);
            at = C::links(&seat).next();
        }
        assert_eq!(self.tail, last, "the tail is not the last seat");
        assert_eq!(self.len, len, "length");
    }
}

impl<K, V, C> std::fmt::Debug for List<K, V, C> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("List").field("len", &self.len).finish()
    }
}
