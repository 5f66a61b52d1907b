//! One generation: the connections that are made together and end together.
//!
//! A link to a single server is one connection, a link to a cluster one to each of its primaries.
//! Tracking is on before a link is used. If one connection ends, the link has ended.

use crate::config::Settings;
use crate::connection::{Connection, Ended, Login};
use crate::error::NearError;
use futures_util::FutureExt;
use futures_util::future::try_join_all;
use redis::{ConnectionInfo, ErrorKind, Pipeline, RedisResult, ServerErrorKind, Value};
use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::runtime::Handle;
use tokio::sync::{Mutex, Semaphore, SemaphorePermit};
use tokio::task::unconstrained;
use tokio::time::timeout;

#[cfg(feature = "cluster")]
use crate::slots::Slots;

/// How many bytes of large values may be under way on a second connection.
const BYTES_UNDER_WAY: usize = 4 << 20;
/// How long the main connection serves alone when a second one could not be made.
const SECOND_PAUSE: Duration = Duration::from_secs(1);

/// A server, and the connections to it.
pub(crate) struct Node {
    pub(crate) address: String,
    /// The connection without which the generation ends. The server tracks its reads.
    pub(crate) main: Connection,
    pub(crate) reads: Arc<Second>,
    pub(crate) writes: Arc<Second>,
}

/// Has the server end a connection when the write that has it is given up: what was sent of the
/// write may still be on its way, and would come after a later write of the key.
pub(crate) struct EndIfGivenUp<'a> {
    pub(crate) node: &'a Node,
    /// The server's number of the connection; `None`: the write has its reply.
    pub(crate) id: Option<i64>,
}

impl Drop for EndIfGivenUp<'_> {
    fn drop(&mut self) {
        let Some(id) = self.id else {
            return;
        };
        let mut main = self.node.main.requests.clone();
        let mut ending = Box::pin(unconstrained(async move {
            let mut kill = redis::cmd("CLIENT");
            kill.arg("KILL").arg("ID").arg(id);
            // Not over a new connection, if this one has ended: the server may have restarted, and
            // the number be that of another client.
            let _ = main.send_packed_command(&kill).await;
        }));
        // The first poll gives it its place before each later request.
        if (&mut ending).now_or_never().is_none() {
            self.node.writes.runtime.spawn(ending);
        }
    }
}

impl Node {
    /// Asks for a sign of life over the main connection.
    ///
    /// A server answers in order, so each invalidation that it sent before the answer has been
    /// applied when this returns. An error of the server is an answer, too: `PING` may be refused
    /// by the user's ACL, or while a script runs. A server that is no primary has no answer.
    pub(crate) async fn ping(&self, quiet: Duration, any_role: bool) -> Result<(), NearError> {
        let mut ping = Pipeline::with_capacity(2);
        ping.cmd("PING");
        ping.cmd("HELLO").arg(3);
        let replies = self.main.while_bytes_arrive(quiet, self.main.send(&ping));
        let replies = replies.await?;
        alive(&self.address, replies, any_role)
    }
}

/// A second connection to a server: one for large values and for reads that would wait behind one,
/// and one for large writes. It is made at its first use, and again after its end. The server does
/// not track its reads, so its end says nothing about what it brought. Where there is none to be
/// had, the main connection serves.
pub(crate) struct Second {
    settings: Arc<Settings>,
    info: ConnectionInfo,
    state: Mutex<SecondState>,
    /// That of `connect`. A caller's own may stand still, with the state locked.
    runtime: Handle,
    /// How many bytes of large values may be under way.
    under_way: Semaphore,
}

/// It is locked during an attempt to connect: calls that come meanwhile share the outcome.
enum SecondState {
    None,
    Open(Connection),
    /// An attempt to connect has failed at this moment.
    Failed(Instant),
}

impl Second {
    pub(crate) fn new(settings: Arc<Settings>, info: ConnectionInfo) -> Arc<Self> {
        Arc::new(Self {
            settings,
            info,
            state: Mutex::new(SecondState::None),
            runtime: Handle::current(),
            under_way: Semaphore::new(BYTES_UNDER_WAY),
        })
    }

