//! The protocol with a grace period whose looks may be taken before the objects are out of reach.

mod door {
    use crate::sync::Ordering;
    pub(super) use crate::sync::{AtomicU64, Mutex, store_before_loads};

    pub(super) fn fence(_: Ordering) {}
}

#[path = "../../reclaim/epoch.rs"]
#[expect(dead_code, reason = "what a thread does at its end is its own matter")]
mod epoch;
#[path = "models.rs"]
#[expect(dead_code, reason = "one of them is enough to fail")]
pub(super) mod models;
