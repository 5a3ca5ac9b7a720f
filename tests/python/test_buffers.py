"""The buffer protocol: a consumer gets the requested memory order, or an error."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import usmq

WRITABLE, FORMAT, ND, STRIDES = 0x1, 0x4, 0x8, 0x18
C, F, ANY, INDIRECT = 0x38, 0x58, 0x98, 0x118
ORDERS = {
    "SIMPLE": 0,
    "ND": ND,
    "STRIDES": STRIDES,
    "C_CONTIGUOUS": C,
    "F_CONTIGUOUS": F,
    "ANY_CONTIGUOUS": ANY,
    "INDIRECT": INDIRECT,
}


class View(ctypes.Structure):
    """`Py_buffer`."""

    _fields_ = [
        ("buf", ctypes.c_void_p),
        ("obj", ctypes.py_object),
        ("len", ctypes.c_ssize_t),
        ("itemsize", ctypes.c_ssize_t),
        ("readonly", ctypes.c_int),
        ("ndim", ctypes.c_int),
        ("format", ctypes.c_char_p),
        ("shape", ctypes.POINTER(ctypes.c_ssize_t)),
        ("strides", ctypes.POINTER(ctypes.c_ssize_t)),
        ("suboffsets", ctypes.POINTER(ctypes.c_ssize_t)),
        ("internal", ctypes.c_void_p),
    ]


def asked(x: Any, flags: int) -> dict[str, Any] | None:
    """Return the fields that the protocol promises; None for a refusal."""
    view = View()
    try:
        ctypes.pythonapi.PyObject_GetBuffer(ctypes.py_object(x), ctypes.byref(view), flags)
    except (BufferError, ValueError):  # numpy's is a ValueError
        return None
    axes = lambda numbers: numbers[: view.ndim] if numbers else None  # noqa: E731
    found = {
        "bytes": ctypes.string_at(view.buf, view.itemsize) if view.len else b"",
        "len": view.len,
        "itemsize": view.itemsize,
        "readonly": view.readonly,
        "format": view.format,
        "ndim": view.ndim if view.shape else None,
        "shape": axes(view.shape),
        # Nothing is reached with those of an empty array.
        "strides": axes(view.strides) if view.len or not view.strides else "any",
        "suboffsets": axes(view.suboffsets),
    }
    ctypes.pythonapi.PyBuffer_Release(ctypes.byref(view))
    return found


VIEWS: dict[str, Callable[[Any], Any]] = {
    "C order": lambda a: a,
    "F order": lambda a: a.T,
    "neither": lambda a: a.transpose(1, 0, 2),
    "every second": lambda a: a[:, :, ::2],
    "backwards": lambda a: a[::-1],
    "one axis": lambda a: a[0, 0],
    "one axis, strided": lambda a: a[0, :, 0],
    "scalar": lambda a: a[1, 2, 3, ...],
    "one element": lambda a: a[1:2, 2:3, 3:4],
    "an axis of 1 between": lambda a: a[:, :, None],
    "an axis of 1 left of a step": lambda a: a[0, 0, ::2][None],
    "rows of one": lambda a: a[:1, ::2, :],
    "empty": lambda a: a[:, 2:2, ::2],
}


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("name", VIEWS)
def test_each_buffer_request_is_granted_or_refused_like_numpy(name: str, order: str) -> None:
    host = np.arange(2 * 3 * 4, dtype="i4").reshape(2, 3, 4)
    x = VIEWS[name](usmq.asarray(host, usm_type="shared"))
    for more in (0, WRITABLE, FORMAT, WRITABLE | FORMAT):
        found, expected = (
            asked(x, ORDERS[order] | more),
            asked(VIEWS[name](host), ORDERS[order] | more),
        )
        assert found == expected, (name, order, more)


def test_a_view_without_axes_or_shape_matches_memoryview() -> None:
    x = usmq.zeros((2, 3), usm_type="host")
    for source in (x, memoryview(b"abc")):
        view = View()
        ctypes.pythonapi.PyObject_GetBuffer(ctypes.py_object(source), ctypes.byref(view), 0)
        assert (view.ndim, bool(view.shape), bool(view.strides)) == (1, False, False)
        for letter in (b"C", b"F", b"A"):
            assert (
                ctypes.pythonapi.PyBuffer_IsContiguous(ctypes.byref(view), ctypes.c_char(letter))
                == 1
            )
        ctypes.pythonapi.PyBuffer_Release(ctypes.byref(view))


def test_a_readonly_array_refuses_a_writable_buffer() -> None:
    x = usmq.asarray(np.arange(3), usm_type="shared")
    locked = usmq.from_arrow(x).values()
    assert locked.readonly
    for order in ORDERS.values():
        assert asked(locked, order | WRITABLE) is None
        found = asked(locked, order)
        assert found is not None
        assert found["readonly"] == 1


def test_contiguous_buffers_read_and_write_only_their_elements() -> None:
    x = usmq.arange(0, 10, dtype="u1", usm_type="shared")
    with pytest.raises(BufferError, match="contiguous"):
        pa.py_buffer(x[::2])
    with pytest.raises(BufferError, match="contiguous"):
        usmq._core.fill_frame(usmq.zeros(5, "u1"), x[::2])  # type: ignore[arg-type]
    assert pa.py_buffer(x[2:5]).to_pybytes() == b"\2\3\4"
    assert x.to_numpy().tolist() == list(range(10))
