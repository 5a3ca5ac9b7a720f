"""Tasks: a task context holds the arguments, the queue and the memory of a function."""

import gc

import numpy as np
import pyarrow as pa
import pytest
import usmq
from children import KERNEL
from conftest import in_threads


@pytest.fixture
def two_queues(two_devices):
    return tuple(usmq.Queue(device) for device in two_devices)


def live():
    gc.collect()
    return sum(kind["live"] for kind in usmq.memory_stats().values())


def test_a_task_runs_on_the_queue_of_its_data(two_queues):
    first, second = two_queues
    x = usmq.arange(3, queue=second)

    def body(task):
        assert task.queue == usmq.current_queue() == second
        assert usmq.zeros(2).queue == task.memory.zeros(2).queue == second
        return task.array("i8")

    with usmq.use_queue(first):
        assert usmq.run_task(body, x).ptr == x.ptr
        assert usmq.current_queue() == first
        assert usmq.run_task(lambda task: task.queue) == first
        assert usmq.run_task(lambda task: task.queue, queue=second) == second
    called = []
    with pytest.raises(usmq.PlacementError, match=r"task \"append\""):
        usmq.run_task(called.append, usmq.arange(3, queue=first), x)
    assert called == []


def test_arguments_are_read_in_order_with_their_types():
    table = usmq.from_arrow(pa.table({"x": [1, 2]}))
    given = (usmq.zeros(3), table, table["x"], 2, np.float32(1.5), True, "text", {"a": 1}, None)

    def body(task):
        assert task.args_left == 9
        with pytest.raises(TypeError, match=r"argument 1 .*array of float64"):
            task.array("f8")
        with pytest.raises(TypeError, match="requests type Table"):
            task.arg(usmq.Table)
        assert task.array("f4").shape == (3,)
        assert task.arg(usmq.Table).column_names == ["x"]
        assert task.arg(usmq.Column).values().to_numpy().tolist() == [1, 2]
        assert task.arg(float) == 2.0
        with pytest.raises(TypeError, match="requests type int"):
            task.arg(int)
        assert task.arg(float) == 1.5
        with pytest.raises(TypeError):
            task.arg(int)
        assert task.arg(bool) is True
        assert task.arg(str) == "text"
        assert task.arg(dict) == {"a": 1}
        assert task.arg(object) is None
        with pytest.raises(TypeError, match="argument 10"):
            task.arg(object)

    usmq.run_task(body, *given)


def test_errors_of_the_task_and_its_function_leave_no_memory():
    before = live()

    def fails(task):
        task.memory.allocate(100)
        raise LookupError("mine")

    with pytest.raises(LookupError, match="mine"):
        usmq.run_task(fails, 1, 2)
    assert live() == before
    with pytest.raises(TypeError, match=r"received 2 arguments, but its function took 1"):
        usmq.run_task(lambda task: task.arg(int), 1, 2)
    assert usmq.run_task(lambda task: task.rest(), 1, "b") == [1, "b"]


def test_memory_keeps_the_limit_and_ends_with_the_task():
    """Blocks and limits are in tests/suite/task.rs."""
    kept = []

    def body(task):
        x = task.memory.empty(600, "u1")
        with pytest.raises(usmq.AllocationError, match="limited"):
            task.memory.empty(500, "u1", usm_type="host")
        assert (task.memory.used, task.memory.peak, task.memory.limit) == (600, 600, 1000)
        task.memory.release(x)
        address = task.memory.allocate(1000, usm_type="shared")
        array = task.memory.release_block(address)
        with pytest.raises(ValueError, match=f"{address:#x}"):
            task.memory.deallocate(address)
        task.memory.deallocate(task.memory.allocate(0))
        task.memory.allocate(10)
        kept.extend([task.memory, array, task, x])

    before = live()
    usmq.run_task(body, memory_limit=1000, name="limited")
    memory, array, task, _ = kept
    assert live() == before + 2, "the remaining block is freed"
    array[...] = 3
    assert array.to_numpy().tolist() == [3] * 1000
    with pytest.raises(ValueError, match="has ended"):
        memory.zeros(1)
    assert repr(task) == '<usmq.TaskContext "limited", 0 arguments left>'


def test_reading_an_argument_may_run_python_code_that_uses_the_task():
    class Curious:
        def __repr__(self):
            return f"seen with {self.task.args_left} left"

    def body(task):
        thing.task = task
        with pytest.raises(TypeError, match="seen with 1 left"):
            task.arg(str)
        return task.arg(Curious)

    thing = Curious()
    assert usmq.run_task(body, thing) is thing
    del thing.task


def test_each_thread_has_its_own_task(two_queues):
    def body(task):
        for _ in range(100):
            assert usmq.current_queue() == task.queue == usmq.zeros(1).queue
        return task.queue

    calls = [lambda queue=queue: usmq.run_task(body, queue=queue) for queue in two_queues]
    assert in_threads(*calls * 4) == [*two_queues] * 4


ASKS = f"""{KERNEL}
import threading

def body(task):
    taken = usmq.zeros(1 << 18, "u4", usm_type="host")
    spin(1, taken, 400_000_000)
    del taken  # so the block is one that a kernel still uses, and its next owner waits
    over = threading.Event()
    def asks():
        while not over.is_set():
            task.memory.used
    thread = threading.Thread(target=asks)
    thread.start()
    task.memory.allocate(1 << 20, usm_type="host")
    over.set()
    thread.join()

usmq.run_task(body)
print("done")
"""


def test_reading_statistics_does_not_deadlock_an_allocating_thread(run_python):
    assert run_python(ASKS, timeout=60).stdout == "done\n"
