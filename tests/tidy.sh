#!/bin/sh
# Runs clang-tidy on the C++ shim, with the headers that cargo generated and the compiler headers in .venv.
set -eu

cd "$(dirname "$0")/.."
target=${CARGO_TARGET_DIR:-target}
tidy=${CLANG_TIDY:-.venv/bin/clang-tidy}
cargo check --quiet
# The latest folder of the build script: there is one for each set of features.
generated=$(ls -td "$target"/debug/build/usmq-*/out/cxxbridge | head -1)
builtin=$(dirname "$(ls -d "$PWD"/.venv/lib/clang/*/include | tail -1)")

failed=no
sources=$(ls cpp/*.cc layers/*.cc layers/*/*.cc)
for source in $sources; do
    "$tidy" --quiet "$source" -- -std=c++17 -DSYCL_DISABLE_FSYCL_SYCLHPP_WARNING -I "$generated/include" -I "$generated/crate" \
        -isystem .venv/include -resource-dir "$builtin" 2> "$target/tidy.txt" || {
        cat "$target/tidy.txt" >&2
        failed=yes
    }
done
if [ "$failed" = yes ]; then
    echo "tidy: FAILED: see above" >&2
    exit 1
fi
echo "tidy: $(echo "$sources" | wc -w) files of cpp/ and layers/, no warning of clang-tidy"
