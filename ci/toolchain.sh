#!/usr/bin/env bash
# Makes sure that a toolchain is installed and works: ci/toolchain.sh NAME. Fails if it does not and
# cannot be fetched within TOOLCHAIN_LIMIT seconds (90).
set -euo pipefail

name=$1
works() { rustup run "$name" rustc -V >/dev/null 2>&1; }
if works; then
    exit 0
fi
timeout --kill-after=5 "${TOOLCHAIN_LIMIT:-90}" rustup toolchain install "$name" --profile minimal || true
if ! works; then
    # A fetch that was cut off leaves a part behind, which would look like a toolchain.
    rustup toolchain uninstall "$name" >/dev/null 2>&1 || true
    echo "the toolchain $name is not installed and cannot be fetched" >&2
    exit 1
fi
