#![doc = include_str!("../README.md")]

// Data flows downwards, and so do imports: a module names modules of later groups. Users call the
// first group, in which the builder makes the handle. The supervisor keeps the line up. The last
// group imports neither of them.
mod builder;
mod loader;
mod near;
mod read;
mod write;

mod supervisor;

#[cfg(feature = "cluster")]
mod cluster;
mod connect;
mod push;
#[cfg(feature = "sentinel")]
mod sentinel;

mod line;
mod link;
mod placeholder;
mod reports;
mod request;
mod shared;

mod cached;
pub mod codec;
mod config;
mod connection;
mod credentials;
mod error;
mod key;
mod loaded;
#[cfg(feature = "cluster")]
mod slots;
mod stamp;
mod stats;
mod stream;
mod suspects;
mod trace;

pub use builder::NearCacheBuilder;
pub use cached::Cached;
pub use config::{LoadLock, OnDisconnect, Tracking};
pub use credentials::Credentials;
pub use error::{CodecError, NearError};
pub use key::{NearKey, ToKey};
pub use loaded::Loaded;
pub use near::NearCache;
pub use redis;
pub use stats::NearStats;
