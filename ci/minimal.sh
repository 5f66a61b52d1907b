#!/usr/bin/env bash
# By hand: the two packages that are published, with the oldest versions of their dependencies that
# their manifests allow. What only their tests need is left out. Needs nightly, for cargo's
# -Zdirect-minimal-versions.
set -euo pipefail
cd "$(dirname "$0")/.."

ci/toolchain.sh nightly
copy=$(realpath -m "${CARGO_TARGET_DIR:-target}")/minimal
rm -rf "$copy/source"
mkdir -p "$copy/source/redis"
# The manifests, without what is for tests, and without the other packages.
published() {
    awk '/^\[/ { keep = !/dev-dependencies|^\[\[/ } keep' "$1"
}
published Cargo.toml | sed 's/^members = .*/members = ["redis"]/' >"$copy/source/Cargo.toml"
published redis/Cargo.toml >"$copy/source/redis/Cargo.toml"
cp -r src README.md CHANGELOG.md "$copy/source"
cp -r redis/src redis/README.md "$copy/source/redis"
cd "$copy/source"
cargo +nightly update -Zdirect-minimal-versions
cargo +nightly tree --depth 1 --all-features --workspace --edges normal
for package in ${*:-wheelhouse wheelhouse-redis}; do
    cargo +nightly check -p "$package" --all-features --target-dir "$copy/build"
done
