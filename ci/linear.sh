#!/usr/bin/env bash
# Records histories of threads on a few keys, and checks for each that an order explains it
# (tests/linearizable). Optimised, with the debug assertions; about 3,000 histories a second on two
# cores.
#
#   ci/linear.sh                  200,000 histories
#   ci/linear.sh 5000000          this many
#   ci/linear.sh 1 17             one history, of seed 17; the seed decides what the threads do, the
#                                 machine decides in which order
set -euo pipefail
cd "$(dirname "$0")/.."

export WHEELHOUSE_HISTORIES=${1:-200000}
export WHEELHOUSE_SEED=${2:-0}
export CARGO_PROFILE_RELEASE_DEBUG_ASSERTIONS=true
# A folder of its own: the assertions are another build.
export CARGO_TARGET_DIR=${CARGO_TARGET_DIR:-target}/linear

cargo test --release --test linearizable -- --nocapture recorded_histories_are_linearizable
