#!/usr/bin/env bash
# Mutation check: changes the code in small ways, one at a time, and looks whether a test notices. .cargo/mutants.toml says where.
# What is found is kept in target/mutants/found, and a later run goes on from there: what was caught is not tried again.
#
#   ci/mutants.sh                         all of it: an hour and a half on two cores
#   ci/mutants.sh wheel                   one part: wheel, buffer, notify or maintenance
#   ci/mutants.sh wheel --shard 0/4       a quarter of one part, or any other option of cargo-mutants
#   ci/mutants.sh summary                 how many were caught, and what was not
#
# Each mutant meets the quick tests of its part first; those that survive meet all of the part's.
set -euo pipefail
cd "$(dirname "$0")/.."

export CARGO_TARGET_DIR=${CARGO_TARGET_DIR:-$PWD/target}/mutants
found=$CARGO_TARGET_DIR/found
parts=(wheel buffer notify maintenance)
# Nobody looks at them in a debugger.
export CARGO_PROFILE_DEV_DEBUG=0

summary() {
    local caught=0 missed=0 part list
    for part in "${parts[@]}"; do
        list=$found/$part/mutants.out
        [ -d "$list" ] || continue
        # Caught in this run or in an earlier one; a timeout is a failed test, too.
        local here gone
        here=$(cat "$list"/{caught,timeout,previously_caught}.txt 2>/dev/null | sort -u | wc -l)
        gone=$(wc -l <"$list/missed.txt")
        printf '%-12s %4d caught, %d not\n' "$part" "$here" "$gone"
        sed 's/^/    /' "$list/missed.txt"
        caught=$((caught + here)) missed=$((missed + gone))
    done
    printf 'all: %d of %d\n' "$caught" "$((caught + missed))"
}

# mutants PART OPTION... -- ARGUMENT OF cargo test...
mutants() {
    local part=$1
    shift
    mkdir -p "$found/$part"
    # Exit status 2: some were not caught; 3: some hung. Both are for the summary.
    cargo mutants --iterate --output "$found/$part" "$@" || [ $? -le 3 ]
}

# The wheel compiles without the cache around it: a crate of the wheel alone, with its tests, builds in a second, so that a mutant takes
# five rather than thirty. It is made anew each time and mutated in place.
wheel_alone() {
    local crate=$CARGO_TARGET_DIR/wheel-alone
    rm -rf "$crate"
    mkdir -p "$crate/.cargo" "$found/wheel"
    cp -r src Cargo.lock "$crate/"
    cp .cargo/mutants.toml "$crate/.cargo/"
    printf '#![allow(dead_code, unused_imports)]\n' >"$crate/src/lib.rs"
    printf 'mod %s;\n' list node sync time wheel >>"$crate/src/lib.rs"
    sed -n '/^\[dependencies\]/,/^$/p' Cargo.toml >"$crate/dependencies"
    {
        printf '[package]\nname = "wheel-alone"\nversion = "0.0.0"\nedition = "2024"\n\n'
        cat "$crate/dependencies"
        printf '[workspace]\n\n[lints.rust]\nunexpected_cfgs = "allow"\n'
    } >"$crate/Cargo.toml"
    (
        cd "$crate"
        PROPTEST_CASES=16 cargo mutants --iterate --in-place --output "$found/wheel" -f 'src/wheel/*.rs' "$@" -- --lib wheel:: || [ $? -le 3 ]
    )
}

part() {
    local part=$1
    shift
    case $part in
        wheel)
            wheel_alone "$@"
            mutants wheel -f 'src/wheel/*.rs' "$@" -- --lib --test regressions_wheel --test deadlines --test wheel_snapshot
            ;;
        buffer)
            mutants buffer -f 'src/buffer/*.rs' "$@" -- --lib -- buffer:: map:: maintenance::
            mutants buffer -f 'src/buffer/*.rs' "$@" -- --lib --test bound --test memory --test reentry
            ;;
        notify)
            mutants notify -f src/notify.rs "$@" -- --test listener
            mutants notify -f src/notify.rs "$@" -- --lib --test reentry --test stats --test scheduler
            ;;
        maintenance)
            mutants maintenance -f 'src/maintenance/*.rs' "$@" -- --lib maintenance::
            PROPTEST_CASES=64 mutants maintenance -f 'src/maintenance/*.rs' "$@" -- --lib --tests
            ;;
        *)
            echo "$part is not a part of this script; allowed are ${parts[*]} and summary" >&2
            exit 2
            ;;
    esac
}

command -v cargo-mutants >/dev/null || cargo install --locked cargo-mutants
case ${1:-all} in
    summary) ;;
    all) for name in "${parts[@]}"; do part "$name"; done ;;
    *) part "$@" ;;
esac
summary
