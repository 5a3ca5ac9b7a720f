"""Shared fixtures: real queues and devices, the kernels of the tests, and fresh interpreters."""

import gc
import os
import subprocess
import sys
import threading
import time
from pathlib import Path
from types import SimpleNamespace

import host_memory
import numpy as np
import pytest
import usmq
from children import SPIN
from doctor_environment import (  # noqa: F401
    compiled,
    cpu_driver,
    doctor,
    fresh,
    index,
    pristine,
    runtime_copy,
)

# The environment before any test or runtime could change it.
ENVIRONMENT = dict(os.environ)

SOURCE = (Path(__file__).parent / "kernels.cpp").read_text(encoding="utf-8")
KERNELS = ("advance", "advance_into", "fill", "axpy", "index2", "index3", "groups")


@pytest.fixture(scope="session", autouse=True)
def runtime():
    """Query devices through usmq first: it makes the pip-installed CPU device visible to peers."""
    assert usmq.devices(), "no device is visible: see python -m usmq doctor"


@pytest.fixture(scope="module", autouse=True)
def garbage():
    """Collect garbage of other files before tests that count live objects."""
    gc.collect()


@pytest.fixture(autouse=True)
def no_process_default():
    """Reset the process default, which a failed test may have left."""
    yield
    usmq.set_default_queue(None)


@pytest.fixture
def queue():
    return usmq.current_queue()


@pytest.fixture(scope="session")
def five_queues():
    """Return five queues of the default device that differ, the plain one first."""
    device = usmq.current_queue().device
    found = [usmq.Queue(device), usmq.Queue(device, profiling=True)]
    found += [usmq.Queue(device, in_order=False, profiling=each) for each in (False, True)]
    dpctl = pytest.importorskip("dpctl")
    found.append(usmq.Queue(dpctl.SyclQueue(device.filter_string)))
    assert len(set(found)) == 5
    return found


@pytest.fixture(scope="session")
def two_devices():
    """Return two root devices of the default one's kind: GPUs, or the CPUs of two platforms."""
    default = usmq.current_queue().device
    kind = f"{default.backend}:{default.device_type}"
    try:
        pair = usmq.Device(f"{kind}:0"), usmq.Device(f"{kind}:1")
    except usmq.DeviceNotFoundError as missing:
        pytest.skip(f"needs a second device beside the first: {missing}")
    for device in pair:
        if not device.has_usm("device"):
            pytest.skip(f"{device.filter_string} {device.name} has no USM")
    return pair


@pytest.fixture(scope="session")
def sub_device():
    """Return a sub-device: one compute unit with a context of its own, or a tile of a GPU."""
    device = usmq.current_queue().device
    if device.max_compute_units < 2:
        pytest.skip(f"{device.name} has one compute unit, so it cannot be partitioned")
    if "partition_equally" in device.partition_properties:
        return device.sub_devices(1)[0]
    try:
        return device.sub_devices("numa")[0]
    except usmq.SyclError as refused:
        pytest.skip(f"a device of one tile: {refused}")


@pytest.fixture(params=["second root device", "sub-device"])
def other_queue(request):
    """Return a queue of another device: of one context with the default queue, on emulated GPUs."""
    return usmq.Queue(other_device(request))


@pytest.fixture(params=["second root device", "sub-device"])
def queue_of_other_context(request):
    """Return a queue of another device, whose context is not that of the default queue."""
    device = other_device(request)
    return usmq.Queue(device, context=usmq.Context([device]))


def other_device(request):
    if request.param == "sub-device":
        return request.getfixturevalue("sub_device")
    first, second = request.getfixturevalue("two_devices")
    return second if usmq.current_queue().device == first else first


@pytest.fixture(scope="session")
def kernels():
    """Return the kernels of kernels.cpp by name."""
    built = {name: usmq.Kernel.from_sycl(SOURCE, name) for name in KERNELS}
    return SimpleNamespace(**built)


@pytest.fixture(scope="session")
def source():
    return SOURCE


@pytest.fixture(scope="session")
def host_kernels():
    """Return the kernels of host_memory.py by name."""
    names = ("add", "shift", "bytes", "first")
    return SimpleNamespace(**{n: usmq.Kernel.from_sycl(host_memory.KERNELS, n) for n in names})


@pytest.fixture
def reaches():
    host_memory.skip_without_system_memory()


@pytest.fixture(scope="session")
def spin():
    """Return a kernel in OpenCL C that takes time in proportion to its steps."""
    return usmq.Kernel.from_opencl(SPIN, "spin", queue="opencl:cpu")


@pytest.fixture(scope="session")
def advanced():
    """Return the oracle of the kernel `advance`: the states after the steps, in closed form."""

    def advanced(states, steps):
        factor, term, f, t = 1, 0, 1664525, 1013904223
        while steps:
            if steps & 1:
                factor, term = factor * f % 2**32, (term * f + t) % 2**32
            f, t = f * f % 2**32, (t * f + t) % 2**32
            steps >>= 1
        wide = np.asarray(states, dtype="u8") * np.uint64(factor) + np.uint64(term)
        return wide.astype("u4")

    return advanced


@pytest.fixture(scope="session")
def run_python():
    """Return a call that runs code in a fresh interpreter; an environment value of None unsets."""

    def run(code=None, *args, check=True, timeout=120, cwd=None, **environment):
        env = {
            name: value for name, value in (ENVIRONMENT | environment).items() if value is not None
        }
        command = [sys.executable, "-X", "faulthandler"]
        command += args if code is None else ["-c", code, *args]
        done = subprocess.run(
            command, env=env, cwd=cwd, text=True, capture_output=True, timeout=timeout
        )
        if check:
            assert done.returncode == 0, f"exit {done.returncode}\n{done.stdout}\n{done.stderr}"
        return done

    return run


@pytest.fixture(scope="session")
def eventually():
    """Return a function that waits at most ten seconds for a condition and returns if it held."""

    def eventually(condition):
        deadline = time.monotonic() + 10
        while not condition():
            if time.monotonic() > deadline:
                return False
            time.sleep(0.005)
        return True

    return eventually


@pytest.fixture
def busy(queue, kernels):
    """Return a call that keeps a queue at work for as long as a test may look."""
    events = []

    def busy(on):
        x = usmq.zeros(1, "u4", queue=on)
        events.append(kernels.advance(1, x, 1 << 29, queue=on))
        return events[-1]

    yield busy
    for event in events:
        event.wait()


def in_threads(*calls):
    """Make each call in a thread of its own at the same time, and return the results."""
    results = [None] * len(calls)
    start = threading.Barrier(len(calls))

    def run(place):
        start.wait()
        results[place] = calls[place]()

    threads = [threading.Thread(target=run, args=[place]) for place in range(len(calls))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return results


def skip_where_the_driver_knows_all_contexts(device):
    """Skip on Level Zero: Intel's driver answers for the memory of every context of the process."""
    if device.backend == "level_zero":
        pytest.skip("Intel's Level Zero driver knows the memory of every context in each of them")
