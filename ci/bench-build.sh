#!/usr/bin/env bash
# The benchmarks build, and give right answers on small sets. Nothing is measured here.
set -euo pipefail
cd "$(dirname "$0")/.."

cargo bench --no-run -p wheelhouse-bench
cargo build --release -p wheelhouse-bench
timeout --kill-after=5 300 "${CARGO_TARGET_DIR:-target}/release/wheelhouse-bench" --quick --rounds 1 --threads 2 all cancel-aged cancel-any
