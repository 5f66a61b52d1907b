//! The arguments and results of `and_compute_with` and its variants; see
//! [`Cache::entry`](crate::Cache::entry).

use std::time::{Duration, Instant};

/// What the closure of a compute call returns: what to do with the entry. Later versions may add
/// operations.
///
/// The entry that the closure saw may expire or be evicted while the closure runs. Then `Put`
/// stores the value as a new entry, as `insert` does for an absent key: the policy is asked as for
/// a creation. No lifetime of the former entry stays. The listener has got the former value as
/// `Expired` or `Size`, and the result is [`CompResult::Inserted`].
///
/// ```
/// use wheelhouse::Cache;
/// use wheelhouse::compute::{CompResult, Op};
///
/// let cache = Cache::new(100);
/// cache.insert("visits", 9);
/// let result = cache.entry("visits").and_compute_with(|entry| match entry {
///     Some(entry) if *entry.value() >= 10 => Op::Remove,
///     Some(entry) => Op::Put(entry.into_value() + 1),
///     None => Op::Nop,
/// });
/// assert!(matches!(result, CompResult::ReplacedWith(entry) if *entry.value() == 10));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Op<V> {
    /// Leave it as it is.
    Nop,
    /// Store this value, as `insert` does. But in a cache with neither a policy nor a
    /// `time_to_live`, an entry that is still live when the value is stored keeps its deadline. An
    /// entry that has ended by then keeps nothing: the value begins a new life.
    Put(V),
    /// Store this value with this lifetime, as `insert_with_ttl` does.
    PutWithTtl(V, Duration),
    /// Store this value until this instant, as `insert_until` does.
    PutUntil(V, Instant),
    /// Remove it.
    Remove,
}

/// The outcome of a compute call. There will be no other outcomes: a `match` needs no `_`.
///
/// A write of the key while the closure runs decides what the result is:
///
/// | first write | `Nop` | `Put` | `Remove` |
/// |---|---|---|---|
/// | none | `Unchanged` or `StillNone` | `Inserted` or `ReplacedWith` | `Removed` or `StillNone` |
/// | none, but the entry expired or was evicted | what the closure saw | `Inserted` | `StillNone` |
/// | `insert`, `insert_with_ttl`, `insert_until`, `invalidate`, `invalidate_all`, `restore`: counts as if it ran just after the compute call | what the closure saw | as in the first row, but not stored | `Overtaken(None)` |
/// | `remove`, `remove_if`, `replace_if`, `retain`, a newer load: it has acted on the same value as the closure | what the closure saw | `Overtaken(Some(value))` | `Overtaken(None)` |
///
/// ```
/// use wheelhouse::Cache;
/// use wheelhouse::compute::{CompResult, Op};
///
/// let cache: Cache<&str, u32> = Cache::new(100);
/// let result = cache.entry("k").and_compute_with(|_| Op::Put(1));
/// assert!(matches!(result, CompResult::Inserted(_)));
/// let result = cache.entry("k").and_compute_with(|_| Op::Remove);
/// assert!(matches!(result, CompResult::Removed(entry) if *entry.value() == 1));
/// let result = cache.entry("k").and_compute_with(|_| Op::Nop);
/// assert!(matches!(result, CompResult::StillNone("k")));
/// ```
#[derive(Clone, Debug)]
pub enum CompResult<K, V> {
    /// The key was absent and has this value now.
    Inserted(Entry<K, V>),
    /// The key had another value before and has this one now.
    ReplacedWith(Entry<K, V>),
    /// The key had this value and is absent now.
    Removed(Entry<K, V>),
    /// The key has the value that the closure saw.
    Unchanged(Entry<K, V>),
    /// The key is absent.
    StillNone(K),
    /// Another write came first, and the compute had no effect. This is the value that it would
    /// have stored. The other write has taken the value that the closure saw: answer as for a call
    /// that came too late, or compute again.
    Overtaken(Option<V>),
}

impl<K, V> CompResult<K, V> {
    /// Returns the entry of the result; `None` for `StillNone` and for `Overtaken`.
    ///
    /// ```
    /// let cache: wheelhouse::Cache<&str, u32> = wheelhouse::Cache::new(100);
    /// let result = cache.entry("k").and_compute_with(|_| wheelhouse::compute::Op::Put(1));
    /// assert_eq!(result.into_entry().map(|entry| entry.into_value()), Some(1));
    /// let result = cache.entry("other").and_compute_with(|_| wheelhouse::compute::Op::Nop);
    /// assert!(result.into_entry().is_none());
    /// ```
    pub fn into_entry(self) -> Option<Entry<K, V>> {
        match self {
            Self::Inserted(entry)
            | Self::ReplacedWith(entry)
            | Self::Removed(entry)
            | Self::Unchanged(entry) => Some(entry),
            Self::StillNone(_) | Self::Overtaken(_) => None,
        }
    }

