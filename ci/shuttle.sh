#!/usr/bin/env bash
# Runs whole caches under random schedules (tests/schedules says what that covers and what not):
# each scenario under 5,000 schedules of each of two kinds.
#
#   ci/shuttle.sh                               all scenarios
#   ci/shuttle.sh alarm                         the scenarios whose names contain this
#   WHEELHOUSE_SCHEDULES=500000 ci/shuttle.sh   a wider search
#   FEATURES=crossbeam-epoch ci/shuttle.sh      the same on the second implementation of pins
#   WHEELHOUSE_REPLAY=91… ci/shuttle.sh NAME    one schedule again, as a failure has printed it
set -euo pipefail
cd "$(dirname "$0")/.."

export WHEELHOUSE_SCHEDULES=${WHEELHOUSE_SCHEDULES:-5000}
# A folder of its own: the cfg holds for every dependency, too.
export CARGO_TARGET_DIR=${CARGO_TARGET_DIR:-target}/shuttle
export RUSTFLAGS="--cfg wheelhouse_shuttle ${RUSTFLAGS:-}"
# Fast, but with the debug assertions.
export CARGO_PROFILE_RELEASE_DEBUG_ASSERTIONS=true

cargo test -p wheelhouse-models --release --features "${FEATURES:-}" --test schedules --no-run
timeout --kill-after=5 "${SHUTTLE_LIMIT:-600}" cargo test -p wheelhouse-models --release --features "${FEATURES:-}" --test schedules -- --show-output "$@"
