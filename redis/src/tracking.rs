//! The commands and messages of the server's tracking.

use crate::config::{Settings, Tracking};
use redis::{Cmd, PushInfo, PushKind, Value};

/// The command that turns tracking on.
///
/// Without `NOLOOP`: the server reports our own writes, too. The server may execute two writes of
/// one process in another order than the process began them. The report of the write that is
/// executed last invalidates each value that was read between the two.
pub(crate) fn command(settings: &Settings) -> Cmd {
    let mut cmd = redis::cmd("CLIENT");
    cmd.arg("TRACKING").arg("ON");
    match &settings.tracking {
        Tracking::Default => {}
        Tracking::OptIn => {
            cmd.arg("OPTIN");
        }
        Tracking::Broadcast { prefixes } => {
            cmd.arg("BCAST");
            for prefix in prefixes {
                cmd.arg("PREFIX").arg(prefix);
            }
        }
    }
    cmd
}

/// The content of a push message.
#[derive(Debug, PartialEq)]
pub(crate) enum Push {
    /// These keys changed, or the server no longer tracks them for this client.
    Keys(Vec<Vec<u8>>),
    /// Every key changed (`FLUSHALL`, `FLUSHDB`).
    Everything,
    /// The client library reports the end of the connection.
    Disconnection,
    /// Something else, which has no effect.
    Unknown,
}

impl From<PushInfo> for Push {
    fn from(info: PushInfo) -> Self {
        match info.kind {
            PushKind::Disconnection => Self::Disconnection,
            PushKind::Invalidate => invalidation(info.data),
            _ => Self::Unknown,
        }
    }
}

fn invalidation(mut data: Vec<Value>) -> Push {
    match data.pop() {
        Some(Value::Nil) if data.is_empty() => Push::Everything,
        Some(keys @ Value::Array(_)) if data.is_empty() => match redis::from_redis_value(keys) {
            Ok(keys) => Push::Keys(keys),
            // A key that cannot be read may be any key.
            Err(_) => Push::Everything,
        },
        _ => Push::Unknown,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn push(kind: PushKind, data: Vec<Value>) -> Push {
        PushInfo { kind, data }.into()
    }

    fn bulk(text: &str) -> Value {
        Value::BulkString(text.as_bytes().to_vec())
    }

    #[test]
    fn null_is_everything_an_array_all_its_keys_and_the_unknown_nothing() {
        use PushKind::{Disconnection, Invalidate, Message, Other};
        assert_eq!(push(Invalidate, vec![Value::Nil]), Push::Everything);
        let two = vec![Value::Array(vec![bulk("a"), bulk("b")])];
        let keys = Push::Keys(vec![b"a".to_vec(), b"b".to_vec()]);
        assert_eq!(push(Invalidate, two), keys);
        let none = vec![Value::Array(vec![])];
        assert_eq!(push(Invalidate, none), Push::Keys(vec![]));
        let unreadable = vec![Value::Array(vec![bulk("a"), Value::Int(7)])];
        assert_eq!(push(Invalidate, unreadable), Push::Everything);
        assert_eq!(push(Invalidate, vec![]), Push::Unknown);
        assert_eq!(push(Invalidate, vec![Value::Int(1)]), Push::Unknown);
        assert_eq!(push(Message, vec![bulk("a"), bulk("b")]), Push::Unknown);
        let other = Other("server-cpu-usage".into());
        assert_eq!(push(other, vec![Value::Nil]), Push::Unknown);
        assert_eq!(push(Disconnection, vec![]), Push::Disconnection);
    }

    #[test]
    fn the_command_names_the_mode_and_the_prefixes() {
        let sent = |tracking| {
            let settings = Settings {
                tracking,
                ..Settings::default()
            };
            let packed = command(&settings).get_packed_command();
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
