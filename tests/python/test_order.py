"""Order: work on several queues gives the results of one queue, without host waits."""

import ctypes
import random
from types import SimpleNamespace

import dpctl
import dpctl.memory
import dpctl.program
import dpnp
import numpy as np
import pytest
import usmq
from conftest import in_threads


@pytest.fixture(params=["in order", "one out of order", "both out of order", "foreign"])
def pair(request, queue):
    """Return two queues of one context."""
    loose = usmq.Queue(queue.device, in_order=False)
    return {
        "in order": (queue, usmq.Queue(queue.device, profiling=True)),
        "one out of order": (queue, loose),
        "both out of order": (loose, usmq.Queue(queue.device, in_order=False, profiling=True)),
        "foreign": (queue, usmq.Queue(dpctl.SyclQueue(queue.device.filter_string))),
    }[request.param]


def test_a_consumer_sees_all_writes_of_its_producer_and_no_later_ones(pair, kernels, advanced):
    producer, consumer = pair
    x = usmq.zeros(16, "u4", queue=producer)
    seen = [usmq.empty(16, "u4", queue=consumer) for _ in range(200)]
    for y in seen:
        kernels.advance(16, x, 20_000, queue=producer)
        kernels.advance_into(16, usmq.read(x), y, 10_000, queue=consumer)
    for turn, y in enumerate(seen, start=1):
        expected = advanced(np.zeros(16), 20_000 * turn + 10_000)
        np.testing.assert_array_equal(y.to_numpy(), expected, err_msg=f"round {turn}")


@pytest.mark.parametrize("kind", ["device", "shared", "host"])
def test_every_kind_of_read_waits_for_the_writer(queue, kernels, advanced, kind):
    loose = usmq.Queue(queue.device, in_order=False)
    readers = [
        lambda x: x.to_numpy(),
        lambda x: np.array(x.tolist()),
        lambda x: x.copy().to_numpy(),
        lambda x: x.astype("u8").to_numpy(),
        lambda x: usmq.asarray(x, copy=True).to_numpy(),
        lambda x: usmq.asarray(x, usm_type="host" if kind != "host" else "device").to_numpy(),
        lambda x: x[::-1].to_numpy()[::-1],
        lambda x: dpnp.asnumpy(dpnp.asarray(x)),
        lambda x: dpctl.memory.as_usm_memory(x).copy_to_host().view("u4"),
    ]
    if kind != "device":
        readers += [np.asarray, lambda x: np.array(memoryview(x).tolist())]
    for read in readers:
        for q in (queue, loose):
            x = usmq.arange(0, 16, 1, dtype="u4", usm_type=kind)
            kernels.advance(16, x, 300_000, queue=q)
            np.testing.assert_array_equal(read(x), advanced(np.arange(16), 300_000))


@pytest.mark.parametrize("seed", range(4))
def test_random_work_on_random_queues_matches_program_order(queue, kernels, advanced, seed):
    rng = random.Random(seed)
    queues = [
        queue,
        usmq.Queue(queue.device, profiling=True),
        usmq.Queue(queue.device, in_order=False),
        usmq.Queue(dpctl.SyclQueue(queue.device.filter_string)),
    ]
    hosts = [np.arange(8 * n, 8 * n + 8, dtype="u4") for n in range(5)]
    arrays = [usmq.asarray(host, queue=rng.choice(queues)) for host in hosts]
    for _ in range(500):
        a, b = rng.sample(range(5), 2)
        steps = rng.choice([1, 100, 10_000])
        start, stop = sorted(rng.sample(range(9), 2))
        q = rng.choice(queues)
        match rng.randrange(6):
            case 0 | 1:
                kernels.advance(stop - start, arrays[a][start:stop], steps, queue=q)
                hosts[a][start:stop] = advanced(hosts[a][start:stop], steps)
            case 2 | 3:
                kernels.advance_into(8, arrays[a], arrays[b], steps, queue=q)
                hosts[b][:] = advanced(hosts[a], steps)
            case 4:
                arrays[a][start:stop].copy_from(arrays[b][start:stop])
                hosts[a][start:stop] = hosts[b][start:stop]
            case 5:
                arrays[a] = usmq.collocate(arrays[a], queue=q)
    for x, host in zip(arrays, hosts, strict=True):
        np.testing.assert_array_equal(x.to_numpy(), host)


