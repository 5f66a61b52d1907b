//! The table of one shard: look-ups without a lock, one writer at a time, growth in small steps.
//!
//! # How it works
//!
//! | file | what it has |
//! |---|---|
//! | `look` | [`Table`]: what readers see of a table, the word of its array included; the look-ups |
//! | `group` | eight words on one cache line, and the overflow chain behind them |
//! | `writer` | what the holder of the shard's lock finds and changes |
//! | `resize` | [`Resize`](resize::Resize): how entries move to a larger or a smaller array |
//! | `memory` | [`TableMemory`]: memory of arrays and overflow groups; [`TableState`]: what a writer has |
//!
//! A look-up reads the version and the array's word, compares the tags of the eight words of one
//! group, and goes through the group's overflow chain if it has one. If it finds nothing, it reads
//! the version again. The same version means that no node was moved meanwhile, so the miss is true;
//! else the look-up starts over. A hit needs no second reading (table 7). The *home* of a hash is
//! the group that its entries stand in. While the table resizes, there are two arrays, and the home
//! is in one of them. The look-up asks in which, and believes the answer if the version is the same
//! afterwards (table 5).
//!
//! [`Table::look`] examines one group, once. If that does not decide, the answer is `Retry`.
//! [`Table::find`] always decides.
//!
//! # Invariants
//!
//! 1. Only the holder of `&mut TableState`, which is in the shard's lock, writes words, arrays or
//!    the version.
//! 2. A node in the table stands in exactly one word of its hash's home. During a compaction it
//!    stands in at most two.
//! 3. A change of a hash's home, or of a node's word within it, has a fixed order. Store the new
//!    words (release); store where the home is now, if that changes; move the version on (release);
//!    only then null an old word of that home. So a reader that misses a node that stays in the
//!    table finds the version changed: the null word that made it miss was stored after the new
//!    version.
//! 4. An array or overflow group that was unlinked is handed out as [`TableMemory`], and freed only
//!    after a grace period.
//! 5. `next` and `moved` are stored before `array` says that the table is resizing, and not again
//!    before another version. So a reader that reads them between two readings of the same version
//!    has read values that belong together.
//! 6. A group with an overflow chain has at most
//!    [`FREE_WORDS_BESIDE_CHAIN`](writer::FREE_WORDS_BESIDE_CHAIN) free words of its own. So a
//!    chain is dropped when the entries that needed it have left, even if the table neither grows
//!    nor shrinks.
//! 7. A hit by a *stale* word, which stayed behind in a group of the former array or in its
//!    overflow chain, is true. Its node was in the table at a moment within the call. For the
//!    reader learned of that home before the entries moved; so its search began when the node was
//!    there. If the node was removed or replaced since, the hit is like one that returned just
//!    before. The node is not freed meanwhile, since the reader was pinned when it left the map
//!    (node 1). A miss in such a place does not count, since the move has changed the version.
//! 8. A group of the array that entries are moving to is uninitialised until its unit moves; the
//!    move clears it first. No reader looks into it as a home before `moved` says so (table 5).
//! 9. Memory for a growing or shrinking table is allocated before the write that needs it changes
//!    anything a reader can see. If the address does not fit the tags, growing panics there, and
//!    the table is as it was. Shrinking is left to a later removal.
//!
//! # Cost
//!
//! A look-up touches one line of a group and one node. In a table that has grown, a group of 64
//! bytes holds between half of [`MAX_LOAD`](memory::MAX_LOAD) and `MAX_LOAD` entries on average.
//! After removals it holds as few as a quarter. The former array is freed a grace period after the
//! last entry has moved. A writer holds the shard's lock for one group, and for a few more while
//! the table resizes.

// The invariants of this module: `checks/map_table.rs`, at the root of the repository.
#[cfg(any(test, fuzzing))]
#[path = "../../../checks/map_table.rs"]
mod check;
mod group;
mod look;
mod memory;
mod resize;
mod writer;

pub(super) use group::{Group, Place};
pub(crate) use look::{END, Look};
pub(super) use look::{Seen, Table};
pub(super) use memory::{BYTES_PER_ENTRY, TableState};
pub(crate) use memory::{MOST_PER_SHARD, TableMemory};
