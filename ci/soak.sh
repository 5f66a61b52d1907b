#!/usr/bin/env bash
# Runs churn on two caches and samples memory, entries and the entries in the wheels forty times.
# Fails unless all of it stays flat.
#
#   ci/soak.sh        ten minutes
#   ci/soak.sh 60     an hour
#   FEATURES=crossbeam-epoch ci/soak.sh    on the second implementation of pins
set -euo pipefail
cd "$(dirname "$0")/.."

minutes=${1:-10}
case $minutes in
'' | *[!0-9]*)
    echo "$minutes is not a whole number of minutes" >&2
    exit 2
    ;;
esac
export SOAK_SECONDS=$((minutes * 60))
cargo test --release --features "${FEATURES:-}" --test soak --no-run
timeout --kill-after=10 $((SOAK_SECONDS + 120)) cargo test --release --features "${FEATURES:-}" --test soak -- --nocapture
