//! Requests to the server: a read is one pipeline of `GETRANGE` and `PTTL`.
//!
//! Over the main connection a read asks for no more than the first bytes of a value, so that no
//! reply there is long. A value that is large comes over the second connection by `GET`.

use crate::config::Tracking;
use crate::connection::Connection;
use crate::error::NearError;
use crate::link::{Link, Node};
use crate::suspects::Way;
use redis::{Cmd, FromRedisValue, ParsingError, Pipeline, RedisError, ServerErrorKind, Value};
use std::sync::Arc;
use std::time::Duration;

/// The value of a key, and how long the server keeps it.
#[derive(Debug, PartialEq)]
pub(crate) struct Reply {
    pub(crate) value: Option<Vec<u8>>,
    /// How long the server keeps the value at least, from when the request was sent; `None`: it has
    /// no deadline.
    pub(crate) life: Option<Duration>,
    /// Whether the server reports changes of the key after this read.
    pub(crate) tracked: bool,
}

/// Why a request brought no reply that can be used.
#[derive(Clone, Debug)]
pub(crate) enum RequestError {
    /// The connection has ended.
    Lost(NearError),
    /// The second connection has ended, or is silent.
    LostSecond,
    /// This node does not serve the key now: another one does, or the node is no primary any more,
    /// or it reads its file. It has executed nothing.
    Moved(NearError),
    /// The node at this address has the key, while its slot moves.
    Ask(String),
    /// The server cannot answer at the moment.
    Later(NearError),
    /// The value has so many bytes, more than the main connection was asked for.
    Large(usize),
    /// The same request will fail again.
    Failed(NearError),
    /// A reply of a type that the command never returns: it may be that of another request, and
    /// so may be all that follow on this connection.
    OutOfStep(NearError),
}

impl RequestError {
    pub(crate) fn of(error: RedisError, cluster: bool) -> Self {
        use ServerErrorKind::{
            Ask, BusyLoading, ClusterDown, MasterDown, Moved, ReadOnly, TryAgain,
        };
        let redirect = error.redirect_node();
        let redirect = redirect.map(|(address, _slot)| address.to_string());
        let kind = match error.kind() {
            redis::ErrorKind::Server(kind) => Some(kind),
            _ => None,
        };
        let busy = error.code() == Some("BUSY");
        let error = NearError::requesting(error);
        match (kind, redirect, &error) {
            (_, _, NearError::Disconnected { .. }) => Self::Lost(error),
            (Some(BusyLoading | MasterDown | ReadOnly), ..) => Self::Moved(error),
            (Some(TryAgain), ..) => Self::Later(error),
            // A script runs for longer than the server allows.
            _ if busy => Self::Later(error),
            (Some(ClusterDown), ..) if cluster => Self::Later(error),
            (Some(Moved), ..) if cluster => Self::Moved(error),
            (Some(Ask), Some(address), _) if cluster => Self::Ask(address),
            _ => Self::Failed(error),
        }
    }
}

/// The reply `OK`.
#[derive(Debug)]
pub(crate) struct Okay;

/// A whole number. The client library would take text for one, too, and cut off what is too large.
#[derive(Debug)]
pub(crate) struct Whole(pub(crate) i64);

/// The bytes of a key, if it has a value. The client library would take numbers for bytes, too.
#[derive(Debug)]
pub(crate) struct Bytes(pub(crate) Option<Vec<u8>>);

impl FromRedisValue for Okay {
    fn from_redis_value(reply: Value) -> Result<Self, ParsingError> {
        match reply {
            Value::Okay => Ok(Self),
            _ => Err("another type".into()),
        }
    }
}

impl FromRedisValue for Whole {
    fn from_redis_value(reply: Value) -> Result<Self, ParsingError> {
        match reply {
            Value::Int(number) => Ok(Self(number)),
            _ => Err("another type".into()),
        }
    }
}

impl FromRedisValue for Bytes {
    fn from_redis_value(reply: Value) -> Result<Self, ParsingError> {
        match reply {
            Value::BulkString(bytes) => Ok(Self(Some(bytes))),
            Value::Nil => Ok(Self(None)),
            _ => Err("another type".into()),
        }
    }
}

