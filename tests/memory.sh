#!/bin/sh
# Runs the Rust tests of the Arrow, DLPack and array interface interchange under valgrind: invalid accesses
# and leaked memory fail. Tests that launch kernels are left out: the driver's compiler takes minutes there.
set -eu

cd "$(dirname "$0")/.."
root=$(pwd)
logs=${CARGO_TARGET_DIR:-$root/target}/memory
rm -rf "$logs"
mkdir -p "$logs"

# "Possibly" lost and still reachable memory is what libsycl and the driver keep in their globals.
kinds='"--leak-check=full", "--show-leak-kinds=definite", "--errors-for-leak-kinds=definite"'
files="\"--suppressions=$root/tests/memory.supp\", \"--log-file=$logs/%p.log\""
runner="target.'cfg(all())'.runner = [\"valgrind\", $kinds, $files, \"--num-callers=60\", \"--error-exitcode=9\"]"

# Makes every allocation of usmq a runtime allocation; one device is enough.
export USMQ_POOL=0 RUST_TEST_THREADS=1
test_all() {
    cargo test --config "$runner" --features arrow --no-fail-fast "$@" >> "$logs/tests.txt" 2>&1 || failed=yes
}
failed=no
test_all --lib -- interop::arrow interop::dlpack
test_all --test suite -- arrow:: arrow_release:: arrow_streams:: dlpack:: suai:: --skip slices_of_every_type \
    --skip an_export_ordered_on_a_queue

tests=$(grep -c '^test .* ok$' "$logs/tests.txt" || true)
runs=$(cat "$logs"/*.log 2> /dev/null | grep -c 'ERROR SUMMARY' || true)
errors=$(cat "$logs"/*.log 2> /dev/null | awk '/ERROR SUMMARY/ { sum += $4 } END { print sum + 0 }')
if [ "$failed" = yes ] || [ "$errors" -gt 0 ] || [ "$runs" -ne 2 ] || [ "$tests" -eq 0 ]; then
    cat "$logs/tests.txt" >&2
    for log in "$logs"/*.log; do
        grep -q 'ERROR SUMMARY: 0 errors' "$log" || cat "$log" >&2
    done
    echo "memory: FAILED: $tests tests passed in $runs of 2 runs under valgrind, $errors errors; see above" >&2
    exit 1
fi
echo "memory: $tests tests under valgrind: no invalid access, no leak"
