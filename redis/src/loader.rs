//! Loads: a value that the server does not have comes from the user's source.
//!
//! A load holds its key at the server with a placeholder (`LoadLock`). It claims the key, loads,
//! and writes the value if the key still has its placeholder. A claim is one step at the server,
//! and so is such a write. So a `DEL` or `SET` that comes while the load runs wins, whichever
//! client sends it. A call that finds a placeholder joins the load of this process, or waits for
//! the server's report.
//!
//! A load ahead of the deadline claims a key that has a value: its placeholder carries that value,
//! which near caches serve meanwhile. If the process dies, the value ends with the placeholder.
//!
//! A call joins a load only if it has seen the placeholder of the load, in memory or at the server,
//! or has waited for the claim. A delete that was reported before the call began has ended that
//! placeholder. So no call gets a value that was loaded before such a delete.

use crate::cached::{Cached, Content};
use crate::codec::BoxError;
use crate::config::shortened;
use crate::error::{NearError, display_key, is_denied};
use crate::key::{Hasher, Key, NearKey, Val};
use crate::loaded::Loaded;
use crate::near::NearCache;
use crate::placeholder::{self, Claim};
use crate::read::{Found, LONG_IN_BULK, SERVER_PAUSE};
use crate::request::{Okay, Whole};
use crate::shared::{Lazily, Shared};
use crate::suspects::LARGE;
use crate::write::{WRITES_AT_ONCE, whole_millis};
use futures_util::{StreamExt, stream};
use std::collections::HashMap;
use std::convert::Infallible;
use std::hash::{BuildHasher, Hash};
use std::mem;
use std::pin::pin;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::oneshot;
use tokio::time::{sleep, timeout};
use wheelhouse::{Equivalent, Lease, Leased, RandomState};

/// How long a call waits before it looks again at a placeholder whose report may not come.
const UNREPORTED_PAUSE: Duration = Duration::from_millis(500);
/// What the server's clock may be behind when a placeholder is over.
const CLOCK_MARGIN: Duration = Duration::from_millis(5);

