#!/usr/bin/env bash
# Counts the instructions per operation and compares them with benches/count.baseline. Fails if an
# operation takes over a tenth more, or if the list of operations differs. After a change that is
# meant to take more, for a new operation, or for another compiler, run: benches/count.sh --save.
set -euo pipefail
cd "$(dirname "$0")/.."

if ! command -v valgrind >/dev/null; then
    # Without valgrind and without the right to install it, the job is skipped.
    { [ "$(id -u)" -eq 0 ] && apt-get update -qq && apt-get install -y --no-install-recommends valgrind >/dev/null; } || {
        echo "skipped: valgrind is not installed"
        exit 0
    }
fi
# Counts of different compilers cannot be compared: fetch the compiler of the baseline if the
# default one differs.
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
