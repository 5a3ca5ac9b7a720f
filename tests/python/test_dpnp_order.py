"""Operations of dpnp and commands of usmq on the same memory follow each other without a wait."""

import ctypes
import gc
import os
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import usmq

dpnp = pytest.importorskip("dpnp", reason="dpnp is not installed")
dpctl = pytest.importorskip("dpctl", reason="dpctl is not installed")

PROGRAM = Path(__file__).parents[1] / "beside_dpnp.py"
WAYS = ("dpnp.asarray", "dpnp.from_dlpack", "usmq.asarray", "usmq.from_dlpack")
# oneMKL has no kernels for emulated GPUs and for Intel's driver without a GPU.
WITHOUT_ONEMKL = ("less", "sum", "sort", "cumsum")


@pytest.fixture(scope="module")
def options():
    """Return the options of the program for the default device."""
    device = usmq.current_queue().device
    if device.device_type == "cpu":
        return ("--rounds", "2")
    names = [f"--operation={name}" for name in WITHOUT_ONEMKL]
    return ("--rounds", "2", "--target", str(device.filter_string), *names)


@pytest.mark.parametrize("order", ["in order", "out of order"])
@pytest.mark.parametrize("way", WAYS)
def test_kernels_operations_and_reads_follow_each_other(run_python, options, way, order):
    done = run_python(None, str(PROGRAM), "--way", way, "--order", order, *options, timeout=300)
    assert done.stdout.endswith("operations, 2 rounds: right\n"), done.stdout


def live():
    return usmq.memory_stats(usmq.current_queue())["device"]["live"]


def test_dpnp_alone_keeps_the_memory_until_its_last_use(eventually):
    gc.collect()
    before = live()
    x = usmq.full(4, 7, "i4")
    theirs = dpnp.asarray(x)[1:]
    del x
    gc.collect()
    assert live() == before + 1
    twice = theirs * 2
    assert dpnp.asnumpy(twice).tolist() == [14, 14, 14]
    del theirs
    gc.collect()
    assert eventually(lambda: live() == before)


def test_memory_objects_of_dpctl_own_the_memory_by_a_shared_pointer():
    from dpctl.memory import MemoryUSMDevice, _memory

    pointer_of = ctypes.pythonapi.PyCapsule_GetPointer
    pointer_of.restype, pointer_of.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
    capsule = _memory.__pyx_capi__["Memory_GetOpaquePointer"]
    function = pointer_of(capsule, b"void *(struct Py_MemoryObject *)")
    shared_pointer = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.py_object)(function)
    memory = dpnp.asarray(usmq.ones(4, "f4")).get_array().usm_data
    assert shared_pointer(memory)
    # A second object has a copy of the pointer, so the memory lives as long as both.
    again = MemoryUSMDevice(memory)
    assert shared_pointer(again) not in (None, shared_pointer(memory))
    del memory
    gc.collect()
    assert np.frombuffer(again.tobytes(), "f4").tolist() == [1] * 4


def barriers(work):
    with usmq.profile() as profile:
        work().wait()
    return sum(event.kind == "barrier" for event in profile.events)


def test_a_loan_by_dlpack_ends_with_the_tensor(kernels, eventually):
    x = usmq.zeros(8, "f4")

    def work():
        return kernels.fill(8, x, np.float32(1))

    alone = barriers(work)
    first, second = dpnp.from_dlpack(x), dpnp.from_dlpack(x)
    assert barriers(work) == alone + 2
    del first
    gc.collect()
    assert barriers(work) == alone + 2
    del second
    gc.collect()
    assert eventually(lambda: barriers(work) == alone)


def test_queues_follow_again_after_dpctl_has_cleared_its_list():
    from dpctl.utils import SequentialOrderManager as managers

    queue = usmq.current_queue()
    if queue.device.device_type != "cpu":
        pytest.skip("only operations on the host need it, those of oneMKL on a CPU")
    x = usmq.ones(4)
    theirs = dpnp.asarray(x).sycl_queue
    assert managers[theirs].follows_usmq
    managers.clear()
    assert not hasattr(managers[theirs], "follows_usmq")
    dpnp.asarray(x)
    assert managers[theirs].follows_usmq
    managers[theirs].wait()


def test_the_doctor_names_the_parts_that_a_version_of_dpctl_lacks():
    from usmq import _dpctl_order, _packages

    assert _dpctl_order.lacks() == [], "dpctl of this environment has all"
    libsycl = next(iter(_packages.runtime_libraries("libsycl.so")))
    answer = f"{libsycl}\nshared pointers in memory objects"
    command = [sys.executable, "-c", "import sys; print(sys.argv[1], end='')", answer]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdout=pipe, stderr=pipe) as child:
        ours = {os.path.realpath(libsycl)}
        fact = _packages._judge("dpctl 9.0", "dpctl", child, time.monotonic() + 60, ours)
    text = "dpctl 9.0 has other shared pointers in memory objects than usmq knows"
    assert (fact[0], fact[1][: len(text)]) == ("note", text)
