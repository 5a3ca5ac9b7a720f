"""Child processes with emulated GPUs, in an environment of HOME, PATH and given variables."""

import os
import subprocess
import sys

import pytest
import usmq

AXPY = """
import usmq
AXPY = '''
#include <sycl/sycl.hpp>
namespace ext = sycl::ext::oneapi;
extern "C" SYCL_EXTERNAL SYCL_EXT_ONEAPI_FUNCTION_PROPERTY((ext::experimental::nd_range_kernel<1>))
void axpy(float a, const float *x, float *y) {
  size_t i = ext::this_work_item::get_nd_item<1>().get_global_linear_id();
  y[i] += a * x[i];
}'''
"""


def needs_system_usm(code="copy=False"):
    """Skip a test of `code` that uses host memory in place, on devices that do not reach it."""
    device = usmq.current_queue().device
    if "copy=False" in code and "usm_system_allocations" not in device.aspects:
        pytest.skip(f"{device} does not use memory of the host in place")


def environment(**variables):
    """Return HOME and PATH of this process, and the variables."""
    kept = {name: os.environ[name] for name in ("HOME", "PATH") if name in os.environ}
    return kept | variables


def start(*command, timeout=120, **variables):
    """Run a command in that environment."""
    return subprocess.run(
        command, env=environment(**variables), text=True, capture_output=True, timeout=timeout
    )


def run(code, gpus="2", **variables):
    """Run Python code with emulated GPUs."""
    command = [sys.executable, "-X", "faulthandler", "-c", code]
    return start(*command, **{"USMQ_EMULATE_GPUS": gpus} | variables)


def result(code, gpus="2", **variables):
    """Return the lines that the code prints; it must succeed without emulator messages."""
    done = run(code, gpus, **variables)
    assert (done.returncode, done.stderr) == (0, ""), f"{done.stdout}{done.stderr}"
    return done.stdout.splitlines()


def complaints(done):
    """Return the lines of the emulator on standard error."""
    return [line for line in done.stderr.splitlines() if line.startswith("usmq emulator: ")]
