//! A near cache in front of Redis or Valkey.
mod builder;
mod cached;
#[cfg(feature = "cluster")]
mod cluster;
pub mod codec;
mod config;
mod connector;
mod error;
mod key;
mod line;
mod link;
mod near;
mod push;
mod read;
mod request;
mod shared;
mod stamp;
mod stats;
mod supervisor;
mod tracking;
mod write;

pub use builder::NearCacheBuilder;
pub use cached::Cached;
pub use config::{OnDisconnect, Tracking};
pub use error::{CodecError, NearError};
pub use key::NearKey;
pub use near::NearCache;
pub use redis;
pub use stats::NearStats;
