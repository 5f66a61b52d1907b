//! From settings to a connected near cache.

use crate::cached::Cached;
use crate::codec::{BoxError, Codec, DefaultCodec};
use crate::config::{LoadLock, OnDisconnect, Settings, Tracking};
use crate::connect::Connector;
use crate::credentials::{Credentials, Provider};
use crate::error::NearError;
use crate::key::{Hasher, Key, NearKey, Val};
use crate::link::Link;
use crate::near::NearCache;
#[cfg(feature = "sentinel")]
use crate::sentinel::Sentinels;
use crate::shared::Shared;
use crate::supervisor::Supervisor;
use redis::Client;
use std::fmt;
use std::hash::{BuildHasher, Hash};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::watch;
use wheelhouse::{Cache, CacheBuilder, Expiry, RandomState, Refresh, expiry};

/// The settings of a near cache, made by [`NearCache::builder`].
///
/// | setting | default |
/// |---|---|
/// | `local` | unbounded, as `Cache::builder()` |
/// | `local_ttl` | 300 s |
/// | `absent_ttl` | zero: absences are not kept |
/// | `tracking` | `Tracking::Default` |
/// | `on_disconnect` | `OnDisconnect::Flush` |
/// | `codec` | `codec::Json` (without the feature `json`: `codec::Bytes`) |
/// | `key_prefix` | none |
/// | `connect_timeout` | 2 s |
/// | `request_timeout` | 1 s |
/// | `heartbeat` | 1 s |
/// | `fail_fast_after` | 5 refused attempts to connect |
/// | `credentials` | those of the client |
/// | `load_lock` | a placeholder that lives for 1.7 s |
/// | `load_when_away` | off: `get_with` fails while the server is away |
/// | `refresh_after` | never: a value is loaded when its deadline has passed |
/// | `jitter` | zero: loaded values have the life that the call names |
///
/// ```no_run
/// use std::time::Duration;
/// use wheelhouse::Cache;
/// use wheelhouse_redis::{NearCache, OnDisconnect, Tracking};
///
/// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
/// let near = NearCache::<u64, String>::builder(redis::Client::open("redis://127.0.0.1/")?)
///     .local(Cache::builder().max_capacity(100_000).record_stats())
///     .local_ttl(Duration::from_secs(60))
///     .absent_ttl(Duration::from_secs(5))
///     .key_prefix("user:")
///     .tracking(Tracking::Broadcast { prefixes: vec!["user:".into()] })
///     .on_disconnect(OnDisconnect::ServeFor(Duration::from_secs(3)))
///     .connect()
///     .await?;
/// assert_eq!(near.get(&7).await?, None); // reads the server's key "user:7"
/// # Ok(())
/// # }
/// ```
#[must_use = "a builder does nothing until `connect` is called"]
pub struct NearCacheBuilder<K, V, C = DefaultCodec, S = RandomState> {
    connector: Connector,
    local: CacheBuilder<K, Cached<V>, S>,
    expiry: Box<dyn Expiry<K, Cached<V>>>,
    refresh: Option<Box<dyn Refresh<K, V>>>,
    codec: C,
    settings: Settings,
}

