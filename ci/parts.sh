#!/usr/bin/env bash
# The tests of whole caches with sixteen parts in each cache that does not ask for a number: they
# run with one part on a small machine. A test of the order of one part asks for it.
#
#   ci/parts.sh                        those that build caches as programs do
#   ci/parts.sh --test cache size::    these
set -euo pipefail
cd "$(dirname "$0")/.."

# A folder of its own: the cfg holds for every dependency, too.
export CARGO_TARGET_DIR=${CARGO_TARGET_DIR:-target}/parts
export RUSTFLAGS="--cfg wheelhouse_parts ${RUSTFLAGS:-}"
if [ $# -gt 0 ]; then
    cargo test "$@"
else
    cargo test --no-fail-fast --test cache --test concurrency --test loading --test snapshots \
        --test leaked_threads
fi
