//! One generation: the connections that are made together and end together.
//!
//! A link to a single server is one connection, a link to a cluster one to each of its primaries.
//! Tracking is on before a link is used. If one connection ends, the link has ended.

use crate::config::Settings;
use crate::connection::{Connection, Ended, Login, within_time};
use crate::error::NearError;
use futures_util::future::{try_join, try_join_all};
use futures_util::{FutureExt, TryFutureExt};
use redis::{Cmd, ConnectionInfo, ErrorKind, Pipeline, RedisResult, ServerErrorKind, Value};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tokio::runtime::Handle;
use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::task::unconstrained;
use tokio::time::timeout;

#[cfg(feature = "cluster")]
use crate::slots::Slots;

/// How many bytes of large values may be under way on the second connection for reads.
const BYTES_UNDER_WAY: usize = 4 << 20;
/// How long the main connection serves alone when a second one could not be made.
const SECOND_PAUSE: Duration = Duration::from_secs(1);

/// A server, and the connections to it.
pub(crate) struct Node {
    pub(crate) address: String,
    /// The connection without which the generation ends. The server tracks its reads.
    pub(crate) main: Connection,
    pub(crate) reads: Arc<Second>,
    /// Those that no large write has now, the one that was used last at the end.
    pub(crate) free: Mutex<Vec<Arc<Second>>>,
}

/// A second connection, which one large write has alone.
///
/// If the write is given up, what was sent of it may still be on its way, and would come after a
/// later write of the key. So the connection is not used again, and the server is told to end it.
pub(crate) struct Lent<'a> {
    node: &'a Node,
    second: Arc<Second>,
    /// With the number by which the server ends it; `None` where the main one has to serve.
    pub(crate) connection: Option<(Connection, i64)>,
    pub(crate) is_answered: bool,
}

impl Drop for Lent<'_> {
    fn drop(&mut self) {
        let Some((_, id)) = self.connection else {
            // All others come before one that could not be made.
            return self.node.free().insert(0, self.second.clone());
        };
        if self.is_answered {
            return self.node.free().push(self.second.clone());
        }
        let main = self.node.main.clone();
        let mut ending = Box::pin(unconstrained(async move {
            // Not over a new connection, if this one has ended: the server may have restarted, and
            // the number be that of another client.
            let _ = main.send_one(&kill(id)).await;
        }));
        // The first poll gives it its place before each later request.
        if (&mut ending).now_or_never().is_none() {
            self.second.runtime.spawn(ending);
        }
    }
}

/// The command that ends the connection with this number.
fn kill(id: i64) -> Cmd {
    let mut kill = redis::cmd("CLIENT");
    kill.arg("KILL").arg("ID").arg(id);
    kill
}

impl Node {
    /// Asks for a sign of life over the main connection.
    ///
    /// A server answers in order, so each invalidation that it sent before the answer has been
    /// applied when this returns. An error of the server is an answer, too: `PING` may be refused
    /// by the user's ACL, or while a script runs. A server that is no primary has no answer.
    pub(crate) async fn ping(&self, quiet: Duration, any_role: bool) -> Result<(), NearError> {
        use ServerErrorKind::{BusyLoading, MasterDown};
        let mut ping = Pipeline::with_capacity(2);
        ping.cmd("PING");
        ping.cmd("HELLO").arg(3);
        let replies = self.main.while_bytes_arrive(quiet, self.main.send(&ping));
        let replies = replies.await?.map_err(NearError::requesting)?;
        let mut replies = replies.into_iter().map(Value::extract_error);
        let ping = replies.next();
        if !matches!(ping, Some(Ok(Value::SimpleString(_)) | Err(_))) {
            return Err(NearError::Protocol("no PONG to PING".into()));
        }
        let server = self.address.clone();
        if let Some(Ok(hello)) = replies.next() {
            let fields = redis::from_redis_value::<HashMap<String, Value>>(hello);
            let role = fields.unwrap_or_default().remove("role");
            let role = redis::from_redis_value::<String>(role.unwrap_or(Value::Nil));
            let role = role.unwrap_or_default();
            if !any_role && !matches!(role.as_str(), "" | "master") {
                return Err(NearError::NotPrimary { server, role });
            }
        }
        if let Some(Err(error)) = ping {
            if matches!(error.kind(), ErrorKind::Server(BusyLoading | MasterDown)) {
                return Err(NearError::connecting(&server, error));
            }
        }
        Ok(())
    }

    fn free(&self) -> MutexGuard<'_, Vec<Arc<Second>>> {
        self.free.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A second connection, for one large write alone, which waits for so long. What was sent
    /// before over the main connection comes before what is sent over this one.
    pub(crate) async fn lend(&self, wait: Duration) -> RedisResult<Lent<'_>> {
        let mut lent = Lent {
            node: self,
            second: self.free().pop().unwrap_or_else(|| self.reads.another()),
            connection: None,
            is_answered: false,
        };
        if let Attempt::Connected(connection) = lent.second.connection(wait).await {
            // Otherwise the server could not be told to end it.
            if let Some(id) = connection.id {
                // A refusal is an answer.
                self.main.send(redis::pipe().cmd("PING")).await?;
                lent.connection = Some((connection, id));
            }
        }
        Ok(lent)
    }
}

