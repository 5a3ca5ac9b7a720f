"""Host arrays as kernel arguments: in place where the device reaches them, else by copies."""

from multiprocessing import shared_memory

import numpy as np
import pytest
import usmq
from children import SPIN_SOURCE
from emulated import result
from host_memory import GPU, frozen, in_place, numbers


def test_kernels_take_numpy_arrays(host_kernels):
    x, y = frozen(), np.ones(1000, "f4")
    assert host_kernels.add(1000, x, y).done()
    assert (y == numbers() + 1).all()
    assert (x == numbers()).all()
    empty = np.zeros(0, "f4")
    assert host_kernels.add(0, empty, empty).done()


def test_kernels_take_buffers(host_kernels):
    target = bytearray(4)
    host_kernels.bytes(4, b"abcd", target)
    assert target == b"abcd"
    target.extend(b"e")  # The launch holds the buffer no longer.
    shared = shared_memory.SharedMemory(create=True, size=4)
    try:
        host_kernels.bytes(4, memoryview(b"1234"), shared.buf)
        assert bytes(shared.buf or b"")[:4] == b"1234"
    finally:
        shared.close()
        shared.unlink()


def test_arrays_decide_the_queue_and_else_the_scope(host_kernels):
    x, y = numbers(), np.zeros(1000, "f4")
    queue = usmq.Queue("cpu", in_order=False)
    with usmq.use_queue(queue):
        assert host_kernels.add(1000, x, y).queue == queue
        on_default = usmq.zeros(1000, "f4", queue="cpu")
        assert host_kernels.add(1000, x, on_default).queue == on_default.queue
        assert host_kernels.add(1000, usmq.read(x), y).queue == queue
    assert host_kernels.add(1000, x, y, queue=queue).queue == queue


def test_host_arguments_are_ordered_with_arrays_in_place(kernels):
    host = np.zeros(1 << 14, "u4")
    x = in_place(host, queue=usmq.Queue("cpu", in_order=False))
    kernels.advance(x.size, x, np.uint32(3000))
    kernels.advance(x.size, host, np.uint32(3000))
    once = usmq.zeros(1 << 14, "u4")
    kernels.advance(once.size, once, np.uint32(6000))
    assert (host == once.to_numpy()).all()


def test_overlapping_views_are_one_allocation(host_kernels):
    """Other views are in tests/suite/host.rs, and below on emulated GPUs."""
    host = np.zeros(20, "f4")
    host_kernels.shift(10, host[:10], host[10:])
    assert host.tolist() == [1] * 10 + [0] * 10
    host_kernels.first(1, host[2:8], np.uint64(3))
    assert host[5] == -1
    host_kernels.shift(10, host[::2], host[1::2])
    assert host[0] == 2


def test_overlapping_strided_views_are_an_error_if_one_is_written(host_kernels):
    host = numbers()
    with pytest.raises(usmq.LaunchError, match=r"argument 1: it overlaps argument 0.*copy\(\)"):
        host_kernels.add(500, host[:500], host[::2])
    host_kernels.add(500, host[::2], np.zeros(500, "f4"))
    assert (host == numbers()).all()
    x = in_place(host)
    with pytest.raises(usmq.LaunchError, match="pass the usmq array"):
        host_kernels.shift(500, x, host[::2])


def test_unaligned_elements_are_packed(host_kernels):
    packed = np.zeros(10, "u1,f4")
    packed["f0"] = 7
    raw = bytearray(41)
    unaligned = np.frombuffer(raw, "f4", offset=1)
    host_kernels.add(10, np.ones(10, "f4"), packed["f1"])
    host_kernels.add(10, np.ones(10, "f4"), unaligned)
    assert (packed["f1"] == 1).all()
    assert (packed["f0"] == 7).all()
    assert (unaligned == 1).all()


@pytest.mark.parametrize(
    ("x", "y", "text"),
    [
        (numbers(), frozen(), "argument 1.*read-only"),
        (numbers().astype(">f4"), numbers(), "argument 0.*big-endian"),
        (np.array([None] * 1000), numbers(), r'argument 0.*"\|O"'),
        (np.zeros(1000, "M8[s]"), numbers(), "argument 0"),
        (np.zeros(1000, "f8"), numbers(), "argument 0.*float64.*float32"),
        (b"abcd", numbers(), "argument 0.*uint8"),
    ],
)
def test_wrong_host_arguments_are_refused_before_the_launch(host_kernels, x, y, text):
    before = y.tobytes()
    with pytest.raises(usmq.LaunchError, match=text):
        host_kernels.add(500, x, y)
    assert y.tobytes() == before


