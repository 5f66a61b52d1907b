//! The handle.

use crate::cached::Cached;
use crate::shared::Shared;
use crate::stats::NearStats;
use std::fmt;
use std::hash::{BuildHasher, Hash};
use std::sync::Arc;
use tokio::sync::watch;
use tokio::time::timeout;
use wheelhouse::{Cache, RandomState};

/// A cache in this process in front of a Redis or Valkey server, which reports every change.
///
/// It is a handle: a clone shares everything and costs four reference counts. The near cache ends
/// with [`close`](Self::close), with its last handle, or with the tokio runtime on which it was
/// connected.
///
/// ```no_run
/// use std::time::Duration;
/// use wheelhouse::Cache;
/// use wheelhouse_redis::{NearCache, codec};
///
/// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
/// let server = redis::Client::open("redis://127.0.0.1/")?;
/// let near = NearCache::<String, String>::builder(server)
///     .local(Cache::builder().max_capacity(100_000))
///     .local_ttl(Duration::from_secs(300))
///     .codec(codec::Json)
///     .connect()
///     .await?;
/// near.set("greeting".to_string(), "hello".to_string(), None).await?;
/// assert_eq!(near.get("greeting").await?.as_deref(), Some("hello"));
/// near.close().await;
/// # Ok(())
/// # }
/// ```
pub struct NearCache<K, V, S = RandomState> {
    /// That of `shared`, so that a hit follows one pointer less. It is dropped before `shared`, so
    /// it is never the last handle of the cache.
    pub(crate) local: Cache<K, Cached<V>, S>,
    pub(crate) shared: Arc<Shared<K, V, S>>,
    closer: Arc<Closer<K, V, S>>,
}

/// Closes the line when the last handle is dropped.
struct Closer<K, V, S> {
    shared: Arc<Shared<K, V, S>>,
    /// Its sender is dropped when the supervisor has ended.
    ended: watch::Receiver<()>,
}

impl<K, V, S> Drop for Closer<K, V, S> {
    fn drop(&mut self) {
        self.shared.line.close();
    }
}

impl<K, V, S> Clone for NearCache<K, V, S> {
    fn clone(&self) -> Self {
        Self {
            local: self.local.clone(),
            shared: self.shared.clone(),
            closer: self.closer.clone(),
        }
    }
}

impl<K, V, S> NearCache<K, V, S> {
    /// Returns whether there is a connection to the server now.
    ///
    /// ```no_run
    /// # fn example(near: wheelhouse_redis::NearCache<String, String>) {
    /// if !near.is_connected() {
    ///     eprintln!("reads may fail now");
    /// }
    /// # }
    /// ```
    #[must_use]
    pub fn is_connected(&self) -> bool {
        self.shared.line.is_up()
    }

    /// Ends the near cache: no entry is served any more, the connection is closed.
    ///
    /// It waits until the entries have left memory, for `request_timeout` at most. Calls under way
    /// and later ones, on any handle, fail with [`NearError::Closed`](crate::NearError::Closed); a
    /// write that was sent, with [`Unconfirmed`](crate::NearError::Unconfirmed). A load goes on.
    /// Its call returns the value, which is kept nowhere, and its placeholder ends with its life.
    ///
    /// ```no_run
    /// # async fn example(near: wheelhouse_redis::NearCache<String, String>) {
    /// near.close().await;
    /// # }
    /// ```
    pub async fn close(&self) {
        self.shared.line.close();
        // It sends nothing: an error means that the supervisor has ended.
        let mut ended = self.closer.ended.clone();
        let _ = timeout(self.shared.settings.request_timeout, ended.changed()).await;
    }
}

impl<K, V, S> NearCache<K, V, S>
where
    K: Hash + Eq + Clone + Send + Sync + 'static,
    V: Clone + Send + Sync + 'static,
    S: BuildHasher + Send + Sync + 'static,
{
    pub(crate) fn new(shared: Arc<Shared<K, V, S>>, ended: watch::Receiver<()>) -> Self {
        let closer = Closer {
            shared: shared.clone(),
            ended,
        };
        Self {
            local: shared.local.clone(),
            shared,
            closer: Arc::new(closer),
        }
    }

    /// Returns the local cache, for its statistics, its capacity and the like.
    ///
    /// It may hold entries that are not served any more and wait to be removed. Removing entries
    /// is always safe. To insert one, or to change its deadline, is not: the near cache would serve
    /// what the server does not have any more.
    ///
    /// ```no_run
    /// # fn example(near: wheelhouse_redis::NearCache<String, String>) {
    /// println!("{} entries in memory", near.local().entry_count());
    /// # }
    /// ```
    pub fn local(&self) -> &Cache<K, Cached<V>, S> {
        &self.local
    }

    /// Returns what this near cache has done so far.
    ///
    /// ```no_run
    /// # fn example(near: wheelhouse_redis::NearCache<String, String>) {
    /// println!("{} connections lost", near.stats().lost_connections());
    /// # }
    /// ```
    pub fn stats(&self) -> NearStats {
        let (local, entries) = (self.local.stats(), self.local.entry_count());
        let counters = &self.shared.counters;
        counters.snapshot(local, self.is_connected(), entries)
    }
}

impl<K, V, S> fmt::Debug for NearCache<K, V, S> {
    /// Whether it is connected, never the entries.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NearCache")
            .field("connected", &self.is_connected())
            .finish_non_exhaustive()
    }
}
