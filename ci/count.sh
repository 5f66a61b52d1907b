#!/usr/bin/env bash
# Instructions per operation, against benches/count.baseline: a tenth more of them fails, and so
# does another list of operations. After a change that is meant to take more, for a new operation,
# or to count with another compiler: benches/count.sh --save.
set -euo pipefail
cd "$(dirname "$0")/.."

if ! command -v valgrind >/dev/null; then
    # Without valgrind nothing can be counted. That is no reason to fail.
    { [ "$(id -u)" -eq 0 ] && apt-get update -qq && apt-get install -y --no-install-recommends valgrind >/dev/null; } || {
        echo "skipped: valgrind is not installed"
        exit 0
    }
fi
# Counts of different compilers cannot be compared, so the compiler of the baseline is fetched.
version=$(sed -n '1s/^# rustc \([^ ]*\) .*/\1/p' benches/count.baseline)
if [ -z "$version" ]; then
    echo "the first line of benches/count.baseline names no compiler" >&2
    exit 2
fi
if [ "$(rustc -V | cut -d ' ' -f 2)" != "$version" ]; then
    ci/toolchain.sh "$version" || {
        echo "skipped: Rust $version, the compiler of the baseline, is not installed and cannot be fetched"
        exit 0
    }
    export RUSTUP_TOOLCHAIN=$version
fi
TOLERANCE=${TOLERANCE:-10} benches/count.sh --check
