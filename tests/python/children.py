"""Shared code of child processes: kernels of a given duration, and a watchdog."""

# After 60 s the child prints its stacks and ends with status 1.
PRELUDE = '''
import faulthandler, gc, os, statistics, sys, threading, time, weakref
faulthandler.dump_traceback_later(60, exit=True)
import numpy as np
import usmq

usmq.devices()

SOURCE = """
kernel void spin(global uint *x, uint steps) {
    uint state = x[0];
    for (uint k = 0; k < steps; ++k) state = state * 1664525u + 1013904223u;
    x[0] = state;
}
// Reads x at its end: the index, which is 0 or 1, depends on the loop. x has two equal elements.
kernel void read_late(global const uint *x, global uint *y, uint steps) {
    uint state = y[0];
    for (uint k = 0; k < steps; ++k) state = state * 1664525u + 1013904223u;
    y[0] = x[state == 12345u];
}
// Writes value to all of x, after a while.
kernel void write_late(global uint *x, uint value, uint steps) {
    uint state = value;
    for (uint k = 0; k < steps; ++k) state = state * 1664525u + 1013904223u;
    x[get_global_id(0)] = value + (state == 12345u);
}
"""
spin, read_late, write_late = (
    usmq.Kernel.from_opencl(SOURCE, name) for name in ("spin", "read_late", "write_late")
)

def rate():
    "Steps per second of one work item, on the machine as busy as it is now."
    x, best = usmq.zeros(1, "u4"), 0.0
    for _ in range(3):
        begun = time.perf_counter()
        spin(1, x, 30_000_000).wait()
        best = max(best, 30e6 / (time.perf_counter() - begun))
    return best

STEPS_PER_SECOND = rate()

def steps(seconds):
    return min(int(STEPS_PER_SECOND * seconds), 2**32 - 1)

def timed(call):
    begun = time.perf_counter()
    call()
    return time.perf_counter() - begun

def until(condition, seconds=10.0):
    "Seconds until a condition holds, asked without a pause of more than 1 ms; inf if it does not."
    begun = time.perf_counter()
    while time.perf_counter() - begun < seconds:
        if condition():
            return time.perf_counter() - begun
        time.sleep(0.001)
    return float("inf")

class ForeignArray:
    "Another library's array over USM of dpctl: two elements of u4."
    def __init__(self, memory):
        self.memory = memory
        self.__sycl_usm_array_interface__ = {
            "version": 1, "data": (memory._pointer, False), "shape": (memory.nbytes // 4,),
            "typestr": "<u4", "strides": None, "offset": 0, "syclobj": memory.sycl_queue,
        }

def shared_memory(count=2):
    import dpctl, dpctl.memory
    memory = dpctl.memory.MemoryUSMShared(4 * count, queue=dpctl.SyclQueue(property="in_order"))
    np.asarray(memory).view("u4")[:] = 0
    return memory
'''

# The same kernel alone.
SPIN = PRELUDE.partition('SOURCE = """')[2].partition("// Reads")[0]

# A kernel in SYCL C++ that takes time in proportion to its steps.
SPIN_SOURCE = """
#include <sycl/sycl.hpp>
namespace syclexp = sycl::ext::oneapi::experimental;
extern "C" SYCL_EXTERNAL SYCL_EXT_ONEAPI_FUNCTION_PROPERTY((syclexp::nd_range_kernel<1>)) void
spin(unsigned *x, unsigned steps) {
  unsigned state = x[0];
  for (unsigned k = 0; k < steps; ++k) state = state * 1664525u + 1013904223u;
  x[0] = state;
}
"""

# Builds the kernel and runs one step, so that later launches start at once.
KERNEL = f'''
import usmq
SOURCE = """{SPIN_SOURCE}"""
spin = usmq.Kernel.from_sycl(SOURCE, "spin")
x, h = usmq.zeros(1, "u4"), usmq.zeros(1, "u4", usm_type="host")
spin(1, x, 1).wait()
'''
