//! Any combination of settings: a cache that works, or a refusal that names the setting.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| wheelhouse_fuzz::settings::run(data));
