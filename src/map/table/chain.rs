//! The words of a group and of its overflow chain: read with the lock or without, and stored with
//! it ([`Group::put`]).
#![allow(unsafe_code)]

use super::group::{self, Group, LAST, Place, Word};
use super::memory::TablePart;
use crate::node::NodePtr;
use crate::sync::Ordering;

impl<K, V> Group<K, V> {
    /// The word of the group, or of its overflow chain, that carries `tag` and whose node
    /// `matches` accepts; and that node.
    ///
    /// Words first, then the link: a writer that empties a chain moves its nodes before it unlinks
    /// the chain (table 3).
    #[inline]
    pub(super) fn search(
        &self,
        tag: usize,
        mut matches: impl FnMut(NodePtr<K, V>) -> bool,
    ) -> Option<(Place<'_, K, V>, NodePtr<K, V>)> {
        let mut here = self;
        loop {
            for at in group::words_with_tag(here, tag) {
                let place = &here.words[at];
                if let Some(node) = group::node_at(place, tag)
                    && matches(node)
                {
                    return Some((place, node));
                }
            }
            here = here.overflow()?;
        }
    }

    /// Visits the words that hold nodes, of the group and then of its overflow chain.
    #[inline]
    pub(super) fn each<'a>(&'a self, mut visit: impl FnMut(Place<'a, K, V>, Word<K, V>)) {
        let mut here = self;
        loop {
            let mut word = std::ptr::null_mut();
            for place in &here.words {
                // Acquire, partners: the release stores of words (a node's content; table 3).
                word = place.load(Ordering::Acquire);
                if group::is_node(word) {
                    visit(place, word);
                }
            }
            // The last word: a link, if there is one.
            let Some(next) = Self::linked(word) else {
                return;
            };
            here = next;
        }
    }

    /// The last word: a link, if the group has an overflow chain.
    #[inline]
    pub(super) fn last(&self) -> Word<K, V> {
        // Acquire, partner: the release store in `put`, so that the chain is seen whole.
        self.words[LAST].load(Ordering::Acquire)
    }

    /// The first group of the overflow chain.
    #[inline]
    fn overflow(&self) -> Option<&Self> {
        Self::linked(self.last())
    }

    /// The overflow group that a word of the caller's group links to, if the word is a link.
    #[inline]
    pub(super) fn linked<'a>(word: Word<K, V>) -> Option<&'a Self> {
        // SAFETY: the caller is pinned or has the lock, and has been since before it read the word:
        // an overflow group is not freed meanwhile (table 4).
        group::is_link(word).then(|| unsafe { &*group::linked(word) })
    }

    /// The words of the group itself that are free.
    pub(super) fn free_words(&self) -> impl Iterator<Item = Place<'_, K, V>> {
        let free = |place: &Place<'_, K, V>| place.load(Ordering::Acquire).is_null();
        self.words.iter().filter(free)
    }

    /// Stores a word into the first free word of the group or its overflow chain, and makes an
    /// overflow group if there is none. Returns the group of the chain that it stands in now. For
    /// the holder of the lock.
    pub(super) fn put(&self, word: Word<K, V>) -> &Self {
        let mut here = self;
        loop {
            if let Some(free) = here.free_words().next() {
                // Release, partners: the acquire loads of words in this file.
                free.store(word, Ordering::Release);
                return here;
            }
            match here.overflow() {
                Some(next) => here = next,
                None => break,
            }
        }
        // Every word is taken. The last word of the chain's last group becomes a link to a new
        // group that already holds the node that stood there. So a reader finds that node before
        // and after.
        let fresh = TablePart::<K, V>::allocate(1);
        // SAFETY: just allocated and zeroed, and not yet shared. Once it is linked, only the holder
        // of the lock unlinks it (table 1).
        let overflow: &Self = unsafe { &*fresh };
        overflow.words[0].store(here.last(), Ordering::Release);
        overflow.words[1].store(word, Ordering::Release);
        here.words[LAST].store(group::link(fresh), Ordering::Release);
        overflow
    }
}
