//! Sentinels: they name the primary, and report when another server becomes it.
//!
//! Each failover has an epoch of its own, which a majority of the sentinels has agreed on. So the
//! newest epoch decides, and of answers with one epoch the most frequent one. All sentinels are
//! asked, since one may hang, or be cut off from the others.

use crate::config::Settings;
use crate::connect::with_address;
use crate::connection::{Connection, Ended, Login, within_time};
use crate::error::NearError;
use crate::link::together;
use redis::{Client, ConnectionAddr, PushInfo, PushKind, Value};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::sync::{Notify, watch};
use tokio::time::{Instant, sleep, timeout_at};

/// The report that another server is the primary: its name, then the old and the new address.
const SWITCH: &str = "+switch-master";
/// How long the sentinels are waited for that have not answered when a majority has.
const LATECOMERS: Duration = Duration::from_millis(200);

/// The sentinels of one primary.
pub(crate) struct Sentinels {
    /// Those that the user has named, then those that they have named.
    known: watch::Sender<Vec<Client>>,
    /// How to connect to the primary. Its host is the name by which the sentinels know it.
    primary: Client,
}

/// What a sentinel has said: an epoch, and the host and port of the primary.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct View {
    epoch: u64,
    host: String,
    port: u16,
}

impl View {
    fn address(&self) -> String {
        ConnectionAddr::Tcp(self.host.clone(), self.port).to_string()
    }
}

/// The view that decides: of the newest epoch, and of that what most sentinels have said. It is
/// `present` where another one is no better.
fn deciding<'a>(views: &'a [Option<View>], present: &str) -> Option<&'a View> {
    let votes = |view: &View| {
        views
            .iter()
            .flatten()
            .filter(|other| *other == view)
            .count()
    };
    let rank = |view: &View| (view.epoch, votes(view), view.address() == present);
    views.iter().flatten().max_by_key(|view| rank(view))
}

impl Sentinels {
    pub(crate) fn new(sentinels: Vec<Client>, primary: Client) -> Self {
        Self {
            known: watch::Sender::new(sentinels),
            primary,
        }
    }

    fn known(&self) -> Vec<Client> {
        self.known.borrow().clone()
    }

    /// The server that the sentinels name now.
    pub(crate) async fn primary(&self, settings: &Settings) -> Result<Client, NearError> {
        let sentinels = self.known();
        let none = "there are 0 sentinels to ask, but at least one is needed";
        let fault = Mutex::new(NearError::Config(none.into()));
        let views = watch::Sender::new(vec![None; sentinels.len()]);
        let answers = watch::Sender::new(0);
        let ask = async |(number, sentinel): (usize, &Client)| {
            let asking = async {
                let mut opened = self.open(sentinel, settings, |_| {}).await?;
                self.ask(sentinel, &mut opened).await
            };
            match within_time(settings.connect_timeout, &address(sentinel), asking).await {
                Ok(view) => views.send_modify(|views: &mut Vec<_>| views[number] = Some(view)),
                Err(error) => *fault.lock().unwrap_or_else(PoisonError::into_inner) = error,
            }
            answers.send_modify(|count| *count += 1);
        };
        let asking = together(sentinels.iter().enumerate().map(ask), |_, ()| {});
        let enough = async {
            let mut views = views.subscribe();
            let most =
                |views: &Vec<Option<View>>| views.iter().flatten().count() > sentinels.len() / 2;
            let _ = views.wait_for(most).await;
            sleep(LATECOMERS).await;
        };
        tokio::select! {
            biased;
            () = asking => {}
            () = enough => {}
        }
        let views = views.borrow();
        match deciding(&views, "") {
            Some(view) => self.client(view),
            None => Err(fault.into_inner().unwrap_or_else(PoisonError::into_inner)),
        }
    }

    /// Ends when the sentinels name another server than the one at the address `present`. Each is
    /// asked once every time `every`, and when it reports a switch.
    pub(crate) async fn replaced(&self, present: &str, settings: &Settings, every: Duration) {
        loop {
            let sentinels = self.known();
            let views = watch::Sender::new(vec![None; sentinels.len()]);
            let watch_one = async |(number, sentinel): (usize, &Client)| {
                loop {
                    let _ = self
                        .watch(sentinel, settings, every, |view| {
                            views.send_modify(|views: &mut Vec<_>| views[number] = view);
                        })
                        .await;
                    views.send_modify(|views| views[number] = None);
                    // It has ended, or does not answer: another attempt follows.
                    sleep(every).await;
                }
            };
            let mut seen = views.subscribe();
            let mut known = self.known.subscribe();
            let is_another = |views: &Vec<Option<View>>| {
                deciding(views, present).is_some_and(|view| view.address() != present)
            };
            tokio::select! {
                biased;
                _ = seen.wait_for(is_another) => return,
                _ = known.wait_for(|known| known.len() > sentinels.len()) => {}
                () = together(sentinels.iter().enumerate().map(watch_one), |_, ()| {}) => {}
            }
        }
    }

