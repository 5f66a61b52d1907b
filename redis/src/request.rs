//! Reads from the server: one pipeline of `GET` and `PTTL` pairs for each node.

use crate::config::{Settings, Tracking};
use crate::connection::Connection;
use crate::error::NearError;
use crate::link::{Link, Node, together};
use redis::{Cmd, Pipeline, RedisError, ServerErrorKind, Value};
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

/// The outcome for one key.
pub(crate) type Answer = Result<Reply, RequestError>;

impl Link {
    /// Reads these keys together; the answers are in their order.
    pub(crate) async fn read(&self, keys: &[&[u8]], settings: &Settings) -> Vec<Answer> {
        let mut answers: Vec<Option<Answer>> = keys.iter().map(|_| None).collect();
        let nodes = self.by_node(keys);
        let asked = nodes.iter().filter_map(|(node, indices)| {
            let keys: Vec<&[u8]> = indices.iter().map(|index| keys[*index]).collect();
            let (node, cluster) = (self.nodes().get((*node)?)?, self.is_cluster());
            Some(async move { (indices, ask(node, &keys, settings, cluster).await) })
        });
        together(asked, |_, (indices, chunk)| {
            for (index, answer) in indices.iter().zip(chunk) {
                answers[*index] = Some(answer);
            }
        })
        .await;
        let answers = answers.into_iter();
        answers
            .map(|a| a.unwrap_or_else(|| Err(no_node())))
            .collect()
    }

    /// Reads a key whose value is large: its deadline over the main connection, on which the server
    /// then reports each change of the key, and its value over the second one. A change between the
    /// two is reported, too, and revokes the lease.
    pub(crate) async fn read_apart(&self, key: &[u8], settings: &Settings) -> Answer {
        let node = self.node_for(key).ok_or_else(no_node)?;
        let opt_in = settings.tracking == Tracking::OptIn;
        let mut asked = Pipeline::with_capacity(2);
        if opt_in {
            asked.cmd("CLIENT").arg("CACHING").arg("YES");
        }
        asked.cmd("PTTL").arg(key);
        let mut requests = node.main.requests.clone();
        let replies = requests.send_packed_commands(&asked, 0, asked.len()).await;
        let cluster = self.is_cluster();
        let mut replies = replies.map_err(|error| RequestError::of(error, cluster))?;
        let life = life_of(replies.pop(), cluster)?;
        if let Some(caching) = replies.pop() {
            taken(Some(caching), cluster)?;
        }
        let mut get = Pipeline::with_capacity(1);
        get.cmd("GET").arg(key);
        let second = node.second.connection().await;
        let mut replies = send_aside(node, second.as_ref(), &get, settings, cluster).await?;
        let value = value_of(replies.pop(), cluster)?;
        Ok(Reply {
            value,
            life,
            tracked: true,
        })
    }

    /// Reads a key from the node that an `ASK` reply named. The server does not track this read.
    pub(crate) async fn read_asking(&self, address: &str, key: &[u8]) -> Answer {
        let mut get = redis::cmd("GET");
        get.arg(key);
        let value = value_of(Some(self.send_asking(address, get).await?), true)?;
        Ok(Reply {
            value,
            life: None,
            tracked: false,
        })
    }

    /// Sends a command for a key that is on its way to the node at this address, which executes the
    /// command if it is asked.
    pub(crate) async fn send_asking(&self, address: &str, cmd: Cmd) -> Result<Value, RequestError> {
        let node = self.node_at(address).ok_or_else(|| unknown_node(address))?;
        let mut pipeline = Pipeline::with_capacity(2);
        pipeline.cmd("ASKING").add_command(cmd);
        let mut connection = node.main.requests.clone();
        let replies = connection.send_packed_commands(&pipeline, 0, 2).await;
        let last = replies.map(|mut replies| replies.pop().unwrap_or(Value::Nil));
        last.and_then(Value::extract_error)
            .map_err(|error| RequestError::of(error, true))
    }

    pub(crate) fn is_cluster(&self) -> bool {
        #[cfg(feature = "cluster")]
        return self.slots().is_some();
        #[cfg(not(feature = "cluster"))]
        false
    }

    /// The indices of the keys that each node has.
    fn by_node(&self, keys: &[&[u8]]) -> Vec<(Option<usize>, Vec<usize>)> {
        let mut groups: Vec<(Option<usize>, Vec<usize>)> = Vec::new();
        for (index, key) in keys.iter().enumerate() {
            let node = self.node_of(key);
            match groups.iter_mut().find(|(of, _)| *of == node) {
                Some((_, indices)) => indices.push(index),
                None => groups.push((node, vec![index])),
            }
        }
        groups
    }
}

