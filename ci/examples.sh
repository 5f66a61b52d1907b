#!/usr/bin/env bash
# Every example, short. Each checks itself and exits non-zero if anything was wrong.
set -euo pipefail
cd "$(dirname "$0")/.."

cargo build --release --examples -p wheelhouse -p wheelhouse-examples
# What ci/orders.sh builds besides, so that its time limit below holds for its runs alone.
cargo test --quiet --release -p wheelhouse-examples --example orders --no-run
programs=$(realpath "${CARGO_TARGET_DIR:-target}")/release/examples

run() {
    printf '\n-- %s\n' "$*"
    local name=$1
    shift
    timeout --kill-after=5 120 "$programs/$name" "$@"
}

run keepalive --connections 300 --seconds 5
run tokio_timer
run sessions
run lifetimes
run dns
run rate_limiter
run loading
run loading_async
run refresh
run orders --orders 100000
printf '\n-- ci/orders.sh 5 10\n'
BOUND_MS=2000 timeout --kill-after=5 120 ci/orders.sh 5 10
run snapshot
run replay --generate 300000
run viewer --plain --frames 5
run metrics

# Without a trace, `replay` says what it needs and fails. It is run in a folder without any.
if said=$(cd / && "$programs/replay" 2>&1); then
    echo "replay without a trace did not fail" >&2
    exit 1
fi
grep -q -- --generate <<<"$said" || { echo "replay without a trace said: $said" >&2; exit 1; }

# An example that is not in the list above would never be run.
for path in examples/*.rs examples/*/ demos/examples/*; do
    name=$(basename "$path" .rs)
    [ "$name" = common ] || grep -q "^run $name\b" ci/examples.sh || { echo "ci/examples.sh does not run $name" >&2; exit 1; }
done
