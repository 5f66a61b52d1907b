#!/usr/bin/env bash
# Mutation check: changes the code in small ways, one at a time, and tests whether a test fails.
# .cargo/mutants.toml says where. Results are stored in target/mutants/found, and a later run
# continues from there: it does not repeat mutants that were caught.
#
#   ci/mutants.sh                         all of it: three hours on two cores
#   ci/mutants.sh wheel                   one part: wheel, buffer or engine
#   ci/mutants.sh wheel --shard 0/4       a quarter of one part, or any option of cargo-mutants
#   ci/mutants.sh summary                 how many were caught, and what was not
#
# Each mutant runs the unit tests first; the survivors run the quick tests of tests/*, and the
# survivors of these the slow ones. Only the stress test and the soak, which depend on chance, and
# the tests of the sources are left out.
set -euo pipefail
cd "$(dirname "$0")/.."

export CARGO_TARGET_DIR=${CARGO_TARGET_DIR:-$PWD/target}/mutants
found=$CARGO_TARGET_DIR/found
parts=(wheel buffer engine)
# Test programs whose tests are mostly quick, and those that take long or measure the whole process.
quick=(cache loading snapshots)
slow=(allocations concurrency leaked_threads linearizable)
# Tests in the quick programs that take long.
later=(
    misbehaviour:: tickers_that_misbehave:: random_calls::
    at_the_default_resolution a_table_that_grew many_writers_and without_maintenance_of_its_own new_keys_are_admitted:: destructors_that_call
    moka_498 moka_590 operations_alone while_other_threads walks_ iterations_ a_deadline_that_moves
    expired_entries_are_removed_before_the_pass an_expiry_is_delivered disabled_runs a_slow_listener
    due_entries_wait_for_a_few
)
# Mutants are not debugged.
export CARGO_PROFILE_DEV_DEBUG=0

# The files of a part, as options of cargo-mutants.
files() {
    case $1 in
        wheel | engine) echo "-f src/$1/*.rs" ;;
        buffer) echo "-f src/$1.rs" ;;
        *)
            echo "$1 is not a part of this script; allowed are ${parts[*]} and summary" >&2
            exit 2
            ;;
    esac
}

# What cargo-mutants has found about a part, in this run and in earlier ones. It identifies a mutant
# by name and line: some of those that it calls caught before do not compile, and some belong to an
# earlier state of the code. Mutants that were not tried yet count as not caught. For figures to
# quote, begin with an empty folder.
summary() {
    local caught=0 tried=0 part options names
    for part in "${parts[@]}"; do
        [ -d "$found/$part" ] || continue
        local list=$found/$part/mutants.out all here gone
        names=$(files "$part")
        read -ra options <<<"$names"
        touch "$found/$part/unviable"
        all=$(cargo mutants --list "${options[@]}" | sort | comm -23 - <(sort -u "$found/$part/unviable"))
        gone=$(comm -12 <(echo "$all") <(sort -u "$list/missed.txt"))
        here=$(comm -12 <(echo "$all") <(sort -u "$list"/{caught,timeout,previously_caught}.txt) | wc -l)
        printf '%-12s %4d caught of %d\n' "$part" "$here" "$(wc -l <<<"$all")"
        sed -n 's/^./    &/p' <<<"$gone"
        caught=$((caught + here)) tried=$((tried + $(wc -l <<<"$all")))
    done
    printf 'all: %d of %d\n' "$caught" "$tried"
}

# What one call of cargo-mutants leaves behind for the next, and for the summary.
keep() {
    local list=$1/mutants.out
    # A test that hangs has caught the mutant, too: do not wait for it again.
    cat "$list/timeout.txt" >>"$list/caught.txt"
    cat "$list/unviable.txt" >>"$1/unviable"
}

# Mutates copies of the current folder, MUTANTS_JOBS of them at a time. After "--" follows what
# `cargo test` builds, after a second "--" what it leaves out.
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
    keep "$found/$part"
}

# The wheel compiles without the cache around it: a crate of the wheel alone, with its tests, builds
# in a second, so that a mutant takes five seconds rather than thirty. The crate is made again each
# time and mutated in place.
wheel_alone() {
    local crate=$CARGO_TARGET_DIR/wheel-alone
    rm -rf "$crate"
    mkdir -p "$crate/.cargo" "$found/wheel"
    cp -r src checks Cargo.lock "$crate/"
    cp .cargo/mutants.toml "$crate/.cargo/"
    printf '#![allow(dead_code, unused_imports)]\n' >"$crate/src/lib.rs"
    printf 'mod %s;\n' hash list node process sync time wheel >>"$crate/src/lib.rs"
    sed -n '/^\[workspace\.dependencies\]/,/^$/{/^crossbeam-epoch/d;s/^\[workspace\./[/;p;}' Cargo.toml >"$crate/dependencies"
    {
        printf '[package]\nname = "wheel-alone"\nversion = "0.0.0"\nedition = "2024"\n\n'
        cat "$crate/dependencies"
        printf '[workspace]\n\n[lints.rust]\nunexpected_cfgs = "allow"\n'
    } >"$crate/Cargo.toml"
    (
        cd "$crate"
        PROPTEST_CASES=16 cargo mutants --iterate --in-place --output "$found/wheel" -f 'src/wheel/*.rs' "$@" -- --lib wheel:: || [ $? -le 3 ]
    )
    keep "$found/wheel"
}

# A copy without examples and benchmarks.
whole() {
    local crate=$CARGO_TARGET_DIR/whole
    rm -rf "$crate"
    mkdir -p "$crate/.cargo"
    cp -r src tests checks Cargo.toml Cargo.lock DESIGN.md README.md TESTING.md "$crate/"
    cp .cargo/mutants.toml "$crate/.cargo/"
    sed -i 's/^members = .*/members = []/' "$crate/Cargo.toml"
    # Dependencies that only the examples need.
    sed -i '/^# Of the examples alone/,/^$/{/^rlimit/!{/^$/!d}}' "$crate/Cargo.toml"
    cd "$crate"
    # A folder for each copy.
    unset CARGO_TARGET_DIR
}

part() {
    local part=$1 options names
    shift
    names=$(files "$part")
    read -ra options <<<"$names"
    if [ "$part" = wheel ]; then
        wheel_alone "$@"
    fi
    (
        whole
        # A mutant may also use memory without end.
        ulimit -v 8000000
        export PROPTEST_CASES=32
        mutants "$part" "${options[@]}" "$@" -- --lib -- buffer:: engine:: cache::
        mutants "$part" "${options[@]}" "$@" -- "${quick[@]/#/--test=}" -- "${later[@]/#/--skip=}"
        mutants "$part" "${options[@]}" "$@" -- "${quick[@]/#/--test=}" "${slow[@]/#/--test=}" -- --skip=stress::
    )
}

command -v cargo-mutants >/dev/null || cargo install --locked cargo-mutants
case ${1:-all} in
    summary) ;;
    all) for name in "${parts[@]}"; do part "$name"; done ;;
    *) part "$@" ;;
esac
summary
