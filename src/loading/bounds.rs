//! Short names for the bounds that loads need on a cache's types.
//!
//! They are `pub` only because other types name them as bounds. Programs do not name them.

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
