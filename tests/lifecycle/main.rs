//! The ends of values, references, threads and caches: each is dropped once, and nothing leaks.

mod ends_of_threads;
mod last_drop;
mod memory;
mod references;
#[path = "../support/mod.rs"]
mod support;
