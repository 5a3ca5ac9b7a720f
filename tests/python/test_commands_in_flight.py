"""A queue holds a bounded number of commands; further submissions wait until earlier ones end."""

import contextlib
import os
import signal
import threading
import time

import numpy as np
import pytest
import usmq

GATE = """#include <usmq/kernel.h>
USMQ_KERNEL(1) void gate(volatile int *is_open, volatile int *has_begun) {
  *has_begun = 1;
  while (*is_open == 0) {}
}
USMQ_KERNEL(1) void add(int *x) { x[global_id(0)] += 1; }
"""
# A queue holds 8 x 1,024 commands, and those up to the next multiple of 1,024.
LEAST, MOST = 8 * 1024, 9 * 1024 + 2
MORE = 11_000


class Gate:
    """A kernel that holds up a queue until `open`."""

    def __init__(self, queue):
        self.flags = [usmq.zeros(1, "i4", usm_type="shared", queue=queue) for _ in range(2)]
        views = [np.asarray(flag) for flag in self.flags]
        self.is_open, self.has_begun = views
        usmq.Kernel.from_sycl(GATE, "gate", queue=queue)(1, *self.flags, queue=queue)
        while not self.has_begun[0]:
            time.sleep(0.001)

    def open(self):
        self.is_open[0] = 1


class Submissions:
    """A thread that submits commands and counts them."""

    def __init__(self, submit, total=MORE):
        self.count = 0
        self.submit, self.total = submit, total
        self.thread = threading.Thread(target=self.run)
        self.thread.start()

    def run(self):
        for _ in range(self.total):
            self.submit()
            self.count += 1

    def stopped_at(self, least=LEAST):
        """Return the count once it is at least that and stays the same."""
        before = -1
        while self.count < least or before != self.count:
            before = self.count
            time.sleep(0.2)
        return before


def queue_of_its_own(device, **properties):
    """Return a queue that no other library has seen.

    The CPU driver executes commands in one thread fewer than there are cores, and in threads that
    wait. usmq starts such a thread only for queues without host tasks of other libraries.
    """
    return usmq.Queue(device, context=usmq.Context([device]), **properties)


@pytest.fixture(params=["in order", "out of order", "with timestamps"])
def queue(request):
    return queue_of_its_own(
        usmq.current_queue().device,
        in_order=request.param != "out of order",
        profiling=request.param == "with timestamps",
    )


@pytest.fixture
def gate(queue):
    gate = Gate(queue)
    yield gate
    gate.open()
    queue.wait()


def needs_two_units(queue):
    """Skip a test that runs commands beside the gate."""
    if queue.device.max_compute_units < 2 or os.environ.get("USMQ_EMULATE_GPUS"):
        pytest.skip(f"the gate takes a core, and {queue.device} may have no other one")
    if queue.device.backend == "level_zero":
        pytest.skip(f"the gate may take the engine of {queue.device}, on which all queues work")


def held_up(queue, submit, total=MORE, least=LEAST):
    """Submit behind a closed gate; return at which count that stops, and finish all work."""
    gate = Gate(queue)
    submissions = Submissions(submit, total)
    try:
        count = submissions.stopped_at(least)
    finally:
        gate.open()
    submissions.thread.join(60)
    assert submissions.count == total
    queue.wait()
    return count


@pytest.mark.parametrize("command", ["fill", "launch", "copy", "barrier"])
def test_submissions_stop_at_a_bound_and_go_on_when_commands_end(queue, command):
    x, y = usmq.ones(1, "i4", queue=queue), usmq.zeros(1, "i4", queue=queue)
    add = usmq.Kernel.from_sycl(GATE, "add", queue=queue)
    after = []
    submit, right = {
        "fill": (lambda: y.fill(7), 7),
        "launch": (lambda: add(1, y), MORE),
        "copy": (lambda: y.copy_from(x), 1),
        # Of an out-of-order queue, only commands after a barrier wait for the gate.
        "barrier": (lambda: queue.barrier(after), 0),
    }[command]

    def first_of_all():
        if not after:
            after.append(queue.barrier())
        submit()

    queue.wait()
    assert held_up(queue, first_of_all) <= MOST
    assert y.tolist() == [right]


@pytest.mark.parametrize("queue", ["in order", "out of order"], indirect=True)
def test_another_queue_and_a_wait_are_not_delayed(queue, request):
    needs_two_units(queue)
    gate = request.getfixturevalue("gate")
    # Also of an out-of-order queue, the commands wait for the gate.
    queue.barrier()
    y = usmq.zeros(1, "i4", queue=queue)
    submissions = Submissions(lambda: y.fill(7))
    submissions.stopped_at()
    other = queue_of_its_own(queue.device, in_order=False)
    x = usmq.zeros(3, queue=other)
    x.fill(1)
    assert x.tolist() == [1] * 3
    gate.open()
    submissions.thread.join(60)
    assert submissions.count == MORE


@pytest.mark.parametrize("queue", ["in order"], indirect=True)
def test_a_replay_counts_its_commands(queue):
    x, add = usmq.zeros(1, "i4", queue=queue), usmq.Kernel.from_sycl(GATE, "add", queue=queue)
    with usmq.capture() as graph:
        for _ in range(100):
            add(1, x)
    queue.wait()
    assert held_up(queue, graph.replay, 200, LEAST // 100) <= MOST // 80
    assert x.tolist() == [100 * 200]


@pytest.mark.parametrize("queue", ["in order"], indirect=True)
def test_a_capture_records_any_number_of_commands(queue, gate):
    x = usmq.zeros(1, "i4", queue=queue)
    with usmq.capture() as graph:
        for _ in range(MORE):
            x.fill(1)
    gate.open()
    graph.replay().wait()
    assert x.tolist() == [1]


class Stopped(Exception):
    """Raised by the signal handler."""


@pytest.mark.parametrize("queue", ["in order"], indirect=True)
def test_a_signal_interrupts_a_submission_that_waits(queue, gate):
    x, count = usmq.zeros(1, "i4", queue=queue), 0

    def handler(*_):
        raise Stopped

    before = signal.signal(signal.SIGUSR1, handler)
    main = threading.main_thread().ident

    def interrupt():
        seen = -1
        while seen != count or count < LEAST:
            seen = count
            time.sleep(0.2)
        signal.pthread_kill(main, signal.SIGUSR1)

    thread = threading.Thread(target=interrupt)
    thread.start()
    try:
        with contextlib.suppress(Stopped):
            for _ in range(MORE):
                x.fill(7)
                count += 1
    finally:
        thread.join()
        signal.signal(signal.SIGUSR1, before)
    assert LEAST <= count <= MOST


@pytest.mark.parametrize("queue", ["in order"], indirect=True)
def test_a_callback_submits_without_a_wait(queue, request):
    needs_two_units(queue)
    gate = request.getfixturevalue("gate")
    x, done = usmq.zeros(1, "i4", queue=queue), threading.Event()
    submissions = Submissions(lambda: x.fill(7))
    submissions.stopped_at()

    def callback(_):
        x.fill(7)
        done.set()

    other = Gate(queue_of_its_own(queue.device, in_order=False))
    event = other.flags[0].queue.barrier()
    event.add_done_callback(callback)
    other.open()
    assert done.wait(60)
    assert submissions.count < MORE
    gate.open()
    submissions.thread.join(60)
