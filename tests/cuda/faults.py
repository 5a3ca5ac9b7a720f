"""Run operations on CUDA memory and fail each driver call in turn; needs the mock driver.

Run by `tests/python/test_faults.py`, since it takes minutes.
"""

import contextlib
import ctypes
import gc
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import peer
import pyarrow as pa
import pytest
import usmq

VALUES = np.arange((16 << 20) // 4 + 3, dtype="f4")  # large, and not a multiple of a page


@pytest.fixture(scope="module", autouse=True)
def mock_driver() -> None:
    if peer.counts() is None:
        pytest.skip("only the mock driver fails on demand")


def come_in(memory: peer.Memory) -> Any:
    there = usmq.asarray(memory)
    there.wait()
    return there.to_numpy()


def go_out(memory: peer.Memory) -> Any:
    return usmq.asarray(VALUES, device="cuda:0").to_numpy()


def dlpack(memory: peer.Memory) -> Any:
    return usmq.from_dlpack(usmq.asarray(memory, device="cuda:0", copy=True)).to_numpy()


def arrow(memory: peer.Memory) -> Any:
    ours = usmq.asarray(VALUES, device="cuda:0")
    return usmq.from_arrow(ours).values().to_numpy()


def collocated(memory: peer.Memory) -> Any:
    x, _ = usmq.collocate(memory, usmq.zeros(3))
    back = usmq.collocate(x, like=memory)
    assert back.__cuda_array_interface__["stream"]
    return back.to_numpy()


@pytest.mark.parametrize("operation", [come_in, go_out, dlpack, arrow, collocated])
@pytest.mark.parametrize("on", [False, True], ids=["one call", "from a call on"])
def test_each_call_that_fails_is_an_error(operation: Callable[[Any], Any], on: bool) -> None:
    memory = peer.Memory(VALUES, peer.Stream())
    np.testing.assert_array_equal(operation(memory), VALUES)
    gc.collect()
    before = peer.live()
    errors = 0
    for at in range(1, 500):
        peer.fail(at, on)
        found = error = None
        try:
            found = operation(memory)
        except usmq.Error as caught:
            error = caught.with_traceback(None)
        failed = peer.fail(0)
        if error is None:
            np.testing.assert_array_equal(found, VALUES)
            if not failed:
                break
        else:
            assert failed, error
            assert isinstance(error, usmq.InteropError | usmq.SyclError), error
            assert "CUDA_ERROR_UNKNOWN" in str(error)
            errors += 1
        del error
        # The next wait reports errors that no operation reported.
        with contextlib.suppress(usmq.SyclError):
            usmq.current_queue().wait()
        np.testing.assert_array_equal(peer.read(memory), VALUES)
        np.testing.assert_array_equal(operation(memory), VALUES)
        assert peer.eventually(lambda: peer.live() == before)
    else:
        pytest.fail("it never ends")
    assert errors > 10


class OnCard:
    """An Arrow array whose buffers are in CUDA memory while this lives."""

    def __init__(self, array: pa.Array) -> None:
        self.capsules = array.__arrow_c_device_array__()
        pointer = ctypes.pythonapi.PyCapsule_GetPointer
        pointer.restype, pointer.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
        at = pointer(self.capsules[1], b"arrow_device_array")
        self.memory: list[peer.Memory] = []
        self._move(at, iter(array.buffers()))
        ctypes.c_int64.from_address(at + 80).value = 0
        ctypes.c_int32.from_address(at + 88).value = 2  # ARROW_DEVICE_CUDA

    def _move(self, at: int, buffers: Iterator[pa.Buffer | None]) -> None:
        _, _, _, count, children = (ctypes.c_int64 * 5).from_address(at)
        pointers, parts = (ctypes.c_void_p * 2).from_address(at + 40)
        for number in range(count):
            if buffer := next(buffers):
                self.memory.append(peer.Memory(np.frombuffer(buffer, "u1")))
                ctypes.c_void_p.from_address(pointers + 8 * number).value = self.memory[-1].ptr
        for part in (ctypes.c_void_p * children).from_address(parts) if children else ():
            self._move(part, buffers)

    def __arrow_c_device_array__(self, requested_schema: Any = None, **_: Any) -> Any:
        return self.capsules


def lists(offset: int) -> pa.Array:
    offsets, sizes = pa.array([0, offset], "i4"), pa.array([2, 1], "i4")
    return pa.ListViewArray.from_arrays(offsets, sizes, pa.array([1.0, 2.0, 3.0]))


def test_values_that_cannot_be_inspected_are_refused() -> None:
    given = OnCard(lists(2))
    assert usmq.from_arrow(given).to_arrow().to_pylist() == [[1, 2], [3]]
    for at in range(1, 500):
        given = OnCard(lists(7))  # there are three values
        peer.fail(at)
        with pytest.raises(usmq.Error) as error:
            usmq.from_arrow(given)
        if not peer.fail(0):
            assert "point outside its children" in str(error.value)
            break
        assert "CUDA_ERROR_UNKNOWN" in str(error.value), at
        del error
        with contextlib.suppress(usmq.SyclError):
            usmq.current_queue().wait()
    else:
        pytest.fail("it never ends")
    assert at > 10


FIRST = """
import contextlib, sys
at, on = int(sys.argv[1]), sys.argv[2] == "True"
sys.path.insert(0, sys.argv[3])
import peer, usmq
def work():
    return usmq.asarray([1, 2, 3], device="cuda:0").to_numpy().tolist()
peer.fail(at, on)
try:
    outcome = str(work())
except usmq.Error as error:
    outcome = f"{type(error).__name__}: {error}"
failed = peer.fail(0)
print(failed, outcome)
with contextlib.suppress(usmq.SyclError):
    usmq.current_queue().wait()
assert work() == [1, 2, 3]
"""


@pytest.mark.parametrize("on", [False, True], ids=["one call", "from a call on"])
def test_the_first_calls_of_a_process_may_fail(on: bool) -> None:
    for at in range(1, 200):
        done = subprocess.run(
            [sys.executable, "-c", FIRST, str(at), str(on), str(Path(__file__).parent)],
            capture_output=True,
            text=True,
            timeout=120,
        )
        assert done.returncode == 0, (at, done.stdout, done.stderr)
        failed, outcome = done.stdout.strip().split(" ", 1)
        if failed == "0":
            assert outcome == "[1, 2, 3]"
            break
        assert "CUDA_ERROR_UNKNOWN" in outcome or outcome == "[1, 2, 3]", (at, outcome)
    else:
        pytest.fail("it never ends")
    assert at > 20
