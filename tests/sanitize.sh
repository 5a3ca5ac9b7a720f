#!/bin/sh
# The Rust tests with the C++ shim and usmq under AddressSanitizer and LeakSanitizer: g++ and a nightly Rust, whose
# runtimes of the two are the same.
set -eu

cd "$(dirname "$0")/.."
folder=${CARGO_TARGET_DIR:-$PWD/target}/sanitize
unset CARGO_TARGET_DIR
mkdir -p "$folder"
log=$folder/tests.txt

target=$(rustc +nightly -vV | sed -n 's/^host: //p')
# No signal stacks of the sanitizer's: it would unmap those of Rust's threads. Whole call stacks, since libsycl and the
# drivers keep no frame pointers, by which a leak is told from theirs.
export ASAN_OPTIONS=detect_leaks=1:use_sigaltstack=0:allocator_may_return_null=1:fast_unwind_on_malloc=0:malloc_context_size=14
export LSAN_OPTIONS="suppressions=$PWD/tests/sanitize.supp:print_suppressions=0"
export CXXFLAGS="-fsanitize=address -fno-omit-frame-pointer -g1"
export RUSTFLAGS="-Zsanitizer=address" RUST_TEST_THREADS=1 RUST_BACKTRACE=0

# Left out: what bounds the resident memory or the time of something, since the sanitizer takes much of both; and
# processes that fork or end with work in flight, whose remains are no leak.
passed=yes
timeout "${SANITIZE_SECONDS:-3600}" cargo +nightly test --target "$target" --target-dir "$folder" --features arrow \
    --no-fail-fast --lib --tests -- \
    --skip take_no_more_memory_than --skip dropped_in_masses \
    --skip a_fork_before_the_first_use --skip exits_with_work_in_flight > "$log" 2>&1 || passed=no
tests=$(grep -c '^test .* ok$' "$log" || true)
if [ "$passed" = no ] || [ "$tests" -eq 0 ]; then
    grep -E -A 40 'ERROR: (Address|Leak)Sanitizer|panicked at|^error' "$log" >&2 || tail -40 "$log" >&2
    echo "sanitize: FAILED: $tests tests passed; see above and $log" >&2
    exit 1
fi
echo "sanitize: $tests tests under AddressSanitizer and LeakSanitizer: no invalid access, nothing lost"