@pytest.mark.parametrize("value", ["text", [1.0, 2.0], None, {}, object()])
def test_objects_without_a_buffer_are_refused(host_kernels, value):
    with pytest.raises(TypeError, match="a kernel argument must be"):
        host_kernels.add(2, value, numbers())


@pytest.mark.usefixtures("reaches")
def test_no_bytes_are_copied_in_place(host_kernels):
    x, y = numbers(), numbers()
    with usmq.profile() as profile:
        host_kernels.add(1000, x, y)
    assert not [event for event in profile.events if event.kind == "copy"]
    with usmq.profile() as profile:
        host_kernels.add(500, x[::2], y[:500])
    copies = [event for event in profile.events if event.kind == "copy"]
    assert {event.reason for event in copies} == {"host argument"}
    assert sum(event.bytes for event in copies) == 2000


def test_ctrl_c_interrupts_a_launch(run_python):
    code = f"""
import _thread, sys, threading, time
import numpy as np, usmq
spin = usmq.Kernel.from_sycl('''{SPIN_SOURCE}''', "spin")
x = np.zeros(1, "u4")
spin(1, x, np.uint32(10))
threading.Timer(0.3, _thread.interrupt_main).start()
begun = time.monotonic()
try:
    spin(1, x, np.uint32(4_000_000_000))
except KeyboardInterrupt:
    print("interrupted", time.monotonic() - begun < 2)
del x
usmq.current_queue().wait()
print("ended")
"""
    assert run_python(code).stdout.splitlines() == ["interrupted True", "ended"]


@pytest.mark.parametrize("system", ["0", "1"])
def test_kernels_give_the_same_results_in_place_and_by_copy(system):
    code = f"""{GPU}
x, y = numbers(), numbers()
event = axpy(1000, 2.0, x, y)
print(event.done(), event.queue.device.device_type, (y == 3 * x).all(), (x == numbers()).all())
axpy(1000, 1.0, x, x)
print((x == 2 * numbers()).all())
z = numbers()
axpy(500, 1.0, z[100:600], z[300:800][:500])
print(z[900] == 900, z[0] == 0)
w = np.zeros((4, 6), "f4")
axpy(4, 1.0, np.ones(4, "f4"), w[:, 2])
axpy(6, 1.0, w[1], w[::-1][0])
print(w[:, 2].tolist(), w.sum())
g = usmq.zeros(10, "f4")
axpy(10, 1.0, x[5:15], g)
print((g.to_numpy() == x[5:15]).all())
for wrong in (np.zeros(10, ">f4"), np.array([None] * 10), np.zeros(10, "f8")):
    try:
        axpy(10, 1.0, x, wrong)
    except usmq.LaunchError:
        print("refused")
"""
    assert result(code, USMQ_EMULATE_SYSTEM_USM=system) == [
        "True gpu True True",
        "True",
        "True True",
        "[1.0, 1.0, 1.0, 2.0] 5.0",
        "True",
        *["refused"] * 3,
    ]


def test_the_profile_counts_the_bytes_of_host_arguments():
    code = f"""{GPU}
x, y = numbers(), numbers()
axpy(1000, 1.0, x, y)
with usmq.profile() as profile:
    axpy(1000, 1.0, x, y)
copies = [event for event in profile.events if event.kind == "copy"]
print(sorted(event.bytes for event in copies), {{event.reason for event in copies}})
"""
    assert result(code) == ["[4000, 4000, 4000] {'host argument'}"]


def test_copies_to_a_gpu_follow_commands_on_the_host_memory():
    code = f"""{GPU}
host = numbers()
mine = usmq.asarray(host, copy=False, queue="cpu")
for _ in range(20):
    axpy(1000, 0.5, mine, mine)
    mine.fill(1.0)
    axpy(1000, 1.0, host, host, queue="gpu:0")
    assert (host == 2).all()
print("done")
moved = usmq.collocate(mine, queue="gpu:1")
print(moved.usm_type, usmq.explain(mine, queue="gpu:1").steps[0].action, moved.to_numpy()[0])
"""
    try:
        usmq.Device("cpu")
    except usmq.DeviceNotFoundError:
        pytest.skip("needs a CPU device")
    assert result(code) == ["done", "device from_host 2.0"]


def test_a_failed_kernel_copies_nothing_back():
    code = f"""{GPU}
x, y = numbers(), numbers()
try:
    axpy(1000, 1.0, x, y)
except usmq.SyclError:
    print("failed", (y == numbers()).all())
"""
    # The first two commands copy the arguments.
    lines = result(code, USMQ_EMULATE_FAULTS="gpu:0=command-error@3")
    assert lines == ["failed True"]
