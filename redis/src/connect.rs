//! Connects to one node, and turns tracking on there.

use crate::config::{Settings, Tracking};
use crate::credentials::Provider;
use crate::error::NearError;
use crate::key::{Hasher, Key, Val};
use crate::link::{Connection, Driver, Ended, Node, Opening, Second, role_fault};
use crate::push::PushHandler;
use crate::shared::Shared;
use crate::stream::{self, Arrivals};
use crate::tracking;
#[cfg(any(feature = "cluster", feature = "sentinel"))]
use redis::ConnectionAddr;
use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, Client, ConnectionInfo, ErrorKind};
use redis::{Pipeline, ProtocolVersion, PushInfo, RedisError, ServerErrorKind, Value};
use std::future::poll_fn;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::sync::{Arc, Weak};
use std::time::Duration;
use tokio::time::timeout;

/// How many requests may wait in memory for the task that writes them.
const REQUEST_QUEUE: usize = 512;

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
        let main = PushHandler::of_main(self.shared.clone(), self.generation, self.ended.clone());
        let settings = self.settings.clone();
        let (main, loads_denied) = tracked(&settings, info.clone(), main, any_role).await?;
        let (shared, generation) = (self.shared.clone(), self.generation);
        let address = info.addr().to_string();
        let opener = move || {
            let handler = PushHandler::of_second(shared.clone(), generation);
            let (settings, info) = (settings.clone(), info.clone());
            let opening = async move { tracked(&settings, info, handler, any_role).await };
            Box::pin(async move { opening.await.map(|(connection, _)| connection) }) as Opening
        };
        Ok(Node {
            address,
            main,
            second: Second::new(Box::new(opener)),
            loads_denied,
        })
    }
}

/// A connection with tracking on, and why the script of loads is denied there, if it is.
async fn tracked<K: Key, V: Val, S: Hasher>(
    settings: &Settings,
    info: ConnectionInfo,
    handler: PushHandler<K, V, S>,
    any_role: bool,
) -> Result<(Connection, Option<NearError>), NearError> {
    let address = info.addr().to_string();
    let ended = handler.ended();
    let second_keys = handler.second_keys();
    // The main connection reports every change of the prefixes, whichever connection has read.
    let tracks = handler.is_of_main() || !matches!(settings.tracking, Tracking::Broadcast { .. });
    let connecting = async {
        let provider = settings.credentials.as_ref();
        let login = provider.map_or(Login::OfClient, Login::Provider);
        let opened = open(settings, info, login, move |push| handler.handle_push(push)).await?;
        let mut connection = Connection {
            requests: opened.requests,
            arrivals: opened.arrivals,
            ended,
            reads: Arc::default(),
            second_keys,
            _driver: opened.driver,
        };
        let denied = greet(
            settings,
            &mut connection.requests,
            &address,
            any_role,
            tracks,
        )
        .await?;
        Ok((connection, denied))
    };
    within_time(settings.connect_timeout, &address, connecting).await
}

/// Where the user and the password of a connection come from.
#[derive(Clone, Copy)]
pub(crate) enum Login<'a> {
    /// From the client.
    OfClient,
    /// From the provider.
    Provider(&'a Provider),
    /// From the client, and from the provider if the server refuses those.
    #[cfg(feature = "sentinel")]
    ProviderIfRefused(&'a Provider),
}

/// A connection that was opened, and what reads it.
pub(crate) struct Opened {
    pub(crate) requests: MultiplexedConnection,
    pub(crate) arrivals: Option<Arc<Arrivals>>,
    pub(crate) driver: Option<Arc<Driver>>,
}

/// Opens a connection: every connection of the crate is opened here.
pub(crate) async fn open(
    settings: &Settings,
    info: ConnectionInfo,
    login: Login<'_>,
    on_push: impl Fn(PushInfo) + Send + Sync + 'static,
) -> Result<Opened, NearError> {
    let address = info.addr().to_string();
    // Whatever the client says.
    let resp3 = info.redis_settings().clone();
    let mut info = info.set_redis_settings(resp3.set_protocol(ProtocolVersion::RESP3));
    let on_push = Arc::new(on_push);
    let mut opened = Err(NearError::Closed);
    // Credentials may change between the provider's answer and the server's look at them.
    for _attempt in 0..2 {
        let provider = match login {
            Login::Provider(provider) => Some(provider),
            #[cfg(feature = "sentinel")]
            Login::ProviderIfRefused(provider) => Some(provider).filter(|_| _attempt > 0),
            Login::OfClient => None,
        };
        if let Some(provider) = provider {
            let limit = settings.connect_timeout;
            info = provider.renew(info, &address, limit).await?;
        }
        opened = open_once(&info, &address, on_push.clone()).await;
        let refused = opened.as_ref().is_err_and(NearError::is_authentication);
        if !refused || matches!(login, Login::OfClient) {
            break;
        }
    }
    opened
}

async fn open_once(
    info: &ConnectionInfo,
    address: &str,
    on_push: Arc<impl Fn(PushInfo) + Send + Sync + 'static>,
) -> Result<Opened, NearError> {
    let config = AsyncConnectionConfig::new()
        .set_connection_timeout(None)
        .set_response_timeout(None)
        .set_pipeline_buffer_size(REQUEST_QUEUE)
        .set_push_sender(move |push: PushInfo| -> Result<(), redis::aio::SendError> {
            on_push(push);
            Ok(())
        });
    let failed = |error| NearError::connecting(address, error);
    let opened = stream::open(info).await;
    let Some((stream, arrivals)) = opened.map_err(|error| failed(error.into()))? else {
        let client = Client::open(info.clone()).map_err(failed)?;
        let opening = client.get_multiplexed_async_connection_with_config(&config);
        let opened = caught(opening).await.unwrap_or_else(|| Err(no_provider()));
        return Ok(Opened {
            requests: opened.map_err(failed)?,
            arrivals: None,
            driver: None,
        });
    };
    let opening = MultiplexedConnection::new_with_config(info.redis_settings(), stream, config);
    match opening.await {
        Ok((requests, driver)) => Ok(Opened {
            requests,
            arrivals: Some(arrivals),
            driver: Some(Driver::spawn(driver)),
        }),
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

/// Turns tracking on, makes sure that the node is a primary that answers, and tries to run a
/// script: the error if the user may not.
async fn greet(
    settings: &Settings,
    requests: &mut MultiplexedConnection,
    address: &str,
    any_role: bool,
    tracks: bool,
) -> Result<Option<NearError>, NearError> {
    let mut greeting = Pipeline::with_capacity(4);
    greeting.cmd("HELLO").arg(3);
    if tracks {
        greeting.add_command(tracking::command(settings));
    } else {
        greeting.cmd("PING");
    }
    // Of the commands the only one that a server refuses while it reads its file.
    greeting.cmd("PING");
    greeting.cmd("EVAL").arg("return 0").arg(0);
    let replies = requests.send_packed_commands(&greeting, 0, 4).await;
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
    if let Some(fault) = role_fault(address, role, ping) {
        return Err(fault);
    }
    let denied = match replies.next() {
        Some(Err(error)) if error.code() == Some("NOPERM") => NearError::LoadsDenied {
            server: address.to_string(),
            source: Arc::new(error),
        },
        _ => return Ok(None),
    };
    match settings.load_lock_is_wanted {
        true => Err(denied),
        false => Ok(Some(denied)),
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
