"""Measure copies between CUDA memory and host USM against the driver's own copies."""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Callable
from ctypes import byref, c_size_t, c_ulonglong, c_void_p
from pathlib import Path

import numpy as np
import usmq

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "cuda"))
import peer

SIZES = [int(size) for size in sys.argv[1:]] or [1 << bits for bits in (30, 26, 23, 20, 16, 10)]
ROUNDS = 9
TARGET = 0.9


def speeds(size: int, calls: list[Callable[[], None]]) -> list[float]:
    """Return the median GB/s of calls that are run in turn."""
    times: list[list[float]] = [[] for _ in calls]
    for number in range(ROUNDS + 2):
        for call, found in zip(calls, times, strict=True):
            start = time.perf_counter()
            call()
            if number > 1:
                found.append(time.perf_counter() - start)
    return [size / statistics.median(found) / 1e9 for found in times]


def measure(size: int) -> None:
    """Print a row for each direction."""
    memory = peer.Memory(np.zeros(size, "u1"))
    stream = peer.Stream()
    pinned = c_void_p()
    peer._call("cuMemHostAlloc", byref(pinned), c_size_t(size), 0)
    host = usmq.zeros(size, dtype="u1", usm_type="host")
    host.wait()

    def copy(target: int, source: int) -> None:
        peer._call(
            "cuMemcpyAsync", c_ulonglong(target), c_ulonglong(source), c_size_t(size), stream.handle
        )
        stream.wait()

    def driver_in() -> None:
        copy(pinned.value or 0, memory.ptr)

    def driver_out() -> None:
        copy(memory.ptr, pinned.value or 0)

    def to_usm() -> None:
        usmq.asarray(memory, usm_type="host").wait()

    def to_cuda() -> None:
        stream.follow(usmq.asarray(host, device="cuda:0").__cuda_array_interface__["stream"])
        stream.wait()

    for name, calls in (
        ("CUDA to host USM", [driver_in, to_usm]),
        ("host USM to CUDA", [driver_out, to_cuda]),
    ):
        plain, ours = speeds(size, calls)
        print(f"{name:18}{size >> 10:>10}{plain:>12.2f}{ours:>12.2f}{ours / plain:>8.3f}")
    peer._call("cuMemFreeHost", pinned)


def main() -> None:
    """Print a table with a row for each size and direction."""
    device = usmq.asarray(np.zeros(1), device="cuda:0")
    print(f"{device!r}; medians of {ROUNDS} rounds in turn; target of the ratio {TARGET}")
    print(f"{'':18}{'KiB':>10}{'driver GB/s':>12}{'usmq GB/s':>12}{'ratio':>8}")
    for size in SIZES:
        measure(size)


if __name__ == "__main__":
    main()