impl<K, V> NearCache<K, V> {
    /// Begins the settings of a near cache in front of one server.
    ///
    /// The connection uses RESP3, whatever protocol the client names.
    ///
    /// ```no_run
    /// # use wheelhouse_redis::{NearCache, NearError};
    /// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
    /// let server = redis::Client::open("redis://127.0.0.1/")?;
    /// let near = NearCache::<String, Vec<u32>>::builder(server).connect().await?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn builder(server: Client) -> NearCacheBuilder<K, V, DefaultCodec> {
        NearCacheBuilder::new(Connector::Server(server))
    }

    /// Begins the settings of a near cache in front of a cluster.
    ///
    /// One reachable node is enough to learn of the others. The near cache connects to every
    /// primary and turns tracking on at each; when the topology changes, or one connection is
    /// lost, it flushes and connects anew.
    ///
    /// ```no_run
    /// # use wheelhouse_redis::{NearCache, NearError};
    /// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
    /// let node = redis::Client::open("redis://127.0.0.1:7000/")?;
    /// let near = NearCache::<String, String>::cluster_builder([node]).connect().await?;
    /// # Ok(())
    /// # }
    /// ```
    #[cfg(feature = "cluster")]
    pub fn cluster_builder(
        nodes: impl IntoIterator<Item = Client>,
    ) -> NearCacheBuilder<K, V, DefaultCodec> {
        NearCacheBuilder::new(Connector::Cluster {
            seeds: nodes.into_iter().collect(),
            known: Vec::new(),
        })
    }

    /// Begins the settings of a near cache in front of the primary that sentinels watch.
    ///
    /// The host in the address of `primary` is the name by which the sentinels know it. Its user,
    /// password, database and TLS hold for whatever server they name. Each sentinel has its own
    /// client, with its own user and password. The sentinels that these name are asked, too. All
    /// are watched: when they name another server, the near cache flushes and connects anew.
    ///
    /// A provider of [`credentials`](NearCacheBuilder::credentials) serves the primary, and a
    /// sentinel that refuses what its client says.
    ///
    /// ```no_run
    /// use wheelhouse_redis::NearCache;
    /// use wheelhouse_redis::redis::Client;
    ///
    /// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
    /// let sentinels = [
    ///     Client::open("redis://10.0.0.1:26379/")?,
    ///     Client::open("redis://10.0.0.2:26379/")?,
    /// ];
    /// let primary = Client::open("redis://near:secret@mymaster/")?;
    /// let near = NearCache::<String, String>::sentinel_builder(sentinels, primary);
    /// let near = near.connect().await?;
    /// # Ok(())
    /// # }
    /// ```
    #[cfg(feature = "sentinel")]
    pub fn sentinel_builder(
        sentinels: impl IntoIterator<Item = Client>,
        primary: Client,
    ) -> NearCacheBuilder<K, V, DefaultCodec> {
        let sentinels = Sentinels::new(sentinels.into_iter().collect(), primary);
        NearCacheBuilder::new(Connector::Sentinel(sentinels))
    }
}

impl<K, V> NearCacheBuilder<K, V, DefaultCodec> {
    fn new(connector: Connector) -> Self {
        Self {
            connector,
            local: Cache::builder(),
            expiry: Box::new(expiry::never()),
            refresh: None,
            codec: DefaultCodec::default(),
            settings: Settings::default(),
        }
    }
}

impl<K, V, C, S> NearCacheBuilder<K, V, C, S> {
    /// Sets the local cache: capacity, weigher, listener, idle limit and all others.
    ///
    /// Its entries are [`Cached<V>`]. The near cache sets the builder's `expire_after`, since the
    /// server's deadlines must hold: give a policy of yours to
    /// [`expire_after`](Self::expire_after) here.
    ///
    /// Two settings weaken what the near cache guarantees. A `ticker` must run as real time does.
    /// With `Scheduler::disabled`, the default with a ticker of your own, a removal listener may be
    /// called on the task that reads the connection: while it blocks, the near cache learns of no
    /// change.
    ///
    /// ```
    /// use wheelhouse::Cache;
    /// use wheelhouse_redis::{NearCache, redis};
    ///
    /// # fn example() -> redis::RedisResult<()> {
    /// let server = redis::Client::open("redis://127.0.0.1/")?;
    /// let builder = NearCache::<u64, String>::builder(server)
    ///     .local(Cache::builder().max_capacity(100_000).record_stats());
    /// # drop(builder);
    /// # Ok(())
    /// # }
    /// # example().unwrap();
    /// ```
    pub fn local<H>(self, local: CacheBuilder<K, Cached<V>, H>) -> NearCacheBuilder<K, V, C, H> {
        NearCacheBuilder {
            connector: self.connector,
            local,
            expiry: self.expiry,
            refresh: self.refresh,
            codec: self.codec,
            settings: self.settings,
        }
    }

    /// Sets the longest time that an entry is kept, counted from when it was asked for. The
    /// server's deadline holds if it is earlier.
    ///
    /// ```
    /// use std::time::Duration;
    /// use wheelhouse_redis::{NearCache, redis};
    ///
    /// # fn example() -> redis::RedisResult<()> {
    /// let server = redis::Client::open("redis://127.0.0.1/")?;
    /// let builder = NearCache::<u64, String>::builder(server)
    ///     .local_ttl(Duration::from_secs(60));
    /// # drop(builder);
    /// # Ok(())
    /// # }
    /// # example().unwrap();
    /// ```
    pub fn local_ttl(mut self, ttl: Duration) -> Self {
        self.settings.local_ttl = ttl;
        self
    }

