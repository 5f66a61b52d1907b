//! Reads: hits, and loads under a lease.
//!
//! The order of a load is what makes it right. First the lease for the key is registered, then the
//! request is written, then the reply fills the lease. An invalidation that comes after the
//! registration revokes the lease: the waiting calls may get an outdated reply, but the near cache
//! does not keep that reply.

use crate::cached::{Cached, Content};
use crate::error::{NearError, display_key};
use crate::key::{Hasher, Key, NearKey, Val};
use crate::link::{Link, together};
use crate::near::NearCache;
use crate::request::{Reply, RequestError};
use crate::shared::{BlockingDrop, Shared};
use crate::suspects::Way;
use crate::trace;
use crate::write::send;
use redis::Value;
use std::cell::Cell;
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::hash::{BuildHasher, Hash};
use std::panic::resume_unwind;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};
use tokio::task::yield_now;
use tokio::time::{sleep, timeout};
use wheelhouse::{Equivalent, Filled, Lease, Leased};

/// The pause before the near cache repeats a request that the server could not answer yet.
pub(super) const SERVER_PAUSE: Duration = Duration::from_millis(25);

/// How many keys one pipeline reads: enough to hide the round trip, few enough that other
/// requests of the connection do not wait long.
const KEYS_IN_A_PIPELINE: usize = 128;
/// About how many bytes one pipeline may bring.
const BYTES_IN_A_PIPELINE: usize = 1 << 20;
/// How many pipelines of one call of `get_all` are under way at a time.
const PIPELINES_AT_ONCE: usize = 8;
/// What a value is taken to be long before one is known.
pub(crate) const FIRST_MEAN_LENGTH: usize = 64 << 10;

pub(crate) type Found<V> = Result<Option<V>, NearError>;
/// What memory or the server has for a key; never `Content::Failed`.
pub(crate) type Looked<V> = Result<Cached<V>, NearError>;
/// The rest of a `get`, boxed, so that the future of a hit is small.
type Slow<'a, V> = Pin<Box<dyn Future<Output = Found<V>> + Send + 'a>>;
type KeyLease<K, V, S> = Lease<K, Cached<V>, S>;

/// A lease whose request is not yet answered.
struct PendingLease<K, V, S> {
    index: usize,
    bytes: Vec<u8>,
    lease: KeyLease<K, V, S>,
}

/// The data that all replies to one request need.
struct RequestContext {
    stamp: u64,
    at: Instant,
}