impl<K, V, S> NearCache<K, V, S>
where
    K: NearKey + Hash + Eq + Clone + Send + Sync + 'static,
    V: Clone + Send + Sync + 'static,
    S: BuildHasher + Send + Sync + 'static,
{
    /// Returns the value of a key: from memory, from the server, or else from `load`, whose value
    /// goes to the server with this time to live and into memory.
    ///
    /// One load runs at a time for a key in all processes; calls that come meanwhile wait for it.
    /// Plain reads do not wait: they find no value yet. If the call is cancelled or its process
    /// dies, a call that waits takes over.
    ///
    /// A `SET` or deletion of the key that comes while `load` runs wins, from whichever client: the
    /// loaded value is then written nowhere. The call returns what the key has, or the loaded value
    /// if the key has none. [`load_lock`](crate::NearCacheBuilder::load_lock) tells how, and what
    /// other readers of the key see meanwhile.
    ///
    /// To keep the knowledge that the source has nothing, let the values be an `Option`.
    ///
    /// # Errors
    ///
    /// [`NearError`] if the server could not be asked, each step within `request_timeout`;
    /// [`ZeroTtl`](NearError::ZeroTtl) and [`Encode`](NearError::Encode) as of `set`;
    /// [`LoadTimedOut`](NearError::LoadTimedOut) after too long a wait for another process. If the
    /// server does not take the loaded value, the call returns it all the same, and
    /// [`unsaved_loads`](crate::NearStats::unsaved_loads) counts it. `load` has no limit:
    /// bound it yourself. While the server is away,
    /// [`load_when_away`](crate::NearCacheBuilder::load_when_away) decides.
    ///
    /// # Panics
    ///
    /// As [`get`](Self::get), and if `load` does.
    ///
    /// ```no_run
    /// # use std::time::Duration;
    /// # use wheelhouse_redis::{NearCache, NearError};
    /// # async fn select_name(id: u64) -> String { String::new() }
    /// # async fn example(near: NearCache<u64, String>) -> Result<(), NearError> {
    /// let name = near.get_with(&7, Duration::from_secs(60), select_name(7)).await?;
    /// # Ok(())
    /// # }
    /// ```
    pub async fn get_with<Q>(
        &self,
        key: &Q,
        ttl: impl Into<Option<Duration>>,
        load: impl Future<Output = V>,
    ) -> Result<V, NearError>
    where
        Q: Equivalent<K> + Hash + ToOwned<Owned = K> + ?Sized,
    {
        let load = async { Ok::<V, Infallible>(load.await) };
        self.try_get_with(key, ttl, load).await
    }

    /// Returns the value of a key, made by a load that may fail: see [`get_with`](Self::get_with).
    /// The load may choose the life of its value, with a [`Loaded`].
    ///
    /// # Errors
    ///
    /// As [`get_with`](Self::get_with), and [`NearError::Load`]: calls of this process that waited
    /// for the load share its error. Nothing is kept; the next call loads anew.
    ///
    /// ```no_run
    /// # use std::time::Duration;
    /// # use wheelhouse_redis::{Loaded, NearCache, NearError};
    /// # struct Token { text: String, life: Duration }
    /// # async fn sign_in(id: u64) -> Result<Token, std::io::Error> {
    /// #     Ok(Token { text: id.to_string(), life: Duration::from_secs(5) })
    /// # }
    /// # async fn example(near: NearCache<u64, String>) {
    /// let load = async {
    ///     let token = sign_in(7).await?;
    ///     Ok::<_, std::io::Error>(Loaded::new(token.text).expires_in(token.life))
    /// };
    /// match near.try_get_with(&7, Duration::from_secs(60), load).await {
    ///     Ok(token) => println!("{token}"),
    ///     Err(NearError::Load(source)) => eprintln!("no token: {source}"),
    ///     Err(server) => eprintln!("{server}"),
    /// }
    /// # }
    /// ```
    pub async fn try_get_with<Q, L, E>(
        &self,
        key: &Q,
        ttl: impl Into<Option<Duration>>,
        load: impl Future<Output = Result<L, E>>,
    ) -> Result<V, NearError>
    where
        Q: Equivalent<K> + Hash + ToOwned<Owned = K> + ?Sized,
        L: Into<Loaded<V>>,
        E: Into<BoxError>,
    {
        let old = match self.hit(key) {
            Some(Some(value)) if self.is_stale(key) => Some(value),
            Some(Some(value)) => return Ok(value),
            _ => None,
        };
        let load = load_with(&self.shared, key.to_owned(), old, ttl.into(), load);
        Box::pin(load).await
    }

    /// Whether a call of `get_with` is to load the key anew, ahead of its deadline.
    fn is_stale<Q>(&self, key: &Q) -> bool
    where
        Q: Equivalent<K> + Hash + ?Sized,
    {
        // Without a connection no key could be claimed.
        if self.shared.refresh.is_none() || !self.is_connected() {
            return false;
        }
        let entry = self.local.get_ref(key);
        let stale_from = entry.and_then(|entry| entry.value().stale_from);
        stale_from.is_some_and(|from| from <= Instant::now())
    }

    /// Returns the value of each of these keys, in their order, each with its own result. Keys that
    /// neither memory nor the server has come from `load`: one call for all of them.
    ///
    /// `load` gets the keys that this call leads, and returns a value or `None` for each, in their
    /// order. Keys that another call or process loads meanwhile are awaited after that. `load` runs
    /// again only for keys whose other load has failed, or which the server did not let this call
    /// claim in time: for as many of them together as it can.
    ///
    /// Each key that this call loads has a placeholder of its own, and each is renewed every 0.85 s
    /// by a script. That is no burden for some thousand keys. With tens of thousands, and a load of
    /// seconds, a busy server may not renew all of them in time: the call returns their values, but
    /// does not write them, and [`unsaved_loads`](crate::NearStats::unsaved_loads) counts them. A
    /// longer life in [`load_lock`](crate::NearCacheBuilder::load_lock) is renewed less often.
    ///
    /// # Errors
    ///
    /// In each result as [`try_get_with`](Self::try_get_with).
    ///
    /// # Panics
    ///
    /// If `load` returns another number of values than it got keys, and as
    /// [`get_with`](Self::get_with).
    ///
    /// ```no_run
    /// # use std::time::Duration;
    /// # use wheelhouse_redis::{NearCache, NearError};
    /// # use std::io::Error;
    /// # async fn select(ids: Vec<u64>) -> Result<Vec<Option<String>>, Error> { Ok(vec![]) }
    /// # async fn example(near: NearCache<u64, String>) -> Result<(), NearError> {
    /// for name in near.get_all_with(1..=3, Duration::from_secs(60), select).await {
    ///     println!("{}", name?.as_deref().unwrap_or("unknown"));
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub async fn get_all_with<F, E>(
        &self,
        keys: impl IntoIterator<Item = K>,
        ttl: impl Into<Option<Duration>>,
        mut load: impl FnMut(Vec<K>) -> F,
    ) -> Vec<Result<Option<V>, NearError>>
    where
        F: Future<Output = Result<Vec<Option<V>>, E>>,
        E: Into<BoxError>,
    {
        let keys = Vec::from_iter(keys);
        let ttl = ttl.into();
        let read = self.get_all(keys.iter().cloned()).await;
        let mut found: HashMap<&K, Found<V>> = keys.iter().zip(read).collect();
        let missing = found.iter().filter_map(|(key, read)| match read {
            Ok(Some(_)) => None,
            Ok(None) => Some((*key, None)),
            Err(error) => Some((*key, Some(self.shared.life_when_away(error)?))),
        });
        let mut missing: Vec<(&K, Option<Duration>)> = missing.collect();
        let take = async |(key, away)| {
            let leased = self.shared.lease_flight(key);
            let taken = self.shared.take(key, ttl, leased, away, Claim::Absent);
            (key, taken.await)
        };
        let mut led = Vec::new();
        loop {
            let takes: Lazily<_> = Box::new(mem::take(&mut missing).into_iter().map(&take));
            let mut taking = pin!(stream::iter(takes).buffer_unordered(WRITES_AT_ONCE));
            let mut busy = Vec::new();
            while let Some((key, taken)) = taking.next().await {
                match taken {
                    Ok(Some(Turn::Found(value))) => _ = found.insert(key, Ok(Some(value))),
                    Ok(Some(Turn::Holds(holder))) => led.push((key, holder)),
                    Ok(None) => busy.push(key),
                    Err(error) => _ = found.insert(key, Err(error)),
                }
            }
            if !led.is_empty() {
                let keys = Vec::from_iter(led.iter().map(|(key, _)| K::clone(key)));
                let led = mem::take(&mut led);
                found.extend(self.load_led(led, ttl, load(keys)).await);
            }
            // A call that holds keys waits for no other load.
            while let Some(key) = busy.pop() {
                match self.shared.turn(key, ttl).await {
                    Ok(Turn::Found(value)) => _ = found.insert(key, Ok(Some(value))),
                    Ok(Turn::Holds(holder)) => {
                        // No other call loads it now, nor perhaps those that are left.
                        let away = match holder.guard {
                            Guard::Away(life, _) => Some(life),
                            _ => None,
                        };
                        missing.extend(busy.drain(..).map(|key| (key, away)));
                        led.push((key, holder));
                    }
                    Err(error) => _ = found.insert(key, Err(error)),
                }
            }
            if led.is_empty() {
                return keys.iter().map(|key| found[key].clone()).collect();
            }
        }
    }

    /// Loads the keys that this call holds, and returns the outcome of each.
    async fn load_led<'k, E: Into<BoxError>>(
        &self,
        led: Vec<(&'k K, Holder<V>)>,
        ttl: Option<Duration>,
        loading: impl Future<Output = Result<Vec<Option<V>>, E>>,
    ) -> Vec<(&'k K, Found<V>)> {
        let count = led.len();
        self.shared.counters.load_run();
        let outcomes: Vec<Result<_, NearError>> = match loading.await {
            Ok(values) => values.into_iter().map(|v| Ok(v.map(Loaded::new))).collect(),
            Err(error) => vec![Err(NearError::Load(Arc::from(error.into()))); count],
        };
        assert_eq!(outcomes.len(), count, "`load` returns a value for each key");
        let finish = async |((key, holder), outcome)| {
            let shared = &self.shared;
            let finish = shared.finish(key, holder, outcome, ttl, LONG_IN_BULK);
            (key, finish.await)
        };
        let finishing: Lazily<_> = Box::new(led.into_iter().zip(outcomes).map(finish));
        let finishing = stream::iter(finishing).buffer_unordered(WRITES_AT_ONCE);
        finishing.collect().await
    }
}

