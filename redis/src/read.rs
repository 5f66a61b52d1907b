//! Reads: hits, and loads under a lease.
//!
//! The order of a load is what makes it right. First the lease for the key is registered, then the
//! request is written, then the reply fills the lease. An invalidation that comes after the
//! registration revokes the lease: the waiting calls may get an outdated reply, but the near cache
//! does not keep that reply.

use crate::cached::{Cached, Content};
use crate::error::{NearError, display_key};
use crate::key::{Hasher, Key, NearKey, Val};
use crate::link::Attempt;
use crate::near::NearCache;
use crate::placeholder;
use crate::request::{Reply, RequestError};
use crate::shared::{Lazily, Shared};
use crate::suspects::{LARGE, Way};
use crate::trace;
use futures_util::{StreamExt, stream};
use std::cell::Cell;
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::hash::{BuildHasher, Hash};
use std::mem;
use std::panic::resume_unwind;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};
use tokio::task::yield_now;
use tokio::time::{sleep, timeout};
use wheelhouse::{Equivalent, Filled, Lease, Leased};

/// The pause before the near cache repeats a request that the server could not answer yet.
pub(super) const SERVER_PAUSE: Duration = Duration::from_millis(25);

/// How many keys one call of `get_all` reads at a time: enough to hide the round trip.
const KEYS_AT_ONCE: usize = 128;
/// Above how many bytes a value of a call for many keys comes over the second connection: other
/// keys wait behind so many of each of its keys.
pub(crate) const LONG_IN_BULK: usize = 1 << 10;