/// A reply that is there, is no error, and is what the command returns.
pub(crate) fn typed<T: FromRedisValue>(
    reply: Option<Value>,
    cluster: bool,
) -> Result<T, RequestError> {
    let strange = |what: &str| RequestError::OutOfStep(NearError::Protocol(what.to_string()));
    let reply = reply.ok_or_else(|| strange("too few replies"))?;
    let reply = reply.extract_error();
    let reply = reply.map_err(|error| RequestError::of(error, cluster))?;
    redis::from_redis_value(reply).map_err(|_| strange("another type of reply"))
}

/// The outcome for one key.
pub(crate) type Answer = Result<Reply, RequestError>;

impl Link {
    /// Reads a key. The server reports each change of it over the main connection, which asks for
    /// the deadline in any case. A change between that and `GET` is reported, too, and revokes the
    /// lease.
    pub(crate) async fn read(&self, key: &[u8], way: Way, second: Option<Connection>) -> Answer {
        let node = self.node_for(key).ok_or_else(no_node)?;
        let cluster = self.is_cluster();
        let opt_in = node.reads.settings.tracking == Tracking::OptIn;
        let mut asked = Pipeline::with_capacity(3);
        if opt_in {
            asked.cmd("CLIENT").arg("CACHING").arg("YES");
        }
        if let Way::Main(most) = way {
            asked.cmd("GETRANGE").arg(key).arg(0).arg(most);
        }
        asked.cmd("PTTL").arg(key);
        let replies = node.main.send(&asked).await;
        let replies = replies.map_err(|error| RequestError::of(error, cluster))?;
        let mut replies = replies.into_iter();
        if opt_in {
            let Okay = typed(replies.next(), cluster)?;
        }
        let first = match way {
            Way::Main(_) => typed::<Bytes>(replies.next(), cluster)?.0,
            _ => None,
        };
        let first = first.unwrap_or_default();
        let is_long = matches!(way, Way::Main(most) if first.len() > most);
        let Whole(left) = typed(replies.next(), cluster)?;
        let value = if left == -2 {
            None
        } else if is_long {
            return Err(RequestError::Large(length(node, key).await));
        } else if first.is_empty() {
            // It was not asked for, is empty, or was not there at first: `GETRANGE` does not tell.
            get(node, key, second, cluster).await?
        } else {
            Some(first)
        };
        Ok(Reply {
            value,
            life: life(left),
            tracked: true,
        })
    }

    /// Reads a key that is on its way to the node at this address, whose main connection brings the
    /// whole value. The server does not track this read.
    pub(crate) async fn read_asking(&self, address: &str, key: &[u8]) -> Answer {
        let ask = async |name| {
            let mut cmd = redis::cmd(name);
            cmd.arg(key);
            self.send_asking(address, cmd).await.map(Some)
        };
        let Bytes(value) = typed(ask("GET").await?, true)?;
        let Whole(left) = typed(ask("PTTL").await?, true)?;
        Ok(Reply {
            value,
            life: life(left),
            tracked: false,
        })
    }

    /// Sends a command for a key that is on its way to the node at this address, which executes the
    /// command if it is asked.
    pub(crate) async fn send_asking(&self, address: &str, cmd: Cmd) -> Result<Value, RequestError> {
        let node = self.node_at(address).ok_or_else(no_node)?;
        let mut pipeline = Pipeline::with_capacity(2);
        pipeline.cmd("ASKING").add_command(cmd);
        let replies = node.main.send(&pipeline).await;
        let last = replies.map(|mut replies| replies.pop().unwrap_or(Value::Nil));
        last.and_then(Value::extract_error)
            .map_err(|error| RequestError::of(error, true))
    }

    pub(crate) fn is_cluster(&self) -> bool {
        #[cfg(feature = "cluster")]
        return self.slots.is_some();
        #[cfg(not(feature = "cluster"))]
        false
    }
}

/// No node of the topology has the key: no node has its slot, or the slot moves to a node that has
/// none yet. The other slots stay in use; the heartbeat finds out when a node takes this one.
pub(crate) fn no_node() -> RequestError {
    let kind = redis::ErrorKind::Server(ServerErrorKind::ClusterDown);
    let error = RedisError::from((kind, "no node of the topology has the key"));
    RequestError::Later(NearError::Server(Arc::new(error)))
}

