//! The key of a call that may load: owned, or borrowed and cloned on a miss. Also short names for
//! the bounds that loads need on a cache's types.
//!
//! They are public only because other types name them: [`EntrySelector`](crate::EntrySelector) has
//! a parameter for its key. Programs do not name them.

use equivalent::Equivalent;
use std::borrow::ToOwned;
use std::hash::{BuildHasher, Hash};

/// A key that can be loaded.
pub trait CacheKey: Hash + Eq + Clone + Send + Sync + 'static {}

impl<K: Hash + Eq + Clone + Send + Sync + 'static> CacheKey for K {}

/// A value that can be loaded.
pub trait CacheValue: Clone + Send + Sync + 'static {}

impl<V: Clone + Send + Sync + 'static> CacheValue for V {}

/// A hasher of a cache that loads.
pub trait CacheHasher: BuildHasher + Send + Sync + 'static {}

impl<S: BuildHasher + Send + Sync + 'static> CacheHasher for S {}

/// A key that is looked up, and owned by the call after a miss.
pub trait Key<K> {
    type Query: Equivalent<K> + Hash + ?Sized;

    /// The key in the form of the look-up.
    fn query(&self) -> &Self::Query;

    /// The owned key.
    fn into_owned(self) -> K;
}

/// A key that the caller gave away.
#[derive(Debug)]
pub struct Owned<K>(pub(crate) K);

impl<K: Hash + Eq> Key<K> for Owned<K> {
    type Query = K;

    #[inline]
    fn query(&self) -> &K {
        &self.0
    }

    #[inline]
    fn into_owned(self) -> K {
        self.0
    }
}

/// A key that the caller keeps.
#[derive(Debug)]
pub struct ByRef<'q, Q: ?Sized>(pub(crate) &'q Q);

impl<K, Q> Key<K> for ByRef<'_, Q>
where
    Q: Equivalent<K> + Hash + ToOwned<Owned = K> + ?Sized,
{
    type Query = Q;

    #[inline]
    fn query(&self) -> &Q {
        self.0
    }

    fn into_owned(self) -> K {
        self.0.to_owned()
    }
}
