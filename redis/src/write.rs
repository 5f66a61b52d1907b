//! Writes: to the server, never to the local cache.
//!
//! A write invalidates the key locally before it is sent and again when it has ended, however it
//! ends. A read that comes between the two may load the old or the new value; either the second
//! invalidation or the server's report revokes it. So after a write has returned, reads of this
//! process see it, or a later one.

use crate::error::NearError;
use crate::key::{Hasher, Key, NearKey, ToKey, Val};
use crate::link::Link;
use crate::near::NearCache;
use crate::placeholder;
use crate::request::{Okay, RequestError, Whole, no_node, typed};
use crate::shared::{Lazily, Shared};
use crate::trace;
use futures_util::{StreamExt, stream};
use redis::{Arg, Cmd, FromRedisValue};
use std::borrow::Borrow;
use std::collections::HashMap;
use std::hash::{BuildHasher, Hash};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};
use tokio::time::timeout;

/// How many writes of one call are under way at a time.
pub(crate) const WRITES_AT_ONCE: usize = 128;
/// From how many bytes on a write goes over a connection of its own.
const LARGE_WRITE: usize = 64 << 10;
/// For so long after a large write has failed, those of its key do not go over the main connection
/// while a second one is made.
const FAILED_LATELY: Duration = Duration::from_secs(60);

