"""Rows for whole tasks of users: answer "row side count" on stdin with a number per operation.

Started by `run.py`. Each function below is one side of a row, and returns seconds per operation,
or bytes per array.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from time import perf_counter as now
from typing import Any

import dpctl
import dpctl.memory
import dpnp
import dpnp.tensor
import numpy as np
import pyarrow as pa
import usmq
from rows import Foreign

ITEMS = 256
MANY_ARRAYS = 100_000
SOURCE = """
#include <usmq/kernel.h>
USMQ_KERNEL(1) void twice(const float *x, float *y) {
  y[global_id(0)] = 2 * x[global_id(0)];
}
USMQ_KERNEL(1) void add(const float *x, float *y) {
  y[global_id(0)] += x[global_id(0)];
}
"""
# The counts of run.py are small: one warm-up of the same statement per round suffices.
WARM_UP = 8


def per_call(count: int, call: Callable[[], object]) -> float:
    """Return seconds per call."""
    for _ in range(count // WARM_UP + 1):
        call()
    begin = now()
    for _ in range(count):
        call()
    return (now() - begin) / count


class Sides:
    """Queues, kernels and inputs of both sides, which the rows share."""

    def __init__(self) -> None:
        self.queue = usmq.current_queue()
        self.peer_queue = dpctl.SyclQueue(self.queue.device.filter_string, property="in_order")
        self.numbers = [float(i) for i in range(1000)]
        self.twice = usmq.Kernel.from_sycl(SOURCE, "twice")
        self.add = usmq.Kernel.from_sycl(SOURCE, "add")
        self.small = usmq.zeros(1024)
        self.peer_small = dpnp.zeros(1024, dtype="f4", sycl_queue=self.peer_queue)
        words = [f"carrier {i % 997}" for i in range(1_000_000)]
        self.words = pa.array(words)
        size = sum(buffer.size for buffer in self.words.buffers() if buffer is not None)
        self.bytes = np.ones(size, "u1")
        self.warm = np.asarray(usmq.zeros(size, "u1", usm_type="host"))
        self.foreign = self.import_of(self.peer_queue)
        self.kept: list[Any] = []

    def import_of(self, queue: Any) -> Foreign:
        """Return an array of another library on this queue."""
        return Foreign(dpctl.memory.MemoryUSMDevice(1024, queue=queue), queue)

    def small_program(self) -> list[float]:
        """Allocate, fill, launch twice, read."""
        x = usmq.full(ITEMS, 1.0, "f4")
        y = usmq.empty(ITEMS, "f4")
        self.twice(ITEMS, x, y)
        self.add(ITEMS, x, y)
        result: list[float] = y.to_numpy()
        return result

    def small_program_of_dpnp(self) -> object:
        """Do the same with dpnp."""
        x = dpnp.full(ITEMS, 1.0, dtype="f4", sycl_queue=self.peer_queue)
        y = x * 2
        y += x
        return dpnp.asnumpy(y)

    def many_arrays(self, live: int, count: int) -> float:
        """Create and drop arrays while others live."""
        kept = [usmq.empty(16, "f4") for _ in range(live)]
        seconds = per_call(count, lambda: usmq.empty(16, "f4"))
        del kept
        return seconds

    def foreign_queues(self, queues: int, count: int) -> float:
        """Import an array while usmq knows other queues of another library."""
        while len(self.kept) < queues:
            queue = dpctl.SyclQueue(self.queue.device.filter_string, property="in_order")
            foreign = self.import_of(queue)
            self.kept.append((queue, foreign, usmq.asarray(foreign)))
        del self.kept[queues:]
        return per_call(count, lambda: usmq.asarray(self.foreign))


def resident() -> int:
    """Return the bytes of memory that the process occupies."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


def overhead(make: Callable[[], object]) -> float:
    """Return bytes per live array of 64 bytes."""
    first = [make() for _ in range(1000)]
    before = resident()
    arrays = [make() for _ in range(MANY_ARRAYS)]
    grown = resident() - before
    del first, arrays
    return grown / MANY_ARRAYS


def overhead_in_child(side: str) -> float:
    """Measure it in a fresh process, whose heap holds no free memory."""
    command = [sys.executable, __file__, "overhead", side]
    return float(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout.split()[-1])


def forget_files(module: str) -> None:
    """Drop the files of a module from the page cache, as far as the system allows."""
    folders = [Path(np.__file__).parents[1] / module, Path(sys.prefix) / "lib"]
    libraries = ("libsycl", "libur_", "libumf", "libintelocl", "libOpenCL", "libtbb", "libusmq")
    for folder in folders:
        for path in folder.rglob("*") if folder.name == module else folder.iterdir():
            wanted = folder.name == module or path.name.startswith(libraries)
            if wanted and path.is_file():
                descriptor = os.open(path, os.O_RDONLY)
                os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
                os.close(descriptor)


def cold_import(module: str) -> float:
    """Import a module in a fresh interpreter, with its files not in memory."""
    forget_files(module)
    code = (
        "from time import perf_counter as now; start = now(); "
        f"import {module}; print(now() - start)"
    )
    command = [sys.executable, "-I", "-c", code]
    return float(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout)


def answer(sides: Sides, row: str, side: str, count: int) -> float:
    """Run one round of one side."""
    ours = side == "usmq"
    match row:
        case "py.asarray_list":
            make = usmq.asarray if ours else dpnp.asarray
            return per_call(count, lambda: make(sides.numbers, dtype="f4"))
        case "py.to_numpy_4k":
            if ours:
                return per_call(count, sides.small.to_numpy)
            return per_call(count, lambda: dpnp.asnumpy(sides.peer_small))
        case "py.small_program" | "py.small_program_cpp":
            return per_call(count, sides.small_program if ours else sides.small_program_of_dpnp)
        case "py.many_arrays":
            return sides.many_arrays(MANY_ARRAYS if ours else 10, count)
        case "py.foreign_queues":
            return sides.foreign_queues(2000 if ours else 2, count)
        case "from_arrow.strings":
            if ours:
                return per_call(count, lambda: usmq.from_arrow(sides.words, usm_type="host"))
            return per_call(count, lambda: np.copyto(sides.warm, sides.bytes))
        case "memory.overhead":
            # run.py divides by nanoseconds.
            return overhead_in_child(side) / 1e9
        case "import.cold":
            return cold_import("usmq" if ours else "dpctl")
    raise ValueError(f"unknown row {row!r}")


def main() -> None:
    """Answer requests until stdin ends."""
    if sys.argv[1:2] == ["overhead"]:
        queue = usmq.current_queue()
        peer = dpctl.SyclQueue(queue.device.filter_string, property="in_order")
        if sys.argv[2] == "usmq":
            print(overhead(lambda: usmq.empty(16, "f4")))
        else:
            print(overhead(lambda: dpnp.tensor.empty(16, dtype="f4", sycl_queue=peer)))
        return
    sides = Sides()
    print("ready", flush=True)
    for line in sys.stdin:
        row, side, count = line.split()
        print(answer(sides, row, side, int(count)) * 1e9, flush=True)


if __name__ == "__main__":
    main()