    /// Sets how long an absence is kept. The write that creates the key ends it earlier. Zero:
    /// never.
    ///
    /// ```
    /// use std::time::Duration;
    /// use wheelhouse_redis::{NearCache, redis};
    ///
    /// # fn example() -> redis::RedisResult<()> {
    /// let server = redis::Client::open("redis://127.0.0.1/")?;
    /// let builder = NearCache::<u64, String>::builder(server)
    ///     .absent_ttl(Duration::from_secs(5));
    /// # drop(builder);
    /// # Ok(())
    /// # }
    /// # example().unwrap();
    /// ```
    pub fn absent_ttl(mut self, ttl: Duration) -> Self {
        self.settings.absent_ttl = ttl;
        self
    }

    /// Sets the policy for the lifetimes of entries in memory. It can only shorten them:
    /// `local_ttl` and the server's deadline hold, too. It is asked for each value that comes from
    /// the server, as for a new entry. For a limit since the last read, give `local` an idle limit.
    ///
    /// ```
    /// use std::time::Duration;
    /// use wheelhouse::expiry;
    /// use wheelhouse_redis::Cached;
    /// use wheelhouse_redis::{NearCache, redis};
    ///
    /// # fn example() -> redis::RedisResult<()> {
    /// let server = redis::Client::open("redis://127.0.0.1/")?;
    /// let builder = NearCache::<u64, String>::builder(server)
    ///     .expire_after(expiry::writing(|_: &u64, cached: &Cached<String>| {
    ///         cached.is_absent().then_some(Duration::from_secs(1))
    ///     }));
    /// # drop(builder);
    /// # Ok(())
    /// # }
    /// # example().unwrap();
    /// ```
    pub fn expire_after(mut self, policy: impl Expiry<K, Cached<V>>) -> Self {
        self.expiry = Box::new(policy);
        self
    }

    /// Sets which keys the server tracks.
    ///
    /// ```
    /// use wheelhouse_redis::Tracking;
    /// use wheelhouse_redis::{NearCache, redis};
    ///
    /// # fn example() -> redis::RedisResult<()> {
    /// let server = redis::Client::open("redis://127.0.0.1/")?;
    /// let builder = NearCache::<u64, String>::builder(server)
    ///     .tracking(Tracking::Broadcast { prefixes: vec!["user:".into()] });
    /// # drop(builder);
    /// # Ok(())
    /// # }
    /// # example().unwrap();
    /// ```
    pub fn tracking(mut self, tracking: Tracking) -> Self {
        self.settings.tracking = tracking;
        self
    }

    /// Sets what is served while there is no connection.
    ///
    /// ```
    /// use std::time::Duration;
    /// use wheelhouse_redis::OnDisconnect;
    /// use wheelhouse_redis::{NearCache, redis};
    ///
    /// # fn example() -> redis::RedisResult<()> {
    /// let server = redis::Client::open("redis://127.0.0.1/")?;
    /// let builder = NearCache::<u64, String>::builder(server)
    ///     .on_disconnect(OnDisconnect::ServeFor(Duration::from_secs(3)));
    /// # drop(builder);
    /// # Ok(())
    /// # }
    /// # example().unwrap();
    /// ```
    pub fn on_disconnect(mut self, on_disconnect: OnDisconnect) -> Self {
        self.settings.on_disconnect = on_disconnect;
        self
    }

    /// Sets what the server's keys begin with, before the bytes of the key itself.
    ///
    /// ```
    /// use wheelhouse_redis::{NearCache, redis};
    ///
    /// # fn example() -> redis::RedisResult<()> {
    /// let server = redis::Client::open("redis://127.0.0.1/")?;
    /// let builder = NearCache::<u64, String>::builder(server)
    ///     .key_prefix("user:");
    /// # drop(builder);
    /// # Ok(())
    /// # }
    /// # example().unwrap();
    /// ```
    pub fn key_prefix(mut self, prefix: impl AsRef<[u8]>) -> Self {
        self.settings.key_prefix = prefix.as_ref().to_vec();
        self
    }

    /// Sets how values become bytes: [`codec::Json`](crate::codec), `Postcard`, `Bytes`, or your
    /// own.
    ///
    /// ```
    /// use wheelhouse_redis::codec;
    /// use wheelhouse_redis::{NearCache, redis};
    ///
    /// # fn example() -> redis::RedisResult<()> {
    /// let server = redis::Client::open("redis://127.0.0.1/")?;
    /// let builder = NearCache::<u64, String>::builder(server)
    ///     .codec(codec::Json);
    /// # drop(builder);
    /// # Ok(())
    /// # }
    /// # example().unwrap();
    /// ```
    pub fn codec<D: Codec<V>>(self, codec: D) -> NearCacheBuilder<K, V, D, S> {
        NearCacheBuilder {
            connector: self.connector,
            local: self.local,
            expiry: self.expiry,
            refresh: self.refresh,
            codec,
            settings: self.settings,
        }
    }