async fn load_with<K: Key, V: Val, S: Hasher, L, E>(
    shared: &Arc<Shared<K, V, S>>,
    key: K,
    old: Option<V>,
    ttl: Option<Duration>,
    load: impl Future<Output = Result<L, E>>,
) -> Result<V, NearError>
where
    L: Into<Loaded<V>>,
    E: Into<BoxError>,
{
    let holder = match &old {
        Some(old) => {
            let leased = shared.lease_flight(&key);
            match shared.take(&key, ttl, leased, None, Claim::Ahead).await {
                Ok(Some(Turn::Holds(holder))) if matches!(holder.guard, Guard::Placeholder(..)) => {
                    holder
                }
                _ => return Ok(old.clone()),
            }
        }
        None => match shared.turn(&key, ttl).await? {
            Turn::Found(value) => return Ok(value),
            Turn::Holds(holder) => holder,
        },
    };
    shared.counters.load_run();
    let outcome = match load.await {
        Ok(loaded) => Ok(Some(loaded.into())),
        Err(error) => Err(NearError::Load(Arc::from(error.into()))),
    };
    let found = shared.finish(&key, holder, outcome, ttl, LARGE).await;
    match (found, old) {
        (Ok(Some(value)), _) => Ok(value),
        // It may be served until its deadline.
        (_, Some(old)) => Ok(old),
        (Err(error), None) => Err(error),
        (Ok(None), None) => Err(NearError::Closed),
    }
}

