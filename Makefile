# Targets for a checkout, from set-up to tests. `make` alone lists them.

SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help
.NOTPARALLEL:

PYTHON ?= python3
RUST := $(shell sed -n 's/^rust-version = "1\.\([0-9]*\).*/\1/p' Cargo.toml)
# usmq's own manifest and the three of external dependents.
MANIFESTS := Cargo.toml tests/downstream/Cargo.toml tests/fuzz/Cargo.toml tests/stub/Cargo.toml
CPP = $(wildcard build/*.cc cpp/*.h cpp/*.cc cpp/emulator/*.h cpp/emulator/*.cc python/usmq/kernels/*.cpp python/usmq/include/*.h* benches/*.cc tests/python/*.cpp \
	tests/upstream/*.h tests/upstream/*.cpp tests/cpp/*.c tests/cpp/*.cc examples/*.c examples/*.cpp examples/cmake/*.cpp examples/packages/*/src/*/*.cpp tests/cuda/*.c)
<<<<<<< HEAD
# Two OpenCL CPU runtimes: cpu:0 and cpu:1 are then two root devices.
=======
# Minutes for each fuzz target.
FUZZ_MINUTES ?= 10
# Two OpenCL CPU runtimes: cpu:0 and cpu:1 are two root devices.
>>>>>>> prose-core
TWO_DEVICES = OCL_ICD_FILENAMES="$(CURDIR)/.venv/lib/libintelocl.so:$(CURDIR)/.venv-ocl2/lib/libintelocl.so"
# Distributes the files over two processes; the tests of a file run in order.
PYTEST = .venv/bin/python -m pytest -n 2 --dist loadfile

# Builds against the SYCL in .venv, whichever environment is active.
unexport PYO3_PYTHON VIRTUAL_ENV CONDA_PREFIX PYTHONHOME PYTHONPATH

.PHONY: help
help: ## List the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-16s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

.PHONY: demo
demo: .venv/.demo-ready ## Install and build the demo's requirements, and run it on the flights of a year
	@echo "==> the extension, not optimised (about 1 minute the first time)"
	@rm -rf target/demo
	.venv/bin/maturin build --profile quick --features python,arrow --compatibility linux --interpreter .venv/bin/python --out target/demo
	.venv/bin/python -m pip install --quiet --force-reinstall --no-deps --no-index target/demo/usmq-*.whl
	@echo "==> demo (about 10 s)"
	.venv/bin/python -m usmq demo

.PHONY: test
test: lint test-rust docs test-python ## Set up and run the checks and tests (about 20 minutes once built)

# --- set-up and build

.PHONY: setup
setup: .venv/.ready .venv-ocl2/.ready ## Create the two Python environments of the tests

PIP_INSTALL = -m pip install --disable-pip-version-check

.venv/.demo-ready: requirements/runtime.txt requirements/demo.txt requirements/flights.txt build/link_copies.py | check-tools
	@echo "==> .venv: SYCL runtime, numpy, pyarrow, maturin (1.1 GB; as fast as the network)"
	$(PYTHON) -m venv .venv
	.venv/bin/python $(PIP_INSTALL) -r requirements/demo.txt
	.venv/bin/python $(PIP_INSTALL) --no-deps -r requirements/flights.txt
	.venv/bin/python build/link_copies.py .venv/lib
	@touch $@

.venv/.ready: .venv/.demo-ready requirements/test.txt
	@echo "==> .venv: dpctl, dpnp, other peers, tools (2 GB more; minutes, as fast as the network)"
	.venv/bin/python $(PIP_INSTALL) -r requirements/test.txt
	.venv/bin/python build/link_copies.py .venv/lib
	@touch $@

.venv-ocl2/.ready: requirements/ocl2.txt | check-tools
	@echo "==> .venv-ocl2: a second OpenCL CPU runtime for the tests (0.7 GB; as fast as the network)"
	$(PYTHON) -m venv .venv-ocl2
	.venv-ocl2/bin/python $(PIP_INSTALL) -r requirements/ocl2.txt
	@touch $@

# A wheel, not an editable install: the extension finds libsycl relative to site-packages, as a user's does.
.PHONY: build
build: wheel ## Build the Python package and install it into .venv
	.venv/bin/python -m pip install --quiet --force-reinstall --no-deps --no-index target/wheels/usmq-*.whl

<<<<<<< HEAD
# An optimised build takes minutes. This one replaces extension, emulator and Python files of the installed package;
# `make build` puts the wheel back. libusmq.so.0, for C, stays the old one.
PACKAGE = $(shell .venv/bin/python -c 'import sysconfig; print(sysconfig.get_path("platlib"))')/usmq
.PHONY: dev
dev: setup ## Compile without optimisation and put the result into .venv for pytest (seconds after a change)
	@[ -x .venv/bin/usmq ] || $(MAKE) --no-print-directory build
	PYO3_PYTHON="$(CURDIR)/.venv/bin/python" cargo rustc --features python,arrow,cuda --lib --crate-type cdylib --target-dir target/dev
	@cp -r python/usmq/. "$(PACKAGE)/"
	@install target/dev/debug/libusmq.so "$(PACKAGE)/_core.abi3.so"
	@install "$$(ls -t target/dev/debug/build/usmq-*/out/libusmq_emulator.so | head -1)" "$(PACKAGE)/lib/libusmq_emulator.so"

