#!/usr/bin/env bash
# Instructions per operation, counted by callgrind: the same on a quiet and on a noisy machine, so
# that a regression shows in CI.
#
#   benches/count.sh              print the table
#   benches/count.sh --save       also make it the baseline (benches/count.baseline)
#   benches/count.sh --check      fail if an operation takes over 5 % more instructions than the
#                                 baseline says, or if the baseline names other operations: after
#                                 adding or removing one, make a new baseline with --save
#   TOLERANCE=10 benches/count.sh --check
#
# Under valgrind a reading of the system's clock is a system call, so look-ups do not ask the coarse
# clock. With deadlines the counts are those of calls that read the exact clock: the processor's
# counter where the kernel's clock source is `tsc`. Compare counts of such machines only.
#
# Counts depend on the compiler: a baseline holds for the rustc named in its first line, and is
# compared with no other. They also depend on the number of processors, which sets the number of
# shards, so everything is counted on one.
set -euo pipefail
cd "$(dirname "$0")/.."

mode=${1:-}
tolerance=${TOLERANCE:-5}
baseline=benches/count.baseline
command -v valgrind >/dev/null || { echo "valgrind is not installed" >&2; exit 2; }

cargo build --quiet --release -p wheelhouse-bench --bin count
program=${CARGO_TARGET_DIR:-target}/release/count
table=$(mktemp)
trap 'rm -f "$table"' EXIT
echo "# $(rustc -V)" >"$table"

one=()
if command -v taskset >/dev/null; then
    one=(taskset -c "$(sed -n 's/^Cpus_allowed_list:[[:space:]]*\([0-9]*\).*/\1/p' /proc/self/status)")
fi

"$program" --list | while read -r operation count; do
    total=$("${one[@]}" valgrind --tool=callgrind --callgrind-out-file=/dev/null --collect-atstart=no --toggle-collect='count::measured' \
        "$program" "$operation" 2>&1 | sed -n 's/.*Collected *: *\([0-9]*\).*/\1/p')
    if [ -z "$total" ] || [ "$total" -eq 0 ]; then
        echo "nothing was counted for $operation" >&2
        exit 2
    fi
    echo "$operation $((total / count))" | tee -a "$table" | awk '{ printf "%-26s %8d instructions\n", $1, $2 }'
done

case $mode in
    --save) cp "$table" "$baseline"; echo "saved as $baseline" ;;
    --check)
        [ -f "$baseline" ] || { echo "there is no $baseline: make one with --save" >&2; exit 2; }
        names() { sed -n 's/^\([^# ]*\) .*/\1/p' "$1" | sort; }
        diff <(names "$baseline") <(names "$table") || { echo "operations came (>) or went (<) since the baseline: --save makes a new one" >&2; exit 1; }
        if ! head -n 1 "$baseline" | cmp -s - <(head -n 1 "$table"); then
            echo "not compared: the baseline was made by another compiler, $(head -n 1 "$baseline")"
            exit 0
        fi
        awk -v tolerance="$tolerance" '
            /^#/ { next }
            NR == FNR { before[$1] = $2; next }
            $2 > before[$1] * (1 + tolerance / 100) { printf "%s: %d instructions, %d before\n", $1, $2, before[$1]; worse = 1 }
            END { exit worse }
        ' "$baseline" "$table" && echo "no operation is over $tolerance % above the baseline"
        ;;
esac
