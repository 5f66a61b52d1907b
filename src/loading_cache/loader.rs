//! Loaders, and their answers: what they make of a key, or why they make nothing.

use crate::compute::Keyless;
use crate::expiry::forward;
use crate::identity::{is_provided, note_provided};
use std::any::Any;
use std::convert::identity;
use std::error::Error;
use std::fmt;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

/// Makes the value of a key. For a loader that waits for futures see [`AsyncLoader`]; for a closure
/// [`loader_fn`](crate::loader_fn).
///
/// No lock of the cache is held while a method runs. At most one load of a key is current: a second
/// one runs only beside a load that a write has revoked, or that is overdue. A panic is a
/// [`LoadError::Panicked`].
///
/// ```
/// use wheelhouse::{Cache, Loaded, Loader};
///
/// struct Squares;
/// impl Loader<u64, u64> for Squares {
///     type Error = std::num::TryFromIntError;
///     fn load(&self, key: &u64) -> Result<Loaded<u64>, Self::Error> {
///         Ok(Loaded::new(u64::from(u32::try_from(*key)?).pow(2)))
///     }
/// }
///
/// let squares = Cache::builder().max_capacity(100).loading(Squares).build();
/// assert_eq!(squares.get(&12).unwrap(), 144);
/// assert!(squares.get(&u64::MAX).is_err());
/// ```
pub trait Loader<K, V>: Send + Sync + 'static {
    /// Why a load failed. Calls that waited for the load share it.
    type Error: Send + Sync + 'static;

    /// Makes the value of a key that is absent.
    ///
    /// # Errors
    ///
    /// If the load fails: nothing is stored. To cache that a key has no value, let `V` be an
    /// `Option`.
    fn load(&self, key: &K) -> Result<Loaded<V>, Self::Error>;

    /// Makes a new value for a key whose present value is `old`. By default [`load`](Self::load).
    ///
    /// # Errors
    ///
    /// If there is none: the old value stays until its deadline.
    #[allow(unused_variables, reason = "the names are documentation")]
    fn reload(&self, key: &K, old: &V) -> Result<Reloaded<V>, Self::Error> {
        self.load(key).map(Reloaded::New)
    }

    /// Makes the values of several keys, in their order; `None` for a key that has none. By default
    /// calls [`load`](Self::load) for each key, and ends with the first error.
    ///
    /// # Errors
    ///
    /// If it fails for all of them: then none is stored. If the vector has another number of values
    /// than there are keys, `get_all` panics.
    ///
    /// ```
    /// use wheelhouse::{Cache, Loaded, Loader};
    ///
    /// struct Squares;
    /// impl Loader<u64, u64> for Squares {
    ///     type Error = ();
    ///     fn load(&self, key: &u64) -> Result<Loaded<u64>, ()> {
    ///         Ok(Loaded::new(key * key))
    ///     }
    ///     fn load_many(&self, keys: &[u64]) -> Result<Vec<Option<Loaded<u64>>>, ()> {
    ///         Ok(keys.iter().map(|key| Some(Loaded::new(key * key))).collect()) // one query, say
    ///     }
    /// }
    ///
    /// let squares = Cache::builder().loading(Squares).build();
    /// assert_eq!(squares.get_all([2, 3]).unwrap(), [Some(4), Some(9)]);
    /// ```
    fn load_many(&self, keys: &[K]) -> Result<Vec<Option<Loaded<V>>>, Self::Error> {
        keys.iter().map(|key| self.load(key).map(Some)).collect()
    }

    /// How long a failure holds: after a reload, until the next try; after the load of an absent
    /// key, for how long calls get the error. `None`, the default, leaves that to
    /// [`refresh_after_failure`](crate::Refresh::refresh_after_failure), or to
    /// [`failure_backoff`](crate::LoadingBuilder::failure_backoff). `failures` counts failures in a
    /// row, from 1 on. If it panics, they decide as well.
    ///
    /// ```
    /// use std::time::Duration;
    /// use wheelhouse::{Cache, Loaded, LoadError, Loader, ManualTicker};
    ///
    /// /// What a server answers that is too busy, with its `Retry-After`.
    /// struct Busy(Duration);
    /// struct Pages;
    /// impl Loader<u32, u32> for Pages {
    ///     type Error = Busy;
    ///     fn load(&self, _: &u32) -> Result<Loaded<u32>, Busy> {
    ///         Err(Busy(Duration::from_secs(30)))
    ///     }
    ///     fn retry_after(&self, error: &Busy, _failures: u32) -> Option<Duration> {
    ///         Some(error.0)
    ///     }
    /// }
    ///
    /// let time = ManualTicker::new();
    /// let pages = Cache::builder().ticker(time.clone()).record_stats().loading(Pages).build();
    /// for _ in 0..10 {
    ///     assert!(matches!(pages.get(&1), Err(LoadError::Failed(_))));
    /// }
    /// assert_eq!(pages.cache().stats().loads(), 1);
    /// time.advance(Duration::from_secs(30));
    /// assert!(pages.get(&1).is_err());
    /// assert_eq!(pages.cache().stats().loads(), 2);
    /// ```
    #[allow(unused_variables, reason = "the names are documentation")]
    fn retry_after(&self, error: &Self::Error, failures: u32) -> Option<Duration> {
        note_provided::<Self, (K, V)>();
        None
    }

    /// Private to this crate: whether [`retry_after`](Self::retry_after), which this thread has
    /// just called, may want to know how many failures there were.
    #[doc(hidden)]
    fn __counts_failures(&self) -> bool {
        !is_provided::<Self, (K, V)>()
    }
}

