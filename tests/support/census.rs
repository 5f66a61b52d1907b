//! Values that count their drops.

use std::hash::{Hash, Hasher};
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

/// Counts the living `Counted` values made by it.
#[derive(Clone, Default)]
pub struct Census(Arc<AtomicI64>);

impl Census {
    pub fn counted<T>(&self, payload: T) -> Counted<T> {
        self.0.fetch_add(1, Ordering::SeqCst);
        Counted {
            payload,
            census: self.clone(),
        }
    }

    pub fn alive(&self) -> i64 {
        self.0.load(Ordering::SeqCst)
    }
}

/// A payload whose lifetime is counted: a leak shows as a positive count, a double drop as a
/// negative one.
pub struct Counted<T> {
    pub payload: T,
    census: Census,
}

impl<T: Clone> Clone for Counted<T> {
    fn clone(&self) -> Self {
        self.census.counted(self.payload.clone())
    }
}

impl<T> Drop for Counted<T> {
    fn drop(&mut self) {
        self.census.0.fetch_sub(1, Ordering::SeqCst);
    }
}

impl<T: PartialEq> PartialEq for Counted<T> {
    fn eq(&self, other: &Self) -> bool {
        self.payload == other.payload
    }
}

impl<T: Eq> Eq for Counted<T> {}

impl<T: Hash> Hash for Counted<T> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.payload.hash(state);
    }
}
