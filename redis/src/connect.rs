//! Connects to one node, and turns tracking on there.

use crate::config::Settings;
use crate::error::NearError;
use crate::key::{Hasher, Key, Val};
use crate::link::{Driver, Node, role_fault};
use crate::push::PushHandler;
use crate::stream::{self, Arrivals};
use crate::tracking;
use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, Client, ConnectionInfo, ErrorKind};
use redis::{Pipeline, ProtocolVersion, PushInfo, RedisError, ServerErrorKind, Value};
use std::future::poll_fn;
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
}

impl<K: Key, V: Val, S: Hasher> Connect<'_, K, V, S> {
    /// A connection with tracking on. A node of a cluster may be a replica: then it is asked for
    /// the topology alone.
    pub(crate) async fn node(&self, client: &Client, any_role: bool) -> Result<Node, NearError> {
        let address = client.get_connection_info().addr().to_string();
        let connecting = self.node_in_time(client, &address, any_role);
        within_time(self.settings.connect_timeout, &address, connecting).await
    }

    async fn node_in_time(
        &self,
        client: &Client,
        address: &str,
        any_role: bool,
    ) -> Result<Node, NearError> {
        let info = client.get_connection_info().clone();
        // Whatever the client says.
        let settings = info.redis_settings().clone();
        let mut info = info.set_redis_settings(settings.set_protocol(ProtocolVersion::RESP3));
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
        self.greet(&mut connection, address, any_role).await?;
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
    ) -> Result<
        (
            MultiplexedConnection,
            Option<Arc<Arrivals>>,
            Option<Arc<Driver>>,
        ),
        NearError,
    > {
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
            let opened = caught(opening).await.unwrap_or_else(|| Err(no_provider()));
            return Ok((opened.map_err(failed)?, None, None));
        };
        let opening = MultiplexedConnection::new_with_config(info.redis_settings(), stream, config);
        match opening.await {
            Ok((connection, driver)) => {
                Ok((connection, Some(arrivals), Some(Driver::spawn(driver))))
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

    /// Turns tracking on, and makes sure that the node is a primary that answers.
    async fn greet(
        &self,
        connection: &mut MultiplexedConnection,
        address: &str,
        any_role: bool,
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
        let role = if any_role { None } else { hello };
        role_fault(address, role, ping).map_or(Ok(()), Err)
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
fn no_provider() -> RedisError {
    let what = "TLS has no crypto provider: depend on `rustls` with the feature `ring` or \
                `aws_lc_rs`, or call `CryptoProvider::install_default` before `connect`";
    RedisError::from((ErrorKind::InvalidClientConfig, what))
}
