//! A whole cache compared with a sequential model: results, causes, the order of notifications for
//! each key, wake-ups.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| wheelhouse_fuzz::cache::run(data));