/// Forwards every method of [`Loader`] to the loader behind a pointer.
macro_rules! forward_pointer {
    ($pointer:ident) => {
        impl<K, V, L: Loader<K, V> + ?Sized> Loader<K, V> for $pointer<L> {
            type Error = L::Error;

            forward! {
                self => **self, identity;
                fn load(key: &K) -> Result<Loaded<V>, L::Error>;
                fn reload(key: &K, old: &V) -> Result<Reloaded<V>, L::Error>;
                fn load_many(keys: &[K]) -> Result<Vec<Option<Loaded<V>>>, L::Error>;
                fn retry_after(error: &L::Error, failures: u32) -> Option<Duration>;
                fn __counts_failures() -> bool;
            }
        }
    };
}

forward_pointer!(Arc);
forward_pointer!(Box);

/// Makes the values of keys by futures, as [`Loader`] does without them. For a closure see
/// [`async_loader_fn`](crate::async_loader_fn).
///
/// Each load is a task of the [`spawner`](crate::LoadingBuilder::spawner). A future that awaits the
/// load of its own key fails as a panic does; two that await each other's keys wait for ever, or
/// until [`load_timeout`](crate::LoadingBuilder::load_timeout).
///
/// ```
/// use wheelhouse::{AsyncLoader, Cache, Loaded};
///
/// struct Squares;
/// impl AsyncLoader<u64, u64> for Squares {
///     type Error = ();
///     async fn load(&self, key: &u64) -> Result<Loaded<u64>, ()> {
///         Ok(Loaded::new(key * key))
///     }
/// }
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() {
/// let squares = Cache::builder()
///     .max_capacity(100)
///     .loading(Squares)
///     .spawner(|task| { tokio::spawn(task); })
///     .build();
/// assert_eq!(squares.get_async(&12).await.unwrap(), 144);
/// # }
/// ```
pub trait AsyncLoader<K, V>: Send + Sync + 'static
where
    K: Send + Sync,
    V: Send + Sync,
{
    /// Why a load failed. Calls that waited for the load share it.
    type Error: Send + Sync + 'static;

    /// Makes the value of a key that is absent.
    ///
    /// # Errors
    ///
    /// If the load fails: nothing is stored.
    fn load(&self, key: &K) -> impl Future<Output = Result<Loaded<V>, Self::Error>> + Send;

    /// Makes a new value for a key whose present value is `old`. By default [`load`](Self::load).
    ///
    /// # Errors
    ///
    /// If there is none: the old value stays until its deadline.
    #[allow(unused_variables, reason = "the names are documentation")]
    fn reload(
        &self,
        key: &K,
        old: &V,
    ) -> impl Future<Output = Result<Reloaded<V>, Self::Error>> + Send {
        async move { self.load(key).await.map(Reloaded::New) }
    }

    /// Makes the values of several keys, in their order; `None` for a key that has none. By default
    /// calls [`load`](Self::load) for each key, and ends with the first error.
    ///
    /// # Errors
    ///
    /// If it fails for all of them: then none is stored. If the vector has another number of values
    /// than there are keys, `get_all` panics.
    fn load_many(
        &self,
        keys: &[K],
    ) -> impl Future<Output = Result<Vec<Option<Loaded<V>>>, Self::Error>> + Send {
        async move {
            let mut values = Vec::with_capacity(keys.len());
            for key in keys {
                values.push(Some(self.load(key).await?));
            }
            Ok(values)
        }
    }

    /// Says how long a failure holds: see [`Loader::retry_after`], which has an example.
    #[allow(unused_variables, reason = "the names are documentation")]
    fn retry_after(&self, error: &Self::Error, failures: u32) -> Option<Duration> {
        note_provided::<Self, (K, V, ())>();
        None
    }

    /// Private to this crate: see [`Loader`].
    #[doc(hidden)]
    fn __counts_failures(&self) -> bool {
        !is_provided::<Self, (K, V, ())>()
    }
}

impl<K, V, L> AsyncLoader<K, V> for Arc<L>
where
    K: Send + Sync,
    V: Send + Sync,
    L: AsyncLoader<K, V>,
{
    type Error = L::Error;

    forward! {
        self => **self, identity;
        fn load(key: &K) -> impl Future<Output = Result<Loaded<V>, L::Error>> + Send;
        fn reload(key: &K, old: &V) -> impl Future<Output = Result<Reloaded<V>, L::Error>> + Send;
        fn load_many(keys: &[K])
            -> impl Future<Output = Result<Vec<Option<Loaded<V>>>, L::Error>> + Send;
        fn retry_after(error: &L::Error, failures: u32) -> Option<Duration>;
        fn __counts_failures() -> bool;
    }
}

/// A value from a loader, with what the loader knows about its lifetime.
///
/// The cache's policies decide the rest.
///
/// ```
/// use std::time::Duration;
/// use wheelhouse::Loaded;
///
/// let record = Loaded::new("192.0.2.1").expires_in(Duration::from_secs(300));
/// let record = record.refresh_in(Duration::from_secs(240));
/// let plain: Loaded<&str> = "192.0.2.1".into();
/// # _ = (record, plain);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Loaded<V> {
    pub(super) value: V,
    pub(super) lifetime: Option<Option<Duration>>,
    pub(super) refresh: Option<Duration>,
}

