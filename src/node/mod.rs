//! A node: one key, one value, their deadline, and the address of their entry.
//!
//! # How it works
//!
//! An *entry* is what a key has in the cache; it survives replacement. A *node* is one value of it.
//! Key, value, hash, weight and entry of a node are fixed once it is published; a replacement
//! publishes a new node for the same entry. The other fields may change afterwards and are atomic:
//! mainly the *wanted deadline*, the *state* and the *seen* stamp. The data of the wheel and the
//! size policy stand in the [`entry`]. An entry *names* its current node: its writer has named it
//! there, or the pass does when it applies the event of the replacement (entry 3).
//!
//! ```text
//!  hot: a look-up reads it                 side             columns: if needed  entry: of the pass
//! ┌──────────┬──────────────────┬───┬───┐  ┌──────┬─────────┐  ┌─────┐ ┌────────┐    ┌──────┬───────┬───────────┬───
//! │ deadline │ entry state seen │ K │ V │  │ hash │ written │  │ own │ │ weight │    │ node │ timer │ bucket_id │ …
//! └──────────┴──────────────────┴───┴───┘  └──────┴─────────┘  └─────┘ └────────┘    └──────┴───────┴───────────┴───
//! ```
//!
//! Hot parts stand side by side ([`slab`]), so a look-up fetches nothing that it does not read, and
//! nothing that the pass writes. [`slab`] has a table of the sizes. There is a weight where there
//! is a weigher, and a moment of refresh where the cache reloads. There is `own` where the own
//! deadline must be kept apart from a cache-wide limit.
//!
//! # States
//!
//! | state     | in the map | is the entry's node | next |
//! |-----------|------------|---------------------|------|
//! | (draft)   | no, a [`NewNode`] on its writer's stack | no | InMap: published under the shard's lock; Removed: refused under it, for its weight; or dropped by its writer |
//! | InMap     | yes | yes, if it is the first or its writer has named it; else once its event was drained | Removed: taken out under the shard's lock, or replaced by a node that the pass names; Succeeded: replaced by one that its writer names |
//! | Removed   | no  | may be, until the event of its removal is drained | that event makes it Dead or Succeeded; a pass that takes it out itself makes it Dead at once |
//! | Dead      | no  | yes; the pass has unlinked the entry everywhere | freed, with its entry, after delivery, a grace period and a full drain |
//! | Succeeded | no  | no, a later node is | freed, without its entry, after the same |
//!
//! # Invariants
//!
//! 1. A [`NodePtr`] points to an initialised node until that node is freed: by
//!    [`NodePtr::destroy`], then [`Slab::take_back`], once. It is freed when it is Dead or
//!    Succeeded, no pin from before it left the map is held, and every batch and read ring was
//!    drained after that. `engine` keeps this order ("engine 3"); an owner that drops the whole
//!    cache has the node for itself.
//! 2. A node that succeeds another is published in its place under the shard's lock. So the nodes
//!    of an entry follow one another in the order of their events.
//! 3. The state of a node only goes downwards in the table above. While it is InMap, its byte also
//!    says whether an event waits by which the pass will hear that the deadline has moved.
//! 4. If a node was judged to be expired, its wanted deadline is *claimed*; if it was replaced
//!    while reads may extend, the deadline is *frozen*. Both move it 2^61 ns into the past by a
//!    compare-exchange, to an even value or an odd one. A reader extends by a compare-exchange from
//!    the value that it judged. So the expiry of an entry and its extension exclude each other.
//!
//! DESIGN.md has a table of which thread may touch which field.

mod address;
mod entry;
mod hot;
mod pointer;
mod pool;
mod refresh;
mod slab;

#[cfg(all(test, not(any(fuzzing, wheelhouse_loom, wheelhouse_shuttle))))]
pub(crate) use address::tests::REFUSES;
pub(crate) use address::{Refused, TAG_BITS, TAG_SHIFT, allocate, prefetch, prefetch_to_write};
pub(crate) use entry::{EntryPtr, Links, NEXT, NO_BUCKET, PREV};
pub(crate) use hot::{NewNode, Node, NodeState, Times, lateness};
pub(crate) use pointer::{Columns, NodePtr, Noted};
pub(crate) use refresh::RefreshMoment;
pub(crate) use slab::Slab;