pub(crate) type Found<V> = Result<Option<V>, NearError>;
/// The rest of a `get`, boxed, so that the future of a hit is small.
type Slow<'a, V> = Pin<Box<dyn Future<Output = Found<V>> + Send + 'a>>;
type KeyLease<K, V, S> = Lease<K, Cached<V>, S>;

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
        (cached.stamp == self.shared.line.stamp()).then(|| cached.value().value().cloned())
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
            self.shared.look(&key, LARGE).await.into_result()
        })
    }

    /// Returns the value of each of these keys, in their order, each with its own result: an error
    /// of one key does not touch the others.
    ///
    /// Keys that are not in memory are read together, 128 at a time, whatever the sizes of their
    /// values. Each value is kept when its reply comes. One of more than 1 KiB costs three more
    /// round trips, and comes over the second connection: other keys do not wait behind it.
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
        // `None`: neither memory nor the server has answered yet.
        let mut found: HashMap<&K, Option<Found<V>>> = HashMap::with_capacity(keys.len());
        let mut missing = Vec::new();
        for key in &keys {
            if let Entry::Vacant(new) = found.entry(key) {
                if new.insert(self.hit(key).map(Ok)).is_none() {
                    missing.push(key);
                }
            }
        }
        let limit = self.shared.settings.request_timeout;
        let look = async |key| (key, self.shared.look_without_limit(key, LONG_IN_BULK).await);
        let looks: Lazily<_> = Box::new(missing.into_iter().map(look));
        let mut looking = pin!(stream::iter(looks).buffer_unordered(KEYS_AT_ONCE));
        let mut late = None;
        while let Ok(Some((key, looked))) = timeout(limit, looking.next()).await {
            let result = looked.into_result();
            if let Err(error @ NearError::Unavailable { .. }) = result {
                // So it would be for all others.
                late = Some(error);
                break;
            }
            found.insert(key, Some(result));
        }
        let of = |key| match &found[key] {
            Some(found) => found.clone(),
            None => Err(late.get_or_insert_with(|| self.shared.timed_out()).clone()),
        };
        keys.iter().map(of).collect()
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
        Box::pin(self.shared.look(&key, LARGE)).await.into_result()
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
    /// What memory or the server has for a key.
    pub(crate) async fn look(self: &Arc<Self>, key: &K, most: usize) -> Cached<V> {
        // The limit holds for the wait for another call's load, too.
        let looking = self.look_without_limit(key, most);
        match timeout(self.settings.request_timeout, looking).await {
            Ok(looked) => looked,
            Err(_) => Cached::failed(self.timed_out(), 0),
        }
    }

    /// What memory or the server has for a key: this call leads the load, in a task of its own, or
    /// waits for the call that does. So a reply that comes after its call has gone is kept, and
    /// calls that come meanwhile join the load instead of asking again. It returns what a call may
    /// that begins now (`stamp`, invariant 3). A value of more than `most` bytes comes over the
    /// second connection.
    async fn look_without_limit(self: &Arc<Self>, key: &K, most: usize) -> Cached<V> {
        let begun = self.line.stamp();
        let lease = loop {
            match self.local.lease_async(key.clone()).await {
                // It is not served any more; a newer one that has replaced it stays.
                Leased::Found(cached) if cached.stamp < begun => {
                    self.local.remove_if(key, |cached| cached.stamp < begun);
                }
                Leased::Found(cached) => return cached,
                Leased::Lease(lease) => break lease,
                // Only a call that does not wait gets this answer.
                Leased::Busy => yield_now().await,
            }
        };
        let shared = self.clone();
        // Boxed, since the runtime moves a task's future more than once.
        let leading = Box::pin(async move { shared.lead(lease, most).await });
        match self.runtime.spawn(leading).await {
            Ok(found) => found,
            Err(ended) => match ended.try_into_panic() {
                Ok(panic) => resume_unwind(panic),
                // The runtime has ended.
                Err(_) => Cached::failed(NearError::Closed, 0),
            },
        }
    }

    /// Loads the key of this lease.
    async fn lead(&self, lease: KeyLease<K, V, S>, most: usize) -> Cached<V> {
        let bytes = self.settings.bytes_of(lease.key());
        if self.settings.key::<K>(&bytes).as_ref() != Some(lease.key()) {
            let key = display_key(&bytes);
            return self.fail(lease, NearError::Key { key });
        }
        let limit = self.settings.request_timeout;
        let begun = Instant::now();
        let first = Way::Main(most);
        let mut next = first;
        loop {
            // A length counts once: after a failure the value may have another one.
            let way = self.suspects.way(&bytes, mem::replace(&mut next, first));
            if let Way::Refused { losses, left } = way {
                self.counters.refused_key();
                let key = display_key(&bytes);
                return self.fail(lease, NearError::Refused { key, losses, left });
            }
            let linked = timeout(limit, self.link()).await;
            let (stamp, link) = match linked.unwrap_or_else(|_| Err(self.timed_out())) {
                Ok(current) => current,
                Err(error) => return self.fail(lease, error),
            };
            let generation = link.generation;
            let (mut second, mut room) = (None, None);
            if let (Way::Second { bytes, losses }, Some(node)) = (way, link.node_for(&bytes)) {
                // A call that waits in vain needs time for the main connection. A suspect waits for
                // the end of the attempt, though its calls go: a later call may find the connection
                // unused for so long that it is made anew.
                let wait = if losses > 0 { Duration::MAX } else { limit / 2 };
                // It has no turn yet: others do not wait for this.
                second = tokio::select! {
                    biased;
                    () = self.line.left(generation) => continue,
                    attempt = node.reads.connection(wait) => match attempt {
                        Attempt::Connected(second) => Some(second),
                        Attempt::Later(error) if losses > 0 => {
                            self.set_fault(error);
                            if begun.elapsed() > limit {
                                return self.give_up();
                            }
                            sleep(SERVER_PAUSE).await;
                            continue;
                        }
                        Attempt::Later(_) | Attempt::Never => None,
                    },
                };
                room = node.reads.room(bytes).await;
            }
            let has_ended = second.as_ref().is_some_and(|s| s.ended.is_marked());
            if has_ended || !self.line.is_current(generation) {
                // It has waited until the connection was lost, and has not asked for anything.
                continue;
            }
            if begun.elapsed() > limit && !lease.is_current() {
                // It has waited for longer than its calls, and a write has come meanwhile.
                return self.fail(lease, self.timed_out());
            }
            let at = Instant::now();
            self.counters.load();
            // Whether the whole value is awaited over a main connection.
            let mut over_main = second.is_none() && matches!(way, Way::Second { .. });
            let reading = async {
                match link.read(&bytes, way, second).await {
                    Err(RequestError::Ask(address)) => {
                        over_main = true;
                        link.read_asking(&address, &bytes).await
                    }
                    answer => answer,
                }
            };
            let answer = tokio::select! {
                biased;
                answer = trace::request(&self.settings, "GET", &bytes, reading) => answer,
                // The connection was given up: ask the next one.
                () = self.line.left(generation) => {
                    if over_main && link.ended.is_marked() {
                        self.suspects.accuse(&bytes);
                    }
                    continue;
                }
            };
            drop(room);
            match answer {
                Ok(reply) => {
                    let length = reply.value.as_ref().map_or(0, Vec::len);
                    self.suspects.measured(&bytes, length);
                    // What was wrong before says nothing about a later time-out.
                    self.set_fault(None);
                    return self.commit(lease, &bytes, reply, stamp, at);
                }
                Err(RequestError::Failed(error)) => {
                    self.suspects.measured(&bytes, 0);
                    return self.fail(lease, error.of_key(&bytes));
                }
                Err(RequestError::OutOfStep(error)) => {
                    self.lost(generation, error.clone());
                    return self.fail(lease, error);
                }
                Err(RequestError::Large(length)) => {
                    self.suspects.measured(&bytes, length);
                    next = Way::Second {
                        bytes: length,
                        losses: 0,
                    };
                }
                Err(RequestError::Lost(error)) => {
                    if over_main {
                        self.suspects.accuse(&bytes);
                    }
                    self.lost(generation, error);
                }
                Err(RequestError::LostSecond) => self.suspects.accuse(&bytes),
                Err(RequestError::Later(_)) if begun.elapsed() > limit => return self.give_up(),
                Err(error) => self.ready_again(generation, error).await,
            }
        }
    }

    /// Waits until a request may be repeated that the server has not executed.
    pub(crate) async fn ready_again(&self, generation: u64, error: RequestError) {
        match error {
            RequestError::Moved(error) => self.lost(generation, error),
            RequestError::Later(error) => {
                self.set_fault(Some(error));
                sleep(SERVER_PAUSE).await;
            }
            _ => sleep(SERVER_PAUSE).await,
        }
    }

    /// Hands a reply to the callers, and keeps it if the lease is still current.
    fn commit(
        &self,
        lease: KeyLease<K, V, S>,
        bytes: &[u8],
        reply: Reply,
        stamp: u64,
        at: Instant,
    ) -> Cached<V> {
        let over = reply.life.and_then(|life| at.checked_add(life));
        let mark = &self.settings.load_lock.mark;
        let mut stale_from = None;
        let content = match &reply.value {
            None => Content::Absent,
            Some(value) => match placeholder::split(value, mark) {
                Some((placeholder, b"")) => Content::Loading(Box::new((placeholder.into(), over))),
                // It is loaded anew already.
                Some((_, old)) => self.decode(bytes, old),
                None => {
                    let content = self.decode(bytes, value);
                    // What has no deadline is never stale.
                    if let (Content::Value(value), Some(policy), lifetime @ Some(_)) =
                        (&content, &self.refresh, reply.life)
                    {
                        let key = lease.key();
                        let stale_in = policy.refresh_after_create(key, value, at, lifetime);
                        stale_from = stale_in.and_then(|time| at.checked_add(time));
                    }
                    content
                }
            },
        };
        let life = match content {
            Content::Failed(error) => return self.fail(lease, *error),
            Content::Absent => self.settings.absent_ttl,
            _ => reply.life.unwrap_or(Duration::MAX),
        };
        let life = if reply.tracked && self.settings.is_tracked(bytes) {
            life.min(self.settings.local_ttl)
        } else {
            Duration::ZERO
        };
        // `None` is too far away to be counted.
        let until = at.checked_add(life);
        let over = until.is_some_and(|until| until <= Instant::now());
        let mut cached = Cached::new(content, stamp, until);
        cached.stale_from = stale_from;
        let mine = cached.clone();
        if over {
            self.share_outcome(lease, cached);
            return mine;
        }
        let filled = lease.fill(cached);
        if !matches!(filled, Filled::Stored) {
            self.counters.revoked_load();
        }
        match filled {
            Filled::Lost { current, .. } if current.stamp >= stamp => current,
            _ => mine,
        }
    }

    /// The value that these bytes of a key are.
    fn decode(&self, key: &[u8], value: &[u8]) -> Content<V> {
        match self.codec.decode(value) {
            Ok(value) => Content::Value(value),
            Err(error) => Content::Failed(Box::new(NearError::Decode {
                key: display_key(key),
                source: Arc::from(error),
            })),
        }
    }

    /// The first call of a load has gone, and no reply is on its way. The lease is dropped: a call
    /// that came later leads.
    fn give_up(&self) -> Cached<V> {
        self.counters.failed_load();
        Cached::failed(self.timed_out(), self.line.stamp())
    }

    /// Hands an error to all callers that wait for this load. Nothing is kept.
    fn fail(&self, lease: KeyLease<K, V, S>, error: NearError) -> Cached<V> {
        self.counters.failed_load();
        let failed = Cached::failed(error, self.line.stamp());
        self.share_outcome(lease, failed.clone());
        failed
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
