"""Hundreds of concurrent tasks and dozens of threads, with separate scopes and shared arrays.

Short forms; `USMQ_STRESS_SECONDS` says for how long instead.
"""

import asyncio
import contextvars
import faulthandler
import os
import random
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
import usmq
from conftest import in_threads

SECONDS = float(os.environ.get("USMQ_STRESS_SECONDS", "0"))


@pytest.fixture(autouse=True)
def watchdog():
    """Print the stacks and end the run if a stress test hangs."""
    faulthandler.dump_traceback_later(SECONDS + 120, exit=True)
    yield
    faulthandler.cancel_dump_traceback_later()


@pytest.fixture
def queues():
    """Queues of any order, on the device and its parts."""
    device = usmq.current_queue().device
    found = [usmq.Queue(device), usmq.Queue(device, profiling=True)]
    found += [usmq.Queue(device, in_order=False)]
    if "partition_equally" in device.partition_properties:
        found += [usmq.Queue(part) for part in device.sub_devices(1)[:2]]
    return found


def live():
    return sum(kind["live"] for kind in usmq.memory_stats().values())


def rounds(most):
    """Return whether to continue: for a number of rounds, or for the requested time."""
    begun, done = time.monotonic(), 0

    def continues():
        nonlocal done
        done += 1
        return time.monotonic() - begun < SECONDS if SECONDS else done <= most

    return continues


def test_hundreds_of_tasks_keep_their_scopes_even_if_cancelled(queues, kernels, advanced):
    outside = usmq.current_queue()

    async def work(number):
        rand = random.Random(number)
        queue = queues[number % len(queues)]
        with usmq.use_queue(queue):
            x = usmq.full(8, number, "u4")
            steps = 0
            for _ in range(rand.randrange(1, 6)):
                more = rand.randrange(2000)
                done = kernels.advance(8, x, more)
                steps += more
                match rand.randrange(4):
                    case 0:
                        await asyncio.sleep(0)
                    case 1:
                        await asyncio.to_thread(done.wait)
                    case 2:
                        while not done.done():
                            await asyncio.sleep(0.001)
                    case _:
                        inner = queues[(number + 1) % len(queues)]
                        with usmq.use_queue(inner):
                            await asyncio.sleep(0)
                            assert usmq.current_queue() == inner
                assert usmq.current_queue() == queue == x.queue
            found = await asyncio.to_thread(x.to_numpy)
        assert (found == advanced([number] * 8, steps)).all()
        return "done"

    async def main():
        outcomes = {"done": 0, "cancelled": 0}
        rand = random.Random(5)
        continues = rounds(2)
        while continues():
            tasks = [asyncio.create_task(work(number)) for number in range(300)]
            for number, task in enumerate(rand.sample(tasks, 60)):
                if number % 20 == 10:  # the first ones before they have begun
                    await asyncio.sleep(0)
                task.cancel()
            for outcome in await asyncio.gather(*tasks, return_exceptions=True):
                if isinstance(outcome, asyncio.CancelledError):
                    outcomes["cancelled"] += 1
                elif isinstance(outcome, BaseException):
                    raise outcome
                else:
                    outcomes[outcome] += 1
        return outcomes

    before = live()
    outcomes = asyncio.run(main())
    assert outcomes["done"] >= 400
    assert outcomes["cancelled"] > 0
    assert usmq.current_queue() == outside
    for queue in queues:
        queue.wait()
    assert live() == before
    print(f"{outcomes} tasks")