impl<K, V, S> NearCache<K, V, S>
where
    K: NearKey + Hash + Eq + Clone + Send + Sync + 'static,
    V: Clone + Send + Sync + 'static,
    S: BuildHasher + Send + Sync + 'static,
{
    /// Returns the value of a key, from memory if it may, else from the server; `None` if the
    /// server has none.
    ///
    /// Calls for the same key that miss together send one request and share its outcome. A
    /// request that is cut off by the end of its connection is repeated on the next one, within
    /// the call's time.
    ///
    /// # Errors
    ///
    /// [`NearError`]; within `request_timeout` at the latest. A hit never fails.
    ///
    /// # Panics
    ///
    /// If the key's `Hash` or `Eq`, the value's `Clone`, the codec, or the weigher or expiry policy
    /// of the local cache does; the key stays usable. A miss outside of a tokio runtime with time
    /// enabled.
    ///
    /// # Cost
    ///
    /// A hit: a `get` of the local cache and a load of one shared number. A miss: one round trip.
    /// Every 1,024th call of a thread yields to the runtime, so that tasks whose reads all hit do
    /// not keep it from reading the connection.
    ///
    /// ```no_run
    /// # use wheelhouse_redis::{NearCache, NearError};
    /// # async fn example(near: NearCache<String, String>) -> Result<(), NearError> {
    /// let name = near.get("user:1:name").await?;
    /// println!("{}", name.as_deref().unwrap_or("unknown"));
    /// # Ok(())
    /// # }
    /// ```
    #[inline]
    pub fn get<'a, Q>(&'a self, key: &'a Q) -> impl Future<Output = Result<Option<V>, NearError>>
    where
        Q: Equivalent<K> + Hash + ToOwned<Owned = K> + ?Sized,
    {
        Get(self, key, None)
    }

    /// The entry of a key, if it may be served.
    #[inline(always)]
    pub(crate) fn hit<Q>(&self, key: &Q) -> Option<Option<V>>
    where
        Q: Equivalent<K> + Hash + ?Sized,
    {
        // A reference, read where it is. A clone of the entry, or a move of the reference, would
        // copy in wide words what was just written in narrow ones, and the processor would wait.
        let entry = self.local.get_ref(key);
        let cached = entry.as_ref()?;
        // The stamp is loaded last: an entry outdated before this call began is not served.
        (cached.stamp() == self.shared.line.stamp()).then(|| cached.value().value().cloned())
    }

    /// The rest of a `get` that yields first, or that has found nothing in memory.
    #[cold]
    fn get_slowly<'a, Q>(&'a self, key: &Q, yields: bool) -> Slow<'a, V>
    where
        Q: Equivalent<K> + Hash + ToOwned<Owned = K> + ?Sized,
    {
        let key = key.to_owned();
        Box::pin(async move {
            if yields {
                yield_now().await;
                if let Some(found) = self.hit(&key) {
                    return Ok(found);
                }
            }
            self.shared.load(&key).await
        })
    }

    /// Returns the value of each of these keys, in their order, each with its own result: an error
    /// of one key does not touch the others.
    ///
    /// Keys that are not in memory are read together, in pipelines of at most 128 keys, of which
    /// eight are under way at a time. Each value is kept as its reply comes. Keys that another call
    /// is loading are awaited afterwards, so overlapping calls never wait for each other in a
    /// cycle.
    ///
    /// # Errors
    ///
    /// In each result as [`get`](Self::get). The call goes on as long as values arrive: when none
    /// has for `request_timeout`, keys that have no answer fail, the others have theirs.
    ///
    /// ```no_run
    /// # use wheelhouse_redis::{NearCache, NearError};
    /// # async fn example(near: NearCache<u64, String>) -> Result<(), NearError> {
    /// for (id, name) in (1..=3).zip(near.get_all(1..=3).await) {
    ///     println!("{id}: {}", name?.as_deref().unwrap_or("unknown"));
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub async fn get_all(
        &self,
        keys: impl IntoIterator<Item = K>,
    ) -> Vec<Result<Option<V>, NearError>> {
        if must_yield() {
            yield_now().await;
        }
        let keys: Vec<K> = keys.into_iter().collect();
        let mut found: HashMap<&K, Option<Found<V>>> = HashMap::with_capacity(keys.len());
        let mut missing = Vec::new();
        for key in &keys {
            if let Entry::Vacant(place) = found.entry(key) {
                let hit = place.insert(self.hit(key).map(Ok));
                if hit.is_none() {
                    missing.push(key);
                }
            }
        }
        if !missing.is_empty() {
            let limit = self.shared.settings.request_timeout;
            let progress = AtomicUsize::new(0);
            let all = self.shared.load_all(&missing, &mut found, &progress);
            let mut all = Box::pin(all);
            loop {
                let before = progress.load(Ordering::Relaxed);
                let over = timeout(limit, &mut all).await.is_ok();
                // What is missing in the end has no result.
                if over || progress.load(Ordering::Relaxed) == before {
                    break;
                }
            }
        }
        let mut late = None;
        let mut of = |key: &K| match found.get(key) {
            Some(Some(found)) => found.clone(),
            _ => Err(late.get_or_insert_with(|| self.shared.timed_out()).clone()),
        };
        keys.iter().map(&mut of).collect()
    }

    /// Reads these keys into memory, and returns how many of them have a value.
    ///
    /// It costs what [`get_all`](Self::get_all) costs.
    ///
    /// # Errors
    ///
    /// The first error of any key, after all others were read. What was read is kept.
    ///
    /// ```no_run
    /// # use wheelhouse_redis::{NearCache, NearError};
    /// # async fn example(near: NearCache<u64, String>) -> Result<(), NearError> {
    /// let found = near.preload(1..=1_000).await?;
    /// println!("{found} users in memory");
    /// # Ok(())
    /// # }
    /// ```
    pub async fn preload(&self, keys: impl IntoIterator<Item = K>) -> Result<usize, NearError> {
        let found = self.get_all(keys).await.into_iter();
        found
            .map(|value| value.map(|value| usize::from(value.is_some())))
            .sum()
    }

    /// Reads a key from the server now, whatever is in memory, and keeps what it finds.
    ///
    /// The entry in memory is dropped first: a read that begins after this call has begun does
    /// not see it.
    ///
    /// # Errors
    ///
    /// As [`get`](Self::get). The old entry is gone then, too.
    ///
    /// ```no_run
    /// # use wheelhouse_redis::{NearCache, NearError};
    /// # async fn example(near: NearCache<String, String>) -> Result<(), NearError> {
    /// let now = near.refresh("config").await?;
    /// # Ok(())
    /// # }
    /// ```
    pub async fn refresh<Q>(&self, key: &Q) -> Result<Option<V>, NearError>
    where
        Q: Equivalent<K> + Hash + ToOwned<Owned = K> + ?Sized,
    {
        let key = key.to_owned();
        // This revokes a load that has begun already: its request may have been answered.
        self.shared.local.invalidate(&key);
        Box::pin(self.shared.load(&key)).await
    }
}