    /// Sets how long each step of an attempt to connect may take: the provider of `credentials`,
    /// the connection with its handshake, the first commands.
    ///
    /// ```
    /// use std::time::Duration;
    /// use wheelhouse_redis::{NearCache, redis};
    ///
    /// # fn example() -> redis::RedisResult<()> {
    /// let server = redis::Client::open("redis://127.0.0.1/")?;
    /// let builder = NearCache::<u64, String>::builder(server)
    ///     .connect_timeout(Duration::from_secs(5));
    /// # drop(builder);
    /// # Ok(())
    /// # }
    /// # example().unwrap();
    /// ```
    pub fn connect_timeout(mut self, limit: Duration) -> Self {
        self.settings.connect_timeout = limit;
        self
    }

    /// Sets how long a call may take in all: the wait for a connection, for another call's load of
    /// the same key, and for the reply. While the server cannot be reached, each call that needs it
    /// takes this long.
    ///
    /// ```
    /// use std::time::Duration;
    /// use wheelhouse_redis::{NearCache, redis};
    ///
    /// # fn example() -> redis::RedisResult<()> {
    /// let server = redis::Client::open("redis://127.0.0.1/")?;
    /// let builder = NearCache::<u64, String>::builder(server)
    ///     .request_timeout(Duration::from_millis(250));
    /// # drop(builder);
    /// # Ok(())
    /// # }
    /// # example().unwrap();
    /// ```
    pub fn request_timeout(mut self, limit: Duration) -> Self {
        self.settings.request_timeout = limit;
        self
    }

    /// Sets how often the near cache asks the server for a sign of life, and how long no byte may
    /// arrive after that. A connection that is silently dead is closed after at most twice this
    /// time. Until then, outdated entries may be served.
    ///
    /// A reply may take longer than this, as long as its bytes arrive. Over TLS the near cache does
    /// not see single bytes: there, this must be longer than the slowest reply takes.
    ///
    /// ```
    /// use std::time::Duration;
    /// use wheelhouse_redis::{NearCache, redis};
    ///
    /// # fn example() -> redis::RedisResult<()> {
    /// let server = redis::Client::open("redis://127.0.0.1/")?;
    /// let builder = NearCache::<u64, String>::builder(server)
    ///     .heartbeat(Duration::from_millis(500));
    /// # drop(builder);
    /// # Ok(())
    /// # }
    /// # example().unwrap();
    /// ```
    pub fn heartbeat(mut self, every: Duration) -> Self {
        self.settings.heartbeat = every;
        self
    }

    /// Sets after how many failed attempts to connect in a row calls that need the server fail at
    /// once, with a transient error, until an attempt succeeds. So do the calls after one that has
    /// waited for its whole `request_timeout`. `u32::MAX`: every call waits.
    ///
    /// ```
    /// use wheelhouse_redis::{NearCache, redis};
    ///
    /// # fn example() -> redis::RedisResult<()> {
    /// let server = redis::Client::open("redis://127.0.0.1/")?;
    /// let builder = NearCache::<u64, String>::builder(server)
    ///     .fail_fast_after(1);
    /// # drop(builder);
    /// # Ok(())
    /// # }
    /// # example().unwrap();
    /// ```
    pub fn fail_fast_after(mut self, attempts: u32) -> Self {
        self.settings.fail_fast_after = attempts;
        self
    }

