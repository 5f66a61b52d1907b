//! Atomics of 64 bits: the standard library's, or those of the crate portable-atomic on a target
//! whose processor has none.

#[cfg(not(target_has_atomic = "64"))]
pub(crate) use portable_atomic::{AtomicI64, AtomicU64};
#[cfg(target_has_atomic = "64")]
pub(crate) use std::sync::atomic::{AtomicI64, AtomicU64};

#[cfg(not(any(target_has_atomic = "64", feature = "portable-atomic")))]
compile_error!(
    "this target has no atomics of 64 bits: build wheelhouse with its feature `portable-atomic`"
);
