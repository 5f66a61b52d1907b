//! Pointers to nodes.
#![allow(unsafe_code)]

use super::address::{Ptr, parts, prefetch, whole};
use super::chunk;
use super::entry::EntryPtr;
use super::hot::{Node, Side};
use super::refresh::RefreshMoment;
use crate::sync::{AtomicU64, Ordering};
use crate::time::{self, NEVER};
use std::ptr::NonNull;
use std::time::Duration;

/// A pointer to a node that has not been freed (node 1).
pub(crate) type NodePtr<K, V> = Ptr<Node<K, V>>;

impl<K, V> std::ops::Deref for NodePtr<K, V> {
    type Target = Node<K, V>;

    #[inline]
    fn deref(&self) -> &Node<K, V> {
        // SAFETY: node 1: a NodePtr is used only before the node is freed.
        unsafe { self.0.as_ref() }
    }
}

impl<K, V> NodePtr<K, V> {
    /// The address as the map stores it.
    #[inline]
    pub(crate) fn as_raw(self) -> *mut Node<K, V> {
        self.0.as_ptr()
    }

    /// Takes back what [`as_raw`](Self::as_raw) gave.
    ///
    /// # Safety
    ///
    /// `raw` comes from `as_raw` of a node that is not freed while the result is used (node 1).
    #[inline]
    pub(crate) unsafe fn from_raw(raw: *mut Node<K, V>) -> Self {
        // SAFETY: `as_raw` never gives null.
        Self(unsafe { NonNull::new_unchecked(raw) })
    }

    /// Asks the processor to fetch what a look-up reads, and the way to the entry.
    #[inline]
    pub(crate) fn prefetch_hot(self) {
        prefetch(self.0.as_ptr());
    }

    /// Asks the processor to fetch the hash.
    #[inline]
    pub(crate) fn prefetch_side(self) {
        chunk::prefetch_side(self.0);
    }

    /// Asks the processor to fetch the node.
    #[inline]
    pub(crate) fn prefetch(self) {
        self.prefetch_hot();
        self.prefetch_side();
    }

    /// The shard of the map whose slab it is of.
    #[inline]
    pub(crate) fn shard(self) -> usize {
        // SAFETY: node 1; or the content was dropped already, and the caller still owns the slot.
        unsafe { chunk::shard(self.0) }
    }

    /// The entry, by which the node is linked in the wheel and in the size policy.
    #[inline]
    pub(crate) fn entry(&self) -> EntryPtr<K, V> {
        // SAFETY: written when the node was; entry 1.
        unsafe { EntryPtr::from_parts((self.entry_low, self.entry_high)) }
    }

    #[inline]
    fn side(&self) -> &Side {
        // SAFETY: node 1: the node is not freed, so its slot is taken.
        unsafe { chunk::side(self.0) }
    }

    #[inline]
    pub(crate) fn hash(&self) -> u64 {
        self.side().hash
    }

    /// Cache time of the write that made this node, or of the last reload that left it unchanged.
    ///
    /// Relaxed: a reload moves it under the shard's lock before it moves the deadline, with
    /// release.
    #[inline]
    pub(crate) fn written(&self) -> u64 {
        self.side().written.load(Ordering::Relaxed)
    }

    /// How long ago that was: nothing, if it was not noted or the clock has stepped back.
    #[inline]
    pub(crate) fn age(&self, now: u64) -> Duration {
        match self.written() {
            NEVER => Duration::ZERO,
            written => Duration::from_nanos(time::elapsed(now, written)),
        }
    }

    /// Notes that a reload has left the value unchanged. Under the shard's lock.
    pub(crate) fn set_written(&self, now: u64) {
        self.side().written.store(now, Ordering::Relaxed);
    }

    /// From when on the node is stale, where the cache refreshes.
    #[inline]
    pub(crate) fn refresh(&self) -> Option<&RefreshMoment> {
        // SAFETY: node 1.
        unsafe { chunk::cell(self.0, |header| header.refreshes) }
    }

    #[inline]
    pub(crate) fn weight(&self) -> u32 {
        // SAFETY: node 1.
        unsafe { chunk::cell(self.0, |header| header.weights) }.map_or(1, |&weight| weight)
    }

    #[inline]
    fn own(&self) -> Option<&AtomicU64> {
        // SAFETY: node 1.
        unsafe { chunk::cell(self.0, |header| header.owns) }
    }

    /// The deadline that the entry's own lifetime gives, without the cache-wide limits; the wanted
    /// deadline where the two are not kept apart.
    pub(crate) fn own_deadline(&self) -> u64 {
        self.own()
            .map_or_else(|| self.deadline(), |own| own.load(Ordering::Acquire))
    }

    /// Sets [`own_deadline`](Self::own_deadline) where it is kept apart.
    pub(crate) fn set_own_deadline(&self, deadline: u64) {
        if let Some(own) = self.own() {
            own.store(deadline, Ordering::Release);
        }
    }

    /// Drops key and value. A panic in a destructor passes on when the rest has been dropped too.
    ///
    /// # Safety
    ///
    /// Node 1: from now on the pointer serves only to give the slot back.
    pub(crate) unsafe fn destroy(self) {
        // SAFETY: the node is initialised and no other code uses it (the caller). If a destructor
        // panics, the compiler's drop glue drops the remaining fields while unwinding. The other
        // parts have nothing to drop.
        unsafe { self.0.drop_in_place() };
    }
}

impl<K, V> EntryPtr<K, V> {
    /// The current node.
    #[inline]
    pub(crate) fn node(self) -> NodePtr<K, V> {
        // SAFETY: written by `make` or `set_node`, so not null. Entry 3: the caller has the entry
        // from a list, or from an event that waits or is being applied.
        unsafe { NodePtr::from_raw(whole(self.node_parts()).cast()) }
    }

    /// Makes a node of this entry the current one.
    #[inline]
    pub(crate) fn set_node(self, node: NodePtr<K, V>) {
        debug_assert_eq!(node.entry(), self, "a node of another entry");
        self.set_node_parts(parts(node.as_raw().cast()));
    }
}