    /// Listens to one sentinel, and asks it again and again; ends with a fault.
    async fn watch(
        &self,
        sentinel: &Client,
        settings: &Settings,
        every: Duration,
        seen: impl Fn(Option<View>),
    ) -> Result<(), NearError> {
        let reported = Arc::new(Notify::new());
        let bell = reported.clone();
        let on_push = move |push: PushInfo| {
            if matches!(push.kind, PushKind::Message | PushKind::Disconnection) {
                bell.notify_one();
            }
        };
        let connecting = async {
            let mut opened = self.open(sentinel, settings, on_push).await?;
            let subscribed = opened.requests.subscribe(SWITCH).await;
            subscribed.map_err(|error| NearError::connecting(&address(sentinel), error))?;
            Ok(opened)
        };
        let limit = settings.connect_timeout;
        let mut opened = within_time(limit, &address(sentinel), connecting).await?;
        loop {
            let next = Instant::now() + every;
            let asking = self.ask(sentinel, &mut opened);
            seen(Some(within_time(every, &address(sentinel), asking).await?));
            let _ = timeout_at(next, reported.notified()).await;
        }
    }

    async fn open(
        &self,
        sentinel: &Client,
        settings: &Settings,
        on_push: impl Fn(PushInfo) + Send + Sync + 'static,
    ) -> Result<Connection, NearError> {
        let (info, ended) = (sentinel.get_connection_info().clone(), Ended::default());
        Connection::open(settings, info, Login::OfClient, ended, on_push).await
    }

    /// Asks a sentinel for the primary, and for the other sentinels.
    async fn ask(&self, sentinel: &Client, opened: &mut Connection) -> Result<View, NearError> {
        let failed = |error| NearError::connecting(&address(sentinel), error);
        let name = self.name();
        let mut asked = redis::pipe();
        asked.cmd("SENTINEL").arg("MASTER").arg(&name);
        asked.cmd("SENTINEL").arg("SENTINELS").arg(&name);
        let replies = opened.requests.send_packed_commands(&asked, 0, 2).await;
        let mut replies = replies
            .map_err(failed)?
            .into_iter()
            .map(Value::extract_error);
        let primary = replies.next().unwrap_or(Ok(Value::Nil)).map_err(failed)?;
        if let Some(Ok(others)) = replies.next() {
            let others = redis::from_redis_value::<Vec<Fields>>(others);
            for other in others.unwrap_or_default() {
                if let Some((host, port)) = host_and_port(&other) {
                    self.learn(with_address(sentinel, host, port)?);
                }
            }
        }
        let fields = redis::from_redis_value::<Fields>(primary).unwrap_or_default();
        let epoch = fields
            .get("config-epoch")
            .and_then(|epoch| epoch.parse().ok());
        match (epoch, host_and_port(&fields)) {
            (Some(epoch), Some((host, port))) => Ok(View { epoch, host, port }),
            _ => Err(NearError::Protocol("no primary to SENTINEL MASTER".into())),
        }
    }

    /// The name of the primary, as the sentinels know it.
    fn name(&self) -> String {
        let address = self.primary.get_connection_info().addr().to_string();
        address
            .rsplit_once(':')
            .map_or(address.clone(), |(name, _)| name.to_string())
    }

    fn learn(&self, other: Client) {
        self.known.send_if_modified(|known| {
            let is_new = !known.iter().any(|one| address(one) == address(&other));
            if is_new {
                known.push(other);
            }
            is_new
        });
    }

    fn client(&self, view: &View) -> Result<Client, NearError> {
        with_address(&self.primary, view.host.clone(), view.port)
    }
}

/// What a sentinel says of a server.
type Fields = HashMap<String, String>;

fn host_and_port(fields: &Fields) -> Option<(String, u16)> {
    let port = fields.get("port")?.parse().ok()?;
    Some((fields.get("ip")?.clone(), port))
}

fn address(client: &Client) -> String {
    client.get_connection_info().addr().to_string()
}
