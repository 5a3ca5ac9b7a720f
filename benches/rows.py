"""The Python rows of `make bench`: answer "row side count" on stdin with ns per operation.

Both sides of a row are statements over the same names, so that timing them costs no call. Started
by `run.py`; what is compared with what stands in `ROWS`.
"""

from __future__ import annotations

import contextlib
import ctypes
import subprocess
import sys
import threading
import timeit
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import dpctl
import dpctl.memory
import dpctl.program
import dpnp.tensor
import tvm_ffi
import usmq

ITEMS = 256
LAUNCHES = 1000
LARGE = 64 << 20
SOURCE = """
kernel void axpy(float a, global const float *x, global float *y, ulong n) {
  size_t i = get_global_id(0);
  if (i < n) y[i] += a * x[i];
}
kernel void spin(uint steps, global uint *x) {
  size_t i = get_global_id(0);
  uint state = x[i];
  for (uint step = 0; step < steps; ++step) state = state * 1664525u + 1013904223u;
  x[i] = state;
}
"""
# 0.3 to 1.1 s on two cores.
LONG_ITEMS, LONG_STEPS = 1 << 16, 110_000

# Row: the statement of usmq, that of its peer.
ROWS = {
    "py.current_queue": ("usmq.current_queue()", "dpctl.get_device_cached_queue(key)"),
    "py.use_queue": ("with usmq.use_queue(name): pass", "dpctl.SyclQueue(name)"),
    "py.launch_wait": (
        "axpy(ITEMS, 2.0, x, y, ITEMS).wait()",
        "peer_queue.submit(peer_axpy, peer_args, peer_items)",
    ),
    "replay.py_chain10": ("chain10.replay().wait()", ""),
    "replay.py_chain100": ("chain100.replay().wait()", ""),
    "py.launch_throughput": (
        "for _ in range(LAUNCHES): axpy(ITEMS, 2.0, x, y, ITEMS)\nqueue.wait()",
        "for _ in range(LAUNCHES): peer_queue.submit_async(peer_axpy, peer_args, peer_items)\n"
        "peer_queue.wait()",
    ),
    # Beside a thread that runs pure Python all the time.
    "py.launch_contended": (
        "axpy(ITEMS, 2.0, x, y, ITEMS).wait()",
        "peer_queue.submit(peer_axpy, peer_args, peer_items)",
    ),
    "py.long_kernel": (
        "spin(LONG_ITEMS, LONG_STEPS, long).wait()",
        "peer_queue.submit(peer_spin, peer_long_args, peer_long_items)",
    ),
    "py.follow2": (
        "usmq.follow(x, y)",
        "dpnp.tensor.get_execution_queue((peer_queue, peer_queue))",
    ),
    "py.asarray_suai": ("usmq.asarray(foreign)", "dpctl.memory.as_usm_memory(foreign)"),
    # Each array through the protocol to its own library.
    "dlpack.round_trip": ("usmq.from_dlpack(x)", "dpnp.tensor.from_dlpack(peer_array)"),
    "dlpack.c_exchange": ("tvm_ffi.from_dlpack(x)", "tvm_ffi.from_dlpack(x.__dlpack__(stream=-1))"),
    # usmq itself is the peer: one GiB against one KiB.
    "py.collocate_rebind": (
        "usmq.collocate(gibibyte, queue=other)",
        "usmq.collocate(kibibyte, queue=other)",
    ),
} | {
    f"py.alloc_free.{size}": (
        f"usmq.empty({size}, 'u1', queue=queue)",
        f"dpctl.memory.MemoryUSMDevice({size}, queue=peer_queue)",
    )
    for size in (64, 4096, 1 << 20, LARGE)
}
COLLOCATE = {
    "py.collocate_cross_context": (
        "usmq.collocate(large, queue=far).wait()",
        # As collocate, into new memory.
        "dpctl.memory.MemoryUSMDevice(LARGE, queue=peer_far).copy_from_device(peer_large)",
    )
}


class Foreign:
    """An array of another library: memory of dpctl, described by a dict with dpctl's queue."""

    def __init__(self, memory: Any, queue: Any) -> None:
        self.memory = memory
        self.__sycl_usm_array_interface__ = {
            "version": 1,
            "data": (memory._pointer, False),
            "shape": (memory.nbytes,),
            "typestr": "|u1",
            "strides": None,
            "offset": 0,
            "syclobj": queue,
        }


