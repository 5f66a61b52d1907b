//! Operations on the table by the holder of the shard's lock.
//!
//! # How it works
//!
//! A writer first searches without the lock, so that keys are compared outside of it. Under the
//! lock it confirms what it has [`Seen`]: if the version is that one, so is the home. If the word
//! still names the node, the node stands there.
//!
//! An insert takes the first null word of the group. A full group turns its last word into a link
//! to an overflow group. A removal leaves a null word: nothing is shifted, and there are no
//! tombstones. If it leaves more than [`FREE_WORDS_BESIDE_CHAIN`] words of a group free beside its
//! overflow chain, it *compacts* the group. Entries of the chain come back, and an empty chain is
//! dropped. The steps are: store the new words, move the version on, null the old words (table 3).
//!
//! # Invariants
//!
//! Those of `table`. A method that writes takes the state that is in the lock by an exclusive
//! borrow, so there is one writer at a time (table 1). It hands unlinked memory out to be freed
//! later (table 4), and after each change table 6 holds for the homes that it touched.
#![allow(unsafe_code)]

use super::group::{self, Group, LAST, Place, WORDS, Word};
use super::look::{Array, MAX_LOG, Seen, Table};
use super::memory::{MAX_LOAD, TableMemory, TableState};
use super::resize::Resize;
use crate::node::{NodePtr, Refused};
use crate::sync::Ordering;
use std::ptr;

/// How many words may be free in a group that has an overflow chain. One, so that a removal and an
/// insert in turns do not drop a chain and make it again.
pub(super) const FREE_WORDS_BESIDE_CHAIN: usize = 1;

/// Units that one write moves. Fewer in models, so that they can look into the middle of a move.
const UNITS_PER_WRITE: usize = if cfg!(wheelhouse_loom) { 1 } else { 4 };

impl<K, V> Group<K, V> {
    /// Stores a word into the first free word of the group or its overflow chain, and makes an
    /// overflow group if there is none. Returns the group of the chain that it stands in now. For
    /// the holder of the lock.
    pub(super) fn put(&self, word: Word) -> &Self {
        let mut here = self;
        loop {
            if let Some(free) = here.free_words().next() {
                // Release, partners: the acquire loads of words in `group`.
                free.store(word, Ordering::Release);
                return here;
            }
            match here.overflow() {
                Some(next) => here = next,
                None => return here.put_beside(word),
            }
        }
    }

    /// Stores a word into a new overflow group of this one, the full end of a chain.
    #[cold]
    fn put_beside(&self, word: Word) -> &Self {
        // Every word is taken. The last one becomes a link to a new group that already holds the
        // node that stood there. So a reader finds that node before and after.
        // A move of entries that needs the group cannot stop half-way: not by a panic.
        let fresh = match TableMemory::<K, V>::allocate(1) {
            Ok(fresh) => fresh,
            Err(refused) => refused.abort(),
        };
        // SAFETY: just allocated and zeroed, and not yet shared. Once it is linked, only the holder
        // of the lock unlinks it (table 1).
        let overflow: &Self = unsafe { &*fresh };
        overflow.words[0].store(self.last(), Ordering::Release);
        overflow.words[1].store(word, Ordering::Release);
        self.words[LAST].store(group::link(fresh), Ordering::Release);
        overflow
    }
}

/// What the holder of the lock does; the [`TableState`] shows that the caller is that.
impl<K, V> Table<K, V> {
    /// The home of a hash, as long as the writer has not changed the table.
    #[inline]
    pub(in crate::map) fn home(&self, _: &TableState<K, V>, hash: u64) -> &Group<K, V> {
        let array = self.home_array(self.array(), hash);
        // SAFETY: only the holder of the lock unlinks arrays (table 1).
        unsafe { array.group(hash) }
    }