/// The future of `get`. By hand, so that the code of a hit is in line where it is awaited.
struct Get<'a, K, V, S, Q: ?Sized>(&'a NearCache<K, V, S>, &'a Q, Option<Slow<'a, V>>);

impl<K: Key, V: Val, S: Hasher, Q> Future for Get<'_, K, V, S, Q>
where
    Q: Equivalent<K> + Hash + ToOwned<Owned = K> + ?Sized,
{
    type Output = Found<V>;

    #[inline(always)]
    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Found<V>> {
        // Copies: the compiler cannot know that the count below leaves the future as it is, and
        // would load both again.
        let &mut Self(near, key, ref mut slow) = self.get_mut();
        if let Some(slow) = slow {
            return slow.as_mut().poll(cx);
        }
        let yields = must_yield();
        match if yields { None } else { near.hit(key) } {
            Some(found) => Poll::Ready(Ok(found)),
            None => slow.insert(near.get_slowly(key, yields)).as_mut().poll(cx),
        }
    }
}

/// Whether a call has to yield first: every 1,024th of a thread. A hit is ready at once, so a task
/// that does nothing but hit would keep a runtime with one thread from reading the connection, and
/// would see old values for ever.
#[inline]
fn must_yield() -> bool {
    thread_local! {
        static CALLS: Cell<u32> = const { Cell::new(0) };
    }
    let calls = CALLS.get().wrapping_add(1);
    CALLS.set(calls);
    calls % 1024 == 0
}

impl<K: Key, V: Val, S: Hasher> Shared<K, V, S> {
    /// The value of a key, from memory or from the server.
    pub(crate) async fn load(self: &Arc<Self>, key: &K) -> Found<V> {
        self.look(key).await?.into_result()
    }

    /// What memory or the server has for a key: this call leads the load, or waits for the call
    /// that does.
    pub(crate) async fn look(self: &Arc<Self>, key: &K) -> Looked<V> {
        let begun = self.line.stamp();
        let looking = async {
            loop {
                match self.lease(key, begun).await {
                    Leased::Found(cached) => {
                        return match cached.content() {
                            Content::Failed(error) => Err((**error).clone()),
                            _ => Ok(cached),
                        };
                    }
                    Leased::Lease(lease) => {
                        let mut found = self.lead_apart(vec![lease]).await;
                        return found.pop().unwrap_or(Err(NearError::Closed));
                    }
                    // Only a call that does not wait gets this answer.
                    Leased::Busy => yield_now().await,
                }
            }
        };
        // The limit holds for the wait for another call's load, too.
        let looked = timeout(self.settings.request_timeout, looking).await;
        looked.unwrap_or_else(|_| Err(self.timed_out()))
    }

