//! Requests to the server: a read is one pipeline of `GET` and `PTTL`.

use crate::config::{Settings, Tracking};
use crate::connection::Connection;
use crate::error::NearError;
use crate::link::{Link, Node};
use crate::suspects::{LARGE, LONG, Way};
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
            other => Err(what(&other).to_string().into()),
        }
    }
}

impl FromRedisValue for Whole {
    fn from_redis_value(reply: Value) -> Result<Self, ParsingError> {
        match reply {
            Value::Int(number) => Ok(Self(number)),
            other => Err(what(&other).to_string().into()),
        }
    }
}

impl FromRedisValue for Bytes {
    fn from_redis_value(reply: Value) -> Result<Self, ParsingError> {
        match reply {
            Value::BulkString(bytes) => Ok(Self(Some(bytes))),
            Value::Nil => Ok(Self(None)),
            other => Err(what(&other).to_string().into()),
        }
    }
}

/// What a reply is, in words.
fn what(reply: &Value) -> &'static str {
    match reply {
        Value::Int(_) => "an integer",
        Value::BulkString(_) | Value::SimpleString(_) | Value::Okay => "text",
        Value::Array(_) => "an array",
        Value::Map(_) => "a map",
        _ => "another type of reply",
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
    let kind = what(&reply);
    redis::from_redis_value(reply).map_err(|_| strange(kind))
}

/// The outcome for one key.
pub(crate) type Answer = Result<Reply, RequestError>;

impl Link {
    /// Reads a key.
    pub(crate) async fn read(&self, key: &[u8], way: Way, settings: &Settings) -> Answer {
        match self.read_from_its_node(key, way, settings).await {
            Err(RequestError::Ask(address)) => {
                let mut get = redis::cmd("GET");
                get.arg(key);
                let value = self.send_asking(&address, get).await?;
                let Bytes(value) = typed(Some(value), true)?;
                // The server does not track this read.
                Ok(Reply {
                    value,
                    life: None,
                    tracked: false,
                })
            }
            answer => answer,
        }
    }

    /// Reads the value and the deadline of a key in one pipeline.
    ///
    /// A large value comes over the second connection. Its deadline is asked for first, over the
    /// main connection, on which the server then reports each change of the key. A change between
    /// the two is reported, too, and revokes the lease.
    async fn read_from_its_node(&self, key: &[u8], way: Way, settings: &Settings) -> Answer {
        let node = self.node_for(key).ok_or_else(no_node)?;
        let cluster = self.is_cluster();
        let opt_in = settings.tracking == Tracking::OptIn;
        let mut asked = Pipeline::with_capacity(3);
        if opt_in {
            asked.cmd("CLIENT").arg("CACHING").arg("YES");
        }
        if let Way::Second(_) = way {
            asked.cmd("PTTL").arg(key);
            let mut replies = send_aside(node, None, &asked, settings, cluster).await?;
            let pttl = replies.pop();
            let mut get = Pipeline::with_capacity(1);
            get.cmd("GET").arg(key);
            // Not before: meanwhile a write might have borrowed it, to have it alone.
            let second = node.reads.connection().await;
            replies.extend(send_aside(node, second.as_ref(), &get, settings, cluster).await?);
            replies.extend(pttl);
            return answer(replies, opt_in, cluster, true);
        }
        asked.cmd("GET").arg(key).cmd("PTTL").arg(key);
        let length = match way {
            Way::Quickest => LONG,
            _ => LARGE,
        };
        // Where there is no second connection to be had, the main one serves.
        let second = if node.main.is_held_up_by(length) {
            node.reads.connection().await
        } else {
            None
        };
        let second = second.filter(|second| !second.is_held_up_by(length));
        let replies = send_aside(node, second.as_ref(), &asked, settings, cluster).await?;
        answer(replies, opt_in, cluster, second.is_none())
    }

