#!/usr/bin/env bash
# Compares the public interface with that of an earlier revision, by cargo-semver-checks: a change
# that breaks callers fails, unless the version in Cargo.toml was raised for it. Skipped where the
# tool is not installed, or where there is no revision to compare with: the first is the newest tag.
#
#   ci/semver.sh              against the newest tag
#   ci/semver.sh REVISION     against this revision
set -euo pipefail
cd "$(dirname "$0")/.."

if ! cargo semver-checks --version >/dev/null 2>&1; then
    echo "skipped: cargo-semver-checks is not installed (cargo install --locked cargo-semver-checks)"
    exit 0
fi
baseline=${1:-$(git describe --tags --abbrev=0 2>/dev/null || true)}
if [ -z "$baseline" ]; then
    echo "skipped: no tag yet; name a revision to compare with"
    exit 0
fi
for package in wheelhouse wheelhouse-redis; do
    cargo semver-checks --package "$package" --baseline-rev "$baseline"
done
