//! A cache whose bound is in the way beside a ledger: nothing dead or removed is seen, each pair
//! leaves once, the weight is right.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| wheelhouse_fuzz::bounded::run(data));
