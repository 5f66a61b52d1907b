//! Makes the connections of a generation.

use crate::config::Settings;
use crate::connect::Connect;
use crate::error::NearError;
use crate::key::{Hasher, Key, Val};
use crate::link::Link;
use redis::Client;
use std::time::Duration;

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
        connect: &Connect<K, V, S>,
    ) -> Result<Link, NearError> {
        let client = match self {
            Self::Server(client) => client.clone(),
            #[cfg(feature = "cluster")]
            Self::Cluster { seeds, known } => {
                let all = [seeds.as_slice(), known.as_slice()].concat();
                let (link, nodes) = crate::cluster::open(&all, connect).await?;
                *known = nodes;
                return Ok(link);
            }
            #[cfg(feature = "sentinel")]
            Self::Sentinel(sentinels) => sentinels.primary(&connect.settings).await?,
        };
        let node = connect.node(&client, false).await?;
        Ok(Link::new(
            connect.generation,
            vec![node],
            connect.ended.clone(),
        ))
    }

    /// Ends when the server of this link is known to be no primary any more, other than by the
    /// link itself.
    pub(crate) async fn replaced(&self, link: &Link, settings: &Settings, every: Duration) {
        let _ = (link, settings, every);
        #[cfg(feature = "sentinel")]
        if let Self::Sentinel(sentinels) = self {
            let primary = &link.nodes[0].address;
            return sentinels.replaced(primary, settings, every).await;
        }
        std::future::pending().await
    }
}
