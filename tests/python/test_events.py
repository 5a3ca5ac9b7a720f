"""Callbacks after commands, ``await event`` and timestamps."""

import asyncio
import gc
import inspect
import sys
import threading
import time
import weakref

import pytest
import usmq
from children import SPIN
from conftest import in_threads

# About 0.1 s here; tests do not depend on it.
LONG = 100_000_000
SHORT = 10


@pytest.fixture
def x():
    return usmq.zeros(1, "u4", queue="opencl:cpu")


def test_a_callback_gets_the_event_once_after_the_command(spin, x):
    calls, called = [], threading.Event()

    def callback(done):
        calls.append((done, done.done(), threading.current_thread()))
        called.set()

    event = spin(1, x, LONG)
    assert event.add_done_callback(callback) is None
    assert not calls or event.done()
    assert called.wait(20)
    event.wait()
    time.sleep(0.02)
    ((done, was_done, thread),) = calls
    assert done is event
    assert was_done
    assert thread is not threading.main_thread()


def test_each_command_has_its_callback(spin, x, eventually):
    order = []
    for number in range(20):
        spin(1, x, SHORT * 1000).add_done_callback(lambda _, n=number: order.append(n))
    x.wait()
    assert eventually(lambda: len(order) == 20)
    assert sorted(order) == list(range(20))


def test_a_callback_of_a_complete_event_runs_at_once(spin, x):
    event, calls = spin(1, x, SHORT), []
    event.wait()
    event.add_done_callback(lambda done: calls.append((done, threading.current_thread())))
    assert calls == [(event, threading.main_thread())]


@pytest.mark.parametrize("complete", [False, True])
def test_an_exception_of_a_callback_is_reported_and_stops_nothing(
    spin, x, monkeypatch, complete, eventually
):
    seen, called = [], threading.Event()
    monkeypatch.setattr(
        sys, "unraisablehook", lambda args: seen.append((args.exc_type, args.object))
    )

    def fails(_):
        raise KeyError("in a callback")

    event = spin(1, x, SHORT if complete else LONG)
    if complete:
        event.wait()
    event.add_done_callback(fails)
    event.add_done_callback(lambda _: called.set())
    assert called.wait(20)
    assert eventually(lambda: seen)
    assert seen == [(KeyError, fails)]


