//! One generation: the connections that are made together and end together.
//!
//! A link to a single server is one connection, a link to a cluster one to each of its primaries.
//! Tracking is on before a link is used. If one connection ends, the link has ended.

use crate::error::NearError;
use redis::aio::MultiplexedConnection;
use redis::{RedisResult, Value};
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use tokio::task::JoinSet;

#[cfg(feature = "cluster")]
use crate::slots::Slots;

/// A connection to one server.
#[derive(Clone)]
pub(crate) struct Node {
    pub(crate) address: String,
    pub(crate) connection: MultiplexedConnection,
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
    /// by the user's ACL, or while a script runs.
    pub(crate) async fn ping(&self) -> Result<(), NearError> {
        let mut pings = JoinSet::new();
        for node in &self.nodes {
            let mut connection = node.connection.clone();
            pings.spawn(async move {
                let reply = connection.send_packed_command(&redis::cmd("PING")).await;
                alive(reply)
            });
        }
        while let Some(ended) = pings.join_next().await {
            // A task is cancelled only when the runtime ends.
            ended.unwrap_or(Ok(()))?;
        }
        Ok(())
    }
}

/// Whether this reply shows that the connection is alive, and that replies are in step with
/// requests.
fn alive(reply: RedisResult<Value>) -> Result<(), NearError> {
    match reply
        .and_then(Value::extract_error)
        .map_err(NearError::requesting)
    {
        Ok(Value::SimpleString(_)) | Err(NearError::Server(_)) => Ok(()),
        Ok(_) => Err(NearError::Protocol("no PONG to PING".into())),
        Err(ended) => Err(ended),
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
