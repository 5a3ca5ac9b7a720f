#!/bin/sh
# The Rust tests with the C++ shim and usmq under AddressSanitizer and LeakSanitizer ("address"), or under
# ThreadSanitizer ("thread"): g++ and a nightly Rust, whose runtimes of these are the same.
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
    name="AddressSanitizer and LeakSanitizer" clean="no invalid access, nothing lost" std=""
    # No signal stacks of the sanitizer's: it would unmap those of Rust's threads. Whole call stacks, since libsycl and
    # the drivers keep no frame pointers, by which a leak is told from theirs.
    export ASAN_OPTIONS=detect_leaks=1:use_sigaltstack=0:allocator_may_return_null=1:fast_unwind_on_malloc=0:malloc_context_size=14
    export LSAN_OPTIONS="suppressions=$PWD/tests/sanitize.supp:print_suppressions=0"
    ;;
thread)
    # Rust's own library must be built for it, too.
    name=ThreadSanitizer clean="no race" std=-Zbuild-std
    # libsycl, the drivers and what these compile are not built for it: their locks and threads are seen, their atomics
    # are not, so what they copy is left out of account. A test forks, and its child goes on.
    export TSAN_OPTIONS="ignore_noninstrumented_modules=1:die_after_fork=0:log_path=$reports/race"
    ;;
esac
export CXXFLAGS="-fsanitize=$sanitizer -fno-omit-frame-pointer -g1"
export RUSTFLAGS="-Zsanitizer=$sanitizer" RUST_TEST_THREADS=1 RUST_BACKTRACE=0

# Left out: what bounds the resident memory or the time of something, since the sanitizers take much of both; and
# processes that fork or end with work in flight, whose remains are no leak.
passed=yes
timeout "${SANITIZE_SECONDS:-3600}" cargo +nightly test $std --target "$target" --target-dir "$folder/$sanitizer" \
    --features arrow --no-fail-fast --lib --tests -- \
    --skip take_no_more_memory_than --skip dropped_in_masses \
    --skip a_fork_before_the_first_use --skip a_child_waits_for_no_thread --skip exits_with_work_in_flight > "$log" 2>&1 || passed=no
tests=$(grep -c '^test .* ok$' "$log" || true)
if [ "$passed" = no ] || [ "$tests" -eq 0 ] || [ -n "$(ls "$reports")" ]; then
    grep -E -A 40 'ERROR: (Address|Leak)Sanitizer|panicked at|^error' "$log" >&2 || tail -40 "$log" >&2
    cat "$reports"/* >&2 || true
    echo "sanitize: FAILED: $tests tests passed; see above, $log and $reports" >&2
    exit 1
fi
echo "sanitize: $tests tests under $name: $clean"
