//! Makes the connections of a generation, and turns tracking on.

use crate::config::Settings;
use crate::connection::{Connection, Ended, Login, within_time};
use crate::error::NearError;
use crate::link::{Link, Node, Second};
use crate::push;
#[cfg(any(feature = "cluster", feature = "sentinel"))]
use redis::ConnectionAddr;
use redis::{Client, Pipeline, PushInfo, Value};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::runtime::Handle;

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
    pub(crate) async fn open(&mut self, connect: &Connect) -> Result<Link, NearError> {
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
        Ok(connect.link(vec![node]))
    }

    /// Ends when the server of this link is known to be no primary any more, other than by the
    /// link itself.
    pub(crate) async fn replaced(&mut self, link: &Link, settings: &Settings, every: Duration) {
        let _ = (link, settings, every);
        #[cfg(feature = "sentinel")]
        if let Self::Sentinel(sentinels) = self {
            let primary = &link.nodes[0].address;
            return sentinels.replaced(primary, settings, every).await;
        }
        std::future::pending().await
    }
}

/// How to connect to any node of one generation.
pub(crate) struct Connect {
    pub(crate) settings: Arc<Settings>,
    pub(crate) generation: u64,
    /// Marked at the end of any main connection of the generation.
    pub(crate) ended: Ended,
    /// Told what the server reports over the main connections.
    pub(crate) on_push: Arc<dyn Fn(PushInfo) + Send + Sync>,
}

impl Connect {
    pub(crate) fn link(&self, nodes: Vec<Node>) -> Link {
        Link {
            generation: self.generation,
            nodes,
            ended: self.ended.clone(),
            #[cfg(feature = "cluster")]
            slots: None,
        }
    }

    /// A node with tracking on. A node of a cluster may be a replica: then it is asked for the
    /// topology alone.
    pub(crate) async fn node(&self, client: &Client, any_role: bool) -> Result<Node, NearError> {
        let info = client.get_connection_info().clone();
        let address = info.addr().to_string();
        let on_push = self.on_push.clone();
        let on_push = move |push| on_push(push);
        let (settings, ended) = (&self.settings, self.ended.clone());
        let opening = Connection::open(settings, info.clone(), Login::OfProvider, ended, on_push);
        let main = opening.await?;
        let node = Node {
            address,
            reads: Second::new(settings.clone(), info, main.clone(), Handle::current()),
            free: Mutex::default(),
            main,
        };
        let greeting = greet(settings, &node, any_role);
        within_time(settings.connect_timeout, &node.address, greeting).await?;
        Ok(node)
    }
}

/// Turns tracking on, makes sure that the node is a primary that answers, and tries to run a
/// script if the user has asked for the lock of loads.
async fn greet(settings: &Settings, node: &Node, any_role: bool) -> Result<(), NearError> {
    let server = node.address.clone();
    let mut greeting = Pipeline::new();
    greeting.add_command(push::tracking(settings));
    if settings.load_lock_is_wanted {
        greeting.cmd("EVAL").arg("return 0").arg(0);
    }
    let replies = node.main.send(&greeting).await;
    let replies = replies.map_err(|error| NearError::connecting(&server, error))?;
    let mut replies = replies.into_iter().map(Value::extract_error);
    if let Some(Err(error)) = replies.next() {
        if error.code() == Some("BUSY") {
            // While a script runs, it refuses any command.
            return Err(NearError::connecting(&server, error));
        }
        let source = Arc::new(error);
        return Err(NearError::TrackingRefused { server, source });
    }
    match replies.next() {
        Some(Err(error)) if error.code() == Some("NOPERM") => {
            let source = Arc::new(error);
            Err(NearError::LoadsDenied { server, source })
        }
        _ => node.ping(settings.connect_timeout, any_role).await,
    }
}

/// A client for the server at another address, with the rights and settings of this one.
#[cfg(any(feature = "cluster", feature = "sentinel"))]
pub(crate) fn with_address(client: &Client, address: &str) -> Result<Client, NearError> {
    let (name, number) = address.rsplit_once(':').unwrap_or((address, ""));
    let number: u16 = number
        .parse()
        .map_err(|_| NearError::Protocol(format!("the address {address:?} of a server")))?;
    let name = name.to_string();
    let info = client.get_connection_info();
    let mut addr = info.addr().clone();
    match &mut addr {
        ConnectionAddr::Tcp(host, port) | ConnectionAddr::TcpTls { host, port, .. } => {
            *host = name;
            *port = number;
        }
        _ => addr = ConnectionAddr::Tcp(name, number),
    }
    let info = info.clone().set_addr(addr);
    Client::open(info).map_err(|error| NearError::connecting(address, error))
}