@pytest.mark.parametrize("lock", ["released in waits", "held"])
def test_threads_with_scopes_and_shared_arrays_lose_nothing(queues, kernels, advanced, lock):
    first = queues[0]
    same = [queue for queue in queues if queue.context == first.context]
    shared = [usmq.full(16, number, "u4", queue=first) for number in range(8)]
    steps = [0] * len(shared)
    adding = threading.Lock()
    before = live()

    def run_thread(seed):
        rand = random.Random(seed)
        continues, count = rounds(30), 0
        while continues():
            queue, place = rand.choice(queues), rand.randrange(len(shared))
            with usmq.use_queue(queue):
                match rand.randrange(4):
                    case 0 | 1:
                        more = rand.randrange(3000)
                        done = kernels.advance(16, shared[place], more, queue=rand.choice(same))
                        with adding:
                            steps[place] += more
                        if lock == "held":
                            while not done.done():
                                pass  # asks, and keeps Python to itself for its time slice
                        else:
                            done.wait()
                    case 2:
                        seen = usmq.collocate(shared[place], queue=queue).copy().to_numpy()
                        assert (seen == seen[0]).all()
                    case _:
                        own = usmq.full(5, seed, "u4")
                        assert own.queue == queue
                        kernels.advance(5, own, seed)
                        if rand.random() < 0.5:
                            assert (own.to_numpy() == advanced([seed] * 5, seed)).all()
                assert usmq.current_queue() == queue
            count += 1
        return count

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-4)
    try:
        counts = in_threads(*[lambda seed=seed: run_thread(seed) for seed in range(32)])
    finally:
        sys.setswitchinterval(interval)
    for number, array in enumerate(shared):
        assert (array.to_numpy() == advanced([number] * 16, steps[number] % 2**32)).all()
    for queue in queues:
        queue.wait()
    assert live() == before
    print(f"{sum(counts)} operations of 32 threads")


def test_contexts_entered_by_many_threads_in_turn_keep_their_scope(queues):
    contexts = []
    for queue in queues:
        with usmq.use_queue(queue):
            contexts.append((queue, contextvars.copy_context(), threading.Lock()))

    def enter(number):
        queue, context, lock = contexts[number % len(contexts)]
        with lock:  # a context is entered by one thread at a time
            return context.run(lambda: usmq.zeros(3).queue) == queue

    with ThreadPoolExecutor(16) as pool:
        assert all(pool.map(enter, range(400)))


@pytest.mark.parametrize("count", [1, 2, 4])
def test_threads_of_usmq_dpnp_and_pyarrow_get_exact_results(queues, kernels, advanced, count):
    """Each thread has its own queue: dpnp alone hangs if threads share an in-order queue."""
    dpctl, dpnp = pytest.importorskip("dpctl"), pytest.importorskip("dpnp")
    pa = pytest.importorskip("pyarrow")
    size = 5000
    root = dpctl.SyclQueue(queues[0]._get_capsule())

    class Own:
        """Queues and constants of a thread."""

        def __init__(self):
            theirs = dpctl.SyclQueue(root.sycl_context, root.sycl_device, property="in_order")
            self.queue = usmq.Queue(theirs)
            self.seven = dpnp.full(size, 7, dtype="u4", sycl_queue=theirs)

    def one(own, rand):
        value, more = rand.randrange(1000), rand.randrange(500)
        x = usmq.full(size, value, "u4", queue=own.queue)
        kernels.advance(size, x, more)
        theirs = dpnp.asarray(x)
        dpnp.add(theirs, own.seven, out=theirs)
        with usmq.use_queue(own.queue):
            # Not through its array interface, in which dpnp itself waits and may hang.
            result = usmq.from_dlpack(dpnp.add(theirs, own.seven))
        y = x.copy()
        handles = [x, theirs]
        del x, theirs
        rand.shuffle(handles)
        while handles:  # in flight, in any order
            handles.pop()
        there = usmq.collocate(y, queue=rand.choice(queues))
        kernels.advance(size, result, 3)
        expected = advanced([value], more) + 7
        assert (there.to_numpy() == expected).all()
        assert (result.to_numpy() == advanced(expected + 7, 3)).all()
        shared = usmq.full(size, value, "u4", usm_type="shared", queue=own.queue)
        seen = pa.array(usmq.from_arrow(shared).host_view())
        del shared
        assert seen.to_pylist()[:3] == [value] * 3

    owns = [Own() for _ in range(count)]
    for own in owns:  # dpnp's first calls, one thread after the other
        one(own, random.Random(0))

    def run_thread(number):
        rand, continues, done = random.Random(number), rounds(100), 0
        while continues():
            one(owns[number], rand)
            done += 1
        return done

    counts = in_threads(*[lambda number=number: run_thread(number) for number in range(count)])
    print(f"{sum(counts)} rounds of {count} threads")
