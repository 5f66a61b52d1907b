#!/usr/bin/env bash
# Runs some of the tests under valgrind's memcheck, which finds invalid accesses, uninitialised
# memory, and leaks at exit. It works on the machine code, so unlike ci/san.sh it also checks the
# standard library's own accesses. It runs one thread at a time and takes thirty times as long, so
# these are short tests that together reach all unsafe code.
#
#   ci/valgrind.sh                  these
#   ci/valgrind.sh snapshots        the programs named, whole
#
# No suppressions. "Still reachable" is not an error: threads and `static`s own memory at exit.
set -euo pipefail
cd "$(dirname "$0")/.."

command -v valgrind >/dev/null || { echo "valgrind is not installed" >&2; exit 2; }
limit=${VALGRIND_LIMIT:-900}
export PROPTEST_CASES=2
# Lines, for the reports.
export CARGO_PROFILE_TEST_DEBUG=line-tables-only

run() {
    local name=$1 program
    shift
    program=$(cargo test --no-run --message-format=json --test "$name" 2>/dev/null |
        sed -n 's/.*"target":{"kind":\["test"\].*"name":"'"$name"'".*"executable":"\([^"]*\)".*/\1/p' | tail -n 1)
    [ -x "$program" ] || { echo "no test program $name" >&2; exit 1; }
    printf '\n-- %s %s\n' "$name" "$*"
    timeout --kill-after=10 "$limit" valgrind --quiet --error-exitcode=99 --leak-check=full \
        --show-leak-kinds=definite,indirect --errors-for-leak-kinds=definite,indirect --fair-sched=yes \
        "$program" --test-threads=1 "$@"
}

cargo test --no-run --tests
if [ $# -gt 0 ]; then
    for name in "$@"; do
        run "$name"
    done
    exit
fi
run cache api::operations::a_reference api::iteration::retain \
    callbacks::listener::each_removal callbacks::listener::removals_of callbacks::panics::a_panic \
    callbacks::reentry::a_read callbacks::reentry::a_policy \
    time::tickers_that_misbehave::the_last_drop time::limits_of_the_cache time::deadlines \
    lifecycle::memory
