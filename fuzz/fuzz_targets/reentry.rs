//! A whole cache whose listener and policy call it back, near its bound, while entries are held by
//! reference.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| wheelhouse_fuzz::reentry::run(data));