/// How many bytes the value of a key has; if the server does not tell, it may have any number.
async fn length(node: &Node, key: &[u8]) -> usize {
    match node.main.send_one(&Cmd::strlen(key)).await {
        Ok(Value::Int(length)) => usize::try_from(length).unwrap_or(usize::MAX),
        _ => usize::MAX,
    }
}

/// The whole value of a key, over `second`; where there is none, over the main connection.
async fn get(
    node: &Node,
    key: &[u8],
    second: Option<Connection>,
    cluster: bool,
) -> Result<Option<Vec<u8>>, RequestError> {
    let get = Cmd::get(key);
    let failed = |error| RequestError::of(error, cluster);
    let Some(second) = second else {
        // The heartbeat finds out about a silent main connection.
        let reply = node.main.send_one(&get).await.map_err(failed)?;
        return Ok(typed::<Bytes>(Some(reply), cluster)?.0);
    };
    let reply = second.while_bytes_arrive(node.reads.settings.heartbeat, second.send_one(&get));
    match reply.await.map(|reply| reply.map_err(failed)) {
        Err(_) | Ok(Err(RequestError::Lost(_))) => {
            second.ended.mark();
            Err(RequestError::LostSecond)
        }
        Ok(reply) => Ok(typed::<Bytes>(Some(reply?), cluster)?.0),
    }
}

/// How long the server keeps a key at least, by its answer to `PTTL`.
fn life(left: i64) -> Option<Duration> {
    if left == -1 {
        return None;
    }
    // The server counts whole milliseconds from a reading of its clock that is truncated to one:
    // its deadline may be up to a millisecond earlier than the answer says.
    let left = u64::try_from(left).unwrap_or(0).saturating_sub(1);
    Some(Duration::from_millis(left))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn value(text: &str) -> Value {
        Value::BulkString(text.as_bytes().to_vec())
    }

    #[test]
    fn the_lifetime_is_never_longer_than_the_servers() {
        assert_eq!(life(-1), None);
        assert_eq!(life(-2), Some(Duration::ZERO));
        assert_eq!(life(0), Some(Duration::ZERO));
        assert_eq!(life(1), Some(Duration::ZERO));
        assert_eq!(life(1500), Some(Duration::from_millis(1499)));
    }

    #[test]
    fn replies_are_told_apart() {
        let bytes = |reply| typed::<Bytes>(reply, false);
        assert_eq!(bytes(Some(value("v"))).unwrap().0, Some(b"v".to_vec()));
        assert_eq!(bytes(Some(Value::Nil)).unwrap().0, None);
        for strange in [None, Some(Value::Int(1)), Some(Value::Okay)] {
            let shown = format!("{strange:?}");
            let request_error = bytes(strange).unwrap_err();
            let protocol = matches!(
                request_error,
                RequestError::OutOfStep(NearError::Protocol(_))
            );
            assert!(protocol, "{shown}: {request_error:?}");
        }
        for strange in [value("1"), Value::Nil] {
            assert!(typed::<Whole>(Some(strange), false).is_err());
        }
    }

    #[test]
    fn each_kind_of_error_has_its_remedy() {
        let of = |code: &str, cluster| {
            let detail = Some("7 127.0.0.1:7001".to_string());
            RequestError::of(redis::make_extension_error(code.into(), detail), cluster)
        };
        // The node has executed nothing, and does not serve: it is left, whatever the mode.
        use ServerErrorKind::{BusyLoading, MasterDown, ReadOnly};
        for kind in [BusyLoading, MasterDown, ReadOnly] {
            for cluster in [false, true] {
                let error = RedisError::from((redis::ErrorKind::Server(kind), "refused"));
                let error = RequestError::of(error, cluster);
                assert!(matches!(error, RequestError::Moved(_)), "{error:?}");
            }
        }
        // An error of an unknown code can only be reported.
        assert!(matches!(of("STRANGE", true), RequestError::Failed(_)));
        let lost = RedisError::from(std::io::Error::from(std::io::ErrorKind::ConnectionReset));
        assert!(matches!(
            RequestError::of(lost, false),
            RequestError::Lost(_)
        ));
    }
}
