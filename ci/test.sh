#!/usr/bin/env bash
# The README's command for the tests: unit tests, integration tests, doctests, the README's
# examples. Then the tests of snapshots with the feature serde, a package of their own.
set -euo pipefail
cd "$(dirname "$0")/.."

cargo test
cargo test -p wheelhouse-serde
