//! An explorer's types, wrapped to look like the plain ones.

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
