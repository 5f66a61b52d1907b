//! The timer wheel compared with a sorted map, with calls between two nodes that it returns.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| wheelhouse::fuzzing::wheel_against_oracle(data));
