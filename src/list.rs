//! An intrusive doubly linked list of entries. Buckets of the wheel and queues of the size policy
//! are such lists.
//!
//! # How it works
//!
//! The list stores its two ends and its length; each entry carries the links, one pair for each
//! chain. The list allocates nothing, and unlinks an entry in constant time wherever it stands.
//!
//! # Invariants
//!
//! 1. An entry is in at most one list per chain. The caller ensures this (the wheel by `bucket_id`,
//!    the size policy by `queue_id`).
//! 2. From the head, `next` visits `len` entries and ends at the tail; `prev` is its mirror.
//!
//! Only the holder of the maintenance lock calls it (entry 2). Cost: constant, except for the
//! checks.

use crate::node::{self, EntryPtr, Links, NEXT, PREV};

/// The chain of the timer wheel.
pub(crate) const TIMER: bool = false;

/// The chain of the size policy.
pub(crate) const QUEUE: bool = true;

/// A list over one of the two link pairs of an entry: its *chain*.
pub(crate) struct List<K, V, const CHAIN: bool> {
    head: Option<EntryPtr<K, V>>,
    tail: Option<EntryPtr<K, V>>,
    len: usize,
}

impl<K, V, const CHAIN: bool> List<K, V, CHAIN> {
    pub(crate) const fn new() -> Self {
        Self {
            head: None,
            tail: None,
            len: 0,
        }
    }

    /// The links of an entry in this chain.
    #[inline]
    fn links(entry: &EntryPtr<K, V>) -> &Links {
        match CHAIN {
            TIMER => &entry.timer,
            QUEUE => &entry.policy().queue,
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.len == 0
    }

    pub(crate) fn front(&self) -> Option<EntryPtr<K, V>> {
        self.head
    }

    pub(crate) fn back(&self) -> Option<EntryPtr<K, V>> {
        self.tail
    }

    /// The neighbour towards the tail.
    pub(crate) fn next(entry: EntryPtr<K, V>) -> Option<EntryPtr<K, V>> {
        Self::links(&entry).get(NEXT)
    }

    /// The neighbour towards the head.
    pub(crate) fn prev(entry: EntryPtr<K, V>) -> Option<EntryPtr<K, V>> {
        Self::links(&entry).get(PREV)
    }

    /// Prefetches what unlinking an entry will write: its neighbours' links.
    #[inline]
    pub(crate) fn prefetch_around(entry: EntryPtr<K, V>) {
        let links = Self::links(&entry);
        if let Some(prev) = links.get::<K, V>(PREV) {
            node::prefetch_to_write(Self::links(&prev));
        }
        if let Some(next) = links.get::<K, V>(NEXT) {
            node::prefetch_to_write(Self::links(&next));
        }
    }

    /// Links an entry that is in no list of this chain (list 1) behind the tail.
    pub(crate) fn push_back(&mut self, entry: EntryPtr<K, V>) {
        let links = Self::links(&entry);
        links.set(PREV, self.tail);
        links.set::<K, V>(NEXT, None);
        match self.tail {
            Some(tail) => Self::links(&tail).set(NEXT, Some(entry)),
            None => self.head = Some(entry),
        }
        self.tail = Some(entry);
        self.len += 1;
    }

    /// Unlinks an entry of this list.
    pub(crate) fn unlink(&mut self, entry: EntryPtr<K, V>) {
        let links = Self::links(&entry);
        let prev = links.get(PREV);
        let next = links.get(NEXT);
        match prev {
            Some(prev) => Self::links(&prev).set(NEXT, next),
            None => {
                debug_assert_eq!(self.head, Some(entry), "unlinked from a list it is not in");
                self.head = next;
            }
        }
        match next {
            Some(next) => Self::links(&next).set(PREV, prev),
            None => {
                debug_assert_eq!(self.tail, Some(entry), "unlinked from a list it is not in");
                self.tail = prev;
            }
        }
        links.set::<K, V>(PREV, None);
        links.set::<K, V>(NEXT, None);
        self.len -= 1;
    }
}

// The invariants of this module: `checks/list.rs`, at the root of the repository.
#[cfg(any(test, fuzzing))]
#[path = "../checks/list.rs"]
mod check;
