//! Per-entry expiry: the [`Expiry`] trait, and ready policies for the common cases.
//!
//! | the lifetime | policy |
//! |---|---|
//! | is in the value, which knows the instant of its end: a token, a lease | [`until(f)`](until) |
//! | is in the value, which a later write renews: a DNS record, a response | [`writing(f)`](writing) |
//! | is in the value, and each use renews it too: a session | [`accessing(f)`](accessing) |
//! | belongs to the key, whatever is written later: a rate limiter's window | [`creating(f)`](creating) |
//! | depends on the time, or on what the entry has left | your own [`Expiry`] |
//! | is given by each caller: `insert_with_ttl`, `set_expiry` | none; [`never()`](fn@never) if a plain `insert` is to keep the deadline |
//!
//! What each policy does:
//!
//! | policy | on create | on update | on read |
//! |---|---|---|---|
//! | [`creating(f)`](creating) | asks `f` | keeps the deadline | keeps the deadline |
//! | [`writing(f)`](writing) | asks `f` | asks `f` | keeps the deadline |
//! | [`until(f)`](until) | asks `f` for the instant | asks `f` for the instant | keeps the deadline |
//! | [`accessing(f)`](accessing) | asks `f` | asks `f` | asks `f` |
//! | [`never()`](fn@never) | never expires | keeps the deadline | keeps the deadline |
//! | [`writes_only(policy)`](writes_only) | as `policy` | as `policy` | keeps the deadline |
//! | [`jittered(policy, fraction)`](jittered) | as `policy`, shortened at random | likewise | likewise |
//!
//! For one lifetime that holds for all entries, use
//! [`time_to_live`](crate::CacheBuilder::time_to_live) and
//! [`time_to_idle`](crate::CacheBuilder::time_to_idle) of the builder.

mod erased;
mod ready;

use std::convert::identity;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::identity::{is_provided, note_provided};
pub(crate) use erased::{Asks, ErasedExpiry, Updates};
pub use ready::{
    Accessing, ByClosure, Creating, Jittered, Never, Until, WritesOnly, Writing, accessing,
    creating, jittered, never, until, writes_only, writing,
};
pub(crate) use ready::{random_unit, shorten};

