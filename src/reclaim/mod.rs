//! Pins and grace periods: when may memory that left the map be freed.
//!
//! # How it works
//!
//! A reader holds a [`Pin`] while it looks at nodes. Whoever has taken objects out of every shared
//! place asks for a
//! [`Grace`]: it is *over* once no pin taken before the request is held any more. Only this question is answered here; the
//! freeing, and with it the user's `Drop`, is for [`Retired`], whose owner does it where it wants,
//! never inside somebody's pin.
//!
//! Each cache has a [`Domain`] of its own, so that an `EntryRef` held long on one cache holds no
//! memory of another.
//!
//! | file | is |
//! |------|----|
//! | [`epoch`] | the protocol: an epoch, a record for each thread, what a grace period waits for; with the proof |
//! | [`pins`] | the records that a thread has, and how a pin finds its own with one comparison |
//! | [`retired`] | the queue of what waits to be freed |
//!
//! The first has models under loom (`src/tests/grace/`); those of other protocols step over it.
//!
//! # Invariants
//!
//! 1. `RECENT` is `(0, null)` or points to a record that this thread's `RECORDS` owns and that is
//!    of the domain whose number stands beside it: every removal from `RECORDS` resets it first.
//!    Domains are numbered from 1 and a number is never used again.
//! 2. A record outlives its pins. `RECORDS` lets go of one only while it has none, or makes it an
//!    *orphan*, which owns itself: the last pin to go takes that share over.
//! 3. A record is written to by the thread that registered it alone: its pins cannot be sent.
//!    Others look whether it is pinned, and since when.
//!
//! # Cost
//!
//! A pin takes 6 ns, nearly all of it the exchange by which it is made known; a nested one a fence
//! and a count. A thread that goes from cache to cache looks its record up each time among those of
//! all caches that it uses. Nothing is written that threads share; the epoch is read, which changes
//! with each grace period: once for 128 removals, for a large array, or for each run. Nothing is
//! allocated but a record of 256 bytes for the first pin of a thread in a domain, freed when the
//! thread ends or, for a domain that is gone, at the thread's next registration anywhere. A grace
//! period costs its beginner a fence, and each look at it some nanoseconds for each living thread
//! that has been in the domain, up to the first that holds it up, which is asked first the next
//! time.
//!
//! # Origin
//!
//! Epoch-based reclamation: K. Fraser, "Practical lock-freedom", 2004. The pin is that of
//! `crossbeam-epoch`. There, each thread keeps bags of deferred functions and helps now and then to
//! move the epoch on, in steps that every pinned thread has to follow. Here nobody has to follow: a
//! record says since which epoch it is pinned, and to compare is enough.

mod epoch;
mod pins;
mod retired;

use crate::sync::of_epochs as door;
pub(crate) use pins::{Domain, Grace, Pin, SolePin};
pub(crate) use retired::{Ready, Retire, Retired, is_freeing};
