#!/usr/bin/env bash
# Builds the documentation with warnings as errors: once as a user sees it (a link to a private item
# is an error there), once with the private items, whose links must resolve as well.
set -euo pipefail
cd "$(dirname "$0")/.."

export RUSTDOCFLAGS=-Dwarnings
cargo doc --no-deps
cargo doc --no-deps --document-private-items
