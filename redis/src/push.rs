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
use crate::link::{Connection, Ended, Link, SecondKeys};
use crate::shared::Shared;
use crate::trace;
use crate::tracking::Push;
use redis::PushInfo;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Weak};

/// The push handler of one connection. It holds the near cache weakly: the near cache owns the
/// connection, and the connection owns the handler.
pub(crate) struct PushHandler<K, V, S> {
    shared: Weak<Shared<K, V, S>>,
    generation: u64,
    ended: Ended,
    /// Of a second connection: the keys that were read over it.
    second_keys: Option<Arc<SecondKeys>>,
}

impl<K, V, S> PushHandler<K, V, S> {
    /// The handler of a connection that ends its generation, whose end it marks.
    pub(crate) fn of_main(shared: Weak<Shared<K, V, S>>, generation: u64, ended: Ended) -> Self {
        Self {
            shared,
            generation,
            ended,
            second_keys: None,
        }
    }

    /// The handler of a second connection.
    pub(crate) fn of_second(shared: Weak<Shared<K, V, S>>, generation: u64) -> Self {
        Self {
            shared,
            generation,
            ended: Ended::default(),
            second_keys: Some(Arc::default()),
        }
    }

    pub(crate) fn ended(&self) -> Ended {
        self.ended.clone()
    }

    pub(crate) fn is_of_main(&self) -> bool {
        self.second_keys.is_none()
    }

    pub(crate) fn second_keys(&self) -> Arc<SecondKeys> {
        self.second_keys.clone().unwrap_or_default()
    }
}

impl<K: Key, V: Val, S: Hasher> PushHandler<K, V, S> {
    /// Applies one message.
    pub(crate) fn handle_push(&self, push: PushInfo) {
        let push = Push::from(push);
        if push == Push::Disconnection {
            // `Shared::up`: first the mark, then the look whether this is the current generation.
            self.ended.mark();
        }
        let Some(shared) = self.shared.upgrade() else {
            return;
        };
        match push {
            Push::Disconnection => match &self.second_keys {
                None => shared.lost(self.generation, closed()),
                Some(keys) => shared.lost_second(self.generation, keys),
            },
            _ if !shared.line.is_current(self.generation) => shared.counters.ignored_push(),
            Push::Unknown => shared.counters.ignored_push(),
            Push::Everything => shared.outdate(self.generation),
            Push::Keys(keys) => shared.invalidate(self.generation, &keys),
        }
    }
}

impl<K: Key, V: Val, S: Hasher> Shared<K, V, S> {
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

    /// A second connection is not used any more.
    pub(crate) fn give_up_second(&self, generation: u64, second: &Connection) {
        second.ended.mark();
        self.lost_second(generation, &second.second_keys);
    }

    /// A second connection has ended: what it brought is not served any more.
    pub(crate) fn lost_second(&self, generation: u64, keys: &SecondKeys) {
        match keys.all() {
            Some(keys) => self.invalidate(generation, &keys),
            None => self.outdate(generation),
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
        // The connection may have ended before it was stored: `handle_push` marks the link first
        // and calls `lost` second, this stores the link first and looks at the mark second.
        if link.has_ended() {
            self.lost(link.generation(), closed());
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
