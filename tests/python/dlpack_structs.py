"""The structs of dlpack.h in ctypes: a reader of usmq's exports, and a producer of tensors.

Nothing here knows usmq's own structs: it is the specification, written a second time.
"""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable, Sequence
from ctypes import addressof, c_char_p, c_int32, c_int64, c_uint8, c_uint16, c_uint32, c_uint64
from ctypes import c_void_p as pointer_t
from typing import Any

import dpctl
import dpnp
import numpy as np
import pytest
import usmq
from arrow_structs import PRODUCERS, At, capsule, name_of, pointer, usm

CPU, CUDA, CUDA_HOST, CUDA_MANAGED, ONEAPI = 1, 2, 3, 13, 14
READ_ONLY, IS_COPIED, SUBBYTE_PADDED = 1, 2, 4
LEGACY, VERSIONED = b"dltensor", b"dltensor_versioned"
DTYPES = ["?", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "f2", "f4", "f8", "c8", "c16"]
CODES = {"i": 0, "u": 1, "f": 2, "c": 5, "b": 6}
BFLOAT16 = (4, 16, 1)
DELETER = ctypes.CFUNCTYPE(None, pointer_t)

VIEWS: dict[str, Callable[[Any], Any]] = {
    "whole": lambda a: a,
    "row": lambda a: a[1],
    "columns": lambda a: a[:, ::2],
    "reversed": lambda a: a[::-1],
    "both": lambda a: a[::-2, ::-1],
    "transposed": lambda a: a.T,
    "part": lambda a: a[1:, 2:],
    "element": lambda a: a[2, 3],
    "nothing": lambda a: a[:0],
}

LENDERS: dict[str, Callable[[Any], Any]] = {
    "dpnp.tensor": dpnp.tensor.from_dlpack,
    "dpnp": dpnp.from_dlpack,
}

# Byte-swapped numpy types are refused earlier.
NAMES = {(CODES[np.dtype(d).kind], np.dtype(d).itemsize * 8, 1): np.dtype(d) for d in DTYPES}


class DLDevice(ctypes.Structure):
    _fields_ = [("device_type", c_int32), ("device_id", c_int32)]


class DLDataType(ctypes.Structure):
    _fields_ = [("code", c_uint8), ("bits", c_uint8), ("lanes", c_uint16)]


class DLTensor(ctypes.Structure):
    _fields_ = [
        ("data", pointer_t),
        ("device", DLDevice),
        ("ndim", c_int32),
        ("dtype", DLDataType),
        ("shape", pointer_t),
        ("strides", pointer_t),
        ("byte_offset", c_uint64),
    ]


class DLManagedTensor(ctypes.Structure):
    _fields_ = [("dl_tensor", DLTensor), ("manager_ctx", pointer_t), ("deleter", pointer_t)]


class DLManagedTensorVersioned(ctypes.Structure):
    _fields_ = [
        ("major", c_uint32),
        ("minor", c_uint32),
        ("manager_ctx", pointer_t),
        ("deleter", pointer_t),
        ("flags", c_uint64),
        ("dl_tensor", DLTensor),
    ]


STRUCTS = {LEGACY: DLManagedTensor, VERSIONED: DLManagedTensorVersioned}
_set_name = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.py_object, c_char_p)(
    ("PyCapsule_SetName", ctypes.pythonapi)
)
# A capsule keeps the address of its name only.
USED = {name: ctypes.create_string_buffer(b"used_" + name) for name in STRUCTS}


def triple(dtype: Any) -> tuple[int, int, int]:
    """Return code, bits and lanes of a numpy type."""
    found = np.dtype(dtype)
    return CODES[found.kind], found.itemsize * 8, 1


class Tensor:
    """The result of `__dlpack__`, read through the capsule, which stays the owner until `take`."""

    def __init__(self, obj: Any, max_version: Any = (1, 1), **options: Any) -> None:
        if max_version is not None:
            options["max_version"] = max_version
        self.capsule = obj.__dlpack__(**options)
        self.name = name_of(self.capsule)
        self.struct = STRUCTS[self.name].from_address(pointer(self.capsule, self.name))
        self.tensor: DLTensor = self.struct.dl_tensor

    def _numbers(self, at: int | None) -> tuple[int, ...] | None:
        if at is None:
            return None
        return tuple((c_int64 * self.tensor.ndim).from_address(at))

    @property
    def shape(self) -> tuple[int, ...]:
        return self._numbers(self.tensor.shape) or ()

    @property
    def strides(self) -> tuple[int, ...] | None:
        return self._numbers(self.tensor.strides)

    @property
    def dtype(self) -> tuple[int, int, int]:
        return self.tensor.dtype.code, self.tensor.dtype.bits, self.tensor.dtype.lanes

    @property
    def device(self) -> tuple[int, int]:
        return self.tensor.device.device_type, self.tensor.device.device_id

    @property
    def flags(self) -> int:
        return int(self.struct.flags)

    @property
    def address(self) -> int:
        return (self.tensor.data or 0) + int(self.tensor.byte_offset)

    def to_numpy(self) -> Any:
        """Read memory that the host can read."""
        dtype, shape = NAMES[self.dtype], self.shape
        assert self.strides is not None or not shape
        found = np.empty(shape, dtype)
        for index in np.ndindex(shape):
            at = sum(i * s for i, s in zip(index, self.strides or (), strict=True))
            raw = ctypes.string_at(self.address + at * dtype.itemsize, dtype.itemsize)
            found[index] = np.frombuffer(raw, dtype)[0]
        return found

    def take(self) -> None:
        """Take ownership of the tensor, as consumers do, and drop the capsule."""
        assert _set_name(self.capsule, ctypes.cast(USED[self.name], c_char_p)) == 0
        self.capsule = None

    def delete(self) -> None:
        DELETER(self.struct.deleter)(addressof(self.struct))


