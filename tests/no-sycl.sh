#!/usr/bin/env bash
# Builds a copy of the checkout without SYCL: the build fails with one message, and the stub works on request.
set -euo pipefail
cd "$(dirname "$0")/.."

# Outside of the checkout, since a build below it would use its .venv.
place=$(mktemp -d -t usmq-no-sycl.XXXXXX)
trap 'rm -rf "$place"' EXIT
export CARGO_TARGET_DIR="$place/target"
mkdir -p "$place/usmq"
tar -c --exclude=./.git --exclude='./.venv*' --exclude=./target . | tar -x -C "$place/usmq"

# python3 here has no packages, and folders with icpx are not searched.
"${PYTHON:-python3}" -m venv --without-pip "$place/python"
path="$place/python/bin"
IFS=: read -ra folders <<< "$PATH"
for folder in "${folders[@]}"; do
  [ -x "$folder/icpx" ] || path="$path:$folder"
done
export PATH="$path"
unset PYO3_PYTHON VIRTUAL_ENV USMQ_SYCL_ROOT ONEAPI_ROOT CMPLR_ROOT USMQ_ALLOW_STUB DOCS_RS

cd "$place/usmq/tests/stub"
cp ../../Cargo.lock .
if cargo build 2> "$place/log"; then
  echo "no-sycl: the build succeeded without SYCL" >&2
  exit 1
fi
if [ "$(grep -c 'no SYCL runtime was found' "$place/log")" != 1 ] || grep -q 'panicked at' "$place/log"; then
  cat "$place/log" >&2
  echo "no-sycl: the build failed, but not with the one message about SYCL" >&2
  exit 1
fi
echo "no-sycl: the build fails with the message"

USMQ_ALLOW_STUB=1 cargo run
DOCS_RS=1 cargo run

# The stub is used only while it is requested.
if cargo build 2> "$place/log"; then
  echo "no-sycl: the stub is still used without USMQ_ALLOW_STUB" >&2
  exit 1
fi
grep -q 'no SYCL runtime was found' "$place/log"
echo "no-sycl: without the variable the build looks for SYCL again"
