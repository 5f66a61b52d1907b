#!/usr/bin/env bash
# Instructions per operation, against benches/count.baseline: a tenth more of them fails. After a change that is meant to take more, or a
# new compiler: benches/count.sh --save.
set -euo pipefail
cd "$(dirname "$0")/.."

if ! command -v valgrind >/dev/null; then
    # Nothing to count with, and no right to install it: the other jobs are not to fail for that.
    { [ "$(id -u)" -eq 0 ] && apt-get update -qq && apt-get install -y --no-install-recommends valgrind >/dev/null; } || {
        echo "skipped: valgrind is not installed"
        exit 0
    }
fi
TOLERANCE=${TOLERANCE:-10} benches/count.sh --check
