//! From settings to a connected near cache.

use crate::cached::{Cached, EntryDeadline};
use crate::codec::{Codec, DefaultCodec};
use crate::config::{OnDisconnect, Settings, Tracking};
use crate::connector::Connector;
use crate::error::NearError;
use crate::key::{KeySpace, NearKey};
use crate::near::NearCache;
use crate::shared::Shared;
use crate::supervisor::Supervisor;
use redis::Client;
use std::fmt;
use std::hash::{BuildHasher, Hash};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;
use wheelhouse::{Cache, CacheBuilder, Expiry, RandomState};

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
    servers: Vec<Client>,
    cluster: bool,
    local: CacheBuilder<K, Cached<V>, S>,
    expiry: Option<Box<dyn Expiry<K, Cached<V>>>>,
    key_prefix: Vec<u8>,
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
        NearCacheBuilder::new(vec![server], false)
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
        NearCacheBuilder::new(nodes.into_iter().collect(), true)
    }
}

impl<K, V> NearCacheBuilder<K, V, DefaultCodec> {
    fn new(servers: Vec<Client>, cluster: bool) -> Self {
        Self {
            servers,
            cluster,
            local: Cache::builder(),
            expiry: None,
            key_prefix: Vec::new(),
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
            servers: self.servers,
            cluster: self.cluster,
            local,
            expiry: self.expiry,
            key_prefix: self.key_prefix,
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
    /// `local_ttl` and the server's deadline hold, too.
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
        self.expiry = Some(Box::new(policy));
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
        self.key_prefix = prefix.as_ref().to_vec();
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
            servers: self.servers,
            cluster: self.cluster,
            local: self.local,
            expiry: self.expiry,
            key_prefix: self.key_prefix,
            codec,
            settings: self.settings,
        }
    }

    /// Sets how long one attempt to connect to a server may take, the handshake included.
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

    /// Sets how often the near cache asks the server for a sign of life, and how long the answer
    /// may take. A connection that is silently dead is closed after at most twice this time. Until
    /// then, outdated entries may be served.
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
    pub async fn connect(mut self) -> Result<NearCache<K, V, S>, NearError> {
        self.fill_prefixes();
        self.settings.validate()?;
        let connector = Connector::new(self.servers, self.cluster)?;
        let asks_reads = self.expiry.is_some();
        let deadlines = EntryDeadline { users: self.expiry };
        let local = if asks_reads {
            self.local.expire_after(deadlines)
        } else {
            // Only a policy of the user reacts to reads.
            self.local
                .expire_after(wheelhouse::expiry::writes_only(deadlines))
        };
        let local = local.try_build();
        let local = local.map_err(|error| NearError::Config(format!("local cache: {error}")))?;
        let shared = Arc::new(Shared::new(
            local,
            KeySpace::new(self.key_prefix),
            Box::new(self.codec),
            self.settings,
        ));
        let mut supervisor = Supervisor::new(shared.clone(), connector);
        let first = supervisor.connect().await?;
        let (ending, ended) = watch::channel(());
        shared.up(first.clone());
        tokio::spawn(async move {
            let _ending = ending;
            supervisor.run(first).await;
        });
        Ok(NearCache::new(shared, ended))
    }

    /// Broadcast tracking without prefixes covers the near cache's own keys.
    fn fill_prefixes(&mut self) {
        if let Tracking::Broadcast { prefixes } = &mut self.settings.tracking
            && prefixes.is_empty()
            && let Ok(prefix) = std::str::from_utf8(&self.key_prefix)
            && !prefix.is_empty()
        {
            prefixes.push(prefix.to_string());
        }
    }
}

impl<K, V, C, S> fmt::Debug for NearCacheBuilder<K, V, C, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let servers = self.servers.iter();
        let servers: Vec<_> = servers
            .map(|s| s.get_connection_info().addr().to_string())
            .collect();
        f.debug_struct("NearCacheBuilder")
            .field("servers", &servers)
            .field("settings", &self.settings)
            .finish_non_exhaustive()
    }
}
