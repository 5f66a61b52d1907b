#!/usr/bin/env bash
# Builds the documentation with warnings as errors: once as a user sees it (a link to a private item
# is an error there), once with the private items, whose links must resolve as well.
set -euo pipefail
cd "$(dirname "$0")/.."

export RUSTDOCFLAGS=-Dwarnings
cargo doc --no-deps

# What a reader of `Cache` needs first stands first.
page=${CARGO_TARGET_DIR:-target}/doc/wheelhouse/struct.Cache.html
first=$(grep -o 'id="method\.[a-z_]*"' "$page" | sed 's/.*\.\(.*\)"/\1/' | head -4 | xargs)
if [ "$first" != "builder new get insert" ]; then
    echo "the documentation of Cache begins with: $first" >&2
    exit 1
fi

cargo doc --no-deps --document-private-items
