//! Reads: hits, and loads under a lease.
//!
//! The order of a load is what makes it right. First the lease for the key is registered, then the
//! request is written, then the reply fills the lease. An invalidation that comes after the
//! registration revokes the lease: the waiting calls may get an outdated reply, but the near cache
//! does not keep that reply.

use crate::cached::{Cached, Content};
use crate::error::NearError;
use crate::key::NearKey;
use crate::near::NearCache;
use crate::request::{Reply, RequestError, ServerTtl};
use crate::shared::Shared;
use std::cell::Cell;
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::hash::{BuildHasher, Hash};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::task::yield_now;
use tokio::time::{sleep, timeout};
use wheelhouse::{Equivalent, Filled, Lease, Leased};

/// The pause before the near cache repeats a request that the server could not answer yet.
pub(super) const SERVER_PAUSE: Duration = Duration::from_millis(25);

type Found<V> = Result<Option<V>, NearError>;
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
    /// Every 256th call of a thread yields to the runtime, so that tasks whose reads all hit do not
    /// keep it from reading the connection.
    ///
    /// ```no_run
    /// # use wheelhouse_redis::{NearCache, NearError};
    /// # async fn example(near: NearCache<String, String>) -> Result<(), NearError> {
    /// let name = near.get("user:1:name").await?;
    /// println!("{}", name.as_deref().unwrap_or("unknown"));
    /// # Ok(())
    /// # }
    /// ```
    pub async fn get<Q>(&self, key: &Q) -> Result<Option<V>, NearError>
    where
        Q: Equivalent<K> + Hash + ToOwned<Owned = K> + ?Sized,
    {
        if must_yield() {
            yield_now().await;
        }
        match self.shared.hit(key) {
            Some(found) => Ok(found),
            // Boxed, so that the future of a hit stays small.
            None => Box::pin(load_in_time(self.shared.clone(), key.to_owned())).await,
        }
    }

    /// Returns the values of these keys, in their order.
    ///
    /// Keys that are not in memory are read together: one pipeline for each 128 keys and node.
    /// Keys that another call is loading are awaited afterwards, so overlapping calls never wait
    /// for each other in a cycle.
    ///
    /// # Errors
    ///
    /// The first error of any key, after all others were read; within `request_timeout` at the
    /// latest.
    ///
    /// ```no_run
    /// # use wheelhouse_redis::{NearCache, NearError};
    /// # async fn example(near: NearCache<u64, String>) -> Result<(), NearError> {
    /// let names = near.get_all([1, 2, 3]).await?;
    /// assert_eq!(names.len(), 3);
    /// # Ok(())
    /// # }
    /// ```
    pub async fn get_all(
        &self,
        keys: impl IntoIterator<Item = K>,
    ) -> Result<Vec<Option<V>>, NearError> {
        if must_yield() {
            yield_now().await;
        }
        let keys: Vec<K> = keys.into_iter().collect();
        let shared = self.shared.clone();
        let limit = shared.settings.request_timeout;
        let all = Box::pin(load_all(shared, keys));
        let all = timeout(limit, all).await;
        all.unwrap_or_else(|_| Err(self.shared.timed_out()))
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
        Box::pin(load_in_time(self.shared.clone(), key)).await
    }
}

/// Whether a call has to yield first: every 256th of a thread. A hit is ready at once, so a task
/// that does nothing but hit would keep a runtime with one thread from reading the connection, and
/// would see old values for ever.
#[inline]
fn must_yield() -> bool {
    thread_local! {
        static CALLS: Cell<u8> = const { Cell::new(0) };
    }
    let calls = CALLS.get().wrapping_add(1);
    CALLS.set(calls);
    calls == 0
}

async fn load_in_time<K, V, S>(shared: Arc<Shared<K, V, S>>, key: K) -> Found<V>
where
    K: NearKey + Hash + Eq + Clone + Send + Sync + 'static,
    V: Clone + Send + Sync + 'static,
    S: BuildHasher + Send + Sync + 'static,
{
    // The limit holds for the wait for another call's load, too.
    let loaded = timeout(shared.settings.request_timeout, load(&shared, key)).await;
    loaded.unwrap_or_else(|_| Err(shared.timed_out()))
}

