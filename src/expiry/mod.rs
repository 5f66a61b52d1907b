//! Per-entry expiry: the [`Expiry`] trait, and ready policies for the common cases.
//!
//! | policy | asked on create | on update | on read |
//! |---|---|---|---|
//! | [`creating(f)`](creating) | yes | keeps the deadline | keeps the deadline |
//! | [`writing(f)`](writing) | yes | yes | keeps the deadline |
//! | [`accessing(f)`](accessing) | yes | yes | yes |
//! | [`never()`](fn@never) | never expires | keeps the deadline | keeps the deadline |
//! | [`jittered(policy, fraction)`](jittered) | as `policy`, shortened at random | likewise | likewise |
//!
//! For one lifetime that holds for all entries, `time_to_live` and `time_to_idle` of the builder
//! are simpler.

mod ready;

use std::sync::Arc;
use std::time::{Duration, Instant};

pub(crate) use ready::random_unit;
pub use ready::{
    Accessing, Creating, Jittered, Never, Writing, accessing, creating, jittered, never, writing,
};

/// Decides for each entry how long it lives.
///
/// Give an implementation to the builder with `expire_after`. The cache asks it when an entry is
/// created, when its value is replaced, and when it is read; each answer is the lifetime from that
/// moment on. All methods have defaults: together they mean an entry that never expires.
///
/// # Answers
///
/// - `None`: the entry never expires.
/// - `Some(d)`: the deadline is `d` after now. At exactly its deadline the entry is expired.
/// - `Some(Duration::ZERO)`: due at once. The entry is stored but never visible, and leaves with
///   the cause `Expired`.
/// - A `d` above 2^62 ns (146 years) counts as 2^62 ns. Nothing overflows.
/// - `duration_until_expiry`, returned as it came: the deadline stays exactly where it is, without
///   drift and without a write to shared memory.
///
/// "Now" is read after the method has returned, so the time that it takes does not shorten the life
/// of the entry. With `time_to_live` or `time_to_idle` on the same cache, the earliest of the
/// deadlines holds, and `duration_until_expiry` is what is left until that one. Returned as it
/// came, it leaves the deadline that the policy itself gave.
///
/// # Who calls, and when
///
/// The thread that called the cache, within that call. No lock of the cache is held meanwhile, so a
/// method may call the cache, also for the same key. It may be called from many threads at once,
/// and more than once for a call that has to start over because another thread changed the entry
/// meanwhile: so the answer should depend on the arguments, and side effects do not belong here.
///
/// | operation | key absent | key present | expired but still stored |
/// |---|---|---|---|
/// | `insert` | [`expire_after_create`](Self::expire_after_create) | [`expire_after_update`](Self::expire_after_update), with the new value | [`expire_after_create`](Self::expire_after_create) |
/// | `get`, `get_many`, `get_ref` | – | [`expire_after_read`](Self::expire_after_read) | –, it is a miss |
/// | `insert_with_ttl`, `set_expiry` | – | – | – |
/// | `peek_ref`, `contains_key`, `iter`, `retain`, `invalidate`, `remove` | – | – | – |
///
/// # Time
///
/// The [`Instant`]s are computed from the ticker of the cache: the difference between two of them
/// is time of that ticker. Under a `ManualTicker` they bear no relation to [`Instant::now`].
///
/// # Panics
///
/// A panic in a method reaches the caller of the cache. The cache is then as if the call had not
/// been made: an absent key stays absent, a present one keeps its value and its deadline. No lock
/// stays held, and later calls work.
///
/// # Examples
///
/// A session lives 30 minutes from its last use, a guest's session 5 minutes from its creation:
///
/// ```
/// use std::time::{Duration, Instant};
/// use wheelhouse::{Cache, Expiry, ManualTicker};
///
/// #[derive(Clone)]
/// struct Session {
///     guest: bool,
/// }
///
/// struct SessionExpiry;
///
/// const MINUTE: Duration = Duration::from_secs(60);
///
/// impl Expiry<u32, Session> for SessionExpiry {
///     fn expire_after_create(&self, _: &u32, session: &Session, _: Instant) -> Option<Duration> {
///         Some(if session.guest { 5 * MINUTE } else { 30 * MINUTE })
///     }
///
///     fn expire_after_read(
///         &self,
///         _: &u32,
///         session: &Session,
///         _read_at: Instant,
///         duration_until_expiry: Option<Duration>,
///         _last_modified_at: Instant,
///     ) -> Option<Duration> {
///         if session.guest { duration_until_expiry } else { Some(30 * MINUTE) }
///     }
/// }
///
/// let time = ManualTicker::new();
/// let cache = Cache::builder().ticker(time.clone()).expire_after(SessionExpiry).build();
/// cache.insert(1, Session { guest: true });
/// cache.insert(2, Session { guest: false });
///
/// time.advance(4 * MINUTE);
/// assert!(cache.get(&1).is_some() && cache.get(&2).is_some());
/// time.advance(29 * MINUTE);
/// assert!(cache.get(&1).is_none() && cache.get(&2).is_some());
/// ```
pub trait Expiry<K, V>: Send + Sync + 'static {
    /// Returns the lifetime of a new entry; by default `None`, so that it never expires.
    ///
    /// Called by `insert` for a key that is absent, or whose entry is past its deadline.
    /// `created_at` is the time of the call. For the meaning of the answer and of a panic see [the
    /// trait](Self#answers).
    ///
    /// # Cost
    ///
    /// Part of each creating `insert`; runs on the caller's thread with no lock held.
    #[allow(unused_variables, reason = "the names are documentation")]
    fn expire_after_create(&self, key: &K, value: &V, created_at: Instant) -> Option<Duration> {
        None
    }

    /// Returns the lifetime of an entry whose value is being replaced; by default its deadline
    /// stays.
    ///
    /// Called by `insert` for a key that is present. `value` is the new value and `updated_at` the
    /// time of the call. `duration_until_expiry` is what is left until the present deadline, `None`
    /// if there is none. For the meaning of the answer and of a panic see [the
    /// trait](Self#answers).
    ///
    /// # Cost
    ///
    /// Part of each replacing `insert`; runs on the caller's thread with no lock held.
    #[allow(unused_variables, reason = "the names are documentation")]
    fn expire_after_update(
        &self,
        key: &K,
        value: &V,
        updated_at: Instant,
        duration_until_expiry: Option<Duration>,
    ) -> Option<Duration> {
        duration_until_expiry
    }

    /// Returns the lifetime of an entry that is being read; by default its deadline stays.
    ///
    /// Called by `get`, `get_many` and `get_ref` on a hit. `read_at` is the time of the call,
    /// `last_modified_at` that of the last write of the value. `duration_until_expiry` is what is
    /// left until the present deadline, `None` if there is none. The answer applies only if the
    /// entry still holds the value that was read. For the meaning of the answer and of a panic see
    /// [the trait](Self#answers).
    ///
    /// # Cost
    ///
    /// Part of each hit; runs on the caller's thread with no lock held. An answer other than
    /// `duration_until_expiry` adds a write to the entry's memory, which is what makes hits on one
    /// hot key slow when many threads share it.
    #[allow(unused_variables, reason = "the names are documentation")]
    fn expire_after_read(
        &self,
        key: &K,
        value: &V,
        read_at: Instant,
        duration_until_expiry: Option<Duration>,
        last_modified_at: Instant,
    ) -> Option<Duration> {
        duration_until_expiry
    }

    /// Returns whether a read can change the deadline; by default `true`, which is always right.
    ///
    /// An optional hint. Asked once, when the cache is built. `false` promises that
    /// [`expire_after_read`](Self::expire_after_read) always returns `duration_until_expiry`; the
    /// cache then need not call it, and hits become cheaper. If the promise is broken the answers
    /// may be ignored.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::time::{Duration, Instant};
    /// use wheelhouse::{Expiry, expiry};
    ///
    /// struct Lease;
    /// impl Expiry<u32, Duration> for Lease {
    ///     fn expire_after_create(&self, _: &u32, granted: &Duration, _: Instant) -> Option<Duration> {
    ///         Some(*granted)
    ///     }
    ///     fn reacts_to_reads(&self) -> bool {
    ///         false // `expire_after_read` is the trait's own, which leaves the deadline
    ///     }
    /// }
    /// assert!(!Lease.reacts_to_reads() && Lease.reacts_to_updates());
    ///
    /// // The ready policies say what they do.
    /// let idle = expiry::accessing(|_: &u32, _: &u32| Some(Duration::from_secs(60)));
    /// assert!(Expiry::<u32, u32>::reacts_to_reads(&idle));
    /// let fixed = expiry::writing(|_: &u32, _: &u32| Some(Duration::from_secs(60)));
    /// assert!(!Expiry::<u32, u32>::reacts_to_reads(&fixed));
    /// ```
    fn reacts_to_reads(&self) -> bool {
        true
    }

    /// Returns whether an update can change the deadline; by default `true`, which is always right.
    ///
    /// An optional hint. Asked once, when the cache is built. `false` promises that
    /// [`expire_after_update`](Self::expire_after_update) always returns `duration_until_expiry`;
    /// the cache then need not call it. If the promise is broken the answers may be ignored.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::time::Duration;
    /// use wheelhouse::{Expiry, expiry};
    ///
    /// let anew = expiry::writing(|_: &u32, _: &u32| Some(Duration::from_secs(60)));
    /// assert!(Expiry::<u32, u32>::reacts_to_updates(&anew));
    /// let once = expiry::creating(|_: &u32, _: &u32| Some(Duration::from_secs(60)));
    /// assert!(!Expiry::<u32, u32>::reacts_to_updates(&once));
    /// ```
    fn reacts_to_updates(&self) -> bool {
        true
    }

    /// Returns whether the methods look at the [`Instant`]s they are given; by default `true`,
    /// which is always right.
    ///
    /// An optional hint. Asked once, when the cache is built. `false` spares the cache from
    /// computing them: every `Instant` that the methods are given is then the same arbitrary one.
    ///
    /// # Examples
    ///
    /// ```
    /// use wheelhouse::{Expiry, expiry};
    ///
    /// let policy = expiry::creating(|_: &u32, _: &u32| None);
    /// assert!(!Expiry::<u32, u32>::looks_at_times(&policy));
    /// ```
    fn looks_at_times(&self) -> bool {
        true
    }

    /// Returns whether every answer depends on key and value alone; by default `false`, which is
    /// always right.
    ///
    /// An optional hint. Asked once, when the cache is built. `true` promises that those of the
    /// methods that react (see [`reacts_to_reads`](Self::reacts_to_reads),
    /// [`reacts_to_updates`](Self::reacts_to_updates)) give the same answer for the same key and
    /// value, whatever has happened and however much time was left. The cache may then ask
    /// [`expire_after_create`](Self::expire_after_create) about an update and say nothing of the
    /// time that was left, which spares a write a reading of the clock.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::time::Duration;
    /// use wheelhouse::{Expiry, expiry};
    ///
    /// let policy = expiry::writing(|_: &u32, seconds: &u32| Some(Duration::from_secs((*seconds).into())));
    /// assert!(Expiry::<u32, u32>::looks_at_the_entry_alone(&policy));
    /// ```
    fn looks_at_the_entry_alone(&self) -> bool {
        false
    }
}

