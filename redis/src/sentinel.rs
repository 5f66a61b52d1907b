//! Sentinels: they name the primary, and report when another server becomes it.
//!
//! Each failover has an epoch of its own, which a majority of the sentinels has agreed on. So the
//! newest epoch decides, and of answers with one epoch the most frequent one. All sentinels are
//! asked, since one may hang, or be cut off from the others.

use crate::config::Settings;
use crate::connect::with_address;
use crate::connection::{Connection, Ended, Login, within_time};
use crate::error::NearError;
use futures_util::future::join_all;
use redis::{Client, PushInfo, PushKind, Value};
use std::collections::{BTreeMap, HashMap};
use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tokio::sync::{Notify, watch};
use tokio::time::{sleep, timeout};

/// The report that another server is the primary: its name, then the old and the new address.
const SWITCH: &str = "+switch-master";
/// How long the sentinels are waited for that have not answered when a majority has.
const LATECOMERS: Duration = Duration::from_millis(200);

/// The sentinels of one primary.
pub(crate) struct Sentinels {
    /// Those that the user has named. They are always asked.
    named: Known,
    /// Those that are asked now: those that the user has named, those that they have named, and so
    /// on.
    known: watch::Sender<Known>,
    /// The epoch of the view by which the present primary was chosen. Relaxed: one task uses it.
    epoch: AtomicU64,
    /// How to connect to the primary. Its host is the name by which the sentinels know it.
    primary: Client,
}

/// Sentinels by their addresses.
type Known = BTreeMap<String, Client>;

/// What each of some sentinels has said last; `None`: nothing yet.
type Round = Vec<Option<Result<Heard, NearError>>>;

/// What a sentinel has said.
#[derive(Clone)]
struct Heard {
    view: View,
    /// The other sentinels that it knows.
    others: Known,
}

/// What a sentinel has said of the primary.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct View {
    epoch: u64,
    address: String,
}

/// Whether each of the sentinels has answered or failed.
fn is_complete(round: &Round) -> bool {
    round.iter().all(Option::is_some)
}

/// Whether most of the sentinels have answered.
fn most(round: &Round) -> bool {
    heard(round).count() > round.len() / 2
}

fn heard(round: &Round) -> impl Iterator<Item = &Heard> {
    round.iter().flatten().flatten()
}

/// The view that decides: of the newest epoch, and of that what most sentinels have said. It is
/// `present` where another one is no better.
fn deciding<'a>(round: &'a Round, present: &str) -> Option<&'a View> {
    let votes = |view: &View| heard(round).filter(|other| other.view == *view).count();
    let rank = |view: &View| (view.epoch, votes(view), view.address == present);
    let views = heard(round).map(|heard| &heard.view);
    views.max_by_key(|view| rank(view))
}

impl Sentinels {
    pub(crate) fn new(sentinels: Vec<Client>, primary: Client) -> Self {
        let named: Known = sentinels.into_iter().map(by_address).collect();
        Self {
            known: watch::Sender::new(named.clone()),
            epoch: AtomicU64::new(0),
            named,
            primary,
        }
    }

    /// The server that the sentinels name now.
    pub(crate) async fn primary(&self, settings: &Settings) -> Result<Client, NearError> {
        let known = self.known.borrow().clone();
        let round = watch::Sender::new(vec![None; known.len()]);
        let enough = async {
            let mut seen = round.subscribe();
            let _ = seen
                .wait_for(|round| most(round) || is_complete(round))
                .await;
            let _ = timeout(LATECOMERS, seen.wait_for(is_complete)).await;
        };
        tokio::select! {
            biased;
            () = enough => {}
            () = self.listen(&known, &round, settings, settings.connect_timeout) => {}
        }
        let round = round.borrow();
        if let Some(view) = deciding(&round, "") {
            self.epoch.store(view.epoch, Ordering::Relaxed);
            return with_address(&self.primary, &view.address);
        }
        let none = NearError::Config("there are 0 sentinels, but at least one is needed".into());
        let mut faults = round.iter().flatten().filter_map(|said| said.clone().err());
        Err(faults.next_back().unwrap_or(none))
    }

    /// Ends when the sentinels name another server than the one at the address `present`. Each is
    /// asked once every time `every`, and when it reports a switch.
    pub(crate) async fn replaced(&self, present: &str, settings: &Settings, every: Duration) {
        loop {
            let known = self.known.borrow().clone();
            let round = watch::Sender::new(vec![None; known.len()]);
            let mut seen = round.subscribe();
            let mut others = self.known.subscribe();
            // One that was cut off from the others may answer first: its view is older than the one
            // that `primary` has decided by.
            let is_another = |round: &Round| {
                let Some(view) = deciding(round, present) else {
                    return false;
                };
                let is_newer = view.epoch > self.epoch.load(Ordering::Relaxed);
                view.address != present && (is_newer || most(round))
            };
            tokio::select! {
                biased;
                _ = seen.wait_for(is_another) => return,
                _ = others.wait_for(|now| !now.keys().eq(known.keys())) => {}
                () = self.listen(&known, &round, settings, every) => {}
            }
        }
    }

