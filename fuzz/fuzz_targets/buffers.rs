//! Rings of reads, a batch of writes, and notifications, compared with queues.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| wheelhouse::fuzzing::buffers_against_queues(data));