impl<V> Loaded<V> {
    /// Makes a result whose lifetime and reload are left to the cache's policies.
    ///
    /// ```
    /// let loaded = wheelhouse::Loaded::new(1815);
    /// assert_eq!(loaded, 1815.into());
    /// ```
    pub fn new(value: V) -> Self {
        Self {
            value,
            lifetime: None,
            refresh: None,
        }
    }

    /// Sets the value's lifetime, in place of the expiry policy's answer. The limits of the cache
    /// (`time_to_live`, `time_to_idle`) hold beside it. With zero, the calls that wait for this
    /// load get the value, and no later call finds it.
    ///
    /// ```
    /// use std::time::Duration;
    /// use wheelhouse::{Cache, Loaded, LoadingCache, loader_fn};
    ///
    /// let minute = Duration::from_secs(60);
    /// let load = loader_fn(move |key: &u32| Ok::<_, ()>(Loaded::new(key * 2).expires_in(minute)));
    /// let cache: LoadingCache<u32, u32, ()> = Cache::builder().loading(load).build();
    /// cache.get(&4).unwrap();
    /// assert!(cache.cache().peek_ref(&4).unwrap().time_left().unwrap() <= minute);
    /// ```
    #[must_use]
    pub fn expires_in(mut self, lifetime: Duration) -> Self {
        self.lifetime = Some(Some(lifetime));
        self
    }

    /// Sets when the value is reloaded, in place of the answer of
    /// [`refresh_after`](crate::LoadingBuilder::refresh_after).
    ///
    /// ```
    /// use std::time::Duration;
    /// let loaded = wheelhouse::Loaded::new(1815).refresh_in(Duration::from_secs(60));
    /// # _ = loaded;
    /// ```
    #[must_use]
    pub fn refresh_in(mut self, time: Duration) -> Self {
        self.refresh = Some(time);
        self
    }

    /// Gives the value no deadline of its own, whatever the expiry policy would say.
    ///
    /// ```
    /// let loaded = wheelhouse::Loaded::new(1815).never_expires();
    /// # _ = loaded;
    /// ```
    #[must_use]
    pub fn never_expires(mut self) -> Self {
        self.lifetime = Some(None);
        self
    }

    pub(super) fn reply(self) -> Reply<V> {
        Some(Loaded {
            value: Some(Keyless::made(self.value)),
            lifetime: self.lifetime,
            refresh: self.refresh,
        })
    }
}

impl<V> From<V> for Loaded<V> {
    fn from(value: V) -> Self {
        Self::new(value)
    }
}