# A failed test may leave a tensor that is deleted later.
_KEPT: list[Producer] = []


class Producer:
    """A producer other than usmq: it records its requests and counts the calls of its deleter.

    Its capsules delete nothing when they go, so that `settled` can tell who has to: a tensor that
    was taken is deleted once, by who took it, and one that was not is the capsule's to delete.
    """

    def __init__(
        self,
        data: Any,
        shape: Sequence[int] | None = None,
        dtype: tuple[int, int, int] | None = None,
        strides: Sequence[int] | None = None,
        *,
        device: tuple[int, int] = (CPU, 0),
        tensor_device: tuple[int, int] | None = None,
        name: bytes = VERSIONED,
        version: tuple[int, int] = (1, 1),
        flags: int = 0,
        byte_offset: int = 0,
        ndim: int | None = None,
        null_shape: bool = False,
        takes: Sequence[str] = ("stream", "max_version", "dl_device", "copy"),
    ) -> None:
        if isinstance(data, np.ndarray) and shape is None:
            shape, dtype = data.shape, dtype or triple(data.dtype)
            strides = [stride // data.itemsize for stride in data.strides]
        assert shape is not None
        assert dtype is not None
        self.data, self.device, self.takes = data, device, takes
        self.asked: list[dict[str, Any]] = []
        self.refused = 0
        self.faults: list[str] = []
        self.deleted = 0
        self.capsule: Any = None
        self._lock = threading.Lock()
        self.name = name if name in STRUCTS else VERSIONED
        self.given_name = name
        struct = self.struct = STRUCTS[self.name]()
        self._shape = (c_int64 * max(len(shape), 1))(*shape)
        self._strides = (c_int64 * max(len(strides or ()), 1))(*(strides or ()))
        tensor = struct.dl_tensor
        if data is None or isinstance(data, int):
            tensor.data = data
        else:
            tensor.data = data._pointer if hasattr(data, "_pointer") else data.ctypes.data
        tensor.device = DLDevice(*(tensor_device or device))
        tensor.ndim = len(shape) if ndim is None else ndim
        tensor.dtype = DLDataType(*dtype)
        tensor.shape = None if null_shape else addressof(self._shape)
        tensor.strides = None if strides is None else addressof(self._strides)
        tensor.byte_offset = byte_offset
        self._deleter = DELETER(self._delete)
        struct.deleter = ctypes.cast(self._deleter, pointer_t)
        if self.name == VERSIONED:
            struct.major, struct.minor = version
            struct.flags = flags
        PRODUCERS.append(self)
        _KEPT.append(self)

    def _delete(self, at: int) -> None:
        with self._lock:
            self.deleted += 1
            if self.deleted > 1:
                self.faults.append("deleted twice")
            if at != addressof(self.struct):
                self.faults.append("another struct deleted")
            # Overwrite the memory, so that later reads are detected.
            for part in (self._shape, self._strides):
                ctypes.memset(addressof(part), 0xAB, ctypes.sizeof(part))
            ctypes.memset(addressof(self.struct), 0xAB, ctypes.sizeof(self.struct))
            if isinstance(self.data, np.ndarray) and self.data.flags.writeable:
                self.data[...] = 1

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.device

    def __dlpack__(self, **options: Any) -> Any:
        self.asked.append(options)
        if unknown := set(options) - set(self.takes):
            self.refused += 1
            raise TypeError(f"__dlpack__() got an unexpected keyword argument {unknown.pop()!r}")
        if self.capsule is None:
            self.capsule = capsule(addressof(self.struct), self.given_name)
        return self.capsule

    @property
    def taken(self) -> bool:
        return self.capsule is not None and name_of(self.capsule) == b"used_" + self.name

    def settled(self) -> str | None:
        """Return the problem if a tensor is still open: consumed, or exported but not deleted."""
        if self.taken == (self.deleted == 1):
            return None
        return f"taken: {self.taken}, deleted: {self.deleted}"


def imported(producer: Producer, **options: Any) -> usmq.Array:
    """Import and check that the tensor was consumed."""
    x = usmq.from_dlpack(producer, **options)
    assert producer.taken
    return x


def base(dtype: str = "i4") -> Any:
    return np.arange(24).astype(dtype).reshape(4, 6)


def address(array: Any) -> int:
    """Return the address of the first element of a dpnp array or a usm_ndarray."""
    interface = array.__sycl_usm_array_interface__
    itemsize = np.dtype(interface["typestr"]).itemsize
    return int(interface["data"][0]) + int(interface.get("offset", 0)) * itemsize


def on_device(kind: str = "device", shape: Any = (4, 6), **options: Any) -> Producer:
    """Return a producer of 24 numbers in USM."""
    dtype = options.pop("dtype", I4)
    options = {"device": (ONEAPI, 0), "strides": (6, 1)} | options
    return Producer(usm(base(), kind), shape, dtype, **options)


class Answers:
    """An object whose methods give an answer, or raise it."""

    def __init__(self, device: Any, tensor: Any) -> None:
        self.device, self.tensor = device, tensor

    def __dlpack_device__(self) -> Any:
        return self._answer(self.device)

    def __dlpack__(self, **_: Any) -> Any:
        return self._answer(self.tensor)

    @staticmethod
    def _answer(answer: Any) -> Any:
        if isinstance(answer, Exception):
            raise answer
        return answer


def read_only(kind: str = "shared") -> tuple[Any, Any]:
    """Return a read-only array of eight u1, and its memory of dpctl."""
    memory = usm(np.arange(8, dtype="u1"), kind)
    return memory, usmq.asarray(At(memory._pointer, 8), copy=False)


def _part() -> Any:
    device = dpctl.SyclDevice()
    if device.max_compute_units < 2:
        pytest.skip(f"{device.name} has one compute unit, so it cannot be partitioned")
    try:
        return device.create_sub_devices(partition=1)[0]
    except dpctl.SyclSubDeviceCreationError as refused:
        pytest.skip(f"{device.name} does not divide by compute units: {refused}")


# Queues whose memory has no device number.
ELSEWHERE: dict[str, Callable[[], Any]] = {
    "sub-device": lambda: dpctl.SyclQueue(_part()),
    "context of its own": lambda: dpctl.SyclQueue(
        dpctl.SyclContext([dpctl.SyclDevice()]), dpctl.SyclDevice()
    ),
}


def other_context() -> usmq.Queue:
    device = usmq.current_queue().device
    return usmq.Queue(device, context=usmq.Context([device]))


I4 = (0, 32, 1)
HUGE = 2**62

# Shape, strides and byte offset of parts of 24 numbers.
LAYOUTS: list[tuple[Any, Any, int]] = [
    ((4, 6), None, 0),
    ((24,), (1,), 0),
    ((24,), None, 0),
    ((4, 3), (6, 2), 4),
    ((6, 4), (1, 6), 0),
    ((4, 6), (-6, -1), 92),
    ((2, 3), (12, -2), 20),
    ((3, 6), (0, 1), 24),
    ((), (), 40),
    ((), None, 40),
    ((1, 2), (HUGE, 1), 8),
    ((1, 2), (-HUGE, 1), 8),
    ((0, 2), (HUGE, 1), 0),
    ((2, 0, 3), None, 0),
]

# Tests of Rust have more cases of each field (`tests/fuzz/targets/dlpack.rs`).
MALFORMED: dict[str, dict[str, Any]] = {
    **{f"dtype {d}": {"dtype": d} for d in [(0, 32, 2), (1, 0, 1), (2, 128, 1), (0, 255, 1)]},
    **{f"dtype of code {code}": {"dtype": (code, 8, 1)} for code in range(7, 18)},
    "dtype padded": {"dtype": (17, 4, 1), "flags": SUBBYTE_PADDED},
    "dtype of 6 bits padded": {"dtype": (15, 6, 1), "flags": SUBBYTE_PADDED},
    "shape negative": {"shape": (-4, -6)},
    "shape negative and nothing": {"shape": (0, -1)},
    "shape whose size overflows to 0": {"shape": (2**32, 2**32)},
    "shape that repeats too often": {"shape": (2**40, 2**40), "strides": (0, 0)},
    "shape NULL": {"null_shape": True},
    "data NULL": {"data": None},
    "ndim -1": {"ndim": -1},
    "strides up": {"shape": (2,), "strides": (HUGE,)},
    "strides down": {"shape": (2,), "strides": (-HUGE,)},
    "strides most negative": {"shape": (2,), "strides": (-(2**63),)},
    "strides below 0": {"shape": (2,), "strides": (-(2**47),)},
    "strides that overflow together": {"shape": (2, 2), "strides": (2**61 - 1, 2**61 - 1)},
    "strides that overflow with the size": {"shape": (2**20,), "strides": (2**44,)},
    "strides that overflow with a huge size": {"shape": (2**40,), "strides": (2**24,)},
    "byte offset at the top": {"byte_offset": 2**64 - 4},
}

# The text of an error about a device type.
DEVICES = {CUDA: "CUDA", CUDA_HOST: "CUDA", CUDA_MANAGED: "CUDA", 4: "OpenCL", 7: "Vulkan"}
DEVICES |= {8: "Metal", 10: "ROCM", 0: "0", -1: "-1", 99: "99", 2**31 - 1: str(2**31 - 1)}
