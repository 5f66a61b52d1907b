//! The key of a call that may load: owned, or borrowed and cloned only if the call loads. Also
//! short names for the bounds that loads need on a cache's types.
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

/// A key that is looked up, and handed to the load if the call comes to lead.
pub trait Key<K> {
    type Query: Equivalent<K> + Hash + ?Sized;

    /// The key in the form of the look-up; not after the owned key was taken.
    fn query(&self) -> &Self::Query;

    /// The owned key, if it is there.
    fn owned(&mut self) -> &mut Option<K>;

    /// A copy of the owned key; not after it was taken.
    fn copy(&self) -> K;

    /// Copies the key of the load that has taken the owned key, if the look-up needs that one.
    fn restore(&mut self, taken: &K);

    /// Makes the owned key, with no lock held: it may take user code.
    fn prepare(&mut self) {
        if self.owned().is_none() {
            *self.owned() = Some(self.copy());
        }
    }

    /// The owned key; not after it was taken.
    fn into_owned(mut self) -> K
    where
        Self: Sized,
    {
        self.owned().take().unwrap_or_else(|| self.copy())
    }
}

/// A key that the caller gave away.
#[derive(Debug)]
pub struct Owned<K>(pub(crate) Option<K>);

impl<K: Hash + Eq + Clone> Key<K> for Owned<K> {
    type Query = K;

    fn query(&self) -> &K {
        self.0.as_ref().expect("the key was handed to the load")
    }

    fn owned(&mut self) -> &mut Option<K> {
        &mut self.0
    }

    fn copy(&self) -> K {
        self.query().clone()
    }

    fn restore(&mut self, taken: &K) {
        self.0.get_or_insert_with(|| taken.clone());
    }
}

/// A key that the caller keeps.
#[derive(Debug)]
pub struct ByRef<'q, Q: ?Sized, K> {
    query: &'q Q,
    owned: Option<K>,
}

impl<'q, Q: ?Sized, K> ByRef<'q, Q, K> {
    pub(crate) fn new(query: &'q Q) -> Self {
        Self { query, owned: None }
    }
}

impl<K, Q> Key<K> for ByRef<'_, Q, K>
where
    Q: Equivalent<K> + Hash + ToOwned<Owned = K> + ?Sized,
{
    type Query = Q;

    fn query(&self) -> &Q {
        self.query
    }

    fn owned(&mut self) -> &mut Option<K> {
        &mut self.owned
    }

    fn copy(&self) -> K {
        self.query.to_owned()
    }

    fn restore(&mut self, _: &K) {}
}