/// What a call is to do about a key.
enum Turn<V> {
    /// Return this value.
    Found(V),
    /// Load: it holds the key.
    Holds(Holder<V>),
}

/// The right to load a key.
struct Holder<V> {
    /// The calls of this process that wait for the outcome: those that have seen the placeholder,
    /// and those that have waited for the claim. The right ends with them.
    flights: Vec<Flight<V>>,
    guard: Guard,
}

type Flight<V> = Lease<Arc<[u8]>, Found<V>, RandomState>;

/// What a loaded value may become.
enum Guard {
    /// The value of the key at the server, as long as the key has this placeholder. The keeper of
    /// the placeholder is told when there is none to remove; if this is dropped, it removes it.
    Placeholder(Arc<[u8]>, oneshot::Sender<()>),
    /// An entry in memory for this time, as long as this stamp is current: the server is away.
    Away(Duration, u64),
    /// Nothing: the lock is off, or the server refuses to write.
    Nothing,
}

impl<K: Key, V: Val, S: Hasher> Shared<K, V, S> {
    /// The value of a key, or the right to load it. Waits for the load of another process for the
    /// `longest_wait` of the lock, for one of this process without a limit.
    async fn turn(self: &Arc<Self>, key: &K, ttl: Option<Duration>) -> Result<Turn<V>, NearError> {
        let bytes = self.settings.bytes_of(key);
        let mut waits_since = None;
        loop {
            // From here on: a report that comes while this call looks is heard.
            let report = self.reports.next(&bytes);
            let cached = self.look(key, LARGE).await;
            let away = match &cached.content {
                Content::Value(value) => return Ok(Turn::Found(value.clone())),
                Content::Loading(loading) => {
                    let (placeholder, over) = &**loading;
                    if waits_since.is_none() {
                        self.counters.load_wait();
                    }
                    let lease = self.flights.lease_async(placeholder.clone());
                    if let Leased::Found(outcome) = lease.await {
                        if let Some(value) = outcome? {
                            return Ok(Turn::Found(value));
                        }
                    }
                    // No load of this process, or one that has just ended.
                    let left = self.left_to_wait(&mut waits_since, &bytes)?;
                    let mut rest = match over {
                        Some(over) => over.saturating_duration_since(Instant::now()),
                        None => Duration::MAX,
                    };
                    // Where the lock is off, this process writes nothing.
                    let life = self.settings.load_lock.life().unwrap_or(Duration::MAX);
                    if rest > life {
                        // A client has given it a longer life than its process, which may be gone.
                        // If this fails, the next look says more.
                        let shorten = placeholder::renew(&bytes, placeholder, life, None);
                        _ = self.write_in_time::<Option<Whole>>(&bytes, &shorten).await;
                        rest = life;
                    }
                    // By then it has ended, or was renewed.
                    let wait = left.min(rest.saturating_add(CLOCK_MARGIN));
                    // Else the server may not report.
                    if cached.until.is_none_or(|until| until > Instant::now()) {
                        tokio::select! {
                            () = self.line.closed() => {}
                            _ = timeout(wait, report) => {}
                        }
                    } else {
                        sleep(wait.min(UNREPORTED_PAUSE)).await;
                    }
                    continue;
                }
                Content::Absent => None,
                Content::Failed(error) => match self.life_when_away(error) {
                    Some(life) => Some(life),
                    None => return Err((**error).clone()),
                },
            };
            let leased = self.flights.lease_async(bytes.as_slice().into()).await;
            let taking = self.take(key, ttl, leased, away, Claim::Absent);
            if let Some(turn) = taking.await? {
                return Ok(turn);
            }
            self.left_to_wait(&mut waits_since, &bytes)?;
        }
    }

