"""OpenCL through ctypes, for child processes: the emulated GPUs in a program without SYCL."""

from __future__ import annotations

import ctypes
import os
import sys
from ctypes import byref, c_int, c_size_t, c_uint, c_ulong, c_void_p

# As the runtime would; without usmq the driver and the layer are named by the caller.
if os.environ.get("USMQ_EMULATE_GPUS"):
    import usmq  # noqa: F401

CL = ctypes.CDLL(os.path.join(sys.prefix, "lib", "libOpenCL.so.1"))
GPU, ALL = 4, 0xFFFFFFFF
COMPLETE, FOREIGN_MEMORY = 0, -38
OUT_OF_RESOURCES, NOT_AVAILABLE, FAILED_WAIT = -5, -2, -14


def function(name: str, *parameters: object, result: object = c_int) -> ctypes._FuncPointer:
    """Return a function of the loader."""
    found = getattr(CL, name)
    found.argtypes, found.restype = parameters, result
    return found


LIST = (c_uint, c_void_p, c_void_p)
POINTS = (*LIST, c_void_p)
get_platforms = function("clGetPlatformIDs", c_uint, c_void_p, c_void_p)
get_devices = function("clGetDeviceIDs", c_void_p, c_ulong, c_uint, c_void_p, c_void_p)
device_info = function("clGetDeviceInfo", c_void_p, c_uint, c_size_t, c_void_p, c_void_p)
create_context = function(
    "clCreateContext", c_void_p, c_uint, c_void_p, c_void_p, c_void_p, c_void_p, result=c_void_p
)
create_queue = function(
    "clCreateCommandQueueWithProperties", c_void_p, c_void_p, c_void_p, c_void_p, result=c_void_p
)
create_program = function(
    "clCreateProgramWithSource", c_void_p, c_uint, c_void_p, c_void_p, c_void_p, result=c_void_p
)
build = function("clBuildProgram", c_void_p, c_uint, c_void_p, c_void_p, c_void_p, c_void_p)
create_kernel = function("clCreateKernel", c_void_p, ctypes.c_char_p, c_void_p, result=c_void_p)
clone_kernel = function("clCloneKernel", c_void_p, c_void_p, result=c_void_p)
release_kernel = function("clReleaseKernel", c_void_p)
launch = function(
    "clEnqueueNDRangeKernel", c_void_p, c_void_p, c_uint, c_void_p, c_void_p, c_void_p, *LIST
)
marker = function("clEnqueueMarkerWithWaitList", c_void_p, *LIST)
event_info = function("clGetEventInfo", c_void_p, c_uint, c_size_t, c_void_p, c_void_p)
wait = function("clWaitForEvents", c_uint, c_void_p)
release_event = function("clReleaseEvent", c_void_p)
finish = function("clFinish", c_void_p)
CALLBACK = ctypes.CFUNCTYPE(None, c_void_p, c_int, c_void_p)
set_callback = function("clSetEventCallback", c_void_p, c_int, CALLBACK, c_void_p)
extension = function(
    "clGetExtensionFunctionAddressForPlatform", c_void_p, ctypes.c_char_p, result=c_void_p
)


def handles(count: int, values: list[int] = ()) -> ctypes.Array[c_void_p]:  # type: ignore[assignment]
    """Return an array of handles."""
    return (c_void_p * count)(*values)


PLATFORMS = handles(8)
COUNT = c_uint()
assert get_platforms(8, PLATFORMS, byref(COUNT)) == 0
PLATFORM = PLATFORMS[0]


def devices(kind: int = ALL) -> list[int]:
    """Return the devices of the first platform."""
    found = handles(70)
    status = get_devices(PLATFORM, kind, 70, found, byref(COUNT))
    assert status == 0, status
    return list(found[: COUNT.value])


def info(device: int, what: int, kind: type = c_ulong) -> int:
    """Return a numeric property of a device."""
    value = kind()
    assert device_info(device, what, ctypes.sizeof(value), byref(value), None) == 0
    return value.value


def usm(name: str, *parameters: object, result: object = c_int) -> object:
    """Return a function of the extension for USM."""
    address = extension(PLATFORM, name.encode())
    assert address, name
    return ctypes.CFUNCTYPE(result, *parameters)(address)


