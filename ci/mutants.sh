#!/usr/bin/env bash
# Mutation check: changes the code in small ways, one at a time, and looks whether a test notices. .cargo/mutants.toml says where.
# What is found is kept in target/mutants/found, and a later run goes on from there: what was caught is not tried again.
#
#   ci/mutants.sh                         all of it: three hours on two cores
#   ci/mutants.sh wheel                   one part: wheel, buffer, notify or maintenance
#   ci/mutants.sh wheel --shard 0/4       a quarter of one part, or any other option of cargo-mutants
#   ci/mutants.sh summary                 how many were caught, and what was not
#
# Each mutant meets the unit tests first; those that survive meet what is quick of tests/*, and those that survive that the slow rest. Only
# the stress test and the soak, which wait for chance, are left out.
set -euo pipefail
cd "$(dirname "$0")/.."

export CARGO_TARGET_DIR=${CARGO_TARGET_DIR:-$PWD/target}/mutants
found=$CARGO_TARGET_DIR/found
parts=(wheel buffer notify maintenance)
# Test programs that take long, look at the whole process, or do not compile as a part of another.
slow=(allocations overshoot hostile_callbacks hostile_clocks life_and_death overload model model_bounded linearizable)
# Tests in the other programs that take long.
later=(
    at_the_default_resolution a_table_that_grew many_writers_and without_maintenance_of_its_own newcomers:: destructors_that_call
    moka_498 moka_590 operations_alone while_other_threads walks_ the_dead_are_found a_deadline_that_moves an_entry_is_heard disabled_means
    a_slow_listener
)
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

# Mutates copies of the folder where it is called, as many at a time as MUTANTS_JOBS says. What `cargo test` is to build follows "--",
# and what to leave out of it a second one.
#
# mutants PART OPTION... -- WHAT... [-- TEST OPTION...]
mutants() {
    local part=$1 options=() what=()
    shift
    while [ "$1" != -- ]; do
        options+=("$1")
        shift
    done
    shift
    while [ $# -gt 0 ] && [ "$1" != -- ]; do
        what+=("--cargo-arg=$1")
        shift
    done
    mkdir -p "$found/$part"
    # Exit status 2: some were not caught; 3: some hung. Both are for the summary.
    cargo mutants --iterate --jobs "${MUTANTS_JOBS:-2}" --output "$found/$part" "${options[@]}" "${what[@]}" -- "$@" || [ $? -le 3 ]
    # A test that hangs has noticed, too: not to be waited for again.
    cat "$found/$part"/mutants.out/timeout.txt >>"$found/$part/mutants.out/caught.txt"
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

# A copy without examples and benchmarks, where `tests/quick` is all test programs but the slow ones in one: it is linked once, and done in
# seconds.
whole() {
    local crate=$CARGO_TARGET_DIR/whole name
    rm -rf "$crate"
    mkdir -p "$crate/.cargo"
    cp -r src tests Cargo.toml Cargo.lock DESIGN.md README.md TESTING.md "$crate/"
    cp .cargo/mutants.toml "$crate/.cargo/"
    sed -i 's/^members = .*/members = []/; s/^autobenches = .*/&\nautotests = false/' "$crate/Cargo.toml"
    mkdir "$crate/tests/quick"
    for name in tests/*.rs; do
        name=$(basename "$name" .rs)
        case " ${slow[*]} stress soak " in
            *" $name "*) ;;
            *) printf '#[path = "../%s.rs"]\nmod %s;\n' "$name" "$name" ;;
        esac
    done >"$crate/tests/quick/main.rs"
    for name in quick "${slow[@]}"; do
        printf '\n[[test]]\nname = "%s"\n' "$name"
    done >>"$crate/Cargo.toml"
    # What the examples alone need.
    sed -i '/^# Of the examples alone/,/^$/{/^rlimit/!{/^$/!d}}' "$crate/Cargo.toml"
    cd "$crate"
    # A folder for each copy.
    unset CARGO_TARGET_DIR
}

part() {
    local part=$1 files=()
    shift
    case $part in
        wheel)
            files=(-f 'src/wheel/*.rs')
            wheel_alone "$@"
            ;;
        buffer | maintenance) files=(-f "src/$part/*.rs") ;;
        notify) files=(-f src/notify.rs) ;;
        *)
            echo "$part is not a part of this script; allowed are ${parts[*]} and summary" >&2
            exit 2
            ;;
    esac
    (
        whole
        # A mutant may also eat memory without end.
        ulimit -v 8000000
        export PROPTEST_CASES=32
        mutants "$part" "${files[@]}" "$@" -- --lib -- buffer:: maintenance:: cache::
        mutants "$part" "${files[@]}" "$@" -- --test=quick -- "${later[@]/#/--skip=}"
        mutants "$part" "${files[@]}" "$@" -- --test=quick "${slow[@]/#/--test=}"
    )
}

command -v cargo-mutants >/dev/null || cargo install --locked cargo-mutants
case ${1:-all} in
    summary) ;;
    all) for name in "${parts[@]}"; do part "$name"; done ;;
    *) part "$@" ;;
esac
summary
