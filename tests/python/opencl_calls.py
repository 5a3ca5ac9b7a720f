"""OpenCL through ctypes, for child processes: the emulated GPUs in a program without SYCL."""

import ctypes
import os
import sys
from ctypes import byref, c_int, c_uint, c_ulong, c_void_p

# As the runtime would; without usmq the driver and the layer are named by the caller.
if os.environ.get("USMQ_EMULATE_GPUS"):
    import usmq  # noqa: F401

CL = ctypes.CDLL(os.path.join(sys.prefix, "lib", "libOpenCL.so.1"))
GPU, ALL = 4, 0xFFFFFFFF
COMPLETE, FOREIGN_MEMORY = 0, -38
OUT_OF_RESOURCES, NOT_AVAILABLE, FAILED_WAIT = -5, -2, -14


def function(name, count, result=c_int):
    """Return a function of the loader; each of its parameters is passed as one machine word."""
    found = getattr(CL, name)
    found.argtypes, found.restype = [c_void_p] * count, result
    return found


get_platforms = function("clGetPlatformIDs", 3)
get_devices = function("clGetDeviceIDs", 5)
device_info = function("clGetDeviceInfo", 5)
create_context = function("clCreateContext", 6, c_void_p)
create_queue = function("clCreateCommandQueueWithProperties", 4, c_void_p)
create_program = function("clCreateProgramWithSource", 5, c_void_p)
build = function("clBuildProgram", 6)
create_kernel = function("clCreateKernel", 3, c_void_p)
clone_kernel = function("clCloneKernel", 2, c_void_p)
release_kernel = function("clReleaseKernel", 1)
launch = function("clEnqueueNDRangeKernel", 9)
marker = function("clEnqueueMarkerWithWaitList", 4)
event_info = function("clGetEventInfo", 5)
wait = function("clWaitForEvents", 2)
release_event = function("clReleaseEvent", 1)
finish = function("clFinish", 1)
CALLBACK = ctypes.CFUNCTYPE(None, c_void_p, c_int, c_void_p)
set_callback = function("clSetEventCallback", 4)
extension = function("clGetExtensionFunctionAddressForPlatform", 2, c_void_p)


def handles(count, values=()):
    return (c_void_p * count)(*values)


PLATFORMS = handles(8)
COUNT = c_uint()
assert get_platforms(8, PLATFORMS, byref(COUNT)) == 0
PLATFORM = PLATFORMS[0]


def devices(kind=ALL):
    """Return the devices of the first platform."""
    found = handles(70)
    status = get_devices(PLATFORM, kind, 70, found, byref(COUNT))
    assert status == 0, status
    return list(found[: COUNT.value])


def info(device, what):
    """Return a numeric property of a device."""
    value = c_ulong()
    assert device_info(device, what, ctypes.sizeof(value), byref(value), None) == 0
    return value.value


def usm(name, count, result=c_int):
    """Return a function of an extension, as `function`."""
    address = extension(PLATFORM, name.encode())
    assert address, name
    return ctypes.CFUNCTYPE(result, *[c_void_p] * count)(address)


class Gpus:
    """A context of all devices, and a queue on each; most methods return the status of a call."""

    def __init__(self):
        self.devices = devices()
        status = c_int()
        list_ = handles(len(self.devices), self.devices)
        self.context = create_context(None, len(self.devices), list_, None, None, byref(status))
        assert status.value == 0
        self.queues = [create_queue(self.context, d, None, None) for d in self.devices]
        self._device = usm("clDeviceMemAllocINTEL", 6, c_void_p)
        self._shared = usm("clSharedMemAllocINTEL", 6, c_void_p)
        self._host = usm("clHostMemAllocINTEL", 5, c_void_p)
        self._copy = usm("clEnqueueMemcpyINTEL", 8)
        self._fill = usm("clEnqueueMemFillINTEL", 8)
        self._free = usm("clMemFreeINTEL", 2)
        self._info = usm("clGetMemAllocInfoINTEL", 6)
        self.set_pointer = usm("clSetKernelArgMemPointerINTEL", 3)

    def allocate(self, kind, number, size=64):
        """Return pointer and status of an allocation on a device."""
        status = c_int()
        if kind == "host":
            return self._host(self.context, None, size, 0, byref(status)), status.value
        function_ = {"device": self._device, "shared": self._shared}[kind]
        pointer = function_(self.context, self.devices[number], None, size, 0, byref(status))
        return pointer, status.value

    def free(self, pointer):
        return self._free(self.context, pointer)

    def owner(self, pointer):
        """Return the number of the device that owns an address."""
        value = c_void_p()
        assert self._info(self.context, pointer, 0x419D, 8, byref(value), None) == 0
        return self.devices.index(value.value) if value.value else None

    def kernel(self, source, name):
        """Return a kernel in OpenCL C."""
        text = ctypes.c_char_p(source.encode())
        program = create_program(self.context, 1, byref(text), None, None)
        assert build(program, 0, None, b"", None, None) == 0
        return create_kernel(program, name.encode(), None)

    def launch(self, number, kernel, n=16):
        size = handles(1, [n])
        return launch(self.queues[number], kernel, 1, None, size, None, 0, None, None)

    def _enqueue(self, function_, *given, after=()):
        event = c_void_p()
        list_ = handles(len(after), after) if after else None
        return function_(*given, len(after), list_, byref(event)), event.value

    def copy(self, number, to, source, *, blocking=False, after=()):
        """Return status and event of a copy of 64 bytes."""
        queue = self.queues[number]
        return self._enqueue(self._copy, queue, int(blocking), to, source, 64, after=after)

    def fill(self, number, to, value=1):
        """Return status and event of a fill of 64 bytes."""
        pattern = byref(ctypes.c_ubyte(value))
        return self._enqueue(self._fill, self.queues[number], to, pattern, 1, 64)

    def finish(self, number):
        return finish(self.queues[number])


class CommandBuffer:
    """A command buffer (cl_khr_command_buffer) recorded for the queue of one device."""

    def __init__(self, gpus, number):
        status = c_int()
        create = usm("clCreateCommandBufferKHR", 4, c_void_p)
        self.buffer = create(1, handles(1, [gpus.queues[number]]), None, byref(status))
        assert status.value == 0, status.value
        self._copy = usm("clCommandSVMMemcpyKHR", 10)
        self._fill = usm("clCommandSVMMemFillKHR", 11)
        self._kernel = usm("clCommandNDRangeKernelKHR", 12)
        self._finalize = usm("clFinalizeCommandBufferKHR", 1)
        self._run = usm("clEnqueueCommandBufferKHR", 6)

    def copy(self, to, source):
        return self._copy(self.buffer, None, None, to, source, 64, 0, None, None, None)

    def fill(self, to, value=1):
        pattern = byref(ctypes.c_ubyte(value))
        return self._fill(self.buffer, None, None, to, pattern, 1, 64, 0, None, None, None)

    def kernel(self, kernel, n=16):
        size = handles(1, [n])
        return self._kernel(
            self.buffer, None, None, kernel, 1, None, size, None, 0, None, None, None
        )

    def finalize(self):
        return self._finalize(self.buffer)

    def run(self):
        """Return status and event of running the buffer."""
        event = c_void_p()
        status = self._run(0, None, self.buffer, 0, None, byref(event))
        return status, event.value


def status_of(event):
    """Return the status of a command."""
    value = c_int()
    assert event_info(event, 0x11D3, 4, byref(value), None) == 0
    return value.value


def wait_for(event):
    return wait(1, handles(1, [event]))
