//! The one door to atomics, locks and threads, so that models can swap them.
//!
//! Every other file imports from here and sees no `cfg`. With `--cfg wheelhouse_loom` the types come from
//! [loom](https://docs.rs/loom), which runs a model under every interleaving (up to a bound); otherwise they are the
//! standard library's and `parking_lot`'s. The loom side is wrapped to look like the plain one, never the reverse.
//!
//! `Arc` and `Weak` are always the standard library's: no protocol of this crate rests on the orderings of a
//! reference count.

#[cfg(not(wheelhouse_loom))]
mod plain {
    pub(crate) use parking_lot::{Condvar, Mutex, MutexGuard};
    pub(crate) use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU8, AtomicU64, AtomicUsize};

    /// Makes `count` zeroed words null pointers, which they are already.
    ///
    /// # Safety
    ///
    /// `at` names `count` zeroed words that nobody else uses yet.
    #[allow(unsafe_code)]
    #[inline]
    pub(crate) unsafe fn null_pointers<T>(_at: *mut AtomicPtr<T>, _count: usize) {}

    /// Unlocks, and hands the lock over if somebody waits for it.
    #[inline]
    pub(crate) fn unlock_fairly<T>(guard: MutexGuard<'_, T>) {
        MutexGuard::unlock_fair(guard);
    }
}

#[cfg(wheelhouse_loom)]
mod model {
    pub(crate) use loom::sync::MutexGuard;
    pub(crate) use loom::sync::atomic::{AtomicBool, AtomicPtr, AtomicU8, AtomicU64, AtomicUsize};

    /// loom's mutex with `parking_lot`'s face: no poisoning.
    #[derive(Debug)]
    pub(crate) struct Mutex<T>(loom::sync::Mutex<T>);

    impl<T> Mutex<T> {
        pub(crate) fn new(value: T) -> Self {
            Self(loom::sync::Mutex::new(value))
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

    /// loom's condition variable with `parking_lot`'s face; loom has no time, so a timed wait just yields.
    #[derive(Debug, Default)]
    pub(crate) struct Condvar(loom::sync::Condvar);

    impl Condvar {
        pub(crate) fn new() -> Self {
            Self(loom::sync::Condvar::new())
        }

        pub(crate) fn wait<T>(&self, guard: &mut MutexGuard<'_, T>) {
            replace_guard(guard, |held| self.0.wait(held).unwrap());
        }

        pub(crate) fn wait_for<T>(&self, guard: &mut MutexGuard<'_, T>, _: std::time::Duration) {
            self.wait(guard);
        }

        pub(crate) fn notify_one(&self) {
            self.0.notify_one();
        }

        pub(crate) fn notify_all(&self) {
            self.0.notify_all();
        }
    }

    /// `parking_lot` waits on a borrowed guard, loom on an owned one.
    fn replace_guard<'a, T>(
        guard: &mut MutexGuard<'a, T>,
        wait: impl FnOnce(MutexGuard<'a, T>) -> MutexGuard<'a, T>,
    ) {
        #[allow(unsafe_code)]
        // SAFETY: `guard` is moved out and a guard is moved back in before anyone can look; loom's `wait` does not
        // unwind except to end the whole model, which aborts.
        unsafe {
            let held = std::ptr::read(guard);
            std::ptr::write(guard, wait(held));
        }
    }

    /// Makes `count` zeroed words null pointers: loom's carry more than the address.
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

    pub(crate) fn unlock_fairly<T>(guard: MutexGuard<'_, T>) {
        drop(guard);
    }
}

#[cfg(wheelhouse_loom)]
pub(crate) use model::*;
#[cfg(not(wheelhouse_loom))]
pub(crate) use plain::*;
pub(crate) use std::sync::atomic::Ordering;