# With 1, symbols of a newer glibc or compiler than the tag allows are replaced (build/manylinux.cc); 0 where those here
=======
# 1 replaces symbols of a newer glibc or compiler than the tag allows (build/manylinux.cc); 0 if this system's
>>>>>>> prose-core
# are old enough.
USMQ_MANYLINUX ?= 1
library wheel: export USMQ_MANYLINUX := $(USMQ_MANYLINUX)
PLATFORM = manylinux_2_28

# A separate target folder, since cargo names both libraries libusmq.so.
.PHONY: library
library: .venv/.ready
	@echo "==> libusmq.so, for programs without Python (about 2 minutes the first time, then under a minute)"
	CARGO_PROFILE_RELEASE_STRIP=true cargo rustc --release --lib --features c-library --crate-type cdylib --target-dir target/library
	install -D -m 755 target/library/release/libusmq.so python/usmq/lib/libusmq.so.0

.PHONY: wheel
wheel: library ## Build the wheel and check it: tag, symbols, contents, metadata
	@echo "==> the wheel (about 2 minutes the first time, then under a minute)"
	@rm -f target/wheels/usmq-*.whl
	.venv/bin/maturin build --release --strip --compatibility $(PLATFORM) --interpreter .venv/bin/python --out target/wheels
	.venv/bin/python tests/wheel.py check target/wheels/usmq-*.whl

.PHONY: sdist
<<<<<<< HEAD
sdist: .venv/.ready
=======
sdist: .venv/.ready ## Build the source distribution and check its contents
>>>>>>> prose-core
	@rm -f target/sdist/usmq-*.tar.gz
	.venv/bin/maturin sdist --out target/sdist
	.venv/bin/python tests/wheel.py sdist target/sdist/usmq-*.tar.gz

need = @command -v $(1) > /dev/null || { echo "usmq: $(1) is missing. Get $(2)" >&2; exit 1; }