/// Forwards every method of [`Expiry`] to what the pointer holds.
macro_rules! forward {
    ($pointer:ident) => {
        impl<K, V, E: Expiry<K, V> + ?Sized> Expiry<K, V> for $pointer<E> {
            fn expire_after_create(
                &self,
                key: &K,
                value: &V,
                created_at: Instant,
            ) -> Option<Duration> {
                (**self).expire_after_create(key, value, created_at)
            }

            fn expire_after_update(
                &self,
                key: &K,
                value: &V,
                updated_at: Instant,
                duration_until_expiry: Option<Duration>,
            ) -> Option<Duration> {
                (**self).expire_after_update(key, value, updated_at, duration_until_expiry)
            }

            fn expire_after_read(
                &self,
                key: &K,
                value: &V,
                read_at: Instant,
                duration_until_expiry: Option<Duration>,
                last_modified_at: Instant,
            ) -> Option<Duration> {
                (**self).expire_after_read(
                    key,
                    value,
                    read_at,
                    duration_until_expiry,
                    last_modified_at,
                )
            }

            fn reacts_to_reads(&self) -> bool {
                (**self).reacts_to_reads()
            }

            fn reacts_to_updates(&self) -> bool {
                (**self).reacts_to_updates()
            }

            fn looks_at_times(&self) -> bool {
                (**self).looks_at_times()
            }

            fn looks_at_the_entry_alone(&self) -> bool {
                (**self).looks_at_the_entry_alone()
            }
        }
    };
}

forward!(Arc);
forward!(Box);