    /// Sends a command for a key that is on its way to the node at this address, which executes the
    /// command if it is asked.
    pub(crate) async fn send_asking(&self, address: &str, cmd: Cmd) -> Result<Value, RequestError> {
        let mut nodes = self.nodes.iter();
        let node = nodes.find(|node| node.address == address);
        // The topology has changed.
        let unknown = || NearError::Disconnected {
            reason: format!("the key is at {address}, which is no primary of the known topology"),
        };
        let node = node.ok_or_else(|| RequestError::Moved(unknown()))?;
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

/// No node of the cluster has the slot of the key. The other slots stay in use; the heartbeat finds
/// out when a node takes this one.
pub(crate) fn no_node() -> RequestError {
    let kind = redis::ErrorKind::Server(ServerErrorKind::ClusterDown);
    let error = RedisError::from((kind, "no node has the slot of the key"));
    RequestError::Later(NearError::Server(Arc::new(error)))
}

/// Sends reads over the second connection, if there is one, else over the main one.
async fn send_aside(
    node: &Node,
    second: Option<&Connection>,
    reading: &Pipeline,
    settings: &Settings,
    cluster: bool,
) -> Result<Vec<Value>, RequestError> {
    let connection = second.unwrap_or(&node.main);
    let _under_way = connection.begin_read();
    let replies = connection.send(reading);
    let Some(second) = second else {
        // The heartbeat finds out about a silent main connection.
        return replies
            .await
            .map_err(|error| RequestError::of(error, cluster));
    };
    let error = match second.while_bytes_arrive(settings.heartbeat, replies).await {
        Ok(Ok(replies)) => return Ok(replies),
        Ok(Err(error)) => RequestError::of(error, cluster),
        Err(silent) => RequestError::Lost(silent),
    };
    if !matches!(error, RequestError::Lost(_)) {
        return Err(error);
    }
    second.ended.mark();
    Err(RequestError::LostSecond)
}

/// The answer in the replies for one key: to `CLIENT CACHING` if there is opt-in, `GET` and `PTTL`.
fn answer(mut replies: Vec<Value>, opt_in: bool, cluster: bool, tracked: bool) -> Answer {
    let pttl = replies.pop();
    let Bytes(value) = typed(replies.pop(), cluster)?;
    let life = match typed(pttl, cluster)? {
        Whole(-1) => None,
        // The key has no value now. If `GET` found one, it expired between the two.
        Whole(left) => {
            // The server counts whole milliseconds from a reading of its clock that is truncated
            // to one: its deadline may be up to a millisecond earlier than the answer says.
            let left = u64::try_from(left).unwrap_or(0).saturating_sub(1);
            Some(Duration::from_millis(left))
        }
    };
    if opt_in {
        let Okay = typed(replies.pop(), cluster)?;
    }
    Ok(Reply {
        value,
        life,
        tracked,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answered(replies: Vec<Value>, opt_in: bool) -> Answer {
        answer(replies, opt_in, false, true)
    }

    fn value(text: &str) -> Value {
        Value::BulkString(text.as_bytes().to_vec())
    }

    fn life(pttl: i64) -> Option<Duration> {
        answered(vec![value("v"), Value::Int(pttl)], false)
            .unwrap()
            .life
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
        let present = answered(vec![Value::Okay, value("v"), Value::Int(-1)], true).unwrap();
        assert_eq!(present.value.as_deref(), Some(&b"v"[..]));
        let absent = answered(vec![Value::Nil, Value::Int(-2)], false).unwrap();
        assert_eq!(absent.value, None);
        for strange in [
            vec![],
            vec![Value::Nil],
            vec![Value::Int(1), Value::Int(1)],
            vec![value("v"), Value::Nil],
        ] {
            let shown = format!("{strange:?}");
            let request_error = answered(strange, false).unwrap_err();
            let protocol = matches!(
                request_error,
                RequestError::OutOfStep(NearError::Protocol(_))
            );
            assert!(protocol, "{shown}: {request_error:?}");
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
