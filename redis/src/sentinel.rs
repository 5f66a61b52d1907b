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
    known: Known,
    /// The epoch by which the present primary was chosen.
    epoch: u64,
    /// How to connect to the primary. Its host is the name by which the sentinels know it.
    primary: Client,
}

/// Sentinels by their addresses.
type Known = BTreeMap<String, Client>;

/// What each of some sentinels has said last; `None`: nothing yet.
type Round = Vec<Option<Result<Heard, NearError>>>;

/// What a sentinel has said: the epoch and the address of the primary, and the other sentinels.
#[derive(Clone)]
struct Heard {
    epoch: u64,
    address: String,
    others: Known,
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

/// What decides: what most sentinels say of the newest epoch. It is that the primary is `present`
/// where another address has no more votes.
fn deciding<'a>(round: &'a Round, present: &str) -> Option<&'a Heard> {
    let view = |said: &'a Heard| (said.epoch, &said.address);
    let votes = |said| {
        heard(round)
            .filter(|other| view(other) == view(said))
            .count()
    };
    heard(round).max_by_key(|said| (said.epoch, votes(said), said.address == present))
}

impl Sentinels {
    pub(crate) fn new(sentinels: Vec<Client>, primary: Client) -> Self {
        let named: Known = sentinels.into_iter().map(by_address).collect();
        Self {
            known: named.clone(),
            epoch: 0,
            named,
            primary,
        }
    }

    /// The server that the sentinels name now.
    pub(crate) async fn primary(&mut self, settings: &Settings) -> Result<Client, NearError> {
        let round = watch::Sender::new(vec![None; self.known.len()]);
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
            () = self.listen(&round, settings, settings.connect_timeout) => {}
        }
        let round = round.borrow();
        if let Some(known) = self.others(&round) {
            self.known = known;
        }
        if let Some(said) = deciding(&round, "") {
            self.epoch = said.epoch;
            return with_address(&self.primary, &said.address);
        }
        let none = NearError::Config("there are 0 sentinels, but at least one is needed".into());
        let mut faults = round.iter().flatten().filter_map(|said| said.clone().err());
        Err(faults.next_back().unwrap_or(none))
    }

    /// Ends when the sentinels name another server than the one at the address `present`. Each is
    /// asked once every time `every`, and when it reports a switch.
    pub(crate) async fn replaced(&mut self, present: &str, settings: &Settings, every: Duration) {
        loop {
            let round = watch::Sender::new(vec![None; self.known.len()]);
            let mut seen = round.subscribe();
            // One that was cut off from the others may answer first: its epoch is older than the
            // one that `primary` has decided by.
            let epoch = self.epoch;
            let is_another = |round: &Round| {
                deciding(round, present).is_some_and(|said| {
                    said.address != present && (said.epoch > epoch || most(round))
                })
            };
            let says_more = |round: &Round| is_another(round) || self.others(round).is_some();
            tokio::select! {
                biased;
                _ = seen.wait_for(says_more) => {}
                () = self.listen(&round, settings, every) => {}
            }
            let round = round.borrow();
            match self.others(&round) {
                Some(known) if !is_another(&round) => self.known = known,
                _ => return,
            }
        }
    }

    /// Listens to these sentinels, to each again after a fault, and notes what they say.
    async fn listen(&self, round: &watch::Sender<Round>, settings: &Settings, every: Duration) {
        let listen_to_one = async |(number, (address, sentinel)): (usize, (&String, &Client))| {
            let note = |said| round.send_modify(|round: &mut Round| round[number] = Some(said));
            loop {
                let hear = |heard| note(Ok(heard));
                let watching = self.watch(address, sentinel, settings, every, hear);
                let Err(fault) = watching.await;
                note(Err(fault));
                // It has ended, or does not answer: another attempt follows.
                sleep(every).await;
            }
        };
        join_all(self.known.iter().enumerate().map(listen_to_one)).await;
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
            (Some(epoch), Some(address)) => Ok(Heard {
                epoch,
                address,
                others,
            }),
            _ => Err(NearError::Protocol("no primary to SENTINEL MASTER".into())),
        }
    }

    /// The name of the primary, as the sentinels know it.
    fn name(&self) -> String {
        let address = self.primary.get_connection_info().addr().to_string();
        let (name, _) = address.rsplit_once(':').unwrap_or((&address, ""));
        name.to_string()
    }

    /// The sentinels that there are, if they are others than those asked, once each of these has
    /// answered or failed: those that the user has named, that have answered, or that these know.
    fn others(&self, round: &Round) -> Option<Known> {
        if !is_complete(round) || heard(round).next().is_none() {
            return None;
        }
        let mut known = self.named.clone();
        for ((address, sentinel), said) in self.known.iter().zip(round) {
            if let Some(Ok(heard)) = said {
                known.insert(address.clone(), sentinel.clone());
                known.extend(heard.others.clone());
            }
        }
        (!known.keys().eq(self.known.keys())).then_some(known)
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
