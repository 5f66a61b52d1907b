//! Atomics and locks that models can replace.
//!
//! What a model runs imports them from here and needs no `cfg`. A few files use the standard
//! library's own, where no model looks: threads of the system, `static`s, which outlive a model,
//! and clocks. `tests/source/imports.rs` lists these files. The types come from the standard
//! library and `parking_lot`. With `--cfg wheelhouse_loom` they come from
//! [loom](https://docs.rs/loom), which runs a model under every interleaving up to a bound. With
//! `--cfg wheelhouse_shuttle` they come from [shuttle](https://docs.rs/shuttle), which runs larger
//! models under many random ones. The explorers' types are wrapped to look like the plain ones,
//! never the reverse. Only the package `models`, which builds these sources once more, depends on
//! the two explorers.
//!
//! There are two kinds of lock: `Mutex`, for holds that may last a while, and `ShortMutex`
//! (`latch`). A thread waits for a future by a `Parker` ([`block`]); [`cycle`] finds threads that
//! would wait for each other.
//!
//! `Arc` and `Weak` are always the standard library's: no protocol of this crate rests on the
//! orderings of a reference count.

pub(crate) mod block;
pub(crate) mod cycle;
#[cfg(not(any(wheelhouse_loom, wheelhouse_shuttle)))]
mod latch;
mod parker;
pub(crate) mod place;

#[cfg(not(wheelhouse_shuttle))]
#[cfg_attr(wheelhouse_loom, allow(dead_code, unused_imports))]
mod plain {
    //! The plain types: those of the standard library and of `parking_lot`.

    pub(crate) use parking_lot::{Condvar, Mutex, MutexGuard};
    // Where the allocator has the top byte of an address, no address needs it.
    pub(crate) use crate::atomic64::AtomicU64;
    #[allow(unused_imports)]
    pub(crate) use std::sync::atomic::AtomicU16;
    pub(crate) use std::sync::atomic::{
        AtomicBool, AtomicPtr, AtomicU8, AtomicU32, AtomicUsize, fence,
    };
    pub(crate) use std::thread::{sleep as nap, yield_now};
    pub(crate) use std::thread_local;

    /// Makes `count` zeroed words zero, which they are already.
    ///
    /// # Safety
    ///
    /// `at` names `count` zeroed words that no other thread uses yet.
    #[allow(unsafe_code)]
    #[inline]
    pub(crate) unsafe fn zero_words(_at: *mut AtomicU64, _count: usize) {}

    /// Unlocks, and hands the lock to a waiting thread if there is one.
    #[inline]
    pub(crate) fn unlock_fairly<T>(guard: MutexGuard<'_, T>) {
        MutexGuard::unlock_fair(guard);
    }
}

#[cfg(any(wheelhouse_loom, wheelhouse_shuttle))]
#[path = "../../models/explored.rs"]
mod explored;

pub(crate) use crate::stripe::IS_MODEL;
#[cfg(any(wheelhouse_loom, wheelhouse_shuttle))]
pub(crate) use explored::*;
#[cfg(not(any(wheelhouse_loom, wheelhouse_shuttle)))]
pub(crate) use latch::{ShortMutex, ShortMutexGuard};
pub(crate) use parker::Parker;
#[cfg(not(any(wheelhouse_loom, wheelhouse_shuttle)))]
pub(crate) use plain::*;
pub(crate) use std::sync::atomic::Ordering;

/// Adds to a count that only the calling thread changes now. Relaxed: for counts that order
/// nothing.
#[inline]
pub(crate) fn add_alone(count: &AtomicU64, by: u64) {
    let before = count.load(Ordering::Relaxed);
    count.store(before.wrapping_add(by), Ordering::Relaxed);
}

/// What the latch is made of. A model compiles the latch with other parts (`models/loom/latch.rs`).
#[cfg(not(any(wheelhouse_loom, wheelhouse_shuttle)))]
mod latch_parts {
    pub(super) use std::sync::atomic::AtomicBool;
    pub(super) use std::thread::sleep as nap;

    /// Tells the processor so many times that this thread waits for another.
    pub(super) fn pause(times: u32) {
        (0..times).for_each(|_| std::hint::spin_loop());
    }
}

/// The atomics of the epochs. A model can take one of the two fences away, since each has a name.
/// loom steps over the epochs: the full fence of a pin, with which each operation begins, could
/// hide a too weak ordering of the map. The epochs have models of their own (`models/loom/grace/`).
#[cfg_attr(feature = "crossbeam-epoch", allow(unused_imports))]
pub(crate) mod epoch_atomics {
    #[cfg(wheelhouse_loom)]
    use super::plain as atomics;
    #[cfg(not(wheelhouse_loom))]
    use crate::sync as atomics;
    pub(crate) use atomics::{AtomicU64, Mutex, fence as grace_fence, fence as pin_fence};
}