impl<K, V, S> NearCache<K, V, S>
where
    K: NearKey + Hash + Eq + Clone + Send + Sync + 'static,
    V: Clone + Send + Sync + 'static,
    S: BuildHasher + Send + Sync + 'static,
{
    /// Writes a value to the server, with a time to live or, with `None`, without a deadline.
    ///
    /// When it has returned, reads through this near cache see this value or a later one. The
    /// next read loads it from the server; a fraction of a millisecond in `ttl` is rounded up.
    /// Writes of one key that run at the same time have no order: await the first one.
    ///
    /// # Errors
    ///
    /// [`NearError`]; within `request_timeout` at the latest. For a value of 64 KiB or more that
    /// time begins with its turn: at most eight of those are written at a time.
    /// [`Unconfirmed`](NearError::Unconfirmed): the write may have happened. With any other error
    /// it did not happen.
    ///
    /// ```no_run
    /// # use std::time::Duration;
    /// # use wheelhouse_redis::{NearCache, NearError};
    /// # async fn example(near: NearCache<String, String>) -> Result<(), NearError> {
    /// let ada = "Ada".to_string();
    /// near.set("user:1", &ada, Duration::from_secs(60)).await?;
    /// assert_eq!(near.get("user:1").await?, Some(ada));
    /// near.set("user:2".to_string(), "Grace".to_string(), None).await?;
    /// # Ok(())
    /// # }
    /// ```
    pub async fn set(
        &self,
        key: impl ToKey<K>,
        value: impl Borrow<V>,
        ttl: impl Into<Option<Duration>>,
    ) -> Result<(), NearError> {
        let (key, ttl) = (key.to_key(), ttl.into());
        Box::pin(self.shared.set(&key, value.borrow(), ttl)).await
    }

    /// Writes these values to the server, all with the same time to live, and returns each one's
    /// own result, in their order. Of a key that is there more than once, the last value alone is
    /// written; its result stands for all.
    ///
    /// # Errors
    ///
    /// In each result as [`set`](Self::set). `request_timeout` holds for each write from the moment
    /// when it is sent; at most 128 are under way at a time.
    ///
    /// ```no_run
    /// # use std::time::Duration;
    /// # use wheelhouse_redis::{NearCache, NearError};
    /// # async fn example(near: NearCache<u64, String>) -> Result<(), NearError> {
    /// let names = [(1, "Ada".to_string()), (2, "Grace".to_string())];
    /// for written in near.set_all(names, Duration::from_secs(60)).await {
    ///     written?;
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub async fn set_all(
        &self,
        entries: impl IntoIterator<Item = (K, V)>,
        ttl: impl Into<Option<Duration>>,
    ) -> Vec<Result<(), NearError>> {
        let ttl = ttl.into();
        let entries = Vec::from_iter(entries);
        let mut last: HashMap<&K, &V> = entries.iter().map(|(key, value)| (key, value)).collect();
        let last = entries.iter().filter_map(|(key, _)| last.remove_entry(key));
        let set = async |(key, value)| (key, self.shared.set(key, value, ttl).await);
        let writes: Lazily<_> = Box::new(last.map(set));
        let writing = stream::iter(writes).buffer_unordered(WRITES_AT_ONCE);
        let written: HashMap<&K, _> = writing.collect().await;
        entries
            .iter()
            .map(|(key, _)| written[key].clone())
            .collect()
    }

    /// Deletes a key on the server. True if the server had it, or a placeholder of a load.
    ///
    /// # Errors
    ///
    /// As [`set`](Self::set).
    ///
    /// ```no_run
    /// # use wheelhouse_redis::{NearCache, NearError};
    /// # async fn example(near: NearCache<String, String>) -> Result<(), NearError> {
    /// let existed = near.delete("user:1").await?;
    /// assert_eq!(near.get("user:1").await?, None);
    /// # Ok(())
    /// # }
    /// ```
    pub async fn delete<Q>(&self, key: &Q) -> Result<bool, NearError>
    where
        Q: ToOwned<Owned = K> + ?Sized,
    {
        Box::pin(self.shared.delete(&key.to_owned())).await
    }

    /// Deletes these keys on the server, and returns each one's own result, in their order.
    ///
    /// # Errors
    ///
    /// As [`set_all`](Self::set_all).
    ///
    /// ```no_run
    /// # use wheelhouse_redis::{NearCache, NearError};
    /// # async fn example(near: NearCache<u64, String>) -> Result<(), NearError> {
    /// for existed in near.delete_all(1..=3).await {
    ///     println!("{}", existed?);
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub async fn delete_all(
        &self,
        keys: impl IntoIterator<Item = K>,
    ) -> Vec<Result<bool, NearError>> {
        let keys: Vec<K> = keys.into_iter().collect();
        let writes: Lazily<_> = Box::new(keys.iter().map(|key| self.shared.delete(key)));
        let writing = stream::iter(writes).buffered(WRITES_AT_ONCE);
        writing.collect().await
    }

    /// Gives a key a new time to live on the server. True if the server has the key, or a
    /// placeholder of a load.
    ///
    /// As after each write, the next read loads the entry from the server.
    ///
    /// # Errors
    ///
    /// As [`set`](Self::set).
    ///
    /// ```no_run
    /// # use std::time::Duration;
    /// # use wheelhouse_redis::{NearCache, NearError};
    /// # async fn example(near: NearCache<String, String>) -> Result<(), NearError> {
    /// let lives = near.touch("session:1", Duration::from_secs(1800)).await?;
    /// # Ok(())
    /// # }
    /// ```
    pub async fn touch<Q>(&self, key: &Q, ttl: Duration) -> Result<bool, NearError>
    where
        Q: ToOwned<Owned = K> + ?Sized,
    {
        let key = key.to_owned();
        let mut cmd = redis::cmd("PEXPIRE");
        cmd.arg(self.shared.settings.bytes_of(&key))
            .arg(whole_millis(ttl)?);
        let Whole(touched) = Box::pin(self.shared.write(&key, cmd)).await?;
        Ok(touched > 0)
    }

    /// Gives a key a new time to live on the server, and reads it there, in one round trip; `None`
    /// if the server has none.
    ///
    /// As after each write, the next read loads the entry from the server. A value that another
    /// client writes between the two steps has its own time to live.
    ///
    /// # Errors
    ///
    /// As [`set`](Self::set) and [`get`](Self::get). The key may have its new life then.
    ///
    /// ```no_run
    /// # use std::time::Duration;
    /// # use wheelhouse_redis::{NearCache, NearError};
    /// # async fn example(near: NearCache<String, String>) -> Result<(), NearError> {
    /// let session = near.get_and_touch("session:1", Duration::from_secs(1800)).await?;
    /// # Ok(())
    /// # }
    /// ```
    pub async fn get_and_touch<Q>(&self, key: &Q, ttl: Duration) -> Result<Option<V>, NearError>
    where
        Q: ToOwned<Owned = K> + ?Sized,
    {
        let key = key.to_owned();
        let (touched, found) = tokio::join!(self.touch(&key, ttl), self.refresh(&key));
        touched?;
        found
    }
}

