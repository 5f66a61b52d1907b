//! Writes: to the server, never to the local cache.
//!
//! A write invalidates the key locally before it is sent and again when it has ended, however it
//! ends. A read that comes between the two may load the old or the new value; either the second
//! invalidation or the server's report revokes it. So after a write has returned, reads of this
//! process see it, or a later one.

use crate::error::NearError;
use crate::key::NearKey;
use crate::link::Link;
use crate::near::NearCache;
use crate::read::SERVER_PAUSE;
use crate::request::{RequestError, no_node, unexpected, unknown_node};
use crate::shared::Shared;
use redis::{Cmd, Value};
use std::borrow::Borrow;
use std::hash::{BuildHasher, Hash};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::{sleep, timeout};

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
    ///
    /// # Errors
    ///
    /// [`NearError`]; within `request_timeout` at the latest.
    /// [`Unconfirmed`](NearError::Unconfirmed): the write may have happened. With any other error
    /// it did not happen.
    ///
    /// ```no_run
    /// # use std::time::Duration;
    /// # use wheelhouse_redis::{NearCache, NearError};
    /// # async fn example(near: NearCache<String, String>) -> Result<(), NearError> {
    /// let (key, ada) = ("user:1".to_string(), "Ada".to_string());
    /// near.set(&key, &ada, Duration::from_secs(60)).await?;
    /// assert_eq!(near.get(&key).await?, Some(ada));
    /// near.set("user:2".to_string(), "Grace".to_string(), None).await?;
    /// # Ok(())
    /// # }
    /// ```
    pub async fn set(
        &self,
        key: impl Borrow<K>,
        value: impl Borrow<V>,
        ttl: impl Into<Option<Duration>>,
    ) -> Result<(), NearError> {
        let (key, ttl) = (key.borrow().clone(), ttl.into());
        let value = self.shared.codec.encode(value.borrow());
        let value = value.map_err(|error| NearError::Encode(Arc::from(error)))?;
        let bytes = self.shared.keys.bytes(&key);
        let mut cmd = redis::cmd("SET");
        cmd.arg(&bytes).arg(value);
        if let Some(ttl) = ttl {
            cmd.arg("PX").arg(whole_millis(ttl)?);
        }
        let ok = |reply: Value| match reply {
            Value::Okay => Ok(()),
            other => Err(unexpected("SET", &other)),
        };
        Box::pin(self.shared.write(&key, &bytes, &cmd, ok)).await
    }

    /// Deletes a key on the server. True if the server had it.
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
        let key = key.to_owned();
        let bytes = self.shared.keys.bytes(&key);
        let mut cmd = redis::cmd("DEL");
        cmd.arg(&bytes);
        let existed = |reply: Value| match reply {
            Value::Int(deleted) => Ok(deleted > 0),
            other => Err(unexpected("DEL", &other)),
        };
        Box::pin(self.shared.write(&key, &bytes, &cmd, existed)).await
    }
}

fn whole_millis(ttl: Duration) -> Result<u64, NearError> {
    if ttl.is_zero() {
        return Err(NearError::ZeroTtl);
    }
    let millis = ttl.as_nanos().div_ceil(1_000_000);
    // The server's own limit is below 2^63 ms after 1970.
    const MOST: u64 = 1 << 62;
    Ok(u64::try_from(millis).unwrap_or(MOST).min(MOST))
}

/// Invalidates the key when the write has ended: also when it failed or was cancelled.
struct InvalidateAtEnd<'a, K, V, S>(&'a Shared<K, V, S>, &'a K)
where
    K: NearKey + Hash + Eq + Clone + Send + Sync + 'static,
    V: Clone + Send + Sync + 'static,
    S: BuildHasher + Send + Sync + 'static;

impl<K, V, S> Drop for InvalidateAtEnd<'_, K, V, S>
where
    K: NearKey + Hash + Eq + Clone + Send + Sync + 'static,
    V: Clone + Send + Sync + 'static,
    S: BuildHasher + Send + Sync + 'static,
{
    fn drop(&mut self) {
        self.0.local.invalidate(self.1);
    }
}

impl<K, V, S> Shared<K, V, S>
where
    K: NearKey + Hash + Eq + Clone + Send + Sync + 'static,
    V: Clone + Send + Sync + 'static,
    S: BuildHasher + Send + Sync + 'static,
{
    async fn write<T>(
        &self,
        key: &K,
        bytes: &[u8],
        cmd: &Cmd,
        meaning: impl Fn(Value) -> Result<T, RequestError>,
    ) -> Result<T, NearError> {
        self.local.invalidate(key);
        let _at_end = InvalidateAtEnd(self, key);
        let mut sent = false;
        let limit = self.settings.request_timeout;
        let written = timeout(limit, self.write_once(bytes, cmd, &meaning, &mut sent)).await;
        written.unwrap_or_else(|_| {
            Err(if sent {
                let reason = format!("no reply within {limit:?}");
                NearError::Unconfirmed { reason }
            } else {
                self.timed_out()
            })
        })
    }

    /// Sends the command until a server has executed or refused it. A command that the server may
    /// have executed is not sent again.
    async fn write_once<T>(
        &self,
        bytes: &[u8],
        cmd: &Cmd,
        meaning: &impl Fn(Value) -> Result<T, RequestError>,
        sent: &mut bool,
    ) -> Result<T, NearError> {
        loop {
            let (_, link) = self.line.link().await?;
            let generation = link.generation();
            *sent = true;
            self.counters.write();
            let reply = tokio::select! {
                biased;
                reply = send(&link, bytes, cmd) => reply,
                () = self.line.left(generation) => {
                    let reason = "the connection was lost".into();
                    return Err(NearError::Unconfirmed { reason });
                }
            };
            match reply.and_then(meaning) {
                Ok(value) => return Ok(value),
                Err(RequestError::Failed(error)) => return Err(error),
                Err(RequestError::Lost(error) | RequestError::OutOfStep(error)) => {
                    let reason = error.to_string();
                    self.lost(generation, error);
                    return Err(NearError::Unconfirmed { reason });
                }
                // The server did not execute it.
                Err(RequestError::Moved(error)) => {
                    *sent = false;
                    self.lost(generation, error);
                }
                Err(RequestError::Ask(_)) => {
                    *sent = false;
                    sleep(SERVER_PAUSE).await;
                }
                Err(RequestError::Later(error)) => {
                    *sent = false;
                    self.set_fault(Some(error));
                    sleep(SERVER_PAUSE).await;
                }
            }
        }
    }
}

async fn send(link: &Link, bytes: &[u8], cmd: &Cmd) -> Result<Value, RequestError> {
    let node = link.node_of(bytes).and_then(|node| link.nodes().get(node));
    let mut connection = node.ok_or_else(no_node)?.connection.clone();
    let reply = connection.send_packed_command(cmd).await;
    let reply = reply.and_then(Value::extract_error);
    let reply = reply.map_err(|error| RequestError::of(error, link.is_cluster()));
    let Err(RequestError::Ask(address)) = &reply else {
        return reply;
    };
    // The key is on its way to another node, which executes the command if it is asked.
    let mut connection = link
        .node_at(address)
        .ok_or_else(|| unknown_node(address))?
        .connection
        .clone();
    let mut pipeline = redis::Pipeline::with_capacity(2);
    pipeline.cmd("ASKING").add_command(cmd.clone());
    let replies = connection.send_packed_commands(&pipeline, 0, 2).await;
    let last = replies.map(|mut replies| replies.pop().unwrap_or(Value::Nil));
    last.and_then(Value::extract_error)
        .map_err(|error| RequestError::of(error, true))
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
