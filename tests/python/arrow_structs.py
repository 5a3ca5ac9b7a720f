"""The structs of the Arrow C interfaces in ctypes, and readers of usmq's exports.

Nothing here knows usmq's own structs: it is the specification, written a second time.
"""

from __future__ import annotations

import ctypes
import functools
import gc
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from ctypes import addressof, c_char_p, c_int, c_int32, c_int64, c_void_p, py_object
from typing import Any

import dpctl
import dpctl.memory
import numpy as np
import pytest
import usmq

CPU, CUDA, CUDA_HOST, CUDA_MANAGED, ONEAPI = 1, 2, 3, 13, 14
NULLABLE = 2
KINDS = ["device", "shared", "host"]
MEMORY = {
    "device": dpctl.memory.MemoryUSMDevice,
    "shared": dpctl.memory.MemoryUSMShared,
    "host": dpctl.memory.MemoryUSMHost,
}

SCHEMA, ARRAY, STREAM = b"arrow_schema", b"arrow_array", b"arrow_array_stream"
DEVICE_ARRAY, DEVICE_STREAM = b"arrow_device_array", b"arrow_device_array_stream"

RELEASE = ctypes.CFUNCTYPE(None, c_void_p)
GET = ctypes.CFUNCTYPE(c_int, c_void_p, c_void_p)
LAST_ERROR = ctypes.CFUNCTYPE(c_void_p, c_void_p)


# --- the structs of abi.h; every pointer is a number


class ArrowSchema(ctypes.Structure):
    _fields_ = [
        ("format", c_void_p),
        ("name", c_void_p),
        ("metadata", c_void_p),
        ("flags", c_int64),
        ("n_children", c_int64),
        ("children", c_void_p),
        ("dictionary", c_void_p),
        ("release", c_void_p),
        ("private_data", c_void_p),
    ]


class ArrowArray(ctypes.Structure):
    _fields_ = [
        ("length", c_int64),
        ("null_count", c_int64),
        ("offset", c_int64),
        ("n_buffers", c_int64),
        ("n_children", c_int64),
        ("buffers", c_void_p),
        ("children", c_void_p),
        ("dictionary", c_void_p),
        ("release", c_void_p),
        ("private_data", c_void_p),
    ]


class ArrowDeviceArray(ctypes.Structure):
    _fields_ = [
        ("array", ArrowArray),
        ("device_id", c_int64),
        ("device_type", c_int32),
        ("sync_event", c_void_p),
        ("reserved", c_int64 * 3),
    ]


_CALLBACKS = [
    ("get_schema", c_void_p),
    ("get_next", c_void_p),
    ("get_last_error", c_void_p),
    ("release", c_void_p),
    ("private_data", c_void_p),
]


class ArrowArrayStream(ctypes.Structure):
    _fields_ = _CALLBACKS


class ArrowDeviceArrayStream(ctypes.Structure):
    _fields_ = [("device_type", c_int32), *_CALLBACKS]


def buffers(array: ArrowArray) -> list[int]:
    """Return the addresses of the buffers; 0 is NULL."""
    if not array.n_buffers:
        return []
    return [at or 0 for at in (c_void_p * array.n_buffers).from_address(array.buffers)]


def children(struct: Any) -> list[Any]:
    if not struct.n_children:
        return []
    found = (c_void_p * struct.n_children).from_address(struct.children)
    return [_part_of(struct, at) for at in found]


def dictionary(struct: Any) -> Any:
    return _part_of(struct, struct.dictionary) if struct.dictionary else None


def _part_of(struct: Any, at: int) -> Any:
    part = type(struct).from_address(at)
    part.owner = struct
    return part


def text(at: int | None) -> bytes | None:
    return None if at is None else ctypes.string_at(at)


def released_part(struct: Any) -> Any:
    """Return the part of a struct that has the field release."""
    return struct.array if isinstance(struct, ArrowDeviceArray) else struct


def release(struct: Any) -> None:
    part = released_part(struct)
    RELEASE(part.release)(addressof(part))


def move(struct: Any) -> Any:
    """Move a struct to another address, as consumers may do."""
    moved = type(struct)()
    ctypes.memmove(addressof(moved), addressof(struct), ctypes.sizeof(struct))
    released_part(struct).release = None
    return moved


# --- capsules

_new = ctypes.pythonapi.PyCapsule_New
_new.restype, _new.argtypes = py_object, [c_void_p, c_char_p, c_void_p]
_pointer = ctypes.pythonapi.PyCapsule_GetPointer
_pointer.restype, _pointer.argtypes = c_void_p, [py_object, c_char_p]
_name = ctypes.pythonapi.PyCapsule_GetName
_name.restype, _name.argtypes = c_char_p, [py_object]
# A capsule keeps the address of its name only.
_names: dict[bytes, Any] = {}


def capsule(at: int, name: bytes | None) -> Any:
    """Return a capsule that owns nothing: the caller must keep its contents."""
    if name is None:
        return _new(at, None, None)
    kept = _names.setdefault(name, ctypes.create_string_buffer(name))
    return _new(at, ctypes.cast(kept, c_char_p), None)


def pointer(capsule: Any, name: bytes) -> int:
    at = _pointer(capsule, name)
    assert at
    return int(at)


def name_of(capsule: Any) -> bytes:
    name = _name(capsule)
    assert isinstance(name, bytes)
    return name


