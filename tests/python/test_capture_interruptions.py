"""Signal handlers, trace functions and finalizers that run inside a capture work directly."""

import asyncio
import contextlib
import functools
import gc
import signal
import sys
import time
import weakref

import numpy as np
import pytest
import usmq

add = usmq.elementwise("const float *x, float *y", "y[i] += x[i]")


class Work:
    """Calls of all kinds by an interruption, on arrays of the block and on its own."""

    def __init__(self):
        self.x, self.y = usmq.ones(8), usmq.zeros(8)
        self.shared = usmq.zeros(8, usm_type="host")
        self.seen = []
        # The first build in a process loads compilers of Intel that take SIGUSR1.
        add(self.x, usmq.zeros(8)).wait()

    def __call__(self):
        own = usmq.full(8, 2, "f4")
        add(self.x, own).wait()
        own[0] = 5
        copy = own.copy()
        copy.copy_from(np.ones(8, "f4"))
        self.shared.fill(len(self.seen) + 1)
        self.shared.wait()
        view = np.asarray(self.shared)
        usmq.current_queue().wait()
        with usmq.capture() as graph:  # a capture of its own
            add(self.x, own)
        graph.replay().wait()
        self.seen.append((self.y.tolist()[0], own.tolist()[:2], copy.tolist()[0], view[0]))

    def wanted(self, times):
        return [(0.0, [6.0, 4.0], 1.0, number + 1) for number in range(times)]


@pytest.fixture
def work():
    return Work()


@contextlib.contextmanager
def handled(handler, number=signal.SIGUSR1):
    before = signal.signal(number, handler)
    try:
        yield
    finally:
        signal.signal(number, before)


def check(work, graph, times):
    """Check that only the launch of the block was recorded, and the interruptions worked."""
    assert work.seen == work.wanted(times)
    assert work.y.tolist() == [0.0] * 8
    work.seen.clear()
    graph.replay().wait()
    assert work.y.tolist() == [1.0] * 8
    assert work.seen == []
    assert "graph of 1 command in" in repr(graph)


def check_during_a_call(work, interrupt):
    """Check an interruption while usmq reads a list in the block."""

    class Source(list):
        def __iter__(self):
            interrupt()
            return iter([1.0] * 8)

    with usmq.capture() as graph:
        add(work.x, work.y)
        usmq.zeros(8).copy_from(Source([1.0] * 8))
    assert work.seen == work.wanted(1)
    graph.replay().wait()
    assert work.y.tolist() == [1.0] * 8


class Method:
    def __init__(self, work):
        self.work = work

    def handle(self, number, frame):
        self.work()

    def any_arguments(self, *arguments):
        self.work()

    def called(self, reference):
        self.work()

    __call__ = handle


HANDLERS = {
    "lambda": lambda work: lambda *_: work(),
    "named": lambda work: lambda number, frame: work(),
    "default": lambda work: lambda number, frame=None, more=1: work(),
    "method": lambda work: Method(work).handle,
    "method of any arguments": lambda work: Method(work).any_arguments,
    "object": lambda work: Method(work),
    "partial": lambda work: functools.partial(lambda own, number, frame: own(), work),
    "closure": lambda work: lambda number, frame: next(work for _ in [frame])(),
}


@pytest.mark.parametrize("depth", [0, 20])
@pytest.mark.parametrize("handler", HANDLERS)
def test_a_signal_handler_works_directly_also_inside_functions_of_the_block(work, handler, depth):
    def deep(depth):
        if depth:
            deep(depth - 1)
        else:
            signal.raise_signal(signal.SIGUSR1)
            add(work.x, work.y)
            signal.raise_signal(signal.SIGUSR1)

    with handled(HANDLERS[handler](work)), usmq.capture() as graph:
        deep(depth)
    check(work, graph, 2)


def test_a_signal_handler_in_a_sleep_and_in_a_loop_works_directly(work):
    with handled(lambda *_: work(), signal.SIGALRM), usmq.capture() as graph:
        add(work.x, work.y)
        signal.setitimer(signal.ITIMER_REAL, 0.01)
        while not work.seen:
            time.sleep(0.001)
        signal.setitimer(signal.ITIMER_REAL, 0.01)
        while len(work.seen) < 2:
            pass
    check(work, graph, 2)


def test_a_signal_handler_inside_a_call_of_usmq_works_directly(work):
    with handled(lambda *_: work()):
        check_during_a_call(work, lambda: signal.raise_signal(signal.SIGUSR1))


def test_signal_handlers_in_a_signal_handler(work):
    def outer(number, frame):
        with usmq.capture() as graph:  # records its own block, and not the inner handler
            add(work.x, work.x)
            signal.raise_signal(signal.SIGUSR2)
            helper()
        assert "2 commands" in repr(graph)
        graphs.append(graph)

    def helper():
        add(work.x, work.x)

    graphs = []
    with handled(outer), handled(lambda *_: work(), signal.SIGUSR2), usmq.capture() as graph:
        signal.raise_signal(signal.SIGUSR1)
        add(work.x, work.y)
    assert len(graphs) == 1
    check(work, graph, 1)