    /// Listens to these sentinels, to each again after a fault, and notes what they say.
    async fn listen(
        &self,
        known: &Known,
        round: &watch::Sender<Round>,
        settings: &Settings,
        every: Duration,
    ) {
        let listen_to_one = async |(number, (address, sentinel)): (usize, (&String, &Client))| {
            let note = |said| {
                round.send_modify(|round: &mut Round| round[number] = Some(said));
                self.learn(known, &round.borrow());
            };
            loop {
                let hear = |heard| note(Ok(heard));
                let watching = self.watch(address, sentinel, settings, every, hear);
                let Err(fault) = watching.await;
                note(Err(fault));
                // It has ended, or does not answer: another attempt follows.
                sleep(every).await;
            }
        };
        join_all(known.iter().enumerate().map(listen_to_one)).await;
    }

    /// Listens to one sentinel, and asks it again and again; ends with a fault.
    async fn watch(
        &self,
        address: &str,
        sentinel: &Client,
        settings: &Settings,
        every: Duration,
        hear: impl Fn(Heard),
    ) -> Result<Infallible, NearError> {
        let reported = Arc::new(Notify::new());
        let bell = reported.clone();
        let on_push = move |push: PushInfo| {
            if matches!(push.kind, PushKind::Message | PushKind::Disconnection) {
                bell.notify_one();
            }
        };
        let info = sentinel.get_connection_info().clone();
        let ended = Ended::default();
        let opening = Connection::open(settings, info, Login::OfClient, ended, on_push);
        let mut opened = opening.await?;
        // A user who may not subscribe hears of a switch by the next answer.
        let subscribing = opened.requests.subscribe(SWITCH);
        let _ = timeout(settings.connect_timeout, subscribing).await;
        loop {
            let asking = self.ask(address, sentinel, &opened);
            hear(within_time(every, address, asking).await?);
            let _ = timeout(every, reported.notified()).await;
        }
    }

    /// Asks a sentinel for the primary, and for the other sentinels.
    async fn ask(
        &self,
        address: &str,
        sentinel: &Client,
        opened: &Connection,
    ) -> Result<Heard, NearError> {
        let failed = |error| NearError::connecting(address, error);
        let name = self.name();
        let mut asked = redis::pipe();
        asked.cmd("SENTINEL").arg("MASTER").arg(&name);
        asked.cmd("SENTINEL").arg("SENTINELS").arg(&name);
        let replies = opened.send(&asked).await.map_err(failed)?;
        let mut replies = replies.into_iter().map(Value::extract_error);
        let primary = replies.next().unwrap_or(Ok(Value::Nil)).map_err(failed)?;
        let mut others = Known::new();
        if let Some(Ok(said)) = replies.next() {
            let said = redis::from_redis_value::<Vec<Fields>>(said);
            for other in said.unwrap_or_default() {
                if let Some(address) = address_of(&other) {
                    others.extend([by_address(with_address(sentinel, &address)?)]);
                }
            }
        }
        let fields = redis::from_redis_value::<Fields>(primary).unwrap_or_default();
        let epoch = fields
            .get("config-epoch")
            .and_then(|epoch| epoch.parse().ok());
        match (epoch, address_of(&fields)) {
            (Some(epoch), Some(address)) => {
                let view = View { epoch, address };
                Ok(Heard { view, others })
            }
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

    /// Notes which sentinels there are, once each of those asked has answered or failed: those that
    /// the user has named, that have answered, or that these know.
    fn learn(&self, asked: &Known, round: &Round) {
        if !is_complete(round) || heard(round).next().is_none() {
            return;
        }
        let mut known = self.named.clone();
        for ((address, sentinel), said) in asked.iter().zip(round) {
            if let Some(Ok(heard)) = said {
                known.insert(address.clone(), sentinel.clone());
                known.extend(heard.others.clone());
            }
        }
        self.known.send_if_modified(|before| {
            let is_new = !before.keys().eq(known.keys());
            *before = known;
            is_new
        });
    }
}

/// What a sentinel says of a server.
type Fields = HashMap<String, String>;

fn address_of(fields: &Fields) -> Option<String> {
    Some(format!("{}:{}", fields.get("ip")?, fields.get("port")?))
}

fn by_address(client: Client) -> (String, Client) {
    (client.get_connection_info().addr().to_string(), client)
}
