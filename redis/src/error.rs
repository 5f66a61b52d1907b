//! Errors, and what a caller can do about each.

use redis::{ErrorKind, RedisError, ServerErrorKind};
use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

/// An error of a user's codec, load or provider, shared by all callers that waited for the same
/// load.
pub type CodecError = Arc<dyn Error + Send + Sync>;

/// Why a call of the near cache failed; the message says what to do.
///
/// It is cheap to clone: tasks that wait for the same load share one error.
///
/// ```
/// use wheelhouse_redis::NearError;
///
/// let error = NearError::Closed;
/// assert_eq!(
///     error.to_string(),
///     "the near cache was closed: make no calls after `close`, or connect a new one"
/// );
/// ```
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum NearError {
    /// A setting of the builder is invalid.
    #[error("{0}")]
    Config(String),
    /// The first connection could not be made.
    #[error("could not connect to {server}: {source}; {}", what_to_do(source))]
    Connect {
        /// The address that was tried.
        server: String,
        /// The message of the client or the server.
        source: Arc<RedisError>,
    },
    /// The server did not answer while a connection was being made.
    #[error(
        "{server} did not complete the handshake within {waited:?}; check that the server runs and is \
         reachable, or allow more with `connect_timeout`"
    )]
    ConnectTimedOut {
        /// The address that was tried.
        server: String,
        /// `connect_timeout`.
        waited: Duration,
    },
    /// The server is no primary: after a failover, until the address leads to the new one.
    #[error(
        "{server} is no primary, its role is {role:?}; let the address lead to the primary, or use \
         `sentinel_builder` (feature `sentinel`)"
    )]
    NotPrimary {
        /// The address of the server.
        server: String,
        /// The role that it has.
        role: String,
    },
    /// The provider of credentials failed.
    #[error("the provider has no credentials for {server}: {source}; check the provider")]
    Credentials {
        /// The address that was tried.
        server: String,
        /// The error of the provider.
        source: CodecError,
    },
    /// The server does not speak RESP3, so it cannot tell which keys change.
    #[error(
        "{server} does not speak RESP3, which invalidation needs ({source}); use Redis 6 or later or \
         Valkey, without a proxy that speaks only RESP2"
    )]
    Resp3NotSupported {
        /// The address of the server.
        server: String,
        /// The message of the server.
        source: Arc<RedisError>,
    },
    /// The server refused `CLIENT TRACKING`.
    #[error(
        "{server} refused CLIENT TRACKING: {source}; check the prefixes of `Tracking::Broadcast` and \
         that the user's ACL allows `+client|tracking`"
    )]
    TrackingRefused {
        /// The address of the server.
        server: String,
        /// The message of the server.
        source: Arc<RedisError>,
    },
    /// There was no connection for the whole time that the call may take, or the attempts to
    /// connect fail, and the call did not wait. Nothing was sent.
    #[error(
        "no connection to the server (waited {waited:?}{}); nothing was sent, the near cache goes on \
         trying: call again later, or allow more with `request_timeout` and `fail_fast_after`",
        last_attempt("attempt", last)
    )]
    Unavailable {
        /// How long the call waited for a connection; zero if it failed at once.
        waited: Duration,
        /// Why the last attempt to connect failed, if one was made.
        #[source]
        last: Option<Box<NearError>>,
    },
    /// The server did not answer a read in time, or what a write waits for. Nothing of the write
    /// was sent.
    #[error(
        "the server did not answer within {waited:?}{}; call again, or allow more with \
         `request_timeout`",
        last_attempt("reply", last)
    )]
    TimedOut {
        /// How long no answer came: `request_timeout`.
        waited: Duration,
        /// The last reply of the server, if it said that it could not answer yet; or why the last
        /// attempt to make a second connection has failed, if a key waits for one.
        #[source]
        last: Option<Box<NearError>>,
    },
    /// A write was sent, but no reply came: it may have happened or not.
    #[error(
        "the write was sent, but not confirmed ({reason}); it may have happened: read the key again, \
         or repeat the write if that is safe and the value within the server's `proto-max-bulk-len`"
    )]
    Unconfirmed {
        /// The reason why the wait ended.
        reason: String,
    },
    /// The connection ended while the reply was awaited.
    #[error(
        "the connection ended before the reply came ({reason}); call again: the near cache reconnects \
         by itself"
    )]
    Disconnected {
        /// The message of the client.
        reason: String,
    },
    /// The server replied with an error.
    #[error("the server replied with an error: {}; {}", .0, what_to_do(.0))]
    Server(#[source] Arc<RedisError>),
    /// The key holds no string, but a list, a hash or the like.
    #[error("key {key:?} holds no string: {source}; use another key, or delete this one")]
    WrongType {
        /// The key, as the server has it.
        key: String,
        /// The message of the server.
        source: Arc<RedisError>,
    },
    /// A connection has ended at least twice in a row while the server was asked for this key, so
    /// the key is not asked for now. Other keys are.
    #[error(
        "key {key:?} is not asked for during {left:?}: {losses} connections in a row ended while its \
         value was awaited; check the size of the value and the server's `client-output-buffer-limit`"
    )]
    Refused {
        /// The key, as the server has it.
        key: String,
        /// How many connections have ended.
        losses: u32,
        /// How long the key is still refused. The time doubles with each loss, from 100 ms to
        /// a minute.
        left: Duration,
    },
    /// The server replied to a read with something that the command never returns. The near cache
    /// has given the connection up, since later replies may be those of other requests.
    #[error(
        "the server replied with {0}, which the command never returns; check what stands between the \
         near cache and the server"
    )]
    Protocol(String),
    /// A value could not be encoded.
    #[error("the value could not be encoded: {0}; check the codec")]
    Encode(#[source] CodecError),
    /// The bytes that the server holds could not be decoded.
    #[error(
        "the value of key {key:?} could not be decoded: {source}; check that all writers of the key \
         use the same codec and type"
    )]
    Decode {
        /// The key, as the server has it.
        key: String,
        /// The message of the codec.
        source: CodecError,
    },
    /// `from_bytes` does not give the key that `write_bytes` wrote, so the near cache could not
    /// invalidate it.
    #[error(
        "key {key:?} does not come back from its own bytes; correct `NearKey`: `from_bytes` must \
         invert `write_bytes`"
    )]
    Key {
        /// The key, as the server has it.
        key: String,
    },
    /// The load of `get_with` or `try_get_with` failed: that of this call, or of the call which led
    /// the load. `downcast_ref` gives its type back.
    #[error("the load of the value failed: {0}; nothing was kept, the next call loads anew")]
    Load(#[source] CodecError),
    /// Another process has loaded the value for longer than the `longest_wait` of `load_lock`.
    #[error(
        "another process has loaded key {key:?} for {waited:?} without an end: allow more with \
         `LoadLock::longest_wait`, or bound the load"
    )]
    LoadTimedOut {
        /// The key, as the server has it.
        key: String,
        /// The longest wait.
        waited: Duration,
    },
    /// The user may not run the scripts of loads, or a command in them, or may not write the key.
    #[error(
        "{server} does not let the user run the scripts of `get_with`: {source}; give the user \
         `+eval +get +pttl +set +pexpire` and `~` keys by ACL rules, or use `LoadLock::off()`"
    )]
    LoadsDenied {
        /// The address of the server.
        server: String,
        /// The message of the server.
        source: Arc<RedisError>,
    },
    /// The time to live of a write is zero.
    #[error("ttl is 0ns, but must be above zero: use `None` for no deadline, or `delete`")]
    ZeroTtl,
    /// The near cache was closed.
    #[error("the near cache was closed: make no calls after `close`, or connect a new one")]
    Closed,
}

