#!/usr/bin/env bash
# Shows which lines of the wheel, the buffers and maintenance the fuzz targets reach with the inputs
# in fuzz/corpus. Fails below 95 percent.
#
#   ci/coverage.sh                 the percentage of each file, then the lines that no input reaches
#   ci/coverage.sh src/eviction    the same for other files, without a limit
#
# Needs llvm-profdata and llvm-cov, 19 or later: `rustup component add llvm-tools`, or a package of
# the distribution (such as llvm-19).
#
# Only code that ships counts: not the oracles, the checks of invariants and the entry points that
# only tests and fuzz targets compile. The targets run each stored input once, without a sanitizer
# and without searching.
set -euo pipefail
cd "$(dirname "$0")/.."

limit=95
parts=(src/wheel src/buffer.rs src/engine)
if [ $# -gt 0 ]; then
    limit=0
    parts=("$@")
fi

# tool NAME: the compiler's own, or the newest at hand.
tool() {
    local own path version
    own=$(rustc --print sysroot)/lib/rustlib/$(rustc -vV | sed -n 's/^host: //p')/bin/$1
    for path in "$own" $(for version in 25 24 23 22 21 20 19; do echo "$1-$version"; done) "$1"; do
        if command -v "$path" >/dev/null; then
            version=$("$path" --version | sed -n 's/.*LLVM version \([0-9]*\).*/\1/p')
            if [ "${version:-0}" -ge 19 ]; then
                echo "$path"
                return
            fi
        fi
    done
    echo "$1 of LLVM 19 or later is not installed" >&2
    exit 2
}
profdata=$(tool llvm-profdata)
cov=$(tool llvm-cov)

export CARGO_TARGET_DIR=${CARGO_TARGET_DIR:-$PWD/target}/coverage
export RUSTFLAGS="-Cinstrument-coverage --cfg fuzzing ${RUSTFLAGS:-}"
# Without optimisation, so that each line keeps its counter.
cargo build --manifest-path fuzz/Cargo.toml

raw=$CARGO_TARGET_DIR/raw
rm -rf "$raw"
mkdir -p "$raw"
objects=()
for corpus in fuzz/corpus/*; do
    target=$(basename "$corpus")
    program=$CARGO_TARGET_DIR/debug/$target
    # libFuzzer runs files named one by one once each, even without its own instrumentation.
    find "$corpus" -type f -print0 | LLVM_PROFILE_FILE=$raw/$target.%p.profraw xargs -0 "$program" >"$raw/$target.log" 2>&1 ||
        { tail -n 20 "$raw/$target.log" >&2; exit 1; }
    objects+=(--object "$program")
done
"$profdata" merge --sparse "$raw"/*.profraw --output "$raw/all.profdata"
files=$(find "${parts[@]}" -name '*.rs' ! -path '*/tests/*' | sort)
# shellcheck disable=SC2086 # a list of files
"$cov" export --format=lcov --instr-profile="$raw/all.profdata" "${objects[@]}" --sources $files >"$raw/lcov"

awk -v root="$PWD/" -v limit="$limit" '
    /^SF:/ { file = substr($0, 4); sub(root, "", file) }
    /^DA:/ {
        split(substr($0, 4), at, ",")
        lines[file]++
        if (at[2] > 0) hit[file]++; else missed = missed sprintf("%s:%d\n", file, at[1])
    }
    END {
        for (file in lines) {
            printf "%6.1f %%  %4d of %4d  %s\n", 100 * hit[file] / lines[file], hit[file], lines[file], file | "sort -k6"
            all += lines[file]; reached += hit[file]
        }
        close("sort -k6")
        share = 100 * reached / all
        printf "%6.1f %%  %4d of %4d  all\n\nnot reached:\n", share, reached, all
        close("cat")
        printf "%s", missed
        if (share < limit) { printf "fewer than %d in a hundred\n", limit; exit 1 }
    }' "$raw/lcov" | while IFS= read -r line; do
        # Beside each line that is not reached, what stands there.
        if [[ $line =~ ^(src/.*):([0-9]+)$ ]]; then
            printf '%-34s %s\n' "$line" "$(sed -n "${BASH_REMATCH[2]}s/^ *//p" "${BASH_REMATCH[1]}")"
        else
            printf '%s\n' "$line"
        fi
    done
