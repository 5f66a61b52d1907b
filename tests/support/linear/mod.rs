//! Linearizability: histories of calls on a cache, the sequential specification of the calls, and
//! the search for an order that explains a history.
#![allow(
    dead_code,
    reason = "each test program uses its own part of this module"
)]

pub mod check;
pub mod history;
pub mod record;
pub mod spec;
