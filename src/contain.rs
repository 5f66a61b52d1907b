//! Panics that go no further: those of user code that runs on a thread whose call has nothing to do
//! with it, or on a thread of the crate.

use std::panic::{AssertUnwindSafe, catch_unwind};

/// Runs user code whose panic ends here; `None` if it panicked. The process's panic hook has
/// reported it by then.
pub(crate) fn contain<T>(code: impl FnOnce() -> T) -> Option<T> {
    match catch_unwind(AssertUnwindSafe(code)) {
        Ok(answer) => Some(answer),
        Err(payload) => {
            // The payload is the user's too. It may panic when it is dropped, with a payload in
            // its turn. After a few of these the last one is leaked.
            let mut carried = payload;
            for _ in 0..3 {
                match catch_unwind(AssertUnwindSafe(move || drop(carried))) {
                    Ok(()) => return None,
                    Err(next) => carried = next,
                }
            }
            std::mem::forget(carried);
            None
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_whose_payload_panics_ends_here() {
        struct Bomb;
        impl Drop for Bomb {
            fn drop(&mut self) {
                panic!("told to panic in the drop of a payload");
            }
        }
        assert_eq!(contain(|| 1), Some(1));
        assert_eq!(contain(|| -> u8 { std::panic::panic_any(Bomb) }), None);
    }
}
