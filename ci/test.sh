#!/usr/bin/env bash
# The README's command for the tests: unit tests, integration tests, doctests, the README's
# examples. Then the tests of snapshots with the feature serde, which build the library again, and
# the test of large values in an optimized build, which bears larger ones.
set -euo pipefail
cd "$(dirname "$0")/.."

cargo test
cargo test --features serde --test snapshots
cargo test --release --test large_values
