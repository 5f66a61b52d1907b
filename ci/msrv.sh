#!/usr/bin/env bash
# The crate, as its users build it, with the oldest compiler that the manifest allows. `--version` only names that compiler.
set -euo pipefail
cd "$(dirname "$0")/.."

version=$(sed -n 's/^rust-version = "\(.*\)"$/\1/p' Cargo.toml)
if [ "${1:-}" = --version ]; then
    echo "$version"
    exit
fi
cargo "+$version" check -p wheelhouse --target-dir "${CARGO_TARGET_DIR:-target}/msrv"
