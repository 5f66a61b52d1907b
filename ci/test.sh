#!/usr/bin/env bash
# The README's command for the tests: unit tests, integration tests, doctests, the README's
# examples. Then the tests of snapshots with the feature serde, which build the library again.
set -euo pipefail
cd "$(dirname "$0")/.."

cargo test
cargo test --features serde --test snapshots
