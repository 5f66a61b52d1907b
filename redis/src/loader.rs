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
use crate::key::{Hasher, Key, NearKey, Val};
use crate::near::NearCache;
use crate::read::KeyLease;
use crate::shared::{BlockingDrop, Shared};
use crate::write::{is_written, whole_millis};
use std::convert::Infallible;
use std::hash::{BuildHasher, Hash};
use std::pin::Pin;
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
        match self.hit(key) {
            Some(Some(value)) => Ok(value),
            _ => Box::pin(load_with(&self.shared, key.to_owned(), ttl.into(), load)).await,
        }
    }
}

async fn load_with<K: Key, V: Val, S: Hasher, E>(
    shared: &Arc<Shared<K, V, S>>,
    key: K,
    ttl: Option<Duration>,
    load: impl Future<Output = Result<V, E>>,
) -> Result<V, NearError>
where
    E: Into<BoxError>,
{
    let mut lease = match shared.lease_of_absent(&key).await? {
        Ok(value) => return Ok(value),
        Err(lease) => lease,
    };
    let (bytes, mut lock) = (shared.keys.bytes(&key), None);
    loop {
        lease = match shared.ask(lease).await? {
            Ok(value) => return Ok(value),
            Err(lease) => lease,
        };
        let Some(life) = shared.settings.load_lock.filter(|_| lock.is_none()) else {
            break;
        };
        // With the lock: another process may have written before it gave the lock back. Without:
        // that process is at work. The server is asked again in both cases.
        lock = shared.lock(&bytes, life).await?;
        if lock.is_none() {
            sleep(LOCK_PAUSE).await;
        }
    }
    let value = match load.await {
        Ok(value) => value,
        Err(error) => {
            let failed = shared.fail(lease, NearError::Load(Arc::from(error.into())));
            return failed.and(Err(NearError::Closed));
        }
    };
    if !lease.is_current() {
        // A write came meanwhile: the value may be older.
        return Ok(value);
    }
    let writing = async {
        let mut set = shared.set_command(&key, &value, ttl)?;
        let set = set.arg("NX");
        shared.write_in_time(&bytes, set, is_written).await
    };
    let written = writing.await;
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
    match shared.load(&key).await {
        Ok(Some(newest)) => Ok(newest),
        _ => Ok(value),
    }
}

impl<K: Key, V: Val, S: Hasher> Shared<K, V, S> {
    /// The value of a key in memory, or its lease if there is none. Waits while another call loads.
    async fn lease_of_absent(&self, key: &K) -> Result<Result<V, KeyLease<K, V, S>>, NearError> {
        let begun = self.line.stamp();
        loop {
            match self.lease(key, begun).await {
                // Of a call that did not load.
                Leased::Found(cached) if cached.is_absent() => {
                    self.local.remove_if(key, Cached::is_absent);
                }
                Leased::Found(cached) => {
                    if let Some(value) = cached.into_result()? {
                        return Ok(Ok(value));
                    }
                }
                Leased::Lease(lease) => return Ok(Err(lease)),
                // Only a call that does not wait gets this answer.
                Leased::Busy => tokio::task::yield_now().await,
            }
        }
    }

    /// The value that the server has, or the lease if it has none.
    async fn ask(
        &self,
        lease: KeyLease<K, V, S>,
    ) -> Result<Result<V, KeyLease<K, V, S>>, NearError> {
        let mut absent = Vec::new();
        let asking = self.lead(vec![lease], Some(&mut absent));
        let found = timeout(self.settings.request_timeout, asking).await;
        let found = found.map_err(|_| self.timed_out())?.pop();
        match (found.unwrap_or(Err(NearError::Closed))?, absent.pop()) {
            (None, Some(lease)) => Ok(Err(lease)),
            (found, _) => found.map(Ok).ok_or(NearError::Closed),
        }
    }

    /// Takes the lock of a key at the server; `None` while another process has it.
    async fn lock(self: &Arc<Self>, of: &[u8], life: Duration) -> Result<Option<Lock>, NearError> {
        let key = [of, b":loading"].concat();
        let random = || RandomState::new().hash_one(0u8);
        let token = format!("{:016x}{:016x}", random(), random());
        let mut cmd = redis::cmd("SET");
        cmd.arg(&key)
            .arg(&token)
            .arg("NX")
            .arg("PX")
            .arg(whole_millis(life)?);
        if !self.write_in_time(&key, &cmd, is_written).await? {
            return Ok(None);
        }
        let shared = BlockingDrop::new(self.clone());
        Ok(Some(Lock(Some(Box::pin(async move {
            let mut cmd = redis::cmd("EVAL");
            cmd.arg(RELEASE).arg(1).arg(&key).arg(token);
            let _ = shared.write_in_time(&key, &cmd, |_| Ok(())).await;
        })))))
    }
}

/// The lock of a key at the server: what gives it back, also after a panic.
struct Lock(Option<Pin<Box<dyn Future<Output = ()> + Send>>>);

impl Drop for Lock {
    fn drop(&mut self) {
        // Outside of a runtime the lock's own life ends it.
        if let (Some(release), Ok(runtime)) = (self.0.take(), Handle::try_current()) {
            runtime.spawn(release);
        }
    }
}
