#!/usr/bin/env bash
# The crate, as its users build it, with the oldest compiler that the manifest allows. Skipped where
# that compiler is not installed and cannot be fetched.
#
#   ci/msrv.sh
#   ci/msrv.sh --version    only names the compiler
set -euo pipefail
cd "$(dirname "$0")/.."

version=$(sed -n 's/^rust-version = "\(.*\)"$/\1/p' Cargo.toml)
if [ "${1:-}" = --version ]; then
    echo "$version"
    exit
fi
if ! ci/toolchain.sh "$version"; then
    echo "skipped: Rust $version is not installed and cannot be fetched"
    exit 0
fi
for features in "" crossbeam-epoch; do
    cargo "+$version" check -p wheelhouse --features "$features" --target-dir "${CARGO_TARGET_DIR:-target}/msrv"
done
