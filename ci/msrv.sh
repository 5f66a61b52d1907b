#!/usr/bin/env bash
# The crate, as its users build it, with the oldest compiler that the manifest allows: a toolchain
# that is installed, or Debian's package rustc-web of that version, unpacked in a folder of its own,
# or a toolchain that rustup fetches. Skipped where none can be had.
#
#   ci/msrv.sh
#   ci/msrv.sh --version    only names the compiler
#   ci/msrv.sh --debian     Debian's compiler, even where a toolchain is installed
set -euo pipefail
cd "$(dirname "$0")/.."

version=$(sed -n 's/^rust-version = "\(.*\)"$/\1/p' Cargo.toml)
if [ "${1:-}" = --version ]; then
    echo "$version"
    exit
fi

# Debian's compiler, with what it is linked to. Only unpacked, nothing is installed. Cargo is
# rustup's: what decides is the compiler.
debian_compiler() {
    local root=$1 found=() name exact
    for name in rustc-web libstd-rust-web-dev "libstd-rust-web-$version"; do
        exact=$(apt-cache madison "$name" 2>/dev/null | awk -v want="$version." '$3 ~ "^" want { print $3; exit }')
        [ -n "$exact" ] || return 1
        found+=("$name=$exact")
    done
    found+=("$(apt-cache depends "libstd-rust-web-$version" | sed -n 's/.*Depends: \(libllvm.*\)/\1/p')")
    rm -rf "$root"
    mkdir -p "$root"
    (cd "$root" && apt-get download "${found[@]}") >&2 || return 1
    for name in "$root"/*.deb; do
        dpkg-deb -x "$name" "$root"
        rm "$name"
    done
}

target=${CARGO_TARGET_DIR:-target}/msrv
root=$(realpath -m "$target/debian-$version")
if [ "${1:-}" != --debian ] && rustup run "$version" rustc -V >/dev/null 2>&1; then
    export RUSTUP_TOOLCHAIN=$version
elif [ -x "$root/usr/bin/rustc" ] || debian_compiler "$root"; then
    export RUSTC=$root/usr/bin/rustc
    export LD_LIBRARY_PATH=$root/usr/lib/x86_64-linux-gnu${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
elif ci/toolchain.sh "$version"; then
    export RUSTUP_TOOLCHAIN=$version
else
    echo "skipped: Rust $version is not installed, and cannot be fetched"
    exit 0
fi
"${RUSTC:-rustc}" --version
for features in "" serde quanta crossbeam-epoch; do
    cargo check -p wheelhouse --features "$features" --target-dir "$target"
done
