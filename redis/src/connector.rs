//! Makes the connections of a generation.

use crate::config::Settings;
use crate::connect::Connect;
#[cfg(feature = "sentinel")]
use crate::connect::within_time;
use crate::error::NearError;
use crate::key::NearKey;
use crate::link::Link;
use crate::push::PushHandler;
use redis::{Client, ProtocolVersion};
use std::hash::{BuildHasher, Hash};
use std::sync::Arc;

/// Where to connect.
pub(crate) enum Connector {
    /// To one server.
    Server(Client),
    /// To the primaries of a cluster.
    #[cfg(feature = "cluster")]
    Cluster {
        /// Some of its nodes.
        seeds: Vec<Client>,
        /// The nodes as they were last seen: all seeds may have left the cluster since.
        known: Vec<Client>,
    },
    /// To the primary that the sentinels name.
    #[cfg(feature = "sentinel")]
    Sentinel(crate::sentinel::Sentinels),
}

impl Connector {
    /// Connections use RESP3, whatever the clients say.
    pub(crate) fn validate(&mut self) -> Result<(), NearError> {
        match self {
            Self::Server(client) => *client = speaking_resp3(client.clone())?,
            #[cfg(feature = "cluster")]
            Self::Cluster { seeds, .. } => {
                if seeds.is_empty() {
                    let fault = "the cluster has 0 nodes to begin with, but needs at least one";
                    return Err(NearError::Config(fault.into()));
                }
                for seed in seeds {
                    *seed = speaking_resp3(seed.clone())?;
                }
            }
            #[cfg(feature = "sentinel")]
            Self::Sentinel(_) => {}
        }
        Ok(())
    }

    /// The addresses to begin with.
    pub(crate) fn addresses(&self) -> Vec<String> {
        let address = |client: &Client| client.get_connection_info().addr().to_string();
        match self {
            Self::Server(client) => vec![address(client)],
            #[cfg(feature = "cluster")]
            Self::Cluster { seeds, .. } => seeds.iter().map(address).collect(),
            #[cfg(feature = "sentinel")]
            Self::Sentinel(_) => vec!["the sentinels".into()],
        }
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
            #[cfg(feature = "cluster")]
            any_role: matches!(self, Self::Cluster { .. }),
            #[cfg(not(feature = "cluster"))]
            any_role: false,
        };
        let client = match self {
            Self::Server(client) => client.clone(),
            #[cfg(feature = "cluster")]
            Self::Cluster { seeds, known } => {
                let all = [seeds.as_slice(), known.as_slice()].concat();
                let opened = crate::cluster::open(&all, &connect, generation, ended).await;
                let (link, nodes) = opened?;
                *known = nodes;
                return Ok(link);
            }
            #[cfg(feature = "sentinel")]
            Self::Sentinel(sentinels) => {
                let limit = settings.connect_timeout;
                let primary = within_time(limit, "the sentinels", sentinels.primary()).await?;
                speaking_resp3(primary)?
            }
        };
        let node = connect.node(&client).await?;
        Ok(Link::single(generation, node, ended))
    }

    /// Ends when the server of this link is known to be no primary any more, other than by the
    /// link itself.
    pub(crate) async fn replaced(&self, link: &Link, pause: std::time::Duration) {
        let _ = (link, pause);
        #[cfg(feature = "sentinel")]
        if let Self::Sentinel(sentinels) = self {
            return sentinels.replaced(&link.nodes()[0].address, pause).await;
        }
        std::future::pending().await
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
