//! Intrusive lists compared with deques.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| wheelhouse::fuzzing::list_against_deques(data));