.PHONY: check-tools
check-tools:
	$(call need,$(PYTHON),Python 3.11 or newer: apt-get install python3 python3-venv)
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "usmq: $$($(PYTHON) --version) is too old. Name a newer one: make PYTHON=python3.11" >&2; exit 1; }
	@$(PYTHON) -c 'import ensurepip, venv' 2> /dev/null || \
		{ echo "usmq: $(PYTHON) has no venv. Get it: apt-get install python3-venv" >&2; exit 1; }
	$(call need,cargo,Rust 1.$(RUST) or newer: https://rustup.rs)
	@cargo --version | awk -F '[ .]' '{ exit !($$2 > 1 || $$3 >= $(RUST)) }' || \
		{ echo "usmq: $$(cargo --version) is too old. Get Rust 1.$(RUST) or newer: https://rustup.rs" >&2; exit 1; }
	$(call need,$${CXX:-c++},a C++17 compiler: apt-get install g++ (or set CXX))

# --- checks and tests

.PHONY: lint
lint: .venv/.ready ## Check formats, lints and types
	@cargo fmt --version > /dev/null && cargo clippy --version > /dev/null || \
		{ echo "usmq: rustfmt or clippy is missing. Get them: rustup component add rustfmt clippy" >&2; exit 1; }
	@echo "==> formats: rustfmt, clang-format, ruff (seconds)"
	for manifest in $(MANIFESTS); do cargo fmt --check --manifest-path $$manifest; done
	.venv/bin/clang-format --dry-run -Werror $(CPP)
	.venv/bin/ruff format --check python tests benches docs examples
	@echo "==> lints: ruff, mypy (seconds)"
	.venv/bin/ruff check
	.venv/bin/mypy python/usmq docs tests/typing $(wildcard examples/*.py) examples/packages
	@echo "==> lints: clippy, with and without the optional features (about 3 minutes the first time)"
	cargo clippy --all-targets -- -D warnings
	cargo clippy --all-targets --features python,cuda,arrow -- -D warnings

.PHONY: fmt
fmt: .venv/.ready ## Format all sources
	for manifest in $(MANIFESTS); do cargo fmt --manifest-path $$manifest; done
	.venv/bin/clang-format -i $(CPP)
	.venv/bin/ruff check --fix --select I
	.venv/bin/ruff format

.PHONY: test-rust
test-rust: setup ## Rust: unit tests, tests/*.rs, doctests, the flights example
	@echo "==> cargo test (about 3 minutes the first time)"
	@# One test at a time: the CPU driver can lock up while two threads wait for out-of-order queues.
	$(TWO_DEVICES) RUST_TEST_THREADS=1 cargo test --features arrow
	@echo "==> cargo run --example flights (about 10 seconds; built above)"
	cargo run --features arrow --example flights

<<<<<<< HEAD
=======
.PHONY: test-faults
test-faults: counted ## Every operation, with an injected failure of each SYCL and CUDA call (minutes; not part of `test`)
	@echo "==> tests/faults.rs, in a separate build (about 4 minutes, the first time 3 more)"
	$(TWO_DEVICES) RUST_TEST_THREADS=1 USMQ_FAULTS=1 timeout 1800 cargo test --features arrow --test faults \
		--target-dir target/faults -- --nocapture
	@echo "==> the same from Python and C, then the calls of a CUDA driver (about 6 minutes)"
	$(TWO_DEVICES) $(COUNTED) .venv/bin/python -m pytest tests/python/test_faults.py

.PHONY: test-pressure
test-pressure: .venv/.ready ## Rust: limits, a full device, ten million random sizes (minutes; not part of `test`)
	@echo "==> tests/memory_pressure.rs, optimised (about 1 minute, the first time 3 more)"
	$(TWO_DEVICES) RUST_TEST_THREADS=1 CARGO_PROFILE_RELEASE_LTO=off CARGO_PROFILE_RELEASE_CODEGEN_UNITS=16 \
		timeout 900 cargo test --release --test memory_pressure --target-dir target/pressure -- --include-ignored --nocapture

.PHONY: test-memory
test-memory: .venv/.ready ## Rust: the Arrow, DLPack and array interface interchange under valgrind (minutes; not part of `test`)
	$(call need,valgrind,valgrind: apt-get install valgrind)
	@echo "==> tests/memory.sh (about 5 minutes, the first time 3 more)"
	@tests/memory.sh

.PHONY: nightly
nightly: | check-tools
	@cargo +nightly --version > /dev/null 2>&1 || rustup toolchain install nightly --profile minimal || \
		{ echo "usmq: a nightly Rust is missing. Get it: https://rustup.rs" >&2; exit 1; }

.PHONY: sanitize
sanitize: setup nightly ## Rust and the C++ shim under AddressSanitizer and LeakSanitizer (minutes; not part of `test`)
	@echo "==> tests/sanitize.sh address (about 20 minutes)"
	@$(TWO_DEVICES) tests/sanitize.sh address

.PHONY: sanitize-threads
sanitize-threads: setup nightly ## The same under ThreadSanitizer (minutes; not part of `test`)
	@[ -d "$$(rustc +nightly --print sysroot)/lib/rustlib/src" ] || rustup component add rust-src --toolchain nightly
	@echo "==> tests/sanitize.sh thread (about 20 minutes)"
	@$(TWO_DEVICES) tests/sanitize.sh thread

# The package with an extension that counts queues, events and the other objects of the shim, and can inject
# faults.
COUNTED = PYTHONPATH=target/faults/site LD_LIBRARY_PATH=.venv/lib
.PHONY: counted
counted: setup
	USMQ_FAULTS=1 PYO3_PYTHON="$(CURDIR)/.venv/bin/python" cargo rustc --release --features python,arrow,cuda --lib --crate-type cdylib --target-dir target/faults
	rm -rf target/faults/site
	mkdir -p target/faults/site
	cp -r python/usmq target/faults/site/
	cp target/faults/release/libusmq.so target/faults/site/usmq/_core.abi3.so
	install -D "$$(ls -t target/faults/release/build/usmq-*/out/libusmq_emulator.so | head -1)" target/faults/site/usmq/lib/libusmq_emulator.so

SOAK_MINUTES ?= 30

.PHONY: soak
soak: counted ## All features in a loop for SOAK_MINUTES (30); fails if resource use grows (not part of `test`)
	@echo "==> soak ($(SOAK_MINUTES) minutes)"
	@mkdir -p target/soak
	$(TWO_DEVICES) $(COUNTED) .venv/bin/python tests/soak.py --minutes $(SOAK_MINUTES) --folder target/soak

# Tools that are crates, installed for this checkout only.
TOOLS = $(CURDIR)/target/tools/bin
$(TOOLS)/cargo-%: | check-tools
	@echo "==> cargo-$* (minutes, once)"
	cargo install --quiet --locked --root target/tools cargo-$*

.PHONY: fuzz
fuzz: setup build nightly $(TOOLS)/cargo-fuzz ## Random inputs on each target for FUZZ_MINUTES (10); not part of `test`, which tries a few
	@echo "==> tests/fuzz (6 targets under libFuzzer, 5 in Python, each for $(FUZZ_MINUTES) minutes)"
	PATH="$(TOOLS):$$PATH" FUZZ_MINUTES=$(FUZZ_MINUTES) $(TWO_DEVICES) tests/fuzz/run.sh
	FUZZ_MINUTES=$(FUZZ_MINUTES) $(TWO_DEVICES) .venv/bin/python -m pytest -q -rP -o faulthandler_timeout=$$((60 * $(FUZZ_MINUTES) + 900)) tests/python/test_fuzz.py

.PHONY: tidy
tidy: .venv/.ready ## clang-tidy on the C++ shim
	@echo "==> tests/tidy.sh (about 1 minute)"
	@tests/tidy.sh

.PHONY: deny
deny: $(TOOLS)/cargo-deny ## Licences, sources and known vulnerabilities of the crates, by cargo-deny
	@echo "==> cargo deny (seconds)"
	@PATH="$(TOOLS):$$PATH" tests/deny.sh

# Each check prints its result in one line, and a failure does not stop the others: together they take hours.
CHECKS = lint tidy deny sanitize sanitize-threads test-processes test-memory test-faults test-pressure test-stress fuzz soak

.PHONY: check-all
check-all: ## Every checker and sanitizer that is not part of `test` (hours; FUZZ_MINUTES, SOAK_MINUTES)
	@failed=; for check in $(CHECKS); do \
		echo "==> check-all: $$check"; SECONDS=0; outcome=passed; \
		$(MAKE) --no-print-directory $$check || { outcome=FAILED; failed+=" $$check"; }; \
		echo "==> check-all: $$check $$outcome in $$((SECONDS / 60)) min $$((SECONDS % 60)) s"; \
	done; \
	if [ -n "$$failed" ]; then echo "check-all: FAILED:$$failed" >&2; exit 1; fi; \
	echo "check-all: $(words $(CHECKS)) checks passed: $(CHECKS)"

.PHONY: test-downstream
test-downstream: .venv/.ready ## Another Cargo project builds on usmq and starts in an empty environment
	@echo "==> tests/downstream (1-2 minutes the first time)"
	cp Cargo.lock tests/downstream/
	CARGO_TARGET_DIR=target/downstream cargo build --manifest-path tests/downstream/Cargo.toml
	env -i PATH="$$PATH" HOME="$$HOME" target/downstream/debug/downstream

.PHONY: test-stub
test-stub: | check-tools ## Without SYCL: the build fails with one message, and the stub works
	@echo "==> tests/no-sycl.sh (about 1 minute the first time)"
	PYTHON="$(PYTHON)" tests/no-sycl.sh

>>>>>>> prose-core
.PHONY: docs
docs: build ## Build the site, target/docs/html: pages, Python and Rust reference
	@echo "==> docs: the Rust reference (about 1 minute the first time), then the site (about 10 s)"
	DOCS_RS=1 RUSTDOCFLAGS="-D warnings" cargo doc --no-deps --features arrow --target-dir target/docs/cargo
	rm -rf target/docs/rustdoc target/docs/html
	mkdir -p target/docs/rustdoc
	cp -r target/docs/cargo/doc target/docs/rustdoc/rust
	.venv/bin/sphinx-build -W --keep-going -E -q -b html -d target/docs/doctrees docs target/docs/html
	@echo "==> target/docs/html/index.html"

<<<<<<< HEAD
# They mostly wait for processes that they start: `tests/run test-processes`.
PROCESSES = $(addprefix tests/python/test_,$(addsuffix .py,dask_command dask_losses doctor doctor_kernels doctor_runtime exits fork coexistence signals))
=======
.PHONY: test-icpx
test-icpx: .venv/.ready ## The build against a oneAPI toolkit, with a mock icpx that logs its flags
	@echo "==> tests/icpx.sh (1-2 minutes the first time)"
	tests/icpx.sh
>>>>>>> prose-core

.PHONY: test-python
test-python: setup build ## Python: the stubs, then pytest next to dpctl and dpnp
	@echo "==> stubtest: the stubs against the installed module (seconds)"
	MYPYPATH=python .venv/bin/python -m mypy.stubtest --allowlist tests/stubtest-allowlist.txt usmq._core
	@echo "==> demo, with dpnp (about 10 s)"
	.venv/bin/python -m usmq demo --require-dpnp
	@echo "==> pytest in two processes (about 8 minutes)"
	$(TWO_DEVICES) USMQ_CHECKS=1 $(PYTEST) tests/python $(PROCESSES:%=--ignore=%)
	@echo "==> beside dpnp and dpctl, every pair of conditions, in a user's environment (about 3 minutes)"
	.venv/bin/python tests/coexistence

<<<<<<< HEAD
# A CPython without its lock (`configure --disable-gil`), 3.14 or newer. Few packages are made for it: no dpctl, no dpnp.
=======
# These tests mostly wait for processes that they have started.
PROCESSES = $(addprefix tests/python/test_,$(addsuffix .py,dask_command dask_losses doctor doctor_kernels doctor_runtime exits fork coexistence signals))

.PHONY: test-processes
test-processes: setup build ## Python: forks, exits, signals, other libraries, broken environments, killed workers (not part of `test`)
	@echo "==> pytest in two processes, tests of other processes (about 3 minutes)"
	$(TWO_DEVICES) USMQ_CHECKS=1 $(PYTEST) $(PROCESSES)

.PHONY: test-stress
test-stress: setup build ## Threads, tasks and import orders for longer (about 30 minutes; not part of `test`)
	@echo "==> 64 threads from Rust, 5 minutes"
	$(TWO_DEVICES) USMQ_STRESS_SECONDS=300 cargo test --features arrow --test stress -- --nocapture
	@echo "==> threads and tasks from Python, 2 minutes each; then 120 import orders"
	$(TWO_DEVICES) USMQ_STRESS_SECONDS=120 .venv/bin/python -m pytest -s tests/python/test_stress.py
	$(TWO_DEVICES) USMQ_ALL_ORDERS=1 .venv/bin/python -m pytest tests/python/test_coexistence.py

# A free-threaded CPython (`configure --disable-gil`), 3.14 or newer. Few packages support it: no dpctl, no
# dpnp.
>>>>>>> prose-core
FREE_THREADED ?= python3.14t
FREE_TESTS = $(addprefix tests/python/test_,$(addsuffix .py,threads stress array_copies array_views arrays \
	buffers cli cuda docstrings exits fork kernel_arguments kernels opencl_kernels placement profile signals tasks trace security))
.venv-free/.ready: requirements/free-threaded.txt requirements/runtime.txt | check-tools
	$(call need,$(FREE_THREADED),a CPython without its lock, and name it: tests/run test-free-threaded FREE_THREADED=/path/to/python3.14t)
	@echo "==> .venv-free: SYCL runtime, numpy, pyarrow (1 GB; as fast as the network)"
	$(FREE_THREADED) -m venv .venv-free
	.venv-free/bin/python $(PIP_INSTALL) --only-binary :all: -r requirements/free-threaded.txt
	@touch $@

<<<<<<< HEAD
# --- the rest
=======
.PHONY: test-free-threaded
test-free-threaded: .venv-free/.ready .venv-ocl2/.ready ## Free-threaded Python: threads, and the tests that need no peer (not part of `test`)
	@echo "==> usmq for a free-threaded Python (minutes)"
	@rm -f target/free-threaded/usmq-*.whl
	.venv-free/bin/maturin build --release --strip --compatibility linux --interpreter .venv-free/bin/python --out target/free-threaded
	.venv-free/bin/python -m pip install --quiet --force-reinstall --no-deps --no-index target/free-threaded/usmq-*.whl
	@echo "==> pytest (about 6 minutes)"
	OCL_ICD_FILENAMES="$(CURDIR)/.venv-free/lib/libintelocl.so:$(CURDIR)/.venv-ocl2/lib/libintelocl.so" \
		.venv-free/bin/python -m pytest -rs $(FREE_TESTS)

.PHONY: test-wheel-quick
test-wheel-quick: setup wheel ## The wheel in one clean environment, and a few tests
	@echo "==> the wheel in a clean environment (about 1 minute)"
	.venv/bin/python tests/wheel.py install target/wheels/usmq-*.whl --how quick

.PHONY: test-wheel
test-wheel: setup wheel ## The wheel in clean environments of every installed Python: demo and tests (not part of `test`)
	@echo "==> the wheel in clean environments (about 10 minutes, 3 GB at a time in target/wheel-test)"
	.venv/bin/python tests/wheel.py install target/wheels/usmq-*.whl

# --- publishing

.PHONY: package
package: sdist ## Build the packaged crate, the sdist, and the documentation without SYCL
	@echo "==> cargo package (about 1 minute the first time)"
	PYO3_PYTHON="$(CURDIR)/.venv/bin/python" cargo package --allow-dirty
	@echo "==> cargo doc as docs.rs does (about 1 minute the first time)"
	DOCS_RS=1 RUSTDOCFLAGS="-D warnings" cargo doc --no-deps --features arrow,cuda --target-dir target/docs-rs
	@echo "==> a wheel from the sdist, in isolation (about 3 minutes)"
	.venv/bin/python -m pip wheel --quiet --no-deps --wheel-dir target/from-sdist target/sdist/usmq-*.tar.gz

# --- other targets
>>>>>>> prose-core

.PHONY: test-cuda
test-cuda: build ## Python: memory of a CUDA device; without one skipped, with the reason
	.venv/bin/python -m pytest -rs tests/cuda

.PHONY: bench
bench: build ## Measure against plain C++, dpctl and dpnp; write the table to target/bench.json
	@echo "==> bench (minutes)"
	.venv/bin/python benches/run.py

.PHONY: bench-quick
<<<<<<< HEAD
bench-quick: build ## Run one round of every row of `bench`, to see that each runs
=======
bench-quick: build ## One round of every row of `bench`: checks that each runs, not its speed
>>>>>>> prose-core
	@echo "==> bench, one round (about 2 minutes, the first time 1 more)"
	.venv/bin/python benches/run.py --rounds 1 '*'

.PHONY: bench-cuda
bench-cuda: build ## Measure copies from a CUDA device to host USM against the driver's own copy
	.venv/bin/python benches/cuda_device.py

.PHONY: clean
clean: ## Remove build outputs; the environments (.venv, .venv-ocl2, .venv-free) stay
	rm -rf target .mypy_cache .pytest_cache .ruff_cache
	find python tests examples benches -name __pycache__ -prune -exec rm -rf {} +
