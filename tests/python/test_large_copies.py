"""Copies of at least 64 MiB, by several threads: results and order as with other commands."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterator

import numpy as np
import pytest
import usmq

Run = Callable[..., subprocess.CompletedProcess[str]]

LARGE = 64 << 20
ROOM = 4096

random = np.random.default_rng(1)
VALUES = random.integers(0, 256, LARGE + 4 * 65536, dtype="u1")


@pytest.fixture(scope="module")
def queue() -> Iterator[usmq.Queue]:
    with usmq.use_queue("opencl:cpu") as queue:
        yield queue


@pytest.fixture(scope="module")
def target(queue: usmq.Queue) -> usmq.Array:
    x = usmq.zeros(len(VALUES) + 2 * ROOM, "u1", queue=queue)
    x.wait()
    return x


@pytest.mark.parametrize("size", [LARGE, LARGE + 3 * 65536, LARGE + 65537])
@pytest.mark.parametrize(("to", "start"), [(0, 0), (0, 1), (1, 0), (63, 17), (4095, 4095)])
def test_each_byte_is_copied_and_no_other(
    target: usmq.Array, size: int, to: int, start: int
) -> None:
    target.fill(7)
    part = target[ROOM + to : ROOM + to + size]
    part.copy_from(VALUES[start : start + size])
    read = target.to_numpy()
    assert np.array_equal(read[ROOM + to : ROOM + to + size], VALUES[start : start + size])
    assert (read[: ROOM + to] == 7).all()
    assert (read[ROOM + to + size :] == 7).all()


def test_a_copy_between_arrays_has_the_same_bytes(target: usmq.Array) -> None:
    part = target[ROOM + 5 : ROOM + 5 + len(VALUES)]
    part.copy_from(usmq.asarray(VALUES))
    assert np.array_equal(part.to_numpy(), VALUES)


def test_a_copy_runs_between_the_kernels_before_and_after_it(queue: usmq.Queue) -> None:
    add = usmq.elementwise("unsigned *x", "x[i] += 1")
    x = usmq.zeros(LARGE // 4, "u4", queue=queue)
    y = usmq.zeros(LARGE // 4, "u4", queue=queue)
    for _ in range(20):
        add(x)
        y.copy_from(x)
        add(y)
    assert (x.to_numpy() == 20).all()
    assert (y.to_numpy() == 21).all()


def test_an_overlapping_copy_has_the_result_of_a_copy_of_the_source(target: usmq.Array) -> None:
    target[: len(VALUES)].copy_from(VALUES)
    target[ROOM : ROOM + LARGE].copy_from(target[:LARGE])
    assert np.array_equal(target[ROOM : ROOM + LARGE].to_numpy(), VALUES[:LARGE])


def test_threads_copy_on_queues_of_their_own(run_python: Run) -> None:
    code = """
import threading
import numpy as np
import usmq

def work(seed):
    queue = usmq.Queue("opencl:cpu")
    values = np.random.default_rng(seed).integers(0, 256, (64 << 20) + seed, dtype="u1")
    x = usmq.zeros(len(values), "u1", queue=queue)
    for _ in range(5):
        x.copy_from(values)
        same.append(np.array_equal(x.to_numpy(), values))
        x.fill(0)

same = []
threads = [threading.Thread(target=work, args=(seed,)) for seed in range(1, 4)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
print(len(same), all(same))
"""
    assert run_python(code).stdout == "15 True\n"


def test_a_copy_does_not_need_memory_for_threads(run_python: Run) -> None:
    code = """
import pathlib, resource, threading
import numpy as np
import usmq

values = np.arange(32 << 20, dtype="u4")
x = usmq.zeros(len(values), "u4", queue="opencl:cpu", usm_type="host")
x.wait()
pages = int(pathlib.Path("/proc/self/statm").read_text().split()[0])
limit = pages * resource.getpagesize() + (1 << 20)
resource.setrlimit(resource.RLIMIT_AS, (limit, resource.RLIM_INFINITY))
try:
    threading.Thread(target=print).start()
except RuntimeError:
    print("no thread can start")
x.copy_from(values)
x.wait()
resource.setrlimit(resource.RLIMIT_AS, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
print((np.asarray(x) == values).all())
"""
    assert run_python(code).stdout == "no thread can start\nTrue\n"


def test_a_process_copies_whose_cores_change(run_python: Run) -> None:
    code = """
import os
import numpy as np
import usmq

values = np.arange(16 << 20, dtype="u4")
x = usmq.zeros(len(values), "u4", queue="opencl:cpu")
cores = os.sched_getaffinity(0)
for own in ({min(cores)}, cores, {max(cores)}):
    os.sched_setaffinity(0, own)
    values += 1
    x.copy_from(values)
    print((x.to_numpy() == values).all())
"""
    assert run_python(code).stdout == "True\n" * 3


def test_each_thread_keeps_its_cores(run_python: Run) -> None:
    code = """
import os
import numpy as np
import usmq

def cores():
    return {thread: os.sched_getaffinity(int(thread)) for thread in os.listdir("/proc/self/task")}

values = np.ones(64 << 20, "u1")
x = usmq.zeros(len(values), "u1", queue="opencl:cpu")
x.wait()
before = cores()
for _ in range(20):
    x.copy_from(values)
    x.copy_from(usmq.asarray(values))
    x.wait()
after = cores()
kept = before.keys() & after.keys()
print(len(kept) > 1, all(after[thread] == before[thread] for thread in kept))
"""
    assert run_python(code).stdout == "True True\n"


def test_an_emulated_fault_reaches_a_large_copy_on_a_cpu(run_python: Run) -> None:
    code = """
import time
import usmq

add = usmq.elementwise("int *x", "x[i] += 1")
device = usmq.Queue("opencl:cpu").device
cpu = usmq.Queue(device, context=usmq.Context([device]))
x = usmq.zeros(16 << 20, "i4", queue="gpu:0")
x.wait()
add(x)  # fails
y = x.to(cpu)
time.sleep(0.5)
try:
    y.to_numpy()
    print("read")
except usmq.SyclError:
    print("SyclError")
"""
    done = run_python(code, USMQ_EMULATE_GPUS="1", USMQ_EMULATE_FAULTS="gpu:0=command-error@2")
    assert done.stdout == "SyclError\n"
