#!/usr/bin/env bash
# Orders that survive a crash: the example `orders` with --state.
#
#   ci/orders.sh               20 kills at random moments of a run of 24 s
#   ci/orders.sh KILLS SECONDS
#
# First its unit tests: a crash between any two steps of a save, torn lines, damaged files. Then a
# run that is killed, started again and audited; it prints a seed, and SEED=… repeats its moments.
# Last, a state that cannot be used must be refused with exit status 2.
set -euo pipefail
cd "$(dirname "$0")/.."

kills=${1:-20}
seconds=${2:-24}
cargo test --quiet --release -p wheelhouse-examples --example orders
cargo build --quiet --release -p wheelhouse-examples --example orders
program=$(realpath "${CARGO_TARGET_DIR:-target}")/release/examples/orders
"$program" --kills "$kills" --seconds "$seconds" --bound-ms "${BOUND_MS:-1000}" ${SEED:+--seed "$SEED"}

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
# refused TEXT: the state is refused, and the error has TEXT and says what to do.
refused() {
    local said status=0
    said=$("$program" --orders 20 --seconds 2 --state "$folder/state" 2>&1) || status=$?
    if [ "$status" -ne 2 ] || ! grep -q "$1" <<<"$said" || ! grep -q "To begin anew" <<<"$said"; then
        echo "exit status $status where 2 was expected, with \"$1\": $said" >&2
        exit 1
    fi
    echo "refused: ${said%%$'\n'*}"
}
"$program" --orders 20 --seconds 2 --state "$folder/state" >"$folder/said"
tail -n 1 "$folder/said"
cp "$folder/state" "$folder/good"
sed -i '1s/version 1/version 2/' "$folder/state"
refused "has version 2"
printf 'x' | cat "$folder/good" - >"$folder/state"
refused "is damaged"
echo hello >"$folder/state"
refused "is not a state"
rm "$folder/state"
refused "is missing"
# With the good copy put back, the state can be used again.
cp "$folder/good" "$folder/state"
"$program" --orders 20 --seconds 2 --state "$folder/state" | tail -n 1
