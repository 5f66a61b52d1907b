//! One generation: the connections that are made together and end together.
//!
//! A link to a single server is one connection, a link to a cluster one to each of its primaries.
//! Tracking is on before a link is used. If one connection ends, the link has ended.

use crate::error::NearError;
use crate::stream::Arrivals;
use redis::aio::MultiplexedConnection;
use redis::{ErrorKind, Pipeline, RedisResult, ServerErrorKind, Value};
use std::fmt;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::timeout;

#[cfg(feature = "cluster")]
use crate::slots::Slots;

/// A connection to one server.
#[derive(Clone)]
pub(crate) struct Node {
    pub(crate) address: String,
    pub(crate) connection: MultiplexedConnection,
    /// `None` over TLS.
    pub(crate) arrivals: Option<Arrivals>,
    pub(crate) _driver: Option<Driver>,
}

impl Node {
    /// Waits for a reply as long as bytes arrive: until none has for the time `quiet`.
    pub(crate) async fn while_bytes_arrive<T>(
        &self,
        quiet: Duration,
        reply: impl Future<Output = T>,
    ) -> Result<T, NearError> {
        let mut reply = pin!(reply);
        let count = || self.arrivals.as_ref().map(Arrivals::count);
        loop {
            let before = count();
            if let Ok(reply) = timeout(quiet, &mut reply).await {
                return Ok(reply);
            }
            if count() == before {
                let what = if before.is_some() { "byte" } else { "reply" };
                return Err(NearError::Disconnected {
                    reason: format!(
                        "no {what} came for {quiet:?}, the `heartbeat`, though one was asked for: \
                         allow more with `heartbeat` if the server or the network is that slow"
                    ),
                });
            }
        }
    }
}

/// The task that reads and writes a connection; it ends with the last handle.
#[derive(Clone)]
pub(crate) struct Driver(#[expect(dead_code, reason = "dropped")] Arc<Abort>);

struct Abort(AbortHandle);

impl Driver {
    pub(crate) fn new(driver: impl Future<Output = ()> + Send + 'static) -> Self {
        Self(Arc::new(Abort(tokio::spawn(driver).abort_handle())))
    }
}

impl Drop for Abort {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// Says that a connection of the link has ended; shared with its push handlers.
#[derive(Clone, Debug, Default)]
pub(crate) struct Ended(Arc<AtomicBool>);

impl Ended {
    // Release and Acquire: partners of each other, see `Shared::up`. SeqCst, because there each
    // side stores one thing and then loads the other.
    pub(crate) fn mark(&self) {
        self.0.store(true, Ordering::SeqCst);
    }

    fn is_marked(&self) -> bool {
        self.0.load(Ordering::SeqCst)
    }
}

/// The connections of one generation.
pub(crate) struct Link {
    generation: u64,
    nodes: Vec<Node>,
    ended: Ended,
    #[cfg(feature = "cluster")]
    slots: Option<Slots>,
}

impl Link {
    pub(crate) fn single(generation: u64, node: Node, ended: Ended) -> Self {
        Self {
            generation,
            nodes: vec![node],
            ended,
            #[cfg(feature = "cluster")]
            slots: None,
        }
    }

    #[cfg(feature = "cluster")]
    pub(crate) fn cluster(generation: u64, nodes: Vec<Node>, slots: Slots, ended: Ended) -> Self {
        Self {
            generation,
            nodes,
            ended,
            slots: Some(slots),
        }
    }

    pub(crate) fn generation(&self) -> u64 {
        self.generation
    }

    pub(crate) fn has_ended(&self) -> bool {
        self.ended.is_marked()
    }

    pub(crate) fn nodes(&self) -> &[Node] {
        &self.nodes
    }

    #[cfg(feature = "cluster")]
    pub(crate) fn slots(&self) -> Option<&Slots> {
        self.slots.as_ref()
    }

    /// The number of the node that has this key.
    #[cfg(feature = "cluster")]
    pub(crate) fn node_of(&self, key: &[u8]) -> Option<usize> {
        match &self.slots {
            None => Some(0),
            Some(slots) => slots.node_of(key),
        }
    }

    /// The number of the node that has this key.
    #[cfg(not(feature = "cluster"))]
    pub(crate) fn node_of(&self, _: &[u8]) -> Option<usize> {
        Some(0)
    }

    /// The node at this address.
    pub(crate) fn node_at(&self, address: &str) -> Option<&Node> {
        self.nodes.iter().find(|node| node.address == address)
    }

    /// Asks every node for a sign of life, all at once.
    ///
    /// A node answers in order, so each invalidation that it sent before the answer has been
    /// applied when this returns. An error of the server is an answer, too: `PING` may be refused
    /// by the user's ACL, or while a script runs. A node that is no primary has no answer.
    pub(crate) async fn ping(&self, quiet: Duration) -> Result<(), NearError> {
        let mut pings = JoinSet::new();
        let any_role = self.is_cluster();
        for node in &self.nodes {
            let node = node.clone();
            pings.spawn(async move {
                let mut ping = Pipeline::with_capacity(2);
                ping.cmd("PING");
                ping.cmd("HELLO").arg(3);
                let mut connection = node.connection.clone();
                let replies = connection.send_packed_commands(&ping, 0, 2);
                let replies = node.while_bytes_arrive(quiet, replies).await?;
                alive(&node.address, replies, any_role)
            });
        }
        while let Some(ended) = pings.join_next().await {
            // A task is cancelled only when the runtime ends.
            ended.unwrap_or(Ok(()))?;
        }
        Ok(())
    }
}

/// Whether these replies show that the connection is alive, that replies are in step with
/// requests, and that the node is a primary.
fn alive(address: &str, replies: RedisResult<Vec<Value>>, any_role: bool) -> Result<(), NearError> {
    let replies = replies.map_err(NearError::requesting)?;
    let mut replies = replies.into_iter().map(Value::extract_error);
    let (ping, hello) = (replies.next(), replies.next());
    if !matches!(ping, Some(Ok(Value::SimpleString(_)) | Err(_))) {
        return Err(NearError::Protocol("no PONG to PING".into()));
    }
    let role = if any_role { None } else { hello };
    role_fault(address, role, ping).map_or(Ok(()), Err)
}

/// Why a node with these replies to `HELLO` and `PING` is to be left: it is no primary, or one that
/// does not serve.
pub(crate) fn role_fault(
    address: &str,
    hello: Option<RedisResult<Value>>,
    ping: Option<RedisResult<Value>>,
) -> Option<NearError> {
    use ServerErrorKind::{BusyLoading, MasterDown};
    if let Some(Ok(Value::Map(fields))) = hello {
        let text = |value: &Value| match value {
            Value::BulkString(bytes) => String::from_utf8_lossy(bytes).into_owned(),
            Value::SimpleString(text) => text.clone(),
            _ => String::new(),
        };
        let role = fields.iter().find(|(name, _)| text(name) == "role");
        let role = role.map(|(_, role)| text(role));
        if let Some(role) = role.filter(|role| role != "master") {
            let server = address.to_string();
            return Some(NearError::NotPrimary { server, role });
        }
    }
    match ping {
        Some(Err(error)) if matches!(error.kind(), ErrorKind::Server(BusyLoading | MasterDown)) => {
            Some(NearError::Server(Arc::new(error)))
        }
        _ => None,
    }
}

impl fmt::Debug for Link {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let addresses: Vec<_> = self.nodes.iter().map(|node| &node.address).collect();
        f.debug_struct("Link")
            .field("generation", &self.generation)
            .field("nodes", &addresses)
            .finish_non_exhaustive()
    }
}
