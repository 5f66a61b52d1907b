//! The function that the fuzz target calls.

/// Runs a program of wheel operations, decoded from `data`, beside a sorted map, and panics where
/// they differ.
pub fn wheel_against_oracle(data: &[u8]) {
    super::oracle::run(data);
}