def names() -> dict[str, Any]:
    """Return the variables of the statements in `ROWS`."""
    queue = usmq.current_queue()
    name = queue.device.filter_string
    peer_queue = dpctl.SyclQueue(name, property="in_order")
    peer_x, peer_y = (dpctl.memory.MemoryUSMDevice(4 * ITEMS, queue=peer_queue) for _ in range(2))
    peer_long = dpctl.memory.MemoryUSMDevice(4 * LONG_ITEMS, queue=peer_queue)
    for memory in (peer_x, peer_y, peer_long):
        memory.copy_from_host(bytes(memory.nbytes))
    peer_program = dpctl.program.create_program_from_source(peer_queue, SOURCE)
    # The kernel and the work of the C++ program.
    chained = usmq.Kernel.from_sycl(Path(__file__).with_name("axpy.cpp").read_text(), "axpy")
    chain_x, chain_y = usmq.zeros(ITEMS), usmq.zeros(ITEMS)

    def chain(count: int) -> usmq.Graph:
        with usmq.capture() as graph:
            for _ in range(count):
                chained(ITEMS, 2.0, chain_x, chain_y, ITEMS)
        return graph

    return {
        "chain10": chain(10),
        "chain100": chain(100),
        "usmq": usmq,
        "dpctl": dpctl,
        "dpnp": dpnp,
        "tvm_ffi": tvm_ffi,
        "ITEMS": ITEMS,
        "LAUNCHES": LAUNCHES,
        "queue": queue,
        "name": name,
        # In the context of `queue`.
        "other": usmq.Queue(queue.device, profiling=True),
        "key": (peer_queue.sycl_context, peer_queue.sycl_device),
        "x": usmq.zeros(ITEMS),
        "y": usmq.zeros(ITEMS),
        "axpy": usmq.Kernel.from_opencl(SOURCE, "axpy"),
        "peer_queue": peer_queue,
        "spin": usmq.Kernel.from_opencl(SOURCE, "spin"),
        "long": usmq.zeros(LONG_ITEMS, "u4"),
        "LONG_ITEMS": LONG_ITEMS,
        "LONG_STEPS": LONG_STEPS,
        "peer_axpy": peer_program.get_sycl_kernel("axpy"),
        "peer_spin": peer_program.get_sycl_kernel("spin"),
        "peer_long_args": [ctypes.c_uint32(LONG_STEPS), peer_long],
        "peer_long_items": [LONG_ITEMS],
        "peer_args": [ctypes.c_float(2.0), peer_x, peer_y, ctypes.c_uint64(ITEMS)],
        "peer_items": [ITEMS],
        "peer_array": dpnp.tensor.zeros(ITEMS, dtype="f4"),
        "foreign": Foreign(peer_x, peer_queue),
        "kibibyte": usmq.empty(1 << 10, "u1"),
        "gibibyte": usmq.empty(1 << 30, "u1"),
    }


def collocate_names() -> dict[str, Any]:
    """Return the variables of the statements in `COLLOCATE`."""
    queue = usmq.current_queue()
    others = [device for device in usmq.devices() if device != queue.device]
    device = others[0] if others else queue.device.sub_devices(1)[0]
    far = usmq.Queue(device)
    # One context on both sides: dpctl can only get the context of a sub-device from usmq.
    peer_far = dpctl.SyclQueue(far._get_capsule())
    peer_large = dpctl.memory.MemoryUSMDevice(LARGE, queue=dpctl.SyclQueue(queue._get_capsule()))
    peer_large.memset(1)
    return {
        "usmq": usmq,
        "dpctl": dpctl,
        "LARGE": LARGE,
        "large": usmq.full(LARGE, 1, "u1"),
        "far": far,
        "peer_large": peer_large,
        "peer_far": peer_far,
    }


@contextlib.contextmanager
def busy_python() -> Iterator[None]:
    """Run pure Python in another thread."""
    stop = False

    def work() -> None:
        while not stop:
            sum(range(100))

    thread = threading.Thread(target=work)
    thread.start()
    yield
    stop = True
    thread.join()


def import_seconds(module: str) -> float:
    """Import a module in a fresh interpreter."""
    code = (
        "from time import perf_counter as now; start = now(); "
        f"import {module}; print(now() - start)"
    )
    command = [sys.executable, "-I", "-c", code]
    return float(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout)


def main() -> None:
    """Answer requests until stdin ends."""
    make: Callable[[], dict[str, Any]] = names
    rows = ROWS
    if sys.argv[1:] == ["collocate"]:
        make, rows = collocate_names, COLLOCATE
    elif sys.argv[1:] == ["arrow"]:
        import arrow_rows

        make, rows = arrow_rows.names, arrow_rows.ROWS
    elif sys.argv[1:] == ["host"]:
        import host_rows

        make, rows = host_rows.names, host_rows.ROWS
    known = make()
    print("ready", flush=True)
    for line in sys.stdin:
        row, side, text = line.split()
        count = int(text)
        if row == "py.import":
            seconds = import_seconds("usmq" if side == "usmq" else "dpctl")
        else:
            each = LAUNCHES if row == "py.launch_throughput" else 1
            timer = timeit.Timer(rows[row][side == "peer"], globals=known)
            with busy_python() if row == "py.launch_contended" else contextlib.nullcontext():
                timer.timeit(count // each // 8 + 1)
                seconds = timer.timeit(count // each) / count
        print(seconds * 1e9, flush=True)


if __name__ == "__main__":
    main()