def test_a_callback_may_submit_and_wait(spin, x):
    results, called = [], threading.Event()

    def callback(_):
        spin(1, x, SHORT).wait()
        results.append(x.copy().tolist())
        called.set()

    spin(1, x, LONG // 10).add_done_callback(callback)
    assert called.wait(20)
    assert results == [x.tolist()]


def test_a_callback_is_freed_after_its_call(spin, x, eventually):
    class Held:
        def __call__(self, event):
            self.event = event

    held = Held()
    watched = weakref.ref(held)
    event = spin(1, x, LONG // 10)
    event.add_done_callback(held)
    del held, event
    x.wait()
    assert eventually(lambda: gc.collect() is not None and watched() is None)


def test_awaiting_lets_other_tasks_run(spin, x):
    ticks = []

    async def tick():
        while True:
            ticks.append(time.monotonic())
            await asyncio.sleep(0.001)

    async def main():
        ticker = asyncio.create_task(tick())
        await asyncio.sleep(0)
        before = len(ticks)
        event = spin(1, x, LONG)
        assert inspect.isawaitable(event)
        assert await event is None
        ticker.cancel()
        assert event.done()
        assert len(ticks) - before > 5

    asyncio.run(main())


def test_events_are_awaitables_of_asyncio(spin, x):
    async def main():
        events = [spin(1, x, LONG // 10) for _ in range(10)]
        assert await asyncio.gather(*events) == [None] * 10
        await events[0]
        await asyncio.wait_for(spin(1, x, SHORT), 20)
        async with asyncio.timeout(20):
            await spin(1, x, LONG // 10)
        assert all(event.done() for event in events)

    asyncio.run(main())


class SlowOwner:
    """A producer of USM whose destructor sleeps, without the GIL."""

    def __init__(self, sleep):
        self.sleep = sleep
        self.array = usmq.zeros(4, "u4", queue="opencl:cpu")
        self.__sycl_usm_array_interface__ = self.array.__sycl_usm_array_interface__

    def __del__(self):
        self.sleep()


@pytest.mark.parametrize("slow", ["destructor", "callback"])
def test_awaiting_does_not_wait_for_destructors_and_callbacks_of_others(spin, x, slow):
    begun, end = threading.Event(), threading.Event()

    def sleep(*_):
        assert threading.current_thread() is not threading.main_thread()
        begun.set()
        end.wait(20)

    if slow == "destructor":
        owned = usmq.asarray(SlowOwner(sleep), copy=False)
        spin(1, owned, LONG // 2)
        del owned
    else:
        spin(1, usmq.zeros(1, "u4", queue="opencl:cpu"), LONG // 10).add_done_callback(sleep)
    assert begun.wait(20)

    async def main():
        await spin(1, x, LONG // 10)
        assert not end.is_set()

    try:
        asyncio.run(asyncio.wait_for(main(), 10))
    finally:
        end.set()


def test_a_timeout_ends_the_wait_and_not_the_command(spin, x):
    async def main():
        event = spin(1, x, LONG)
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(event, 0.001)
        task = asyncio.ensure_future(event)
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await event
        return event

    assert asyncio.run(main()).done()
    assert x.tolist() != [0]


def test_several_loops_await_one_event(spin, x):
    event = spin(1, x, LONG)

    async def main():
        await event
        return event.done()

    assert in_threads(*[lambda: asyncio.run(main())] * 4) == [True] * 4


START = f"""
import asyncio, gc, threading, time, weakref
import usmq
spin = usmq.Kernel.from_opencl({SPIN!r}, "spin", queue="opencl:cpu")
x = usmq.zeros(1, "u4", queue="opencl:cpu")
LONG = {LONG}
"""


def test_a_loop_that_is_closed_first_prints_no_error_and_leaks_nothing(run_python):
    program = """
async def main():
    event = spin(1, x, LONG)
    task = asyncio.ensure_future(event)
    await asyncio.sleep(0.001)
    task.cancel()
    return event, weakref.ref(asyncio.get_running_loop())

event, loop = asyncio.run(main())
event.wait()
usmq.trim_memory()
for _ in range(1000):
    gc.collect()
    if loop() is None:
        break
    time.sleep(0.01)
print(event.done(), loop() is None)
"""
    ended = run_python(START + program, PYTHONDEVMODE="1", PYTHONWARNINGS="error")
    assert (ended.stdout, ended.stderr) == ("True True\n", "")


def test_callbacks_never_run_after_the_interpreter_began_to_exit(run_python):
    before = """
import atexit, time

def end():
    global over
    over = True
    time.sleep(0.5)  # the commands end meanwhile

over = False
atexit.register(end)  # handlers run in reverse order: after that of usmq
"""
    program = """
for _ in range(20):
    spin(1, x, LONG // 10).add_done_callback(lambda _: print("called" if not over else "LATE"))
"""
    ended = run_python(before + START + program, PYTHONDEVMODE="1")
    assert "LATE" not in ended.stdout
    assert ended.stderr == ""


def test_a_failed_command_raises_where_it_is_awaited(run_python):
    program = """
called = threading.Event()

async def main():
    event = spin(1, x, LONG // 10)
    event.add_done_callback(lambda _: called.set())
    try:
        await event
    except usmq.SyclError as error:
        print("raised", error.code, event.done())
    event = spin(1, x, 1)
    await event
    print(event.done(), called.wait(20))

asyncio.run(main())
"""
    code = START.replace("opencl:cpu", "opencl:gpu:0").replace("usmq.zeros", "usmq.empty") + program
    faults = {"USMQ_EMULATE_GPUS": "1", "USMQ_EMULATE_FAULTS": "gpu:0=command-error"}
    # The process must not wait for a command that has failed.
    ended = run_python(code, timeout=30, **faults)
    assert ended.stdout == "raised runtime True\nTrue True\n", ended.stderr


def test_without_a_loop_the_error_says_how_to_wait(spin, x):
    event = spin(1, x, SHORT)
    with pytest.raises(RuntimeError, match=r"needs a running asyncio loop.*event\.wait"):
        event.__await__().send(None)
    event.wait()


def test_timestamps_are_a_named_tuple(spin):
    queue = usmq.Queue("opencl:cpu", profiling=True)
    event = spin(1, usmq.zeros(1, "u4", queue=queue), SHORT)
    submit, start, end = event.timestamps
    assert submit <= start <= end
    assert event.timestamps == (submit, start, end)
    assert event.timestamps.start == start
    assert type(event.timestamps) is usmq.Timestamps
    assert not hasattr(event, "profiling")
    with pytest.raises(ValueError, match="records no timestamps"):
        spin(1, usmq.zeros(1, "u4", queue="opencl:cpu"), SHORT).timestamps  # noqa: B018