/// Leads the load of a key, or waits for the call that does.
async fn load<K, V, S>(shared: &Shared<K, V, S>, key: K) -> Found<V>
where
    K: NearKey + Hash + Eq + Clone + Send + Sync + 'static,
    V: Clone + Send + Sync + 'static,
    S: BuildHasher + Send + Sync + 'static,
{
    let begun = shared.line.stamp();
    loop {
        match shared.lease(&key, begun).await {
            Leased::Lease(lease) => {
                let mut found = shared.lead(vec![lease]).await;
                return found.pop().unwrap_or(Err(NearError::Closed));
            }
            Leased::Found(cached) => return cached.into_result(),
            // Only a call that does not wait gets this answer.
            Leased::Busy => yield_now().await,
        }
    }
}

async fn load_all<K, V, S>(
    shared: Arc<Shared<K, V, S>>,
    keys: Vec<K>,
) -> Result<Vec<Option<V>>, NearError>
where
    K: NearKey + Hash + Eq + Clone + Send + Sync + 'static,
    V: Clone + Send + Sync + 'static,
    S: BuildHasher + Send + Sync + 'static,
{
    let begun = shared.line.stamp();
    let mut found: HashMap<&K, Option<Found<V>>> = HashMap::with_capacity(keys.len());
    let mut missing = Vec::new();
    for key in &keys {
        if let Entry::Vacant(place) = found.entry(key) {
            let hit = place.insert(shared.hit(key).map(Ok));
            if hit.is_none() {
                missing.push(key);
            }
        }
    }
    let mut waited_for = None;
    while !missing.is_empty() {
        // Takes all leases that are free now. A call that holds leases never waits for the lease of
        // another call.
        let (mut leases, mut led, mut busy) = (Vec::new(), Vec::new(), Vec::new());
        for key in missing {
            let leased = match waited_for.take() {
                Some(leased) => leased,
                None => shared.lease_now(key, begun),
            };
            match leased {
                Leased::Lease(lease) => {
                    leases.push(lease);
                    led.push(key);
                }
                Leased::Found(cached) => {
                    found.insert(key, Some(cached.into_result()));
                }
                Leased::Busy => busy.push(key),
            }
        }
        let loaded = shared.lead(leases).await;
        for (key, result) in led.into_iter().zip(loaded) {
            found.insert(key, Some(result));
        }
        // Another call loads the rest. When it has ended, this call takes what is free then.
        if let Some(first) = busy.first() {
            waited_for = Some(shared.lease(first, begun).await);
        }
        missing = busy;
    }
    let of = |key: &K| found.get(key).cloned().flatten();
    keys.iter()
        .map(|key| of(key).unwrap_or(Err(NearError::Closed)))
        .collect()
}