/// The answer of a reload. There will be no other answers: a `match` needs no `_`.
///
/// ```
/// use wheelhouse::{Cache, Loaded, Loader, Reloaded};
///
/// struct Pages;
/// impl Loader<String, u32> for Pages {
///     type Error = ();
///     fn load(&self, _: &String) -> Result<Loaded<u32>, ()> {
///         Ok(1.into())
///     }
///     fn reload(&self, _: &String, _old: &u32) -> Result<Reloaded<u32>, ()> {
///         Ok(Reloaded::Unchanged) // 304 Not Modified
///     }
/// }
/// # _ = Cache::builder().loading(Pages).build();
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reloaded<V> {
    /// A new value, which takes the place of the old one.
    New(Loaded<V>),
    /// The old value is still right, as after a 304 of HTTP: its deadlines move as an update moves
    /// them. On a cache without an expiry policy it has the lifetime of its last load again, from
    /// now on. The refresh policy says when it is stale; a [`Loaded::refresh_in`] of the last load
    /// holds no more.
    Unchanged,
    /// The old value is still right for these times; `None` means: as for
    /// [`Unchanged`](Self::Unchanged).
    UnchangedFor {
        /// Its lifetime from now on.
        expires_in: Option<Duration>,
        /// When it is to be reloaded.
        refresh_in: Option<Duration>,
    },
    /// The key has no value any more: the entry is removed.
    Gone,
}

/// What a loader makes of a key: `None` if the key has no value, and without a value inside if the
/// old one is still right. A value is in a box, as it may be large, and passes through several
/// futures.
pub(super) type Reply<V> = Option<Loaded<Option<Box<Keyless<V>>>>>;

impl<V> Reloaded<V> {
    pub(super) fn reply(self) -> Reply<V> {
        match self {
            Self::New(loaded) => loaded.reply(),
            Self::Unchanged => Some(Loaded::new(None)),
            Self::UnchangedFor {
                expires_in,
                refresh_in,
            } => Some(Loaded {
                value: None,
                lifetime: expires_in.map(Some),
                refresh: refresh_in,
            }),
            Self::Gone => None,
        }
    }
}

/// Why a call of a [`LoadingCache`](crate::LoadingCache) has no value.
///
/// ```
/// use wheelhouse::{Cache, LoadError, loader_fn};
///
/// let cache = Cache::builder().loading(loader_fn(|_: &u32| Err::<u32, _>("closed"))).build();
/// let error = cache.get(&1).unwrap_err();
/// assert!(matches!(&error, LoadError::Failed(reason) if **reason == "closed"));
/// assert_eq!(error.to_string(), "the loader failed: closed");
/// ```
///
/// It is an [`Error`] for each `E` that is `Debug` and `Display`, so that `?`
/// works also with a boxed error. Its text ends with that of the loader's error. That error itself
/// is in [`Failed`](LoadError::Failed); `source` returns it if it is boxed:
///
/// ```
/// use std::error::Error;
/// use wheelhouse::{Cache, loader_fn};
///
/// type BoxError = Box<dyn Error + Send + Sync>;
///
/// fn port() -> Result<u16, BoxError> {
///     let load = loader_fn(|name: &&str| -> Result<u16, BoxError> { Ok(name.parse()?) });
///     let ports = Cache::builder().loading(load).build();
///     Ok(ports.get(&"http")?)
/// }
/// assert!(port().unwrap_err().source().unwrap().is::<std::num::ParseIntError>());
/// ```
#[derive(Debug, PartialEq, Eq)]
pub enum LoadError<E> {
    /// The loader returned this error. All calls that waited share it.
    Failed(Arc<E>),
    /// The loader panicked; in a reload or in a load that is a task, also other user code that it
    /// runs, such as the expiry policy. (A [`Loader`] runs on the calling thread: such a panic
    /// reaches the caller.)
    Panicked,
    /// The load took longer than [`load_timeout`](crate::LoadingBuilder::load_timeout).
    TimedOut,
    /// Nothing ran the load to its end. Its task was dropped, as by a runtime that has ended, the
    /// spawner panicked, no thread could be started, or the cache was dropped.
    Abandoned,
}

impl<E> Clone for LoadError<E> {
    fn clone(&self) -> Self {
        match self {
            Self::Failed(error) => Self::Failed(Arc::clone(error)),
            Self::Panicked => Self::Panicked,
            Self::TimedOut => Self::TimedOut,
            Self::Abandoned => Self::Abandoned,
        }
    }
}

impl<E: fmt::Display> fmt::Display for LoadError<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Failed(error) => write!(f, "the loader failed: {error}"),
            Self::Panicked => f.write_str("the loader panicked"),
            Self::TimedOut => f.write_str("the load took too long"),
            Self::Abandoned => f.write_str("the load was abandoned before its end"),
        }
    }
}

impl<E: fmt::Debug + fmt::Display + 'static> Error for LoadError<E> {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        let Self::Failed(error) = self else {
            return None;
        };
        let error: &dyn Any = &**error;
        let boxed = error.downcast_ref::<Box<dyn Error + Send + Sync>>()?;
        Some(&**boxed)
    }
}