/// Decides for each entry how long it lives.
///
/// Give an implementation to the builder with
/// [`expire_after`](crate::CacheBuilder::expire_after). The cache asks it when an entry is created,
/// when its value is replaced, and when it is read. If a closure can give the lifetime or the
/// instant of the end, [`expiry::writing`](writing) and [`expiry::until`](until) are shorter and
/// have no method to forget.
///
/// # The defaults
///
/// A method that a policy leaves out has this meaning:
///
/// | method | default | so |
/// |---|---|---|
/// | `expire_after_create` | `None` | a new entry never expires |
/// | `expire_after_update` | `duration_until_expiry` | **a new value keeps the deadline of the old one** |
/// | `expire_after_read` | `duration_until_expiry` | a read moves no deadline |
///
/// So a policy that takes the lifetime from the value needs create *and* update. With create alone,
/// a renewed token is removed at the deadline of the old token, or outlives its own.
///
/// If a policy does not override `expire_after_read`, the cache does not ask it about reads, and a
/// hit costs the same as on an entry with a fixed deadline. If it does, and reads of this cache
/// need not move deadlines, pass [`expiry::writes_only(policy)`](writes_only).
///
/// # Answers
///
/// - `None`: the entry never expires.
/// - `Some(d)`: the deadline is `d` after the instant that this call was given (`created_at`,
///   `updated_at`, `read_at`). So a policy that answers `valid_until - created_at` makes an entry
///   expire at exactly `valid_until`. At its deadline the entry is expired.
/// - `Some(Duration::ZERO)`: due at once. The entry is stored, no read finds it, and the listener
///   gets it with the cause `Expired`. The same holds for an entry whose deadline has passed when
///   the method returns.
/// - A `d` above the longest lifetime, 146 years, counts as that lifetime. Nothing overflows.
/// - `duration_until_expiry` unchanged: the deadline stays exactly where it is, without drift and
///   without a write to shared memory.
///
/// A write reads the instant once, after the code that makes the value has run and before it asks
/// the policy. A read uses the instant at which it has found the entry live. With `time_to_live` or
/// `time_to_idle` on the same cache, the earliest of the deadlines holds, and
/// `duration_until_expiry` is the time left until that one. If the policy returns it unchanged, the
/// deadline that the policy gave before stays.
///
/// # When it is called
///
/// The thread that called the cache calls the policy, within that call. No lock of the cache is
/// held meanwhile, so a method may call the cache, also for the same key. Many threads may call it
/// at once. If another thread changes the entry meanwhile, the call starts over and asks again. So
/// the answer should depend on the arguments, and should have no side effects.
///
/// [When the policy is asked](crate::Cache#when-the-policy-is-asked) has a table: which operation
/// of the cache calls which method.
///
/// # Time
///
/// [`Ticker`](crate::Ticker#without-a-ticker) says how well the [`Instant`]s agree with
/// [`Instant::now`]. With a ticker of yours they begin at the moment at which the cache was built:
/// compare them with [`Policy::now`](crate::Policy::now) instead.
///
/// # Panics
///
/// A panic in a method reaches the caller of the cache. The cache is then as if the call had not
/// been made: an absent key stays absent, a present one keeps its value and its deadline. No lock
/// stays held, and later calls work.
///
/// # Examples
///
/// Each use gives a session half an hour, but it ends eight hours after its login at the latest:
///
/// ```
/// use std::time::{Duration, Instant};
/// use wheelhouse::{Cache, Expiry, ManualTicker};
///
/// const HOUR: Duration = Duration::from_secs(3_600);
///
/// struct Session { login: Instant }
///
/// impl Session {
///     fn time_left(&self, now: Instant) -> Option<Duration> {
///         let end = self.login + 8 * HOUR;
///         Some((HOUR / 2).min(end.saturating_duration_since(now)))
///     }
/// }
///
/// struct Sessions;
///
/// impl Expiry<u32, Session> for Sessions {
///     fn expire_after_create(&self, _: &u32, new: &Session, now: Instant) -> Option<Duration> {
///         new.time_left(now)
///     }
///
///     fn expire_after_update(
///         &self, _: &u32, new: &Session, now: Instant, _: Option<Duration>,
///     ) -> Option<Duration> {
///         new.time_left(now)
///     }
///
///     fn expire_after_read(
///         &self, _: &u32, session: &Session, now: Instant, _: Option<Duration>, _: Instant,
///     ) -> Option<Duration> {
///         session.time_left(now)
///     }
/// }
///
/// let time = ManualTicker::new();
/// let sessions = Cache::builder().ticker(time.clone()).expire_after(Sessions).build();
/// let login = sessions.policy().now();
/// sessions.insert(1, Session { login });
/// while sessions.get_ref(&1).is_some() {
///     time.advance(HOUR / 3);
/// }
/// assert_eq!(sessions.policy().now() - login, 8 * HOUR);
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not an expiry policy",
    label = "does not implement `Expiry` for these keys and values",
    note = "wrap a closure: `expiry::writing(|key: &K, value: &V| Some(lifetime))` asks it on each write, `expiry::creating` on the first one, `expiry::accessing` on reads too; `expiry::until(|key: &K, value: &V| Some(instant))` asks for the end"
)]
pub trait Expiry<K, V>: Send + Sync + 'static {
    /// Returns the lifetime of a new entry; by default `None`, so that it never expires.
    ///
    /// `insert`, a load and a compute call it for a key that is absent, or whose entry is past its
    /// deadline, before they store a value. For the meaning of the answer and of a panic see [the
    /// trait](Self#answers).
    ///
    /// # Cost
    ///
    /// Part of each `insert` of a new key.
    #[allow(unused_variables, reason = "the names are documentation")]
    fn expire_after_create(&self, key: &K, value: &V, created_at: Instant) -> Option<Duration> {
        None
    }

    /// Returns the lifetime of an entry whose value is being replaced; by default the new value
    /// keeps the deadline of the old one.
    ///
    /// `insert` calls it for a key that is present; so does a compute, a reload or `replace_if`
    /// that stores a value. `value` is the new value. [The defaults](Self#the-defaults) say which
    /// policies need this method. `duration_until_expiry` is what is left until the present
    /// deadline, `None` if there is none. For the meaning of the answer and of a panic see [the
    /// trait](Self#answers).
    ///
    /// # Cost
    ///
    /// Part of each `insert` of a present key.
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
    /// Each hit that counts as a read calls it: of `get`, `get_many`, `get_ref`, and of methods
    /// that load an absent key, such as `get_with`. `last_modified_at` is when the value was
    /// written. `duration_until_expiry` is what is left until the present deadline, `None` if there
    /// is none. The answer applies only if the entry still holds the value that was read. For the
    /// meaning of the answer and of a panic see [the trait](Self#answers).
    ///
    /// # Cost
    ///
    /// Part of each hit, if the policy has this method and is not wrapped in [`writes_only`]. An
    /// answer other than `duration_until_expiry` writes to the entry's memory: hits on one hot key
    /// are then slow where many threads share it.
    #[allow(unused_variables, reason = "the names are documentation")]
    fn expire_after_read(
        &self,
        key: &K,
        value: &V,
        read_at: Instant,
        duration_until_expiry: Option<Duration>,
        last_modified_at: Instant,
    ) -> Option<Duration> {
        note_provided::<Self, (K, V, (), ())>();
        duration_until_expiry
    }

    /// Private to this crate: which calls of the policy the cache needs. No other crate can name
    /// the type.
    #[doc(hidden)]
    fn __asks(&self) -> Asks {
        Asks::ALL
    }

    /// Private to this crate: whether the method for reads, which this thread has just called, is
    /// the provided one.
    #[doc(hidden)]
    fn __inherits_reads(&self) -> bool {
        is_provided::<Self, (K, V, (), ())>()
    }
}

/// Writes methods of `self` that call the same methods of another value. `then` converts each
/// answer.
macro_rules! forward {
    ($self:ident => $to:expr, $then:expr; $(
        fn $method:ident($($name:ident: $type:ty),*) -> $answer:ty;
    )*) => {$(
        fn $method(&$self, $($name: $type),*) -> $answer {
            $then($to.$method($($name),*))
        }
    )*};
}

pub(crate) use forward;

/// Forwards every method of [`Expiry`] to the policy behind a pointer.
macro_rules! forward_pointer {
    ($pointer:ident) => {
        impl<K, V, E: Expiry<K, V> + ?Sized> Expiry<K, V> for $pointer<E> {
            forward! {
                self => **self, identity;
                fn expire_after_create(key: &K, value: &V, created_at: Instant)
                    -> Option<Duration>;
                fn expire_after_update(
                    key: &K, value: &V, updated_at: Instant, duration_until_expiry: Option<Duration>
                ) -> Option<Duration>;
                fn expire_after_read(
                    key: &K, value: &V, read_at: Instant, duration_until_expiry: Option<Duration>,
                    last_modified_at: Instant
                ) -> Option<Duration>;
                fn __asks() -> Asks;
                fn __inherits_reads() -> bool;
            }
        }
    };
}

forward_pointer!(Arc);
forward_pointer!(Box);
