//! Searching a table: without a lock, and once more under it.
//!
//! # How it works
//!
//! A look-up reads the version and the array's word, compares the tags of one bucket's eight words
//! (`tags`), then goes through the bucket's overflow chain if it has one. If it finds nothing it
//! reads the version again: unchanged means that no node was moved meanwhile, so the miss is true;
//! else it starts over. A hit needs no second look: a word of a home is nulled no later than its
//! node leaves, and where words stay behind a hit is true all the same (table 7). Where entries are
//! resizing, there are two arrays, and which of them has the home is asked first, and believed if
//! the version is the same afterwards (table 5).
//!
//! [`Table::look`] is the first look at one bucket and no more: whatever takes more than it is
//! *unclear*.
//!
//! A writer looks its key up without the lock, so that keys are compared outside of it, then
//! confirms under the lock what it has
//! [`Seen`]: if the version is still the same, so is the bucket, and if the word still names the node, that is its place.
//!
//! # Invariants
//!
//! Those of `table`. Nothing here writes.
#![allow(unsafe_code)]

use super::{Table, TableState};
use crate::map::array::{self, Array};
use crate::map::bucket::{self, Bucket, LAST};
use crate::map::tags;
use crate::node::{Node, NodePtr};
use crate::reclaim::Pin;
use crate::sync::{AtomicPtr, Ordering};
use std::ptr;

/// A word that a search has found, valid while the bucket is.
type Found<K, V> = *const AtomicPtr<Node<K, V>>;

/// A word that a writer has found, valid while it has the lock.
pub(in crate::map) type Place<'a, K, V> = &'a AtomicPtr<Node<K, V>>;

/// Where a look-up without a lock looked, so that a writer who made it need not work that out again
/// under the lock. Good as long as the pin is held.
pub(in crate::map) struct Seen<'a, K, V> {
    version: u64,
    /// The bucket of the hash under that version.
    bucket: Option<&'a Bucket<K, V>>,
    /// The word of that bucket in which the node was found, if it was.
    place: Option<Place<'a, K, V>>,
}

/// What one look at a bucket tells.
pub(crate) enum Look<T> {
    /// What was looked for.
    Found(T),
    /// It was not in the table at some moment of the call.
    Absent,
    /// Nothing: it takes more than that look.
    Unclear,
}

/// The bucket of a hash, for a writer while it has the lock and has not changed the table.
pub(in crate::map) struct Home<'a, K, V>(pub(super) &'a Bucket<K, V>);

impl<K, V> Table<K, V> {
    /// The word of a bucket, or of its overflow chain, that carries `tag` and whose node `matches`
    /// accepts; and that node.
    ///
    /// Words first, then the link: who empties a chain moves its nodes before he unlinks it (table
    /// 3).
    #[inline]
    fn search(
        mut bucket: &Bucket<K, V>,
        tag: usize,
        mut matches: impl FnMut(NodePtr<K, V>) -> bool,
    ) -> Option<(Found<K, V>, NodePtr<K, V>)> {
        loop {
            for at in tags::carrying(bucket, tag) {
                let place = &bucket.words[at];
                // Acquire, partners: the release stores of words (a node's content; table 3).
                let word = place.load(Ordering::Acquire);
                if bucket::tag_of(word) == tag {
                    let node = Self::node(word);
                    if matches(node) {
                        return Some((ptr::from_ref(place), node));
                    }
                }
            }
            bucket = Self::linked(bucket.words[LAST].load(Ordering::Acquire))?;
        }
    }

    /// Whether a bucket in which no word carries the tag is the whole answer, under the version
    /// read before.
    #[inline(always)]
    fn is_all(&self, bucket: &Bucket<K, V>, version: u64) -> bool {
        // Words first, then the link, as in `search`.
        !bucket::is_link(bucket.words[LAST].load(Ordering::Acquire)) && self.version() == version
    }

