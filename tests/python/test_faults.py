"""Faults of SYCL and CUDA become the right errors in Python and C, and nothing is lost.

For an extension built with USMQ_FAULTS=1; that a usual one has nothing to arm is tested, too.
"""

import ctypes
import gc
import subprocess
import sys

import pytest
import usmq
from c_peer import Peer, PeerError, compiled, declared
from cuda_driver import FOLDER, build, environment
from fault_operations import OPERATIONS, c_operations, host
from usmq import _core

LIBRARY = ctypes.CDLL(_core.__file__)
HAS_FAULTS = hasattr(LIBRARY, "usmq_faults_arm")

# Number of the fault, the code of its SyclError, a part of its text.
FAULTS = [
    (0, "runtime", "a fault of the tests"),
    (1, "memory_allocation", "bad_alloc"),
    (2, "unknown", "not a std::exception"),
]
# `usmq_status` in usmq.h.
ALLOCATION, SYCL = 4, 14


def test_a_regular_build_contains_no_fault_injection():
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
    usmq.current_queue().wait()
    usmq.trim_memory()


@pytest.fixture(scope="module")
def operations(tmp_path_factory):
    peer = Peer(declared(ctypes.CDLL(str(compiled(tmp_path_factory.mktemp("peer"))))))
    return {operation.name: operation for operation in OPERATIONS + c_operations(peer)}


def attempt(operation, arguments=(0, 0, False)):
    """Return value, error, and whether a fault was reached; 0 requests none."""
    made = operation.set_up()
    value = error = None
    arm(*arguments)
    try:
        value = operation.act(made)
    except (usmq.Error, MemoryError, *operation.errors) as caught:
        error = caught.with_traceback(None)
    finally:
        reached = disarm()
    operation.after(made, error is None)
    return value, error, reached


def check_error(error, code, text):
    if isinstance(error, usmq.SyclError):
        assert error.code == code
        assert text in str(error)
    elif isinstance(error, PeerError):
        assert error.status == ALLOCATION or (error.status == SYCL and text in error.text)
    elif isinstance(error, usmq.KernelBuildError | usmq.InteropError):
        # The message of a build, or of the producer of a stream.
        assert text in str(error)
    else:
        assert isinstance(error, usmq.AllocationError | MemoryError)


NAMES = [operation.name for operation in OPERATIONS + c_operations(None)]


@pytest.mark.skipif(not HAS_FAULTS, reason="needs an extension built with USMQ_FAULTS=1")
@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(
    ("lasting", "fault", "code", "text"),
    [(False, *fault) for fault in FAULTS] + [(True, *fault) for fault in FAULTS[:2]],
    ids=["runtime", "memory", "unknown", "runtime on and on", "memory on and on"],
)
def test_each_fault_raises_the_right_error(operations, name, lasting, fault, code, text):
    operation = operations[name]
    for _ in range(2):
        wanted, error, _ = attempt(operation)
        assert error is None
    settle()
    before = live()
    for at in range(1, 500):
        found, error, reached = attempt(operation, (at, fault, lasting))
        if error is None:
            assert found == wanted
            if not reached:
                break
        else:
            assert reached, error
            check_error(error, code, text)
        assert host(None) == [1.0, 2.0, 3.0]
    else:
        pytest.fail("the operation does not end")
    del error
    for _ in range(100):
        settle()
        if live() <= before or operation.keeps:
            break
    assert live() <= before or operation.keeps


@pytest.mark.skipif(
    not HAS_FAULTS, reason="takes minutes: with the others of `tests/run test-faults`"
)
def test_each_call_of_a_cuda_driver_may_fail(tmp_path):
    options = ["-m", "pytest", "-q", "-rs", "-p", "no:cacheprovider"]
    done = subprocess.run(
        [sys.executable, *options, FOLDER / "faults.py"],
        env=environment(build(tmp_path)),
        capture_output=True,
        text=True,
        timeout=1800,
    )
    assert done.returncode == 0, done.stdout
    assert "13 passed" in done.stdout
    print(done.stdout.splitlines()[-1])
