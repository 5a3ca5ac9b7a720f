# Everything a checkout needs, from set-up to tests. `make` alone lists the targets.

SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help
.NOTPARALLEL:

PYTHON ?= python3
RUST := $(shell sed -n 's/^rust-version = "1\.\([0-9]*\).*/\1/p' Cargo.toml)
# Ours, its derive macro, and the three that depend on it from outside.
MANIFESTS := Cargo.toml derive/Cargo.toml tests/downstream/Cargo.toml tests/fuzz/Cargo.toml tests/stub/Cargo.toml
CPP = $(wildcard build/*.cc cpp/*.h cpp/*.cc layers/*.h layers/*.cc layers/*/*.h layers/*/*.cc python/usmq/kernels/*.cpp python/usmq/pyarrow/*.cc python/usmq/include/*.h* python/usmq/include/usmq/*.h benches/*.cc tests/python/*.cpp \
	tests/level_zero/driver/*.h tests/level_zero/driver/*.cc tests/upstream/*.h tests/upstream/*.cpp tests/cpp/*.c tests/cpp/*.cc examples/*.c examples/*.cpp examples/cmake/*.cpp examples/nanobind/*.cpp examples/packages/*/src/*/*.cpp tests/cuda/*.c)
# Two OpenCL CPU runtimes: cpu:0 and cpu:1 are then two root devices.
TWO_DEVICES = OCL_ICD_FILENAMES="$(CURDIR)/.venv/lib/libintelocl.so:$(CURDIR)/.venv-ocl2/lib/libintelocl.so"
# The files share out among two processes; the tests of a file run in order.
# A test that locks up ends the run: pytest-xdist waits for ever after it has replaced a worker of --dist loadfile.
PYTEST = .venv/bin/python -m pytest -n 2 --dist loadfile --max-worker-restart=0 -o faulthandler_timeout=300

# The SYCL to build against is the one in .venv, whatever environment is active.
unexport PYO3_PYTHON VIRTUAL_ENV CONDA_PREFIX PYTHONHOME PYTHONPATH

.PHONY: help
help: ## List the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-16s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

.PHONY: demo
demo: .venv/.demo-ready ## Install (1.1 GB) and build what the demo needs, and run it on the flights of a year
	@echo "==> the extension, not optimised (about 1 minute the first time)"
	@rm -rf target/demo
	.venv/bin/maturin build --profile quick --features python,arrow --compatibility linux --interpreter .venv/bin/python --out target/demo
	.venv/bin/python -m pip install --quiet --force-reinstall --no-deps --no-index target/demo/usmq-*.whl
	@echo "==> demo (about 10 s)"
	.venv/bin/python -m usmq demo

.PHONY: test
test: lint test-rust docs test-python ## Set up (4.4 GB) and run the checks and tests (25 minutes, 20 once built)

# --- set-up and build

.PHONY: setup
setup: .venv/.ready .venv-ocl2/.ready ## Make the two Python environments of the tests (4.4 GB; 2 minutes and the download)

PIP_INSTALL = -m pip install --disable-pip-version-check

.venv/.demo-ready: requirements/runtime.txt requirements/demo.txt requirements/flights.txt build/link_copies.py | check-tools
	@echo "==> .venv: SYCL runtime, numpy, pyarrow, maturin (1.1 GB; as fast as the network)"
	$(PYTHON) -m venv .venv
	.venv/bin/python $(PIP_INSTALL) -r requirements/demo.txt
	.venv/bin/python $(PIP_INSTALL) --no-deps -r requirements/flights.txt
	.venv/bin/python build/link_copies.py .venv/lib
	@touch $@

.venv/.ready: .venv/.demo-ready requirements/test.txt
	@echo "==> .venv: dpctl, dpnp, other peers, tools (2.6 GB more; as fast as the network)"
	.venv/bin/python $(PIP_INSTALL) -r requirements/test.txt
	.venv/bin/python build/link_copies.py .venv/lib
	@touch $@

.venv-ocl2/.ready: requirements/ocl2.txt | check-tools
	@echo "==> .venv-ocl2: a second OpenCL CPU runtime for the tests (0.7 GB; as fast as the network)"
	$(PYTHON) -m venv .venv-ocl2
	.venv-ocl2/bin/python $(PIP_INSTALL) -r requirements/ocl2.txt
	@touch $@

# A wheel, not an editable install: the extension finds libsycl from its place in site-packages, as a user's does.
.PHONY: build
build: wheel ## Build the Python package and install it into .venv
	.venv/bin/python -m pip install --quiet --force-reinstall --no-deps --no-index target/wheels/usmq-*.whl

# An optimised build takes minutes. `make dev` replaces the extension, the OpenCL layers and the Python files of the installed
# package. It does not build libusmq.so.0, for C. `make build` installs the optimised wheel again.
PACKAGE = $(shell .venv/bin/python -c 'import sysconfig; print(sysconfig.get_path("platlib"))')/usmq
.PHONY: dev
dev: setup ## Compile without optimisation and put the result into .venv for pytest (seconds after a change)
	@[ -x .venv/bin/usmq ] || $(MAKE) --no-print-directory build
	PYO3_PYTHON="$(CURDIR)/.venv/bin/python" cargo rustc --features python,arrow,cuda --lib --crate-type cdylib --target-dir target/dev
	@cp -r python/usmq/. "$(PACKAGE)/"
	@install target/dev/debug/libusmq.so "$(PACKAGE)/_core.abi3.so"
	@install -D "$$(ls -t target/dev/debug/build/usmq-*/out/libusmq_layers.so | head -1)" "$(PACKAGE)/lib/libusmq_layers.so"

