//! The only source of atomics, locks and threads, so that models can replace them.
//!
//! Every other file imports them from here and needs no `cfg`. With `--cfg wheelhouse_loom` the
//! types come from [loom](https://docs.rs/loom), which runs a model under every interleaving up to
//! a bound; with `--cfg wheelhouse_shuttle` from [shuttle](https://docs.rs/shuttle), which runs
//! larger models under many random interleavings; otherwise from the standard library and
//! `parking_lot`. The explorers' types are wrapped to look like the plain ones, never the reverse.
//! Only the package `models`, which builds these sources once more, depends on the two explorers.
//!
//! There are two kinds of lock: `Mutex`, for holds that may last a while, and `ShortMutex`
//! (`latch`).
//!
//! `Arc` and `Weak` are always the standard library's: no protocol of this crate rests on the
//! orderings of a reference count, except the wait for items that other threads are freeing
//! (`reclaim`, `Away`).

#[cfg(not(any(wheelhouse_loom, wheelhouse_shuttle)))]
mod latch;
mod parker;

/// Whether threads are those of an explorer, all of which run on one thread of the system.
pub(crate) const IS_MODEL: bool = cfg!(any(wheelhouse_loom, wheelhouse_shuttle));

#[cfg(not(wheelhouse_shuttle))]
#[cfg_attr(wheelhouse_loom, allow(dead_code, unused_imports))]
mod plain {
    pub(crate) use parking_lot::{Condvar, Mutex, MutexGuard};
    pub(crate) use std::sync::atomic::{
        AtomicBool, AtomicPtr, AtomicU8, AtomicU16, AtomicU32, AtomicU64, AtomicUsize, fence,
    };
    pub(crate) use std::thread_local;

    /// Makes `count` zeroed words null pointers, which they are already.
    ///
    /// # Safety
    ///
    /// `at` names `count` zeroed words that no other thread uses yet.
    #[allow(unsafe_code)]
    #[inline]
    pub(crate) unsafe fn null_pointers<T>(_at: *mut AtomicPtr<T>, _count: usize) {}

    /// Sleeps.
    pub(crate) fn nap(time: std::time::Duration) {
        std::thread::sleep(time);
    }

    /// Lets another thread have the processor.
    pub(crate) fn yield_now() {
        std::thread::yield_now();
    }

    /// Unlocks, and hands the lock to a waiting thread if there is one.
    #[inline]
    pub(crate) fn unlock_fairly<T>(guard: MutexGuard<'_, T>) {
        MutexGuard::unlock_fair(guard);
    }
}

#[cfg(any(wheelhouse_loom, wheelhouse_shuttle))]
mod model {
    #[cfg(wheelhouse_loom)]
    use loom as explorer;
    #[cfg(wheelhouse_shuttle)]
    use shuttle as explorer;

    /// shuttle's threads are not the system's, so they need thread-locals of their own.
    #[cfg(wheelhouse_shuttle)]
    pub(crate) use explorer::thread_local;
    #[cfg(wheelhouse_loom)]
    pub(crate) use std::thread_local;

    /// An explorer's mutex serves for short holds, too.
    pub(crate) use self::Mutex as ShortMutex;
    pub(crate) use explorer::sync::MutexGuard;
    pub(crate) use explorer::sync::MutexGuard as ShortMutexGuard;
    pub(crate) use explorer::sync::atomic::{
        AtomicBool, AtomicPtr, AtomicU8, AtomicU16, AtomicU32, AtomicU64, AtomicUsize, fence,
    };

    /// The explorer's mutex with `parking_lot`'s interface: no poisoning.
    #[derive(Debug)]
    pub(crate) struct Mutex<T>(explorer::sync::Mutex<T>);

    impl<T> Mutex<T> {
        pub(crate) fn new(value: T) -> Self {
            Self(explorer::sync::Mutex::new(value))
        }

        pub(crate) fn lock(&self) -> MutexGuard<'_, T> {
            self.0.lock().unwrap()
        }

