#!/usr/bin/env bash
# Everything that a change has to pass, from a clean checkout. The jobs run one after the other;
# each is a script in ci/ that a person can run alone. A failure does not stop the other jobs. A
# summary stands at the end, and the exit status is not zero if a job failed.
#
#   ci/all.sh              all jobs
#   ci/all.sh test doc     only these
#
# Needs rustup with the toolchains stable and nightly, and a C and a C++ compiler: tests, examples,
# benchmarks and fuzz targets use crates that compile C code (zstd, xz, libFuzzer). The job `tools`
# installs the rest. About half an hour on two cores.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

export CI=true
# Stable, unless the caller chose another toolchain. `cargo +nightly` in a job overrides this.
export RUSTUP_TOOLCHAIN=${RUSTUP_TOOLCHAIN:-stable}
export CARGO_INCREMENTAL=0
# Enough for a backtrace, and the test programs link much faster.
export CARGO_PROFILE_DEV_DEBUG=line-tables-only
export CARGO_TERM_COLOR=${CARGO_TERM_COLOR:-never}
export CARGO_TERM_PROGRESS_WHEN=never
export CARGO_NET_RETRY=5
export PROPTEST_VERBOSE=0

# Quick jobs first; jobs that compile the same things stand together.
# The sanitizers take ten minutes more: run `ci/all.sh san` before a release, and after each change
# of unsafe code.
all=(
    tools prose fmt test clippy doc lock msrv package semver examples bench-build count redis loom
    shuttle crossbeam top_byte fuzz
)
# A job that runs longer than this is killed, and the next one starts.
limit=${JOB_LIMIT:-20m}

if [ $# -gt 0 ]; then jobs=("$@"); else jobs=("${all[@]}"); fi

logs=$(mktemp -d)
trap 'rm -rf "$logs"' EXIT
summary=()
failed=()
began=$SECONDS

for job in "${jobs[@]}"; do
    printf '\n==== %s ====\n' "$job"
    at=$SECONDS
    status=0
    timeout --kill-after=20 "$limit" "ci/$job.sh" </dev/null 2>&1 | tee "$logs/$job" || status=${PIPESTATUS[0]}
    case $status in
        0) verdict=ok ;;
        124 | 137) verdict="FAILED (ran past $limit)" ;;
        *) verdict="FAILED (exit status $status)" ;;
    esac
    [ "$status" -eq 0 ] || failed+=("$job")
    line=$(printf '%-12s %5d s  %s' "$job" "$((SECONDS - at))" "$verdict")
    summary+=("$line")
    printf -- '---- %s\n' "$line"
done

# The names of the tests that failed in a log, and what their panics say.
failed_tests() {
    awk '/^test .* FAILED$/ { print } /panicked at/ { print; if (getline > 0) print }' "$1"
}

printf '\n==== summary ====\n'
if [ -f "$logs/test" ]; then
    grep '^test result:' "$logs/test" || echo "no test results"
fi
for job in "${failed[@]}"; do
    printf 'failed in %s:\n' "$job"
    failed_tests "$logs/$job" | sed -n '1,60s/^/    /p'
done
printf '%s\n' "${summary[@]}"
printf '%-12s %5d s  ' all "$((SECONDS - began))"
if [ "${#failed[@]}" -eq 0 ]; then
    echo ok
else
    echo "${#failed[@]} of ${#jobs[@]} jobs failed"
    exit 1
fi
