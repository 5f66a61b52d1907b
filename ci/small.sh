#!/usr/bin/env bash
# By hand: what the cache adds to a small program (benches/small): its size, stripped; the time of
# its first build, without the downloads; and the stack that a thread needs for one call, optimized
# and not, by valgrind. Time and size depend on the compiler and the machine: it prints both.
#
#   ci/small.sh              all
#   ci/small.sh size stack   only these
set -euo pipefail
cd "$(dirname "$0")/.."

parts=("$@")
[ $# -gt 0 ] || parts=(size time stack)
manifest=benches/small/Cargo.toml
target=${CARGO_TARGET_DIR:-target}/small
export CARGO_INCREMENTAL=0
rustc -V

size() {
    cargo build --quiet --release --manifest-path "$manifest" --target-dir "$target"
    # Beside a program with nothing but the standard library's start and one line of output.
    mkdir -p "$target/empty"
    echo 'fn main() { println!("right"); }' >"$target/empty/main.rs"
    rustc -O -C strip=symbols -o "$target/empty/main" "$target/empty/main.rs"
    local with without
    with=$(stat -c %s "$target/release/wheelhouse-small")
    without=$(stat -c %s "$target/empty/main")
    echo "size: $((with / 1000)) KB; $(((with - without) / 1000)) KB more than an empty program"
}

time_of_build() {
    cargo fetch --quiet --manifest-path "$manifest"
    rm -rf "$target/anew"
    local began=$SECONDS
    cargo build --quiet --release --bin wheelhouse-small --manifest-path "$manifest" --target-dir "$target/anew"
    echo "first build: $((SECONDS - began)) s on $(nproc) processors"
    rm -rf "$target/anew"
}

# The bytes of stack of the thread that makes a call.
used() {
    valgrind --tool=drd --show-stack-usage=yes "$1" "$2" 2>&1 |
        sed -n 's/.*thread 2 .* used \([0-9]*\) bytes.*/\1/p'
}

stack() {
    command -v valgrind >/dev/null || {
        echo "stack: skipped, valgrind is not installed"
        return
    }
    cargo build --quiet --release --bin stack --manifest-path "$manifest" --target-dir "$target"
    cargo build --quiet --bin stack --manifest-path "$manifest" --target-dir "$target"
    local fast=$target/release/stack plain=$target/debug/stack
    local least_fast least_plain
    least_fast=$(used "$fast" nothing)
    least_plain=$(used "$plain" nothing)
    echo "bytes of stack, optimized and not, beside those of a thread that calls nothing ($least_fast, $least_plain):"
    "$plain" | while read -r call; do
        printf '%-24s %6d %6d\n' "$call" $(($(used "$fast" "$call") - least_fast)) $(($(used "$plain" "$call") - least_plain))
    done
}

for part in "${parts[@]}"; do
    case $part in
        size) size ;;
        time) time_of_build ;;
        stack) stack ;;
        *)
            echo "unknown: $part" >&2
            exit 2
            ;;
    esac
done