pub(crate) fn whole_millis(ttl: Duration) -> Result<u64, NearError> {
    if ttl.is_zero() {
        return Err(NearError::ZeroTtl);
    }
    let millis = ttl.as_nanos().div_ceil(1_000_000);
    // The server's own limit is below 2^63 ms after 1970.
    const MOST: u64 = 1 << 62;
    Ok(u64::try_from(millis).unwrap_or(MOST).min(MOST))
}

/// Invalidates the key when the write has ended: also when it failed or was cancelled.
struct InvalidateAtEnd<'a, K: Key, V: Val, S: Hasher>(&'a Shared<K, V, S>, &'a K);

impl<K: Key, V: Val, S: Hasher> Drop for InvalidateAtEnd<'_, K, V, S> {
    fn drop(&mut self) {
        self.0.local.invalidate(self.1);
    }
}

impl<K: Key, V: Val, S: Hasher> Shared<K, V, S> {
    async fn set(&self, key: &K, value: &V, ttl: Option<Duration>) -> Result<(), NearError> {
        let mut cmd = redis::cmd("SET");
        cmd.arg(self.settings.bytes_of(key))
            .arg(self.encode_value(value)?);
        if let Some(ttl) = ttl {
            cmd.arg("PX").arg(whole_millis(ttl)?);
        }
        let Okay = self.overwrite(key, cmd).await?;
        Ok(())
    }

    /// The bytes of a value, which no placeholder has.
    pub(crate) fn encode_value(&self, value: &V) -> Result<Vec<u8>, NearError> {
        let encoded = match self.codec.encode(value) {
            Ok(bytes) if placeholder::split(&bytes, &self.settings.load_lock.mark).is_some() => {
                Err("its bytes begin with the mark of `load_lock`, which no value may".into())
            }
            encoded => encoded,
        };
        encoded.map_err(|error| NearError::Encode(Arc::from(error)))
    }

    async fn delete(&self, key: &K) -> Result<bool, NearError> {
        let cmd = Cmd::del(self.settings.bytes_of(key));
        let Whole(deleted) = self.overwrite(key, cmd).await?;
        Ok(deleted > 0)
    }

    /// A write of the user. Calls that come later do not join a load that has begun before.
    async fn overwrite<T: FromRedisValue>(&self, key: &K, cmd: Cmd) -> Result<T, NearError> {
        self.flights
            .invalidate(self.settings.bytes_of(key).as_slice());
        self.write(key, cmd).await
    }

    pub(crate) async fn write<T: FromRedisValue>(&self, key: &K, cmd: Cmd) -> Result<T, NearError> {
        self.local.invalidate(key);
        let _at_end = InvalidateAtEnd(self, key);
        self.write_in_time(&self.settings.bytes_of(key), &cmd).await
    }

    /// A write that leaves the local cache alone.
    pub(crate) async fn write_in_time<T: FromRedisValue>(
        &self,
        bytes: &[u8],
        cmd: &Cmd,
    ) -> Result<T, NearError> {
        let mut sent = false;
        let limit = self.settings.request_timeout;
        let (_turn, wait) = if length(cmd) >= LARGE_WRITE {
            let turn = self.turn_to_write().await?;
            let mut failed = self.failed_writes.lock().await;
            failed.retain(|_, at| at.elapsed() < FAILED_LATELY);
            // A call that waits in vain needs time for the main connection, which a write of this
            // key may have ended just before.
            let has_failed = failed.contains_key(bytes);
            let wait = if has_failed { limit } else { limit / 2 };
            (Some(turn), Some(wait))
        } else {
            (None, None)
        };
        let replied = match timeout(limit, self.write_once(bytes, cmd, wait, &mut sent)).await {
            Ok(replied) => replied,
            Err(_) if sent => Err(NearError::Unconfirmed {
                reason: format!("no reply within {limit:?}"),
            }),
            Err(_) => Err(self.timed_out()),
        };
        if wait.is_some() && !matches!(replied, Ok(_) | Err(NearError::TimedOut { .. })) {
            let mut failed = self.failed_writes.lock().await;
            failed.insert(bytes.to_vec(), Instant::now());
        }
        replied.map_err(|error| error.of_key(bytes))
    }