    /// Sets a provider that is asked for the user and the password at each connection, in the place
    /// of those of the client. If the server refuses them, the provider is asked once more at once.
    ///
    /// ```
    /// use wheelhouse_redis::{Credentials, NearCache, redis};
    ///
    /// # fn example() -> redis::RedisResult<()> {
    /// let server = redis::Client::open("redis://127.0.0.1/")?;
    /// let builder = NearCache::<u64, String>::builder(server)
    ///     .credentials(|| async {
    ///         let secret = std::fs::read_to_string("/run/secrets/redis")?;
    ///         Ok(Credentials::new("near", secret.trim_end()))
    ///     });
    /// # drop(builder);
    /// # Ok(())
    /// # }
    /// # example().unwrap();
    /// ```
    pub fn credentials<F>(mut self, provider: impl Fn() -> F + Send + Sync + 'static) -> Self
    where
        F: Future<Output = Result<Credentials, BoxError>> + Send + 'static,
    {
        self.settings.credentials = Some(Provider::new(provider));
        self
    }

    /// Sets whether spans and events of requests name their key. Without this they do not.
    ///
    /// ```
    /// use wheelhouse_redis::{NearCache, redis};
    ///
    /// # fn example() -> redis::RedisResult<()> {
    /// let server = redis::Client::open("redis://127.0.0.1/")?;
    /// let builder = NearCache::<u64, String>::builder(server)
    ///     .trace_keys(true);
    /// # drop(builder);
    /// # Ok(())
    /// # }
    /// # example().unwrap();
    /// ```
    #[cfg(feature = "tracing")]
    pub fn trace_keys(mut self, keys: bool) -> Self {
        self.settings.trace_keys = keys;
        self
    }

    /// Sets how a load of `get_with` holds its key at the server: what the placeholder looks like,
    /// how long it lives without its process, how long calls wait for another process, or that
    /// there is none. A time alone is the life.
    ///
    /// The placeholder is written and removed by a script, so the user needs the right to `EVAL`.
    /// `connect` fails without it; unless `load_lock` was not called, then `get_with` does.
    ///
    /// ```
    /// use std::time::Duration;
    /// use wheelhouse_redis::{LoadLock, NearCache, redis};
    ///
    /// # fn example() -> redis::RedisResult<()> {
    /// let server = redis::Client::open("redis://127.0.0.1/")?;
    /// let builder = NearCache::<u64, String>::builder(server)
    ///     .load_lock(LoadLock::new(Duration::from_secs(2)).mark("!loading!"));
    /// # drop(builder);
    /// # Ok(())
    /// # }
    /// # example().unwrap();
    /// ```
    pub fn load_lock(mut self, lock: impl Into<LoadLock>) -> Self {
        self.settings.load_lock = lock.into();
        self.settings.load_lock_is_wanted = self.settings.load_lock.life().is_some();
        self
    }

    /// Lets `get_with` and `get_all_with` load from the source while the server is away. The value
    /// is written nowhere. It stays in memory for `life`, or until there is a connection again if
    /// that comes first: this process learns of no change meanwhile. Without this, the calls fail.
    ///
    /// ```
    /// use std::time::Duration;
    /// use wheelhouse_redis::{NearCache, redis};
    ///
    /// # fn example() -> redis::RedisResult<()> {
    /// let server = redis::Client::open("redis://127.0.0.1/")?;
    /// let builder = NearCache::<u64, String>::builder(server)
    ///     .load_when_away(Duration::from_secs(5));
    /// # drop(builder);
    /// # Ok(())
    /// # }
    /// # example().unwrap();
    /// ```
    pub fn load_when_away(mut self, life: Duration) -> Self {
        self.settings.load_when_away = Some(life);
        self
    }

    /// Sets from when on `get_with` loads a value anew, ahead of its deadline at the server: a
    /// policy of [`wheelhouse::refresh`]. [`early`](wheelhouse::refresh::early) has no effect here,
    /// since it needs to know how long loads take.
    ///
    /// One call of one process loads then, and waits for its load. All others get the old value,
    /// until the new one is there or the deadline has passed. If the load fails, its call gets the
    /// old value, too. The `load_lock` must be on. Its placeholder carries the old value meanwhile:
    /// near caches serve that, and other readers of the key find the mark. If the process dies
    /// while it loads, the old value ends with the life of the placeholder. A value without a
    /// deadline is never loaded anew.
    ///
    /// Lifetimes count from when this process has read the value: with `refresh::fraction(0.8)`, a
    /// value of which the server keeps 100 s more is loaded anew 80 s later.
    ///
    /// ```
    /// use wheelhouse::refresh;
    /// use wheelhouse_redis::{NearCache, redis};
    ///
    /// # fn example() -> redis::RedisResult<()> {
    /// let server = redis::Client::open("redis://127.0.0.1/")?;
    /// let builder = NearCache::<u64, String>::builder(server)
    ///     .refresh_after(refresh::jittered(refresh::fraction(0.8), 0.1));
    /// # drop(builder);
    /// # Ok(())
    /// # }
    /// # example().unwrap();
    /// ```
    pub fn refresh_after(mut self, policy: impl Refresh<K, V>) -> Self {
        self.refresh = Some(Box::new(policy));
        self
    }

    /// Sets by which share, at most, the life of each loaded value is shortened at random, so that
    /// values which were loaded together do not end together. A life that the load chooses itself,
    /// and one of `set`, is left as it is.
    ///
    /// ```
    /// use wheelhouse_redis::{NearCache, redis};
    ///
    /// # fn example() -> redis::RedisResult<()> {
    /// let server = redis::Client::open("redis://127.0.0.1/")?;
    /// let builder = NearCache::<u64, String>::builder(server)
    ///     .jitter(0.1);
    /// # drop(builder);
    /// # Ok(())
    /// # }
    /// # example().unwrap();
    /// ```
    pub fn jitter(mut self, fraction: f64) -> Self {
        self.settings.jitter = fraction;
        self
    }
}

impl<K, V, C, S> NearCacheBuilder<K, V, C, S>
where
    K: NearKey + Hash + Eq + Clone + Send + Sync + 'static,
    V: Clone + Send + Sync + 'static,
    C: Codec<V>,
    S: BuildHasher + Send + Sync + 'static,
{
    /// Connects to the server, turns tracking on and starts the task that keeps both up.
    ///
    /// # Errors
    ///
    /// [`NearError`], which says what to do: an invalid setting, a server that is not there or
    /// does not answer within `connect_timeout`, that does not speak RESP3, or that refuses
    /// tracking. Later losses of the connection are no errors of the near cache; it reconnects.
    ///
    /// The current tokio runtime keeps the connection, so it must run as long as the near cache is
    /// used: while no thread of it runs tasks, the near cache learns of no change.
    ///
    /// # Panics
    ///
    /// Outside of a tokio runtime with time and I/O enabled.
    pub async fn connect(self) -> Result<NearCache<K, V, S>, NearError> {
        let mut supervisor = self.supervisor()?;
        let first = supervisor.connect().await?;
        supervisor.shared.up(first.clone());
        Ok(run(supervisor, Some(first)))
    }

    /// Starts the near cache without waiting for a connection, so that a process may start while
    /// the server is away: see [`connect`](Self::connect). Until the first connection is made, the
    /// near cache is as after a loss.
    ///
    /// # Errors
    ///
    /// [`NearError::Config`]. A server that does not fit is an error of the later calls.
    ///
    /// # Panics
    ///
    /// Outside of a tokio runtime with time and I/O enabled.
    ///
    /// ```no_run
    /// # use wheelhouse_redis::{NearCache, NearError};
    /// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
    /// let server = redis::Client::open("redis://127.0.0.1/")?;
    /// let near = NearCache::<String, String>::builder(server).connect_lazy()?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn connect_lazy(self) -> Result<NearCache<K, V, S>, NearError> {
        Ok(run(self.supervisor()?, None))
    }