impl NearError {
    /// Returns whether the same call may succeed later without any change: the server is away,
    /// slow, or was not reached.
    ///
    /// After [`Unconfirmed`](Self::Unconfirmed) a write may have happened already.
    ///
    /// ```
    /// use wheelhouse_redis::NearError;
    ///
    /// assert!(!NearError::ZeroTtl.is_transient());
    /// ```
    #[must_use]
    pub fn is_transient(&self) -> bool {
        matches!(
            self,
            Self::Connect { .. }
                | Self::ConnectTimedOut { .. }
                | Self::NotPrimary { .. }
                | Self::Credentials { .. }
                | Self::Refused { .. }
                | Self::Unavailable { .. }
                | Self::TimedOut { .. }
                | Self::Unconfirmed { .. }
                | Self::Disconnected { .. }
                | Self::LoadTimedOut { .. }
        ) || matches!(self, Self::Server(error) if error.code() == Some("BUSY"))
    }

    /// Whether the server did not accept the user or the password.
    pub(crate) fn is_authentication(&self) -> bool {
        matches!(self, Self::Connect { source, .. } if refuses_user(source))
    }

    /// The error of an attempt to connect to `server`.
    pub(crate) fn connecting(server: &str, error: RedisError) -> Self {
        let server = server.to_string();
        let says_so = |text: &str| {
            let text = text.to_ascii_lowercase();
            text.contains("noproto") || (text.contains("hello") && text.contains("unknown command"))
        };
        let resp3 = error.kind() == redis::ErrorKind::RESP3NotSupported
            || error.code() == Some("NOPROTO")
            || error.detail().is_some_and(says_so);
        let source = Arc::new(error);
        if resp3 {
            Self::Resp3NotSupported { server, source }
        } else {
            Self::Connect { server, source }
        }
    }

