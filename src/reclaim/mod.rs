//! Pins and grace periods: when may memory that left the map be freed?
//!
//! # How it works
//!
//! A reader holds a [`Pin`] while it uses nodes. A pass that has unlinked objects from every shared
//! place begins a `Grace`: it is *over* once no pin is held that was taken before it began. This
//! module answers that question only. [`Retired`] does the freeing, and with it the user's `Drop`,
//! outside of every pin and lock.
//!
//! Each cache has its own [`Domain`], so an `EntryRef` that is held on one cache keeps no memory of
//! another cache.
//!
//! | file | is |
//! |------|----|
//! | [`scheme`]: `own/` | the default: an epoch, a record for each thread, the proof |
//! | [`scheme`]: `crossbeam.rs` | the same interface over `crossbeam-epoch`, a collector for each domain (feature `crossbeam-epoch`) |
//! | [`domain`] | what a cache has of the scheme |
//! | [`records`], [`table`] | the records of the calling thread, found by the domain's place |
//! | [`retired`] | the queue of objects that wait to be freed |
//!
//! One of the two schemes is compiled. Both have the same types: `Scheme`, `Grace`, `Pin`,
//! `SolePin`, `Record` and `Registration`; no other module knows which one it is. Their tests
//! (`tests.rs`) are the same. `own/epoch.rs` has models under loom (`models/loom/grace/`); the
//! models of other protocols skip it.
//!
//! # Invariants
//!
//! 1. `RECENT` (`records.rs`) is `(0, null)`, or it points to the record of a registration that
//!    this thread's `REGISTRATIONS` owns, and its number is the number of that record's domain.
//!    Every removal from `REGISTRATIONS` resets it first. Domains are numbered from 1, and a number
//!    is never used again. A place is used again, so a slot of `REGISTRATIONS` also holds the
//!    number.
//! 2. A record outlives its pins. In the own scheme, `REGISTRATIONS` releases a record only while
//!    it has no pin, or makes it an *orphan*, which holds a reference to itself; the last pin then
//!    drops that reference. In crossbeam-epoch, a guard keeps its participant alive.
//! 3. Only the thread that registered a record writes it: pins cannot be sent. Other threads read
//!    whether it is pinned, and since which epoch.
//!
//! # Cost
//!
//! A pin costs one store and one full fence; a nested pin a fence and a count. A thread that
//! changes from cache to cache finds its record by two loads from a table (`records`). A pin writes
//! nothing that threads share. It reads the epoch, which each grace period changes: there is one
//! for every 128 removals, for a large array, or for each run.
//!
//! The first pin of a thread in a domain allocates its record (256 bytes). The record is freed when
//! the thread ends. A thread frees the record of a dropped domain when it registers in other
//! domains: after at most `max(its records, domains alive / 32, 3)` registrations.
//!
//! A grace period costs the pass that begins it a fence. Each check reads one word for each live
//! thread that has used the domain, up to the first that is still pinned from before; the next
//! check reads that thread's word first.
//!
//! | ns; `cargo run --release -p wheelhouse-models --example pins` | own epochs | crossbeam-epoch |
//! |---|---|---|
//! | a hit without deadline, no sleeping thread | 9.7 | 12.0 |
//! | beside 512 sleeping threads that once used the cache | 13.3 | 123 |
//!
//! A pin without a fence, and a barrier on all processors in its place, was considered: the barrier
//! interrupts busy threads.
//!
//! # Origin
//!
//! Epoch-based reclamation: K. Fraser, "Practical lock-freedom", 2004. The pin is that of
//! `crossbeam-epoch`. There each thread keeps bags of deferred functions, and every 128th pin tries
//! to advance the epoch, which waits for every pinned thread to follow. The own scheme needs no
//! advance: a record says since which epoch it is pinned, and one comparison is enough.

mod domain;
mod records;
mod retired;
#[cfg(feature = "crossbeam-epoch")]
#[path = "crossbeam.rs"]
mod scheme;
#[cfg(not(feature = "crossbeam-epoch"))]
#[path = "own/mod.rs"]
mod scheme;
mod table;

pub(crate) use domain::Domain;
pub(crate) use retired::{Ready, Retire, Retired, is_freeing};
pub(crate) use scheme::{Pin, SolePin};

#[cfg(test)]
mod tests;
