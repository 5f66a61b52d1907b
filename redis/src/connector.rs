//! Makes the connections of a generation.

use crate::config::Settings;
use crate::error::NearError;
use crate::key::NearKey;
use crate::link::{Link, Node};
use crate::push::PushHandler;
use crate::tracking;
use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, Client, ProtocolVersion, PushInfo, Value};
use std::hash::{BuildHasher, Hash};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::timeout;

/// How many requests may wait in memory for the task that writes them.
const REQUEST_QUEUE: usize = 512;

/// Where to connect, and how.
pub(crate) struct Connector {
    /// The server; of a cluster, some of its nodes.
    seeds: Vec<Client>,
    /// Whether the servers are a cluster.
    #[cfg_attr(not(feature = "cluster"), expect(dead_code))]
    cluster: bool,
    /// The nodes of the cluster as it was last seen: all seeds may have left it since.
    #[cfg(feature = "cluster")]
    known: Vec<Client>,
}

impl Connector {
    /// For these servers. Connections use RESP3, whatever the clients say.
    pub(crate) fn new(seeds: Vec<Client>, cluster: bool) -> Result<Self, NearError> {
        let seeds: Result<Vec<_>, _> = seeds.into_iter().map(speaking_resp3).collect();
        let seeds = seeds?;
        if seeds.is_empty() {
            return Err(NearError::Config(
                "the cluster has 0 nodes to begin with, but needs at least one".into(),
            ));
        }
        Ok(Self {
            seeds,
            cluster,
            #[cfg(feature = "cluster")]
            known: Vec::new(),
        })
    }

    /// Makes the connections of a generation and turns tracking on.
    pub(crate) async fn open<K, V, S>(
        &mut self,
        handler: PushHandler<K, V, S>,
        settings: &Settings,
    ) -> Result<Link, NearError>
    where
        K: NearKey + Hash + Eq + Clone + Send + Sync + 'static,
        V: Clone + Send + Sync + 'static,
        S: BuildHasher + Send + Sync + 'static,
    {
        let generation = handler.generation();
        let ended = handler.ended();
        let connect = Connect {
            handler: Arc::new(handler),
            settings,
        };
        #[cfg(feature = "cluster")]
        if self.cluster {
            let seeds = [self.seeds.as_slice(), self.known.as_slice()].concat();
            let opened = crate::cluster::open(&seeds, &connect, generation, ended).await;
            let (link, nodes) = opened?;
            self.known = nodes;
            return Ok(link);
        }
        let node = connect.node(&self.seeds[0]).await?;
        Ok(Link::single(generation, node, ended))
    }
}

/// How to connect to any node of one generation.
pub(crate) struct Connect<'a, K, V, S> {
    handler: Arc<PushHandler<K, V, S>>,
    settings: &'a Settings,
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
                handler.hear(push);
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

fn speaking_resp3(client: Client) -> Result<Client, NearError> {
    let info = client.get_connection_info();
    if info.redis_settings().protocol() == ProtocolVersion::RESP3 {
        return Ok(client);
    }
    let settings = info.redis_settings().clone();
    let settings = settings.set_protocol(ProtocolVersion::RESP3);
    let info = info.clone().set_redis_settings(settings);
    let address = info.addr().to_string();
    Client::open(info).map_err(|error| NearError::connecting(&address, error))
}
