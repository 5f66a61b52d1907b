#!/usr/bin/env bash
# Every example, short. Each checks itself and exits non-zero if anything was wrong.
set -euo pipefail
cd "$(dirname "$0")/.."

cargo build --release --examples
programs=${CARGO_TARGET_DIR:-target}/release/examples

run() {
    printf '\n-- %s\n' "$*"
    local name=$1
    shift
    timeout --kill-after=5 120 "$programs/$name" "$@"
}

run keepalive --connections 300 --seconds 5
run orders --orders 100000
run replay --generate 300000
run viewer --plain --frames 5
run tokio_timer
run sessions
run dns
run metrics

# An example that is not in the list above would never be run.
for path in examples/*; do
    name=$(basename "$path" .rs)
    [ "$name" = common ] || grep -q "^run $name\b" ci/examples.sh || { echo "ci/examples.sh does not run $name" >&2; exit 1; }
done