    /// How long a call may still wait, which has waited since this moment.
    fn left_to_wait(
        &self,
        waits_since: &mut Option<Instant>,
        bytes: &[u8],
    ) -> Result<Duration, NearError> {
        let waited = self.settings.load_lock.longest_wait;
        let since = waits_since.get_or_insert_with(Instant::now);
        let left = waited.saturating_sub(since.elapsed());
        if left.is_zero() {
            let key = display_key(bytes);
            return Err(NearError::LoadTimedOut { key, waited });
        }
        Ok(left)
    }

    /// How long a value stays that is loaded after this error; `None`: none is loaded.
    fn life_when_away(&self, error: &NearError) -> Option<Duration> {
        use NearError::{TimedOut, Unavailable};
        match error {
            Unavailable { .. } | TimedOut { .. } => self.settings.load_when_away,
            _ => None,
        }
    }

    /// The right of this process to claim a key, if no other call has it.
    fn lease_flight(&self, key: &K) -> Leased<Arc<[u8]>, Found<V>, RandomState> {
        let bytes = self.settings.bytes_of(key);
        self.flights.lease_timeout(bytes.into(), Duration::ZERO)
    }

    /// The right to load a key as the claim wants it, or whose server is away; `None` if another
    /// call has it, or if it is not known.
    async fn take(
        self: &Arc<Self>,
        key: &K,
        ttl: Option<Duration>,
        leased: Leased<Arc<[u8]>, Found<V>, RandomState>,
        away: Option<Duration>,
        claim: Claim,
    ) -> Result<Option<Turn<V>>, NearError> {
        if ttl.is_some_and(|ttl| ttl.is_zero()) {
            return Err(NearError::ZeroTtl);
        }
        let bytes = &*self.settings.bytes_of(key);
        let flight = match leased {
            Leased::Lease(flight) => flight,
            Leased::Found(outcome) => return Ok(outcome?.map(Turn::Found)),
            Leased::Busy => return Ok(None),
        };
        let guard = match (away, self.settings.load_lock.life()) {
            (Some(life), _) => Guard::Away(life, self.line.stamp()),
            (None, None) => Guard::Nothing,
            (None, Some(life)) => match self.claim(key, bytes, life, claim).await {
                Ok(Some(mut holder)) => {
                    // Calls that come later join by the placeholder alone.
                    self.flights.invalidate(bytes);
                    holder.flights.push(flight);
                    return Ok(Some(Turn::Holds(holder)));
                }
                // The server is there, and does not write.
                Err(NearError::Server(_)) => Guard::Nothing,
                Err(error) if !error.is_transient() => return Err(error),
                // The next look says more, and the calls that wait for this claim look, too.
                Ok(None) | Err(_) => {
                    flight.fill(Ok(None));
                    return Ok(None);
                }
            },
        };
        let flights = vec![flight];
        Ok(Some(Turn::Holds(Holder { flights, guard })))
    }