    /// As `lead`, in a task of its own: a reply that comes after its call has gone is kept, and
    /// calls that come meanwhile join the load instead of asking again.
    async fn lead_apart(self: &Arc<Self>, leases: Vec<KeyLease<K, V, S>>) -> Vec<Looked<V>> {
        let count = leases.len();
        let shared = BlockingDrop::new(self.clone());
        let leading = async move { shared.lead(leases).await };
        match self.runtime.spawn(leading).await {
            Ok(found) => found,
            Err(ended) => match ended.try_into_panic() {
                Ok(panic) => resume_unwind(panic),
                // The runtime has ended.
                Err(_) => (0..count).map(|_| Err(NearError::Closed)).collect(),
            },
        }
    }

    /// Loads these keys, and puts each result into `found`.
    async fn load_all<'k>(
        self: &Arc<Self>,
        missing: &[&'k K],
        found: &mut HashMap<&'k K, Option<Found<V>>>,
        progress: &AtomicUsize,
    ) {
        let begun = self.line.stamp();
        let mut rest = missing;
        while !rest.is_empty() {
            let in_a_pipeline = self.keys_in_a_pipeline();
            let keys;
            (keys, rest) = rest.split_at(rest.len().min(PIPELINES_AT_ONCE * in_a_pipeline));
            let mut missing = keys.to_vec();
            let mut waited_for = None;
            while !missing.is_empty() {
                // Takes all leases that are free now. A call that holds leases never waits for the
                // lease of another call.
                let (mut leases, mut led, mut busy) = (Vec::new(), Vec::new(), Vec::new());
                for key in missing {
                    let leased = match waited_for.take() {
                        Some(leased) => Ok(leased),
                        None => timeout(Duration::ZERO, self.lease(key, begun)).await,
                    };
                    match leased.unwrap_or(Leased::Busy) {
                        Leased::Lease(lease) => {
                            leases.push(lease);
                            led.push(key);
                        }
                        Leased::Found(cached) => {
                            found.insert(key, Some(cached.into_result()));
                            progress.fetch_add(1, Ordering::Relaxed);
                        }
                        Leased::Busy => busy.push(key),
                    }
                }
                self.lead_all(led, leases, in_a_pipeline, found, progress)
                    .await;
                // Another call loads the rest. When it has ended, this one takes what is free.
                if let Some(first) = busy.first() {
                    waited_for = Some(self.lease(first, begun).await);
                }
                missing = busy;
            }
            yield_now().await;
        }
    }

    /// How many keys one pipeline reads: few where values are large.
    fn keys_in_a_pipeline(&self) -> usize {
        let mean = self.mean_length.load(Ordering::Relaxed).max(1);
        (BYTES_IN_A_PIPELINE / mean).clamp(1, KEYS_IN_A_PIPELINE)
    }