impl<K, V, S> Shared<K, V, S>
where
    K: NearKey + Hash + Eq + Clone + Send + Sync + 'static,
    V: Clone + Send + Sync + 'static,
    S: BuildHasher + Send + Sync + 'static,
{
    /// The right to load a key, or what a call that began at the stamp `begun` may return
    /// (`stamp`, invariant 3). Waits while another call loads the key.
    async fn lease(&self, key: &K, begun: u64) -> Leased<K, Cached<V>, S> {
        loop {
            match self.local.lease_async(key.clone()).await {
                Leased::Found(cached) if cached.stamp() < begun => self.forget_before(key, begun),
                leased => return leased,
            }
        }
    }

    /// As `lease`, without waiting.
    fn lease_now(&self, key: &K, begun: u64) -> Leased<K, Cached<V>, S> {
        loop {
            match self.local.lease_timeout(key.clone(), Duration::ZERO) {
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
    async fn lead(&self, leases: Vec<KeyLease<K, V, S>>) -> Vec<Found<V>> {
        let mut results: Vec<Option<Found<V>>> = leases.iter().map(|_| None).collect();
        let mut open = self.encode(leases, &mut results);
        while !open.is_empty() {
            let (stamp, link) = match self.line.link().await {
                Ok(current) => current,
                Err(error) => {
                    for one in open.drain(..) {
                        results[one.index] = Some(self.fail(one.lease, error.clone()));
                    }
                    break;
                }
            };
            let at = Instant::now();
            let sent = RequestContext { stamp, at };
            let keys: Vec<&[u8]> = open.iter().map(|one| one.bytes.as_slice()).collect();
            keys.iter().for_each(|_| self.counters.load());
            let answers = tokio::select! {
                biased;
                answers = link.read(&keys, &self.settings.tracking) => answers,
                // The connection was given up: ask the next one.
                () = self.line.left(link.generation()) => continue,
            };
            let (mut again, mut pause, mut answered) = (Vec::new(), false, false);
            for (one, mut answer) in open.drain(..).zip(answers) {
                if let Err(RequestError::Ask(address)) = &answer {
                    answer = link.read_asking(address, &one.bytes).await;
                }
                match answer {
                    Ok(reply) => {
                        answered = true;
                        results[one.index] = Some(self.commit(one.lease, &one.bytes, reply, &sent));
                    }
                    Err(RequestError::Failed(error)) => {
                        results[one.index] = Some(self.fail(one.lease, error));
                    }
                    Err(RequestError::OutOfStep(error)) => {
                        self.lost(link.generation(), error.clone());
                        results[one.index] = Some(self.fail(one.lease, error));
                    }
                    Err(RequestError::Lost(error) | RequestError::Moved(error)) => {
                        self.lost(link.generation(), error);
                        again.push(one);
                    }
                    Err(RequestError::Ask(_)) => {
                        pause = true;
                        again.push(one);
                    }
                    Err(RequestError::Later(error)) => {
                        self.set_fault(Some(error));
                        pause = true;
                        again.push(one);
                    }
                }
            }
            open = again;
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

    /// The bytes of the keys. Keys that do not come back from their bytes fail here.
    fn encode(
        &self,
        leases: Vec<KeyLease<K, V, S>>,
        results: &mut [Option<Found<V>>],
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
    ) -> Found<V> {
        let (content, life) = match reply.value {
            Some(value) => match self.codec.decode(&value) {
                Ok(value) => (Content::Value(value), self.shorter(reply.life)),
                Err(error) => {
                    let (key, source) = (display_key(bytes), Arc::from(error));
                    return self.fail(lease, NearError::Decode { key, source });
                }
            },
            None => (
                Content::Absent,
                self.settings.absent_ttl.min(self.settings.local_ttl),
            ),
        };
        let tracked = self.settings.is_tracked(bytes);
        let life = if tracked { life } else { Duration::ZERO };
        // `None` is too far away to be counted.
        let until = sent.at.checked_add(life);
        let over = until.is_some_and(|until| until <= Instant::now());
        let cached = Cached::new(content, sent.stamp, until);
        let mine = cached.clone();
        if over {
            self.share_outcome(lease, cached);
            return mine.into_result();
        }
        match lease.fill(cached) {
            Filled::Stored => mine.into_result(),
            Filled::Revoked(mine) => {
                self.counters.revoked_load();
                mine.into_result()
            }
            Filled::Lost { current, yours } => {
                self.counters.revoked_load();
                let newest = if current.stamp() >= sent.stamp {
                    current
                } else {
                    yours
                };
                newest.into_result()
            }
        }
    }

    fn shorter(&self, server: ServerTtl) -> Duration {
        match server {
            ServerTtl::Unlimited => self.settings.local_ttl,
            ServerTtl::AtLeast(life) => life.min(self.settings.local_ttl),
        }
    }

    /// Hands an error to all callers that wait for this load. Nothing is kept.
    fn fail(&self, lease: KeyLease<K, V, S>, error: NearError) -> Found<V> {
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

/// A key as a message shows it.
pub(crate) fn display_key(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}
