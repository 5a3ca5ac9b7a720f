"""Two devices of one context: copies use host memory, and every device is named correctly.

Each program runs in a process of its own on two emulated GPUs. Like the GPUs of one vendor they
share a platform and its default context.
"""

from pathlib import Path

import pytest

HERE = str(Path(__file__).parent)

PRELUDE = (
    f"""
HERE = {HERE!r}
"""
    + """
import faulthandler
faulthandler.dump_traceback_later(50, exit=True)
import usmq, numpy as np
a, b = usmq.Queue("gpu:0"), usmq.Queue("gpu:1")
assert a.context == b.context and a.device != b.device

class Foreign:
    "An array of another library, described by a dict."
    def __init__(self, x, syclobj):
        self.x = x
        self.__sycl_usm_array_interface__ = x.__sycl_usm_array_interface__ | {"syclobj": syclobj}

def explained(x, queue):
    return usmq.explain(x, queue=queue).steps[0].action
"""
)

PROGRAMS = {
    "device and shared memory is copied through the host": """
for kind in ("device", "shared"):
    for n in (0, 1, 1000, 3 << 20):
        for source, target in ((a, b), (b, a)):
            host = np.arange(n, dtype="f4")
            x = usmq.asarray(host, usm_type=kind, queue=source)
            assert explained(x, target) == "copy_staged", explained(x, target)
            y = usmq.collocate(x, queue=target)
            assert (y.device, y.queue, y.usm_type) == (target.device, target, kind)
            np.testing.assert_array_equal(y.to_numpy(), host)
            z = usmq.collocate(x[::-2], queue=target)
            np.testing.assert_array_equal(z.to_numpy(), host[::-2])
""",
    "host memory is used in place": """
x = usmq.arange(100, dtype="f4", usm_type="host", queue=a)
y = usmq.collocate(x, queue=b)
assert (explained(x, b), y.ptr, y.queue) == ("rebind", x.ptr, b)
np.testing.assert_array_equal(y.to_numpy(), np.arange(100, dtype="f4"))
""",
    "a kernel does not take memory of the other device": """
source = "kernel void twice(global float *x) { x[get_global_id(0)] *= 2; }"
twice = usmq.Kernel.from_opencl(source, "twice")
for kind in ("device", "shared"):
    x = usmq.zeros(8, "f4", usm_type=kind, queue=a)
    try:
        twice(8, x, queue=b)
    except usmq.PlacementError as error:
        assert "gpu:0" in str(error) and "gpu:1" in str(error) and "collocate" in str(error), error
    else:
        raise AssertionError("a kernel of gpu:1 took memory of gpu:0")
    twice(8, usmq.collocate(x, queue=b)).wait()
""",
    "an assignment between the devices goes through the host": """
for kind in ("device", "shared", "host"):
    for target_kind in ("device", "shared", "host"):
        x = usmq.arange(1000, dtype="f4", usm_type=kind, queue=a)
        y = usmq.zeros(1000, "f4", usm_type=target_kind, queue=b)
        y.copy_from(x)
        y[:10].copy_from(x[990:])
        expected = np.arange(1000, dtype="f4")
        expected[:10] = expected[990:]
        np.testing.assert_array_equal(y.to_numpy(), expected)
        z = usmq.asarray(x, usm_type=target_kind, queue=b)
        np.testing.assert_array_equal(z.to_numpy(), x.to_numpy())
""",
    "imports name the device that owns the memory": """
import dpctl
for queue in (a, b):
    for kind in ("device", "shared"):
        x = usmq.arange(8, dtype="f4", usm_type=kind, queue=queue)
        assert x.__dlpack_device__() == (14, queue.device.ordinal), x.__dlpack_device__()
        assert usmq.from_dlpack(x).device == queue.device
        context = dpctl.SyclContext(queue.context._get_capsule())
        for syclobj in (context, queue.context._get_capsule(), queue):
            y = usmq.asarray(Foreign(x, syclobj), copy=False)
            assert (y.ptr, y.device) == (x.ptr, queue.device), (syclobj, y.device)
""",
    "Arrow names the device that owns the memory": """
import sys
sys.path.insert(0, HERE)
from arrow_structs import Exported
for queue in (a, b):
    for kind in ("device", "shared"):
        x = usmq.arange(8, dtype="f4", usm_type=kind, queue=queue)
        exported = Exported(x)
        assert exported.device.device_type == 14
        assert exported.device.device_id == queue.device.ordinal, exported.device.device_id
        for target in (None, a, b):
            column = usmq.from_arrow(x, queue=target)
            assert column.queue.device == (target or queue).device
            assert column.values().tolist() == x.tolist()
        column = usmq.from_arrow(x)
        assert column.values().ptr == x.ptr, "without a copy"
        del exported
""",
    "limits and statistics are of their device": """
usmq.set_memory_limit(1 << 20, "gpu:1")
big = usmq.empty(4 << 20, "u1", queue=a)
try:
    usmq.empty(4 << 20, "u1", queue=b)
except usmq.AllocationError as error:
    assert "gpu:1" in str(error), error
else:
    raise AssertionError("the limit of gpu:1 does not hold")
assert usmq.memory_stats("gpu:0")["device"]["used"] >= 4 << 20
assert usmq.memory_stats("gpu:1")["device"]["used"] == 0
""",
    "a profile has a lane for each device": """
with usmq.profile() as profile:
    x = usmq.arange(1 << 16, dtype="f4", queue=a)
    usmq.collocate(x, queue=b).wait()
assert {event.device for event in profile.events if event.kind == "copy"} == {
    a.device.filter_string, b.device.filter_string}, {event.device for event in profile.events}
""",
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_on_two_emulated_gpus(run_python, name):
    done = run_python(PRELUDE + PROGRAMS[name], USMQ_EMULATE_GPUS="2", timeout=60)
    assert done.stderr == "", "strict emulation reports no violation"
