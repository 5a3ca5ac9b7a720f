"""Measure copies of CUDA memory to host USM against the driver's own copy into pinned memory."""

from __future__ import annotations

import statistics
import sys
import time
from ctypes import byref, c_size_t, c_ulonglong, c_void_p
from pathlib import Path

import numpy as np
import usmq

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "cuda"))
import peer

BYTES = int(sys.argv[1]) if len(sys.argv) > 1 else 1 << 30
ROUNDS = 9
TARGET = 0.9


def main() -> None:
    """Measure both in turn and print the medians and their ratio."""
    memory = peer.Memory(np.zeros(BYTES, "u1"))
    stream = peer.Stream()
    pinned = c_void_p()
    peer._call("cuMemHostAlloc", byref(pinned), c_size_t(BYTES), 0)

    def plain() -> None:
        target, source = c_ulonglong(pinned.value or 0), c_ulonglong(memory.ptr)
        peer._call("cuMemcpyAsync", target, source, c_size_t(BYTES), stream.handle)
        stream.wait()

    def ours() -> None:
        usmq.asarray(memory, usm_type="host").wait()

    times: dict[str, list[float]] = {"plain": [], "ours": []}
    for number in range(ROUNDS + 2):
        for name, call in (("plain", plain), ("ours", ours)):
            start = time.perf_counter()
            call()
            if number > 1:
                times[name].append(time.perf_counter() - start)
    speed = {name: BYTES / statistics.median(values) / 1e9 for name, values in times.items()}
    device = usmq.asarray(np.zeros(1), device="cuda:0")
    print(f"{device!r}, {BYTES >> 20} MiB, medians of {ROUNDS} rounds in turn")
    print(f"cuMemcpyAsync into pinned memory  {speed['plain']:7.2f} GB/s")
    print(f"usmq, to host USM                 {speed['ours']:7.2f} GB/s")
    print(f"ratio {speed['ours'] / speed['plain']:.3f} (target: at least {TARGET})")


if __name__ == "__main__":
    main()
