#!/bin/sh
# Runs the Rust tests with the C++ shim and usmq under AddressSanitizer and LeakSanitizer ("address"), or
# under ThreadSanitizer ("thread"), with g++ and a nightly Rust, which share the sanitizer runtimes.
set -eu

cd "$(dirname "$0")/.."
sanitizer=$1
folder=${CARGO_TARGET_DIR:-$PWD/target}/sanitize
unset CARGO_TARGET_DIR
mkdir -p "$folder"
log=$folder/$sanitizer.txt
reports=$folder/$sanitizer-reports
rm -rf "$reports"
mkdir "$reports"

target=$(rustc +nightly -vV | sed -n 's/^host: //p')
case $sanitizer in
address)
    name="AddressSanitizer and LeakSanitizer" clean="no invalid access, no leak" std=""
    # Without the sanitizer's signal stacks, which would unmap those of Rust's threads. Full call stacks,
    # since libsycl and the drivers have no frame pointers; suppressions match their leaks by the stack.
    export ASAN_OPTIONS=detect_leaks=1:use_sigaltstack=0:allocator_may_return_null=1:fast_unwind_on_malloc=0:malloc_context_size=14
    export LSAN_OPTIONS="suppressions=$PWD/tests/sanitize.supp:print_suppressions=0"
    ;;
thread)
    # Rust's standard library must be instrumented, too.
    name=ThreadSanitizer clean="no race" std=-Zbuild-std
    # libsycl, the drivers and their dependencies are not instrumented: their locks and threads are visible,
    # their atomics are not, so their memory accesses are ignored. A test forks, and its child continues.
    export TSAN_OPTIONS="ignore_noninstrumented_modules=1:die_after_fork=0:log_path=$reports/race"
    ;;
esac
export USMQ_SANITIZER="$sanitizer" # for the shim, in build.rs
export RUSTFLAGS="-Zsanitizer=$sanitizer" RUST_TEST_THREADS=1 RUST_BACKTRACE=0

# Left out: tests that limit resident memory or time, since the sanitizers need much of both; tests that leak on
# purpose; and processes that fork or exit with work in flight, whose remaining memory is not a leak.
passed=yes
timeout "${SANITIZE_SECONDS:-3600}" cargo +nightly test $std --target "$target" --target-dir "$folder/$sanitizer" \
    --features arrow --no-fail-fast --lib --tests -- \
    --skip peak_memory_is_flat --skip many_blocks_dropped --skip a_leaked_ \
    --skip a_fork_or_command_before --skip a_child_does_not_wait_for_threads --skip work_in_flight_exits_cleanly > "$log" 2>&1 || passed=no
tests=$(grep -c '^test .* ok$' "$log" || true)
if [ "$passed" = no ] || [ "$tests" -eq 0 ] || [ -n "$(ls "$reports")" ]; then
    grep -E -A 40 'ERROR: (Address|Leak)Sanitizer|panicked at|^error' "$log" >&2 || tail -40 "$log" >&2
    cat "$reports"/* >&2 || true
    echo "sanitize: FAILED: $tests tests passed; see above, $log and $reports" >&2
    exit 1
fi
echo "sanitize: $tests tests under $name: $clean"
