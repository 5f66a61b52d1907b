//! The value that the local cache stores for a key.

use crate::error::NearError;
use std::fmt;
use std::sync::Arc;
use std::time::Instant;

/// An entry of the local cache: a value, or the knowledge that the server has none.
///
/// Weighers and removal listeners of the local cache see this type.
///
/// ```
/// use wheelhouse::Cache;
/// use wheelhouse_redis::Cached;
///
/// let local = Cache::<String, Cached<String>>::builder()
///     .max_capacity(1 << 20)
///     .weigher(|key, cached| {
///         (key.len() + cached.value().map_or(0, String::len)).try_into().unwrap_or(u32::MAX)
///     });
/// # drop(local);
/// ```
#[derive(Clone)]
pub struct Cached<V> {
    pub(crate) content: Content<V>,
    pub(crate) stamp: u64,
    pub(crate) until: Option<Instant>,
    /// The moment from which `get_with` loads the value anew.
    pub(crate) stale_from: Option<Instant>,
}

/// The result of a load.
#[derive(Clone)]
pub(crate) enum Content<V> {
    Value(V),
    Absent,
    /// The server has no value, but this placeholder, until this moment: a process loads one.
    Loading(Box<(Arc<[u8]>, Option<Instant>)>),
    /// For the waiters of the load alone: it is never stored.
    Failed(Box<NearError>),
}

impl<V> Cached<V> {
    /// What to serve to calls that accept `stamp`; `until` is `None` for no deadline of its own.
    pub(crate) fn new(content: Content<V>, stamp: u64, until: Option<Instant>) -> Self {
        Self {
            content,
            stamp,
            until,
            stale_from: None,
        }
    }

    /// The outcome of a load that has failed, for its waiters alone.
    pub(crate) fn failed(error: NearError, stamp: u64) -> Self {
        let content = Content::Failed(Box::new(error));
        Self::new(content, stamp, Some(Instant::now()))
    }

    /// Returns the value; `None` if the server had none.
    ///
    /// ```
    /// # use wheelhouse_redis::Cached;
    /// fn weight(_: &String, cached: &Cached<String>) -> u32 {
    ///     cached.value().map_or(1, |text| text.len().try_into().unwrap_or(u32::MAX))
    /// }
    /// # let _ = weight;
    /// ```
    pub fn value(&self) -> Option<&V> {
        match &self.content {
            Content::Value(value) => Some(value),
            Content::Absent | Content::Loading(..) | Content::Failed(_) => None,
        }
    }

    /// Returns whether the server had no value for the key.
    ///
    /// ```
    /// # use wheelhouse_redis::Cached;
    /// fn log(key: &String, cached: &Cached<String>, _: wheelhouse::RemovalCause) {
    ///     println!("{key} left, {}", if cached.is_absent() { "an absence" } else { "a value" });
    /// }
    /// # let _ = log;
    /// ```
    pub fn is_absent(&self) -> bool {
        matches!(self.content, Content::Absent | Content::Loading(..))
    }

    pub(crate) fn into_result(self) -> Result<Option<V>, NearError> {
        match self.content {
            Content::Value(value) => Ok(Some(value)),
            Content::Absent | Content::Loading(..) => Ok(None),
            Content::Failed(error) => Err(*error),
        }
    }
}

impl<V> fmt::Debug for Cached<V> {
    /// Whether there is a value, never the value.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let content = match &self.content {
            Content::Value(_) => "value",
            Content::Absent => "absent",
            Content::Loading(..) => "loading",
            Content::Failed(_) => "failed",
        };
        f.debug_tuple("Cached").field(&content).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_is_small() {
        assert!(size_of::<Cached<Arc<[u8]>>>() <= 64);
    }
}
