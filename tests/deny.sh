#!/bin/sh
# Runs cargo-deny with ../deny.toml. It fetches RustSec's advisory database and looks up known
# vulnerabilities.
set -eu

cd "$(dirname "$0")/.."
log=$(mktemp)
trap 'rm -f "$log"' EXIT

if ! cargo deny check licenses bans sources > "$log" 2>&1; then
    cat "$log" >&2
    echo "deny: FAILED: see above" >&2
    exit 1
fi
crates=$(cargo tree --all-features --prefix none --no-dedupe | awk '{ print $1, $2 }' | sort -u | wc -l)
if cargo deny fetch db > "$log" 2>&1; then
    if ! cargo deny check advisories > "$log" 2>&1; then
        cat "$log" >&2
        echo "deny: FAILED: see above" >&2
        exit 1
    fi
    advisories="no known vulnerability"
elif [ -n "${CI:-}" ]; then
    cat "$log" >&2
    echo "deny: FAILED: the advisory database cannot be fetched" >&2
    exit 1
else
    advisories="vulnerabilities NOT checked, since the advisory database cannot be fetched"
fi
echo "deny: $crates crates: licences and sources match deny.toml; $advisories"
