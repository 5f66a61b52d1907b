#!/usr/bin/env bash
# The benchmark program builds, and gives right answers on small sets. Nothing is measured here.
set -euo pipefail
cd "$(dirname "$0")/.."

cargo build --release -p wheelhouse-bench
program="${CARGO_TARGET_DIR:-target}/release/wheelhouse-bench"
timeout --kill-after=5 300 "$program" --quick --rounds 1 --threads 2 all

# The results can be written again from the figures of that run.
results=$(mktemp -d)
trap 'rm -rf "$results"' EXIT
"$program" report target/wheelhouse-bench/figures.json --results "$results/RESULTS.md" \
    --summary "$results/SUMMARY.md" --svg "$results"
grep -q '^### hit-zipf' "$results/RESULTS.md"
grep -q '</svg>' "$results/hit-cost.svg"