/// No node of the cluster has the slot of the key. The other slots stay in use; the heartbeat finds
/// out when a node takes this one.
pub(crate) fn no_node() -> RequestError {
    let kind = redis::ErrorKind::Server(ServerErrorKind::ClusterDown);
    let error = RedisError::from((kind, "no node has the slot of the key"));
    RequestError::Later(NearError::Server(Arc::new(error)))
}

/// A node redirected the request to one that the link does not know: the topology has changed.
fn unknown_node(address: &str) -> RequestError {
    RequestError::Moved(NearError::Disconnected {
        reason: format!("the key is at {address}, which is no primary of the known topology"),
    })
}

/// Reads keys of one node together.
async fn ask(node: &Node, keys: &[&[u8]], settings: &Settings, cluster: bool) -> Vec<Answer> {
    let opt_in = settings.tracking == Tracking::OptIn;
    let mut reading = Pipeline::with_capacity(keys.len() * 3);
    for key in keys {
        if opt_in {
            reading.cmd("CLIENT").arg("CACHING").arg("YES");
        }
        reading.cmd("GET").arg(*key);
        reading.cmd("PTTL").arg(*key);
    }
    // Where there is no second connection to be had, the main one serves.
    let second = if node.main.is_late() {
        node.second.connection().await
    } else {
        None
    };
    let second = second.filter(|second| !second.is_late());
    match send_aside(node, second.as_ref(), &reading, settings, cluster).await {
        Err(error) => keys.iter().map(|_| Err(error.clone())).collect(),
        Ok(replies) => {
            let mut replies = replies.into_iter();
            let mut answer = || {
                let reply = answer(&mut replies, opt_in, cluster)?;
                let tracked = second.is_none();
                Ok(Reply { tracked, ..reply })
            };
            keys.iter().map(|_| answer()).collect()
        }
    }
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
    let mut requests = connection.requests.clone();
    let replies = requests.send_packed_commands(reading, 0, reading.len());
    let Some(second) = second else {
        // The heartbeat finds out about a silent main connection.
        return replies
            .await
            .map_err(|error| RequestError::of(error, cluster));
    };
    let replies = second.while_bytes_arrive(settings.heartbeat, replies).await;
    match replies {
        Ok(Ok(replies)) => Ok(replies),
        Ok(Err(error)) if !NearError::requesting(error.clone()).is_loss() => {
            Err(RequestError::of(error, cluster))
        }
        Ok(Err(_)) | Err(_) => {
            second.ended.mark();
            Err(RequestError::LostSecond)
        }
    }
}

/// Takes the replies for one key.
fn answer(
    replies: &mut impl Iterator<Item = Value>,
    opt_in: bool,
    cluster: bool,
) -> Result<Reply, RequestError> {
    let caching = if opt_in { replies.next() } else { None };
    let (value, pttl) = (replies.next(), replies.next());
    let value = value_of(value, cluster)?;
    let life = life_of(pttl, cluster)?;
    if opt_in {
        taken(caching, cluster)?;
    }
    Ok(Reply {
        value,
        life,
        tracked: true,
    })
}

/// A reply that is there and no error.
fn taken(reply: Option<Value>, cluster: bool) -> Result<Value, RequestError> {
    let too_few = || RequestError::OutOfStep(NearError::Protocol("too few replies".into()));
    let reply = reply.ok_or_else(too_few)?.extract_error();
    reply.map_err(|error| RequestError::of(error, cluster))
}

pub(crate) fn value_of(
    reply: Option<Value>,
    cluster: bool,
) -> Result<Option<Vec<u8>>, RequestError> {
    match taken(reply, cluster)? {
        Value::BulkString(bytes) => Ok(Some(bytes)),
        Value::SimpleString(text) => Ok(Some(text.into_bytes())),
        Value::Nil => Ok(None),
        other => Err(unexpected("GET", &other)),
    }
}

fn life_of(reply: Option<Value>, cluster: bool) -> Result<Option<Duration>, RequestError> {
    match taken(reply, cluster)? {
        Value::Int(-1) => Ok(None),
        // The key has no value now. If `GET` found one, it expired between the two.
        Value::Int(left) => {
            // The server counts whole milliseconds from a reading of its clock that is truncated
            // to one: its deadline may be up to a millisecond earlier than the answer says.
            let left = u64::try_from(left).unwrap_or(0).saturating_sub(1);
            Ok(Some(Duration::from_millis(left)))
        }
        other => Err(unexpected("PTTL", &other)),
    }
}

pub(crate) fn unexpected(command: &str, reply: &Value) -> RequestError {
    let kind = match reply {
        Value::Int(_) => "an integer",
        Value::Array(_) => "an array",
        Value::Map(_) => "a map",
        _ => "another type of reply",
    };
    RequestError::OutOfStep(NearError::Protocol(format!("{kind} to {command}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answered(replies: Vec<Value>, opt_in: bool) -> Answer {
        answer(&mut replies.into_iter(), opt_in, false)
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
