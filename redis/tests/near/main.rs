//! The near cache against real servers. Where none is installed, the tests are skipped and say
//! what to install.

#[path = "../support/mod.rs"]
#[allow(unreachable_pub, reason = "shared with other test programs")]
mod support;

mod across;
mod bulk;
mod connection;
mod credentials;
mod deadlines;
mod errors;
mod failover;
mod faults;
mod invalidation;
mod large;
mod loader;
mod loads;
mod modes;
#[cfg(feature = "sentinel")]
mod sentinel;
#[cfg(feature = "tracing")]
mod tracing;
mod writes;
