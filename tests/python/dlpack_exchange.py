"""DLPack's C exchange API in ctypes: an independent definition of the header."""

from __future__ import annotations

import ctypes
from ctypes import POINTER, addressof, byref, c_char_p, c_int, c_int32, c_int64, c_uint32, c_void_p
from typing import Any

import dlpack_structs as dl
import usmq
from arrow_structs import capsule, pointer
from dlpack_structs import I4, ONEAPI, Tensor

TABLE = b"dlpack_exchange_api"
SET_ERROR = ctypes.CFUNCTYPE(None, c_void_p, c_char_p, c_char_p)
# The allocator may be called without Python's lock, as by this type. ctypes raises what the others
# set.
ALLOCATE = ctypes.CFUNCTYPE(c_int, c_void_p, POINTER(c_void_p), c_void_p, SET_ERROR)
FROM_OBJECT = ctypes.PYFUNCTYPE(c_int, c_void_p, POINTER(c_void_p))
TO_OBJECT = ctypes.PYFUNCTYPE(c_int, c_void_p, POINTER(c_void_p))
LEND = ctypes.PYFUNCTYPE(c_int, c_void_p, c_void_p)
STREAM = ctypes.PYFUNCTYPE(c_int, c_int32, c_int32, POINTER(c_void_p))


class DLPackExchangeAPI(ctypes.Structure):
    _fields_ = [
        ("major", c_uint32),
        ("minor", c_uint32),
        ("prev_api", c_void_p),
        ("managed_tensor_allocator", ALLOCATE),
        ("managed_tensor_from_py_object_no_sync", FROM_OBJECT),
        ("managed_tensor_to_py_object_no_sync", TO_OBJECT),
        ("dltensor_from_py_object_no_sync", LEND),
        ("current_work_stream", STREAM),
    ]


API = DLPackExchangeAPI.from_address(pointer(usmq.Array.__dlpack_c_exchange_api__, TABLE))


class Owned(Tensor):
    """A tensor exported from an object, which the caller must delete."""

    def __init__(self, obj: Any) -> None:
        at = c_void_p()
        assert API.managed_tensor_from_py_object_no_sync(id(obj), byref(at)) == 0
        self._read(at.value)

    def _read(self, at: int | None) -> None:
        assert at
        self.name = dl.VERSIONED
        self.struct = dl.DLManagedTensorVersioned.from_address(at)
        self.tensor = self.struct.dl_tensor


def borrowed_tensor(obj: Any) -> Tensor:
    """Return a tensor without an owner, valid while the object lives."""
    tensor = Tensor.__new__(Tensor)
    tensor.tensor = dl.DLTensor()
    assert API.dltensor_from_py_object_no_sync(id(obj), addressof(tensor.tensor)) == 0
    return tensor


def array_at(out: c_void_p) -> usmq.Array:
    """Return the object that C created; the caller owns its reference."""
    array = ctypes.cast(out, ctypes.py_object).value
    ctypes.pythonapi.Py_DecRef(ctypes.py_object(array))
    assert isinstance(array, usmq.Array)
    return array


def taken_from(producer: dl.Producer) -> usmq.Array:
    """Import a tensor, and mark its capsule as consumed."""
    given, out = producer.__dlpack__(), c_void_p()
    assert API.managed_tensor_to_py_object_no_sync(addressof(producer.struct), byref(out)) == 0
    assert dl._set_name(given, ctypes.cast(dl.USED[producer.name], c_char_p)) == 0
    return array_at(out)


def stream(device: tuple[int, int] = (ONEAPI, 0)) -> int | None:
    out = c_void_p(1)
    assert API.current_work_stream(*device, byref(out)) == 0
    return out.value


def queue_at(address: int | None) -> usmq.Queue:
    assert address
    return usmq.Queue(capsule(address, b"SyclQueueRef"))


def allocated(
    shape: tuple[int, ...], dtype: Any = I4, device: Any = (ONEAPI, 0), **fields: Any
) -> tuple[Owned | None, list[tuple[bytes, bytes]]]:
    """Return a new tensor, or the allocator's error."""
    extents = (c_int64 * max(len(shape), 1))(*shape)
    prototype = dl.DLTensor(
        # Only these may be read.
        data=1,
        strides=8,
        byte_offset=2**64 - 1,
        shape=fields.get("at", addressof(extents)),
        ndim=fields.get("ndim", len(shape)),
        dtype=dl.DLDataType(*dtype),
        device=dl.DLDevice(*device),
    )
    said: list[tuple[bytes, bytes]] = []
    set_error = SET_ERROR(lambda at, kind, text: said.append((kind, text)))
    out = c_void_p()
    status = API.managed_tensor_allocator(addressof(prototype), byref(out), None, set_error)
    assert (status == 0) == (not said) == bool(out.value)
    if status:
        assert status == -1
        return None, said
    tensor = Owned.__new__(Owned)
    tensor._read(out.value)
    return tensor, said
