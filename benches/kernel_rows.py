"""The rows of kernel builds: `usmq/kernel.h` against SYCL's headers, and whole processes."""

from __future__ import annotations

import itertools
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable

import usmq

SHORT = """#include <usmq/kernel.h>
USMQ_KERNEL(1) void axpy(float a, const float *x, float *y) {
  auto i = global_id(0);
  y[i] += a * x[i];
}
"""
SYCL = """#include <sycl/sycl.hpp>
extern "C" SYCL_EXTERNAL
SYCL_EXT_ONEAPI_FUNCTION_PROPERTY((sycl::ext::oneapi::experimental::nd_range_kernel<1>))
void axpy(float a, const float *x, float *y) {
  auto i = sycl::ext::oneapi::this_work_item::get_nd_item<1>().get_global_linear_id();
  y[i] += a * x[i];
}
"""
PROGRAM = """
import usmq
usmq.devices()
x, y = usmq.arange(256, dtype="f4"), usmq.zeros(256, "f4")
usmq.Kernel.from_sycl('''{}''', "axpy")(256, 2.0, x, y)
assert y.tolist()[3] == 6.0
"""
numbers = itertools.count()


def build(source: str) -> float:
    """Build a source that is not in a cache."""
    begun = time.perf_counter()
    usmq.Kernel.from_sycl(f"{source}// {next(numbers)}\n", "axpy")
    return time.perf_counter() - begun


def process(source: str, folder: str) -> float:
    """Run a whole program that builds and runs the kernel, with kernels cached in this folder."""
    environment = os.environ | {"SYCL_CACHE_PERSISTENT": "1", "SYCL_CACHE_DIR": folder}
    begun = time.perf_counter()
    command = [sys.executable, "-c", PROGRAM.format(source)]
    subprocess.run(command, check=True, env=environment)
    return time.perf_counter() - begun


def empty_cache(source: str) -> float:
    """Run the program with an empty cache, apart from the result of the header's trial."""
    with tempfile.TemporaryDirectory() as folder:
        process(SHORT.replace("a * x[i]", "a * x[i] + 0"), folder)
        return process(source, folder)


def full_cache(source: str) -> float:
    """Run the program after another process has filled the cache."""
    with tempfile.TemporaryDirectory() as folder:
        process(source, folder)
        return process(source, folder)


ROWS: dict[str, Callable[[str], float]] = {
    "kernel.build": build,
    "kernel.new_process": empty_cache,
    "kernel.new_process_cached": full_cache,
}


def main() -> None:
    """Answer "row side count" on stdin with ns per operation, as `rows.py`."""
    for source in (SHORT, SYCL):
        build(source)
    print("ready", flush=True)
    for line in sys.stdin:
        row, side, count = line.split()
        source = SYCL if side == "peer" else SHORT
        seconds = sum(ROWS[row](source) for _ in range(int(count))) / int(count)
        print(seconds * 1e9, flush=True)


if __name__ == "__main__":
    main()
