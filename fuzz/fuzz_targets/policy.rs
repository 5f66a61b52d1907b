//! The size policy compared with a map that owns its nodes.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| wheelhouse::fuzzing::policy_against_map(data));
