//! What is asked of a cache, and when.

/// A sequence of requests. Times are nanoseconds.
pub(super) struct Requests {
    pub(super) keys: Vec<u64>,
    /// When each request comes; ascending.
    pub(super) times: Vec<u64>,
    /// How long the value of a key lives, from the request that missed it; `u64::MAX` for ever.
    pub(super) life: fn(u64) -> u64,
}

impl Requests {
    /// Requests for values that live for ever.
    pub(super) fn without_deadlines(keys: Vec<u64>) -> Self {
        Self {
            times: (0..keys.len() as u64).collect(),
            keys,
            life: |_| u64::MAX,
        }
    }

    /// Key, time and, for a value that is made now, deadline.
    pub(super) fn all(&self) -> impl Iterator<Item = (u64, u64, u64)> {
        let pairs = self.keys.iter().zip(&self.times);
        pairs.map(|(&key, &at)| (key, at, at.saturating_add((self.life)(key))))
    }

    /// Whether any value has a deadline.
    pub(super) fn expire(&self) -> bool {
        self.keys.iter().any(|&key| (self.life)(key) != u64::MAX)
    }
}
