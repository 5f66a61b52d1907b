//! A cache near its bound, compared with a ledger: no expired or removed entry is visible, each
//! pair leaves once, the weight is right.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| wheelhouse_fuzz::bounded::run(data));
