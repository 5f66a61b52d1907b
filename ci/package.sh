#!/usr/bin/env bash
# What would be published, of both packages: packed, then unpacked and built; nothing is uploaded.
# Fails if the package of wheelhouse is larger than PACKAGE_LIMIT bytes (350,000).
set -euo pipefail
cd "$(dirname "$0")/.."

cargo publish --dry-run -p wheelhouse -p wheelhouse-redis
cargo package -p wheelhouse --list
# Where the file lies depends on the version of cargo; an older one may lie beside it.
crate=$(find "${CARGO_TARGET_DIR:-target}/package" -name 'wheelhouse-[0-9]*.crate' -exec ls -t {} + | head -n 1)
size=$(stat -c %s "$crate")
limit=${PACKAGE_LIMIT:-350000}
echo "the package of wheelhouse has $size bytes"
if [ "$size" -gt "$limit" ]; then
    echo "at most $limit are allowed" >&2
    exit 1
fi
