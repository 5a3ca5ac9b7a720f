#!/bin/sh
# Random inputs, chosen by libFuzzer for the code that they reach and watched by AddressSanitizer, for FUZZ_MINUTES on
# each target of targets/. What it finds is written as one line for corpus/<target>.txt, which `cargo test` tries too.
set -eu

cd "$(dirname "$0")/../.."
root=$(pwd)
minutes=${FUZZ_MINUTES:-10}
targets=${FUZZ_TARGETS:-"arrow dlpack format selector signature trace"}
folder=${CARGO_TARGET_DIR:-$root/target}/libfuzzer
unset CARGO_TARGET_DIR

cargo +nightly fuzz build --fuzz-dir tests/fuzz --target-dir "$folder"

# What libsycl and the driver keep until the end counts as lost; shapes that nothing has room for must fail as errors.
export ASAN_OPTIONS=detect_leaks=0:allocator_may_return_null=1
run() {
    target=$1
    work=$folder/runs/$target
    rm -rf "$work"
    mkdir -p "$work/corpus" "$work/kept" "$work/found"
    python3 -c 'import sys
for number, line in enumerate(open(sys.argv[1])):
    open(f"{sys.argv[2]}/{number}", "wb").write(bytes.fromhex(line.split()[0] if line.strip() else ""))' \
        "tests/fuzz/corpus/$target.txt" "$work/kept"
    start=$(date +%s)
    "$folder"/*/release/"$target" "$work/corpus" "$work/kept" -max_total_time=$((minutes * 60)) -max_len=160 -timeout=120 -report_slow_units=120 \
        -malloc_limit_mb=0 -rss_limit_mb=6000 -print_final_stats=1 -artifact_prefix="$work/found/" > "$work/log.txt" 2>&1 || true
    seconds=$(($(date +%s) - start))
    tried=$(awk '/^stat::number_of_executed_units/ { print $2 }' "$work/log.txt")
    edges=$(grep -o 'cov: [0-9]*' "$work/log.txt" | tail -1)
    found=$(find "$work/found" -type f | wc -l)
    echo "$target ${tried:-0} $seconds $found" > "$work/result.txt"
    echo "fuzz: $target: ${tried:-0} inputs in $seconds s, ${edges:-cov: 0} edges, $found found"
    for input in "$work"/found/*; do
        [ -e "$input" ] || continue
        grep -m 1 -A 12 -E 'panicked|ERROR: AddressSanitizer|ERROR: libFuzzer' "$work/log.txt" | cut -c 1-400 >&2
        echo "fuzz: $target: for tests/fuzz/corpus/$target.txt: $(od -An -v -tx1 "$input" | tr -d ' \n')" >&2
    done
}

for target in $targets; do
    run "$target"
done
# shellcheck disable=SC2046
set -- $(for target in $targets; do cat "$folder/runs/$target/result.txt"; done | awk '{ n += $2; s += $3; f += $4 } END { print n, s, f }')
if [ "$3" -gt 0 ]; then
    echo "fuzz: FAILED: $3 inputs went wrong of $1 in $2 s; see above" >&2
    exit 1
fi
echo "fuzz: $1 inputs on $(echo "$targets" | wc -w) targets in $2 s, none went wrong"
