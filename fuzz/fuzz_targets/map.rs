//! The table compared with a sorted map, under hashes that collide.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| wheelhouse::fuzzing::map_against_sorted_map(data));
