//! Loads: a value that the server does not have comes from the user's source.
//!
//! The lease of the key is the guard: in one process one load runs at a time for a key, whatever
//! the call. The flow is: take the lease, ask the server, load, write the value with `SET NX`, hand
//! it to the calls that wait, and read it back into memory under a new lease. The write ends the
//! first lease, as any write does: the server reports it. `NX` keeps what another process has
//! written meanwhile.

use crate::cached::{Cached, Content};
use crate::codec::BoxError;
use crate::error::NearError;
use crate::key::NearKey;
use crate::near::NearCache;
use crate::read::{KeyLease, load_in_time};
use crate::request::unexpected;
use crate::shared::{BlockingDrop, Shared};
use redis::Value;
use std::convert::Infallible;
use std::hash::{BuildHasher, Hash};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::runtime::Handle;
use tokio::time::{sleep, timeout};
use wheelhouse::{Equivalent, Leased, RandomState};

/// How long a process waits before it asks again for a value that another process loads.
const LOCK_PAUSE: Duration = Duration::from_millis(20);
/// Deletes the lock if it still has our token.
const RELEASE: &str =
    "if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) end return 0";

impl<K, V, S> NearCache<K, V, S>
where
    K: NearKey + Hash + Eq + Clone + Send + Sync + 'static,
    V: Clone + Send + Sync + 'static,
    S: BuildHasher + Send + Sync + 'static,
{
    /// Returns the value of a key: from memory, from the server, or else from `load`, whose value
    /// goes to the server with this time to live and into memory.
    ///
    /// One load runs at a time for a key in this process; calls that come meanwhile wait for it, a
    /// plain [`get`](Self::get) for `request_timeout` at most. With
    /// [`load_lock`](crate::NearCacheBuilder::load_lock), one runs at a time in all processes. If
    /// the call is cancelled, the call that waits longest takes over.
    ///
    /// A write of the key through this near cache that comes while `load` runs wins: the loaded
    /// value is returned, but written nowhere. A value that another process has written meanwhile
    /// wins, too.
    ///
    /// # Errors
    ///
    /// [`NearError`] if the server could not be asked, each step within `request_timeout`. If the
    /// loaded value could not be written, the call returns it all the same, and
    /// [`unsaved_loads`](crate::NearStats::unsaved_loads) counts it. `load` has no limit:
    /// bound it yourself.
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

    /// As [`get_with`](Self::get_with), with a load that may fail.
    ///
    /// # Errors
    ///
    /// As [`get_with`](Self::get_with), and [`NearError::Load`]: calls that waited for the load
    /// share its error. Nothing is kept; the next call loads anew.
    ///
    /// ```no_run
    /// # use std::time::Duration;
    /// # use wheelhouse_redis::{NearCache, NearError};
    /// # async fn select_name(id: u64) -> Result<String, std::io::Error> { Ok(String::new()) }
    /// # async fn example(near: NearCache<u64, String>) {
    /// match near.try_get_with(&7, Duration::from_secs(60), select_name(7)).await {
    ///     Ok(name) => println!("{name}"),
    ///     Err(NearError::Load(source)) => eprintln!("the database: {source}"),
    ///     Err(server) => eprintln!("{server}"),
    /// }
    /// # }
    /// ```
    pub async fn try_get_with<Q, E>(
        &self,
        key: &Q,
        ttl: impl Into<Option<Duration>>,
        load: impl Future<Output = Result<V, E>>,
    ) -> Result<V, NearError>
    where
        Q: Equivalent<K> + Hash + ToOwned<Owned = K> + ?Sized,
        E: Into<BoxError>,
    {
        match self.shared.hit(key) {
            Some(Some(value)) => Ok(value),
            _ => Box::pin(load_with(&self.shared, key.to_owned(), ttl.into(), load)).await,
        }
    }
}

async fn load_with<K, V, S, E>(
    shared: &Arc<Shared<K, V, S>>,
    key: K,
    ttl: Option<Duration>,
    load: impl Future<Output = Result<V, E>>,
) -> Result<V, NearError>
where
    K: NearKey + Hash + Eq + Clone + Send + Sync + 'static,
    V: Clone + Send + Sync + 'static,
    S: BuildHasher + Send + Sync + 'static,
    E: Into<BoxError>,
{
    let bytes = shared.keys.bytes(&key);
    let mut lock = None;
    let lease = loop {
        let lease = match shared.ask(&key).await? {
            Asked::Value(value) => return Ok(value),
            Asked::Absent(lease) => lease,
        };
        let Some(life) = shared.settings.load_lock else {
            break lease;
        };
        if lock.is_some() {
            break lease;
        }
        lock = Lock::take(shared, &bytes, life).await?;
        // With the lock: another process may have written before it gave the lock back. Without:
        // that process is at work. The server is asked again in both cases.
        drop(lease);
        if lock.is_none() {
            sleep(LOCK_PAUSE).await;
        }
    };
    let value = match load.await {
        Ok(value) => value,
        Err(error) => {
            shared.fail(lease, NearError::Load(Arc::from(error.into())))?;
            return Err(NearError::Closed);
        }
    };
    let written = match shared.set_command(&key, &value, ttl) {
        // A write came meanwhile: the value may be older.
        Ok(_) if !lease.is_current() => return Ok(value),
        Ok(mut set) => {
            let meaning = |reply: Value| match reply {
                Value::Okay => Ok(true),
                Value::Nil => Ok(false),
                other => Err(unexpected("SET", &other)),
            };
            shared.write_in_time(&bytes, set.arg("NX"), meaning).await
        }
        Err(error) => Err(error),
    };
    if !matches!(written, Ok(false)) {
        let content = Content::Value(value.clone());
        let over = Some(Instant::now());
        shared.share_outcome(lease, Cached::new(content, shared.line.stamp(), over));
    }
    if written.is_err() {
        shared.counters.unsaved_load();
        return Ok(value);
    }
    drop(lock);
    // What the server has now: this value, or that of another process.
    match load_in_time(shared.clone(), key).await {
        Ok(Some(newest)) => Ok(newest),
        _ => Ok(value),
    }
}

