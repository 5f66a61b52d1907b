//! Why a load produced no value.

use std::fmt;
use std::sync::Arc;

/// Why there is no value.
///
/// ```
/// use wheelhouse::{Cache, LoadError, loader_fn};
///
/// let cache = Cache::builder().loading(loader_fn(|_: &u32| Err::<u32, _>("closed"))).build();
/// let error = cache.get(&1).unwrap_err();
/// assert!(matches!(&error, LoadError::Failed(reason) if **reason == "closed"));
/// assert_eq!(error.to_string(), "the loader failed: closed");
/// ```
#[derive(Debug, PartialEq, Eq)]
pub enum LoadError<E> {
    /// The loader returned this error. All calls that waited share it.
    Failed(Arc<E>),
    /// The loader panicked, or its task was dropped before it ended.
    Panicked,
    /// The load took longer than [`load_timeout`](crate::LoadingBuilder::load_timeout).
    TimedOut,
}

impl<E> LoadError<E> {
    /// Converts the answer of a loader; `None` if it panicked.
    pub(super) fn of<T>(made: Option<Result<T, E>>) -> Result<T, Self> {
        match made {
            Some(made) => made.map_err(|error| Self::Failed(Arc::new(error))),
            None => Err(Self::Panicked),
        }
    }
}

impl<E> Clone for LoadError<E> {
    fn clone(&self) -> Self {
        match self {
            Self::Failed(error) => Self::Failed(Arc::clone(error)),
            Self::Panicked => Self::Panicked,
            Self::TimedOut => Self::TimedOut,
        }
    }
}

impl<E: fmt::Display> fmt::Display for LoadError<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Failed(error) => write!(f, "the loader failed: {error}"),
            Self::Panicked => f.write_str("the loader panicked"),
            Self::TimedOut => f.write_str("the load took too long"),
        }
    }
}

impl<E: std::error::Error + 'static> std::error::Error for LoadError<E> {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Failed(error) => Some(&**error),
            Self::Panicked | Self::TimedOut => None,
        }
    }
}