    /// The word of a node that a look-up of its hash has `seen`, if it still stands there.
    #[inline]
    pub(in crate::map) fn still_there<'a>(
        &self,
        hash: u64,
        node: NodePtr<K, V>,
        seen: &Seen<'a>,
    ) -> Option<Place<'a>> {
        let word = group::tagged(node.as_raw(), hash);
        let place = seen.place?;
        if seen.version == self.version() && place.load(Ordering::Acquire) == word {
            Some(place)
        } else {
            None
        }
    }

    /// Adds a node whose key is not in the table. [`grow_if_full`](Self::grow_if_full) was called
    /// before.
    // The hash is an argument, since it stands in the node's side part.
    #[inline]
    pub(in crate::map) fn insert(
        &self,
        state: &mut TableState<K, V>,
        home: &Group<K, V>,
        node: NodePtr<K, V>,
        hash: u64,
    ) {
        debug_assert_eq!(hash, node.hash());
        home.put(group::tagged(node.as_raw(), hash));
        self.after_write(state);
    }

    /// Puts `new` where `place` holds a node of the same hash.
    #[inline]
    pub(in crate::map) fn replace(
        &self,
        _: &mut TableState<K, V>,
        place: Place<'_>,
        new: NodePtr<K, V>,
        hash: u64,
    ) {
        debug_assert_eq!(hash, new.hash());
        // Release, partner: the acquire loads of words in `group`.
        place.store(group::tagged(new.as_raw(), hash), Ordering::Release);
    }

    /// Takes out the node of this hash at `place`; `count` entries are left.
    pub(in crate::map) fn remove(
        &self,
        state: &mut TableState<K, V>,
        hash: u64,
        place: Place<'_>,
        count: u64,
    ) {
        self.shrink_if_sparse(state, count);
        place.store(group::EMPTY, Ordering::Release);
        let group = self.home(state, hash);
        if group::is_link(group.last()) && group.free_words().count() > FREE_WORDS_BESIDE_CHAIN {
            self.compact(state, group);
        }
        self.after_write(state);
    }

    /// Before an insert beside `count` entries: begins to grow if the table would be too full.
    /// Panics if the new array does not fit the tags; the table is then as it was (table 9).
    #[inline]
    pub(in crate::map) fn grow_if_full(&self, state: &mut TableState<K, V>, count: u64) {
        let array = self.array();
        if count >> array.log() >= MAX_LOAD && !array.is_resizing() && array.log() < MAX_LOG {
            let begun = self.begin(state, array.log() + 1);
            begun.unwrap_or_else(|refused| refused.fail());
        }
    }

    /// Before a removal: begins to shrink if `count` entries leave the table too empty. If there is
    /// no memory for the new array, a later removal tries again.
    #[inline]
    fn shrink_if_sparse(&self, state: &mut TableState<K, V>, count: u64) {
        let array = self.array();
        if !array.is_resizing()
            && (4 * count) >> array.log() < MAX_LOAD
            && array.log() > state.least
        {
            _ = self.begin(state, array.log() - 1);
        }
    }

    /// Begins to move the entries to an array of another size.
    #[cold]
    #[inline(never)]
    pub(in crate::map) fn begin(&self, _: &mut TableState<K, V>, log: u32) -> Result<(), Refused> {
        let next = TableMemory::reserve(1 << log)?;
        // Before `next` and `moved` change: a reader may still use them for an earlier move (table
        // 5).
        self.renew_version();
        // Release, partners: `Resize` and `Table::array`.
        (self.next).store(Array::new(next, log).0, Ordering::Release);
        self.moved.store(0, Ordering::Release);
        (self.array).store(self.array().resizing().0, Ordering::Release);
        Ok(())
    }

    /// After an insert or a removal: moves what one write may.
    #[inline]
    fn after_write(&self, state: &mut TableState<K, V>) {
        if self.array().is_resizing() {
            self.resize_step(state, UNITS_PER_WRITE);
        }
    }

    /// Moves up to this number of units, if the table is resizing.
    #[cold]
    #[inline(never)]
    pub(in crate::map) fn resize_step(&self, state: &mut TableState<K, V>, units: usize) {
        if let Some(resize) = Resize::of(self, self.array()) {
            resize.step(state, units as u64);
        }
    }

    /// Moves entries from a group's overflow chain into free words of the group; drops an empty
    /// chain.
    fn compact(&self, state: &mut TableState<K, V>, group: &Group<K, V>) {
        let link = group.last();
        let Some(chain) = Group::<K, V>::linked(link) else {
            return;
        };
        let mut free = group.free_words();
        let mut moved = [None::<Place<'_>>; WORDS];
        let mut moves = 0;
        let mut left = false;
        chain.each(|place, word| match free.next() {
            Some(to) => {
                to.store(word, Ordering::Release);
                moved[moves] = Some(place);
                moves += 1;
            }
            None => left = true,
        });
        if moves > 0 {
            self.renew_version();
            for place in moved.into_iter().flatten() {
                place.store(group::EMPTY, Ordering::Release);
            }
        }
        if !left {
            group.words[LAST].store(group::EMPTY, Ordering::Release);
            state.retire_chain(link);
        }
    }

    /// All homes, and the array of each.
    pub(super) fn homes<'a>(
        &'a self,
        _: &TableState<K, V>,
    ) -> impl Iterator<Item = (Array<K, V>, &'a Group<K, V>)> + use<'a, K, V> {
        let array = self.array();
        let next = Resize::of(self, array).map(|resize| resize.to);
        [Some(array), next]
            .into_iter()
            .flatten()
            .flat_map(move |of| {
                (0..of.groups()).map(u64::from).filter_map(move |hash| {
                    if self.home_array(array, hash) != of {
                        return None;
                    }
                    // SAFETY: as in `home`.
                    Some((of, unsafe { of.group(hash) }))
                })
            })
    }

    /// Gives each node to `free`, and frees the memory of the table, which is not used again.
    ///
    /// For the last owner: no reader is left.
    pub(in crate::map) fn take_apart(
        &mut self,
        state: &mut TableState<K, V>,
        mut free: impl FnMut(NodePtr<K, V>),
    ) {
        let array = self.array();
        if array.at().is_null() {
            // It was taken apart before.
            return;
        }
        for (_, group) in self.homes(state) {
            group.each(|_, word| free(group::node::<K, V>(word)));
            state.retire_chain(group.last());
        }
        if let Some(resize) = Resize::of(self, array) {
            state.retire_array(resize.to);
        }
        state.retire_array(array);
        self.array.store(ptr::null_mut(), Ordering::Release);
        for memory in state.retired.drain(..) {
            // SAFETY: `&mut self`: no reader is left (table 4).
            unsafe { memory.free() };
        }
    }
}
