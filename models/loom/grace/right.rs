//! The protocol as it is.

mod atomics {
    pub(super) use crate::sync::{AtomicU64, Mutex, fence as grace_fence, fence as pin_fence};
}

#[path = "models.rs"]
pub(super) mod models;
#[path = "../../../src/reclaim/own.rs"]
#[expect(dead_code, reason = "the models of the protocol end no thread")]
mod own;
