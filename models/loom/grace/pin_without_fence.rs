//! The protocol without the fence of the pin: its store may reach other threads after its loads.

mod atomics {
    use crate::sync::Ordering;
    pub(super) use crate::sync::{AtomicU64, Mutex, fence as grace_fence};

    pub(super) fn pin_fence(_: Ordering) {}
}

#[path = "models.rs"]
#[expect(dead_code, reason = "one or two of them are enough to fail")]
pub(super) mod models;
#[path = "../../../src/reclaim/own.rs"]
#[expect(dead_code, reason = "the models of the protocol end no thread")]
mod own;