    /// The node of a word, if it carries `tag`.
    #[inline(always)]
    fn tagged(place: Place<'_, K, V>, tag: usize) -> Option<NodePtr<K, V>> {
        // Acquire, partners: the release stores of words (a node's content; table 3).
        let word = place.load(Ordering::Acquire);
        bucket::node_tagged(word, tag).map(Self::node_at)
    }

    /// What one look at the bucket of a hash tells, unless entries are resizing. May call `matches`
    /// for a node of another key.
    ///
    /// No lock, no write.
    // Always inlined, as `find` is, with everything that seldom happens left to others: a hit is a
    // few dozen instructions, and a call would cost as much again in saved registers. The two say
    // the same in their own ways: an answer shared by both goes through the stack in one of them,
    // 25 instructions of a replacement.
    #[inline(always)]
    pub(in crate::map) fn look(
        &self,
        hash: u64,
        _pin: &Pin,
        mut matches: impl FnMut(NodePtr<K, V>) -> bool,
    ) -> Look<NodePtr<K, V>> {
        let version = self.version();
        let array = self.array();
        if array.is_resizing() {
            return Look::Unclear;
        }
        // SAFETY: the pin was there before the array's word was read.
        let bucket = unsafe { Self::bucket(array, hash) };
        let tag = bucket::tag(hash);
        let Some(at) = tags::carrying(bucket, tag).next() else {
            return if self.is_all(bucket, version) {
                Look::Absent
            } else {
                Look::Unclear
            };
        };
        match Self::tagged(&bucket.words[at], tag) {
            Some(node) if matches(node) => Look::Found(node),
            _ => Look::Unclear,
        }
    }