/// A second connection to a server, for reads of large values or for one large write at a time. It
/// is made at its first use, and again after its end. The server does not track its reads, so its
/// end says nothing about what it brought. Where there is none in time, the main connection serves,
/// for a suspect (`suspects.rs`) only where there can be none at all.
pub(crate) struct Second {
    pub(crate) settings: Arc<Settings>,
    info: ConnectionInfo,
    /// The connection whose server this one has to reach, too.
    main: Connection,
    /// What the last attempt has brought, and when that was, or when the connection was last used.
    /// It is locked during an attempt: calls that come meanwhile share the outcome.
    last: tokio::sync::Mutex<Option<(Attempt, Instant)>>,
    /// That of `connect`. A caller's own may stand still, with `last` locked.
    runtime: Handle,
    /// How many bytes of large values may be under way.
    under_way: Semaphore,
}

/// What a call gets that asks for a second connection.
#[derive(Clone)]
pub(crate) enum Attempt {
    Connected(Connection),
    /// None now: the attempt has failed with an error, or still runs.
    Later(Option<NearError>),
    /// None: it would lead to another server, or the user may not ask to which one.
    Never,
}

impl Second {
    pub(crate) fn new(
        settings: Arc<Settings>,
        info: ConnectionInfo,
        main: Connection,
        runtime: Handle,
    ) -> Arc<Self> {
        Arc::new(Self {
            settings,
            info,
            main,
            last: tokio::sync::Mutex::new(None),
            runtime,
            under_way: Semaphore::new(BYTES_UNDER_WAY),
        })
    }

    /// Another second connection to the same server.
    fn another(&self) -> Arc<Self> {
        let (settings, info) = (self.settings.clone(), self.info.clone());
        Self::new(settings, info, self.main.clone(), self.runtime.clone())
    }

    /// Waits until so many bytes more may be under way.
    pub(crate) async fn room(&self, bytes: usize) -> Option<SemaphorePermit<'_>> {
        let bytes = u32::try_from(bytes.min(BYTES_UNDER_WAY)).ok()?;
        self.under_way.acquire_many(bytes).await.ok()
    }

    /// The connection, for each call that asks. An attempt that takes longer than `limit` goes on.
    pub(crate) async fn connection(self: &Arc<Self>, limit: Duration) -> Attempt {
        let attempt = self.runtime.spawn(self.clone().open());
        match timeout(limit, attempt).await {
            Ok(Ok(attempt)) => attempt,
            _ => Attempt::Later(None),
        }
    }

    async fn open(self: Arc<Self>) -> Attempt {
        let mut last = self.last.lock().await;
        // No heartbeat finds out that an unused one is silently dead.
        let idle = self.settings.heartbeat.saturating_mul(2);
        match &mut *last {
            Some((Attempt::Connected(connection), used))
                if !connection.ended.is_marked() && used.elapsed() < idle =>
            {
                *used = Instant::now();
                return Attempt::Connected(connection.clone());
            }
            // It is replaced.
            Some((Attempt::Connected(_), _)) => {}
            Some((failed, at)) if at.elapsed() < SECOND_PAUSE => return failed.clone(),
            _ => {}
        }
        let attempt = self.open_once().await;
        let attempt = attempt.unwrap_or_else(|error| Attempt::Later(Some(error)));
        *last = Some((attempt.clone(), Instant::now()));
        attempt
    }

    /// Opens a connection, which may lead to another server than the main one: behind a balancer,
    /// or during a failover. Then it is of no use.
    async fn open_once(&self) -> Result<Attempt, NearError> {
        let (info, ended) = (self.info.clone(), Ended::default());
        let address = info.addr().to_string();
        let opening = Connection::open(&self.settings, info, Login::OfProvider, ended, |_| {});
        let mut connection = opening.await?;
        let mut asked = Pipeline::with_capacity(3);
        asked.cmd("INFO").arg("server");
        asked.cmd("CLIENT").arg("ID");
        // No connection has this number: only whether the user may.
        asked.add_command(kill(i64::MAX));
        let both = try_join(self.main.send(&asked), connection.send(&asked));
        let both = both.map_err(NearError::requesting);
        let (main, second) = within_time(self.settings.connect_timeout, &address, both).await?;
        let run = run_id(&main)?;
        // Nor is it for a user who may not ask.
        if run.is_none() || run != run_id(&second)? {
            return Ok(Attempt::Never);
        }
        if let [_, Value::Int(id), Value::Int(_)] = second.as_slice() {
            connection.id = Some(*id);
        }
        Ok(Attempt::Connected(connection))
    }
}

/// By what a server tells its run from all others, in its reply to `INFO`. `None`: it does not tell
/// this user.
fn run_id(replies: &[Value]) -> Result<Option<String>, NearError> {
    let info = match replies.first().cloned().unwrap_or(Value::Nil) {
        // It will, once a script has ended.
        Value::ServerError(error) if error.code() == "BUSY" => {
            return Err(NearError::requesting(error.into()));
        }
        info => redis::from_redis_value::<String>(info).unwrap_or_default(),
    };
    let mut ids = info.lines().filter_map(|line| line.strip_prefix("run_id:"));
    Ok(ids.next().map(str::to_string))
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
            return self.node_at(slots.address_of(_key)?);
        }
        self.nodes.first()
    }

    pub(crate) fn node_at(&self, address: &str) -> Option<&Node> {
        self.nodes.iter().find(|node| node.address == address)
    }

    /// Asks every node for a sign of life over its main connection, all at once.
    pub(crate) async fn ping(&self, quiet: Duration) -> Result<(), NearError> {
        let any_role = self.is_cluster();
        let pings = self.nodes.iter().map(|node| node.ping(quiet, any_role));
        try_join_all(pings).await?;
        Ok(())
    }
}
