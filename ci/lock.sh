#!/usr/bin/env bash
# What a user's project inherits: the lock file of an empty crate that depends on wheelhouse. Prints
# how many packages it names. Fails if there are more than LOCKED_PACKAGES (47), or if one of them
# serves only this repository's models, tests, examples or benchmarks.
set -euo pipefail
cd "$(dirname "$0")/.."

limit=${LOCKED_PACKAGES:-47}
root=$PWD
crate=$(mktemp -d)
trap 'rm -rf "$crate"' EXIT
mkdir "$crate/src"
touch "$crate/src/lib.rs"
cat >"$crate/Cargo.toml" <<EOF
[package]
name = "empty"
version = "0.0.0"
edition = "2024"

[dependencies]
wheelhouse = { path = "$root" }

[workspace]
EOF
cargo generate-lockfile --quiet --manifest-path "$crate/Cargo.toml"
mapfile -t names < <(sed -n 's/^name = "\(.*\)"$/\1/p' "$crate/Cargo.lock" | sort -u)

# What stands in the sections for development and for models.
mapfile -t foreign < <(awk '
    /^\[/ { wanted = /dev-dependencies\]$/ || /^\[target.*wheelhouse_.*dependencies\]$/ }
    wanted && /^[A-Za-z0-9_-]+(\.workspace)? *=/ { sub(/[. =].*/, ""); print }' Cargo.toml models/Cargo.toml | sort -u)
status=0
for name in "${foreign[@]}"; do
    # parking_lot needs it, too.
    [ "$name" = libc ] && continue
    case " ${names[*]} " in
    *" $name "*)
        echo "a user's lock file names $name, which only this repository needs" >&2
        status=1
        ;;
    esac
done
for name in loom shuttle proptest; do
    case " ${foreign[*]} " in
    *" $name "*) ;;
    *)
        echo "$name is not among the packages looked for: this script reads the manifests wrongly" >&2
        status=1
        ;;
    esac
done
count=$(grep -c '^name = ' "$crate/Cargo.lock")
echo "a crate that depends on wheelhouse locks $count packages, itself included"
if [ "$count" -gt "$limit" ]; then
    echo "at most $limit are allowed" >&2
    status=1
fi
exit $status
