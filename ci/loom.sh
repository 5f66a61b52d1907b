#!/usr/bin/env bash
# Runs the models of the private races (models/loom) under every interleaving up to a bound on
# preemptions. Prints how many interleavings each has.
#
#   ci/loom.sh                          all models
#   ci/loom.sh ring                     those whose names contain this
#   LOOM_MAX_PREEMPTIONS=5 ci/loom.sh   a wider search
set -euo pipefail
cd "$(dirname "$0")/.."

export LOOM_MAX_PREEMPTIONS=${LOOM_MAX_PREEMPTIONS:-3}
if [ "$LOOM_MAX_PREEMPTIONS" -lt 2 ]; then
    echo "LOOM_MAX_PREEMPTIONS is $LOOM_MAX_PREEMPTIONS; below 2 most races cannot happen: set 2 or more" >&2
    exit 2
fi
# A folder of its own: the cfg holds for every dependency, too.
export CARGO_TARGET_DIR=${CARGO_TARGET_DIR:-target}/loom
export RUSTFLAGS="--cfg wheelhouse_loom ${RUSTFLAGS:-}"
# Fast, but with the debug assertions.
export CARGO_PROFILE_RELEASE_DEBUG_ASSERTIONS=true

cargo test -p wheelhouse-models --lib --release --no-run
# Ordinary unit tests run elsewhere.
mapfile -t models < <(cargo test -p wheelhouse-models --quiet --lib --release -- --list --format terse | sed -n 's/^\(loom_models::.*\): test$/\1/p' | grep -F -- "${1:-}")
if [ "${#models[@]}" -eq 0 ]; then
    echo "no model${1:+ with $1 in its name}" >&2
    exit 2
fi

report=$(mktemp)
trap 'rm -f "$report"' EXIT
timeout --kill-after=5 "${LOOM_LIMIT:-300}" cargo test -p wheelhouse-models --lib --release -- --exact --show-output "${models[@]}" 2>&1 | tee "$report"

# One model is wrong on purpose. If it is missing, or does not fail, the others show nothing.
if [ $# -eq 0 ] && ! grep -q '^test loom_models::weakened::.* - should panic .*ok$' "$report"; then
    echo "the model that must fail was not seen to fail" >&2
    exit 1
fi
