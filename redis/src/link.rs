//! One generation: the connections that are made together and end together.
//!
//! A link to a single server is one connection, a link to a cluster one to each of its primaries.
//! Tracking is on before a link is used. If one connection ends, the link has ended.

use crate::error::NearError;
use crate::stream::Arrivals;
use redis::aio::MultiplexedConnection;
use redis::{ErrorKind, Pipeline, RedisResult, ServerErrorKind, Value};
use std::fmt;
use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Poll;
use std::time::Duration;
use tokio::task::AbortHandle;
use tokio::time::timeout;

#[cfg(feature = "cluster")]
use crate::slots::Slots;

/// A connection to one server.
#[derive(Clone)]
pub(crate) struct Node {
    pub(crate) address: String,
    pub(crate) connection: MultiplexedConnection,
    /// `None` over TLS.
    pub(crate) arrivals: Option<Arc<Arrivals>>,
    pub(crate) _driver: Option<Arc<Driver>>,
}

impl Node {
    /// Waits for a reply as long as bytes arrive: until none has for the time `quiet`.
    pub(crate) async fn while_bytes_arrive<T>(
        &self,
        quiet: Duration,
        reply: impl Future<Output = T>,
    ) -> Result<T, NearError> {
        let mut reply = pin!(reply);
        let count = || self.arrivals.as_ref().map(|arrivals| arrivals.count());
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
pub(crate) struct Driver(AbortHandle);

impl Driver {
    pub(crate) fn spawn(driver: impl Future<Output = ()> + Send + 'static) -> Arc<Self> {
        Arc::new(Self(tokio::spawn(driver).abort_handle()))
    }
}

impl Drop for Driver {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// Runs futures in one task, so that all of them end with it; hands out each outcome, with the
/// number of its future, as it comes.
pub(crate) async fn together<F: Future>(
    futures: impl Iterator<Item = F>,
    mut ready: impl FnMut(usize, F::Output),
) {
    let mut running: Vec<_> = futures.map(Box::pin).map(Some).collect();
    poll_fn(|cx| {
        let mut pending = false;
        for (number, place) in running.iter_mut().enumerate() {
            let Some(future) = place else { continue };
            match future.as_mut().poll(cx) {
                Poll::Pending => pending = true,
                Poll::Ready(outcome) => {
                    *place = None;
                    ready(number, outcome);
                }
            }
        }
        if pending {
            Poll::Pending
        } else {
            Poll::Ready(())
        }
    })
    .await;
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
    pub(crate) fn new(generation: u64, nodes: Vec<Node>, ended: Ended) -> Self {
        Self {
            generation,
            nodes,
            ended,
            #[cfg(feature = "cluster")]
            slots: None,
        }
    }

    #[cfg(feature = "cluster")]
    pub(crate) fn with_slots(self, slots: Slots) -> Self {
        let slots = Some(slots);
        Self { slots, ..self }
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
    pub(crate) fn node_of(&self, _key: &[u8]) -> Option<usize> {
        #[cfg(feature = "cluster")]
        if let Some(slots) = &self.slots {
            return slots.node_of(_key);
        }
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
        let any_role = self.is_cluster();
        let ping = async |node: &Node| {
            let mut ping = Pipeline::with_capacity(2);
            ping.cmd("PING");
            ping.cmd("HELLO").arg(3);
            let mut connection = node.connection.clone();
            let replies = connection.send_packed_commands(&ping, 0, 2);
            let replies = node.while_bytes_arrive(quiet, replies).await?;
            alive(&node.address, replies, any_role)
        };
        let mut outcome = Ok(());
        let pings = self.nodes.iter().map(ping);
        together(pings, |_, one| outcome = one.and(outcome.clone())).await;
        outcome
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
        let text = |value: Value| redis::from_redis_value::<String>(value).unwrap_or_default();
        let mut fields = fields.into_iter();
        let role = fields.find_map(|(name, role)| (text(name) == "role").then(|| text(role)));
        if let Some(role) = role.filter(|role| role != "master") {
            let server = address.to_string();
            return Some(NearError::NotPrimary { server, role });
        }
    }
    match ping {
        Some(Err(error)) if matches!(error.kind(), ErrorKind::Server(BusyLoading | MasterDown)) => {
            Some(NearError::connecting(address, error))
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
