//! Makes the connections of a generation.

use crate::config::Settings;
use crate::connect::Connect;
use crate::error::NearError;
use crate::key::NearKey;
use crate::link::Link;
use crate::push::PushHandler;
use redis::{Client, ProtocolVersion};
use std::hash::{BuildHasher, Hash};
use std::sync::Arc;

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