        pub(crate) fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
            self.0.try_lock().ok()
        }

        pub(crate) fn get_mut(&mut self) -> &mut T {
            self.0.get_mut().unwrap()
        }
    }

    impl<T: Default> Default for Mutex<T> {
        fn default() -> Self {
            Self::new(T::default())
        }
    }

    /// The explorer's condition variable with `parking_lot`'s interface; an explorer has no time,
    /// so a timed wait ends at once or not at all.
    #[derive(Debug, Default)]
    pub(crate) struct Condvar(explorer::sync::Condvar);

    impl Condvar {
        pub(crate) fn new() -> Self {
            Self(explorer::sync::Condvar::new())
        }

        pub(crate) fn wait<T>(&self, guard: &mut MutexGuard<'_, T>) {
            replace_guard(guard, |held| self.0.wait(held).unwrap());
        }

        #[cfg(wheelhouse_loom)]
        pub(crate) fn wait_for<T>(&self, guard: &mut MutexGuard<'_, T>, _: std::time::Duration) {
            self.wait(guard);
        }

        /// Returns at once: a thread that waits with a timeout checks again anyway.
        #[cfg(wheelhouse_shuttle)]
        pub(crate) fn wait_for<T>(&self, _: &mut MutexGuard<'_, T>, _: std::time::Duration) {
            explorer::thread::yield_now();
        }

        pub(crate) fn notify_one(&self) {
            self.0.notify_one();
        }

        pub(crate) fn notify_all(&self) {
            self.0.notify_all();
        }
    }

    /// `parking_lot` waits on a borrowed guard, an explorer on an owned one.
    fn replace_guard<'a, T>(
        guard: &mut MutexGuard<'a, T>,
        wait: impl FnOnce(MutexGuard<'a, T>) -> MutexGuard<'a, T>,
    ) {
        #[allow(unsafe_code)]
        // SAFETY: `guard` is moved out, and a guard is moved back in before it is used again. An
        // explorer's `wait` unwinds only to end the whole model, which aborts.
        unsafe {
            let held = std::ptr::read(guard);
            std::ptr::write(guard, wait(held));
        }
    }

    /// Makes `count` zeroed words null pointers: an explorer's pointers hold more than an address.
    ///
    /// # Safety
    ///
    /// `at` names `count` words that no other thread uses yet.
    #[allow(unsafe_code)]
    pub(crate) unsafe fn null_pointers<T>(at: *mut AtomicPtr<T>, count: usize) {
        for i in 0..count {
            // SAFETY: the caller's promise.
            unsafe { at.add(i).write(AtomicPtr::new(std::ptr::null_mut())) };
        }
    }

    /// Lets other threads run: an explorer has no time.
    pub(crate) fn nap(_: std::time::Duration) {
        explorer::thread::yield_now();
    }

    /// Lets another thread have the processor.
    pub(crate) fn yield_now() {
        explorer::thread::yield_now();
    }

    pub(crate) fn unlock_fairly<T>(guard: MutexGuard<'_, T>) {
        drop(guard);
    }
}

#[cfg(not(any(wheelhouse_loom, wheelhouse_shuttle)))]
pub(crate) use latch::{ShortMutex, ShortMutexGuard};
#[cfg(any(wheelhouse_loom, wheelhouse_shuttle))]
pub(crate) use model::*;
pub(crate) use parker::Parker;
#[cfg(not(any(wheelhouse_loom, wheelhouse_shuttle)))]
pub(crate) use plain::*;
pub(crate) use std::sync::atomic::Ordering;

/// Adds to a count that only the calling thread changes now. Relaxed: for counts that order nothing.
#[inline]
pub(crate) fn add_alone(count: &AtomicU64, by: u64) {
    let before = count.load(Ordering::Relaxed);
    count.store(before.wrapping_add(by), Ordering::Relaxed);
}

/// What the epochs are made of. The fence of a pin and that of a grace period have a name each, so
/// that a model can take one of them away. loom steps over the epochs: each operation begins with
/// the full fence of a pin, which could hide an ordering of the map that is too weak. They have
/// models of their own (`src/tests/grace/`).
#[cfg_attr(feature = "crossbeam-epoch", allow(unused_imports))]
pub(crate) mod of_epochs {
    #[cfg(wheelhouse_loom)]
    use super::plain as door;
    #[cfg(not(wheelhouse_loom))]
    use crate::sync as door;
    pub(crate) use door::{AtomicU64, Mutex, fence as grace_fence, fence as pin_fence};
}
