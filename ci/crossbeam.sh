#!/usr/bin/env bash
# The tests that rest on pins and grace periods, on the second implementation: the unit tests, and
# those of the ends of values, references and threads and of threads at full speed, with the feature
# crossbeam-epoch.
#
#   ci/crossbeam.sh                    these
#   ci/crossbeam.sh --tests            every test program
#   ci/crossbeam.sh --test cache       the programs named
#
# FEATURES=crossbeam-epoch repeats the sanitizers (ci/san.sh), the schedules (ci/shuttle.sh) and the
# soak (ci/soak.sh) on it.
set -euo pipefail
cd "$(dirname "$0")/.."

run() {
    cargo test --features crossbeam-epoch --no-run "$@"
    timeout --kill-after=10 "${CROSSBEAM_LIMIT:-600}" cargo test --features crossbeam-epoch --no-fail-fast "$@"
}

if [ $# -gt 0 ]; then
    run "$@"
    exit
fi
run --lib --test leaked_threads --test concurrency
run --test cache lifecycle::
