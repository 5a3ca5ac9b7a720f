#!/usr/bin/env bash
# Runs the suites on emulated GPUs of one context, with the strict rule: `tests/run gpus [PART ...]`.
set -euo pipefail
cd "$(dirname "$0")/.."

# Test files that are not run here, with the reason.
left_out() {
    cat << 'END'
test_cuda              memory of NVIDIA GPUs, which the emulator does not change
test_demo              runs as the part `demo`
test_doctor            breaks the environment of CPU drivers; test_doctor_layers.py is about emulated GPUs
test_doctor_findings   as test_doctor
test_doctor_kernels    as test_doctor
test_doctor_runtime    as test_doctor
test_emulated_gpus     sets the emulator up by itself
test_emulated_layer    as test_emulated_gpus
test_emulate_command   as test_emulated_gpus
test_doctor_layers     as test_emulated_gpus
test_layers            as test_emulated_gpus
test_layer_tables      as test_emulated_gpus
test_first_query       is about the CPU driver that another library asks for first
test_coexistence       as test_first_query
test_profile_pictures  draws the same pictures for any device
test_site              is about pages
test_docs              as test_site
test_workflows         is about files of the repository
test_packages          runs as the part `packages`
test_docs_examples     as test_site; the output is that of the CPU device
test_driver_waits      is about lock-ups of the CPU driver
test_kernel_cache      is about memory of the host
test_included_types    is about source code
test_security          is about files
test_cli_output        is about words of commands
test_cmake             builds programs; test_c_api calls the same functions
test_nanobind          as test_cmake
test_pyarrow_mapper    as test_cmake
test_dask_chaos        runs as the part `dask`
test_dask_cluster      with the other test_dask files, runs as the part `dask`
test_dask_command      as test_dask_cluster
test_dask_faults       as test_dask_cluster
test_dask_losses       as test_dask_cluster
test_dask_shm_transport as test_dask_cluster
test_dask_tables       as test_dask_cluster
test_dask_arguments    as test_dask_cluster
test_dask_expressions  as test_dask_cluster
test_dask_frames       as test_dask_cluster
test_dask_devices      as test_dask_cluster
test_dask_memory       as test_dask_cluster
test_dask_partitions   as test_dask_cluster
END
}

pytest() {
    USMQ_EMULATE_GPUS=$1 USMQ_CHECKS=1 .venv/bin/python -m pytest -o faulthandler_timeout=300 "${@:2}"
}

# In two processes. pytest-xdist would never end after it replaced a worker that crashed.
pytest_in_two() {
    pytest 2 -n 2 --dist loadfile --max-worker-restart=0 "$@"
}

python_part() {
    echo "==> pytest on 2 emulated GPUs beside the CPU (about 8 minutes); not run here:"
    left_out
    local ignored=()
    while read -r name _; do ignored+=("--ignore=tests/python/$name.py"); done < <(left_out)
    # These measure times, so no other test runs beside them.
    local alone=(tests/python/test_{contended_launches,idle_threads,reads_in_flight,unrelated_copies}.py)
    pytest_in_two tests/python "${ignored[@]}" "${alone[@]/#/--ignore=}"
    pytest 2 "${alone[@]}"
}

rust_part() {
    echo "==> cargo test on 4 emulated GPUs (about 6 minutes once built)"
    USMQ_EMULATE_GPUS=4 RUST_TEST_THREADS=1 cargo test --features arrow
}

packages_part() {
    echo "==> the five packages on 2 emulated GPUs (about 1 minute)"
    pytest 2 tests/python/test_packages.py
}

demo_part() {
    echo "==> the demo on 2 emulated GPUs (about 15 seconds)"
    USMQ_EMULATE_GPUS=2 .venv/bin/python -m usmq demo
}

dask_part() {
    echo "==> dask on 2 emulated GPUs (about 3 minutes)"
    pytest 2 tests/python/test_dask_*.py
}

coexistence_part() {
    echo "==> beside dpnp and dpctl on 2 emulated GPUs, every pair of conditions (about 2 minutes)"
    .venv/bin/python -m usmq emulate -n 2 -- .venv/bin/python tests/coexistence
}

soak_part() {
    echo "==> soak on 2 emulated GPUs (${SOAK_MINUTES:=10} minutes)"
    mkdir -p target/soak
    USMQ_EMULATE_GPUS=2 .venv/bin/python tests/soak.py --minutes "$SOAK_MINUTES" --folder target/soak
}

[ $# -gt 0 ] || set -- python rust packages demo dask coexistence soak
for part in "$@"; do
    case $part in
    python | rust | packages | demo | dask | coexistence | soak) "${part}_part" ;;
    *)
        echo "tests/run gpus: unknown part '$part'; expected python, rust, packages, demo, dask, coexistence, soak" >&2
        exit 2
        ;;
    esac
done