    /// Waits until so many bytes more may be under way.
    pub(crate) async fn room(&self, bytes: usize) -> Option<SemaphorePermit<'_>> {
        let bytes = u32::try_from(bytes.min(BYTES_UNDER_WAY)).ok()?;
        self.under_way.acquire_many(bytes).await.ok()
    }

    /// The connection, for reads of all callers.
    pub(crate) async fn connection(self: &Arc<Self>) -> Option<Connection> {
        let attempt = self.clone().open();
        // A call that waits in vain needs time for the main connection. The attempt goes on.
        let limit = self.settings.request_timeout / 2;
        timeout(limit, self.runtime.spawn(attempt))
            .await
            .ok()?
            .ok()?
    }

    async fn open(self: Arc<Self>) -> Option<Connection> {
        let mut state = self.state.lock().await;
        match &*state {
            SecondState::Open(connection) if !connection.ended.is_marked() => {
                return Some(connection.clone());
            }
            SecondState::Failed(at) if at.elapsed() < SECOND_PAUSE => return None,
            _ => {}
        }
        let (info, ended) = (self.info.clone(), Ended::default());
        let opening = Connection::open(&self.settings, info, Login::OfProvider, ended, |_| {});
        let opened = opening.await.ok();
        *state = match &opened {
            Some(connection) => SecondState::Open(connection.clone()),
            None => SecondState::Failed(Instant::now()),
        };
        opened
    }

    /// The connection, for one large write alone.
    pub(crate) async fn lend(self: &Arc<Self>) -> Option<Connection> {
        loop {
            self.connection().await?;
            let mut state = self.state.lock().await;
            match std::mem::replace(&mut *state, SecondState::None) {
                SecondState::Open(lent) => return Some(lent),
                // Another write has taken it.
                other => *state = other,
            }
        }
    }

    /// Takes back what `lend` has lent, when the write has its reply.
    pub(crate) async fn take_back(&self, lent: Connection) {
        let mut state = self.state.lock().await;
        if !matches!(*state, SecondState::Open(_)) {
            *state = SecondState::Open(lent);
        }
    }
}

/// The connections of one generation.
pub(crate) struct Link {
    pub(crate) generation: u64,
    pub(crate) nodes: Vec<Node>,
    pub(crate) ended: Ended,
    #[cfg(feature = "cluster")]
    pub(crate) slots: Option<Slots>,
}

impl Link {
    /// The node that has this key.
    pub(crate) fn node_for(&self, _key: &[u8]) -> Option<&Node> {
        #[cfg(feature = "cluster")]
        if let Some(slots) = &self.slots {
            return self.nodes.get(slots.node_of(_key)?);
        }
        self.nodes.first()
    }

    /// Asks every node for a sign of life over its main connection, all at once.
    pub(crate) async fn ping(&self, quiet: Duration) -> Result<(), NearError> {
        let any_role = self.is_cluster();
        let pings = self.nodes.iter().map(|node| node.ping(quiet, any_role));
        try_join_all(pings).await?;
        Ok(())
    }
}

/// Whether these replies show that the connection is alive, that replies are in step with
/// requests, and that the node is a primary that serves.
fn alive(address: &str, replies: RedisResult<Vec<Value>>, any_role: bool) -> Result<(), NearError> {
    use ServerErrorKind::{BusyLoading, MasterDown};
    let replies = replies.map_err(NearError::requesting)?;
    let mut replies = replies.into_iter().map(Value::extract_error);
    let ping = replies.next();
    if !matches!(ping, Some(Ok(Value::SimpleString(_)) | Err(_))) {
        return Err(NearError::Protocol("no PONG to PING".into()));
    }
    let server = address.to_string();
    if let Some(Ok(hello)) = replies.next() {
        let fields = redis::from_redis_value::<HashMap<String, Value>>(hello);
        let role = fields.unwrap_or_default().remove("role");
        let role = redis::from_redis_value::<String>(role.unwrap_or(Value::Nil));
        let role = role.unwrap_or_default();
        if !any_role && !matches!(role.as_str(), "" | "master") {
            return Err(NearError::NotPrimary { server, role });
        }
    }
    match ping {
        Some(Err(error)) if matches!(error.kind(), ErrorKind::Server(BusyLoading | MasterDown)) => {
            Err(NearError::connecting(&server, error))
        }
        _ => Ok(()),
    }
}
