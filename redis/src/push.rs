//! The push handler: what the server reports without a request.
//!
//! The handler runs on the task that reads the connection, before that task hands out any later
//! reply. So when a reply is handed out, all invalidations that the server sent before it have been
//! applied. The handler never awaits. It invalidates keys in the local cache, or moves the stamp
//! and leaves the removal to the cleaner. Removal listeners run on other threads, so they may call
//! the near cache.

use crate::config::OnDisconnect;
use crate::error::NearError;
use crate::key::{Hasher, Key, Val};
use crate::link::Link;
use crate::shared::Shared;
use crate::trace;
use crate::tracking::Push;
use redis::PushInfo;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

impl<K: Key, V: Val, S: Hasher> Shared<K, V, S> {
    /// Applies a message that came over a main connection of this generation.
    pub(crate) fn handle_push(&self, generation: u64, push: PushInfo) {
        match Push::from(push) {
            // `Shared::up`: the end is marked already.
            Push::Disconnection => self.lost(generation, closed()),
            _ if !self.line.is_current(generation) => self.counters.ignored_push(),
            Push::Unknown => self.counters.ignored_push(),
            Push::Everything => self.outdate(generation),
            Push::Keys(keys) => self.invalidate(generation, &keys),
        }
    }

    /// These keys are not served any more from what was read on this generation.
    fn invalidate(&self, generation: u64, keys: &[Vec<u8>]) {
        let invalidate = || {
            for bytes in keys {
                match self.keys.key::<K>(bytes) {
                    // This revokes the current load of the key, too.
                    Some(key) => {
                        self.local.invalidate(&key);
                        self.counters.invalidated_key();
                        self.reports.tell(bytes);
                    }
                    // No key of this near cache.
                    None => self.counters.foreign_key(),
                }
            }
        };
        // The key's `Hash` or `Eq` may panic. A key that could not be invalidated must not be
        // served: outdate everything.
        if catch_unwind(AssertUnwindSafe(invalidate)).is_err() {
            self.outdate(generation);
        }
    }

    /// No entry that is stored now is served any more; the cleaner removes these entries.
    fn outdate(&self, generation: u64) {
        if self.line.outdate(generation) {
            self.counters.invalidated_everything();
            self.flush_wanted.notify_one();
            self.reports.tell_all();
        }
    }

    /// A new connection: from now on it is used.
    pub(crate) fn up(&self, link: Arc<Link>) {
        self.line.up(link.clone());
        // The connection may have ended before it was stored: the mark is set first and `lost`
        // called second, this stores the link first and looks at the mark second.
        if link.ended.is_marked() {
            self.lost(link.generation, closed());
        }
    }

    /// The connection of this generation has ended.
    pub(crate) fn lost(&self, generation: u64, reason: NearError) {
        let keep_serving = matches!(self.settings.on_disconnect, OnDisconnect::ServeFor(_));
        if self.line.lost(generation, keep_serving) {
            self.counters.lost_connection();
            trace::lost(generation, &reason);
            self.set_fault(Some(reason));
            self.reports.tell_all();
        }
    }
}

/// The fault of a connection that the other side has ended.
fn closed() -> NearError {
    NearError::Disconnected {
        reason: "the server or the network closed the connection".into(),
    }
}
