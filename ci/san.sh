#!/usr/bin/env bash
# Runs the unit tests and tests/* under AddressSanitizer with LeakSanitizer, then
# tests/concurrency/stress.rs under ThreadSanitizer.
#
#   ci/san.sh             both
#   ci/san.sh address     one of them
#   ci/san.sh thread
#   ci/san.sh address --test cache time::    a part: what follows the name goes to `cargo test`
#   ci/san.sh address --lib -- --exact time::tests::the_default_clock_is_the_programs
#   FEATURES=crossbeam-epoch ci/san.sh    the same on the second implementation of pins
#
# Builds have no limit; the tests of each sanitizer must end within SAN_LIMIT seconds (600).
#
# What this covers and what not:
#
# - Address and leak: every use of freed or foreign memory that the tests reach, and memory that is
#   unreachable at exit, but for tests that leak on purpose (ci/lsan.supp). The standard library is
#   not instrumented, but what it allocates is known.
# - Thread: races among accesses to plain memory. ThreadSanitizer ignores fences. A pin depends on
#   one, but only for objects that a reader must *not* find any more. The order of a reader's
#   accesses before the freeing depends on release and acquire, which ThreadSanitizer tracks
#   (src/reclaim/own.rs).
#   The standard library is not instrumented (that would take its sources and a build of its own).
#   So ThreadSanitizer reports a race where only std orders two accesses, as with the last drop of
#   an `Arc`, or a lock of std that a thread has waited for: ci/tsan.supp lists these places. The
#   loom models test whether the orderings suffice.
# - Not run: documentation tests (a program each), examples and benchmarks (no unsafe code of their
#   own; some link C libraries that are built without the sanitizer). The tests of memory, and those
#   that wait for a moment of real time, run as they are.
set -euo pipefail
cd "$(dirname "$0")/.."

host=$(rustc +nightly -vV | sed -n 's/^host: //p')
what=${1:-both}
[ $# -eq 0 ] || shift
# What is tested, if not all: words for `cargo test`.
part=("$@")
limit=${SAN_LIMIT:-600}
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
# Each operation takes about ten times as long here.
export PROPTEST_CASES=${PROPTEST_CASES:-24}
# Lines, for the reports; the rest only makes linking slow.
export CARGO_PROFILE_TEST_DEBUG=line-tables-only

# Builds, then runs the part of the tests that the caller named, or else these.
run() {
    [ "${#part[@]}" -eq 0 ] || set -- "${part[@]}"
    local test=(cargo +nightly test --target "$host" --features "$features" --no-fail-fast)
    "${test[@]}" --no-run "$@"
    timeout --kill-after=10 "$limit" "${test[@]}" "$@"
}

# A folder for each: the flags apply to all dependencies. They apply to the target only, not to
# build scripts and procedural macros.
if [ "$what" != thread ]; then
    export CARGO_TARGET_DIR=$base/address
    # An allocation for each node, otherwise the use of a freed node would not be detected.
    export RUSTFLAGS="-Zsanitizer=address --cfg wheelhouse_single $flags"
    export ASAN_OPTIONS=detect_leaks=1:detect_stack_use_after_return=1
    export LSAN_OPTIONS="suppressions=$PWD/ci/lsan.supp ${LSAN_OPTIONS:-}"
    run --lib --tests
fi
if [ "$what" != address ]; then
    export CARGO_TARGET_DIR=$base/thread
    # The flag says that std, built without the sanitizer, may be linked.
    export RUSTFLAGS="-Zsanitizer=thread -Cunsafe-allow-abi-mismatch=sanitizer $flags"
    export TSAN_OPTIONS="suppressions=$PWD/ci/tsan.supp ${TSAN_OPTIONS:-}"
    run --test concurrency stress::
fi
