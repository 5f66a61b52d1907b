#!/usr/bin/env bash
# The README's second command: unit tests, integration tests, doctests, the README's examples.
set -euo pipefail
cd "$(dirname "$0")/.."

cargo test
