"""Tiles of a GPU on Level Zero: they work in the context of their GPU."""

import os

import pytest

pytestmark = pytest.mark.skipif(
    "USMQ_LEVEL_ZERO_OPENCL" not in os.environ,
    reason="needs a GPU with two tiles, as the driver in front of Level Zero makes one: "
    "tests/run level-zero",
)

PRELUDE = """

import os
import dpctl, dpctl.memory
import numpy as np
import usmq

gpu = usmq.Device("level_zero:gpu")
tiles = gpu.sub_devices("numa")
places = [usmq.Queue(device) for device in (gpu, *tiles)]
numbers = np.arange(10_000, dtype="i4")
add = usmq.Kernel.from_sycl(
    "#include <usmq/kernel.h>\\n"
    "USMQ_KERNEL(1) void add(const int *x, int *y) { y[global_id(0)] += x[global_id(0)]; }",
    "add",
)
"""

IN_PLACE = """
assert len(tiles) == 2
for kind in ("device", "shared", "host"):
    for source in places:
        for target in places:
            x = usmq.asarray(numbers, queue=source, usm_type=kind)
            y = usmq.full(numbers.size, 7, "i4", queue=target, usm_type=kind)
            add(numbers.size, x, x, queue=source)
            [step] = usmq.explain(x, queue=target).steps
            assert step.action == ("keep" if source == target else "rebind"), step
            add(numbers.size, usmq.collocate(x, queue=target), y)
            x.fill(1)
            assert (y.to_numpy() == 2 * numbers + 7).all(), (kind, source, target)
"""

ONE_CONTEXT = """
assert {place.context for place in places} == {gpu.platform.default_context}
assert [place.device.parent for place in places] == [None, gpu, gpu]
first = usmq.ones(4, "i4", queue=places[1])
assert usmq.from_dlpack(first).ptr == first.ptr and usmq.from_dlpack(first).device == tiles[0]
assert first.__dlpack_device__() == (14, gpu.ordinal)
memory = dpctl.memory.as_usm_memory(first)
assert memory.sycl_context == dpctl.SyclContext(places[0].context._get_capsule())
"""

OF_DPCTL = """
tile = dpctl.SyclDevice("level_zero:gpu").create_sub_devices(partition="numa")[1]
memory = dpctl.memory.MemoryUSMDevice(numbers.nbytes, queue=dpctl.SyclQueue(tile))
memory.copy_from_host(numbers.tobytes())

class Lent:
    __sycl_usm_array_interface__ = dict(
        memory.__sycl_usm_array_interface__,
        shape=numbers.shape,
        typestr="<i4",
        data=(memory._pointer, False),
    )

x = usmq.asarray(Lent(), copy=False)
assert x.device == tiles[1] and x.queue.context != places[2].context
assert usmq.explain(x, queue=places[2]).steps[0].action == "copy_staged"
y = usmq.zeros(numbers.size, "i4", queue=places[2])
for value in range(20):
    x.fill(value)
    add(numbers.size, usmq.collocate(x, like=y), y)
assert (y.to_numpy() == sum(range(20))).all()

# Adapter v2 has no kernel for a sub-device of such a context (docs/upstream.md).
try:
    add(numbers.size, x, x)
    assert (x.to_numpy() == 38).all()
except usmq.SyclError as error:
    assert "INVALID_DEVICE" in str(error) and os.environ["SYCL_UR_USE_LEVEL_ZERO_V2"] == "1"
"""


@pytest.mark.parametrize(
    "program", [IN_PLACE, ONE_CONTEXT, OF_DPCTL], ids=["in place", "one context", "dpctl"]
)
def test_tiles(run_python, program):
    run_python(
        PRELUDE + program, CreateMultipleSubDevices="2", ZE_FLAT_DEVICE_HIERARCHY="COMPOSITE"
    )