class Gpus:
    """A context of all devices, and a queue on each."""

    def __init__(self) -> None:
        self.devices = devices()
        status = c_int()
        list_ = handles(len(self.devices), self.devices)
        self.context = create_context(None, len(self.devices), list_, None, None, byref(status))
        assert status.value == 0
        self.queues = [create_queue(self.context, d, None, None) for d in self.devices]
        allocate = (c_void_p, c_void_p, c_void_p, c_size_t, c_uint, c_void_p)
        self._device = usm("clDeviceMemAllocINTEL", *allocate, result=c_void_p)
        self._shared = usm("clSharedMemAllocINTEL", *allocate, result=c_void_p)
        self._host = usm(
            "clHostMemAllocINTEL", c_void_p, c_void_p, c_size_t, c_uint, c_void_p, result=c_void_p
        )
        self._copy = usm(
            "clEnqueueMemcpyINTEL", c_void_p, c_uint, c_void_p, c_void_p, c_size_t, *LIST
        )
        self._fill = usm(
            "clEnqueueMemFillINTEL", c_void_p, c_void_p, c_void_p, c_size_t, c_size_t, *LIST
        )
        self._free = usm("clMemFreeINTEL", c_void_p, c_void_p)
        self._info = usm(
            "clGetMemAllocInfoINTEL", c_void_p, c_void_p, c_uint, c_size_t, c_void_p, c_void_p
        )
        self.set_pointer = usm("clSetKernelArgMemPointerINTEL", c_void_p, c_uint, c_void_p)

    def allocate(self, kind: str, number: int, size: int = 64) -> tuple[int | None, int]:
        """Return pointer and status of an allocation on a device."""
        status = c_int()
        if kind == "host":
            return self._host(self.context, None, size, 0, byref(status)), status.value
        function_ = {"device": self._device, "shared": self._shared}[kind]
        pointer = function_(self.context, self.devices[number], None, size, 0, byref(status))
        return pointer, status.value

    def free(self, pointer: int) -> int:
        """Free an allocation."""
        return self._free(self.context, pointer)

    def owner(self, pointer: int) -> int | None:
        """Return the number of the device that owns an address."""
        value = c_void_p()
        assert self._info(self.context, pointer, 0x419D, 8, byref(value), None) == 0
        return self.devices.index(value.value) if value.value else None

    def kernel(self, source: str, name: str) -> int:
        """Return a kernel in OpenCL C."""
        text = ctypes.c_char_p(source.encode())
        program = create_program(self.context, 1, byref(text), None, None)
        assert build(program, 0, None, b"", None, None) == 0
        return create_kernel(program, name.encode(), None)

    def launch(self, number: int, kernel: int, n: int = 16) -> int:
        """Return the status of a launch."""
        size = (c_size_t * 1)(n)
        return launch(self.queues[number], kernel, 1, None, size, None, 0, None, None)

    def _enqueue(
        self, function_: object, *given: object, after: list[int] = ()
    ) -> tuple[int, int | None]:  # type: ignore[assignment]
        event = c_void_p()
        list_ = handles(len(after), after) if after else None
        status = function_(*given, len(after), list_, byref(event))  # type: ignore[operator]
        return status, event.value

    def copy(
        self,
        number: int,
        to: int,
        source: int,
        *,
        blocking: bool = False,
        after: list[int] = (),  # type: ignore[assignment]
    ) -> tuple[int, int | None]:
        """Return status and event of a copy of 64 bytes."""
        queue = self.queues[number]
        return self._enqueue(self._copy, queue, int(blocking), to, source, 64, after=after)

    def fill(self, number: int, to: int, value: int = 1) -> tuple[int, int | None]:
        """Return status and event of a fill of 64 bytes."""
        pattern = ctypes.c_ubyte(value)
        return self._enqueue(self._fill, self.queues[number], to, byref(pattern), 1, 64)

    def finish(self, number: int) -> int:
        """Wait for a queue."""
        return finish(self.queues[number])


class CommandBuffer:
    """A command buffer (cl_khr_command_buffer) recorded for the queue of one device."""

    def __init__(self, gpus: Gpus, number: int) -> None:
        status = c_int()
        create = usm(
            "clCreateCommandBufferKHR", c_uint, c_void_p, c_void_p, c_void_p, result=c_void_p
        )
        self.buffer = create(1, handles(1, [gpus.queues[number]]), None, byref(status))
        assert status.value == 0, status.value
        command = (c_void_p, c_void_p, c_void_p)
        self._copy = usm("clCommandSVMMemcpyKHR", *command, c_void_p, c_void_p, c_size_t, *POINTS)
        self._fill = usm(
            "clCommandSVMMemFillKHR", *command, c_void_p, c_void_p, c_size_t, c_size_t, *POINTS
        )
        sizes = (c_uint, c_void_p, c_void_p, c_void_p)
        self._kernel = usm("clCommandNDRangeKernelKHR", *command, c_void_p, *sizes, *POINTS)
        self._finalize = usm("clFinalizeCommandBufferKHR", c_void_p)
        self._run = usm("clEnqueueCommandBufferKHR", c_uint, c_void_p, c_void_p, *LIST)

    def copy(self, to: int, source: int) -> int:
        """Return the status of recording a copy of 64 bytes."""
        return self._copy(self.buffer, None, None, to, source, 64, 0, None, None, None)

    def fill(self, to: int, value: int = 1) -> int:
        """Return the status of recording a fill of 64 bytes."""
        pattern = byref(ctypes.c_ubyte(value))
        return self._fill(self.buffer, None, None, to, pattern, 1, 64, 0, None, None, None)

    def kernel(self, kernel: int, n: int = 16) -> int:
        """Return the status of recording a launch."""
        size = (c_size_t * 1)(n)
        return self._kernel(
            self.buffer, None, None, kernel, 1, None, size, None, 0, None, None, None
        )

    def finalize(self) -> int:
        """Return the status of ending the record."""
        return self._finalize(self.buffer)

    def run(self) -> tuple[int, int | None]:
        """Return status and event of running the buffer."""
        event = c_void_p()
        status = self._run(0, None, self.buffer, 0, None, byref(event))
        return status, event.value


def status_of(event: int) -> int:
    """Return the status of a command."""
    value = c_int()
    assert event_info(event, 0x11D3, 4, byref(value), None) == 0
    return value.value


def wait_for(event: int) -> int:
    """Wait for a command."""
    return wait(1, (c_void_p * 1)(event))
