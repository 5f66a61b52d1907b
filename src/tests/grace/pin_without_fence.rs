//! The protocol with a pin that is made known at leisure.

mod door {
    use crate::sync::Ordering;
    pub(super) use crate::sync::{AtomicU64, Mutex, fence};

    pub(super) fn store_before_loads(word: &AtomicU64, value: u64) {
        word.store(value, Ordering::Release);
    }
}

#[path = "../../reclaim/epoch.rs"]
#[expect(dead_code, reason = "what a thread does at its end is its own matter")]
mod epoch;
#[path = "models.rs"]
#[expect(dead_code, reason = "one of them is enough to fail")]
pub(super) mod models;
