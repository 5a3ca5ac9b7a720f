"""Faults of the SYCL runtime arrive in Python as the right exceptions, and nothing is lost.

For an extension built with USMQ_FAULTS=1; that a usual one has nothing to arm is tested, too.
"""

import ctypes
import gc

import pytest
import usmq
from usmq import _core

LIBRARY = ctypes.CDLL(_core.__file__)
HAS_FAULTS = hasattr(LIBRARY, "usmq_faults_arm")

# Number of the fault, the code of its SyclError, a part of its text.
FAULTS = [
    (0, "runtime", "a fault of the tests"),
    (1, "memory_allocation", "bad_alloc"),
    (2, "unknown", "not a std::exception"),
]


def test_a_usual_build_cannot_be_made_to_fail():
    if HAS_FAULTS:
        pytest.skip("this extension is built with USMQ_FAULTS")
    with open(_core.__file__, "rb") as file:
        assert b"usmq_fault" not in file.read()


def arm(at, fault, lasting):
    signature = (ctypes.c_uint64, ctypes.c_int, ctypes.c_bool, ctypes.c_bool)
    LIBRARY.usmq_faults_arm.argtypes = signature
    LIBRARY.usmq_faults_arm(at, fault, lasting, False)


def disarm():
    LIBRARY.usmq_faults_disarm.restype = ctypes.c_uint64
    return LIBRARY.usmq_faults_disarm()


def live():
    LIBRARY.usmq_faults_live.restype = ctypes.c_int64
    return LIBRARY.usmq_faults_live()


def settle():
    """Let everything end and go."""
    gc.collect()
    host()
    usmq.current_queue().wait()
    usmq.trim_memory()


def host():
    return usmq.asarray([1.0, 2.0, 3.0]).to_numpy().tolist()


def shared():
    view = usmq.zeros(100, dtype="i4", usm_type="shared").host_view()
    return memoryview(view)[0]


class Tensor:
    """An array as that of a library which knows DLPack only."""

    def __init__(self, array):
        self.__dlpack__ = array.__dlpack__
        self.__dlpack_device__ = array.__dlpack_device__


def exported():
    return usmq.asarray(Tensor(usmq.arange(0, 10, 1, dtype="i4"))).size


def interface():
    x = usmq.full(10, 7, dtype="i4")
    return x.__sycl_usm_array_interface__["shape"]


@pytest.mark.skipif(not HAS_FAULTS, reason="needs an extension built with USMQ_FAULTS=1")
@pytest.mark.parametrize("operation", [host, shared, exported, interface])
@pytest.mark.parametrize(("fault", "code", "text"), FAULTS)
@pytest.mark.parametrize("lasting", [False, True])
def test_each_fault_is_the_right_exception(operation, fault, code, text, lasting):
    for _ in range(2):
        wanted = operation()
    settle()
    before = live()
    for at in range(1, 200):
        arm(at, fault, lasting)
        try:
            found = operation()
            error = None
        except usmq.Error as caught:
            error = caught
        finally:
            reached = disarm()
        if not reached:
            assert error is None
            assert found == wanted
            break
        if isinstance(error, usmq.SyclError):
            assert error.code == code
            assert text in str(error)
        else:
            assert error is None or isinstance(error, usmq.AllocationError | MemoryError)
        del error
        assert host() == [1.0, 2.0, 3.0]
    else:
        pytest.fail("it never ends")
    for _ in range(100):
        settle()
        if live() <= before:
            break
    assert live() <= before
