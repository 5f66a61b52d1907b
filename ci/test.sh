#!/usr/bin/env bash
# The README's second command: unit tests, integration tests, doctests, the README's examples. Then
# the tests of snapshots with the feature serde, which make the library once more, but nothing else.
set -euo pipefail
cd "$(dirname "$0")/.."

cargo test
cargo test --features serde --test snapshots
