//! One generation: the connections that are made together and end together.
//!
//! A link to a single server is one connection, a link to a cluster one to each of its primaries.
//! Tracking is on before a link is used. If one connection ends, the link has ended.

use crate::error::NearError;
use crate::stream::Arrivals;
use crate::suspects::LARGE;
use redis::aio::MultiplexedConnection;
use redis::{ErrorKind, Pipeline, RedisResult, ServerErrorKind, Value};
use std::collections::HashSet;
use std::fmt;
use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Poll;
use std::time::{Duration, Instant};
use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::task::AbortHandle;
use tokio::time::timeout;

#[cfg(feature = "cluster")]
use crate::slots::Slots;

/// How long a connection may bring bytes and no reply before other reads avoid it.
const LATE: Duration = Duration::from_millis(20);
/// How many bytes of large values may be under way on a second connection.
const BYTES_UNDER_WAY: usize = 4 << 20;
/// How many keys of a second connection are remembered. At its end, all entries are outdated if
/// there were more.
const MOST_SECOND_KEYS: usize = 4096;

/// A server, and the connections to it.
pub(crate) struct Node {
    pub(crate) address: String,
    /// The connection without which the generation ends.
    pub(crate) main: Connection,
    pub(crate) second: Second,
    /// Why the server does not let this user run the script of loads, if it does not.
    pub(crate) loads_denied: Option<NearError>,
}

/// One connection. A clone costs a few reference counts.
#[derive(Clone)]
pub(crate) struct Connection {
    pub(crate) requests: MultiplexedConnection,
    /// `None` over TLS.
    pub(crate) arrivals: Option<Arc<Arrivals>>,
    pub(crate) ended: Ended,
    pub(crate) reads: Arc<Mutex<Reads>>,
    /// On a second connection: the keys whose changes the server reports over it.
    pub(crate) second_keys: Arc<SecondKeys>,
    pub(crate) _driver: Option<Arc<Driver>>,
}

/// The reads under way on a connection.
#[derive(Debug, Default)]
pub(crate) struct Reads {
    count: usize,
    /// When the last of them was answered, or the first one sent.
    since: Option<Instant>,
    /// How many bytes had arrived then.
    bytes: u64,
}

/// A read that is under way until this is dropped.
pub(crate) struct UnderWay<'a>(&'a Connection);

impl Drop for UnderWay<'_> {
    fn drop(&mut self) {
        self.0.count_reads(|count| count - 1);
    }
}

impl Connection {
    /// How many bytes have arrived, where they are counted.
    fn bytes(&self) -> Option<u64> {
        let arrivals = self.arrivals.as_ref()?;
        Some(arrivals.bytes())
    }

    fn count_reads(&self, change: impl FnOnce(usize) -> usize) {
        let mut reads = self.reads.lock().unwrap_or_else(PoisonError::into_inner);
        let now = Reads {
            count: change(reads.count),
            since: Some(Instant::now()),
            bytes: self.bytes().unwrap_or(0),
        };
        if reads.count > 0 && now.count > reads.count {
            reads.count = now.count;
        } else {
            *reads = now;
        }
    }

    /// Counts a read as under way.
    pub(crate) fn begin_read(&self) -> UnderWay<'_> {
        self.count_reads(|count| count + 1);
        UnderWay(self)
    }

    /// Whether a long reply is on its way, behind which another one would wait.
    pub(crate) fn is_late(&self) -> bool {
        let reads = self.reads.lock().unwrap_or_else(PoisonError::into_inner);
        let waits = reads.since.is_some_and(|since| since.elapsed() > LATE);
        let arrived = self.bytes().unwrap_or(0).saturating_sub(reads.bytes);
        reads.count > 0 && waits && arrived >= LARGE as u64
    }

    /// Waits for a reply as long as bytes arrive: until none has for the time `quiet`.
    pub(crate) async fn while_bytes_arrive<T>(
        &self,
        quiet: Duration,
        reply: impl Future<Output = T>,
    ) -> Result<T, NearError> {
        let mut reply = pin!(reply);
        loop {
            let before = self.bytes();
            if let Ok(reply) = timeout(quiet, &mut reply).await {
                return Ok(reply);
            }
            if self.bytes() == before {
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

    /// Asks for a sign of life.
    ///
    /// A server answers in order, so each invalidation that it sent before the answer has been
    /// applied when this returns. An error of the server is an answer, too: `PING` may be refused
    /// by the user's ACL, or while a script runs. A server that is no primary has no answer.
    pub(crate) async fn ping(
        &self,
        address: &str,
        quiet: Duration,
        any_role: bool,
    ) -> Result<(), NearError> {
        let mut ping = Pipeline::with_capacity(2);
        ping.cmd("PING");
        ping.cmd("HELLO").arg(3);
        let mut requests = self.requests.clone();
        let replies = requests.send_packed_commands(&ping, 0, 2);
        alive(
            address,
            self.while_bytes_arrive(quiet, replies).await?,
            any_role,
        )
    }
}

impl fmt::Debug for Connection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Connection").finish_non_exhaustive()
    }
}

