# The longer checks, which `tests/run` starts: `tests/run CHECK`.

include Makefile

# The duration of `fuzz` per target.
FUZZ_MINUTES ?= 10

.PHONY: test-builds
test-builds: test-downstream test-stub test-icpx test-wheel-quick

.PHONY: test-faults
test-faults: counted
	@echo "==> tests/faults.rs, in a separate build (about 4 minutes, the first time 3 more)"
	$(TWO_DEVICES) RUST_TEST_THREADS=1 USMQ_FAULTS=1 timeout 1800 cargo test --features arrow --test faults \
		--target-dir target/faults -- --nocapture
	@echo "==> the same from Python and C, then the calls of a CUDA driver (about 6 minutes)"
	$(TWO_DEVICES) $(COUNTED) .venv/bin/python -m pytest tests/python/test_faults.py

.PHONY: test-pressure
test-pressure: .venv/.ready
	@echo "==> tests/memory_pressure.rs, optimised (about 1 minute, the first time 3 more)"
	$(TWO_DEVICES) RUST_TEST_THREADS=1 CARGO_PROFILE_RELEASE_LTO=off CARGO_PROFILE_RELEASE_CODEGEN_UNITS=16 \
		timeout 900 cargo test --release --test memory_pressure --target-dir target/pressure -- --include-ignored --nocapture

.PHONY: test-memory
test-memory: .venv/.ready
	$(call need,valgrind,valgrind: apt-get install valgrind)
	@echo "==> tests/memory.sh (about 5 minutes, the first time 3 more)"
	@tests/memory.sh

.PHONY: nightly
nightly: | check-tools
	@cargo +nightly --version > /dev/null 2>&1 || rustup toolchain install nightly --profile minimal || \
		{ echo "usmq: a nightly Rust is missing. Get it: https://rustup.rs" >&2; exit 1; }

.PHONY: sanitize
sanitize: setup nightly
	@echo "==> tests/sanitize.sh address (about 20 minutes)"
	@$(TWO_DEVICES) tests/sanitize.sh address

.PHONY: sanitize-threads
sanitize-threads: setup nightly
	@[ -d "$$(rustc +nightly --print sysroot)/lib/rustlib/src" ] || rustup component add rust-src --toolchain nightly
	@echo "==> tests/sanitize.sh thread (about 20 minutes)"
	@$(TWO_DEVICES) tests/sanitize.sh thread

# The package with an extension that counts queues, events and the other objects of the shim, and fails on demand.
COUNTED = PYTHONPATH=target/faults/site LD_LIBRARY_PATH=.venv/lib
.PHONY: counted
counted: setup
	USMQ_FAULTS=1 PYO3_PYTHON="$(CURDIR)/.venv/bin/python" cargo rustc --release --features python,arrow,cuda --lib --crate-type cdylib --target-dir target/faults
	rm -rf target/faults/site
	mkdir -p target/faults/site
	cp -r python/usmq target/faults/site/
	cp target/faults/release/libusmq.so target/faults/site/usmq/_core.abi3.so
	install -D "$$(ls -t target/faults/release/build/usmq-*/out/libusmq_layers.so | head -1)" target/faults/site/usmq/lib/libusmq_layers.so

# With one arena of malloc: the memory that several ones keep looks like growth.
SOAK_MINUTES ?= 30

.PHONY: soak
soak: counted
	@echo "==> soak ($(SOAK_MINUTES) minutes)"
	@mkdir -p target/soak
	MALLOC_ARENA_MAX=1 $(TWO_DEVICES) $(COUNTED) .venv/bin/python tests/soak.py --minutes $(SOAK_MINUTES) --folder target/soak

# Tools from crates, installed for this checkout only.
TOOLS = $(CURDIR)/target/tools/bin
$(TOOLS)/cargo-%: | check-tools
	@echo "==> cargo-$* (minutes, once)"
	cargo install --quiet --locked --root target/tools cargo-$*

.PHONY: fuzz
fuzz: setup build nightly $(TOOLS)/cargo-fuzz
	@echo "==> tests/fuzz (6 targets under libFuzzer, 5 in Python, each for $(FUZZ_MINUTES) minutes)"
	PATH="$(TOOLS):$$PATH" FUZZ_MINUTES=$(FUZZ_MINUTES) $(TWO_DEVICES) tests/fuzz/run.sh
	FUZZ_MINUTES=$(FUZZ_MINUTES) $(TWO_DEVICES) .venv/bin/python -m pytest -q -rP -o faulthandler_timeout=$$((60 * $(FUZZ_MINUTES) + 900)) tests/python/test_fuzz.py

.PHONY: tidy
tidy: .venv/.ready
	@echo "==> tests/tidy.sh (about 1 minute)"
	@tests/tidy.sh

.PHONY: deny
deny: $(TOOLS)/cargo-deny
	@echo "==> cargo deny (seconds)"
	@PATH="$(TOOLS):$$PATH" tests/deny.sh

# Each prints its result in one line, and a failure does not stop the others: together they take hours.
CHECKS = lint tidy deny sanitize sanitize-threads test-processes test-memory test-faults test-pressure test-stress fuzz soak