    /// Loads the keys of these leases, in pipelines of bounded size which are under way together.
    async fn lead_all<'k>(
        self: &Arc<Self>,
        keys: Vec<&'k K>,
        mut leases: Vec<KeyLease<K, V, S>>,
        in_a_pipeline: usize,
        found: &mut HashMap<&'k K, Option<Found<V>>>,
        progress: &AtomicUsize,
    ) {
        let mut pipelines = Vec::new();
        while !leases.is_empty() {
            let rest = leases.split_off(leases.len().min(in_a_pipeline));
            pipelines.push(std::mem::replace(&mut leases, rest));
        }
        let loads = pipelines.into_iter().map(|leases| self.lead_apart(leases));
        together(loads, |pipeline, results| {
            for (key, result) in keys[pipeline * in_a_pipeline..].iter().zip(results) {
                found.insert(*key, Some(result.and_then(Cached::into_result)));
            }
            progress.fetch_add(1, Ordering::Relaxed);
        })
        .await;
    }

    /// The lease of a key, or what a call that began at the stamp `begun` may return
    /// (`stamp`, invariant 3). Waits while another call loads the key.
    pub(crate) async fn lease(&self, key: &K, begun: u64) -> Leased<K, Cached<V>, S> {
        loop {
            match self.local.lease_async(key.clone()).await {
                Leased::Found(cached) if cached.stamp() < begun => self.forget_before(key, begun),
                leased => return leased,
            }
        }
    }

    /// Removes an entry that is not served any more, and no newer one that has replaced it.
    fn forget_before(&self, key: &K, stamp: u64) {
        self.local.remove_if(key, |cached| cached.stamp() < stamp);
    }

    /// Loads the keys of these leases; the outcomes are in their order.
    async fn lead(&self, leases: Vec<KeyLease<K, V, S>>) -> Vec<Looked<V>> {
        let mut results: Vec<Option<Looked<V>>> = leases.iter().map(|_| None).collect();
        let mut open = self.encode(leases, &mut results);
        loop {
            self.refuse(&mut open, &mut results);
            if open.is_empty() {
                break;
            }
            let linked = timeout(self.settings.request_timeout, self.link()).await;
            let (stamp, link) = match linked.unwrap_or_else(|_| Err(self.timed_out())) {
                Ok(current) => current,
                Err(error) => {
                    for one in open {
                        results[one.index] = Some(self.fail(one.lease, error.clone()));
                    }
                    break;
                }
            };
            let (mut asked, bytes) = self.next_request(&mut open, &link).await;
            let Some(first) = asked.first() else { continue };
            let begun = Instant::now();
            let room = match (bytes, link.node_for(&first.bytes)) {
                (Some(bytes), Some(node)) => node.second.room(bytes).await,
                _ => None,
            };
            let is_late = begun.elapsed() > self.settings.request_timeout;
            if is_late && asked.iter().all(|one| !one.lease.is_current()) {
                // It has waited for longer than its calls, and a write has come meanwhile.
                for one in asked {
                    results[one.index] = Some(self.fail(one.lease, self.timed_out()));
                }
                continue;
            }
            let at = Instant::now();
            let sent = RequestContext { stamp, at };
            let keys: Vec<&[u8]> = asked.iter().map(|one| one.bytes.as_slice()).collect();
            keys.iter().for_each(|_| self.counters.load());
            let reading = async {
                match bytes {
                    Some(_) => vec![link.read_apart(keys[0], &self.settings).await],
                    None => link.read(&keys, &self.settings).await,
                }
            };
            let answers = tokio::select! {
                biased;
                answers = trace::request(&self.settings, "GET", &keys, reading) => answers,
                // The connection was given up: ask the next one.
                () = self.line.left(link.generation()) => {
                    if link.has_ended() {
                        self.suspects.accuse(keys.into_iter());
                    }
                    open.append(&mut asked);
                    continue;
                }
            };
            let lost = keys.iter().zip(&answers);
            let lost = lost.filter(|(_, answer)| {
                let ended = |error: &RequestError| {
                    matches!(error, RequestError::Lost(_) | RequestError::LostSecond)
                };
                answer.as_ref().is_err_and(ended)
            });
            let lost: Vec<&[u8]> = lost.map(|(key, _)| *key).collect();
            self.suspects.accuse(lost.into_iter());
            let mut pause = false;
            let mut answered = false;
            for (one, mut answer) in asked.into_iter().zip(answers) {
                if let Err(RequestError::Ask(address)) = &answer {
                    answer = link.read_asking(address, &one.bytes).await;
                }
                match answer {
                    Ok(reply) => {
                        answered = true;
                        let length = reply.value.as_ref().map_or(0, Vec::len);
                        self.suspects.answered(&one.bytes, length);
                        self.note_length(length);
                        results[one.index] = Some(self.commit(one.lease, &one.bytes, reply, &sent));
                    }
                    Err(RequestError::Failed(error)) => {
                        self.suspects.answered(&one.bytes, 0);
                        let error = error.of_key(&one.bytes);
                        results[one.index] = Some(self.fail(one.lease, error));
                    }
                    Err(RequestError::OutOfStep(error)) => {
                        self.lost(link.generation(), error.clone());
                        results[one.index] = Some(self.fail(one.lease, error));
                    }
                    Err(RequestError::Lost(error) | RequestError::Moved(error)) => {
                        self.lost(link.generation(), error);
                        open.push(one);
                    }
                    Err(RequestError::LostSecond) => open.push(one),
                    Err(waits) => {
                        if let RequestError::Later(error) = waits {
                            self.set_fault(Some(error));
                        }
                        pause = true;
                        open.push(one);
                    }
                }
            }
            drop(room);
            drop(link);
            if answered {
                // What was wrong before says nothing about a later time-out.
                self.set_fault(None);
            }
            if pause {
                sleep(SERVER_PAUSE).await;
            }
        }
        let unanswered = || Err(NearError::Closed);
        let results = results.into_iter();
        results.map(|r| r.unwrap_or_else(unanswered)).collect()
    }

    /// Counts a length in the mean of the last values.
    fn note_length(&self, length: usize) {
        let mean = self.mean_length.load(Ordering::Relaxed);
        // Relaxed: a count that is lost changes the mean by little.
        self.mean_length
            .store((15 * mean + length) / 16, Ordering::Relaxed);
    }

    /// Fails the leases of keys that are refused now.
    fn refuse(&self, open: &mut Vec<PendingLease<K, V, S>>, results: &mut [Option<Looked<V>>]) {
        if self.suspects.are_none() {
            return;
        }
        for one in std::mem::take(open) {
            match self.refused(&one.bytes) {
                Ok(()) => open.push(one),
                Err(error) => results[one.index] = Some(self.fail(one.lease, error)),
            }
        }
    }

    /// An error while this key is refused.
    pub(crate) fn refused(&self, bytes: &[u8]) -> Result<(), NearError> {
        let Some((losses, left)) = self.suspects.refused(bytes) else {
            return Ok(());
        };
        self.counters.refused_key();
        let key = display_key(bytes);
        Err(NearError::Refused { key, losses, left })
    }

    /// Takes out of `open` what is asked for together; or else, with the number of bytes that it
    /// may bring, one key that is asked for alone. Suspects are measured on the way.
    async fn next_request(
        &self,
        open: &mut Vec<PendingLease<K, V, S>>,
        link: &Link,
    ) -> (Vec<PendingLease<K, V, S>>, Option<usize>) {
        if self.suspects.are_none() {
            return (std::mem::take(open), None);
        }
        let measured = open
            .iter()
            .filter(|one| self.suspects.way(&one.bytes) == Way::Measured)
            .map(|one| self.measure(&one.bytes, link));
        tokio::select! {
            biased;
            () = together(measured, |_, ()| {}) => {}
            () = self.line.left(link.generation()) => return (Vec::new(), None),
        }
        let all = std::mem::take(open).into_iter();
        let (asked, rest): (Vec<_>, Vec<_>) =
            all.partition(|one| self.suspects.way(&one.bytes) == Way::Together);
        *open = rest;
        if !asked.is_empty() {
            return (asked, None);
        }
        match open.pop() {
            Some(one) => match self.suspects.way(&one.bytes) {
                Way::Alone(bytes) => (vec![one], Some(bytes)),
                Way::Together | Way::Measured => (vec![one], None),
            },
            None => (Vec::new(), None),
        }
    }

    /// Asks the server how long the value of a suspect is.
    async fn measure(&self, key: &[u8], link: &Link) {
        let mut cmd = redis::cmd("STRLEN");
        cmd.arg(key);
        match send(link, key, &cmd).await {
            Ok(Value::Int(length)) => {
                let length = usize::try_from(length).unwrap_or(usize::MAX);
                self.suspects.measured(key, length);
            }
            Err(RequestError::Lost(error)) => self.lost(link.generation(), error),
            // It may be large.
            Ok(_) | Err(_) => self.suspects.measured(key, usize::MAX),
        }
    }

    /// The bytes of the keys. Keys that do not come back from their bytes fail here.
    fn encode(
        &self,
        leases: Vec<KeyLease<K, V, S>>,
        results: &mut [Option<Looked<V>>],
    ) -> Vec<PendingLease<K, V, S>> {
        let mut open = Vec::with_capacity(leases.len());
        for (index, lease) in leases.into_iter().enumerate() {
            let bytes = self.keys.bytes(lease.key());
            if self.keys.key::<K>(&bytes).as_ref() == Some(lease.key()) {
                open.push(PendingLease {
                    index,
                    bytes,
                    lease,
                });
            } else {
                let key = display_key(&bytes);
                results[index] = Some(self.fail(lease, NearError::Key { key }));
            }
        }
        open
    }

    /// Hands a reply to the callers, and keeps it if the lease is still current.
    fn commit(
        &self,
        lease: KeyLease<K, V, S>,
        bytes: &[u8],
        reply: Reply,
        sent: &RequestContext,
    ) -> Looked<V> {
        let (content, life) = match &reply.value {
            Some(value) => match self.content(bytes, value) {
                Ok(content) => {
                    let local = self.settings.local_ttl;
                    (content, reply.life.map_or(local, |life| life.min(local)))
                }
                Err(error) => return self.fail(lease, error),
            },
            None => (
                Content::Absent,
                self.settings.absent_ttl.min(self.settings.local_ttl),
            ),
        };
        // What has no deadline is never stale, nor what is loaded anew already.
        let is_placeholder = |bytes: &Vec<u8>| self.settings.load_lock.split(bytes).is_some();
        let stale_in = match (&content, &self.refresh, reply.life) {
            (Content::Value(value), Some(policy), lifetime @ Some(_))
                if !reply.value.as_ref().is_some_and(is_placeholder) =>
            {
                policy.refresh_after_create(lease.key(), value, sent.at, lifetime)
            }
            _ => None,
        };
        let tracked = reply.tracked && self.settings.is_tracked(bytes);
        let life = if tracked { life } else { Duration::ZERO };
        // `None` is too far away to be counted.
        let until = sent.at.checked_add(life);
        let over = until.is_some_and(|until| until <= Instant::now());
        let stale_from = stale_in.and_then(|time| sent.at.checked_add(time));
        let cached = Cached::new(content, sent.stamp, until).stale_from(stale_from);
        let mine = cached.clone();
        if over {
            self.share_outcome(lease, cached);
            return Ok(mine);
        }
        match lease.fill(cached) {
            Filled::Stored => Ok(mine),
            Filled::Revoked(mine) => {
                self.counters.revoked_load();
                Ok(mine)
            }
            Filled::Lost { current, yours } => {
                self.counters.revoked_load();
                let newest = if current.stamp() >= sent.stamp {
                    current
                } else {
                    yours
                };
                Ok(newest)
            }
        }
    }

    /// What these bytes of a key say.
    pub(crate) fn content(&self, key: &[u8], bytes: &[u8]) -> Result<Content<V>, NearError> {
        let value = match self.settings.load_lock.split(bytes) {
            None => bytes,
            Some((placeholder, b"")) => return Ok(Content::Loading(placeholder.into())),
            Some((_, old)) => old,
        };
        match self.codec.decode(value) {
            Ok(value) => Ok(Content::Value(value)),
            Err(error) => Err(NearError::Decode {
                key: display_key(key),
                source: Arc::from(error),
            }),
        }
    }

    /// Hands an error to all callers that wait for this load. Nothing is kept.
    fn fail(&self, lease: KeyLease<K, V, S>, error: NearError) -> Looked<V> {
        self.counters.failed_load();
        let (stamp, now) = (self.line.stamp(), Some(Instant::now()));
        let content = Content::Failed(Box::new(error.clone()));
        self.share_outcome(lease, Cached::new(content, stamp, now));
        Err(error)
    }

    /// Hands an outcome to the callers that wait for this load, and keeps nothing: the lease is
    /// revoked first, and what fills a revoked lease is never an entry.
    fn share_outcome(&self, lease: KeyLease<K, V, S>, cached: Cached<V>) {
        if lease.is_current() {
            self.local.invalidate(lease.key());
        }
        lease.fill(cached);
    }
}
