"""Host memory as arrays in place and as arguments of kernels: shared code of the tests."""

import numpy as np
import pytest
import usmq
from emulated import AXPY

KERNELS = """
#include <usmq/kernel.h>
USMQ_KERNEL(1) void add(const float *x, float *y) { y[global_id(0)] += x[global_id(0)]; }
USMQ_KERNEL(1) void shift(float *x, float *y) { x[global_id(0)] += 1; y[global_id(0)] *= 2; }
USMQ_KERNEL(1) void bytes(const unsigned char *x, unsigned char *y) {
  y[global_id(0)] = x[global_id(0)];
}
USMQ_KERNEL(1) void first(float *x, size_t n) { if (global_id(0) == 0) x[n] = -1; }
"""

# The start of programs for emulated GPUs.
GPU = f"""{AXPY}
import numpy as np
axpy = usmq.Kernel.from_sycl(AXPY, "axpy")
def numbers():
    return np.arange(1000, dtype="f4")
"""


def skip_without_system_memory():
    """Skip where the device does not use system memory; emulated GPUs have tests of their own."""
    device = usmq.current_queue().device
    if "usm_system_allocations" not in device.aspects:
        pytest.skip(f"{device.name} does not use system memory")


def in_place(host, **kwargs):
    """Return an array in the memory of a host object."""
    skip_without_system_memory()
    x = usmq.asarray(host, copy=False, **kwargs)
    assert x.usm_type == "system"
    return x


def address(host):
    return int(host.__array_interface__["data"][0])


def numbers(*shape):
    shape = shape or (1000,)
    return np.arange(np.prod(shape), dtype="f4").reshape(shape)


def frozen():
    """Return numbers that must not be written."""
    host = numbers()
    host.flags.writeable = False
    return host