    /// A near cache that has no connection yet.
    fn supervisor(self) -> Result<Supervisor<K, V, S>, NearError> {
        self.settings.check().map_err(NearError::Config)?;
        let users = self.expiry;
        // What is left is read from the system's clock, whatever the cache's ticker is. The cache
        // counts it from the moment that it read just before it asked, so an entry never outlives
        // its deadline.
        let lifetime = move |key: &K, cached: &Cached<V>| {
            let now = Instant::now();
            let own = cached
                .until
                .map(|until| until.saturating_duration_since(now));
            match (own, users.expire_after_create(key, cached, now)) {
                (Some(own), Some(users)) => Some(own.min(users)),
                (own, users) => own.or(users),
            }
        };
        let local = self
            .local
            .expire_after(expiry::writing(lifetime))
            .try_build();
        let local = local.map_err(|error| NearError::Config(format!("local cache: {error}")))?;
        let codec = Box::new(self.codec);
        let shared = Shared::new(local, codec, self.refresh, self.settings);
        Ok(Supervisor::new(Arc::new(shared), self.connector))
    }
}

fn run<K: Key, V: Val, S: Hasher>(
    supervisor: Supervisor<K, V, S>,
    first: Option<Arc<Link>>,
) -> NearCache<K, V, S> {
    let shared = supervisor.shared.clone();
    let (ending, ended) = watch::channel(());
    tokio::spawn(async move {
        let _ending = ending;
        supervisor.run(first).await;
    });
    NearCache::new(shared, ended)
}

impl<K, V, C, S> fmt::Debug for NearCacheBuilder<K, V, C, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NearCacheBuilder")
            .field("tracking", &self.settings.tracking)
            .finish_non_exhaustive()
    }
}
