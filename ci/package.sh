#!/usr/bin/env bash
# What would be published: packed from a clean tree, then unpacked and built.
set -euo pipefail
cd "$(dirname "$0")/.."

cargo package -p wheelhouse
cargo package -p wheelhouse --list
