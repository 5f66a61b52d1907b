//! The plain types: those of the standard library and of `parking_lot`.

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
