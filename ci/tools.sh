#!/usr/bin/env bash
# Installs what the other jobs need beyond rustup's toolchains. The compilers of single jobs (the
# oldest one, the one of a baseline) are fetched by these jobs, which are skipped where that fails.
set -euo pipefail
cd "$(dirname "$0")/.."

rustup component list --toolchain stable --installed | grep -q '^clippy' || rustup component add --toolchain stable clippy
rustup component list --toolchain stable --installed | grep -q '^rustfmt' || rustup component add --toolchain stable rustfmt
ci/toolchain.sh nightly
cargo fuzz --version >/dev/null 2>&1 || cargo install --locked --quiet cargo-fuzz
