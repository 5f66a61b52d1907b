//! Wakes the calls that wait for a report about a key.

use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;
use tokio::sync::Notify;
use tokio::sync::futures::Notified;

/// Keys share a bell by their hash, so a bell may ring for another key: the call looks again.
#[derive(Default)]
pub(crate) struct Reports {
    hasher: RandomState,
    bells: [Notify; 32],
}

impl Reports {
    fn bell(&self, key: &[u8]) -> &Notify {
        &self.bells[self.hasher.hash_one(key) as usize % self.bells.len()]
    }

    /// The next report about this key, from this call on.
    pub(crate) fn next(&self, key: &[u8]) -> Notified<'_> {
        self.bell(key).notified()
    }

    /// The server has reported this key, and its entry is gone.
    pub(crate) fn tell(&self, key: &[u8]) {
        self.bell(key).notify_waiters();
    }

    /// All entries are outdated, or the connection is lost.
    pub(crate) fn tell_all(&self) {
        self.bells.iter().for_each(Notify::notify_waiters);
    }
}
