#!/usr/bin/env bash
# Tests the build against a oneAPI toolkit with a mock toolkit: its folders link to the files of the Python
# wheels, and its icpx logs its arguments and calls g++. Checks which flags, headers and libraries the build
# selects; .github/workflows/icpx.yml checks that a real icpx accepts them.
set -euo pipefail
cd "$(dirname "$0")/.."
checkout=$PWD

# Outside of the checkout, since a build below it would use its .venv.
place=$(mktemp -d -t usmq-icpx.XXXXXX)
trap 'rm -rf "$place"' EXIT
# No debug information: most of the time is the compiler's.
export CARGO_TARGET_DIR=$place/target CARGO_PROFILE_DEV_DEBUG=0
mkdir -p "$place/usmq" "$place/oneapi/compiler/2026.0/bin"
tar -c --exclude=./.git --exclude='./.venv*' --exclude=./target . | tar -x -C "$place/usmq"

toolkit=$place/oneapi/compiler/2026.0
ln -s 2026.0 "$place/oneapi/compiler/latest"
mkdir "$toolkit/include"
ln -s "$(readlink -f .venv)"/include/* "$toolkit/include/"
ln -s "$(readlink -f .venv)/lib" "$toolkit/lib"
log=$place/icpx.log
cat > "$toolkit/bin/icpx" << END
#!/usr/bin/env bash
printf '%s\n' "\$*" >> "$log"
kept=()
for argument in "\$@"; do
  [ "\$argument" = -fsycl ] && fsycl=yes || kept+=("\$argument")
done
# A real icpx defines by itself that the headers are compiled for SYCL.
\${fsycl:+exec g++ -DSYCL_DISABLE_FSYCL_SYCLHPP_WARNING "\${kept[@]}"}
exec g++ "\${kept[@]}"
END
chmod +x "$toolkit/bin/icpx"

# No interpreter has the wheel.
python3 -m venv --without-pip "$place/python"
plain="$place/python/bin"
IFS=: read -ra folders <<< "$PATH"
for folder in "${folders[@]}"; do
  [ -x "$folder/icpx" ] || plain="$plain:$folder"
done
export PATH="$plain"
unset PYO3_PYTHON VIRTUAL_ENV USMQ_SYCL_ROOT ONEAPI_ROOT CMPLR_ROOT USMQ_ALLOW_STUB DOCS_RS USMQ_MANYLINUX CXX

cd "$place/usmq/tests/downstream"
cp ../../Cargo.lock .

fail() {
  echo "icpx: FAILED: $*" >&2
  exit 1
}

# build NAME VARIABLE=VALUE…: builds; the flags are then in $log, the output of the build script in $script_output.
build() {
  name=$1
  shift
  : > "$log"
  env "$@" cargo ${verb:-check} --quiet || fail "$name does not build"
  script_output=$(ls -t "$CARGO_TARGET_DIR"/debug/build/usmq-*/output | head -1)
  [ "$script_output" -nt "$place/stamp" ] || fail "$name: the build script did not run"
  touch "$place/stamp"
  echo "icpx: $name"
}
shim() { grep -F 'cpp/queue.cc' "$log" || true; }
libdir() { sed -n 's/^cargo:libdir=//p' "$script_output"; }
touch -d '1 hour ago' "$place/stamp"
with_icpx=PATH="$toolkit/bin:$plain"

# One complete run: compile, link, execute.
verb="build --features usmq/c-library" build "ONEAPI_ROOT and CXX=icpx" CXX=icpx ONEAPI_ROOT="$place/oneapi" "$with_icpx"
shim | grep -q -- ' -fsycl ' || fail "icpx is not asked for SYCL: $(shim)"
shim | grep -qF -- "-isystem $place/oneapi/compiler/latest/include " || fail "not the headers of the toolkit: $(shim)"
shim | grep -q SYCL_DISABLE_FSYCL && fail "icpx gets the flag of other compilers: $(shim)"
[ "$(libdir)" = "$place/oneapi/compiler/latest/lib" ] || fail "DEP_USMQ_LIBDIR is $(libdir)"
grep -q '^cargo:rustc-link-arg=.*-soname,libusmq' "$script_output" || fail "the library gets no soname"
grep '^cargo:rustc-link-arg=' "$script_output" | grep -F "$place" && fail "a path of this machine is in the libraries"
program=$CARGO_TARGET_DIR/debug/downstream
readelf -d "$program" | grep -F RUNPATH | grep -qF "$place/oneapi/compiler/latest/lib" || fail "no run path to the toolkit"
env -i PATH="$PATH" HOME="$HOME" "$program"

build "CMPLR_ROOT" CXX=icpx CMPLR_ROOT="$toolkit" "$with_icpx"
shim | grep -q -- ' -fsycl ' || fail "icpx is not asked for SYCL: $(shim)"
[ "$(libdir)" = "$toolkit/lib" ] || fail "DEP_USMQ_LIBDIR is $(libdir)"

build "icpx on PATH" CXX=icpx "$with_icpx"
shim | grep -q -- ' -fsycl ' || fail "icpx is not asked for SYCL: $(shim)"
[ "$(libdir)" = "$toolkit/lib" ] || fail "DEP_USMQ_LIBDIR is $(libdir)"

# The versions come from the dist-info folders. Those of the toolkit link to .venv, which is inside the range.
grep -q 'usmq is tested with' "$script_output" && fail "a warning of tested versions: $(grep 'is tested with' "$script_output")"
newer=$place/newer
mkdir -p "$newer/lib/python3.99/site-packages/intel_sycl_rt-2027.0.0.dist-info"
ln -s "$toolkit/include" "$newer/include"
ln -s "$(readlink -f "$checkout/.venv")"/lib/lib*.so* "$newer/lib/"
build "a runtime outside of the tested range" USMQ_SYCL_ROOT="$newer"
warned=$(grep 'usmq is tested with' "$script_output" || true)
[ "$warned" = "cargo:warning=usmq is tested with intel-sycl-rt>=2026.1,<2027, and $newer/lib has 2027.0.0; to change it: \
pip install 'intel-sycl-rt>=2026.1,<2027'" ] || fail "the warning of the version is: $warned"

# Another compiler accepts the headers of the toolkit, but not its flag.
ln -s "$(command -v g++)" "$place/python/bin/other++"
build "ONEAPI_ROOT and another compiler" CXX=other++ ONEAPI_ROOT="$place/oneapi" "$with_icpx"
[ ! -s "$log" ] || fail "icpx was called: $(cat "$log")"
[ "$(libdir)" = "$place/oneapi/compiler/latest/lib" ] || fail "DEP_USMQ_LIBDIR is $(libdir)"

# The wheel has precedence; its headers are not icpx's, which then compiles host code.
build "the wheel and CXX=icpx" CXX=icpx PYO3_PYTHON="$checkout/.venv/bin/python" ONEAPI_ROOT="$place/oneapi" "$with_icpx"
shim | grep -q -- ' -fsycl ' && fail "icpx compiles SYCL against other headers: $(shim)"
shim | grep -q SYCL_DISABLE_FSYCL || fail "the headers will warn: $(shim)"
[ "$(libdir)" != "$place/oneapi/compiler/latest/lib" ] || fail "the toolkit comes before the wheel"
