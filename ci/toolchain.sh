#!/usr/bin/env bash
# Makes sure that a toolchain is installed: ci/toolchain.sh NAME. Fails if it is not and cannot be
# fetched within TOOLCHAIN_LIMIT seconds (300).
set -euo pipefail

name=$1
case $(rustup toolchain list) in
"$name"[-\ ]* | *$'\n'"$name"[-\ ]* | "$name" | *$'\n'"$name"$'\n'*) exit 0 ;;
esac
timeout --kill-after=5 "${TOOLCHAIN_LIMIT:-300}" rustup toolchain install "$name" --profile minimal
