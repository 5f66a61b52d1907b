#!/usr/bin/env bash
# Lints, warnings as errors, of all packages and all targets.
set -euo pipefail
cd "$(dirname "$0")/.."

cargo clippy --workspace --all-targets -- -D warnings