/// The answer of the server to a call that may load.
enum Asked<K, V, S> {
    Value(V),
    Absent(KeyLease<K, V, S>),
}

impl<K, V, S> Shared<K, V, S>
where
    K: NearKey + Hash + Eq + Clone + Send + Sync + 'static,
    V: Clone + Send + Sync + 'static,
    S: BuildHasher + Send + Sync + 'static,
{
    /// The value of a key, or its lease if the server has none.
    async fn ask(&self, key: &K) -> Result<Asked<K, V, S>, NearError> {
        let begun = self.line.stamp();
        loop {
            match self.lease(key, begun).await {
                Leased::Found(cached) if cached.is_absent() => {
                    // Of a call that did not load.
                    self.local.remove_if(key, Cached::is_absent);
                }
                Leased::Found(cached) => {
                    if let Some(value) = cached.into_result()? {
                        return Ok(Asked::Value(value));
                    }
                }
                Leased::Lease(lease) => {
                    let mut absent = Vec::new();
                    let asking = self.lead(vec![lease], Some(&mut absent));
                    let mut found = timeout(self.settings.request_timeout, asking)
                        .await
                        .map_err(|_| self.timed_out())?;
                    return match (found.pop(), absent.pop()) {
                        (Some(Ok(Some(value))), _) => Ok(Asked::Value(value)),
                        (Some(Ok(None)), Some(lease)) => Ok(Asked::Absent(lease)),
                        (Some(Err(error)), _) => Err(error),
                        _ => Err(NearError::Closed),
                    };
                }
                // Only a call that does not wait gets this answer.
                Leased::Busy => tokio::task::yield_now().await,
            }
        }
    }
}

/// The lock of a key at the server; given back when dropped, also by a panic.
struct Lock<K, V, S>
where
    K: NearKey + Hash + Eq + Clone + Send + Sync + 'static,
    V: Clone + Send + Sync + 'static,
    S: BuildHasher + Send + Sync + 'static,
{
    shared: Arc<Shared<K, V, S>>,
    key: Vec<u8>,
    token: String,
}

impl<K, V, S> Lock<K, V, S>
where
    K: NearKey + Hash + Eq + Clone + Send + Sync + 'static,
    V: Clone + Send + Sync + 'static,
    S: BuildHasher + Send + Sync + 'static,
{
    /// `None` while another process has it.
    async fn take(
        shared: &Arc<Shared<K, V, S>>,
        of: &[u8],
        life: Duration,
    ) -> Result<Option<Self>, NearError> {
        let key = [of, b":loading"].concat();
        let random = || RandomState::new().hash_one(0u8);
        let token = format!("{:016x}{:016x}", random(), random());
        let mut cmd = redis::cmd("SET");
        cmd.arg(&key).arg(&token).arg("NX");
        cmd.arg("PX").arg(crate::write::whole_millis(life)?);
        let meaning = |reply: Value| match reply {
            Value::Okay => Ok(true),
            Value::Nil => Ok(false),
            other => Err(unexpected("SET", &other)),
        };
        let taken = shared.write_in_time(&key, &cmd, meaning).await?;
        Ok(taken.then(|| Self {
            shared: shared.clone(),
            key,
            token,
        }))
    }
}

impl<K, V, S> Drop for Lock<K, V, S>
where
    K: NearKey + Hash + Eq + Clone + Send + Sync + 'static,
    V: Clone + Send + Sync + 'static,
    S: BuildHasher + Send + Sync + 'static,
{
    fn drop(&mut self) {
        // Outside of a runtime the lock's own life ends it.
        let Ok(runtime) = Handle::try_current() else {
            return;
        };
        let shared = BlockingDrop::new(self.shared.clone());
        let (key, token) = (
            std::mem::take(&mut self.key),
            std::mem::take(&mut self.token),
        );
        runtime.spawn(async move {
            let mut cmd = redis::cmd("EVAL");
            cmd.arg(RELEASE).arg(1).arg(&key).arg(token);
            let _ = shared.write_in_time(&key, &cmd, |_| Ok(())).await;
        });
    }
}
