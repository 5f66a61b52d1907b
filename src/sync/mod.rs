//! The one door to atomics, locks and threads, so that models can swap them.
//!
//! Every other file imports from here and sees no `cfg`. With `--cfg wheelhouse_loom` the types
//! come from [loom](https://docs.rs/loom), which runs a model under every interleaving (up to a
//! bound); with `--cfg wheelhouse_shuttle` from [shuttle](https://docs.rs/shuttle), which runs
//! larger ones under many random ones; otherwise they are the standard library's and
//! `parking_lot`'s. The other sides are wrapped to look like the plain one, never the reverse.
//!
//! There are two kinds of lock: `Mutex`, for holds that may last a while, and `ShortMutex`
//! (`latch`).
//!
//! `Arc` and `Weak` are always the standard library's: no protocol of this crate rests on the
//! orderings of a reference count, but for the wait for what others are freeing (`reclaim`,
//! `Away`).

#[cfg(not(any(wheelhouse_loom, wheelhouse_shuttle)))]
mod latch;
mod parker;

/// Whether threads are those of an explorer, all of which run on one thread of the system.
pub(crate) const IS_MODEL: bool = cfg!(any(wheelhouse_loom, wheelhouse_shuttle));

#[cfg(not(wheelhouse_shuttle))]
#[cfg_attr(wheelhouse_loom, allow(dead_code, unused_imports))]
mod plain {
    pub(crate) use parking_lot::{Condvar, Mutex, MutexGuard};
    use std::sync::atomic::Ordering;
    use std::sync::atomic::compiler_fence;
    pub(crate) use std::sync::atomic::{
        AtomicBool, AtomicPtr, AtomicU8, AtomicU16, AtomicU32, AtomicU64, AtomicUsize, fence,
    };
    pub(crate) use std::thread_local;

    /// A release store followed by a full fence: no later load of this thread is done before all
    /// others can see it.
    ///
    /// On x86-64 both are one exchange: the processor lets no load pass a locked instruction, and
    /// the compiler's fence keeps the compiler from it. By the letter of the language an exchange
    /// is no fence for what stands around it; crossbeam-epoch does the same. It takes 5 ns. So does
    /// a fence by Rust 1.95, which makes a locked instruction of it; by Rust 1.88, which makes
    /// `mfence`, that takes 22.
    #[inline]
    pub(crate) fn store_before_loads(word: &AtomicU64, value: u64) {
        if cfg!(all(target_arch = "x86_64", not(miri))) {
            word.swap(value, Ordering::SeqCst);
            compiler_fence(Ordering::SeqCst);
        } else {
            word.store(value, Ordering::Release);
            fence(Ordering::SeqCst);
        }
    }

    /// Makes `count` zeroed words null pointers, which they are already.
    ///
    /// # Safety
    ///
    /// `at` names `count` zeroed words that nobody else uses yet.
    #[allow(unsafe_code)]
    #[inline]
    pub(crate) unsafe fn null_pointers<T>(_at: *mut AtomicPtr<T>, _count: usize) {}

    /// Waits for so long.
    pub(crate) fn nap(time: std::time::Duration) {
        std::thread::sleep(time);
    }

    /// Unlocks, and hands the lock over if somebody waits for it.
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

    /// Where threads are not the system's, what is a thread's own is not either.
    #[cfg(wheelhouse_shuttle)]
    pub(crate) use explorer::thread_local;
    #[cfg(wheelhouse_loom)]
    pub(crate) use std::thread_local;

    /// An explorer's mutex is as good for short holds.
    pub(crate) use self::Mutex as ShortMutex;
    pub(crate) use explorer::sync::MutexGuard;
    pub(crate) use explorer::sync::MutexGuard as ShortMutexGuard;
    pub(crate) use explorer::sync::atomic::{
        AtomicBool, AtomicPtr, AtomicU8, AtomicU16, AtomicU32, AtomicU64, AtomicUsize, fence,
    };
    use std::sync::atomic::Ordering;

    /// A release store followed by a full fence.
    #[cfg_attr(wheelhouse_loom, allow(dead_code, reason = "for models"))]
    pub(crate) fn store_before_loads(word: &AtomicU64, value: u64) {
        word.store(value, Ordering::Release);
        fence(Ordering::SeqCst);
    }

    /// The explorer's mutex with `parking_lot`'s face: no poisoning.
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

    /// The explorer's condition variable with `parking_lot`'s face; an explorer has no time, so a
    /// timed wait ends at once or not at all.
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

        /// Over at once: who waits with a timeout looks again anyway.
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
        // SAFETY: `guard` is moved out and a guard is moved back in before anyone can look; an
        // explorer's `wait` does not unwind except to end the whole model, which aborts.
        unsafe {
            let held = std::ptr::read(guard);
            std::ptr::write(guard, wait(held));
        }
    }

    /// Makes `count` zeroed words null pointers: an explorer's carry more than the address.
    ///
    /// # Safety
    ///
    /// `at` names `count` words that nobody else uses yet.
    #[allow(unsafe_code)]
    pub(crate) unsafe fn null_pointers<T>(at: *mut AtomicPtr<T>, count: usize) {
        for i in 0..count {
            // SAFETY: the caller's promise.
            unsafe { at.add(i).write(AtomicPtr::new(std::ptr::null_mut())) };
        }
    }

    /// Lets others run: an explorer has no time.
    pub(crate) fn nap(_: std::time::Duration) {
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

/// What the epochs are made of. loom steps over them: each operation begins with the full fence of
/// a pin, behind which an ordering of the map that is too weak might never show. They have models
/// of their own.
pub(crate) mod of_epochs {
    #[cfg(wheelhouse_loom)]
    use super::plain as door;
    #[cfg(not(wheelhouse_loom))]
    use crate::sync as door;
    pub(crate) use door::{AtomicU64, Mutex, fence, store_before_loads};
}
