#!/usr/bin/env bash
# The README's command for the tests: unit tests, integration tests, doctests, the README's
# examples. Then the tests of the features serde and quanta, a package of their own.
set -euo pipefail
cd "$(dirname "$0")/.."

cargo test
cargo test -p wheelhouse-features
