#!/usr/bin/env bash
# Counts the cache lines that move between 64 simulated cores for each operation, and compares them
# with benches/scale.baseline. Fails if an operation moves over 15 % more. Skipped, with a message,
# where QEMU's user mode with plugins or a C compiler is missing. About five minutes.
#
#   ci/scale.sh              compare
#   ci/scale.sh --save       make the baseline anew
#   ci/scale.sh --build      only build; says what to set for benches/coherence/simulate.py
#
# PEERS=1 builds the other caches, too.
set -euo pipefail
cd "$(dirname "$0")/.."

skip() {
    echo "skipped: $1"
    exit 0
}
[ "$(uname -s) $(uname -m)" = "Linux x86_64" ] || skip "the simulator runs x86-64 Linux programs"
for tool in python3 cc; do
    command -v "$tool" >/dev/null || skip "$tool is not installed"
done
QEMU=${QEMU:-qemu-x86_64}
if ! command -v "$QEMU" >/dev/null; then
    # Without QEMU and without the right to install it, the job is skipped.
    { [ "$(id -u)" -eq 0 ] && apt-get update -qq && apt-get install -y --no-install-recommends qemu-user >/dev/null; } ||
        skip "qemu-x86_64 is not installed (Debian: qemu-user)"
fi
"$QEMU" --help | grep -q -- -plugin || skip "this QEMU has no plugins"

COHERENCE_ROOT=$PWD/${CARGO_TARGET_DIR:-target}/coherence
mkdir -p "$COHERENCE_ROOT"
cc -O2 -Wall -Wextra -shared -fPIC -fvisibility=hidden -o "$COHERENCE_ROOT/coherence.so" benches/coherence/plugin/coherence.c -lpthread
# One static program at fixed addresses: an address in a report is one for addr2line.
target=x86_64-unknown-linux-gnu
RUSTFLAGS="-C relocation-model=static -C target-feature=+crt-static --cfg wheelhouse_simulated" \
    cargo build --quiet --release --manifest-path benches/coherence/Cargo.toml --target "$target" \
    --target-dir "$COHERENCE_ROOT/build" ${PEERS:+--features peers}
cp "$COHERENCE_ROOT/build/$target/release/wheelhouse-coherence" "$COHERENCE_ROOT/guest"
export COHERENCE_ROOT QEMU

case ${1:-} in
    --build) echo "export COHERENCE_ROOT=$COHERENCE_ROOT QEMU=$QEMU" ;;
    --save) benches/coherence/simulate.py save benches/scale.baseline ;;
    *) benches/coherence/simulate.py check benches/scale.baseline ;;
esac