.PHONY: check-all
check-all:
	@failed=; for check in $(CHECKS); do \
		echo "==> check-all: $$check"; SECONDS=0; outcome=passed; \
		$(MAKE) -f tests/checks.mk --no-print-directory $$check || { outcome=FAILED; failed+=" $$check"; }; \
		echo "==> check-all: $$check $$outcome in $$((SECONDS / 60)) min $$((SECONDS % 60)) s"; \
	done; \
	if [ -n "$$failed" ]; then echo "check-all: FAILED:$$failed" >&2; exit 1; fi; \
	echo "check-all: $(words $(CHECKS)) checks passed: $(CHECKS)"

.PHONY: test-downstream
test-downstream: .venv/.ready
	@echo "==> tests/downstream (1-2 minutes the first time)"
	cp Cargo.lock tests/downstream/
	CARGO_TARGET_DIR=target/downstream cargo build --manifest-path tests/downstream/Cargo.toml
	env -i PATH="$$PATH" HOME="$$HOME" target/downstream/debug/downstream

.PHONY: test-stub
test-stub: | check-tools
	@echo "==> tests/no-sycl.sh (about 1 minute the first time)"
	PYTHON="$(PYTHON)" tests/no-sycl.sh

.PHONY: test-icpx
test-icpx: .venv/.ready
	@echo "==> tests/icpx.sh (1-2 minutes the first time)"
	tests/icpx.sh

.PHONY: test-processes
test-processes: setup build
	@echo "==> pytest in two processes, tests of other processes (about 4 minutes)"
	$(TWO_DEVICES) USMQ_CHECKS=1 $(PYTEST) $(PROCESSES)

.PHONY: test-stress
test-stress: setup build
	@echo "==> 64 threads from Rust, 5 minutes"
	$(TWO_DEVICES) USMQ_STRESS_SECONDS=300 cargo test --features arrow --test stress -- --nocapture
	@echo "==> threads and tasks from Python, 2 minutes each; then 120 orders of import"
	$(TWO_DEVICES) USMQ_STRESS_SECONDS=120 .venv/bin/python -m pytest -s tests/python/test_stress.py
	$(TWO_DEVICES) USMQ_ALL_ORDERS=1 .venv/bin/python -m pytest tests/python/test_coexistence.py

# A free-threaded CPython (`configure --disable-gil`), 3.14 or newer. dpctl and dpnp are not available for it.
FREE_THREADED ?= python3.14t
FREE_TESTS = $(addprefix tests/python/test_,$(addsuffix .py,threads stress array_copies array_views arrays \
	buffers cli cuda docstrings exits fork kernel_arguments kernels opencl_kernels placement profile signals tasks trace security))
.venv-free/.ready: requirements/free-threaded.txt requirements/runtime.txt | check-tools
	$(call need,$(FREE_THREADED),a free-threaded CPython, and name it: tests/run test-free-threaded FREE_THREADED=/path/to/python3.14t)
	@echo "==> .venv-free: SYCL runtime, numpy, pyarrow (1 GB; as fast as the network)"
	$(FREE_THREADED) -m venv .venv-free
	.venv-free/bin/python $(PIP_INSTALL) --only-binary :all: -r requirements/free-threaded.txt
	@touch $@

.PHONY: test-free-threaded
test-free-threaded: .venv-free/.ready .venv-ocl2/.ready
	@echo "==> usmq for a free-threaded Python (minutes)"
	@rm -f target/free-threaded/usmq-*.whl
	.venv-free/bin/maturin build --release --strip --compatibility linux --interpreter .venv-free/bin/python --out target/free-threaded
	.venv-free/bin/python -m pip install --quiet --force-reinstall --no-deps --no-index target/free-threaded/usmq-*.whl
	@echo "==> pytest (about 6 minutes)"
	OCL_ICD_FILENAMES="$(CURDIR)/.venv-free/lib/libintelocl.so:$(CURDIR)/.venv-ocl2/lib/libintelocl.so" \
		.venv-free/bin/python -m pytest -rs $(FREE_TESTS)

.PHONY: test-wheel-quick
test-wheel-quick: setup wheel
	@echo "==> the wheel in a clean environment (about 1 minute)"
	.venv/bin/python tests/wheel.py install target/wheels/usmq-*.whl --how quick

.PHONY: test-wheel
test-wheel: setup wheel
	@echo "==> the wheel in clean environments (about 10 minutes, 3 GB at a time in target/wheel-test)"
	.venv/bin/python tests/wheel.py install target/wheels/usmq-*.whl

.PHONY: package
package: sdist
	@echo "==> cargo package (about 1 minute the first time)"
	PYO3_PYTHON="$(CURDIR)/.venv/bin/python" cargo package --workspace --allow-dirty
	@echo "==> cargo doc as docs.rs does (about 1 minute the first time)"
	DOCS_RS=1 RUSTDOCFLAGS="-D warnings" cargo doc --no-deps --features arrow,cuda --target-dir target/docs-rs
	@echo "==> a wheel from the sdist, in isolation (about 3 minutes)"
	.venv/bin/python -m pip wheel --quiet --no-deps --wheel-dir target/from-sdist target/sdist/usmq-*.tar.gz