    /// Claims a key; `None` if it is not as the claim wants it. What removes the placeholder is
    /// there before the request is sent: so whatever becomes of the request, it is removed.
    async fn claim(
        self: &Arc<Self>,
        key: &K,
        bytes: &[u8],
        life: Duration,
        claim: Claim,
    ) -> Result<Option<Holder<V>>, NearError> {
        let placeholder = placeholder::new(&self.settings.load_lock.mark);
        let leased = self.flights.lease_async(placeholder.clone()).await;
        let Leased::Lease(flight) = leased else {
            return Ok(None);
        };
        let (keeper, ended) = oneshot::channel();
        let (answer, answered) = oneshot::channel();
        let (key, claimed) = (key.clone(), placeholder.clone());
        let keeping = keep(self.clone(), key, claimed, life, claim, answer, ended);
        self.runtime.spawn(keeping);
        match answered.await.unwrap_or(Err(NearError::Closed)) {
            Ok(true) => {
                let guard = Guard::Placeholder(placeholder, keeper);
                let flights = vec![flight];
                Ok(Some(Holder { flights, guard }))
            }
            Ok(false) => Ok(None),
            Err(NearError::Server(source)) if is_denied(&source) => {
                let (_, link) = self.link().await?;
                let node = link.node_for(bytes);
                let server = node.map_or(String::new(), |node| node.address.clone());
                Err(NearError::LoadsDenied { server, source })
            }
            Err(error) => Err(error),
        }
    }

    /// Writes what was loaded, and hands it to the calls that wait.
    async fn finish(
        self: &Arc<Self>,
        key: &K,
        holder: Holder<V>,
        outcome: Result<Option<Loaded<V>>, NearError>,
        ttl: Option<Duration>,
        most: usize,
    ) -> Found<V> {
        let found = match outcome {
            Ok(Some(loaded)) => self.save(key, holder.guard, loaded, ttl, most).await,
            Ok(None) => Ok(None),
            Err(error) => Err(error),
        };
        for flight in holder.flights {
            flight.fill(found.clone());
        }
        found
    }