    /// The node with this hash's tag that `matches` accepts. May call `matches` for nodes of other
    /// keys.
    ///
    /// No lock, no write. Whatever `matches` does, the table is not in its hands.
    #[inline(always)]
    pub(in crate::map) fn find<'a>(
        &'a self,
        hash: u64,
        pin: &'a Pin,
        mut matches: impl FnMut(NodePtr<K, V>) -> bool,
    ) -> (Option<NodePtr<K, V>>, Seen<'a, K, V>) {
        let version = self.version();
        let mut seen = Seen {
            version,
            bucket: None,
            place: None,
        };
        let mut array = self.array();
        if array.is_resizing() {
            match self.told(array, hash, version) {
                Some(home) => array = home,
                None => return (self.find_on(hash, pin, matches), seen),
            }
        }
        // SAFETY: the pin was there before the array's word was read.
        let bucket = unsafe { Self::bucket(array, hash) };
        seen.bucket = Some(bucket);
        let tag = bucket::tag(hash);
        let Some(at) = tags::carrying(bucket, tag).next() else {
            if self.is_all(bucket, version) {
                return (None, seen);
            }
            return (self.find_on(hash, pin, matches), seen);
        };
        let place = &bucket.words[at];
        match Self::tagged(place, tag) {
            Some(node) if matches(node) => {
                seen.place = Some(place);
                (Some(node), seen)
            }
            _ => (self.find_on(hash, pin, matches), seen),
        }
    }

    /// Which array has a hash's home while entries are resizing out of `array`; `None` if that has
    /// changed since the version was read.
    #[cold]
    #[inline(never)]
    fn told(&self, array: Array<K, V>, hash: u64, version: u64) -> Option<Array<K, V>> {
        let home = self.either(array, hash);
        (self.version() == version).then_some(home)
    }

    /// The array that has a hash's home under this version; `None` if that is no longer the
    /// version.
    fn array_under(&self, hash: u64, version: u64) -> Option<Array<K, V>> {
        let array = self.array();
        if array.is_resizing() {
            self.told(array, hash, version)
        } else {
            Some(array)
        }
    }

    /// The whole search again, overflow chain included, until no node was moved during it.
    #[cold]
    #[inline(never)]
    fn find_on(
        &self,
        hash: u64,
        _pin: &Pin,
        mut matches: impl FnMut(NodePtr<K, V>) -> bool,
    ) -> Option<NodePtr<K, V>> {
        let tag = bucket::tag(hash);
        let mut version = self.version();
        loop {
            if let Some(array) = self.array_under(hash, version) {
                // SAFETY: the pin was there before the array's word was read.
                let bucket = unsafe { Self::bucket(array, hash) };
                let found = Self::search(bucket, tag, &mut matches);
                if let Some((_, node)) = found {
                    return Some(node);
                }
            }
            let again = self.version();
            if again == version {
                return None;
            }
            version = again;
        }
    }

    /// The bucket of a hash. For the holder of the lock.
    #[inline]
    pub(in crate::map) fn home<'a>(
        &'a self,
        state: &mut TableState<K, V>,
        hash: u64,
    ) -> Home<'a, K, V> {
        Home(self.owned(state, hash))
    }

    /// The bucket of a hash that a look-up has `seen`. For the holder of the lock.
    #[inline]
    pub(in crate::map) fn home_seen<'a>(
        &'a self,
        state: &mut TableState<K, V>,
        hash: u64,
        seen: &Seen<'a, K, V>,
    ) -> Home<'a, K, V> {
        match seen.bucket {
            Some(bucket) if seen.version == self.version() => Home(bucket),
            _ => self.home(state, hash),
        }
    }

    /// The bucket and the word of a node that a look-up of its hash has `seen`, if it still stands
    /// there. For the holder of the lock.
    #[inline]
    pub(in crate::map) fn still_there<'a>(
        &'a self,
        _state: &mut TableState<K, V>,
        hash: u64,
        node: NodePtr<K, V>,
        seen: &Seen<'a, K, V>,
    ) -> Option<(Home<'a, K, V>, Place<'a, K, V>)> {
        let (bucket, place) = (seen.bucket?, seen.place?);
        let same = seen.version == self.version()
            && place.load(Ordering::Acquire) == bucket::tagged(node.as_raw(), hash);
        same.then_some((Home(bucket), place))
    }

    /// The word for which `matches` holds among those with this hash's tag. For the holder of the
    /// lock.
    pub(in crate::map) fn locate<'a>(
        _state: &mut TableState<K, V>,
        home: &Home<'a, K, V>,
        hash: u64,
        matches: impl FnMut(NodePtr<K, V>) -> bool,
    ) -> Option<Place<'a, K, V>> {
        let (found, _) = Self::search(home.0, bucket::tag(hash), matches)?;
        // SAFETY: the word stands in a bucket of this table, which stays while the lock is held:
        // parts are unlinked by its holder only, and `state` is borrowed by every method that does
        // so after the place was used.
        Some(unsafe { &*found })
    }

    /// Nodes of the bucket that holds `position`, from that position on, and the position behind
    /// the bucket.
    ///
    /// Used with a pin or with the lock. `out` is cleared first.
    pub(in crate::map) fn collect(&self, position: u32, out: &mut Vec<NodePtr<K, V>>) -> u64 {
        let mut version = self.version();
        loop {
            out.clear();
            let hash = u64::from(position.reverse_bits());
            let mut next = 0;
            if let Some(array) = self.array_under(hash, version) {
                next = array.visit(position).1;
                // SAFETY: the pin, or the lock, was there before the array's word was read.
                let bucket = unsafe { Self::bucket(array, hash) };
                Self::scan(bucket, |_, word| {
                    if bucket::is_node(word) {
                        let node = Self::node(word);
                        let at = array::position(node.hash());
                        // A compaction under way may show a node twice, and words that stayed
                        // behind what is at home elsewhere by now.
                        if at >= position && u64::from(at) < next && !out.contains(&node) {
                            out.push(node);
                        }
                    }
                    None::<()>
                });
            }
            let again = self.version();
            if again == version {
                return next;
            }
            version = again;
        }
    }
}
