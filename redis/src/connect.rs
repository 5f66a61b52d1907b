//! Connects to one node, and turns tracking on there.

use crate::config::Settings;
use crate::error::NearError;
use crate::key::NearKey;
use crate::link::Node;
use crate::push::PushHandler;
use crate::tracking;
use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, Client, PushInfo, Value};
use std::hash::{BuildHasher, Hash};
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

impl<K, V, S> Connect<'_, K, V, S>
where
    K: NearKey + Hash + Eq + Clone + Send + Sync + 'static,
    V: Clone + Send + Sync + 'static,
    S: BuildHasher + Send + Sync + 'static,
{
    /// A connection with tracking on.
    pub(crate) async fn node(&self, client: &Client) -> Result<Node, NearError> {
        let address = client.get_connection_info().addr().to_string();
        let within = self.settings.connect_timeout;
        let handler = self.handler.clone();
        let config = AsyncConnectionConfig::new()
            .set_connection_timeout(None)
            .set_response_timeout(None)
            .set_pipeline_buffer_size(REQUEST_QUEUE)
            .set_push_sender(move |push: PushInfo| -> Result<(), redis::aio::SendError> {
                handler.handle_push(push);
                Ok(())
            });
        let handshake = async {
            let mut connection = client
                .get_multiplexed_async_connection_with_config(&config)
                .await
                .map_err(|error| NearError::connecting(&address, error))?;
            track(&mut connection, self.settings, &address).await?;
            Ok(connection)
        };
        let connection = within_time(within, &address, handshake).await?;
        Ok(Node {
            address,
            connection,
        })
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

async fn track(
    connection: &mut MultiplexedConnection,
    settings: &Settings,
    address: &str,
) -> Result<(), NearError> {
    let reply = connection
        .send_packed_command(&tracking::command(settings))
        .await
        .and_then(Value::extract_error);
    match reply {
        Ok(_) => Ok(()),
        Err(error) if error.is_unrecoverable_error() => Err(NearError::connecting(address, error)),
        Err(error) => Err(NearError::TrackingRefused {
            server: address.to_string(),
            source: Arc::new(error),
        }),
    }
}
