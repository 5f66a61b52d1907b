//! One connection to a server. Every connection of the crate is opened here.

use crate::config::Settings;
use crate::error::NearError;
use crate::stream::{self, Arrivals};
use futures_util::FutureExt;
use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, Client, Cmd, ConnectionInfo, ErrorKind, ProtocolVersion};
use redis::{Pipeline, PushInfo, PushKind, RedisError, RedisResult, ServerErrorKind, Value};
use std::panic::AssertUnwindSafe;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::task::JoinSet;
use tokio::time::timeout;

/// How many requests may wait in memory for the task that writes them.
const REQUEST_QUEUE: usize = 512;

/// One connection. A clone costs a few reference counts.
#[derive(Clone)]
pub(crate) struct Connection {
    pub(crate) requests: MultiplexedConnection,
    pub(crate) ended: Ended,
    /// By which number the server can be told to end it; `None`: by none, or that is not known.
    pub(crate) id: Option<i64>,
    /// `None` over TLS.
    arrivals: Option<Arc<Arrivals>>,
    /// The task that reads and writes; it ends with the last handle. `None` over TLS: the client
    /// library has it.
    _driver: Option<Arc<JoinSet<()>>>,
}

/// Whose user and password are said first. A provider has the second attempt in any case.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Login {
    /// Those of the provider; those of the client where there is none.
    OfProvider,
    #[cfg(feature = "sentinel")]
    OfClient,
}

/// Says that a connection has ended.
#[derive(Clone, Default)]
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

impl Connection {
    /// Opens a connection. The mark `ended` is set when it ends, before `on_push` is told. The
    /// provider and the server have `connect_timeout` each.
    pub(crate) async fn open(
        settings: &Settings,
        info: ConnectionInfo,
        first: Login,
        ended: Ended,
        on_push: impl Fn(PushInfo) + Send + Sync + 'static,
    ) -> Result<Self, NearError> {
        let address = info.addr().to_string();
        // Whatever the client says.
        let resp3 = info.redis_settings().clone();
        let mut info = info.set_redis_settings(resp3.set_protocol(ProtocolVersion::RESP3));
        let on_push = Arc::new(on_push);
        let (provider, limit) = (settings.credentials.as_ref(), settings.connect_timeout);
        if let (Login::OfProvider, Some(provider)) = (first, provider) {
            info = provider.renew(info, &address, limit).await?;
        }
        let open_once = |info: ConnectionInfo| {
            let opening = Self::open_once(info, address.clone(), ended.clone(), on_push.clone());
            within_time(limit, &address, opening)
        };
        let opened = open_once(info.clone()).await;
        let refused = opened.as_ref().is_err_and(NearError::is_authentication);
        match provider {
            // They may change between the provider's answer and the server's look at them.
            Some(provider) if refused => {
                open_once(provider.renew(info, &address, limit).await?).await
            }
            _ => opened,
        }
    }

    async fn open_once(
        info: ConnectionInfo,
        address: String,
        ended: Ended,
        on_push: Arc<impl Fn(PushInfo) + Send + Sync + 'static>,
    ) -> Result<Self, NearError> {
        let mark = ended.clone();
        let config = AsyncConnectionConfig::new()
            .set_connection_timeout(None)
            .set_response_timeout(None)
            .set_pipeline_buffer_size(REQUEST_QUEUE)
            .set_push_sender(move |push: PushInfo| -> Result<(), redis::aio::SendError> {
                if push.kind == PushKind::Disconnection {
                    mark.mark();
                }
                on_push(push);
                Ok(())
            });
        let failed = |error| NearError::connecting(&address, error);
        let opened = |requests, arrivals, driver| Self {
            requests,
            ended,
            id: None,
            arrivals,
            _driver: driver,
        };
        let stream = stream::open(&info).await;
        let Some((stream, arrivals)) = stream.map_err(|error| failed(error.into()))? else {
            let client = Client::open(info.clone()).map_err(failed)?;
            let opening = client.get_multiplexed_async_connection_with_config(&config);
            let requests = caught(opening).await.unwrap_or_else(|| Err(no_provider()));
            return Ok(opened(requests.map_err(failed)?, None, None));
        };
        let opening = MultiplexedConnection::new_with_config(info.redis_settings(), stream, config);
        match opening.await {
            Ok((requests, driver)) => {
                let mut driving = JoinSet::new();
                driving.spawn(driver);
                Ok(opened(requests, Some(arrivals), Some(Arc::new(driving))))
            }
            Err(error) => Err(failed(match arrivals.refusal() {
                Some(said) if error.is_unrecoverable_error() => RedisError::from((
                    ErrorKind::Server(ServerErrorKind::ResponseError),
                    "the server refused the connection",
                    said,
                )),
                _ => error,
            })),
        }
    }

    /// Sends commands together; their replies, in their order.
    pub(crate) async fn send(&self, commands: &Pipeline) -> RedisResult<Vec<Value>> {
        let (mut requests, count) = (self.requests.clone(), commands.len());
        requests.send_packed_commands(commands, 0, count).await
    }

    /// Sends a command; its reply.
    pub(crate) async fn send_one(&self, command: &Cmd) -> RedisResult<Value> {
        let reply = self.requests.clone().send_packed_command(command).await;
        reply.and_then(Value::extract_error)
    }

    /// Waits for a reply as long as bytes arrive: until none has for the time `quiet`.
    pub(crate) async fn while_bytes_arrive<T>(
        &self,
        quiet: Duration,
        reply: impl Future<Output = T>,
    ) -> Result<T, NearError> {
        let mut reply = pin!(reply);
        let bytes = || self.arrivals.as_deref().map(Arrivals::bytes);
        loop {
            let before = bytes();
            if let Ok(reply) = timeout(quiet, &mut reply).await {
                return Ok(reply);
            }
            if bytes() == before {
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

/// Bounds one step of connecting.
pub(crate) async fn within_time<T>(
    limit: Duration,
    address: &str,
    step: impl Future<Output = Result<T, NearError>>,
) -> Result<T, NearError> {
    timeout(limit, step).await.unwrap_or_else(|_| {
        Err(NearError::ConnectTimedOut {
            server: address.to_string(),
            waited: limit,
        })
    })
}

/// The outcome of a future; `None` if it panics.
pub(crate) async fn caught<T>(future: impl Future<Output = T>) -> Option<T> {
    AssertUnwindSafe(future).catch_unwind().await.ok()
}

/// The TLS library panics where no cryptography was chosen for it.
fn no_provider() -> RedisError {
    let what = "TLS has no crypto provider: depend on `rustls` with the feature `ring` or \
                `aws_lc_rs`, or call `CryptoProvider::install_default` before `connect`";
    RedisError::from((ErrorKind::InvalidClientConfig, what))
}
