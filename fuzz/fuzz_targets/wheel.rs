//! The timer wheel beside a sorted map, with calls in between two nodes that are handed out.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| wheelhouse::fuzzing::wheel_against_oracle(data));