    /// Sends the command until a server has executed or refused it. A command that the server may
    /// have executed is not sent again. It waits so long for a second connection if it is large.
    async fn write_once<T: FromRedisValue>(
        &self,
        bytes: &[u8],
        cmd: &Cmd,
        wait: Option<Duration>,
        sent: &mut bool,
    ) -> Result<T, NearError> {
        loop {
            let (_, link) = self.link().await?;
            let generation = link.generation;
            let sending = self.send(&link, bytes, cmd, wait, sent);
            let reply = tokio::select! {
                biased;
                reply = trace::request(&self.settings, "write", bytes, sending) => reply,
                () = self.line.left(generation) => Err(RequestError::LostSecond),
            };
            let reason = match reply {
                Ok(value) => return Ok(value),
                Err(RequestError::Failed(error)) => return Err(error),
                Err(RequestError::Lost(error) | RequestError::OutOfStep(error)) => {
                    let reason = error.to_string();
                    self.lost(generation, error);
                    reason
                }
                Err(RequestError::LostSecond) => "the connection was lost".into(),
                Err(error) => {
                    // The server did not execute it.
                    *sent = false;
                    self.ready_again(generation, error).await;
                    continue;
                }
            };
            if *sent {
                return Err(NearError::Unconfirmed { reason });
            }
        }
    }

    /// Sends a command about the server's key `bytes`. Notes when it begins to be sent.
    async fn send<T: FromRedisValue>(
        &self,
        link: &Link,
        bytes: &[u8],
        cmd: &Cmd,
        wait: Option<Duration>,
        sent: &mut bool,
    ) -> Result<T, RequestError> {
        let cluster = link.is_cluster();
        let failed = |error| RequestError::of(error, cluster);
        let node = link.node_for(bytes).ok_or_else(no_node)?;
        // Requests of other keys would wait behind a large value.
        let mut lent = match wait {
            Some(wait) => Some(node.lend(wait).await.map_err(failed)?),
            None => None,
        };
        *sent = true;
        self.counters.write();
        let second = lent.as_ref().and_then(|lent| lent.connection.as_ref());
        let way = second.map_or(&node.main, |(second, _)| second);
        let reply = way.send_one(cmd).await.map_err(failed);
        if let Some(lent) = &mut lent {
            lent.is_answered = !matches!(reply, Err(RequestError::Lost(_)));
            if lent.is_answered {
                self.large_answers.fetch_add(1, Ordering::Relaxed);
            } else if lent.connection.is_some() {
                return Err(RequestError::LostSecond);
            }
        }
        let reply = match reply {
            Err(RequestError::Ask(address)) => link.send_asking(&address, cmd.clone()).await,
            reply => reply,
        };
        typed(Some(reply?), cluster)
    }
}

fn length(cmd: &Cmd) -> usize {
    let lengths = cmd.args_iter().map(|arg| match arg {
        Arg::Simple(bytes) => bytes.len(),
        _ => 0,
    });
    lengths.sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ttl_is_rounded_up_and_never_zero() {
        let millis = |ttl| whole_millis(ttl).unwrap();
        assert_eq!(millis(Duration::from_nanos(1)), 1);
        assert_eq!(millis(Duration::from_micros(1_001)), 2);
        assert_eq!(millis(Duration::from_secs(60)), 60_000);
        assert_eq!(millis(Duration::MAX), 1 << 62);
        assert!(matches!(
            whole_millis(Duration::ZERO),
            Err(NearError::ZeroTtl)
        ));
    }
}
