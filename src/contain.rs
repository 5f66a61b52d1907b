//! Panics that go no further: those of user code that runs on somebody else's call, or on nobody's.

use std::panic::{AssertUnwindSafe, catch_unwind};

/// Runs user code whose panic ends here; `None` if it panicked. The process's panic hook has
/// reported it by then.
pub(crate) fn contain<T>(code: impl FnOnce() -> T) -> Option<T> {
    match catch_unwind(AssertUnwindSafe(code)) {
        Ok(answer) => Some(answer),
        Err(payload) => {
            // What the panic carried is the user's too, and may panic when it is dropped, which
            // carries something in its turn. After a few of these it is left alone.
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
