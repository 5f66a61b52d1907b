#!/usr/bin/env bash
# Installs what the other jobs need beyond rustup's toolchains.
set -euo pipefail
cd "$(dirname "$0")/.."

rustup component list --toolchain stable --installed | grep -q '^clippy' || rustup component add --toolchain stable clippy
rustup component list --toolchain stable --installed | grep -q '^rustfmt' || rustup component add --toolchain stable rustfmt
rustup toolchain list | grep -q '^nightly' || rustup toolchain install nightly --profile minimal
cargo fuzz --version >/dev/null 2>&1 || cargo install --locked --quiet cargo-fuzz
version=$(ci/msrv.sh --version)
rustup toolchain list | grep -q "^$version" || rustup toolchain install "$version" --profile minimal
