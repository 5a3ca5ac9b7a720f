#!/bin/sh
# The Rust tests of memory, order and the interchange under AddressSanitizer: Rust with nightly's own, the C++ shim with
# the compiler's. libsycl and the driver are not instrumented, but what they allocate and free is watched.
set -eu

cd "$(dirname "$0")/.."
target=${CARGO_TARGET_DIR:-$PWD/target}/asan
log=$target/tests.txt
mkdir -p "$target"
rustc +nightly --version > /dev/null 2>&1 || {
    echo "asan: nightly Rust is missing. Get it: rustup toolchain install nightly" >&2
    exit 1
}

# Lost memory is for `test-memory` to find: what libsycl and the driver keep in their globals counts as lost here.
export ASAN_OPTIONS=detect_leaks=0:allocator_may_return_null=1 RUST_TEST_THREADS=1 RUSTFLAGS=-Zsanitizer=address
export CXXFLAGS="-fsanitize=address -fno-omit-frame-pointer" CARGO_TARGET_DIR=$target
if ! cargo +nightly test --target x86_64-unknown-linux-gnu --features arrow --no-fail-fast --lib \
    --test arrow --test arrow_order --test arrow_release --test arrow_streams --test dlpack --test fuzz --test kernels --test order \
    --test placement --test pool --test scopes --test threads > "$log" 2>&1; then
    cat "$log" >&2
    echo "asan: FAILED: see above" >&2
    exit 1
fi
echo "asan: $(grep -c '^test .* ok$' "$log") tests under AddressSanitizer: no invalid access"