@pytest.fixture(scope="module")
def foreign():
    """Return an out-of-order queue of dpctl and a kernel that dpctl submits to it."""
    queue = dpctl.SyclQueue()
    assert not queue.is_in_order
    if queue.backend.name != "opencl":
        pytest.skip("dpctl builds kernels from text for OpenCL only")
    text = """kernel void advance(global uint *x, uint steps) {
        uint state = x[get_global_id(0)];
        for (uint k = 0; k < steps; ++k) state = state * 1664525u + 1013904223u;
        x[get_global_id(0)] = state;
    }"""
    program = dpctl.program.create_program_from_source(queue, text)
    kernel = program.get_sycl_kernel("advance")

    def advance(memory, steps):
        queue.submit_async(kernel, [memory, ctypes.c_uint32(steps)], [memory.nbytes // 4])

    return SimpleNamespace(queue=queue, advance=advance)


def lent_by_dpctl(queue, states):
    """Return memory of dpctl with these states, and a usmq array in it."""
    memory = dpctl.memory.MemoryUSMShared(64, queue=queue)
    np.asarray(memory).view("u4")[:] = states

    class Lent:
        __sycl_usm_array_interface__ = dict(memory.__sycl_usm_array_interface__) | {
            "data": (memory._pointer, False),
            "shape": (16,),
            "typestr": "<u4",
        }
        owner = memory

    return memory, lambda: usmq.asarray(Lent(), copy=False)


@pytest.mark.parametrize("ours", ["same queue", "in-order queue"])
def test_our_work_follows_pending_work_of_dpctl(foreign, kernels, advanced, ours):
    q = usmq.Queue(foreign.queue) if ours == "same queue" else usmq.Queue()
    for turn in range(100):
        memory, imported = lent_by_dpctl(foreign.queue, turn)
        foreign.advance(memory, 100_000)
        x = imported()
        kernels.advance(16, x, 10, queue=q)
        np.testing.assert_array_equal(x.to_numpy(), advanced(np.full(16, turn), 100_010))


def test_reading_imported_memory_waits_for_dpctl(foreign, advanced):
    for turn in range(50):
        memory, imported = lent_by_dpctl(foreign.queue, turn)
        foreign.advance(memory, 200_000)
        x = imported()
        got = x.to_numpy() if turn % 2 else np.asarray(x)
        np.testing.assert_array_equal(got, advanced(np.full(16, turn), 200_000))


@pytest.mark.parametrize("ours", ["same queue", "in-order queue"])
def test_work_alternates_with_dpctl_without_a_host_wait(foreign, kernels, advanced, ours):
    q = usmq.Queue(foreign.queue) if ours == "same queue" else usmq.Queue()
    memory, imported = lent_by_dpctl(foreign.queue, np.arange(16))
    x = imported()
    for _ in range(200):
        kernels.advance(16, x, 5000, queue=q)
        foreign.advance(memory, 3000)
    kernels.advance(16, x, 1, queue=q)
    np.testing.assert_array_equal(x.to_numpy(), advanced(np.arange(16), 200 * 8000 + 1))
    foreign.queue.wait()


def test_threads_on_one_array_lose_no_launch(pair, kernels, advanced):
    x = usmq.arange(0, 64, 1, dtype="u4", queue=pair[0])

    def work(number):
        parts = [x[32 * (number % 2) :][:32], x[:16]]
        for _ in range(100):
            kernels.advance(32, parts[0], 1000 + number % 2, queue=pair[number % 2])
            kernels.advance(16, parts[1], 500, queue=pair[number % 2])

    in_threads(*[lambda number=number: work(number) for number in range(8)])
    expected = np.arange(64, dtype="u4")
    expected[:32] = advanced(expected[:32], 4 * 100 * 1000)
    expected[32:] = advanced(expected[32:], 4 * 100 * 1001)
    expected[:16] = advanced(expected[:16], 8 * 100 * 500)
    np.testing.assert_array_equal(x.to_numpy(), expected)


def test_a_launch_does_not_wait_for_the_work_before_it(pair, kernels, advanced):
    x = usmq.zeros(1, "u4", queue=pair[0])
    kernels.advance(1, x, 1, queue=pair[1]).wait()
    first = kernels.advance(1, x, 100_000_000, queue=pair[0])
    second = kernels.advance(1, x, 1, queue=pair[1])
    copied = x.copy()
    moved = usmq.collocate(copied, queue=pair[1])
    assert not first.done(), "one of the calls above waited"
    second.wait()
    assert first.done()
    np.testing.assert_array_equal(moved.to_numpy(), advanced(np.zeros(1), 100_000_002))
