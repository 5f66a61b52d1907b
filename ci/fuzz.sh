#!/usr/bin/env bash
# Runs each fuzz target for a while, starting from the inputs in fuzz/corpus. The inputs that a run
# finds stay out of the repository.
#
#   ci/fuzz.sh                    all targets, 20 seconds each
#   ci/fuzz.sh 300                five minutes each
#   ci/fuzz.sh 300 map cache      these targets
#   ci/fuzz.sh keep               keeps the 35 inputs of each target that together reach most
#
# A failure leaves its input in fuzz/artifacts/TARGET. `cargo +nightly fuzz run TARGET FILE` repeats
# it, and `cargo +nightly fuzz tmin TARGET FILE` makes it smaller.
set -euo pipefail
cd "$(dirname "$0")/.."

seconds=${1:-20}
shift || true
targets=("$@")
command -v cargo-fuzz >/dev/null || cargo install --locked cargo-fuzz
if [ "${#targets[@]}" -eq 0 ]; then
    targets=(wheel list map buffers policy cache bounded reentry settings load)
    # All at once, which uses all cores.
    cargo +nightly fuzz build
fi

# Long programs are slow and find little more than short ones: with a few hundred operations, all
# invariants can be checked after each.
declare -A longest=([wheel]=600 [list]=600 [map]=400 [cache]=500 [bounded]=600 [reentry]=500 [buffers]=400 [policy]=500 [settings]=200 [load]=400)
# Inputs stored for a target: those that reach most, chosen one after the other.
kept=35

found=${CARGO_TARGET_DIR:-fuzz/target}/found
for target in "${targets[@]}"; do
    mkdir -p "$found/$target" "fuzz/corpus/$target"
    if [ "$seconds" = keep ]; then
        fresh=$(mktemp -d)
        mkdir "$fresh/inputs"
        cargo +nightly fuzz run "$target" "$fresh/inputs" "fuzz/corpus/$target" "$found/$target" -- \
            -set_cover_merge=1 -merge_control_file="$fresh/features" -max_len="${longest[$target]}"
        rm -rf "fuzz/corpus/$target"
        mkdir "fuzz/corpus/$target"
        # libFuzzer has noted which features each input reaches. Each turn of the loop takes the
        # input that reaches most features which no other has reached yet.
        awk -v kept="$kept" '
            NR == 1 { files = $1 }
            NR > 2 && NR <= 2 + files { name[NR - 3] = $0 }
            $1 == "FT" { reaches[$2] = $0 }
            END {
                for (turn = 0; turn < kept; turn++) {
                    most = 0
                    for (input in reaches) {
                        fresh = 0
                        count = split(reaches[input], word)
                        for (i = 3; i <= count; i++) fresh += !(word[i] in seen)
                        if (fresh > most) { most = fresh; best = input }
                    }
                    if (most == 0) exit
                    print name[best]
                    count = split(reaches[best], word)
                    for (i = 3; i <= count; i++) seen[word[i]]
                }
            }' "$fresh/features" | while read -r file; do
            cp "$file" "fuzz/corpus/$target/"
        done
        rm -rf "$fresh"
    else
        cargo +nightly fuzz run "$target" "$found/$target" "fuzz/corpus/$target" -- \
            -max_total_time="$seconds" -max_len="${longest[$target]}" -timeout=30 -rss_limit_mb=3000 -print_funcs=0 -print_final_stats=1
    fi
done
