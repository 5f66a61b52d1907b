#!/usr/bin/env bash
# Tests the layout of addresses for allocators that tag the top byte (Android on arm64,
# src/node/address.rs) on this machine: the unit tests, and the map's fuzz target, which cargo-fuzz
# builds with AddressSanitizer.
#
#   ci/top_byte.sh        fuzzes for 15 seconds
#   ci/top_byte.sh 300    fuzzes for five minutes
set -euo pipefail
cd "$(dirname "$0")/.."

seconds=${1:-15}
export CARGO_TARGET_DIR=${CARGO_TARGET_DIR:-target}/top-byte
export RUSTFLAGS="--cfg wheelhouse_top_byte ${RUSTFLAGS:-}"
cargo test --lib
ci/fuzz.sh "$seconds" map
