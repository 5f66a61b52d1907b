//! Panics. Those of user code are caught if it runs on a thread of the crate, or during a call that
//! has nothing to do with that code. The crate's own name the cache.

use std::mem::needs_drop;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Runs user code and catches its panic; `None` if it panicked. The process's panic hook has
/// reported the panic before.
pub(crate) fn contain<T>(code: impl FnOnce() -> T) -> Option<T> {
    match catch_unwind(AssertUnwindSafe(code)) {
        Ok(answer) => Some(answer),
        Err(payload) => {
            // The panic's payload is a value of the user's, too. Its drop may panic with another
            // payload, which is leaked.
            let dropped = catch_unwind(AssertUnwindSafe(|| drop(payload)));
            dropped.unwrap_or_else(std::mem::forget);
            None
        }
    }
}

/// Drops what is the user's. A panic of its destructor ends here.
#[inline]
pub(crate) fn let_go<T>(value: T) {
    if needs_drop::<T>() {
        contain(|| drop(value));
    }
}

/// A value of the user's that is [let go](let_go) with this.
#[derive(Debug)]
pub(crate) struct LetGo<T>(Option<T>);

impl<T> LetGo<T> {
    #[inline]
    pub(crate) fn new(value: T) -> Self {
        Self(Some(value))
    }

    #[inline]
    pub(crate) fn get(&self) -> &T {
        self.0.as_ref().expect("it was not taken")
    }

    /// The value, which is the caller's from now on.
    #[inline]
    pub(crate) fn take(&mut self) -> T {
        self.0.take().expect("it was not taken")
    }
}

impl<T> Drop for LetGo<T> {
    #[inline]
    fn drop(&mut self) {
        let_go(self.0.take());
    }
}

/// Values of the user's that are [let go](let_go) with this, one by one.
pub(crate) struct LetGoEach<T>(pub(crate) Vec<T>);

impl<T> Drop for LetGoEach<T> {
    fn drop(&mut self) {
        self.0.drain(..).for_each(let_go);
    }
}

/// A value, and what is done with it when this is dropped: at the end of a block, also where a
/// panic ends it.
#[must_use]
pub(crate) struct AtEnd<T, F: FnMut(&mut T)>(pub(crate) T, pub(crate) F);

impl<T, F: FnMut(&mut T)> Drop for AtEnd<T, F> {
    #[inline]
    fn drop(&mut self) {
        (self.1)(&mut self.0);
    }
}

/// A message with the name of its cache in front, if the cache has one.
pub(crate) fn with_name(name: Option<&str>, message: &str) -> String {
    match name {
        Some(name) => format!("cache {name:?}: {message}"),
        None => message.to_string(),
    }
}

#[cfg(test)]
mod tests;
