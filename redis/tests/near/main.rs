//! The near cache against real servers. Where none is installed, the tests are skipped and say
//! what to install.

#[path = "../support/mod.rs"]
#[allow(unreachable_pub, reason = "shared with other test programs")]
mod support;

mod connection;
mod deadlines;
mod errors;
mod faults;
mod invalidation;
mod loads;
mod modes;
mod writes;
