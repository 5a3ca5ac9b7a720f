"""Copies between an array and a view of its own memory, of any size and direction."""

import pickle

import numpy as np
import pytest
import usmq
from emulated import needs_system_usm

# Bytes below and above the sizes that the host copies, and the sizes of one command.
SIZES = [8, 1000, 32_770, 100_001]
PARTS = {
    "forwards": (slice(1, None), slice(None, -1)),
    "backwards": (slice(None, -1), slice(1, None)),
    "far": (slice(None, None, 1), slice(None, None, 1)),
    "reversed": (slice(None), slice(None, None, -1)),
    "half": (slice(None, 4), slice(2, 6)),
    "strided": (slice(None, -1, 2), slice(1, None, 2)),
    "strided target": (slice(None, 6, 2), slice(1, 4)),
    "strided source": (slice(1, 4), slice(None, 6, 2)),
}


def host_usm(size, kind, queue):
    if kind == "system":
        host = np.arange(size, dtype="u4")
        return usmq.asarray(host, copy=False, queue=queue), host
    x = usmq.arange(size, dtype="u4", usm_type=kind, queue=queue)
    return x, np.asarray(x)


@pytest.fixture(params=[True, False], ids=["in order", "loose"])
def queue(request):
    return usmq.Queue("cpu", in_order=request.param)


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("kind", ["host", "system"])
@pytest.mark.parametrize("part", PARTS)
def test_a_copy_from_a_view_of_the_array_itself(queue, size, kind, part):
    to, source = PARTS[part]
    wanted = np.arange(size, dtype="u4")
    wanted[to] = wanted[source].copy()
    sources = {
        "numpy": lambda x, view: view[source],
        "memoryview": lambda x, view: memoryview(view)[source],
        "DLPack": lambda x, view: np.from_dlpack(view)[source],
        "in place": lambda x, view: usmq.asarray(view, copy=False, queue=queue)[source],
        "usmq": lambda x, view: x[source],
    }
    for name, make in sources.items():
        for assign in ("copy_from", "setitem"):
            x, view = host_usm(size, kind, queue)
            if assign == "copy_from":
                x[to].copy_from(make(x, view))
            else:
                x[to] = make(x, view)
            x.wait()
            assert np.array_equal(view, wanted), (name, assign)
            np.testing.assert_array_equal(x.to_numpy(), wanted)


def shifted(size):
    """Return 0 to size - 1, moved to the next place."""
    wanted = np.arange(size, dtype="u4")
    wanted[1:] = wanted[:-1].copy()
    return wanted


@pytest.mark.parametrize("size", SIZES)
def test_a_copy_from_itself_follows_earlier_commands_and_is_complete(queue, size):
    x = usmq.zeros(size, "u4", usm_type="host", queue=queue)
    view = np.asarray(x)
    add = usmq.elementwise("unsigned int *x", "x[i] += i")
    for _ in range(5):
        add(x)
    x[1:] = view[:-1]
    assert np.array_equal(view, 5 * shifted(size))
    with usmq.capture() as graph:  # copies the values of the block
        x[1:] = view[:-1]
    wanted = 5 * np.concatenate([[0], shifted(size)[:-1]])
    graph.replay().wait()
    assert np.array_equal(view, wanted)


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("kind", ["host", "shared"])
def test_a_frame_may_be_the_array_itself(size, kind):
    from usmq import _core

    x = usmq.arange(size, dtype="u4", usm_type=kind)
    view = np.asarray(x)
    _core.fill_frame(x[:-1], view[1:])
    np.testing.assert_array_equal(view, shifted(size))


@pytest.mark.parametrize("size", [1000, 100_001])
def test_a_view_of_another_array_is_copied(size):
    x = usmq.zeros(size, "u4", usm_type="host")
    y = usmq.arange(size, dtype="u4", usm_type="host")
    x.copy_from(np.asarray(y))
    np.testing.assert_array_equal(x.to_numpy(), np.arange(size))
    assert pickle.loads(pickle.dumps(x)).tolist() == x.tolist()


@pytest.mark.parametrize("size", [1000, 100_001])
@pytest.mark.parametrize("kind", ["host", "shared"])
def test_a_one_line_kernel_refuses_a_shifted_view_of_an_operand(size, kind):
    needs_system_usm()
    x = usmq.arange(size, dtype="u4", usm_type=kind)
    view = np.asarray(x)
    add = usmq.elementwise("const unsigned int *x, unsigned int *y", "y[i] += x[i]")
    for source, target in ((view[:-1], x[1:]), (x[:-1], view[1:])):
        with pytest.raises(usmq.LaunchError, match="overlaps with"):
            add(source, target)
    np.testing.assert_array_equal(view, np.arange(size))
    add(view, x)
    np.testing.assert_array_equal(x.to_numpy(), 2 * np.arange(size))
