"""Commands that the OpenCL driver gets without libsycl."""

import subprocess
from collections.abc import Callable
from typing import Any

import dpctl
import pytest
import usmq

Run = Callable[..., subprocess.CompletedProcess[str]]

PROGRAM = """
import usmq
x = usmq.ones(64, dtype="float32")
double = usmq.elementwise("float *x", "x[i] *= 2")
for _ in range(10):
    double(x)
y = usmq.zeros_like(x)
y[:] = x
print(y.copy().tolist() == [1024.0] * 64)
"""

FUNCTIONS = "urEnqueueKernelLaunch", "urEnqueueUSMMemcpy", "urEnqueueUSMFill"


@pytest.fixture
def device() -> usmq.Device:
    device = usmq.Device("cpu")
    if device.backend != "opencl":
        pytest.skip("needs a device of the opencl backend")
    return device


@pytest.fixture
def queue(device: usmq.Device) -> usmq.Queue:
    """A queue that no other library knows."""
    return usmq.Queue(device, context=usmq.Context([device]))


def work_on(queue: usmq.Queue) -> tuple[usmq.Array, list[usmq.Event], int]:
    """Return an array, commands that change it, the last ones without libsycl, and its value."""
    steps = 50_000_000
    x = usmq.zeros(1, dtype="uint32", queue=queue)
    advance = usmq.elementwise(
        "unsigned *x, unsigned steps",
        "for (unsigned step = 0; step < steps; ++step) x[i] = x[i] * 1664525u + 1013904223u",
    )
    events = [advance(x, steps) for _ in range(4)]
    assert not events[-1].done()
    state = 0
    factor, summand, count = 1664525, 1013904223, 4 * steps
    while count:
        if count % 2:
            state = (state * factor + summand) % 2**32
        summand = (factor * summand + summand) % 2**32
        factor = factor * factor % 2**32
        count //= 2
    return x, events, state


@pytest.mark.usefixtures("device")
def test_libsycl_gets_all_commands_if_the_variable_says_so(run_python: Run) -> None:
    def calls(**environment: str) -> list[int]:
        done = run_python(PROGRAM, SYCL_UR_TRACE="2", **environment)
        text = done.stdout + done.stderr
        assert "True" in text
        return [text.count(f"<--- {name}") for name in FUNCTIONS]

    launches, copies, fills = calls(USMQ_DRIVER_COMMANDS="0")
    assert launches >= 10
    assert copies >= 2
    assert fills >= 1
    # The first launch of a range has no work-group size yet.
    few, *others = calls()
    assert few <= 3
    assert others == [0, 0]


def test_a_wait_for_the_queue_covers_them(queue: usmq.Queue) -> None:
    _, events, _ = work_on(queue)
    queue.wait()
    assert events[-1].done()


def test_dpctl_waits_for_them(queue: usmq.Queue) -> None:
    _, events, _ = work_on(queue)
    theirs = dpctl.SyclQueue(queue._get_capsule())
    assert not events[-1].done()
    theirs.wait()
    assert events[-1].done()


def test_a_command_of_dpctl_on_the_queue_follows_them(queue: usmq.Queue) -> None:
    x, events, value = work_on(queue)
    theirs = dpctl.SyclQueue(queue._get_capsule())
    memory = dpctl.memory.as_usm_memory(x)
    target = dpctl.memory.MemoryUSMHost(4, queue=theirs)
    theirs.memcpy_async(target, memory, 4).wait()
    assert events[-1].done()
    assert int.from_bytes(bytes(target), "little") == value


@pytest.mark.parametrize(
    "other",
    [{"priority": "low"}, {"in_order": False}, {"profiling": True}, {"context": None}],
    ids=["in-order", "out-of-order", "profiling", "another context"],
)
def test_commands_of_other_queues_wait_for_them(
    other: dict[str, Any], device: usmq.Device, queue: usmq.Queue
) -> None:
    x, _, value = work_on(queue)
    second = usmq.Queue(device, **{"context": queue.context} | other)
    assert second != queue
    y = usmq.collocate(x, queue=second)
    z = usmq.zeros(1, dtype="uint32", queue=second)
    add = usmq.elementwise("const unsigned *x, unsigned *z", "z[i] = x[i] + 1")
    add(y, z)
    assert z.tolist() == [(value + 1) % 2**32]
    # The other way round.
    w = usmq.zeros(1, dtype="uint32", queue=queue)
    add(usmq.collocate(z, queue=queue), w)
    assert w.tolist() == [(value + 2) % 2**32]


GROUPS_OF_FOUR = """
kernel __attribute__((reqd_work_group_size(4, 1, 1))) void increase(global uint *x) {
  x[get_global_id(0)] += 1;
}
"""


def test_a_launch_that_the_driver_refuses_fails_as_a_first_one_does(queue: usmq.Queue) -> None:
    x = usmq.zeros(8, dtype="uint32", queue=queue)

    def refusal(kernel: usmq.Kernel) -> str:
        with pytest.raises(usmq.LaunchError, match="required work-group size") as error:
            kernel(8, x, local_size=8)
        return str(error.value)

    kernel = usmq.Kernel.from_opencl(GROUPS_OF_FOUR, "increase")
    for _ in range(3):
        kernel(8, x, local_size=4)
    text = refusal(kernel)
    assert "choose a range that this size divides, and omit local_size or" in text
    assert text == refusal(usmq.Kernel.from_opencl(GROUPS_OF_FOUR, "increase"))
    kernel(8, x, local_size=4)
    assert x.tolist() == [4] * 8


def test_an_array_for_an_image_is_refused_with_the_arguments(queue: usmq.Queue) -> None:
    source = "kernel void draw(read_only image2d_t image, global uint *x) { x[0] = 1; }"
    x = usmq.zeros(8, dtype="uint32", queue=queue)
    with pytest.raises(usmq.LaunchError, match=r"0: an array of uint32.* compare arguments"):
        usmq.Kernel.from_opencl(source, "draw")(1, x, x)
