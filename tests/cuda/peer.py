"""A second CUDA library: memory, streams and events through the driver API alone."""

import ctypes
import gc
import threading
import time
from collections.abc import Callable
from ctypes import POINTER, byref, c_int, c_size_t, c_uint, c_ulonglong, c_void_p
from typing import Any

import numpy as np

_driver = ctypes.CDLL("libcuda.so.1")
_thread = threading.local()
_HOST_FUNCTION = ctypes.CFUNCTYPE(None, c_void_p)


def _call(name: str, *arguments: Any) -> None:
    code = getattr(_driver, name)(*arguments)
    assert code == 0, f"{name}: {code}"


def _enter_context() -> None:
    """Make the primary context current in this thread, as libraries over the CUDA runtime do."""
    if getattr(_thread, "has_context", False):
        return
    context = c_void_p()
    _call("cuInit", c_uint(0))
    _call("cuDevicePrimaryCtxRetain", byref(context), c_int(0))
    _call("cuCtxPushCurrent_v2", context)
    _thread.has_context = True


def _event(stream: c_void_p) -> c_void_p:
    """Return a new event that completes after the work of a stream so far."""
    event = c_void_p()
    _call("cuEventCreate", byref(event), c_uint(2))
    _call("cuEventRecord", event, stream)
    return event


class Stream:
    """A stream, or one of the numbers 1 and 2."""

    def __init__(self, number: int | None = None) -> None:
        self.handle = c_void_p(number)
        _enter_context()
        if number is None:
            _call("cuStreamCreate", byref(self.handle), c_uint(1))
        self._functions: list[Any] = []

    def run(self, function: Any) -> None:
        """Add a Python function to the stream's work."""
        wrapped = _HOST_FUNCTION(lambda _: function())
        self._functions.append(wrapped)
        _call("cuLaunchHostFunc", self.handle, wrapped, c_void_p())

    def event(self) -> c_void_p:
        """Return a new event that completes after the work so far."""
        return _event(self.handle)

    def follow(self, stream: int) -> None:
        """Wait for the work of another stream, as a consumer of an interface does."""
        _enter_context()
        event = _event(c_void_p(stream))
        _call("cuStreamWaitEvent", self.handle, event, c_uint(0))
        _call("cuEventDestroy_v2", event)

    @classmethod
    def after(cls, array: Any) -> "Stream":
        """Return a new stream that follows the work of an array, as a consumer's does."""
        stream, number = cls(), array.__cuda_array_interface__["stream"]
        assert number != 0
        if number is not None:
            stream.follow(number)
        return stream

    def wait(self) -> None:
        """Block until the work so far is done."""
        _call("cuStreamSynchronize", self.handle)


class Pinned:
    """Host memory with the elements of a numpy array, from which copies are asynchronous."""

    def __init__(self, values: Any) -> None:
        self.pointer = c_void_p()
        _call("cuMemHostAlloc", byref(self.pointer), c_size_t(max(values.nbytes, 1)), c_uint(0))
        ctypes.memmove(self.pointer, values.ctypes.data, values.nbytes)

    def __del__(self) -> None:
        """Free the memory."""
        _call("cuMemFreeHost", self.pointer)


class Memory:
    """Device memory with the elements of a numpy array, and the interface."""

    def __init__(
        self, values: Any, stream: Stream | None = None, entries: dict[str, Any] | None = None
    ) -> None:
        values = np.ascontiguousarray(values)
        own = Stream()
        pointer = c_ulonglong()
        _call("cuMemAllocAsync", byref(pointer), c_size_t(max(values.nbytes, 1)), own.handle)
        self.ptr = pointer.value
        self.nbytes = values.nbytes
        own.wait()
        self._own = own
        self._sources: list[Pinned] = []
        self.write(values, own)
        own.wait()
        self.__cuda_array_interface__ = {
            "shape": values.shape,
            "typestr": values.dtype.str,
            "data": (self.ptr, False),
            "strides": None,
            "stream": None if stream is None else stream.handle.value,
            "version": 3,
        } | (entries or {})

    def write(self, values: Any, stream: Stream) -> None:
        """Submit a copy of these elements into the memory."""
        source = Pinned(np.ascontiguousarray(values))
        self._sources.append(source)
        if values.nbytes:
            _call(
                "cuMemcpyAsync",
                c_ulonglong(self.ptr),
                c_ulonglong(source.pointer.value or 0),
                c_size_t(values.nbytes),
                stream.handle,
            )

    def __del__(self) -> None:
        """Free the memory."""
        _call("cuMemFreeAsync", c_ulonglong(self.ptr), self._own.handle)


def read(array: Any) -> Any:
    """Read an array of the interface, after its stream, as a consumer does."""
    entries, stream = array.__cuda_array_interface__, Stream.after(array)
    result = np.empty(entries["shape"], entries["typestr"])
    assert entries["strides"] is None
    if result.nbytes:
        _call(
            "cuMemcpyAsync",
            c_ulonglong(result.ctypes.data),
            c_ulonglong(entries["data"][0]),
            c_size_t(result.nbytes),
            stream.handle,
        )
    stream.wait()
    return result


def counts() -> dict[str, int] | None:
    """Return the number of live objects in the mock driver; None with a CUDA device."""
    try:
        function = _driver.mock_driver_counts
    except AttributeError:
        return None
    numbers = (ctypes.c_long * 5)()
    function.argtypes = [POINTER(ctypes.c_long)]
    function(numbers)
    return dict(zip(["memory", "events", "pinned", "copies", "contexts"], numbers, strict=True))


def fail(at: int, on: bool = False) -> int:
    """Let the `at`-th call of the mock driver from now on fail, with those after it if `on`.

    0 ends that. Return how many have failed.
    """
    function = _driver.mock_driver_fail
    function.argtypes, function.restype = (ctypes.c_long, c_int), ctypes.c_long
    failed: int = function(at, on)
    return failed


def live() -> tuple[int, int]:
    """Return how many blocks of memory and events are alive in the mock driver."""
    found = counts()
    assert found is not None
    return found["memory"], found["events"]


def eventually(condition: Callable[[], bool]) -> bool:
    """Collect garbage for at most 20 s until a condition holds; return whether it did."""
    deadline = time.monotonic() + 20
    while not condition():
        if time.monotonic() > deadline:
            return False
        gc.collect()
        time.sleep(0.01)
    return True
