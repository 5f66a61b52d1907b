#!/usr/bin/env bash
# Formatting, of every package: fuzz is not in the workspace, so it is asked for by itself.
set -euo pipefail
cd "$(dirname "$0")/.."

cargo fmt --all -- --check
if [ -f fuzz/Cargo.toml ]; then
    cargo fmt --manifest-path fuzz/Cargo.toml -- --check
fi