    /// The same error, which names the key where the key is the reason.
    pub(crate) fn of_key(self, bytes: &[u8]) -> Self {
        match self {
            Self::Server(source) if source.code() == Some("WRONGTYPE") => Self::WrongType {
                key: display_key(bytes),
                source,
            },
            other => other,
        }
    }

    /// The error of a request on a connection that was up.
    pub(crate) fn requesting(error: RedisError) -> Self {
        if error.is_unrecoverable_error() || error.is_io_error() {
            Self::Disconnected {
                reason: error.to_string(),
            }
        } else {
            Self::Server(Arc::new(error))
        }
    }
}

fn refuses_user(error: &RedisError) -> bool {
    error.kind() == ErrorKind::AuthenticationFailed
        || matches!(error.code(), Some("WRONGPASS" | "NOAUTH"))
}

/// Whether the user lacks a right: outside a script, or inside one, where Redis 7.0 and earlier
/// versions have other words than later ones and Valkey.
pub(crate) fn is_denied(error: &RedisError) -> bool {
    let text = error.to_string();
    let says = |what| text.contains(what);
    error.code() == Some("NOPERM") || says("ACL failure in script") || says("the script can't")
}

/// A key as a message shows it.
pub(crate) fn display_key(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// The treatment of an error of the client or the server.
fn what_to_do(error: &RedisError) -> &'static str {
    use ServerErrorKind::{
        Ask, BusyLoading, ClusterDown, CrossSlot, MasterDown, Moved, NoPerm, ReadOnly, TryAgain,
    };
    let says = |text| error.to_string().contains(text);
    match error.kind() {
        ErrorKind::Server(Moved | Ask | CrossSlot) => {
            "it is a node of a cluster: use `cluster_builder` (feature `cluster`)"
        }
        ErrorKind::Server(BusyLoading | ClusterDown | MasterDown | ReadOnly | TryAgain) => {
            "it does not serve now: the near cache goes on trying, call again later"
        }
        ErrorKind::Server(NoPerm) => "give the user the right by an ACL rule",
        _ if refuses_user(error) => {
            "check the user and the password, and that neither ends in a line break"
        }
        _ if error.code() == Some("BUSY") => "a script blocks it: call again later",
        _ if says("max number of clients") => {
            "allow more clients with the server's `maxclients`, or end idle ones"
        }
        _ if says("invalid bulk length") => {
            "the value is above the server's `proto-max-bulk-len`: allow more, or write less"
        }
        _ if says("certificate") => {
            "trust the server's certificate: give `Client::build_with_tls` the CA that has signed it"
        }
        _ if error.is_io_error() || error.is_unrecoverable_error() => {
            "check the address, and that the server runs and is reachable"
        }
        _ => "check the settings of the client, the user's rights, and the server's memory and log",
    }
}

fn last_attempt(what: &str, last: &Option<Box<NearError>>) -> String {
    let last = last.as_ref();
    last.map_or(String::new(), |last| format!(", last {what}: {last}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As the TLS library says it: the server is there.
    #[test]
    fn a_certificate_that_is_not_trusted_is_named() {
        let untrusted = std::io::Error::other("invalid peer certificate: UnknownIssuer");
        let message = NearError::connecting("db:6379", untrusted.into()).to_string();
        let advice = "trust the server's certificate";
        assert!(message.contains(advice), "{message}");
        assert!(!message.contains("is reachable"), "{message}");
    }

    /// What servers say during an ordinary failover, and what cannot be told by settings.
    #[test]
    fn errors_of_a_failover_do_not_blame_the_settings() {
        use ServerErrorKind::{BusyLoading, ClusterDown, MasterDown, ReadOnly, TryAgain};
        for kind in [BusyLoading, ClusterDown, MasterDown, ReadOnly, TryAgain] {
            let error = || RedisError::from((ErrorKind::Server(kind), "said in a failover"));
            let connecting = NearError::connecting("db:6379", error());
            let requesting = NearError::requesting(error());
            for message in [connecting.to_string(), requesting.to_string()] {
                assert!(!message.contains("check the"), "{message}");
            }
        }
        let kinds = [
            std::io::ErrorKind::ConnectionRefused,
            std::io::ErrorKind::ConnectionReset,
            std::io::ErrorKind::UnexpectedEof,
        ];
        for kind in kinds {
            let error = RedisError::from(std::io::Error::from(kind));
            let message = NearError::connecting("db:6379", error).to_string();
            assert!(message.contains("that the server runs"), "{message}");
        }
    }
}