# With 1, symbols of a newer glibc or compiler than the tag allows are replaced (build/manylinux.cc); 0 where those here
# are old enough.
USMQ_MANYLINUX ?= 1
library wheel: export USMQ_MANYLINUX := $(USMQ_MANYLINUX)
PLATFORM = manylinux_2_28

# Its own target folder, since both libraries are called libusmq.so where cargo makes them.
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
sdist: .venv/.ready
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
	cargo clippy --workspace --all-targets -- -D warnings
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
	$(TWO_DEVICES) RUST_TEST_THREADS=1 cargo test --workspace --features arrow
	@echo "==> cargo run --example flights (about 10 seconds; built above)"
	cargo run --features arrow --example flights

.PHONY: docs
docs: build ## Build the site, target/docs/html: pages, Python and Rust reference
	@echo "==> docs: the Rust reference (about 1 minute the first time), then the site (about 10 s)"
	DOCS_RS=1 RUSTDOCFLAGS="-D warnings" cargo doc --no-deps --features arrow --target-dir target/docs/cargo
	rm -rf target/docs/rustdoc target/docs/html
	mkdir -p target/docs/rustdoc
	cp -r target/docs/cargo/doc target/docs/rustdoc/rust
	.venv/bin/sphinx-build -W --keep-going -E -q -b html -d target/docs/doctrees docs target/docs/html
	@echo "==> target/docs/html/index.html"

# `tests/run test-processes` runs these. They mostly wait for processes that they start.
PROCESSES = $(addprefix tests/python/test_,$(addsuffix .py,dask_chaos dask_command dask_losses doctor doctor_kernels doctor_runtime exits fork late_releases no_threads coexistence signals))
# These measure times, so no other test runs beside them.
ALONE = $(addprefix tests/python/test_,$(addsuffix .py,contended_launches idle_threads reads_in_flight unrelated_copies))

# The layer makes the queues of the CPU driver in-order; without it, an order that usmq forgets shows.
LOOSE = $(addprefix tests/python/test_,$(addsuffix .py,order order_between_contexts queue_commands queues stress))

.PHONY: test-python
test-python: setup build ## Python: the stubs, then pytest next to dpctl and dpnp
	@echo "==> stubtest: the stubs against the installed module (seconds)"
	MYPYPATH=python .venv/bin/python -m mypy.stubtest --allowlist tests/stubtest-allowlist.txt usmq._core
	@echo "==> demo, with dpnp (about 10 s)"
	.venv/bin/python -m usmq demo --require-dpnp
	@echo "==> pytest in two processes (about 8 minutes)"
	$(TWO_DEVICES) USMQ_CHECKS=1 $(PYTEST) tests/python $(PROCESSES:%=--ignore=%) $(ALONE:%=--ignore=%)
	$(TWO_DEVICES) USMQ_CHECKS=1 .venv/bin/python -m pytest $(ALONE)
	@echo "==> out-of-order queues that the driver may reorder (seconds)"
	$(TWO_DEVICES) USMQ_CHECKS=1 USMQ_WAIT_LAYER=0 .venv/bin/python -m pytest -q $(LOOSE)
	@echo "==> beside dpnp and dpctl, every pair of conditions, in an environment as a user's (about 3 minutes)"
	.venv/bin/python tests/coexistence

# --- the rest

.PHONY: test-cuda
test-cuda: build ## Python: CUDA memory on an NVIDIA GPU; skipped without one, with the reason
	.venv/bin/python -m pytest -rs tests/cuda

.PHONY: bench
bench: build ## Measure against plain C++, dpctl and dpnp, and mark regressions; the table goes to target/bench.json
	@echo "==> bench (minutes)"
	.venv/bin/python benches/run.py

.PHONY: bench-quick
bench-quick: build ## Run every row of `bench` briefly; fail if one is 1.5 times slower than published
	@echo "==> bench, a few rounds (about 1 minute; with repeats 2, the first time 1 more)"
	.venv/bin/python benches/run.py --guard

.PHONY: bench-cuda
bench-cuda: build ## Compare copies from an NVIDIA GPU to host USM with the driver's own copy
	.venv/bin/python benches/cuda_device.py

.PHONY: clean
clean: ## Remove what was built; the environments (.venv, .venv-ocl2, .venv-free) stay
	rm -rf target .mypy_cache .pytest_cache .ruff_cache
	find python tests examples benches -name __pycache__ -prune -exec rm -rf {} +
