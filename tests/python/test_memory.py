"""Memory: consistent statistics, limits, reuse, trim, and a flat peak."""

import gc

import dpnp
import pytest
import usmq
from process_memory import resident_bytes

KINDS = ["device", "shared", "host"]
MIB = 1 << 20


@pytest.fixture(autouse=True)
def settled():
    """Start from pools that hold nothing on behalf of an earlier test, and leave no limit."""
    usmq.current_queue().wait()
    gc.collect()
    usmq.trim_memory()
    yield
    for kind in KINDS:
        usmq.set_memory_limit(None, usm_type=kind)


def number(name, kind="device"):
    value = usmq.memory_stats()[kind][name]
    assert isinstance(value, int)
    return value


def test_each_usm_kind_has_the_same_seven_statistics():
    found = usmq.memory_stats()
    assert set(found) == set(KINDS)
    for kind in KINDS:
        assert set(found[kind]) == {"used", "reserved", "peak", "limit", "live", "hits", "misses"}
        assert found[kind]["limit"] is None
        assert 0 <= found[kind]["used"] <= found[kind]["reserved"]
        assert found[kind]["used"] <= found[kind]["peak"]


def test_foreign_memory_is_not_counted():
    theirs = dpnp.zeros(MIB, dtype="u1")
    before = number("used"), number("live")
    x = usmq.asarray(theirs, copy=False)
    assert (number("used"), number("live")) == before
    del x
    assert number("used") == before[0]
    assert int(theirs.sum()) == 0, "usmq does not own the memory"


@pytest.mark.parametrize("kind", KINDS)
def test_memory_dropped_in_flight_is_returned_without_another_call(kind, queue, busy, eventually):
    # Other libraries of the process may need it, and usmq may not be called again.
    before = number("reserved", kind)
    arrays = [usmq.empty(8 * MIB, "u1", usm_type=kind) for _ in range(12)]
    done = busy(queue)
    for array in arrays:
        array.fill(1)
    del arrays, array
    assert not done.done()
    assert number("reserved", kind) >= before + 96 * MIB
    done.wait()
    # The pool keeps four free blocks of a size.
    assert eventually(lambda: number("reserved", kind) <= before + 33 * MIB)


def failed(nbytes, kind, *sizes):
    """Check the error of an allocation, which changes nothing."""
    used, live = number("used", kind), number("live", kind)
    with pytest.raises(usmq.AllocationError) as caught:
        usmq.empty(nbytes, "u1", usm_type=kind)
    assert isinstance(caught.value, MemoryError)
    assert usmq.current_queue().device.filter_string in str(caught.value)
    assert kind in str(caught.value)
    assert any(size in str(caught.value) for size in sizes)
    assert (number("used", kind), number("live", kind)) == (used, live)
    x = usmq.zeros(4 * MIB, "u1", usm_type=kind)
    assert not x.to_numpy().any()
    return str(caught.value)


@pytest.mark.parametrize("kind", KINDS)
def test_exceeding_a_limit_or_the_device_is_a_recoverable_error_with_sizes(kind):
    limit = number("reserved", kind) + 8 * MIB
    usmq.set_memory_limit(limit, usm_type=kind)
    assert number("limit", kind) == limit
    text = failed(1 << 30, kind, "1.0 GiB")
    assert all(part in text for part in ("in use", "limit"))
    usmq.set_memory_limit(None, usm_type=kind)
    assert usmq.empty(64 * MIB, "u1", usm_type=kind).nbytes == 64 * MIB
    failed(2**50, kind, "1.0 PiB", "1024.0 TiB", str(2**50))


def test_100_000_rounds_of_alloc_launch_and_drop_keep_the_peak_flat(kernels):
    here = usmq.current_queue()
    there = usmq.Queue(here.device, in_order=False)

    def rounds(size, queue):
        for _ in range(10_000):
            x = usmq.empty(size, "f4")
            kernels.fill(256, x, 1.0, queue=queue)
            del x
        # On a busy machine the device falls behind, and the driver needs 1.6 KB for each
        # command in flight.
        here.wait()
        there.wait()

    rounds(256, None)
    peak, before = number("peak"), resident_bytes()
    for _ in range(9):
        rounds(256, None)
    assert number("peak") <= peak + 64 * 1024
    assert resident_bytes() - before < 64 * MIB
    before = resident_bytes()
    rounds(4096, there)
    assert resident_bytes() - before < 128 * MIB


SHORT = """
import resource, sys
import numpy as np, usmq

SIZE = 64 << 20
host = np.zeros((SIZE, 2), "u1")
numbers = [1.5] * (SIZE // 8)
target = usmq.empty(SIZE, "u1")
usmq.asarray(host[:8, 0]).wait()
usmq.from_dlpack(host[:8, 0]).wait()
usmq.asarray(numbers[:8]).wait()
# The pool keeps it, so that the next request of this size needs no device memory.
usmq.asarray(host.reshape(-1)[:SIZE]).wait()

used = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (used + SIZE // 2, resource.RLIM_INFINITY))
for call in (
    lambda: target.copy_from(host[:, 0]),
    lambda: usmq.asarray(host[:, 0]),
    lambda: usmq.from_dlpack(host[:, 0]),
    lambda: usmq.asarray(numbers),
):
    try:
        call()
    except usmq.AllocationError as error:
        print(error)
resource.setrlimit(resource.RLIMIT_AS, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
target.copy_from(host[:, 0])
assert target.to_numpy().sum() == 0
"""


def test_a_shortage_of_host_memory_is_an_error_not_an_abort(run_python):
    lines = run_python(SHORT).stdout.splitlines()
    assert len(lines) == 4, lines
    assert all("MiB of host memory for the " in line for line in lines), lines