/// The work of opening a connection.
pub(crate) type Opening = Pin<Box<dyn Future<Output = Result<Connection, NearError>> + Send>>;
/// What makes a second connection.
type Opener = Box<dyn Fn() -> Opening + Send + Sync>;

/// The second connection to a server: for large values, and for what would wait behind one. It is
/// made at its first use. Its end ends no generation: the keys that were read over it are
/// invalidated, and its next use makes another one.
pub(crate) struct Second {
    opener: Opener,
    open: tokio::sync::Mutex<Option<Connection>>,
    /// How many bytes of large values may be under way.
    under_way: Semaphore,
}

/// The keys that were read over a second connection.
#[derive(Debug, Default)]
pub(crate) struct SecondKeys(Mutex<HashSet<Vec<u8>>>);

impl SecondKeys {
    fn keys(&self) -> MutexGuard<'_, HashSet<Vec<u8>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn add(&self, more: &[&[u8]]) {
        let mut keys = self.keys();
        for key in more {
            if keys.len() < MOST_SECOND_KEYS {
                keys.insert(key.to_vec());
            }
        }
    }

    /// All of them; `None` if there were more than are remembered.
    pub(crate) fn all(&self) -> Option<Vec<Vec<u8>>> {
        let keys = self.keys();
        if keys.len() == MOST_SECOND_KEYS {
            return None;
        }
        Some(keys.iter().cloned().collect())
    }
}

impl Second {
    pub(crate) fn new(opener: Opener) -> Self {
        Self {
            opener,
            open: tokio::sync::Mutex::default(),
            under_way: Semaphore::new(BYTES_UNDER_WAY),
        }
    }

    /// Waits until so many bytes more may be under way.
    pub(crate) async fn room(&self, bytes: usize) -> Option<SemaphorePermit<'_>> {
        let bytes = u32::try_from(bytes.min(BYTES_UNDER_WAY)).ok()?;
        self.under_way.acquire_many(bytes).await.ok()
    }

    /// The connection, for a read of these keys.
    pub(crate) async fn connection(&self, keys: &[&[u8]]) -> Result<Connection, NearError> {
        let mut open = self.open.lock().await;
        loop {
            if let Some(connection) = &*open {
                // First the keys are added, then the mark is looked at. The push handler marks the
                // end first, and takes the keys second.
                connection.second_keys.add(keys);
                if !connection.ended.is_marked() {
                    return Ok(connection.clone());
                }
            }
            *open = None;
            *open = Some((self.opener)().await?);
        }
    }

    /// The connection if there is one.
    pub(crate) async fn opened(&self) -> Option<Connection> {
        let open = self.open.lock().await;
        open.clone().filter(|open| !open.ended.is_marked())
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

    pub(crate) fn is_marked(&self) -> bool {
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

    /// Asks every node for a sign of life over its main connection, all at once.
    pub(crate) async fn ping(&self, quiet: Duration) -> Result<(), NearError> {
        let any_role = self.is_cluster();
        let pings = self.nodes.iter();
        let pings = pings.map(|node| node.main.ping(&node.address, quiet, any_role));
        let mut outcome = Ok(());
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
