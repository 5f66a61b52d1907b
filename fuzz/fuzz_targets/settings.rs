//! Any combination of settings: either a cache that works, or an error that names the setting.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| wheelhouse_fuzz::settings::run(data));