@pytest.mark.parametrize("registered", [False, True])
def test_a_handler_that_the_block_calls_is_recorded(work, registered):
    def handler(number, frame):
        add(work.x, work.y)

    with handled(handler if registered else lambda *_: work()), usmq.capture() as graph:
        handler(10, None)
        handler(10, sys._getframe(0).f_back)
    graph.replay().wait()
    assert work.y.tolist() == [2.0] * 8


def test_a_capture_does_not_keep_variables_alive(work):
    class Empty:
        pass

    def helper(one, other, *more):
        add(work.x, work.y)
        reference = weakref.ref(more[0])
        del one, other, more
        add(work.x, work.y)
        ends.append(reference)

    ends = []
    with handled(lambda *_: work()), usmq.capture():
        own = Empty()
        reference = weakref.ref(own)
        add(work.x, work.y)
        del own
        assert reference() is None
        helper(1, 2, Empty())
        add(work.x, work.y)
    assert [end() for end in ends] == [None]


def test_an_interruption_at_the_level_of_a_module_works_directly():
    code = """
import usmq, weakref
class Empty: pass
y, seen = usmq.zeros(2), []
one, two = Empty(), Empty()
kept = [weakref.ref(each, lambda _: seen.append(y.tolist())) for each in (one, two)]
with usmq.capture() as graph:
    y.fill(1)
    del one
    two = None
assert seen == [[0.0, 0.0]] * 2, seen
"""
    exec(compile(code, "module", "exec"), {"__name__": "module"})


class Finalized:
    def __init__(self, work, in_a_cycle=False):
        self.work, self.own = work, self if in_a_cycle else None

    def __del__(self):
        self.close()

    def close(self):
        self.work()


def collect_one(work):
    """Make the garbage collector call a finalizer."""
    Finalized(work, in_a_cycle=True)
    gc.collect()


def test_a_finalizer_works_directly(work):
    gc.collect()
    with usmq.capture() as graph:
        Finalized(work)
        add(work.x, work.y)
        one = Finalized(work)
        del one
        collect_one(work)
    check(work, graph, 3)


def test_a_finalizer_during_a_call_of_usmq_works_directly(work):
    gc.collect()
    check_during_a_call(work, lambda: collect_one(work))


@pytest.mark.parametrize(
    "watch",
    [
        lambda one, work: weakref.ref(one, lambda reference: work()),
        lambda one, work: weakref.ref(one, Method(work).called),
        lambda one, work: weakref.finalize(one, work),
    ],
    ids=["callback", "method", "finalize"],
)
def test_a_callback_of_a_weak_reference_works_directly(work, watch):
    class Empty:
        pass

    one = Empty()
    kept = watch(one, work)
    with usmq.capture() as graph:
        add(work.x, work.y)
        del one
    assert kept is not None
    check(work, graph, 1)


def test_a_callback_of_the_garbage_collector_works_directly(work):
    phases = []

    def called(phase, about):
        phases.append(phase)
        work()

    gc.disable()
    gc.callbacks.append(called)
    try:
        with usmq.capture() as graph:
            add(work.x, work.y)
            gc.collect()
    finally:
        gc.callbacks.remove(called)
        gc.enable()
    assert phases == ["start", "stop"]
    check(work, graph, 2)


@pytest.mark.parametrize("install", [sys.settrace, sys.setprofile], ids=["trace", "profile"])
def test_a_trace_function_works_directly(work, install):
    def traced(frame, event, argument):
        if frame.f_code.co_name == "called" and event == "call":
            work()

    def called():
        add(work.x, work.y)

    with usmq.capture() as graph:
        install(traced)
        called()
    install(None)
    check(work, graph, 1)


def test_a_callback_of_a_complete_event_works_directly(work):
    event = add(work.x, usmq.zeros(8))
    event.wait()
    with usmq.capture() as graph:
        add(work.x, work.y)
        event.add_done_callback(lambda _: work())
    check(work, graph, 1)


@contextlib.contextmanager
def in_generator():
    with usmq.capture() as graph:
        yield graph


@contextlib.contextmanager
def in_stack():
    with contextlib.ExitStack() as stack:
        yield stack.enter_context(usmq.capture())


@pytest.mark.parametrize("manager", [in_generator, in_stack])
def test_a_context_manager_opens_a_capture_around_or_inside_a_signal_handler(work, manager):
    with handled(lambda *_: work()), manager() as graph:
        add(work.x, work.y)
        signal.raise_signal(signal.SIGUSR1)
    check(work, graph, 1)
    graphs = []

    def handler(number, frame):
        with manager() as graph:
            add(work.x, work.y)
        graphs.append(graph)

    with handled(handler):
        signal.raise_signal(signal.SIGUSR1)
    graphs[0].replay().wait()
    assert work.y.tolist() == [2.0] * 8


def test_a_signal_handler_interrupts_the_capture_of_a_task(work):
    async def block():
        with usmq.capture() as graph:
            signal.raise_signal(signal.SIGUSR1)
            await asyncio.sleep(0)
            await inner()
        return graph

    async def inner():
        add(work.x, work.y)
        signal.raise_signal(signal.SIGUSR1)

    with handled(lambda *_: work()):
        graph = asyncio.run(block())
    check(work, graph, 2)
