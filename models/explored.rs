//! An explorer's types, wrapped to look like the plain ones.

#[cfg(wheelhouse_loom)]
use loom as explorer;
#[cfg(wheelhouse_shuttle)]
use shuttle as explorer;

use std::ops::{Deref, DerefMut};

/// shuttle's threads are not the system's, so they need thread-locals of their own.
#[cfg(wheelhouse_shuttle)]
pub(crate) use explorer::thread_local;
#[cfg(wheelhouse_loom)]
pub(crate) use std::thread_local;

/// An explorer's mutex serves for short holds, too.
pub(crate) use self::Mutex as ShortMutex;
pub(crate) use self::MutexGuard as ShortMutexGuard;
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
        MutexGuard(Some(self.0.lock().unwrap()), &self.0)
    }

    pub(crate) fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
        let held = self.0.try_lock().ok()?;
        Some(MutexGuard(Some(held), &self.0))
    }

    /// An explorer has no time: a wait with an end is none.
    pub(crate) fn try_lock_for(&self, _: std::time::Duration) -> Option<MutexGuard<'_, T>> {
        self.try_lock()
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

/// A hold of a [`Mutex`], which a wait gives up and takes again.
#[derive(Debug)]
pub(crate) struct MutexGuard<'a, T>(
    Option<explorer::sync::MutexGuard<'a, T>>,
    #[cfg_attr(wheelhouse_loom, expect(dead_code, reason = "no timed wait ends"))]
    &'a explorer::sync::Mutex<T>,
);

impl<T> Deref for MutexGuard<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        self.0.as_ref().expect("it is held between waits")
    }
}

impl<T> DerefMut for MutexGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        self.0.as_mut().expect("it is held between waits")
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
        guard.0 = guard.0.take().map(|held| self.0.wait(held).unwrap());
    }

    #[cfg(wheelhouse_loom)]
    pub(crate) fn wait_for<T>(&self, guard: &mut MutexGuard<'_, T>, _: std::time::Duration) {
        self.wait(guard);
    }

    /// Gives the lock to a thread that waits for it, and returns: a thread that waits with a
    /// timeout checks again anyway.
    #[cfg(wheelhouse_shuttle)]
    pub(crate) fn wait_for<T>(&self, guard: &mut MutexGuard<'_, T>, _: std::time::Duration) {
        drop(guard.0.take());
        explorer::thread::yield_now();
        guard.0 = Some(guard.1.lock().unwrap());
    }

    pub(crate) fn notify_one(&self) {
        self.0.notify_one();
    }

    pub(crate) fn notify_all(&self) {
        self.0.notify_all();
    }
}

/// Makes `count` zeroed words zero: an explorer's atomics hold more than a number.
///
/// # Safety
///
/// `at` names `count` words that no other thread uses yet.
#[allow(unsafe_code)]
pub(crate) unsafe fn zero_words(at: *mut AtomicU64, count: usize) {
    for i in 0..count {
        // SAFETY: the caller's promise.
        unsafe { at.add(i).write(AtomicU64::new(0)) };
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
