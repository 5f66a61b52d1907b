//! Connects to one node, and turns tracking on there.

use crate::config::Settings;
use crate::connection::{Connection, Ended, Login, within_time};
use crate::error::NearError;
use crate::key::{Hasher, Key, Val};
use crate::link::{Node, Second};
use crate::push::PushHandler;
use crate::shared::Shared;
use crate::tracking;
#[cfg(any(feature = "cluster", feature = "sentinel"))]
use redis::ConnectionAddr;
use redis::{Client, Pipeline, Value};
use std::sync::{Arc, Weak};

/// How to connect to any node of one generation.
pub(crate) struct Connect<K, V, S> {
    pub(crate) shared: Weak<Shared<K, V, S>>,
    pub(crate) settings: Arc<Settings>,
    pub(crate) generation: u64,
    /// Marked at the end of any main connection of the generation.
    pub(crate) ended: Ended,
}

impl<K: Key, V: Val, S: Hasher> Connect<K, V, S> {
    /// A node with tracking on. A node of a cluster may be a replica: then it is asked for the
    /// topology alone.
    pub(crate) async fn node(&self, client: &Client, any_role: bool) -> Result<Node, NearError> {
        let info = client.get_connection_info().clone();
        let address = info.addr().to_string();
        let handler = PushHandler {
            shared: self.shared.clone(),
            generation: self.generation,
        };
        let on_push = move |push| handler.handle_push(push);
        let (settings, ended) = (&self.settings, self.ended.clone());
        let opening = Connection::open(settings, info.clone(), Login::OfProvider, ended, on_push);
        let main = opening.await?;
        let node = Node {
            address,
            main,
            second: Second::new(self.settings.clone(), info),
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
    greeting.add_command(tracking::command(settings));
    if settings.load_lock_is_wanted {
        greeting.cmd("EVAL").arg("return 0").arg(0);
    }
    let mut requests = node.main.requests.clone();
    let replies = requests
        .send_packed_commands(&greeting, 0, greeting.len())
        .await;
    let replies = replies.map_err(|error| NearError::connecting(&server, error))?;
    let mut replies = replies.into_iter().map(Value::extract_error);
    if let Some(Err(error)) = replies.next() {
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

/// A client for another server, with the rights and settings of this one.
#[cfg(any(feature = "cluster", feature = "sentinel"))]
pub(crate) fn with_address(
    client: &Client,
    name: String,
    number: u16,
) -> Result<Client, NearError> {
    let info = client.get_connection_info();
    let mut addr = info.addr().clone();
    match &mut addr {
        ConnectionAddr::Tcp(host, port) | ConnectionAddr::TcpTls { host, port, .. } => {
            *host = name;
            *port = number;
        }
        _ => addr = ConnectionAddr::Tcp(name, number),
    }
    let address = addr.to_string();
    let info = info.clone().set_addr(addr);
    Client::open(info).map_err(|error| NearError::connecting(&address, error))
}
