"""Operations on CUDA memory, each call of the driver failing in turn: needs the stand-in.

Run by `tests/python/test_faults.py`, since it takes minutes.
"""

import contextlib
import gc
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import peer
import pytest
import usmq

VALUES = np.arange((16 << 20) // 4 + 3, dtype="f4")  # two chunks and a rest


@pytest.fixture(scope="module", autouse=True)
def stand_in() -> None:
    if peer.counts() is None:
        pytest.skip("only the stand-in fails on demand")


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


def live() -> dict[str, int]:
    found = peer.counts()
    assert found is not None
    return {name: found[name] for name in ("memory", "events", "pinned")}


def settled(before: dict[str, int]) -> dict[str, int]:
    """Return what lives in the end."""
    deadline = time.monotonic() + 20
    while live() != before and time.monotonic() < deadline:
        gc.collect()
        time.sleep(0.01)
    return live()


@pytest.mark.parametrize("operation", [come_in, go_out, dlpack, arrow, collocated])
@pytest.mark.parametrize("on", [False, True], ids=["one call", "from a call on"])
def test_each_call_that_fails_is_an_error(operation: Callable[[Any], Any], on: bool) -> None:
    memory = peer.Memory(VALUES, peer.Stream())
    np.testing.assert_array_equal(operation(memory), VALUES)
    gc.collect()
    before = live()
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
        # What no operation was told comes out of the next wait.
        with contextlib.suppress(usmq.SyclError):
            usmq.current_queue().wait()
        np.testing.assert_array_equal(peer.read(memory), VALUES)
        np.testing.assert_array_equal(operation(memory), VALUES)
        assert settled(before) == before
    else:
        pytest.fail("it never ends")
    assert errors > 10


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
