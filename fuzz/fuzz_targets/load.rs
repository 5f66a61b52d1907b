//! Leases, tasks and writes of a few keys in any order.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| wheelhouse_fuzz::loads::run(data));
