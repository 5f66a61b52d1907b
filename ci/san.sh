#!/usr/bin/env bash
# The unit tests and tests/* under AddressSanitizer with LeakSanitizer, then tests/stress under
# ThreadSanitizer.
#
#   ci/san.sh             both
#   ci/san.sh address     one of them
#   ci/san.sh thread
#   FEATURES=crossbeam-epoch ci/san.sh    the same on the second implementation of pins
#
# Builds take as long as they take; the tests of each part must end within SAN_LIMIT seconds (240).
#
# What this covers and what not:
#
# - Address and leak: every use of freed or foreign memory that the tests reach, and what is
#   unreachable at exit. The standard library is not instrumented, but what it allocates is known.
# - Thread: races among accesses to plain memory. ThreadSanitizer does not follow fences. A pin
#   rests on one, but only for what a reader must *not* find any more. That the accesses of a
#   reader come before the freeing rests on release and acquire, which are followed
#   (src/reclaim/own/epoch.rs). The standard library is not instrumented (that would take its
#   sources and a build of its own), so it
#   would be reported where only std orders two accesses, as with the last drop of an `Arc`:
#   ci/tsan.supp names these places. The loom models say whether the orderings suffice.
# - Not run: documentation tests (a program each), examples and benchmarks (no unsafe code of their
#   own; some link C libraries that are built without the sanitizer). The tests of memory, and those
#   that wait for a moment of real time, run as they are.
set -euo pipefail
cd "$(dirname "$0")/.."

host=$(rustc +nightly -vV | sed -n 's/^host: //p')
what=${1:-both}
limit=${SAN_LIMIT:-240}
base=${CARGO_TARGET_DIR:-target}
flags=${RUSTFLAGS:-}
features=${FEATURES:-}
case $what in
both | address | thread) ;;
*)
    echo "$what is not a sanitizer of this script; allowed are address, thread and both" >&2
    exit 2
    ;;
esac
# Each operation takes some ten times as long here.
export PROPTEST_CASES=${PROPTEST_CASES:-24}
# Lines, for the reports; the rest only makes linking slow.
export CARGO_PROFILE_DEV_DEBUG=line-tables-only

# A folder for each: the flags hold for all dependencies. They are for the target alone, so build
# scripts and procedural macros stay as they are.
if [ "$what" != thread ]; then
    export CARGO_TARGET_DIR=$base/address
    # An allocation for each node, or the use of a freed one would not be seen.
    export RUSTFLAGS="-Zsanitizer=address --cfg wheelhouse_single $flags"
    export ASAN_OPTIONS=detect_leaks=1:detect_stack_use_after_return=1
    cargo +nightly test --target "$host" --features "$features" --lib --tests --no-run
    timeout --kill-after=10 "$limit" cargo +nightly test --target "$host" --features "$features" --lib --tests --no-fail-fast
fi
if [ "$what" != address ]; then
    export CARGO_TARGET_DIR=$base/thread
    # The flag says that std, built without the sanitizer, may be linked.
    export RUSTFLAGS="-Zsanitizer=thread -Cunsafe-allow-abi-mismatch=sanitizer $flags"
    export TSAN_OPTIONS="suppressions=$PWD/ci/tsan.supp ${TSAN_OPTIONS:-}"
    cargo +nightly test --target "$host" --features "$features" --test stress --no-run
    timeout --kill-after=10 "$limit" cargo +nightly test --target "$host" --features "$features" --test stress --no-fail-fast
fi
