//! Connects to one node, and turns tracking on there.

use crate::config::Settings;
use crate::error::NearError;
use crate::key::NearKey;
use crate::link::{Driver, Node, role_fault};
use crate::push::PushHandler;
use crate::stream::{self, Arrivals};
use crate::tracking;
use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, Client, ConnectionAddr, ConnectionInfo, ErrorKind};
use redis::{Pipeline, PushInfo, RedisError, ServerErrorKind, Value};
use std::future::poll_fn;
use std::hash::{BuildHasher, Hash};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::timeout;

/// How many requests may wait in memory for the task that writes them.
const REQUEST_QUEUE: usize = 512;

/// How to connect to any node of one generation.
pub(crate) struct Connect<'a, K, V, S> {
    pub(crate) handler: Arc<PushHandler<K, V, S>>,
    pub(crate) settings: &'a Settings,
    /// A node of a cluster may be a replica: it is asked for the topology alone.
    pub(crate) any_role: bool,
}

impl<K, V, S> Connect<'_, K, V, S>
where
    K: NearKey + Hash + Eq + Clone + Send + Sync + 'static,
    V: Clone + Send + Sync + 'static,
    S: BuildHasher + Send + Sync + 'static,
{
    /// A connection with tracking on.
    pub(crate) async fn node(&self, client: &Client) -> Result<Node, NearError> {
        let address = client.get_connection_info().addr().to_string();
        let connecting = self.node_in_time(client, &address);
        within_time(self.settings.connect_timeout, &address, connecting).await
    }

    async fn node_in_time(&self, client: &Client, address: &str) -> Result<Node, NearError> {
        let mut info = client.get_connection_info().clone();
        let mut opened = Err(NearError::Closed);
        // Credentials may change between the provider's answer and the server's look at them.
        for _ in 0..2 {
            if let Some(provider) = &self.settings.credentials {
                info = provider.renew(info, address).await?;
            }
            opened = self.open(&info, address).await;
            let refused = opened.as_ref().is_err_and(NearError::is_authentication);
            if !(refused && self.settings.credentials.is_some()) {
                break;
            }
        }
        let (mut connection, arrivals, driver) = opened?;
        self.greet(&mut connection, address).await?;
        Ok(Node {
            address: address.to_string(),
            connection,
            arrivals,
            _driver: driver,
        })
    }

    async fn open(
        &self,
        info: &ConnectionInfo,
        address: &str,
    ) -> Result<(MultiplexedConnection, Option<Arrivals>, Option<Driver>), NearError> {
        let handler = self.handler.clone();
        let config = AsyncConnectionConfig::new()
            .set_connection_timeout(None)
            .set_response_timeout(None)
            .set_pipeline_buffer_size(REQUEST_QUEUE)
            .set_push_sender(move |push: PushInfo| -> Result<(), redis::aio::SendError> {
                handler.handle_push(push);
                Ok(())
            });
        let failed = |error| NearError::connecting(address, error);
        let opened = stream::open(info).await;
        let Some((stream, arrivals)) = opened.map_err(|error| failed(error.into()))? else {
            let client = Client::open(info.clone()).map_err(failed)?;
            let opening = client.get_multiplexed_async_connection_with_config(&config);
            let opened = caught(opening)
                .await
                .unwrap_or_else(|| Err(no_provider(info)));
            return Ok((opened.map_err(failed)?, None, None));
        };
        let opening = MultiplexedConnection::new_with_config(info.redis_settings(), stream, config);
        match opening.await {
            Ok((connection, driver)) => Ok((connection, Some(arrivals), Some(Driver::new(driver)))),
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

    /// Turns tracking on, and makes sure that the node is a primary that answers.
    async fn greet(
        &self,
        connection: &mut MultiplexedConnection,
        address: &str,
    ) -> Result<(), NearError> {
        let mut greeting = Pipeline::with_capacity(3);
        greeting.cmd("HELLO").arg(3);
        greeting.add_command(tracking::command(self.settings));
        // Of the three commands the only one that a server refuses while it reads its file.
        greeting.cmd("PING");
        let replies = connection.send_packed_commands(&greeting, 0, 3).await;
        let replies = replies.map_err(|error| NearError::connecting(address, error))?;
        let mut replies = replies.into_iter().map(Value::extract_error);
        let (hello, tracked, ping) = (replies.next(), replies.next(), replies.next());
        if let Some(Err(error)) = tracked {
            return Err(NearError::TrackingRefused {
                server: address.to_string(),
                source: Arc::new(error),
            });
        }
        let role = if self.any_role { None } else { hello };
        match role_fault(address, role, ping) {
            Some(fault) => Err(fault),
            None => Ok(()),
        }
    }

    #[cfg(feature = "cluster")]
    pub(crate) fn connect_timeout(&self) -> Duration {
        self.settings.connect_timeout
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
async fn caught<T>(future: impl Future<Output = T>) -> Option<T> {
    let mut future = pin!(future);
    poll_fn(|cx| {
        catch_unwind(AssertUnwindSafe(|| future.as_mut().poll(cx).map(Some)))
            .unwrap_or(std::task::Poll::Ready(None))
    })
    .await
}

/// The TLS library panics where no cryptography was chosen for it.
fn no_provider(info: &ConnectionInfo) -> RedisError {
    let what = match info.addr() {
        ConnectionAddr::TcpTls { .. } => {
            "TLS has no crypto provider: depend on `rustls` with the feature `ring` or \
             `aws_lc_rs`, or call `CryptoProvider::install_default` before `connect`"
        }
        _ => "the client library panicked",
    };
    RedisError::from((ErrorKind::InvalidClientConfig, what))
}
