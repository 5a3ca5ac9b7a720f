"""The soak test: repeat mixed work in one process, and watch for growth.

    python tests/soak.py [--minutes 30]

Each round does every job below. After the first tenth of the time, which fills caches and pools,
nothing may grow: the slope of each number is fitted and printed. An error, a wrong value, or a
slope above its bound fails the run.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import ctypes
import faulthandler
import functools
import gc
import io
import os
import pickle
import random
import sys
import time
import traceback
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import dpctl
import dpctl.memory
import dpctl.program
import dpnp
import numpy as np
import pyarrow as pa
import usmq
from usmq import _demo_reference, _flights, demo

AXPY = """
#include <sycl/sycl.hpp>
namespace ext = sycl::ext::oneapi;
extern "C" SYCL_EXTERNAL SYCL_EXT_ONEAPI_FUNCTION_PROPERTY((ext::experimental::nd_range_kernel<1>))
void axpy(float a, const float *x, float *y) {
  size_t i = ext::this_work_item::get_nd_item<1>().get_global_linear_id();
  y[i] += a * x[i];
}"""

ADD = """kernel void add(global const uint *x, global uint *y, uint k) {
    y[get_global_id(0)] = x[get_global_id(0)] + k;
}"""

# A round that takes longer hangs: the stacks of all Python threads are printed, and the run fails.
SECONDS_OF_A_ROUND = 300

# Growth per minute that is noise of the allocator, not a leak. A leak of one page per
# round is far above the first.
BOUNDS = {"memory, KiB": 1024.0, "USM used, KiB": 0.0, "USM reserved, KiB": 512.0}
# One that is lost in the middle of half an hour tilts the line by 0.05.
BOUNDS |= {"arrays": 0.0, "objects of the shim": 0.02, "threads": 0.02, "files": 0.02}
ROUNDS_BEFORE_DEMO = 20
# The line goes through the least of each of so many parts of the time: what comes and goes, as a
# queue whose work has just ended, is above it, and what is lost raises it for good.
PARTS = 20
# Each sample is taken after the pools have given back what they keep, and with it the events of the
# last use of each block: how many those are is chance, by the blocks' sizes.
ROUNDS_BETWEEN_SAMPLES = 5
# Threads of usmq that end after some idle time, and the one that starts when threads first compete
# for the GIL.
PASSING = {"usmq-assist", "usmq-submit"}

# Read and decoded once: reading the same CSV files again and again, without any use of usmq, lets
# the process grow by most of a MiB each time.
_flights.load = functools.cache(_flights.load)
_demo_reference.Reference = functools.lru_cache(1)(_demo_reference.Reference)
_flights.Flights.__hash__ = object.__hash__


class Job:
    """The queues and kernels that the jobs share."""

    def __init__(self, seed: int):
        self.random = random.Random(seed)
        devices = usmq.devices()
        self.queues = [usmq.Queue(device) for device in devices if device.has_usm("device")]
        if len(self.queues) == 1:
            self.queues.append(usmq.Queue(devices[0], profiling=True))
        self.axpy = usmq.Kernel.from_sycl(AXPY, "axpy")
        self.peer = dpctl.SyclQueue(
            dpctl.SyclQueue(self.queues[0]._get_capsule()).sycl_context,
            dpctl.SyclQueue(self.queues[0]._get_capsule()).sycl_device,
            property="in_order",
        )
        built = dpctl.program.create_program_from_source(self.peer, ADD)
        self.add = built.get_sycl_kernel("add")
        # The same threads all the time: the OpenCL driver keeps some KiB for good of each thread
        # that made a copy, for any caller.
        self.pool = ThreadPoolExecutor(8)
        size = 40_000
        self.table = pa.table(
            {
                "x": pa.array(np.arange(size) / 8, mask=np.arange(size) % 7 == 0),
                "k": pa.array([f"key {n % 11}" for n in range(size)]).dictionary_encode(),
                "list": pa.array([[n, n + 1] if n % 3 else None for n in range(size)]),
            }
        )

    def queue(self) -> usmq.Queue:
        """Return any of the queues."""
        return self.random.choice(self.queues)

    def size(self, most: int) -> int:
        """Return one of eight sizes.

        The CPU driver keeps about 111 bytes for each address that a copy has used
        (tests/upstream/copy_addresses.cpp). With few sizes, memory of the host returns to the same
        addresses.
        """
        return max(1, most * self.random.randrange(8) // 8)

    def kernels(self) -> None:
        """Launch in scopes, on views, with sizes that vary."""
        n = self.size(200_000)
        with usmq.use_queue(self.queue()) as queue:
            x, y = usmq.full(n, 2, "f4"), usmq.zeros(n, "f4")
            for _ in range(self.random.randrange(1, 20)):
                self.axpy(n, 1.0, x, y)
            total = float(y.to_numpy().sum())
            assert y.queue == queue
        assert total % (2 * n) == 0, total

    def arrow(self) -> None:
        """Import tables, export them, and import them again."""
        rows = self.size(self.table.num_rows)
        sent = self.table.slice(self.random.randrange(2) * (self.table.num_rows - rows), rows)
        table = usmq.from_arrow(sent, queue=self.queue())
        again = usmq.from_arrow(table)
        assert again.to_arrow().equals(sent.combine_chunks())
        assert pickle.loads(pickle.dumps(table, protocol=5)).num_rows == rows

    def dlpack(self) -> None:
        """Share with dpnp and numpy in both directions."""
        n = self.size(10_000)
        x = usmq.arange(n, dtype="f4", queue=self.queues[0])
        theirs = dpnp.asarray(x) + 1
        ours = usmq.from_dlpack(theirs)
        assert float(ours.to_numpy().sum()) == float((np.arange(n, dtype="f4") + 1).sum())
        host = np.arange(n)
        assert usmq.from_dlpack(host).to_numpy()[-1] == n - 1

    def dpnp(self) -> None:
        """Work of dpnp in flight on our array and ours on its, handles dropped, then a read."""
        n = self.size(50_000)
        x = usmq.full(n, 1, "i8", queue=self.queues[0])
        theirs = dpnp.asarray(x)
        theirs += 7
        y, total = x.copy(), usmq.asarray(theirs + theirs)
        handles = [x, theirs]
        del x, theirs
        self.random.shuffle(handles)
        while handles:
            handles.pop()
        moved = usmq.collocate(y, queue=self.queues[1])
        assert (total.to_numpy() == 16).all()
        assert (moved.to_numpy() == 8).all()

    def dpctl(self) -> None:
        """Import and release memory of dpctl with kernels in flight."""
        n = self.size(50_000)
        x = usmq.full(n, 5, "u4", queue=self.queues[0])
        ours = dpctl.memory.as_usm_memory(x)
        made = dpctl.memory.MemoryUSMDevice(4 * n, queue=self.peer)
        after = [ours.sycl_queue.submit_barrier()]
        self.peer.submit(self.add, [ours, made, ctypes.c_uint32(3)], [n], dEvents=after)
        y = usmq.asarray(ForeignArray(made, n), copy=False)
        del made, ours
        y[: n // 2] = 9
        z = y.copy()
        del x, y
        assert (z.to_numpy() == np.repeat([9, 8], [n // 2, n - n // 2]).astype("u4")).all()

    def pyarrow(self) -> None:
        """Views of pyarrow on shared USM that outlive our handles."""
        n = self.size(50_000)
        x = usmq.arange(n, dtype="i8", usm_type="shared", queue=self.queues[0])
        column = usmq.from_arrow(x)
        seen = pa.array(column.host_view())
        del x, column
        assert seen.equals(pa.array(np.arange(n)))

    def collocate(self) -> None:
        """Explain and collocate arrays between queues."""
        a = usmq.arange(1000, queue=self.queues[0])
        b = usmq.arange(1000, queue=self.queues[1])
        assert len(usmq.explain(a, b).steps) == 2
        first, second = usmq.collocate(a, b)
        assert usmq.follow(first, second) == first.queue
        assert np.array_equal(first.to_numpy(), second.to_numpy())

    def threads(self) -> None:
        """Use one array from many threads, each in its own scope."""
        shared, wrong = usmq.full(5000, 1, "f4", queue=self.queues[0]), []

        def work(number: int) -> None:
            try:
                with usmq.use_queue(self.queues[number % 2]) as queue:
                    y = usmq.zeros(5000, "f4")
                    mine = usmq.collocate(shared, queue=queue)
                    self.axpy(5000, float(number), mine, y)
                    if float(y.to_numpy().sum()) != 5000.0 * number:
                        wrong.append(number)
            except BaseException:
                wrong.append(traceback.format_exc())

        list(self.pool.map(work, range(8)))
        assert not wrong, wrong

    def tasks(self) -> None:
        """Run tasks of usmq and of asyncio."""

        def body(task: usmq.TaskContext) -> float:
            x = task.array("f4")
            y = task.memory.zeros(len(x), "f4")
            task.memory.allocate(100)
            self.axpy(len(x), 3.0, x, y)
            return float(y.to_numpy().sum())

        async def one(queue: usmq.Queue) -> float:
            with usmq.use_queue(queue):
                x = usmq.full(100, 1, "f4")
                await asyncio.sleep(0)
                assert usmq.current_queue() == queue
                return float(usmq.run_task(body, x, memory_limit=4096))

        async def many() -> list[float]:
            return await asyncio.gather(*(one(self.queues[n % 2]) for n in range(20)))

        assert asyncio.run(many()) == [300.0] * 20

    def errors(self) -> None:
        """Make every kind of mistake; each is an error and leaks nothing."""
        device = self.queues[0].device
        mistakes: list[tuple[type[Exception], Callable[[], object]]] = [
            (usmq.DeviceNotFoundError, lambda: usmq.Device("cpu:99")),
            (usmq.SelectorError, lambda: usmq.Device("no such")),
            (usmq.LaunchError, lambda: self.axpy(3, 1.0, usmq.zeros(3, "f8"), usmq.zeros(3))),
            (usmq.AllocationError, lambda: usmq.empty(2**60, "u1")),
            (ValueError, lambda: usmq.zeros(3).reshape(2)),
            (IndexError, lambda: usmq.zeros(3)[5]),
            (TypeError, lambda: usmq.from_dlpack(3)),
            (TypeError, lambda: usmq.run_task(lambda task: task.arg(int), usmq.zeros(1))),
            (usmq.PlacementError, lambda: usmq.follow(*map(self.on, self.queues[:2]))),
        ]
        for kind, mistake in mistakes:
            try:
                mistake()
            except kind:
                continue
            raise AssertionError(f"no {kind.__name__}")
        usmq.set_memory_limit(2**20, device)
        try:
            usmq.empty(2**30, "u1", queue=device)
            raise AssertionError("a limit was passed")
        except usmq.AllocationError:
            pass
        finally:
            usmq.set_memory_limit(None, device)

    def on(self, queue: usmq.Queue) -> usmq.Array:
        """Return an array on a queue."""
        return usmq.zeros(3, queue=queue)

    def profile(self) -> None:
        """Profile a few commands."""
        with usmq.profile() as profile:
            usmq.zeros(10).to_numpy()
        assert profile.events

    def demo(self) -> None:
        """Run the main job."""
        text = io.StringIO()
        with contextlib.redirect_stdout(text), contextlib.redirect_stderr(text):
            status = demo.main(["--require-dpnp", "--profile", self.folder])
        assert status == 0, text.getvalue()

    folder = "/nowhere"


class ForeignArray:
    """USM of dpctl as an array of u4."""

    def __init__(self, memory: object, size: int):
        self.memory = memory
        self.__sycl_usm_array_interface__ = dict(memory.__sycl_usm_array_interface__) | {
            "data": (memory._pointer, False),
            "shape": (size,),
            "typestr": "<u4",
        }


def sample() -> dict[str, float]:
    """Return the values that must not grow."""
    kinds = usmq.memory_stats().values()
    found = {
        "memory, KiB": own_memory(),
        "USM used, KiB": sum(kind["used"] for kind in kinds) / 1024,
        "USM reserved, KiB": sum(kind["reserved"] for kind in kinds) / 1024,
        "arrays": float(sum(kind["live"] for kind in kinds)),
        "threads": float(len(threads())),
        "files": float(len(os.listdir("/proc/self/fd"))),
    }
    if (census := shim()) is not None:
        found["objects of the shim"] = float(census())
    return found


def own_memory() -> float:
    """Return the memory that the process has allocated and touched.

    Pages of files, as of libraries, are left out: a kernel that reclaims cold pages drops and reads
    them again, which moved the resident size by 70 MB in half an hour.
    """
    status = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    return sum(float(status[name].split()[0]) for name in ("RssAnon", "RssShmem", "VmSwap"))


def threads() -> list[str]:
    """Return the names of the threads of this process, except short-lived ones."""
    names = []
    for task in Path("/proc/self/task").iterdir():
        with contextlib.suppress(OSError):  # it has ended meanwhile
            names.append((task / "comm").read_text().strip())
    return [name for name in names if name not in PASSING]


def shim() -> Callable[[], int] | None:
    """Return the counters of queues, events and other objects, in a build with USMQ_FAULTS."""
    import usmq._core

    library = ctypes.CDLL(usmq._core.__file__)
    if not hasattr(library, "usmq_faults_live"):
        return None
    library.usmq_faults_live.restype = ctypes.c_int64
    return library.usmq_faults_live


def slope(times: list[float], values: list[float]) -> float:
    """Return the growth per minute of the best line."""
    parts = min(PARTS, len(times))
    if parts < 3:
        return 0.0
    middles = [float(part.mean()) / 60 for part in np.array_split(times, parts)]
    return float(np.polyfit(middles, [part.min() for part in np.array_split(values, parts)], 1)[0])


def main() -> int:
    """Run for the time given and report."""
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("--minutes", type=float, default=30)
    arguments.add_argument("--seed", type=int, default=1)
    arguments.add_argument("--folder", default="target", help="where the demo puts its profiles")
    given = arguments.parse_args()
    job, names = Job(given.seed), ["kernels", "arrow", "dlpack", "collocate", "threads"]
    names += ["dpnp", "dpctl", "pyarrow"]
    job.folder = str(Path(given.folder, "soak"))
    names += ["tasks", "errors", "profile"]
    start = shown = time.monotonic()
    end = start + given.minutes * 60
    done, times, samples = Counter[str](), [], []
    while (now := time.monotonic()) < end:
        faulthandler.dump_traceback_later(SECONDS_OF_A_ROUND, exit=True)
        for name in [*names, *(["demo"] if done["rounds"] % ROUNDS_BEFORE_DEMO == 0 else [])]:
            getattr(job, name)()
            done[name] += 1
        done["rounds"] += 1
        gc.collect()
        for queue in job.queues:
            queue.wait()
        if now - start > given.minutes * 6 and done["rounds"] % ROUNDS_BETWEEN_SAMPLES == 0:
            usmq.trim_memory()
            times.append(now - start)
            samples.append(sample())
        if now - shown > 30:
            shown = now
            left = (end - now) / 60
            print(f"  {done['rounds']:,} rounds, {left:.1f} minutes left: {sample()}", flush=True)
    faulthandler.cancel_dump_traceback_later()
    print(", ".join(f"{count:,} {name}" for name, count in done.items()))
    failed = False
    for name, last in samples[-1].items() if samples else []:
        growth = slope(times, [each[name] for each in samples])
        verdict = "ok" if growth <= BOUNDS[name] + 1e-6 else "GROWS"
        failed |= verdict != "ok"
        print(f"  {name:<22}{last:12,.0f} at the end, {growth:+9.3f} per minute: {verdict}")
    minutes = (time.monotonic() - start) / 60
    print(f"soak: {'FAILED' if failed else 'nothing grew'} in {minutes:.1f} minutes, no errors")
    return failed or not samples


if __name__ == "__main__":
    sys.exit(main())
