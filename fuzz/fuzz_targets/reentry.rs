//! A whole cache whose listener and policy call it back, near its bound, with entries held by
//! reference meanwhile.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| wheelhouse_fuzz::reentry::run(data));