class Exported:
    """Result of `__arrow_c_device_array__`, read through the capsules, which stay the owners."""

    def __init__(self, obj: Any, **options: Any) -> None:
        self.capsules = obj.__arrow_c_device_array__(**options)
        self.schema = ArrowSchema.from_address(pointer(self.capsules[0], SCHEMA))
        self.device = ArrowDeviceArray.from_address(pointer(self.capsules[1], DEVICE_ARRAY))
        self.schema.owner, self.device.owner = self.capsules

    @property
    def array(self) -> ArrowArray:
        array = self.device.array
        assert isinstance(array, ArrowArray)
        return array


def wait_for(device: ArrowDeviceArray) -> None:
    """Wait like a consumer of another library: dpctl does not depend on usmq."""
    if device.sync_event:
        dpctl.SyclEvent(capsule(device.sync_event, b"SyclEventRef")).wait()


class At:
    """USM at an address, as an array of another library."""

    def __init__(self, at: int, count: int, dtype: str = "u1", readonly: bool = True) -> None:
        self.__sycl_usm_array_interface__ = {
            "version": 1,
            "data": (at, readonly),
            "shape": (count,),
            "typestr": dtype,
            "syclobj": dpctl.SyclQueue(),
        }


def read(at: int, dtype: str, count: int) -> Any:
    """Read USM through dpctl; the caller has waited for its writers."""
    memory = dpctl.memory.as_usm_memory(At(at, np.dtype(dtype).itemsize * count))
    return memory.copy_to_host().view(dtype)


def usm(values: Any, kind: str = "device") -> Any:
    """Return memory of dpctl, in the default context, that holds the values."""
    data = np.ascontiguousarray(values).reshape(-1).view("u1")
    memory = MEMORY[kind](max(data.nbytes, 1), queue=dpctl.SyclQueue())
    if data.nbytes:
        memory.copy_from_host(data)
    return memory


def bitmap(bits: Sequence[int]) -> Any:
    return np.packbits(np.array(bits, "u1"), bitorder="little")


# --- the fixture of every test


STEPS = 60_000_000  # of advance on one number: a seventh of a second
_ADVANCE = """kernel void advance(global uint *x, uint steps) {
    uint state = x[get_global_id(0)];
    for (uint k = 0; k < steps; ++k) state = state * 1664525u + 1013904223u;
    x[get_global_id(0)] = state;
}
kernel void advance_into(global const uint *x, global uint *y, uint steps) {
    uint state = x[get_global_id(0)];
    for (uint k = 0; k < steps; ++k) state = state * 1664525u + 1013904223u;
    y[get_global_id(0)] = state;
}"""


@functools.cache
def kernel(name: str) -> usmq.Kernel:
    """Return a kernel whose duration depends on its steps; the oracle is `advanced`."""
    return usmq.Kernel.from_opencl(_ADVANCE, name)


def built_by_dpctl(queue: dpctl.SyclQueue) -> Any:
    """Return dpctl's program of the kernels here; skip the test where dpctl cannot build it."""
    if queue.sycl_device.backend != dpctl.backend_type.opencl:
        pytest.skip("dpctl compiles OpenCL C for devices of OpenCL only")
    from dpctl import program  # the tests of the wheel with its extra `demo` need no compiler

    return program.create_program_from_source(queue, _ADVANCE)


@functools.cache
def foreign() -> tuple[Any, Callable[..., Any]]:
    """Return an out-of-order queue of dpctl, and its `advance`, which returns an event."""
    queue = dpctl.SyclQueue()
    program = built_by_dpctl(queue)
    built = program.get_sycl_kernel("advance")

    def advance(memory: Any, steps: int) -> Any:
        arguments = [memory, ctypes.c_uint32(steps)]
        return queue.submit_async(built, arguments, [memory.nbytes // 4])

    return queue, advance


# Structs that tests export; the fixture checks each of them.
PRODUCERS: list[Any] = []
_seen_failures = [0]


def live() -> int:
    stats = [usmq.memory_stats(device) for device in usmq.devices()]
    return sum(kind["live"] for found in stats for kind in found.values())


def eventually(condition: Callable[[], bool], seconds: float = 5) -> bool:
    """Let usmq run the due releases, which it does during any call."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            return False
        usmq.current_queue().wait()
        gc.collect()
        usmq.empty(1)
        time.sleep(0.002)
    return True


@pytest.fixture(autouse=True)
def no_leaks(request: pytest.FixtureRequest) -> Iterator[None]:
    """Check that a test leaks no allocation and that its exports are released once."""
    failed = request.session.testsfailed
    if failed > _seen_failures[-1]:  # the last traceback would hold its arrays until in this test
        sys.last_value = sys.last_traceback = None
        gc.collect()
        _seen_failures.append(failed)
    before = live()
    yield
    producers = PRODUCERS[:]
    PRODUCERS.clear()
    if request.session.testsfailed > failed:
        return  # references in the traceback are not leaks
    settled = eventually(lambda: live() == before and all(not p.settled() for p in producers))
    assert settled, [live() - before, *filter(None, (p.settled() for p in producers))]
    for producer in producers:
        assert not getattr(producer, "faults", None), producer.faults


@pytest.fixture(params=["sub-device", "context of its own"])
def queue_without_ordinal(request: pytest.FixtureRequest) -> usmq.Queue:
    """Return a queue whose memory has no device number."""
    if request.param == "sub-device":
        return usmq.Queue(request.getfixturevalue("sub_device"))
    device = usmq.current_queue().device
    return usmq.Queue(device, context=usmq.Context([device]))