    /// Writes a loaded value where its guard lets it; returns what the key has then. That comes
    /// over the second connection if it has more than `most` bytes.
    async fn save(
        self: &Arc<Self>,
        key: &K,
        guard: Guard,
        loaded: Loaded<V>,
        ttl: Option<Duration>,
        most: usize,
    ) -> Found<V> {
        let value = loaded.value;
        let ttl = match loaded.life {
            Some(chosen) => chosen,
            None => ttl.map(|ttl| shortened(ttl, self.settings.jitter)),
        };
        if ttl.is_some_and(|ttl| ttl.is_zero()) {
            // The load says that its value is not to be kept.
            return Ok(Some(value));
        }
        match guard {
            Guard::Placeholder(placeholder, keeper) => {
                let mut cmd = placeholder::fill(&self.settings.bytes_of(key), &placeholder);
                cmd.arg(self.encode_value(&value)?);
                if let Some(ttl) = ttl {
                    cmd.arg("PX").arg(whole_millis(ttl)?);
                }
                let written: Result<Option<Okay>, _> = self.write(key, cmd).await;
                if !matches!(written, Ok(Some(Okay))) {
                    self.counters.unsaved_load();
                }
                if written.is_ok() {
                    let _ = keeper.send(());
                    // Into memory; and what the key has now is what counts.
                    if let Ok(Some(newest)) = self.look(key, most).await.into_result() {
                        return Ok(Some(newest));
                    }
                }
            }
            Guard::Away(life, stamp) => {
                self.counters.unsaved_load();
                // The next connection moves the stamp, and so ends the entry. A server that is only
                // silent does not.
                if !self.line.is_up() {
                    let until = Instant::now().checked_add(life);
                    let cached = Cached::new(Content::Value(value.clone()), stamp, until);
                    self.local.insert(key.clone(), cached);
                }
            }
            Guard::Nothing => self.counters.unsaved_load(),
        }
        Ok(Some(value))
    }
}

/// Claims a key, then renews the life of the placeholder until it is told that there is none to
/// remove. If the holder has gone without a word, it removes the placeholder.
async fn keep<K: Key, V: Val, S: Hasher>(
    shared: Arc<Shared<K, V, S>>,
    key: K,
    placeholder: Arc<[u8]>,
    life: Duration,
    claim: Claim,
    answer: oneshot::Sender<Result<bool, NearError>>,
    mut ended: oneshot::Receiver<()>,
) {
    let bytes = shared.settings.bytes_of(&key);
    let begun = Instant::now();
    let mark = &shared.settings.load_lock.mark;
    let cmd = placeholder::claim(&bytes, &placeholder, mark, life, claim);
    let claimed: Result<Option<Whole>, _> = shared.write(&key, cmd).await;
    // When the old value ends that the placeholder carries, if that is known.
    let until = match claimed {
        // The deadline may be up to a millisecond earlier than the server says.
        Ok(Some(Whole(left @ 1..))) => begun.checked_add(Duration::from_millis(left as u64 - 1)),
        _ => None,
    };
    let is_refused = matches!(claimed, Ok(None));
    let _ = answer.send(claimed.map(|left| left.is_some()));
    if is_refused {
        return;
    }
    let renewing = async {
        let every = life / 2;
        let mut pause = every;
        loop {
            sleep(pause).await;
            let renew = placeholder::renew(&bytes, &placeholder, life, until);
            pause = match shared.write_in_time::<Option<Whole>>(&bytes, &renew).await {
                Err(error) if error.is_transient() => SERVER_PAUSE,
                _ => every,
            };
        }
    };
    tokio::select! {
        biased;
        told = &mut ended => if told.is_ok() {
            return;
        },
        () = shared.line.closed() => return,
        () = renewing => {}
    }
    let over = Instant::now() + life;
    while Instant::now() < over && !shared.line.is_closed() {
        let remove = placeholder::remove(&bytes, &placeholder, life, until);
        match shared.write_in_time::<Option<Whole>>(&bytes, &remove).await {
            // Refused: its own life ends it.
            Ok(_) | Err(NearError::Server(_)) => return,
            Err(_) => sleep(SERVER_PAUSE).await,
        }
    }
}
