//! Tracking: the command that turns it on, and the push handler, which gets what the server reports
//! without a request.
//!
//! The handler runs on the task that reads the connection, before that task hands out any later
//! reply. So when a reply is handed out, all invalidations that the server sent before it have been
//! applied. The handler never awaits. It invalidates keys in the local cache, or moves the stamp
//! and leaves the removal to the cleaner. Removal listeners run on other threads, so they may call
//! the near cache.

use crate::config::{OnDisconnect, Settings, Tracking};
use crate::error::NearError;
use crate::key::{Hasher, Key, Val};
use crate::link::Link;
use crate::shared::Shared;
use crate::trace;
use redis::{Cmd, PushInfo, PushKind, Value};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

/// The command that turns tracking on.
///
/// Without `NOLOOP`: the server reports our own writes, too. The server may execute two writes of
/// one process in another order than the process began them. The report of the write that is
/// executed last invalidates each value that was read between the two.
pub(crate) fn tracking(settings: &Settings) -> Cmd {
    let mut cmd = redis::cmd("CLIENT");
    cmd.arg("TRACKING").arg("ON");
    match &settings.tracking {
        Tracking::Default => {}
        Tracking::OptIn => {
            cmd.arg("OPTIN");
        }
        Tracking::Broadcast { prefixes } => {
            cmd.arg("BCAST");
            let own = &settings.key_prefix;
            if prefixes.is_empty() && !own.is_empty() {
                cmd.arg("PREFIX").arg(own);
            }
            for prefix in prefixes {
                cmd.arg("PREFIX").arg(prefix);
            }
        }
    }
    cmd
}

/// What an invalidation says.
#[derive(Debug, PartialEq)]
enum Changed {
    /// These keys changed, or the server no longer tracks them for this client.
    Keys(Vec<Vec<u8>>),
    /// Every key changed (`FLUSHALL`, `FLUSHDB`).
    Everything,
}

/// What the data of an invalidation say; `None`: nothing that is known.
fn changed(mut data: Vec<Value>) -> Option<Changed> {
    let bytes = |key| match key {
        Value::BulkString(bytes) => Some(bytes),
        _ => None,
    };
    match data.pop() {
        Some(Value::Nil) if data.is_empty() => Some(Changed::Everything),
        // A key that cannot be read may be any key.
        Some(Value::Array(keys)) if data.is_empty() => {
            let keys: Option<Vec<_>> = keys.into_iter().map(bytes).collect();
            Some(keys.map_or(Changed::Everything, Changed::Keys))
        }
        _ => None,
    }
}

impl<K: Key, V: Val, S: Hasher> Shared<K, V, S> {
    /// Applies a message that came over a main connection of this generation.
    pub(crate) fn handle_push(&self, generation: u64, push: PushInfo) {
        let is_current = self.line.is_current(generation);
        match push.kind {
            // `Shared::up`: the end is marked already.
            PushKind::Disconnection => self.lost(generation, closed()),
            PushKind::Invalidate if is_current => match changed(push.data) {
                Some(Changed::Keys(keys)) => self.invalidate(generation, &keys),
                Some(Changed::Everything) => self.outdate(generation),
                None => self.counters.ignored_push(),
            },
            _ => self.counters.ignored_push(),
        }
    }

    /// These keys are not served any more from what was read on this generation.
    fn invalidate(&self, generation: u64, keys: &[Vec<u8>]) {
        let invalidate = || {
            for bytes in keys {
                match self.settings.key::<K>(bytes) {
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

#[cfg(test)]
mod tests {
    use super::*;

    fn bulk(text: &str) -> Value {
        Value::BulkString(text.as_bytes().to_vec())
    }

    #[test]
    fn null_is_everything_an_array_all_its_keys_and_the_unknown_nothing() {
        assert_eq!(changed(vec![Value::Nil]), Some(Changed::Everything));
        let two = vec![Value::Array(vec![bulk("a"), bulk("b")])];
        let keys = Changed::Keys(vec![b"a".to_vec(), b"b".to_vec()]);
        assert_eq!(changed(two), Some(keys));
        let none = vec![Value::Array(vec![])];
        assert_eq!(changed(none), Some(Changed::Keys(vec![])));
        for unreadable in [Value::Int(7), Value::Nil] {
            let keys = vec![Value::Array(vec![bulk("a"), unreadable])];
            assert_eq!(changed(keys), Some(Changed::Everything));
        }
        assert_eq!(changed(vec![]), None);
        assert_eq!(changed(vec![Value::Int(1)]), None);
        assert_eq!(changed(vec![Value::Nil, Value::Nil]), None);
    }

    #[test]
    fn the_command_names_the_mode_and_the_prefixes() {
        let sent = |tracking| {
            let settings = Settings {
                tracking,
                ..Settings::default()
            };
            let packed = super::tracking(&settings).get_packed_command();
            String::from_utf8(packed).unwrap().replace("\r\n", " ")
        };
        let prefixes = vec!["a:".to_string(), "b:".to_string()];
        let all = sent(Tracking::Broadcast { prefixes });
        assert!(sent(Tracking::Default).ends_with("$8 TRACKING $2 ON "));
        assert!(sent(Tracking::OptIn).ends_with("$2 ON $5 OPTIN "));
        assert!(all.ends_with("$5 BCAST $6 PREFIX $2 a: $6 PREFIX $2 b: "));
        assert!(!all.contains("NOLOOP"));
    }
}