    /// Returns the entry of the result.
    ///
    /// ```
    /// let cache: wheelhouse::Cache<&str, u32> = wheelhouse::Cache::new(100);
    /// let result = cache.entry("k").and_compute_with(|_| wheelhouse::compute::Op::Put(1));
    /// assert_eq!(result.unwrap().into_value(), 1);
    /// ```
    ///
    /// # Panics
    ///
    /// If the result is `StillNone` or `Overtaken`.
    #[track_caller]
    pub fn unwrap(self) -> Entry<K, V> {
        let variant = match &self {
            Self::StillNone(_) => "StillNone",
            _ => "Overtaken",
        };
        match self.into_entry() {
            Some(entry) => entry,
            None => panic!("`CompResult::unwrap` called on `{variant}`, which has no entry"),
        }
    }
}

/// An owned snapshot of an entry: it does not follow the cache.
///
/// ```
/// let cache = wheelhouse::Cache::new(100);
/// let entry = cache.entry("ada").or_insert(1815);
/// assert_eq!((*entry.key(), *entry.value()), ("ada", 1815));
/// assert!(entry.is_fresh() && entry.is_stored());
/// ```
#[derive(Clone, Debug)]
pub struct Entry<K, V> {
    pub(crate) key: K,
    pub(crate) value: V,
    pub(crate) fresh: bool,
    pub(crate) replaced: bool,
    pub(crate) stored: bool,
    pub(crate) left: Option<Duration>,
}

impl<K, V> Entry<K, V> {
    /// Returns the key.
    ///
    /// ```
    /// let cache = wheelhouse::Cache::new(100);
    /// assert_eq!(*cache.entry("ada").or_insert(1815).key(), "ada");
    /// ```
    pub fn key(&self) -> &K {
        &self.key
    }

    /// Returns the value.
    ///
    /// ```
    /// let cache = wheelhouse::Cache::new(100);
    /// assert_eq!(*cache.entry("ada").or_insert(1815).value(), 1815);
    /// ```
    pub fn value(&self) -> &V {
        &self.value
    }

    /// Takes the value out of the snapshot.
    ///
    /// ```
    /// let cache = wheelhouse::Cache::new(100);
    /// assert_eq!(cache.entry("ada").or_insert(1815).into_value(), 1815);
    /// ```
    pub fn into_value(self) -> V {
        self.value
    }

    /// Returns whether this call made the value.
    ///
    /// ```
    /// let cache = wheelhouse::Cache::new(100);
    /// assert!(cache.entry("ada").or_insert(1815).is_fresh());
    /// assert!(!cache.entry("ada").or_insert(1852).is_fresh());
    /// ```
    pub fn is_fresh(&self) -> bool {
        self.fresh
    }

    /// Returns whether this call replaced a live value by this one. False if an `insert` of another
    /// call came first, also in a [`CompResult::ReplacedWith`].
    ///
    /// ```
    /// let cache = wheelhouse::Cache::new(100);
    /// cache.insert("ada", 1815);
    /// let entry = cache.entry("ada").and_upsert_with(|_| 1852);
    /// assert!(entry.is_old_value_replaced());
    /// ```
    pub fn is_old_value_replaced(&self) -> bool {
        self.replaced
    }

    /// Returns whether the value was in the cache when the snapshot was taken. False for a value
    /// that could not be kept, as in a cache of capacity 0, and if the key was written while the
    /// value was made.
    ///
    /// ```
    /// let cache = wheelhouse::Cache::new(0);
    /// assert!(!cache.entry("ada").or_insert(1815).is_stored());
    /// ```
    pub fn is_stored(&self) -> bool {
        self.stored
    }

    /// Returns the time that the entry had left when the snapshot was taken; `None` if it never
    /// expires, or was not stored.
    ///
    /// ```
    /// use std::time::Duration;
    ///
    /// let cache = wheelhouse::Cache::builder().time_to_live(Duration::from_secs(60)).build();
    /// assert!(cache.entry("ada").or_insert(1815).time_left() <= Some(Duration::from_secs(60)));
    /// ```
    pub fn time_left(&self) -> Option<Duration> {
        self.left
    }
}

/// An entry without its key, which the call has itself.
pub(crate) type Keyless<V> = Entry<(), V>;

impl<V> Keyless<V> {
    /// A plain hit, for a call that returns the value only.
    #[inline]
    pub(crate) fn hit(value: V) -> Self {
        Self {
            key: (),
            value,
            fresh: false,
            replaced: false,
            stored: true,
            left: None,
        }
    }

    /// A value that the call's own code has made; it is not stored. In a box, since it may be
    /// large, and passes through many functions.
    #[inline]
    pub(crate) fn made(value: V) -> Box<Self> {
        // Field by field: without optimization, `..Self::hit(value)` would copy it once more.
        Box::new(Self {
            key: (),
            value,
            fresh: true,
            replaced: false,
            stored: false,
            left: None,
        })
    }

    /// A copy, for a call that shares it.
    // Out of line: its room on the stack is free again when a load runs.
    #[inline(never)]
    pub(crate) fn copy(&self) -> Box<Self>
    where
        V: Clone,
    {
        Box::new(self.clone())
    }

    pub(crate) fn with_key<K>(self, key: K) -> Entry<K, V> {
        Entry {
            key,
            value: self.value,
            fresh: self.fresh,
            replaced: self.replaced,
            stored: self.stored,
            left: self.left,
        }
    }
}
