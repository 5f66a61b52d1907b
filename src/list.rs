//! An intrusive doubly linked list of nodes: a bucket of the wheel, a queue of the size policy.
//!
//! # How it works
//!
//! The list knows its two ends and its length; each node carries the links ([`Chain`] names which pair). Nothing is
//! allocated, and a node is unlinked in constant time from wherever it stands.
//!
//! # Invariants
//!
//! 1. A node is in at most one list per chain. The caller keeps this (the wheel by `place`, the size policy by `region`).
//! 2. From the head, `next` visits `len` nodes and ends at the tail; `prev` is its mirror.
//!
//! Called by the holder of the maintenance lock only (node 2). Cost: constant for everything but the checks.

use crate::node::{self, Links, NodePtr};
use std::marker::PhantomData;

/// Names one of the link pairs of a node.
pub(crate) trait Chain {
    fn links<K, V>(node: &NodePtr<K, V>) -> &Links<K, V>;
}

/// The links of the timer wheel.
#[derive(Debug)]
pub(crate) struct Timer;

/// The links of the size policy.
#[derive(Debug)]
pub(crate) struct Queue;

impl Chain for Timer {
    #[inline]
    fn links<K, V>(node: &NodePtr<K, V>) -> &Links<K, V> {
        node.timer()
    }
}

impl Chain for Queue {
    #[inline]
    fn links<K, V>(node: &NodePtr<K, V>) -> &Links<K, V> {
        node.queue()
    }
}

/// A list over the links that `C` names.
pub(crate) struct List<K, V, C> {
    head: Option<NodePtr<K, V>>,
    tail: Option<NodePtr<K, V>>,
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

    pub(crate) fn front(&self) -> Option<NodePtr<K, V>> {
        self.head
    }

    pub(crate) fn back(&self) -> Option<NodePtr<K, V>> {
        self.tail
    }

    /// The neighbour towards the tail.
    pub(crate) fn next(node: NodePtr<K, V>) -> Option<NodePtr<K, V>> {
        C::links(&node).next.get()
    }

    /// The neighbour towards the head.
    pub(crate) fn prev(node: NodePtr<K, V>) -> Option<NodePtr<K, V>> {
        C::links(&node).prev.get()
    }

    /// Asks the processor to fetch what unlinking a node will write: its neighbours' links.
    #[inline]
    pub(crate) fn prefetch_around(node: NodePtr<K, V>) {
        let links = C::links(&node);
        for neighbour in [links.prev.get(), links.next.get()].into_iter().flatten() {
            node::prefetch(C::links(&neighbour));
        }
    }

    /// Links a node that is in no list of this chain (list 1) behind the tail.
    pub(crate) fn push_back(&mut self, node: NodePtr<K, V>) {
        let links = C::links(&node);
        links.prev.set(self.tail);
        links.next.set(None);
        match self.tail {
            Some(tail) => C::links(&tail).next.set(Some(node)),
            None => self.head = Some(node),
        }
        self.tail = Some(node);
        self.len += 1;
    }

    /// Unlinks a node of this very list.
    pub(crate) fn unlink(&mut self, node: NodePtr<K, V>) {
        let links = C::links(&node);
        let (prev, next) = (links.prev.get(), links.next.get());
        match prev {
            Some(prev) => C::links(&prev).next.set(next),
            None => {
                debug_assert_eq!(self.head, Some(node), "unlinked from a list it is not in");
                self.head = next;
            }
        }
        match next {
            Some(next) => C::links(&next).prev.set(prev),
            None => {
                debug_assert_eq!(self.tail, Some(node), "unlinked from a list it is not in");
                self.tail = prev;
            }
        }
        links.prev.set(None);
        links.next.set(None);
        self.len -= 1;
    }

    /// Puts `new`, which is in no list of this chain, where `old` stands in this list.
    pub(crate) fn substitute(&mut self, old: NodePtr<K, V>, new: NodePtr<K, V>) {
        let (old_links, new_links) = (C::links(&old), C::links(&new));
        let (prev, next) = (old_links.prev.get(), old_links.next.get());
        new_links.prev.set(prev);
        new_links.next.set(next);
        match prev {
            Some(prev) => C::links(&prev).next.set(Some(new)),
            None => self.head = Some(new),
        }
        match next {
            Some(next) => C::links(&next).prev.set(Some(new)),
            None => self.tail = Some(new),
        }
        old_links.prev.set(None);
        old_links.next.set(None);
    }

    /// Moves a node of this very list behind the tail.
    pub(crate) fn move_to_back(&mut self, node: NodePtr<K, V>) {
        if self.tail != Some(node) {
            self.unlink(node);
            self.push_back(node);
        }
    }

    /// Head to tail. The list must not change meanwhile.
    #[cfg(any(test, fuzzing))]
    pub(crate) fn iter(&self) -> impl Iterator<Item = NodePtr<K, V>> {
        std::iter::successors(self.head, |&node| Self::next(node))
    }

    /// Asserts list 2.
    #[cfg(any(test, fuzzing))]
    pub(crate) fn check_invariants(&self) {
        let mut len = 0;
        let mut last = None;
        let mut at = self.head;
        while let Some(node) = at {
            assert_eq!(
                C::links(&node).prev.get(),
                last,
                "prev does not mirror next"
            );
            len += 1;
            assert!(len <= self.len, "more nodes than the length {}", self.len);
            last = Some(node);
            at = C::links(&node).next.get();
        }
        assert_eq!(self.tail, last, "the tail is not the last node");
        assert_eq!(self.len, len, "length");
    }
}

impl<K, V, C> std::fmt::Debug for List<K, V, C> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("List").field("len", &self.len).finish()
    }
}
