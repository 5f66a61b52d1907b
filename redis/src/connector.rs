//! Makes the connections of a generation.

use crate::config::Settings;
use crate::connect::Connect;
#[cfg(feature = "sentinel")]
use crate::connect::within_time;
use crate::error::NearError;
use crate::key::{Hasher, Key, Val};
use crate::link::Link;
use crate::push::PushHandler;
use redis::Client;
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
    /// Makes the connections of a generation and turns tracking on.
    pub(crate) async fn open<K: Key, V: Val, S: Hasher>(
        &mut self,
        handler: PushHandler<K, V, S>,
        settings: &Settings,
    ) -> Result<Link, NearError> {
        let generation = handler.generation();
        let ended = handler.ended();
        let connect = Connect {
            handler: Arc::new(handler),
            settings,
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
                within_time(limit, "the sentinels", sentinels.primary()).await?
            }
        };
        let node = connect.node(&client, false).await?;
        Ok(Link::new(generation, vec![node], ended))
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
